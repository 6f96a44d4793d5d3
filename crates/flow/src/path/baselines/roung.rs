//! # Path policy: round robin with aging (`RounG`)
//!
//! The paths take turns, but one whose work lasts while others are chosen is passed over until it
//! has drained.
//!
//! | | |
//! |---|---|
//! | Model    | a busy path has an age: 1 when its first I/O starts, one more for each I/O that another path is given, 0 when its last ends; one that has reached `threshold` gets nothing until then, unless all have |
//! | Ties     | the least recently chosen; a reinstated path joins at the head |
//! | Cost     | O(paths) per choice, O(1) per end; no allocation |
//! | Source   | `RounG` (Sejong University and Gluesys, about 2006), reading `busy`; `docs/reference/path.md` sections 3 to 5 |
//! | Differs  | from the paper's words unless `literal`: only busy paths age, and they do so while others are at the threshold |
//! | Not when | speed matters: `queue-length` and `service-time` are faster on every symmetric workload |
//!
//! It reproduces the paper's figures with a bounded number of outstanding I/Os. A path that stalls
//! gets three I/Os at most. `roung-job` is the reading of the paper's open systems.

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Parameter, Policy, Property, Unit};
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "roung",
    summary: "the paths take turns; one that is busy for long is passed over until it has drained",
    properties: &[Property::UsesEveryPath],
    parameters: &[
        THRESHOLD,
        Parameter::flag(
            "literal",
            false,
            "true follows the paper to the letter: idle paths age too, and none does while one is at \
             the threshold; with more than four paths some are never used again",
        ),
    ],
    build: |values, paths| {
        let ages = if values.flag("literal") { Ages::UntilBlocked } else { Ages::Busy };
        Box::new(RounG::new(paths, values.get("threshold"), Renewal::Drained, ages))
    },
};

pub(super) const THRESHOLD: Parameter = Parameter {
    name: "threshold",
    unit: Unit::Count,
    min: 1,
    max: 1_000,
    default: 4,
    effect: "the age at which a path is passed over; a larger one tolerates longer I/Os and stalls",
};

/// When the age of a path that stays busy falls back to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Never: it has to drain.
    Drained,
    /// With every I/O that ends, since the next in line is then a new job.
    EachEnd,
    /// With every I/O that it is given.
    EachStart,
}

/// Who ages when another path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ages {
    /// Those that are busy.
    Busy,
    /// All, but none while one is at the threshold.
    UntilBlocked,
}

#[derive(Debug)]
pub(super) struct RounG {
    order: LruOrder,
    states: Vec<PathState>,
    threshold: u64,
    renewal: Renewal,
    ages: Ages,
}

#[derive(Clone, Copy, Debug, Default)]
struct PathState {
    age: u64,
    outstanding: u32,
}

impl RounG {
    pub(super) fn new(paths: u32, threshold: u64, renewal: Renewal, ages: Ages) -> Self {
        let states = alloc::vec![PathState::default(); paths as usize];
        Self { order: LruOrder::new(paths), states, threshold, renewal, ages }
    }

    /// What happens to the others when one path is chosen.
    fn age(&mut self, chosen: PathId, somebody_blocked: bool) {
        for path in self.order.paths().iter().filter(|&&path| path != chosen) {
            let age = &mut self.states[path.index()].age;
            let ages = match self.ages {
                Ages::Busy => *age > 0,
                Ages::UntilBlocked => !somebody_blocked,
            };
            if ages && *age < self.threshold {
                *age += 1;
            }
        }
    }
}

impl PathPolicy for RounG {
    fn select(&mut self, _: Instant, _: &PathIo) -> Option<PathId> {
        let paths = self.order.paths();
        let free = |path: &PathId| self.states[path.index()].age < self.threshold;
        let first = paths.iter().position(free);
        let somebody_blocked = !paths.iter().all(free);
        if paths.is_empty() {
            return None;
        }
        let chosen = self.order.choose(first.unwrap_or(0));
        self.age(chosen, somebody_blocked);
        let path_state = &mut self.states[chosen.index()];
        if path_state.outstanding == 0 || self.renewal == Renewal::EachStart {
            path_state.age = 1;
        }
        path_state.outstanding += 1;
        Some(chosen)
    }

    fn end(&mut self, _: Instant, path: PathId, _: &PathIo, _: Instant) {
        let path_state = &mut self.states[path.index()];
        path_state.outstanding =
            path_state.outstanding.checked_sub(1).expect("only what was started can end");
        if path_state.outstanding == 0 {
            path_state.age = 0;
        } else if self.renewal == Renewal::EachEnd {
            path_state.age = 1;
        }
    }

