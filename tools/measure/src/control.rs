//! Drives one control policy and nothing else, to count the instructions that a request costs.
//!
//! Ends when REQUESTS have ended. The count includes the set-up: take the difference of two runs, as
//! `bench/control_cost.sh` does.
//!
//! The tenants are promised [`SOLD`] requests a second together, in equal parts. Those with an odd number
//! ask for five times as much as those with an even one, all together for half as much again as was sold:
//! the first are over their contracts, the others below. One that stands alone is over. The device serves
//! [`CHANNELS`] at once, the others in order of arrival, and has a fifth more capacity than was sold. A
//! tenant with its share of [`OUTSTANDING`] requests outstanding, or two, sends no more until one has ended.
//! So policies that hold requests have queues in front of half of the tenants, all the time.

use slotmap::SlotMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Contract, ControlPolicy, POLICIES, Promises};
use weir_flow::policy::Choice;
use weir_flow::request::{LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::units::Extent;

/// Requests per second that are promised to all tenants together.
pub(crate) const SOLD: u32 = 100_000;

/// Requests that the device serves at once.
const CHANNELS: usize = 32;

/// The mean time in nanoseconds that it takes for one: capacity is a fifth above what was sold.
const SERVICE_NS: u64 = CHANNELS as u64 * 1_000_000_000 / (SOLD as u64 * 6 / 5);

/// The mean time in nanoseconds between requests: half as many again as were sold.
const GAP_NS: u64 = 1_000_000_000 / (SOLD as u64 * 3 / 2);

/// Requests outstanding at once of all tenants together, but two of each.
const OUTSTANDING: u32 = 4_096;

/// The promised response times, in turn.
const RESPONSES_MS: [u64; 3] = [5, 10, 20];

/// The policy and everything around it.
struct Bench {
    policy: Box<dyn ControlPolicy>,
    rng: Rng,
    requests: SlotMap<RequestKey, (Request, Instant)>,
    /// By tenant.
    outstanding: Vec<u32>,
    most: u32,
    next_arrival: Instant,
    /// What the device serves, by when it ends.
    serving: BinaryHeap<Reverse<(Instant, RequestKey)>>,
    queue: VecDeque<RequestKey>,
    ended: u64,
}

impl Bench {
    fn new(choice: &Choice<weir_flow::control::Build>, tenants: u32) -> Self {
        let contract = |tenant: u32| {
            let response = RESPONSES_MS[tenant as usize % RESPONSES_MS.len()];
            Some(Contract::new(SOLD / tenants, 4_096, Duration::from_millis(response)))
        };
        let contracts = (0..tenants).map(contract).collect();
        let promises = Promises { contracts, groups: Vec::new() };
        assert_eq!(promises.validate(), Ok(()), "the contracts are in range");
        Self {
            policy: (choice.policy().build)(choice.values(), &promises),
            rng: Rng::stream(1, "control_cost"),
            requests: SlotMap::with_key(),
            outstanding: vec![0; tenants as usize],
            most: (OUTSTANDING / tenants).max(2),
            next_arrival: Instant::ZERO,
            serving: BinaryHeap::new(),
            queue: VecDeque::new(),
            ended: 0,
        }
    }

    /// A time between half the mean and half as much again.
    fn around(&mut self, mean_ns: u64) -> Duration {
        Duration::from_nanos(mean_ns / 2 + self.rng.below(mean_ns))
    }

    /// Does whatever is next.
    fn step(&mut self) {
        let ending = self.serving.peek().map(|&Reverse((at, _))| at);
        let now = ending.map_or(self.next_arrival, |at| at.min(self.next_arrival));
        if let Some(at) = self.policy.next_deadline().filter(|&at| at < now) {
            self.policy.handle_deadline(at);
            self.drain(at);
        } else if ending == Some(now) {
            self.end(now);
        } else {
            self.arrive(now);
        }
    }

    fn arrive(&mut self, now: Instant) {
        self.next_arrival = now + self.around(GAP_NS);
        let tenants = self.outstanding.len() as u64;
        let pair = self.rng.below(tenants.div_ceil(2)) * 2;
        let odd = u64::from(self.rng.below(6) > 0);
        let index = (pair + odd).min(tenants - 1) as usize;
        if self.outstanding[index] == self.most {
            return;
        }
        self.outstanding[index] += 1;
        let offset = self.rng.below(1 << 20) * 4_096;
        let request = Request {
            tag: Tag::default(),
            tenant: TenantId::new(index as u32),
            volume: VolumeId::default(),
            link: LinkId::default(),
            op: if offset & 4_096 == 0 { Op::Read } else { Op::Write },
            extent: Extent::new(offset, 4_096),
            fua: false,
            ordered: false,
            job: false,
        };
        let key = self.requests.insert((request, now));
        self.policy.arrive(now, key, &request, Some(0));
        self.drain(now);
    }

    fn end(&mut self, now: Instant) {
        let Reverse((_, key)) = self.serving.pop().expect("the caller has seen it");
        let (request, released) = self.requests.remove(key).expect("it was released once");
        self.outstanding[request.tenant.index()] -= 1;
        self.ended += 1;
        if let Some(next) = self.queue.pop_front() {
            self.serve(now, next);
        }
        self.policy.complete(now, key, &request, now.since(released));
        self.drain(now);
    }

    fn drain(&mut self, now: Instant) {
        while let Some((key, _)) = self.policy.poll(now) {
            self.requests[key].1 = now;
            if self.serving.len() < CHANNELS {
                self.serve(now, key);
            } else {
                self.queue.push_back(key);
            }
        }
        while self.policy.notice().is_some() {}
    }

    fn serve(&mut self, now: Instant, key: RequestKey) {
        let at = now + self.around(SERVICE_NS);
        self.serving.push(Reverse((at, key)));
    }
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
/// Until `requests` have ended. Fails if there is no such policy.
pub(crate) fn run(policy: &str, tenants: u32, requests: u64) -> Result<(), String> {
    let choice = Choice::named(POLICIES, policy).map_err(|error| error.to_string())?;
    let mut bench = Bench::new(&choice, tenants);
    while bench.ended < requests {
        bench.step();
    }
    let waiting = bench.requests.len() - bench.serving.len() - bench.queue.len();
    let (end, device) = (bench.next_arrival, bench.serving.len() + bench.queue.len());
    println!("{requests} ended by {end:?}; {waiting} held, {device} at the device");
    // Instructions that release memory are not part of a request.
    std::mem::forget(bench);
    Ok(())
}
