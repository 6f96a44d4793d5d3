//! # Control policy: earliest deadline first with a depth (EDF(D))
//!
//! At most D requests are at the device; the one whose promise ends first goes first.
//!
//! | | |
//! |---|---|
//! | Model    | a request within `iops * (1 + margin)`, of which 50 ms are saved at most, has the deadline `arrival + response`, any other none; while fewer than `depth` are at the device the earliest deadline goes, and those without when no other waits |
//! | Units    | deadlines in nanoseconds; the profile in nanoseconds times rate, exact |
//! | Ties     | order of arrival |
//! | Order    | requests without a deadline are overtaken, also by later ones of their own tenant |
//! | Cost     | O(log waiting) per request |
//! | Source   | the deadlines of Façade (Lumb, Merchant and Alvarez, FAST 2003) without its control of the depth; spec/control.md section 7 |
//! | Differs  | from the reference tables of the specification by up to 4 points of satisfaction in single cells, for the same reason as `facade` |
//! | Not when | requests of a tenant must keep their order, or nobody can tell the depth |
//!
//! A tenant without a contract has no deadlines.

use super::contract::{self, Promise};
use super::sfq::{self, Places};
use super::{Build, ControlPolicy, Promises};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Rule, Unit};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "edf",
    summary: "a fixed number of places at the device for the requests whose promises end first (EDF(D))",
    parameters: &[sfq::DEPTH, MARGIN],
    build: |values, list| Box::new(Edf::new(values[0] as u32, values[1], list)),
};

pub(super) const MARGIN: Parameter = Parameter {
    name: "margin",
    unit: Unit::Count,
    min: 0,
    max: 1_000,
    default: 50,
    effect: "thousandths above the contract's rate that still have deadlines",
};

/// How much unused time of the profile is saved.
const SAVED: Duration = Duration::from_millis(50);

/// Deadlines, and a bound on what is at the device.
pub(super) struct Edf {
    lanes: Vec<Lane>,
    /// By deadline and order of arrival.
    urgent: BTreeMap<(Instant, u64), RequestKey>,
    others: VecDeque<RequestKey>,
    pub(super) places: Places,
    /// When each request with a deadline came, until it ends.
    pub(super) came: SecondaryMap<RequestKey, Instant>,
    arrived: u64,
}

struct Lane {
    promise: Promise,
    /// Rate of the profile in thousandths, and up to when its time is used, times that rate.
    rate: u128,
    next: u128,
}

impl Edf {
    pub(super) fn new(depth: u32, margin_permille: u64, list: &Promises) -> Self {
        let lane = |promise: Promise| Lane {
            rate: u128::from(promise.iops) * u128::from(1_000 + margin_permille),
            promise,
            next: 0,
        };
        Self {
            lanes: contract::promises(list).into_iter().map(lane).collect(),
            urgent: BTreeMap::new(),
            others: VecDeque::new(),
            places: Places::new(depth),
            came: SecondaryMap::new(),
            arrived: 0,
        }
    }

    /// Whether anything waits.
    pub(super) fn waits(&self) -> bool {
        !self.urgent.is_empty() || !self.others.is_empty()
    }
}

impl Lane {
    /// Whether a request that comes now is within the profile, which it then counts against. The
    /// profile begins with nothing saved.
    fn on_time(&mut self, now: Instant, cost: u64) -> bool {
        let from = u128::from(now.as_nanos().saturating_sub(SAVED.as_nanos())) * self.rate;
        // A milli-token takes 10^9 / rate nanoseconds.
        let next = self.next.max(from) + u128::from(cost) * 1_000_000_000;
        let on_time = self.promise.kept && next <= u128::from(now.as_nanos()) * self.rate;
        if on_time {
            self.next = next;
        }
        on_time
    }
}

impl ControlPolicy for Edf {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, _: Option<u8>) {
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

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        if !self.places.free() {
            return None;
        }
        let urgent = self.urgent.pop_first().map(|(_, key)| key);
        let key = urgent.or_else(|| self.others.pop_front())?;
        self.places.take();
        Some((key, sfq::RULE))
    }

    fn complete(&mut self, _: Instant, key: RequestKey, _: &Request, _: Duration) {
        self.came.remove(key);
        self.places.leave();
    }

    fn adopt(&mut self, _: RequestKey, _: &Request, _: Instant) {
        self.places.take();
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::super::Contract;
    use super::*;
    use crate::request::TenantId;
    use crate::testing;

    /// The tighter promise goes first although it came later; what comes faster than the profile goes
    /// last, in order of arrival.
    #[test]
    fn deadlines_order_the_profile() {
        let contract =
            |iops, millis| Some(Contract::new(iops, 4_096, Duration::from_millis(millis)));
        let mut edf = Edf::new(1, 0, &testing::promises(&[contract(40, 100), contract(1_000, 10)]));
        let keys = testing::keys(5);
        for (&key, tenant) in keys.iter().zip([0, 0, 0, 1, 2]) {
            let request = Request { tenant: TenantId::new(tenant), ..testing::request(0) };
            edf.arrive(Instant::ZERO + SAVED * 4, key, &request, Some(0));
        }
        let mut order = Vec::new();
        while let Some((key, _)) = edf.poll(Instant::ZERO) {
            assert!(edf.poll(Instant::ZERO).is_none(), "there is one place");
            order.push(keys.iter().position(|&k| k == key).unwrap());
            edf.complete(Instant::ZERO, key, &testing::request(0), Duration::ZERO);
        }
        // What tenant 0 has saved in 50 ms is two requests.
        assert_eq!(order, [3, 0, 1, 2, 4]);
    }
}
