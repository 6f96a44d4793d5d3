//! # Path policy: least average response time
//!
//! The path with the least product of its average response time and its queue is next.
//!
//! | | |
//! |---|---|
//! | Model    | least `average * (outstanding + 1)`; each response is an eighth of the new average, the first is all of it, and before it the average is 1 ns |
//! | Units    | nanoseconds, rounded down |
//! | Ties     | the least recently chosen; a reinstated path joins at the tail |
//! | Cost     | O(paths) per choice, O(1) per end; no allocation |
//! | Source   | the average of RFC 6298 as balancers of web traffic use it; `docs/reference/path.md` section 6 |
//! | Not when | a path may stall: one slow answer stays its average, and it is hardly used again until the others are as slow; one that has never answered takes almost all |

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Policy, Property};
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "ewma",
    summary: "the path with the least average response time, times its queue, is next",
    properties: &[Property::UsesEveryPath],
    parameters: &[],
    build: |_, paths| {
        let states = alloc::vec![PathState::default(); paths as usize];
        Box::new(Ewma { order: LruOrder::new(paths), states })
    },
};

#[derive(Debug)]
struct Ewma {
    order: LruOrder,
    states: Vec<PathState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PathState {
    /// Nanoseconds; 0 until something has been measured.
    average: u64,
    outstanding: u32,
}

impl PathPolicy for Ewma {
    fn select(&mut self, _: Instant, _: &PathIo) -> Option<PathId> {
        let path = self.order.least(|path| {
            let path_state = self.states[path.index()];
            u128::from(path_state.average.max(1)) * (u128::from(path_state.outstanding) + 1)
        })?;
        self.states[path.index()].outstanding += 1;
        Some(path)
    }

    fn end(&mut self, now: Instant, path: PathId, _: &PathIo, started: Instant) {
        let path_state = &mut self.states[path.index()];
        path_state.outstanding =
            path_state.outstanding.checked_sub(1).expect("only what was started can end");
        let response = now.since(started).as_nanos();
        path_state.average = match path_state.average {
            0 => response,
            // Both shares are rounded down together.
            old => ((u128::from(old) * 7 + u128::from(response)) / 8) as u64,
        };
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
    use crate::testing::choice;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// One path answers in 100 ns, the other in 300: the first is chosen while its queue is less than
    /// three times that of the other, with the I/O in question.
    #[test]
    fn a_slow_path_gets_a_shorter_queue() {
        let mut policy = (POLICY.build)(choice(&POLICY, &[]).values(), 2);
        assert_eq!(policy.select(at(0), &PathIo::sized(1)), Some(PathId::new(0)));
        assert_eq!(policy.select(at(0), &PathIo::sized(1)), Some(PathId::new(1)));
        policy.end(at(100), PathId::new(0), &PathIo::sized(1), at(0));
        // The second has not been measured: nothing is better than that.
        assert_eq!(policy.select(at(100), &PathIo::sized(1)), Some(PathId::new(1)));
        policy.end(at(300), PathId::new(1), &PathIo::sized(1), at(0));
        policy.end(at(400), PathId::new(1), &PathIo::sized(1), at(100));
        // 100 and 200 are less than 300; at 300 the second was chosen longer ago.
        let chosen = [(); 5].map(|()| policy.select(at(400), &PathIo::sized(1)).unwrap().index());
        assert_eq!(chosen, [0, 0, 1, 0, 0]);
    }

    /// The average moves by an eighth of the difference, rounded down.
    #[test]
    fn the_average_moves_by_an_eighth() {
        let mut policy =
            Ewma { order: LruOrder::new(1), states: alloc::vec![PathState::default()] };
        for (response, average) in [(800, 800), (1_600, 900), (0, 787), (787, 787)] {
            let path = policy.select(at(0), &PathIo::sized(1)).unwrap();
            policy.end(at(response), path, &PathIo::sized(1), at(0));
            assert_eq!(policy.states[0].average, average);
        }
    }
}
