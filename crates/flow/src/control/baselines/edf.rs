//! # Control policy: earliest deadline first with a depth (EDF(D))
//!
//! At most D requests are at the device; the one whose promise ends first goes first.
//!
//! | | |
//! |---|---|
//! | Model    | a request within its tenant's profile has the deadline `arrival + response`, any other none; while fewer than `depth` are at the device the earliest deadline goes, and those without when no other waits |
//! | Profile  | a bucket as in `ta1`, full in the beginning, that holds 50 ms of `iops`, but a token at least, and is filled with `iops * (1 + margin)` every millisecond; a request within the profile pays, any other costs nothing |
//! | Units    | deadlines in nanoseconds; the profile in milli-tokens |
//! | Ties     | order of arrival |
//! | Order    | requests without a deadline are overtaken, also by later ones of their own tenant |
//! | Cost     | O(log waiting) per request |
//! | Source   | the deadlines of Façade (Lumb, Merchant and Alvarez, FAST 2003) without its control of the depth; `docs/reference/control.md` section 7 |
//! | Not when | requests of a tenant must keep their order, or the depth is not known |
//!
//! A tenant without a contract has no deadlines, nor has a request that costs more than the profile holds.
//!
//! "50 ms of slack" in section 7 leaves open what is saved. With the bucket of sections 2.2 and 11, only its
//! depth changed, every cell of the specification's tables is met within 1 point and 1 %; with one
//! that fills continuously, or begins empty, or holds the margin too, single cells are 8 to 29 points away.

use super::bucket::{Bucket, Ticks};
use super::depth_bound::{DEPTH, DepthBound, Order};
use super::simple::{SimpleContract, simple_contracts};
use crate::clock::{Duration, Instant};
use crate::control::contract::{self, TOKEN};
use crate::control::{Build, Promises};
use crate::policy::{Parameter, Policy, Property, Unit};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(in crate::control) const POLICY: Policy<Build> = Policy {
    name: "edf",
    summary: "a fixed number of places at the device for the requests whose promises end first (EDF(D))",
    properties: &[Property::WorkConserving],
    parameters: &[DEPTH, MARGIN],
    build: |values, list| {
        let edf = Edf::new(values.get("margin"), list);
        Box::new(DepthBound::new(edf, values.get_u32("depth")))
    },
};

pub(super) const MARGIN: Parameter = Parameter {
    name: "margin",
    unit: Unit::Count,
    min: 0,
    max: 1_000,
    default: 50,
    effect: "thousandths above the contract's rate that still have deadlines",
};

/// How much unused time of the contract is saved.
const SAVED: Duration = Duration::from_millis(50);

/// Refills of the profiles per second.
const TAU: u64 = 1_000;

/// Queued requests by their deadlines.
pub(super) struct Edf {
    lanes: Vec<Lane>,
    /// By deadline and order of arrival.
    urgent: BTreeMap<(Instant, u64), RequestKey>,
    others: VecDeque<RequestKey>,
    /// The arrival of each request with a deadline, until it ends.
    pub(super) came: SecondaryMap<RequestKey, Instant>,
    arrived: u64,
}

struct Lane {
    promise: SimpleContract,
    profile: Bucket,
}

impl Edf {
    pub(super) fn new(margin_permille: u64, list: &Promises) -> Self {
        let lane = |promise: SimpleContract| {
            let iops = u64::from(promise.iops);
            let saved = iops * TOKEN * SAVED.as_nanos() / Duration::from_secs(1).as_nanos();
            let rate = iops * (1_000 + margin_permille) * TOKEN / 1_000;
            Lane { profile: Bucket::holding(saved.max(TOKEN), rate, TAU), promise }
        };
        Self {
            lanes: simple_contracts(list).into_iter().map(lane).collect(),
            urgent: BTreeMap::new(),
            others: VecDeque::new(),
            came: SecondaryMap::new(),
            arrived: 0,
        }
    }

    /// Whether a request is queued.
    pub(super) fn waits(&self) -> bool {
        !self.urgent.is_empty() || !self.others.is_empty()
    }
}

impl Lane {
    /// Whether a request that comes now is within the profile, which it then pays from.
    fn on_time(&mut self, now: Instant, cost: u64) -> bool {
        self.profile.refill(Ticks::new(TAU).until(now));
        self.promise.kept && self.profile.pay(cost)
    }
}

impl Order for Edf {
    fn push(&mut self, now: Instant, key: RequestKey, request: &Request) {
        let lines = self.lanes.len();
        let lane = &mut self.lanes[contract::line(request, lines)];
        if lane.on_time(now, lane.promise.cost(request)) {
            self.arrived += 1;
            self.came.insert(key, now);
            self.urgent.insert((now + lane.promise.response, self.arrived), key);
        } else {
            self.others.push_back(key);
        }
    }

    fn pop(&mut self, _: Instant) -> Option<RequestKey> {
        let urgent = self.urgent.pop_first().map(|(_, key)| key);
        urgent.or_else(|| self.others.pop_front())
    }

    fn ended(&mut self, key: RequestKey) {
        self.came.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Contract, ControlPolicy};
    use crate::request::TenantId;
    use crate::testing;

    fn contract(iops: u32, millis: u64) -> Contract {
        Contract::new(iops, 4_096, Duration::from_millis(millis))
    }

    fn of(tenant: u32) -> Request {
        Request { tenant: TenantId::new(tenant), ..testing::request(0) }
    }

    /// The tighter promise goes first although it came later; what comes faster than the profile goes
    /// last, in order of arrival.
    #[test]
    fn deadlines_order_the_profile() {
        let list = testing::promises(&[contract(40, 100), contract(1_000, 10)].map(Some));
        let mut edf = DepthBound::new(Edf::new(0, &list), 1);
        let keys = testing::keys(5);
        for (&key, tenant) in keys.iter().zip([0, 0, 0, 1, 2]) {
            edf.arrive(Instant::ZERO, key, &of(tenant), Some(0));
        }
        let mut order = Vec::new();
        while let Some((key, _)) = edf.poll(Instant::ZERO) {
            assert!(edf.poll(Instant::ZERO).is_none(), "there is one place");
            order.push(keys.iter().position(|&k| k == key).unwrap());
            edf.complete(Instant::ZERO, key, &testing::request(0), Duration::ZERO);
        }
        // A profile begins full, and 50 ms of tenant 0 are two requests.
        assert_eq!(order, [3, 0, 1, 2, 4]);
    }

    /// A profile is filled with the margin and at whole milliseconds, holds 50 ms without the margin, and a
    /// token even if the contract earns less in that time.
    #[test]
    fn a_profile_is_a_bucket() {
        let list = testing::promises(&[contract(1_000, 10), contract(1, 10)].map(Some));
        let mut edf = Edf::new(100, &list);
        let mut within = |tenant: usize, micros| {
            let now = Instant::ZERO + Duration::from_micros(micros);
            let lane: &mut Lane = &mut edf.lanes[tenant];
            (0..1_000).take_while(|_| lane.on_time(now, TOKEN)).count()
        };
        for (micros, fit) in [(0, 50), (999, 0), (1_000, 1), (9_999, 8), (10_000, 2)] {
            assert_eq!(within(0, micros), fit, "at {micros} us");
        }
        assert_eq!(within(0, 1_000_000), 50);
        assert_eq!(
            [0, 500_000, 1_000_000, 9_000_000].map(|micros| within(1, micros)),
            [1, 0, 1, 1]
        );
        assert_eq!(within(2, 0), 0, "a tenant without a contract has no profile");
    }
}
