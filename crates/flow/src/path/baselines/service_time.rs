//! # Path policy: service time by weight
//!
//! The path that would be the first to be done with its bytes, if each had the throughput that it is
//! said to have.
//!
//! | | |
//! |---|---|
//! | Model    | equal throughputs: fewest outstanding bytes, whatever the size of the I/O; others: least `(outstanding + size) / throughput` |
//! | Units    | bytes; throughputs are relative numbers |
//! | Ties     | the higher throughput, then the least recently chosen; a reinstated path joins at the tail |
//! | Cost     | O(paths) per choice, O(1) per end; no allocation |
//! | Source   | Linux device mapper, `service-time`; `docs/reference/path.md` section 6 |
//! | Differs  | products have 128 bits, where the kernel cuts off seven before they overflow |
//! | Not when | the throughputs are not known, or change; or a path may stall |

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Parameter, Policy, Property, Unit};
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "service-time",
    summary: "the path that is done first with its bytes, at throughputs that are given",
    properties: &[Property::UsesEveryPath],
    parameters: &[Parameter {
        name: "throughput",
        unit: Unit::Counts(8),
        min: 0,
        max: 100,
        default: DEFAULT,
        effect: "relative throughput of each path, in the order of the paths, 1 for those not listed; 0 \
                 keeps a path for when no other works",
    }],
    build: |values, paths| Box::new(ServiceTime::new(values.list("throughput"), paths)),
};

const DEFAULT: u64 = 1;

#[derive(Debug)]
struct ServiceTime {
    order: LruOrder,
    states: Vec<PathState>,
}

#[derive(Clone, Copy, Debug)]
struct PathState {
    throughput: u64,
    /// Bytes.
    outstanding: u64,
}

impl ServiceTime {
    fn new(throughputs: &[u64], paths: u32) -> Self {
        let given = throughputs.iter().copied().chain(core::iter::repeat(DEFAULT));
        let path_state = |throughput| PathState { throughput, outstanding: 0 };
        Self {
            order: LruOrder::new(paths),
            states: given.map(path_state).take(paths as usize).collect(),
        }
    }
}

impl PathState {
    /// Whether an I/O of `bytes` ends earlier here. With `o` outstanding and throughput `t`, a path
    /// takes `(o + bytes) / t`.
    fn better(self, other: Self, bytes: u64) -> bool {
        // Case 1, t1 = t2: (o1 + bytes) / t < (o2 + bytes) / t is o1 < o2, whatever the size.
        if self.throughput == other.throughput {
            return self.outstanding < other.outstanding;
        }
        // Case 2, o1 = o2: (o + bytes) / t1 < (o + bytes) / t2 is t1 > t2.
        // Case 3, t = 0: the path is for when no other works, and the quotient does not exist.
        let alike = self.outstanding == other.outstanding;
        if alike || self.throughput == 0 || other.throughput == 0 {
            return self.throughput > other.throughput;
        }
        // Case 4: (o1 + bytes) / t1 < (o2 + bytes) / t2, with both sides times t1 t2. Equal: the faster.
        let side = |path_state: Self, by: Self| {
            (u128::from(path_state.outstanding) + u128::from(bytes)) * u128::from(by.throughput)
        };
        let (mine, theirs) = (side(self, other), side(other, self));
        mine < theirs || mine == theirs && self.throughput > other.throughput
    }
}

impl PathPolicy for ServiceTime {
    fn select(&mut self, _: Instant, &PathIo { bytes, .. }: &PathIo) -> Option<PathId> {
        let states = &self.states;
        let path = self.order.best(|a, b| states[a.index()].better(states[b.index()], bytes))?;
        self.states[path.index()].outstanding += bytes;
        Some(path)
    }

    fn end(&mut self, _: Instant, path: PathId, &PathIo { bytes, .. }: &PathIo, _: Instant) {
        let outstanding = &mut self.states[path.index()].outstanding;
        *outstanding = outstanding.checked_sub(bytes).expect("only what was started can end");
    }

    fn fail(&mut self, _: Instant, path: PathId) {
        self.order.fail(path);
    }

    fn reinstate(&mut self, _: Instant, path: PathId) {
        self.order.join_at_tail(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(policy: &mut ServiceTime, sizes: &[u64]) -> Vec<usize> {
        sizes
            .iter()
            .map(|&size| policy.select(Instant::ZERO, &PathIo::sized(size)).unwrap().index())
            .collect()
    }

    /// At equal throughputs the fewest outstanding bytes decide, and the size of the I/O does not.
    #[test]
    fn equal_paths_share_the_bytes() {
        let mut policy = ServiceTime::new(&[1], 2);
        assert_eq!(choices(&mut policy, &[100, 30, 30, 30, 30, 30]), [0, 1, 1, 1, 1, 0]);
        policy.end(Instant::ZERO, PathId::new(0), &PathIo::sized(100), Instant::ZERO);
        assert_eq!(choices(&mut policy, &[1_000, 1]), [0, 1]);
    }

    /// At 3 : 1 the fast path is chosen until it has what would take the slow one as long, with the
    /// I/O in question; at a tie once more.
    #[test]
    fn a_faster_path_carries_more() {
        let mut policy = ServiceTime::new(&[3, 1], 2);
        // (0 + 10) / 3, (10 + 10) / 3 and (20 + 10) / 3 are at most (0 + 10) / 1.
        assert_eq!(choices(&mut policy, &[10, 10, 10, 10]), [0, 0, 0, 1]);
        // (30 + 60) / 3 is less than (10 + 60) / 1.
        assert_eq!(choices(&mut policy, &[60]), [0]);
    }

    /// A path without throughput gets nothing while another works.
    #[test]
    fn no_throughput_is_a_last_resort() {
        let mut policy = ServiceTime::new(&[0, 1], 2);
        assert_eq!(choices(&mut policy, &[10, 10, 10]), [1, 1, 1]);
        policy.fail(Instant::ZERO, PathId::new(1));
        assert_eq!(choices(&mut policy, &[10]), [0]);
    }

    /// What would overflow 64 bits still compares.
    #[test]
    fn huge_queues_compare() {
        let mut policy = ServiceTime::new(&[100, 99], 2);
        assert_eq!(choices(&mut policy, &[u64::MAX / 2, u64::MAX / 2, 1]), [0, 1, 0]);
    }
}
