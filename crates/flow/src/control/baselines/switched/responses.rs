//! Estimates the response time of each tenant and compares it with its thresholds.

use crate::clock::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

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

/// The most response times that a window keeps. Endings beyond that are left out of it.
const SAMPLES_MAX: usize = 16_384;

/// Each tenant's observed response time at the device, against its thresholds.
pub(super) struct Responses {
    estimator: Estimator,
    tenants: Vec<Tenant>,
    /// Who has a remembered last response time, by the end of that request.
    heard: BTreeSet<(Instant, usize)>,
    /// Who has something in the window, or remembered from the last one.
    sampled: Vec<usize>,
    /// How many have a request outstanding.
    out: usize,
    /// When the age of the oldest outstanding request of whom passes its next threshold.
    crossings: BTreeSet<(Instant, usize)>,
}

/// What is known of one tenant's requests.
#[derive(Clone, Debug)]
struct Tenant {
    high: Duration,
    low: Duration,
    /// The part of the observed time that comes from requests that have ended; zero for a silent
    /// tenant, who has nothing to protect.
    ended: Duration,
    last: Instant,
    window: Vec<Duration>,
    /// How many outstanding requests were released when.
    outstanding: BTreeMap<Instant, u32>,
    crossing: Option<Instant>,
}

/// An observed response time, against the thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plight {
    /// Above the one for on.
    pub(super) hurt: bool,
    /// Not below the one for off.
    pub(super) unwell: bool,
}

impl Responses {
    /// Tenants with these thresholds, above which a switch turns on and below which it turns off.
    pub(super) fn new(
        estimator: Estimator,
        thresholds: impl Iterator<Item = (Duration, Duration)>,
    ) -> Self {
        let tenant = |(high, low)| Tenant {
            high,
            low,
            ended: Duration::ZERO,
            last: Instant::ZERO,
            window: Vec::new(),
            outstanding: BTreeMap::new(),
            crossing: None,
        };
        Self {
            estimator,
            tenants: thresholds.map(tenant).collect(),
            heard: BTreeSet::new(),
            sampled: Vec::new(),
            out: 0,
            crossings: BTreeSet::new(),
        }
    }

    /// A request goes to the device.
    pub(super) fn released(&mut self, index: usize, now: Instant) {
        if !self.estimator.oldest {
            return;
        }
        let tenant = &mut self.tenants[index];
        let oldest = tenant.oldest();
        self.out += usize::from(oldest.is_none());
        *tenant.outstanding.entry(now).or_default() += 1;
        if oldest.is_none_or(|oldest| now < oldest) {
            self.watch(index, now);
        }
    }

    /// A request has ended, so its tenant's [`plight`](Self::plight) may be another. Says whether that is
    /// a reason to decide.
    pub(super) fn ended(&mut self, index: usize, now: Instant, device: Duration) -> bool {
        let released = Instant::from_nanos(now.as_nanos() - device.as_nanos());
        let tenant = &mut self.tenants[index];
        if let Some(count) = tenant.outstanding.get_mut(&released) {
            *count -= 1;
            if *count == 0 {
                tenant.outstanding.remove(&released);
                self.out -= usize::from(tenant.outstanding.is_empty());
            }
        }
        if self.estimator.window.is_some() {
            if tenant.window.is_empty() && tenant.ended == Duration::ZERO {
                self.sampled.push(index);
            }
            if tenant.window.len() < SAMPLES_MAX {
                tenant.window.push(device);
            }
        } else {
            self.heard.remove(&(tenant.last, index));
            tenant.ended = device;
            if device > Duration::ZERO {
                self.heard.insert((now, index));
            }
        }
        tenant.last = now;
        self.watch(index, now);
        self.estimator.window.is_none()
    }

    /// A window is over: the 95th percentile of each by nearest rank. Says whose has changed.
    pub(super) fn end_window(&mut self) -> Vec<usize> {
        let mut changed = Vec::new();
        for index in mem::take(&mut self.sampled) {
            let tenant = &mut self.tenants[index];
            tenant.window.sort_unstable();
            let rank = (tenant.window.len() * 95).div_ceil(100);
            let ended = rank.checked_sub(1).map_or(Duration::ZERO, |rank| tenant.window[rank]);
            tenant.window.clear();
            if mem::replace(&mut tenant.ended, ended) != ended {
                changed.push(index);
            }
            if ended > Duration::ZERO {
                self.sampled.push(index);
            }
        }
        changed
    }

    /// Forgets the last response times of the silent, and says whose.
    pub(super) fn forget(&mut self, now: Instant) -> Vec<usize> {
        let mut changed = Vec::new();
        while let Some(&(last, index)) = self.heard.first()
            && now.since(last) > SILENT
        {
            self.heard.pop_first();
            self.tenants[index].ended = Duration::ZERO;
            changed.push(index);
        }
        changed
    }

    /// Whose oldest request has come of an age that matters.
    pub(super) fn aged(&mut self, now: Instant) -> Option<usize> {
        let &(at, index) = self.crossings.first()?;
        if at > now {
            return None;
        }
        self.watch(index, now);
        Some(index)
    }

