//! # Path policy: round robin with a failed list
//!
//! The paths that work take turns; one that fails leaves the circle until it is reinstated.
//!
//! | | |
//! |---|---|
//! | Model    | the head of the valid list is chosen and moves to its tail |
//! | Ties     | none; a reinstated path joins at the tail |
//! | Cost     | O(1) per choice, O(paths) per failure and reinstatement, no allocation |
//! | Source   | Linux device mapper, `round-robin` with a repeat count of 1; spec/path.md section 1 |
//! | Not when | paths differ in speed or I/Os in size: the slow one collects the queue |

use super::{Build, PathPolicy};
use crate::clock::Instant;
use crate::policy::Policy;
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "round-robin",
    summary: "the paths that work take turns",
    parameters: &[],
    build: |_, paths| Box::new(RoundRobin { valid: (0..paths).map(PathId::new).collect() }),
};

/// The paths that are not in `valid` are the failed ones.
#[derive(Debug)]
struct RoundRobin {
    valid: VecDeque<PathId>,
}

impl PathPolicy for RoundRobin {
    fn select(&mut self, _: Instant, _: u64) -> Option<PathId> {
        self.valid.rotate_left(usize::from(self.valid.len() > 1));
        self.valid.back().copied()
    }

    fn end(&mut self, _: Instant, _: PathId, _: u64, _: Instant) {}

    fn fail(&mut self, _: Instant, path: PathId) {
        self.valid.retain(|&valid| valid != path);
    }

    fn reinstate(&mut self, _: Instant, path: PathId) {
        if !self.valid.contains(&path) {
            self.valid.push_back(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Three paths take turns; without the second the others alternate; it returns at the tail.
    #[test]
    fn paths_take_turns() {
        let mut policy = (POLICY.build)(&[], 3);
        let turns = |policy: &mut Box<dyn PathPolicy>, n| -> Vec<usize> {
            (0..n).map(|_| policy.select(Instant::ZERO, 1).unwrap().index()).collect()
        };
        assert_eq!(turns(&mut policy, 4), [0, 1, 2, 0]);
        policy.fail(Instant::ZERO, PathId::new(1));
        assert_eq!(turns(&mut policy, 3), [2, 0, 2]);
        policy.reinstate(Instant::ZERO, PathId::new(1));
        assert_eq!(turns(&mut policy, 3), [0, 2, 1]);
    }
}
