//! # Control policy: start-time fair queueing with a depth (SFQ(D))
//!
//! At most D requests are at the device; tenants share the places in proportion to their contracts.
//!
//! | | |
//! |---|---|
//! | Model    | on arrival `start = max(v, last finish of the tenant)`, `finish = start + cost / iops`; while fewer than `depth` are at the device the smallest start goes and v becomes it |
//! | Units    | exact tags, see `fair.rs` |
//! | Ties     | the lowest tenant; within a tenant, order of arrival |
//! | Cost     | O(log tenants) per request |
//! | Source   | Jin, Chase and Kaur, "Interposed proportional sharing for a storage service utility", SIGMETRICS 2004; `docs/reference/control.md` section 7 |
//! | Not when | the depth is not known: one that meets objectives on one device and mix loses throughput or objectives on another. It cannot be given a response time |
//!
//! A tenant without a contract has the weight of 100 requests of 4 KiB a second.

use super::depth_bound::{DEPTH, DepthBound, Order};
use super::fair::{Fair, Tag};
use super::simple::{SimpleContract, simple_contracts};
use crate::clock::Instant;
use crate::control::Build;
use crate::control::contract;
use crate::policy::{Policy, Property};
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
        let promises = simple_contracts(list);
        let sfq = Sfq {
            promises: promises.clone(),
            lanes: promises.iter().map(|_| VecDeque::new()).collect(),
            heads: BTreeSet::new(),
            fair: Fair::new(&promises),
        };
        Box::new(DepthBound::new(sfq, values.get_u32("depth")))
    },
};

struct Sfq {
    promises: Vec<SimpleContract>,
    /// Queued requests with their starts, by tenant.
    lanes: Vec<VecDeque<(RequestKey, Tag)>>,
    /// The starts of the heads of all queues.
    heads: BTreeSet<(Tag, usize)>,
    fair: Fair,
}

impl Order for Sfq {
    fn push(&mut self, _: Instant, key: RequestKey, request: &Request) {
        let line = contract::line(request, self.lanes.len());
        let start = self.fair.tag(line, self.promises[line].cost(request));
        if self.lanes[line].is_empty() {
            self.heads.insert((start, line));
        }
        self.lanes[line].push_back((key, start));
    }

    fn pop(&mut self, _: Instant) -> Option<RequestKey> {
        let (start, line) = self.heads.pop_first()?;
        let (key, _) = self.lanes[line].pop_front().expect("a head is in its lane");
        if let Some(&(_, next)) = self.lanes[line].front() {
            self.heads.insert((next, line));
        }
        self.fair.gone(start);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::depth_bound::RULE;
    use super::*;
    use crate::clock::Duration;
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