    /// A tenant's observed time against its thresholds.
    pub(super) fn plight(&self, index: usize, now: Instant) -> Plight {
        let tenant = &self.tenants[index];
        let time = tenant.ended.max(tenant.oldest().map_or(Duration::ZERO, |at| now.since(at)));
        Plight { hurt: time > tenant.high, unwell: time >= tenant.low }
    }

    /// Whether the age of anybody's oldest outstanding request counts.
    pub(super) const fn any_out(&self) -> bool {
        self.out > 0
    }

    /// Whether anything is remembered that silence would change.
    pub(super) fn lively(&self) -> bool {
        self.out > 0 || !self.heard.is_empty() || !self.sampled.is_empty()
    }

    /// Notes when the age of a tenant's oldest request, which is another than before, passes its first
    /// threshold after `now`.
    fn watch(&mut self, index: usize, now: Instant) {
        let tenant = &mut self.tenants[index];
        let next = tenant.oldest().and_then(|oldest| {
            let thresholds = [oldest + tenant.low, oldest + tenant.high + Duration::from_nanos(1)];
            thresholds.into_iter().find(|&at| at > now)
        });
        let old = mem::replace(&mut tenant.crossing, next);
        if old != next {
            if let Some(at) = old {
                self.crossings.remove(&(at, index));
            }
            self.crossings.extend(next.map(|at| (at, index)));
        }
    }
}

impl Tenant {
    /// When the oldest outstanding request was released.
    fn oldest(&self) -> Option<Instant> {
        self.outstanding.first_key_value().map(|(&released, _)| released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn one(estimator: Estimator, high: u64, low: u64) -> Responses {
        let [high, low] = [high, low].map(Duration::from_millis);
        Responses::new(estimator, [(high, low)].into_iter())
    }

    const WELL: Plight = Plight { hurt: false, unwell: false };
    const BETWEEN: Plight = Plight { hurt: false, unwell: true };
    const HURT: Plight = Plight { hurt: true, unwell: true };

    /// The 95th percentile is that of nearest rank, and a window without endings is silence.
    #[test]
    fn a_window_gives_its_95th_percentile() {
        let estimator = Estimator { window: Some(Duration::from_millis(50)), oldest: false };
        for (count, rank) in [(1, 1), (19, 19), (20, 19), (21, 20), (100, 95)] {
            for (high, low, plight) in
                [(rank, rank, BETWEEN), (rank, rank + 1, WELL), (rank - 1, 0, HURT)]
            {
                let mut responses = one(estimator, high, low);
                for n in (1..=count).rev() {
                    assert!(!responses.ended(0, at(1_000), Duration::from_millis(n)));
                }
                assert_eq!(responses.end_window(), [0]);
                assert_eq!(responses.plight(0, at(1_000)), plight, "{count}");
                assert!(responses.lively());
                assert_eq!(responses.end_window(), [0]);
                assert!(!responses.plight(0, at(1_000)).hurt);
                assert!(!responses.lively() && responses.end_window().is_empty());
            }
        }
    }

    /// The last response time is forgotten after 100 ms of silence, not before.
    #[test]
    fn silence_forgets() {
        let mut responses = one(Estimator { window: None, oldest: true }, 15, 10);
        responses.released(0, at(0));
        assert!(responses.ended(0, at(20), Duration::from_millis(20)));
        assert_eq!(responses.plight(0, at(120)), HURT);
        assert!(responses.forget(at(120)).is_empty() && responses.lively());
        assert_eq!(responses.forget(at(121)), [0]);
        assert_eq!(responses.plight(0, at(121)), WELL);
        assert!(!responses.lively());
    }

    /// A request that is still out counts with its age, and each threshold that the age passes is reported
    /// when it is passed, whatever else is released meanwhile.
    #[test]
    fn age_counts() {
        let mut responses = one(Estimator { window: None, oldest: true }, 30, 20);
        responses.released(0, at(0));
        responses.released(0, at(19));
        assert_eq!((responses.aged(at(19)), responses.plight(0, at(19))), (None, WELL));
        responses.released(0, at(25));
        assert_eq!((responses.aged(at(25)), responses.plight(0, at(25))), (Some(0), BETWEEN));
        assert_eq!((responses.aged(at(30)), responses.plight(0, at(30))), (None, BETWEEN));
        assert_eq!((responses.aged(at(31)), responses.plight(0, at(31))), (Some(0), HURT));
        assert_eq!(responses.aged(at(99)), None);
        assert!(responses.ended(0, at(32), Duration::from_millis(32)));
        assert!(responses.ended(0, at(32), Duration::from_millis(7)));
        assert_eq!((responses.aged(at(38)), responses.plight(0, at(38))), (None, WELL));
        assert_eq!((responses.aged(at(39)), responses.plight(0, at(39))), (Some(0), BETWEEN));
        assert_eq!(responses.aged(at(39)), None, "it is reported once");
        assert!(responses.any_out());
        // One that another policy has let go earlier is older.
        responses.released(0, at(10));
        assert_eq!((responses.aged(at(41)), responses.plight(0, at(41))), (Some(0), HURT));
    }
}
