//! # Control policy: start-time fair queueing with a depth (SFQ(D))
//!
//! At most D requests are at the device; tenants share the places in proportion to their contracts.
//!
//! | | |
//! |---|---|
//! | Model    | on arrival `start = max(v, last finish of the tenant)`, `finish = start + cost / iops`; while fewer than `depth` are at the device the smallest start goes and v becomes it |
//! | Units    | tags in 2^-40 s of virtual time |
//! | Ties     | the lowest tenant; within a tenant, order of arrival |
//! | Cost     | O(log tenants) per request |
//! | Source   | Jin, Chase and Kaur, "Interposed proportional sharing for a storage service utility", SIGMETRICS 2004; `docs/reference/control.md` section 7 |
//! | Not when | nobody can tell the depth: the one that keeps promises on one device and mix loses throughput or promises on another. It cannot be told a response time |
//!
//! A tenant without a contract has the weight of 100 requests of 4 KiB a second.

use super::fair::{Fair, Tag};
use super::simple::{SimpleContract, simple_contracts};
use crate::clock::{Duration, Instant};
use crate::control::contract;
use crate::control::{Build, ControlPolicy};
use crate::policy::{Parameter, Policy, Property, Rule, Unit};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

pub(in crate::control) const POLICY: Policy<Build> = Policy {
    name: "sfq",
    summary: "tenants share a fixed number of places at the device by their contracts' rates (SFQ(D))",
    properties: &[Property::KeepsOrder, Property::WorkConserving],
    parameters: &[DEPTH],
    build: |values, list| {
        let (promises, depth) = (simple_contracts(list), values.get_u32("depth"));
        Box::new(Sfq {
            promises: promises.clone(),
            lanes: promises.iter().map(|_| VecDeque::new()).collect(),
            heads: BTreeSet::new(),
            fair: Fair::new(&promises),
            places: Places::new(depth),
        })
    },
};

/// The D of the depth-bounded policies.
pub(super) const DEPTH: Parameter = Parameter {
    name: "depth",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 64,
    effect: "requests at the device at once; more gives throughput, fewer give shorter response times",
};

/// The rule of requests that wait for a place at the device.
pub(super) const RULE: Rule = Rule("control/depth");

/// A bound on what is at the device.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) depth: u32,
    taken: u32,
}

impl Places {
    pub(super) const fn new(depth: u32) -> Self {
        Self { depth, taken: 0 }
    }

    pub(super) const fn free(&self) -> bool {
        self.taken < self.depth
    }

    pub(super) const fn take(&mut self) {
        self.taken += 1;
    }

    pub(super) fn leave(&mut self) {
        self.taken = self.taken.checked_sub(1).expect("only what was released can end");
    }
}

struct Sfq {
    promises: Vec<SimpleContract>,
    /// What waits, with its start.
    lanes: Vec<VecDeque<(RequestKey, Tag)>>,
    /// The first of each lane in which something waits.
    heads: BTreeSet<(Tag, usize)>,
    fair: Fair,
    places: Places,
}

impl ControlPolicy for Sfq {
    fn arrive(&mut self, _: Instant, key: RequestKey, request: &Request, _: Option<u8>) {
        let line = contract::line(request, self.lanes.len());
        let start = self.fair.tag(line, self.promises[line].cost(request));
        if self.lanes[line].is_empty() {
            self.heads.insert((start, line));
        }
        self.lanes[line].push_back((key, start));
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        if !self.places.free() {
            return None;
        }
        let (start, line) = self.heads.pop_first()?;
        let (key, _) = self.lanes[line].pop_front().expect("a head is in its lane");
        if let Some(&(_, next)) = self.lanes[line].front() {
            self.heads.insert((next, line));
        }
        self.fair.gone(start);
        self.places.take();
        Some((key, RULE))
    }

    fn complete(&mut self, _: Instant, _: RequestKey, _: &Request, _: Duration) {
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
    use super::*;
    use crate::request::TenantId;
    use crate::testing;
    use crate::testing::choice;

    /// With one place, tenants with contracts of three to one leave three to one, the lower one first;
    /// a tenant that comes later starts at the virtual time, without a claim for what it missed.
    #[test]
    fn places_are_shared_by_contracts() {
        let contract =
            |iops| Some(crate::control::Contract::new(iops, 4_096, Duration::from_millis(1)));
        let mut sfq = (POLICY.build)(
            choice(&POLICY, &[("depth", 1)]).values(),
            &testing::promises(&[3_000, 1_000, 1_000].map(contract)),
        );
        let keys = testing::keys(60);
        let tenants = [[0; 20], [1; 20], [2; 20]].concat();
        let request =
            |tenant: u32| Request { tenant: TenantId::new(tenant), ..testing::request(0) };
        for (&key, &tenant) in keys.iter().zip(&tenants).take(40) {
            sfq.arrive(Instant::ZERO, key, &request(tenant), Some(0));
        }
        let mut order = Vec::new();
        for n in 0..24 {
            if n == 12 {
                for &key in &keys[40..] {
                    sfq.arrive(Instant::ZERO, key, &request(2), Some(0));
                }
            }
            let (key, rule) = sfq.poll(Instant::ZERO).unwrap();
            assert!(rule == RULE && sfq.poll(Instant::ZERO).is_none(), "there is one place");
            order.push(tenants[keys.iter().position(|&k| k == key).unwrap()]);
            sfq.complete(Instant::ZERO, key, &request(0), Duration::ZERO);
        }
        assert_eq!(order[..8], [0, 1, 0, 0, 0, 1, 0, 0]);
        let late = order[12..].iter().filter(|&&tenant| tenant == 2).count();
        assert!((2..=3).contains(&late), "{order:?}");
    }
}
