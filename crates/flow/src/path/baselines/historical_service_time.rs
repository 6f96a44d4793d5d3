//! # Path policy: historical service time
//!
//! The path that has been serving fastest lately is next, in proportion to its queue.
//!
//! | | |
//! |---|---|
//! | Model    | least `(1 + outstanding) * h`, where h averages the times served one after the other; see below |
//! | Units    | nanoseconds in 10 bit fixed point, rounded down |
//! | Ties     | the least recently chosen; a reinstated path joins at the tail |
//! | Cost     | O(paths) per choice, O(1) per end; no allocation |
//! | Source   | Linux device mapper, `historical-service-time`; `docs/reference/path.md` section 6 |
//! | Differs  | one clock for start and end; of two whose products are equal the kernel takes the later |
//! | Not when | sizes vary, which it does not see, or a path may stall: until an I/O of it ends, its history looks good |
//!
//! An I/O counts from its start or from the end before it on its path, whichever is later. The longer it
//! takes the more it weighs: the old average keeps 0.95 to the power of the 16.8 ms begun, and nothing
//! from 1.06 s on.
//!
//! Averages that are within `threshold` times of each other do not count, only outstanding I/Os. A path is
//! stale when it has ended nothing for as long as all paths together need for one each. A stale idle path
//! goes first, the most stale of two idle ones; and nothing is won by an average that is stale.

use crate::clock::Instant;
use crate::path::lru_order::LruOrder;
use crate::path::{Build, PathIo, PathPolicy};
use crate::policy::{Parameter, Policy, Property, Unit};
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

pub(in crate::path) const POLICY: Policy<Build> = Policy {
    name: "historical-service-time",
    summary: "the path that has been serving fastest lately, in proportion to its queue",
    properties: &[Property::UsesEveryPath],
    parameters: &[Parameter {
        name: "threshold",
        unit: Unit::Count,
        min: 0,
        max: 1_000,
        default: 0,
        effect: "how many times as long one average must be as the other to count; 0 and 1: any \
                 difference does",
    }],
    build: |values, paths| Box::new(Historical::new(paths, values.get("threshold"))),
};

/// Bits behind the point.
const SHIFT: u32 = 10;

/// 1 in fixed point.
const ONE: u64 = 1 << SHIFT;

/// The longest time that counts, in fixed point: 4.9 hours.
const LONGEST: u64 = u64::MAX >> SHIFT;

/// Up to this number outstanding, the product with the longest time fits 64 bits.
const EXACT: u64 = ONE - 1;

/// Samples of the same 2^24 ns weigh the same.
const BUCKET_SHIFT: u32 = 24;

/// By duration of the sample, what remains of the old average.
static WEIGHTS: [u64; 64] = weights();

const fn weights() -> [u64; 64] {
    let mut weights = [0; 64];
    let mut i = 0;
    // The last stays 0.
    while i < weights.len() - 1 {
        weights[i] = power(972, i as u32 + 1);
        i += 1;
    }
    weights
}

/// A power in fixed point by squaring; each product is rounded to the nearest.
const fn power(mut base: u64, mut exponent: u32) -> u64 {
    let mut result = ONE;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = (result * base + ONE / 2) >> SHIFT;
        }
        base = (base * base + ONE / 2) >> SHIFT;
        exponent /= 2;
    }
    result
}

#[derive(Debug)]
struct Historical {
    order: LruOrder,
    states: Vec<PathState>,
    threshold: u64,
}

#[derive(Clone, Copy, Debug)]
struct PathState {
    /// The average in fixed point.
    history: u64,
    outstanding: u64,
    last_end: Instant,
    stale_after: Instant,
}

impl Historical {
    fn new(paths: u32, threshold: u64) -> Self {
        let path_state = PathState {
            history: ONE,
            outstanding: 0,
            last_end: Instant::ZERO,
            stale_after: Instant::ZERO,
        };
        Self {
            order: LruOrder::new(paths),
            states: alloc::vec![path_state; paths as usize],
            threshold,
        }
    }
}

impl PathState {
    /// Less is better.
    fn compare(self, other: Self, now: Instant, threshold: u64) -> Ordering {
        let low = self.history.min(other.history);
        let high = self.history.max(other.history);
        if u128::from(high) <= u128::from(low) * u128::from(threshold) {
            return self.outstanding.cmp(&other.outstanding);
        }
        let idle = |path_state: Self| path_state.outstanding == 0;
        let stale = |path_state: Self| path_state.stale_after < now;
        let both_idle = idle(self) && idle(other);
        if both_idle || idle(self) && stale(self) || idle(other) && stale(other) {
            // Beside a busy path an idle one counts as stale since the beginning: it is better unless
            // the other has never ended anything.
            let since = |path_state: Self, beside: Self| {
                if idle(beside) { path_state.stale_after } else { Instant::ZERO }
            };
            return since(self, other).cmp(&since(other, self));
        }
        let most = self.outstanding.max(other.outstanding);
        let bits = if most > EXACT { SHIFT } else { 0 };
        let product = |path_state: Self| {
            (1 + path_state.outstanding).saturating_mul(path_state.history >> bits)
        };
        let order = product(self).cmp(&product(other));
        let winner = if order.is_gt() { other } else { self };
        if order.is_ne() && stale(winner) {
            return self.outstanding.cmp(&other.outstanding);
        }
        order
    }
}

