//! # Path policy: round robin with aging, by job (`RounG`)
//!
//! As `roung`, but a path is new again with each I/O that it ends.
//!
//! | | |
//! |---|---|
//! | Model    | the age of a busy path is 1 after each end of an I/O on it, not only when it was idle |
//! | Ties     | the least recently chosen; a reinstated path joins at the head |
//! | Cost     | O(paths) per choice, O(1) per end; no allocation |
//! | Source   | `RounG` (Sejong University and Gluesys, about 2006), reading `job`; `docs/reference/path.md` sections 3 to 5 |
//! | Differs  | from `roung` in when the age falls, in nothing else |
//! | Not when | anything but the paper is to be reproduced: where large and small I/Os alternate it may collect the large ones on one path |
//!
//! It reproduces the paper's figures with arrivals at fixed intervals and half as much again as the paths
//! can take, or more.

use super::roung::{Ages, Renewal, RounG, THRESHOLD};
use crate::path::Build;
use crate::policy::{Parameter, Policy, Property};
use alloc::boxed::Box;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "roung-job",
    summary: "as roung, but a path is new again with each I/O that it ends",
    properties: &[Property::UsesEveryPath],
    parameters: &[
        THRESHOLD,
        Parameter::flag(
            "starts",
            false,
            "true takes the start of an I/O for the start of its job: a path is new again with each \
             that it is given, so two paths merely take turns",
        ),
    ],
    build: |values, paths| {
        let renewal = if values.flag("starts") { Renewal::EachStart } else { Renewal::EachEnd };
        Box::new(RounG::new(paths, values.get("threshold"), renewal, Ages::Busy))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Instant;
    use crate::path::PathIo;
    use crate::request::PathId;
    use crate::testing::choice;
    use alloc::vec::Vec;

    const NOW: Instant = Instant::ZERO;

    fn turns(policy: &mut dyn crate::path::PathPolicy, n: usize) -> Vec<usize> {
        (0..n).map(|_| policy.select(NOW, &PathIo::sized(1)).unwrap().index()).collect()
    }

    /// A path that was passed over three times is back in turn as soon as one of its I/Os ends.
    #[test]
    fn one_end_makes_a_path_new() {
        let mut policy =
            (POLICY.build)(choice(&POLICY, &[("threshold", 4), ("starts", 0)]).values(), 2);
        for _ in 0..3 {
            assert_eq!(turns(&mut *policy, 2), [0, 1]);
            policy.end(NOW, PathId::new(1), &PathIo::sized(1), NOW);
        }
        assert_eq!(turns(&mut *policy, 2), [1, 1]);
        policy.end(NOW, PathId::new(0), &PathIo::sized(1), NOW);
        assert_eq!(turns(&mut *policy, 2), [0, 1]);
    }

    /// With `starts` two paths take turns whatever ends when.
    #[test]
    fn the_start_of_each_makes_round_robin() {
        let mut policy =
            (POLICY.build)(choice(&POLICY, &[("threshold", 4), ("starts", 1)]).values(), 2);
        for _ in 0..10 {
            assert_eq!(turns(&mut *policy, 2), [0, 1]);
            policy.end(NOW, PathId::new(1), &PathIo::sized(1), NOW);
        }
    }
}
