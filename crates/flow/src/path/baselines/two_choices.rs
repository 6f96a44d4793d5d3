//! # Path policy: the better of two
//!
//! Of two paths that chance draws, the one with less outstanding is next.
//!
//! | | |
//! |---|---|
//! | Model    | two different paths, each pair as likely as any other; least outstanding I/Os, or bytes |
//! | Ties     | the one that was drawn first |
//! | Cost     | O(paths) per choice, for moving list entries, O(1) per end; no allocation |
//! | Source   | Mitzenmacher, *The power of two choices in randomized load balancing*, IEEE TPDS 12(10), 2001; `docs/reference/path.md` section 6 |
//! | Not when | there are few paths: on two it is `queue-length` with ties by chance |

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Parameter, Policy, Property, Unit};
use crate::request::PathId;
use crate::rng::Rng;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "two-choices",
    summary: "of two paths that chance draws, the one with less outstanding is next",
    properties: &[Property::UsesEveryPath],
    parameters: &[
        Parameter {
            name: "seed",
            unit: Unit::Count,
            min: 0,
            max: u32::MAX as u64,
            default: 1,
            effect: "what the draws start from; equal seeds give equal draws",
        },
        Parameter::flag("bytes", false, "true compares outstanding bytes, false outstanding I/Os"),
    ],
    build: |values, paths| {
        Box::new(TwoChoices::new(paths, values.get("seed"), values.flag("bytes")))
    },
};

#[derive(Debug)]
struct TwoChoices {
    order: LruOrder,
    /// I/Os or bytes, by path.
    outstanding: Vec<u64>,
    rng: Rng,
    by_bytes: bool,
}

impl TwoChoices {
    fn new(paths: u32, seed: u64, by_bytes: bool) -> Self {
        Self {
            order: LruOrder::new(paths),
            outstanding: alloc::vec![0; paths as usize],
            rng: Rng::stream(seed, "path/two-choices"),
            by_bytes,
        }
    }

    /// What an I/O of `bytes` counts.
    const fn size(&self, bytes: u64) -> u64 {
        if self.by_bytes { bytes } else { 1 }
    }

    /// Two different places below `count`, which is at least two.
    fn draw(&mut self, count: u64) -> (usize, usize) {
        let first = self.rng.below(count);
        let second = self.rng.below(count - 1);
        (first as usize, (second + u64::from(second >= first)) as usize)
    }
}

impl PathPolicy for TwoChoices {
    fn select(&mut self, _: Instant, &PathIo { bytes, .. }: &PathIo) -> Option<PathId> {
        let place = match self.order.paths().len() as u64 {
            0 => return None,
            1 => 0,
            count => {
                let (first, second) = self.draw(count);
                let load = |place: usize| self.outstanding[self.order.paths()[place].index()];
                if load(second) < load(first) { second } else { first }
            }
        };
        let path = self.order.choose(place);
        self.outstanding[path.index()] += self.size(bytes);
        Some(path)
    }

    fn end(&mut self, _: Instant, path: PathId, &PathIo { bytes, .. }: &PathIo, _: Instant) {
        let size = self.size(bytes);
        let outstanding = &mut self.outstanding[path.index()];
        *outstanding = outstanding.checked_sub(size).expect("only what was started can end");
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

    const NOW: Instant = Instant::ZERO;

    /// Two draws are never the same path, and every pair comes up about as often as any other.
    #[test]
    fn pairs_are_drawn_evenly() {
        let mut policy = TwoChoices::new(4, 1, false);
        let mut seen = [[0_u32; 4]; 4];
        for _ in 0..12_000 {
            let (first, second) = policy.draw(4);
            seen[first][second] += 1;
        }
        for (first, row) in seen.iter().enumerate() {
            for (second, &count) in row.iter().enumerate() {
                let expected = if first == second { 0..=0 } else { 900..=1_100 };
                assert!(expected.contains(&count), "{seen:?}");
            }
        }
    }

    /// On two paths it keeps both queues as long as each other.
    #[test]
    fn of_two_the_shorter_is_taken() {
        let mut policy = TwoChoices::new(2, 7, false);
        for n in 0..100 {
            policy.select(NOW, &PathIo::sized(1)).unwrap();
            assert_eq!(policy.outstanding[0].abs_diff(policy.outstanding[1]), (n + 1) % 2);
        }
    }

    /// By bytes, one large I/O counts as much as many small ones, and leaves as much when it ends.
    #[test]
    fn bytes_can_be_what_counts() {
        let mut policy = TwoChoices::new(2, 7, true);
        let first = policy.select(NOW, &PathIo::sized(100)).unwrap();
        for _ in 0..10 {
            assert_ne!(policy.select(NOW, &PathIo::sized(10)), Some(first));
        }
        policy.end(NOW, first, &PathIo::sized(100), NOW);
        assert_eq!(policy.select(NOW, &PathIo::sized(1)), Some(first));
    }

    /// Another seed draws other paths.
    #[test]
    fn the_seed_decides() {
        let draws = |seed| -> Vec<PathId> {
            let mut policy = TwoChoices::new(8, seed, false);
            (0..20).map(|_| policy.select(NOW, &PathIo::sized(1)).unwrap()).collect()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
