//! What a switch goes by: a tenant's observed response time and its rate of arrival.

use crate::clock::{Duration, Instant};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How response times become one number.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Estimator {
    /// The 95th percentile of windows of this length; `None` for the last response time.
    pub(in super::super) window: Option<Duration>,
    /// Whether the age of the oldest outstanding request counts.
    pub(in super::super) oldest: bool,
}

/// A tenant whose last request ended longer ago than this is silent.
const SILENT: Duration = Duration::from_millis(100);

/// The most response times that a window keeps. What ends after so many is left out of it.
const SAMPLES_MAX: usize = 16_384;

/// What is known of one tenant's response times at the device.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The observed response time; zero for a silent tenant, who has nothing to protect.
    pub(super) time: Duration,
    /// The part of it that comes from requests that have ended.
    ended: Duration,
    last: Instant,
    window: Vec<Duration>,
    /// How many outstanding requests were released when.
    outstanding: BTreeMap<Instant, u32>,
}

impl Observed {
    /// A request goes to the device.
    pub(super) fn released(&mut self, now: Instant, estimator: &Estimator) {
        if estimator.oldest {
            *self.outstanding.entry(now).or_default() += 1;
        }
    }

    /// A request has ended. Says whether that is news.
    pub(super) fn ended(&mut self, now: Instant, device: Duration, estimator: &Estimator) -> bool {
        let released = Instant::from_nanos(now.as_nanos() - device.as_nanos());
        if let Some(count) = self.outstanding.get_mut(&released) {
            *count -= 1;
            if *count == 0 {
                self.outstanding.remove(&released);
            }
        }
        self.last = now;
        if estimator.window.is_some() {
            if self.window.len() < SAMPLES_MAX {
                self.window.push(device);
            }
            return false;
        }
        self.ended = device;
        true
    }

    /// A window is over: its 95th percentile by nearest rank. Says whether that is news.
    pub(super) fn end_window(&mut self) -> bool {
        let before = self.ended;
        self.window.sort_unstable();
        let rank = (self.window.len() * 95).div_ceil(100);
        self.ended = rank.checked_sub(1).map_or(Duration::ZERO, |index| self.window[index]);
        self.window.clear();
        self.ended != before
    }

    /// Time passes. Says whether that is news.
    pub(super) fn beat(&mut self, now: Instant, estimator: &Estimator) -> bool {
        let silent = estimator.window.is_none() && now.since(self.last) > SILENT;
        let forgets = silent && self.ended > Duration::ZERO;
        if forgets {
            self.ended = Duration::ZERO;
        }
        forgets || !self.outstanding.is_empty()
    }

    /// Brings [`time`](Self::time) up to date.
    pub(super) fn look(&mut self, now: Instant) {
        let oldest = self.outstanding.first_key_value().map(|(&released, _)| now.since(released));
        self.time = self.ended.max(oldest.unwrap_or_default());
    }

    /// Whether anything is remembered that silence would change.
    pub(super) fn lively(&self) -> bool {
        self.ended > Duration::ZERO || !self.window.is_empty() || !self.outstanding.is_empty()
    }
}

/// Length of a slot of the rate meter.
pub(super) const SLOT: Duration = Duration::from_millis(100);

/// Slots that the rate is taken over, and slots in a second.
const SLOTS: usize = 10;

/// The rate of a tenant's arrivals over the last ten whole slots, or as many as there are. Arrivals
/// are counted in milli-tokens, so a large request counts as several.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    current: u64,
    past: [u64; SLOTS],
    /// The slots so far.
    ended: u64,
}

impl Meter {
    pub(super) fn count(&mut self, cost: u64) {
        self.current += cost;
    }

    /// So many slots have ended since the last call.
    pub(super) fn slots(&mut self, count: u64) {
        for n in 0..count.min(1 + SLOTS as u64) {
            let place = (self.ended + n) as usize % SLOTS;
            self.past[place] = core::mem::take(&mut self.current);
        }
        self.ended += count;
    }

    /// Whether anything came.
    pub(super) fn active(&self) -> bool {
        self.past.iter().any(|&slot| slot > 0)
    }

    /// Whether the rate is more than `margin_permille` above so many tokens per second.
    pub(super) fn above(&self, iops: u64, margin_permille: u64) -> bool {
        let sum = self.past.iter().map(|&slot| u128::from(slot)).sum::<u128>();
        let allowed = u128::from(iops) * u128::from(1_000 + margin_permille);
        sum * SLOTS as u128 > allowed * u128::from(self.ended.min(SLOTS as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// The 95th percentile is that of nearest rank, and a window without endings is silence.
    #[test]
    fn a_window_gives_its_95th_percentile() {
        let estimator = Estimator { window: Some(Duration::from_millis(50)), oldest: false };
        for (count, rank) in [(1, 1), (19, 19), (20, 19), (21, 20), (100, 95)] {
            let mut observed = Observed::default();
            for n in (1..=count).rev() {
                let device = Duration::from_millis(n);
                assert!(!observed.ended(at(1_000), device, &estimator));
            }
            assert!(observed.end_window());
            observed.look(at(1_000));
            assert_eq!(observed.time, Duration::from_millis(rank), "{count}");
            assert!(observed.end_window());
            observed.look(at(1_000));
            assert_eq!(observed.time, Duration::ZERO);
        }
    }

    /// The last response time is forgotten after 100 ms of silence, not before; a request that is still
    /// out counts with its age.
    #[test]
    fn silence_forgets_and_age_counts() {
        let estimator = Estimator { window: None, oldest: true };
        let mut observed = Observed::default();
        observed.released(at(0), &estimator);
        observed.released(at(10), &estimator);
        assert!(observed.ended(at(20), Duration::from_millis(20), &estimator));
        observed.look(at(25));
        assert_eq!(observed.time, Duration::from_millis(20));
        observed.look(at(40));
        assert_eq!(observed.time, Duration::from_millis(30));
        assert!(observed.ended(at(40), Duration::from_millis(30), &estimator));
        assert!(!observed.beat(at(140), &estimator));
        assert!(observed.beat(at(141), &estimator) && !observed.lively());
    }

    /// A rate is that of the whole slots so far, ten at most, and only past the margin is it too high.
    #[test]
    fn a_rate_has_a_margin() {
        let mut meter = Meter::default();
        meter.count(105_000);
        assert!(!meter.active(), "the slot has not ended");
        meter.slots(1);
        assert!(meter.active() && !meter.above(1_000, 50) && meter.above(1_000, 49));
        meter.slots(1);
        assert!(!meter.above(1_000, 0) && meter.above(500, 49) && !meter.above(500, 50));
        meter.slots(8);
        assert!(meter.active() && meter.above(104, 0));
        meter.slots(1);
        assert!(!meter.active());
    }
}