impl PathPolicy for Historical {
    fn select(&mut self, now: Instant, _: &PathIo) -> Option<PathId> {
        let (states, threshold) = (&self.states, self.threshold);
        let better = |a: PathId, b: PathId| {
            states[a.index()].compare(states[b.index()], now, threshold).is_lt()
        };
        let path = self.order.best(better)?;
        self.states[path.index()].outstanding += 1;
        Some(path)
    }

    fn end(&mut self, now: Instant, path: PathId, _: &PathIo, started: Instant) {
        let valid = self.order.paths().len() as u64;
        let path_state = &mut self.states[path.index()];
        path_state.outstanding =
            path_state.outstanding.checked_sub(1).expect("only what was started can end");
        let served = now.since(started.max(path_state.last_end)).as_nanos();
        path_state.last_end = now;
        let bucket = (served >> BUCKET_SHIFT).min(WEIGHTS.len() as u64 - 1) as usize;
        let (weight, sample) = (WEIGHTS[bucket], served.saturating_mul(ONE).min(LONGEST));
        path_state.history = (path_state.history * weight + sample * (ONE - weight)) >> SHIFT;
        let patience = valid * (path_state.history >> SHIFT);
        path_state.stale_after = Instant::from_nanos(now.as_nanos().saturating_add(patience));
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

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Two paths with these averages in nanoseconds and queues, stale after these times.
    fn two(threshold: u64, states: [(u64, u64, u64); 2]) -> Historical {
        let mut policy = Historical::new(2, threshold);
        for (path_state, (history, outstanding, stale)) in policy.states.iter_mut().zip(states) {
            let (history, stale_after) = (history << SHIFT, at(stale));
            *path_state = PathState { history, outstanding, last_end: Instant::ZERO, stale_after };
        }
        policy
    }

    fn chosen(mut policy: Historical, now: u64) -> usize {
        policy.select(at(now), &PathIo::sized(4_096)).unwrap().index()
    }

    /// The weights are the powers of 0.95, each rounded on its way, and 0 at the end.
    #[test]
    fn the_weights_are_powers() {
        assert_eq!(WEIGHTS[..4], [972, 923, 876, 832]);
        assert_eq!(WEIGHTS[60..], [43, 41, 39, 0]);
    }

    /// An I/O that waited for the one before it counts from that one's end; the average moves by
    /// 52 of 1024 parts, exactly.
    #[test]
    fn service_is_counted_one_after_the_other() {
        let mut policy = two(0, [(1, 2, 0), (1, 0, 0)]);
        policy.end(at(1_000), PathId::new(0), &PathIo::sized(1), at(0));
        assert_eq!(policy.states[0].history, (1_024 * 972 + 1_024_000 * 52) / 1_024);
        policy.end(at(1_600), PathId::new(0), &PathIo::sized(1), at(500));
        assert_eq!(policy.states[0].history, (52_972 * 972 + 614_400 * 52) / 1_024);
        // 79 ns for each of two paths.
        assert_eq!(policy.states[0].stale_after, at(1_600 + 2 * 79));
    }

    /// A sample in the last bucket is the whole average; one nanosecond less and 39 parts are kept.
    #[test]
    fn a_long_sample_replaces_history() {
        let limit = 63 << BUCKET_SHIFT;
        let history = |served| {
            let mut policy = two(0, [(1 << 20, 1, 0), (1, 0, 0)]);
            policy.end(at(served), PathId::new(0), &PathIo::sized(1), at(0));
            policy.states[0].history
        };
        assert_eq!(history(limit), limit << SHIFT);
        assert_eq!(history(limit - 1), (39 << 20) + (limit - 1) * (1_024 - 39));
    }

    /// Three in the queue at 100 ns are more than one at 190, and less than one at 210.
    #[test]
    fn the_queue_multiplies_history() {
        assert_eq!(chosen(two(0, [(100, 3, 9), (190, 1, 9)]), 1), 1);
        assert_eq!(chosen(two(0, [(100, 3, 9), (210, 1, 9)]), 1), 0);
    }

    /// Averages within the threshold do not count, the queues do; beyond it they count.
    #[test]
    fn similar_averages_do_not_count() {
        assert_eq!(chosen(two(2, [(100, 3, 9), (200, 2, 9)]), 1), 1);
        assert_eq!(chosen(two(2, [(100, 3, 9), (201, 2, 9)]), 1), 0);
    }

    /// An idle path that is stale goes first, of two idle ones the most stale; a busy one that wins
    /// by a stale average wins by its queue only.
    #[test]
    fn stale_paths_are_tried_again() {
        assert_eq!(chosen(two(0, [(100, 1, 20), (900_000, 0, 9)]), 9), 0);
        assert_eq!(chosen(two(0, [(100, 1, 20), (900_000, 0, 9)]), 10), 1);
        assert_eq!(chosen(two(0, [(100, 0, 20), (900_000, 0, 10)]), 1), 1);
        assert_eq!(chosen(two(0, [(100, 3, 20), (900, 1, 20)]), 20), 0);
        assert_eq!(chosen(two(0, [(100, 3, 20), (900, 1, 20)]), 21), 1);
    }
}
