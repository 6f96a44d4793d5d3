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

    /// Ends one operation and sends as many as fit, as long as at most `demand` are wanted; the time that the
    /// one that has ended took.
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
            knee.sent(at(self.now), self.sent.len() as u32);
        }
        let first = (0..self.sent.len()).min_by_key(|&index| self.sent[index].0).unwrap();
        let outstanding = self.sent.len() as u32;
        let (end, service) = self.sent.swap_remove(first);
        self.now = self.now.max(end);
        knee.ended(at(self.now), outstanding, Duration::from_nanos(service));
    }

    /// Operations a second at a fixed depth.
    fn rate(servers: usize, own_queues: bool, depth: usize) -> f64 {
        let (mut device, mut knee) = (Self::new(servers, own_queues), Knee::new());
        knee.go(
            LADDER.iter().position(|&rung| rung as usize == depth).unwrap(),
            Phase::Rest(u32::MAX),
        );
        for _ in 0..40_000 {
            device.step(&mut knee, u32::MAX);
        }
        40_000.0 / device.now as f64 * 1e9
    }
}

/// Operations until a search has ended and the depth has rested for a while.
const SEARCH: u32 = 40_000;

/// Where it comes to rest: the smallest rung with 97 % of the highest throughput, give or take a point.
#[test]
fn it_comes_to_rest_at_the_knee() {
    for (servers, own_queues) in [
        (1, false),
        (2, false),
        (5, false),
        (8, false),
        (16, false),
        (40, false),
        (2, true),
        (4, true),
        (8, true),
    ] {
        let (mut device, mut knee) = (Device::new(servers, own_queues), Knee::new());
        for _ in 0..SEARCH {
            device.step(&mut knee, u32::MAX);
        }
        assert!(matches!(knee.phase, Phase::Rest(_)), "{servers}: {:?}", knee.phase);
        let rate = |rung: usize| Device::rate(servers, own_queues, LADDER[rung] as usize);
        let most = rate(LADDER.len() - 1);
        let share = rate(knee.rung) / most;
        assert!(share >= 0.96, "{servers} {own_queues}: {} has {share}", knee.depth());
        if let Some(below) = knee.rung.checked_sub(1) {
            let share = rate(below) / most;
            assert!(share < 0.98, "{servers} {own_queues}: {} has {share}", LADDER[below]);
        }
    }
}

/// It stays there for most of the time, and follows a backend that changes.
#[test]
fn it_stays_and_it_follows() {
    let (mut device, mut knee) = (Device::new(8, false), Knee::new());
    for _ in 0..SEARCH {
        device.step(&mut knee, u32::MAX);
    }
    let mut elsewhere = 0;
    for _ in 0..1_000_000 {
        device.step(&mut knee, u32::MAX);
        elsewhere += u32::from(knee.depth() != 8);
        assert!((6..=16).contains(&knee.depth()), "{}", knee.depth());
    }
    assert!(elsewhere < 80_000, "{elsewhere} of a million were elsewhere");
    for (servers, depth) in [(2, 2), (16, 16)] {
        device.free = alloc::vec![device.now; servers];
        for _ in 0..6 * SEARCH {
            device.step(&mut knee, u32::MAX);
        }
        assert_eq!(knee.settled.map(|rung| LADDER[rung]), Some(depth));
    }
}

/// What was sent at another depth does not count.
#[test]
fn what_met_another_depth_does_not_count() {
    let (mut device, mut knee) = (Device::new(8, false), Knee::new());
    device.step(&mut knee, u32::MAX);
    let depth = knee.depth();
    for _ in 1..depth {
        device.step(&mut knee, u32::MAX);
    }
    assert_eq!(knee.measure.count, 0);
    for _ in 0..3 {
        device.step(&mut knee, u32::MAX);
    }
    assert!((1..=3).contains(&knee.measure.count), "{}", knee.measure.count);
}

/// A queue that is not full teaches nothing: the depth stays where it begins while less is wanted, and comes
/// back from where more would be needed than is wanted.
#[test]
fn what_is_not_wanted_is_not_tried_for_long() {
    let (mut device, mut knee) = (Device::new(32, false), Knee::new());
    for _ in 0..10_000 {
        device.step(&mut knee, 3);
        assert_eq!(knee.depth(), 4);
    }
    for _ in 0..2_000_000 {
        device.step(&mut knee, 8);
    }
    assert!(knee.settled.is_some_and(|rung| LADDER[rung] == 8), "{knee:?}");
}
