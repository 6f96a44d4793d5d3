//! How fast an error budget is used up: a ring of one-minute slots.

use crate::control::{TARGETS_MAX, Target};
use alloc::vec;
use alloc::vec::Vec;

/// Requests of a part of a contract, and how many of them missed each of its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissCount {
    /// Requests.
    pub count: u64,
    /// By target, those that took longer than it allows, failed or were refused.
    pub missed: [u64; TARGETS_MAX],
}

impl MissCount {
    /// Share of the requests that met the target of this index, in millionths, rounded down; all of none.
    pub fn met_ppm(&self, target: usize) -> u32 {
        if self.count == 0 {
            return 1_000_000;
        }
        let met = u128::from(self.count - self.missed[target]);
        (met * 1_000_000 / u128::from(self.count)) as u32
    }

    /// The missed share over the share that may be missed, in thousandths, rounded up: at 1000 the budget
    /// lasts exactly as long as it must. Source: docs/reference/control.md, section 12, X2.
    pub fn burn_permille(&self, index: usize, target: Target) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let missed = u128::from(self.missed[index]) * 1_000_000_000;
        let allowed = u128::from(self.count) * u128::from(1_000_000 - target.quantile_ppm);
        u64::try_from(missed.div_ceil(allowed)).unwrap_or(u64::MAX)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        for (mine, theirs) in self.missed.iter_mut().zip(other.missed) {
            *mine += theirs;
            assert!(*mine <= self.count, "more requests missed a target than ended");
        }
    }
}

/// The last hour, minute by minute: the current one and the 59 before it.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// The number of the current minute, counted from the beginning of the run.
    minute: u64,
    /// Per minute the count, then the misses of each target.
    slots: Vec<u32>,
    stride: usize,
}

impl Ring {
    pub(super) fn new(targets: usize, minute: u64) -> Self {
        let stride = targets + 1;
        Self { minute, slots: vec![0; MINUTES * stride], stride }
    }

    /// Forgets what is an hour old.
    pub(super) fn advance(&mut self, minute: u64) {
        for begun in (self.minute + 1..=minute).rev().take(MINUTES) {
            self.slot(begun).fill(0);
        }
        self.minute = minute;
    }

    /// Counts a request; a bit of `missed` for each target that it missed.
    pub(super) fn record(&mut self, missed: u8) {
        let slot = self.slot(self.minute);
        slot[0] = slot[0].saturating_add(1);
        for (target, count) in slot[1..].iter_mut().enumerate() {
            *count = count.saturating_add(u32::from(missed >> target & 1));
        }
    }

    /// The current minute and as many before it as make `minutes`, at most [`MINUTES`].
    pub(super) fn over(&self, minutes: usize) -> MissCount {
        let mut counts = MissCount::default();
        for age in 0..minutes.min(MINUTES) as u64 {
            let Some(minute) = self.minute.checked_sub(age) else { break };
            let slot = &self.slots[minute as usize % MINUTES * self.stride..][..self.stride];
            counts.count += u64::from(slot[0]);
            for (sum, &count) in counts.missed.iter_mut().zip(&slot[1..]) {
                *sum += u64::from(count);
            }
        }
        counts
    }

    fn slot(&mut self, minute: u64) -> &mut [u32] {
        let start = (minute % MINUTES as u64) as usize * self.stride;
        &mut self.slots[start..start + self.stride]
    }
}

/// Slots of the ring.
pub(super) const MINUTES: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Duration;

    fn target(quantile_ppm: u32) -> Target {
        Target { quantile_ppm, response: Duration::from_millis(1) }
    }

    /// One miss in a hundred uses the budget of 99 % at exactly its rate, that of 99.9 % ten times as fast.
    #[test]
    fn burn_is_misses_over_budget() {
        let mut counts = MissCount { count: 100, ..MissCount::default() };
        assert_eq!((counts.burn_permille(0, target(990_000)), counts.met_ppm(0)), (0, 1_000_000));
        counts.missed[0] = 1;
        assert_eq!(counts.burn_permille(0, target(990_000)), 1_000);
        assert_eq!(counts.burn_permille(0, target(999_000)), 10_000);
        assert_eq!(counts.met_ppm(0), 990_000);
        assert_eq!(MissCount::default().burn_permille(0, target(990_000)), 0);
    }

    /// A miss is in the last five minutes for five, in the last hour for sixty, and then nowhere.
    #[test]
    fn the_ring_forgets() {
        for start in [0, 59, 1_000] {
            let mut ring = Ring::new(2, start);
            ring.record(0b10);
            for age in 0..200 {
                ring.advance(start + age);
                let (five, hour) = (ring.over(5), ring.over(MINUTES));
                assert_eq!(
                    (five.count, five.missed[1]),
                    if age < 5 { (1, 1) } else { (0, 0) },
                    "{age}"
                );
                assert_eq!(
                    (hour.count, hour.missed[1]),
                    if age < 60 { (1, 1) } else { (0, 0) },
                    "{age}"
                );
                assert_eq!(hour.missed[0], 0);
            }
            ring.record(0b01);
            ring.advance(start + 1_000_000);
            assert_eq!(ring.over(MINUTES), MissCount::default(), "a long silence");
        }
    }

    /// No more requests miss a target than have ended.
    #[test]
    #[should_panic(expected = "missed a target than ended")]
    fn misses_are_endings() {
        let mut counts = MissCount::default();
        counts.add(&MissCount { count: 0, missed: [1; TARGETS_MAX] });
    }
}
