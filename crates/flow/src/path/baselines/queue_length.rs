//! # Path policy: queue length
//!
//! The path with the fewest I/Os outstanding is next.
//!
//! | | |
//! |---|---|
//! | Model    | least outstanding I/Os |
//! | Ties     | the least recently chosen; a reinstated path joins at the tail |
//! | Cost     | O(paths) per choice, O(1) per end; no allocation |
//! | Source   | Linux device mapper, `queue-length`; `docs/reference/path.md` section 6 |
//! | Not when | sizes vary, which it does not see, or a path may stall: it continues to send to it until the others are as long |

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Policy, Property};
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "queue-length",
    summary: "the path with the fewest I/Os outstanding is next",
    properties: &[Property::UsesEveryPath],
    parameters: &[],
    build: |_, paths| {
        let outstanding = alloc::vec![0; paths as usize];
        Box::new(QueueLength { order: LruOrder::new(paths), outstanding })
    },
};

#[derive(Debug)]
struct QueueLength {
    order: LruOrder,
    outstanding: Vec<u32>,
}

impl PathPolicy for QueueLength {
    fn select(&mut self, _: Instant, _: &PathIo) -> Option<PathId> {
        let path = self.order.least(|path| self.outstanding[path.index()])?;
        self.outstanding[path.index()] += 1;
        Some(path)
    }

    fn end(&mut self, _: Instant, path: PathId, _: &PathIo, _: Instant) {
        let outstanding = &mut self.outstanding[path.index()];
        *outstanding = outstanding.checked_sub(1).expect("only what was started can end");
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

    /// Among equals the paths take turns; one that is a single I/O shorter is next, and only once.
    #[test]
    fn the_shortest_queue_is_next() {
        let (mut policy, now) = ((POLICY.build)(choice(&POLICY, &[]).values(), 3), Instant::ZERO);
        let turns = |policy: &mut Box<dyn PathPolicy>, n| -> Vec<usize> {
            (0..n).map(|_| policy.select(now, &PathIo::sized(1)).unwrap().index()).collect()
        };
        assert_eq!(turns(&mut policy, 5), [0, 1, 2, 0, 1]);
        policy.end(now, PathId::new(1), &PathIo::sized(1), now);
        // One outstanding on 1 and on 2, two on 0; 2 was chosen before 1.
        assert_eq!(turns(&mut policy, 3), [2, 1, 0]);
    }

    /// What is still on a path that has failed counts when it is back, until it ends.
    #[test]
    fn the_queue_of_a_failed_path_is_not_forgotten() {
        let (mut policy, now, first) =
            ((POLICY.build)(choice(&POLICY, &[]).values(), 2), Instant::ZERO, PathId::new(0));
        assert_eq!(policy.select(now, &PathIo::sized(1)), Some(first));
        policy.fail(now, first);
        assert_eq!(policy.select(now, &PathIo::sized(1)), Some(PathId::new(1)));
        policy.reinstate(now, first);
        policy.end(now, first, &PathIo::sized(1), now);
        assert_eq!(policy.select(now, &PathIo::sized(1)), Some(first));
    }
}
