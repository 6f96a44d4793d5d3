//! Measures the arrival rate of each tenant over ten slots of 100 ms.

use crate::clock::{Duration, Instant};
use alloc::vec::Vec;
use core::mem;

/// Length of a slot.
const SLOT: Duration = Duration::from_millis(100);

/// Slots that a rate is taken over, and slots in a second.
const SLOTS: usize = 10;

/// Each tenant's arrivals over the last ten whole slots, or as many as there are, in milli-tokens: a
/// large request counts as several.
pub(super) struct Rates {
    meters: Vec<Meter>,
    /// Who has had an arrival in these slots or the current one.
    counting: Vec<usize>,
    /// The slots so far, and when the current one ends.
    ended: u64,
    slot_end: Instant,
}

#[derive(Clone, Debug, Default)]
struct Meter {
    current: u64,
    past: [u64; SLOTS],
    /// Of the past ones.
    sum: u128,
    counting: bool,
}

impl Rates {
    pub(super) fn new(tenants: usize) -> Self {
        Self {
            meters: (0..tenants).map(|_| Meter::default()).collect(),
            counting: Vec::new(),
            ended: 0,
            slot_end: Instant::ZERO + SLOT,
        }
    }

    /// A request of this cost has come.
    pub(super) fn count(&mut self, index: usize, cost: u64) {
        let meter = &mut self.meters[index];
        meter.current += cost;
        if !mem::replace(&mut meter.counting, true) {
            self.counting.push(index);
        }
    }

    /// When the current slot ends.
    pub(super) const fn slot_end(&self) -> Instant {
        self.slot_end
    }

    /// Ends the slots that are over, and says whose rate may have changed. O(those who count).
    pub(super) fn end_slots(&mut self, now: Instant) -> Vec<usize> {
        if now < self.slot_end {
            return Vec::new();
        }
        let count = 1 + now.since(self.slot_end).as_nanos() / SLOT.as_nanos();
        self.slot_end += SLOT * count;
        // While there are fewer slots than a rate is taken over, each one changes all rates.
        let young = self.ended < SLOTS as u64;
        let mut touched = Vec::new();
        for &index in &self.counting {
            let meter = &mut self.meters[index];
            let before = meter.sum;
            for slot in 0..count.min(1 + SLOTS as u64) {
                let place = (self.ended + slot) as usize % SLOTS;
                let new = mem::take(&mut meter.current);
                let old = mem::replace(&mut meter.past[place], new);
                meter.sum = meter.sum + u128::from(new) - u128::from(old);
            }
            meter.counting = meter.sum > 0;
            if young || meter.sum != before {
                touched.push(index);
            }
        }
        self.ended += count;
        let meters = &self.meters;
        self.counting.retain(|&index| meters[index].counting);
        touched
    }

    /// Whether anything came.
    pub(super) fn active(&self, index: usize) -> bool {
        self.meters[index].sum > 0
    }

    /// Whether the rate is more than `margin_permille` above `iops` tokens per second.
    pub(super) fn above(&self, index: usize, iops: u64, margin_permille: u64) -> bool {
        let allowed = u128::from(iops) * u128::from(1_000 + margin_permille);
        let slots = u128::from(self.ended.min(SLOTS as u64));
        self.meters[index].sum * SLOTS as u128 > allowed * slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate is that of the whole slots so far, ten at most, and only past the margin is it too high;
    /// a tenant that sends nothing for this long is no longer visited, nor is one that never sent anything.
    #[test]
    fn a_rate_has_a_margin() {
        let slot = |slots: u64| Instant::ZERO + SLOT * slots;
        let mut rates = Rates::new(3);
        rates.count(1, 105_000);
        assert!(!rates.active(1), "the slot has not ended");
        assert_eq!(rates.end_slots(slot(1)), [1]);
        assert!(rates.active(1) && !rates.above(1, 1_000, 50) && rates.above(1, 1_000, 49));
        assert_eq!(rates.end_slots(slot(2)), [1]);
        assert!(!rates.above(1, 1_000, 0) && rates.above(1, 500, 49) && !rates.above(1, 500, 50));
        assert_eq!(rates.end_slots(slot(10)), [1]);
        assert!(rates.active(1) && rates.above(1, 104, 0));
        rates.count(2, 1_000);
        assert_eq!(rates.end_slots(slot(11)), [1, 2]);
        assert!(!rates.active(1) && rates.active(2));
        assert_eq!(rates.end_slots(slot(12)), [], "its rate is what it was");
        rates.count(1, 1_000);
        assert_eq!(rates.end_slots(slot(200)), [2]);
        assert!(!rates.active(1) && !rates.active(2), "silence outlasts the slots");
        assert_eq!(rates.end_slots(slot(201)), []);
    }
}
