use super::*;
use crate::rng::Rng;
use alloc::vec::Vec;

/// A backend of `servers` servers, each with its own queue or all with one.
struct Device {
    own_queues: bool,
    free: Vec<u64>,
    rng: Rng,
    now: u64,
    /// Ends and service times.
    sent: Vec<(u64, u64)>,
}

impl Device {
    fn new(servers: usize, own_queues: bool) -> Self {
        let free = alloc::vec![0; servers];
        Self { own_queues, free, rng: Rng::stream(7, "knee"), now: 0, sent: Vec::new() }
    }

    /// Ends one operation and sends as many as fit, as long as at most `demand` are wanted.
    fn step(&mut self, knee: &mut Knee, demand: u32) {
        let at = Instant::from_nanos;
        while (self.sent.len() as u32) < knee.depth().min(demand) {
            let service = 90_000 + self.rng.below(20_000);
            let count = self.free.len() as u64;
            let server = if self.own_queues {
                self.rng.below(count) as usize
            } else {
                (0..self.free.len()).min_by_key(|&server| self.free[server]).unwrap()
            };
            self.free[server] = self.free[server].max(self.now) + service;
            self.sent.push((self.free[server], service));
            let outstanding = self.sent.len() as u32;
            knee.sent(at(self.now), outstanding, demand - outstanding);
        }
        let first = (0..self.sent.len()).min_by_key(|&index| self.sent[index].0).unwrap();
        let outstanding = self.sent.len() as u32;
        let (end, service) = self.sent.swap_remove(first);
        self.now = self.now.max(end);
        let waiting = demand.saturating_sub(outstanding);
        knee.ended(at(self.now), outstanding, waiting, Duration::from_nanos(service));
    }

    /// Operations a second at a fixed depth.
    fn rate(servers: usize, own_queues: bool, depth: u32) -> f64 {
        let (mut device, mut knee) = (Self::new(servers, own_queues), Knee::new());
        knee.demand_max = u32::MAX;
        for _ in 0..40_000 {
            let rung = LADDER.iter().position(|&rung| rung == depth).unwrap();
            knee.go(rung, Phase::Rest { left: u32::MAX });
            device.step(&mut knee, FULL);
        }
        40_000.0 / device.now as f64 * 1e9
    }
}

/// More than any depth has room for.
const FULL: u32 = 10_000;

/// Operations until a search has ended and the depth has rested for a while.
const SEARCH: u32 = 20_000;

/// Where it comes to rest: the smallest rung with 97 % of the highest throughput, give or take two points.
#[test]
fn it_comes_to_rest_at_the_knee() {
    for (servers, own_queues) in [
        (1, false),
        (2, false),
        (5, false),
        (8, false),
        (16, false),
        (40, false),
        (100, false),
        (2, true),
        (4, true),
        (8, true),
    ] {
        let (mut device, mut knee) = (Device::new(servers, own_queues), Knee::new());
        for _ in 0..SEARCH {
            device.step(&mut knee, FULL);
        }
        assert!(matches!(knee.phase, Phase::Rest { .. }), "{servers}: {:?}", knee.phase);
        let rate = |rung: usize| Device::rate(servers, own_queues, LADDER[rung]);
        let most = rate(TOP);
        let share = rate(knee.rung) / most;
        assert!(share >= 0.95, "{servers} {own_queues}: {} has {share}", knee.depth());
        if let Some(below) = knee.rung.checked_sub(1) {
            let share = rate(below) / most;
            assert!(share < 0.99, "{servers} {own_queues}: {} has {share}", LADDER[below]);
        }
    }
}

/// It stays there for most of the time, and follows a backend that changes.
#[test]
fn it_stays_and_it_follows() {
    let (mut device, mut knee) = (Device::new(8, false), Knee::new());
    for _ in 0..SEARCH {
        device.step(&mut knee, FULL);
    }
    let mut elsewhere = 0;
    for _ in 0..1_000_000 {
        device.step(&mut knee, FULL);
        elsewhere += u32::from(knee.depth() != 8);
        assert!((6..=16).contains(&knee.depth()), "{}", knee.depth());
    }
    assert!(elsewhere < 80_000, "{elsewhere} of a million were elsewhere");
    for (servers, depth) in [(2, 2), (16, 16), (96, 96)] {
        device.free = alloc::vec![device.now; servers];
        for _ in 0..12 * SEARCH {
            device.step(&mut knee, FULL);
        }
        assert_eq!(knee.depth(), depth);
    }
}

/// What was sent at another depth does not count.
#[test]
fn what_met_another_depth_does_not_count() {
    let (mut device, mut knee) = (Device::new(8, false), Knee::new());
    while knee.depth() == LADDER[TOP] {
        device.step(&mut knee, FULL);
    }
    for _ in 0..LADDER[TOP] {
        assert_eq!(knee.measure.ends, 0);
        device.step(&mut knee, FULL);
    }
    device.step(&mut knee, FULL);
    assert_eq!(knee.measure.ends, 1);
}

/// Hosts that keep fewer operations outstanding than the greatest depth are held to the knee as well; more hosts
/// begin the search anew, so that no throughput is lost. A load that leaves the backend idle teaches nothing.
#[test]
fn it_follows_demand() {
    let (mut device, mut knee) = (Device::new(8, false), Knee::new());
    for (demand, depth) in [(1, 1), (4, 4), (20, 8), (60, 8)] {
        for _ in 0..SEARCH {
            device.step(&mut knee, demand);
        }
        assert_eq!(knee.depth(), depth, "{demand}: {knee:?}");
    }
    let (mut knee, mut now) = (Knee::new(), 0);
    for _ in 0..SEARCH {
        knee.sent(Instant::from_nanos(now), 1, 0);
        now += 100_000;
        knee.ended(Instant::from_nanos(now), 1, 0, Duration::from_micros(100));
        now += 20_000;
    }
    assert_eq!(knee.depth(), LADDER[TOP]);
}

/// Rates that were measured with other costs are not compared with: the search begins anew, and its measure too.
#[test]
fn other_costs_begin_it_anew() {
    let (mut device, mut knee) = (Device::new(8, false), Knee::new());
    for _ in 0..SEARCH {
        device.step(&mut knee, FULL);
    }
    assert!(matches!(knee.phase, Phase::Rest { .. }) && knee.depth() == 8, "{knee:?}");
    for operations in [200, 0] {
        knee.begin();
        assert_eq!((knee.depth(), knee.phase), (LADDER[TOP], Phase::Begin { bad: None }));
        assert_eq!(knee.measure.ends, 0, "what met the other costs does not count");
        for _ in 0..operations {
            device.step(&mut knee, FULL);
        }
    }
}

/// The rung that a number of operations reaches is the last of the ladder that is not above it.
#[test]
fn levels_are_rungs() {
    for outstanding in 0..300 {
        let rungs = LADDER.iter().filter(|&&rung| rung <= outstanding).count();
        assert_eq!(level(outstanding), rungs, "{outstanding}");
    }
}
