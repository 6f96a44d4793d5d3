//! # Path policy: round robin with a failed list
//!
//! The paths that work take turns; one that fails leaves the circle until it is reinstated.
//!
//! | | |
//! |---|---|
//! | Model    | the head of the valid list is chosen, `repeat` times, and moves to its tail |
//! | Ties     | none; a reinstated path joins at the head |
//! | Cost     | O(paths) per choice, failure and reinstatement, for moving list entries; no allocation |
//! | Source   | Linux device mapper, `round-robin`; `repeat` = 1000 is `rr_min_io` of 2.6; `docs/reference/path.md` section 6 |
//! | Not when | paths differ in speed or I/Os in size: the slow one collects the queue |

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Parameter, Policy, Property, Unit};
use crate::request::PathId;
use alloc::boxed::Box;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "round-robin",
    summary: "the paths that work take turns",
    properties: &[Property::UsesEveryPath],
    parameters: &[Parameter {
        name: "repeat",
        unit: Unit::Count,
        min: 1,
        max: 1_000,
        default: 1,
        effect: "I/Os that a path gets in a row before the next has its turn",
    }],
    build: |values, paths| {
        Box::new(RoundRobin { order: LruOrder::new(paths), repeat: values.get("repeat"), left: 0 })
    },
};

#[derive(Debug)]
struct RoundRobin {
    order: LruOrder,
    repeat: u64,
    /// How many more I/Os the path at the tail, which was chosen last, gets.
    left: u64,
}

impl PathPolicy for RoundRobin {
    fn select(&mut self, _: Instant, _: &PathIo) -> Option<PathId> {
        let last = self.order.paths().last().copied()?;
        if self.left > 0 {
            self.left -= 1;
            return Some(last);
        }
        self.left = self.repeat - 1;
        Some(self.order.choose(0))
    }

    fn end(&mut self, _: Instant, _: PathId, _: &PathIo, _: Instant) {}

    fn fail(&mut self, _: Instant, path: PathId) {
        if self.order.paths().last() == Some(&path) {
            self.left = 0;
        }
        self.order.fail(path);
    }

    fn reinstate(&mut self, _: Instant, path: PathId) {
        self.order.join_at_head(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::choice;
    use alloc::vec::Vec;

    fn turns(policy: &mut Box<dyn PathPolicy>, n: usize) -> Vec<usize> {
        (0..n).map(|_| policy.select(Instant::ZERO, &PathIo::sized(1)).unwrap().index()).collect()
    }

    /// Three paths take turns; without the second the others alternate; it returns at the head.
    #[test]
    fn paths_take_turns() {
        let mut policy = (POLICY.build)(choice(&POLICY, &[("repeat", 1)]).values(), 3);
        assert_eq!(turns(&mut policy, 4), [0, 1, 2, 0]);
        policy.fail(Instant::ZERO, PathId::new(1));
        assert_eq!(turns(&mut policy, 3), [2, 0, 2]);
        policy.reinstate(Instant::ZERO, PathId::new(1));
        assert_eq!(turns(&mut policy, 4), [1, 0, 2, 1]);
    }

    /// A turn lasts for `repeat` I/Os; it ends early with its path, and the next is a whole one.
    #[test]
    fn a_turn_can_be_longer() {
        let mut policy = (POLICY.build)(choice(&POLICY, &[("repeat", 3)]).values(), 3);
        assert_eq!(turns(&mut policy, 5), [0, 0, 0, 1, 1]);
        policy.fail(Instant::ZERO, PathId::new(1));
        assert_eq!(turns(&mut policy, 5), [2, 2, 2, 0, 0]);
        policy.reinstate(Instant::ZERO, PathId::new(1));
        assert_eq!(turns(&mut policy, 5), [0, 1, 1, 1, 2]);
    }
}