    fn fail(&mut self, _: Instant, path: PathId) {
        self.order.fail(path);
    }

    fn reinstate(&mut self, _: Instant, path: PathId) {
        if self.order.join_at_head(path) {
            // Its past is forgotten, but what has not ended yet can grow old.
            let path_state = &mut self.states[path.index()];
            path_state.age = u64::from(path_state.outstanding > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn turns(policy: &mut RounG, n: usize) -> Vec<usize> {
        (0..n).map(|_| policy.select(NOW, &PathIo::sized(1)).unwrap().index()).collect()
    }

    fn ages(policy: &RounG) -> Vec<u64> {
        policy.states.iter().map(|path_state| path_state.age).collect()
    }

    /// Two paths alternate until the one whose I/O does not end has been passed over three times;
    /// then it gets nothing more before it has drained.
    #[test]
    fn a_stalled_path_is_given_three() {
        let mut policy = RounG::new(2, 4, Renewal::Drained, Ages::Busy);
        for expected in [0, 1, 0, 1, 0, 1, 1, 1, 1] {
            let path = policy.select(NOW, &PathIo::sized(1)).unwrap();
            assert_eq!(path.index(), expected, "{:?}", ages(&policy));
            if expected == 1 {
                policy.end(NOW, path, &PathIo::sized(1), NOW);
            }
        }
        assert_eq!(ages(&policy), [4, 0]);
        for left in [2, 1, 0] {
            assert_eq!(turns(&mut policy, 1), [1], "{left} and one more on the other");
            policy.end(NOW, PathId::new(1), &PathIo::sized(1), NOW);
            policy.end(NOW, PathId::new(0), &PathIo::sized(1), NOW);
        }
        assert_eq!(turns(&mut policy, 1), [0]);
    }

    /// Of three paths the idle one stays at 0 while the busy ones age, also past a blocked one.
    #[test]
    fn only_busy_paths_age() {
        let mut policy = RounG::new(3, 2, Renewal::Drained, Ages::Busy);
        assert_eq!(turns(&mut policy, 1), [0]);
        assert_eq!(ages(&policy), [1, 0, 0]);
        assert_eq!(turns(&mut policy, 1), [1]);
        assert_eq!(ages(&policy), [2, 1, 0]);
        assert_eq!(turns(&mut policy, 1), [2]);
        assert_eq!(ages(&policy), [2, 2, 1]);
    }

    /// To the letter, idle paths age as well until one is at the threshold, which stops it; so the
    /// paths beyond the fourth are never used.
    #[test]
    fn the_letter_locks_idle_paths_out() {
        let mut policy = RounG::new(6, 4, Renewal::Drained, Ages::UntilBlocked);
        for _ in 0..100 {
            let path = policy.select(NOW, &PathIo::sized(1)).unwrap();
            assert!(path.index() < 4, "{:?}", ages(&policy));
            policy.end(NOW, path, &PathIo::sized(1), NOW);
        }
        assert_eq!(ages(&policy)[4..], [4, 4]);
    }

    /// When the only path that was not blocked fails, the others take turns instead of waiting.
    #[test]
    fn nobody_waits_when_all_are_blocked() {
        let mut policy = RounG::new(3, 2, Renewal::Drained, Ages::Busy);
        assert_eq!(turns(&mut policy, 3), [0, 1, 2]);
        policy.fail(NOW, PathId::new(2));
        assert_eq!(turns(&mut policy, 3), [0, 1, 0]);
    }

    /// A path comes back at the head, with nothing held against it but what is still on it.
    #[test]
    fn a_path_comes_back_at_the_head() {
        let mut policy = RounG::new(3, 4, Renewal::Drained, Ages::Busy);
        assert_eq!(turns(&mut policy, 5), [0, 1, 2, 0, 1]);
        assert_eq!(ages(&policy), [4, 3, 3]);
        policy.fail(NOW, PathId::new(1));
        policy.reinstate(NOW, PathId::new(1));
        assert_eq!(ages(&policy), [4, 1, 3]);
        assert_eq!(turns(&mut policy, 1), [1]);
        policy.fail(NOW, PathId::new(0));
        policy.end(NOW, PathId::new(0), &PathIo::sized(1), NOW);
        policy.end(NOW, PathId::new(0), &PathIo::sized(1), NOW);
        policy.reinstate(NOW, PathId::new(0));
        assert_eq!(ages(&policy), [0, 1, 4]);
    }
}
