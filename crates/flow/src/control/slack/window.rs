//! The window of the slack policy: how much may be at the device before excess waits.
//!
//! Promises of the same time to the same share form a class, and each class has an opinion of the window. A miss of a
//! guaranteed request shrinks it, a hit lets it grow, both by steps that sum up to one factor of
//! `e^kappa` per response time; where they balance, a share of `1 - q` misses. The smallest opinion
//! rules.
//!
//! Two things keep a promise that cannot be kept from costing others for nothing:
//!
//! * *Brown-out.* At the floor with more than a fifth missing, the guarantees themselves do not fit:
//!   they are scaled down until they do, see `guarantee.rs`.
//! * *Futility.* Two samples of 4000 endings, or of ten seconds and 200, in a row at the floor with misses above three times `1 - q`,
//!   which no brown-out can cure: not even the smallest window keeps the promise. The class
//!   is then *excused* for a while: its opinion holds the misses at half as many again as the better of the
//!   two samples had, instead of asking for what no window gives. Where the window makes no difference it
//!   opens to its end; where it does, the excuse has this price and no higher one. Afterwards the floor is
//!   tried again, for one sample; while nothing has changed each excuse lasts twice as long.

use super::super::log;
use super::Settings;
use crate::clock::{Duration, Instant};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// How often misses are judged.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// A class without guaranteed endings for so long has no opinion.
const SILENT: Duration = Duration::from_secs(1);

/// The window grows while it has held somebody within this time.
const BOUND: Duration = Duration::from_millis(200);

/// Periods of a sample at the floor, at least.
const PERIODS: u32 = 3;

/// Guaranteed endings that a share of misses is taken from; of a class that has few, so many in ten
/// seconds are enough.
const SAMPLE: u64 = 4_000;
const SAMPLE_FEW: u64 = 200;
const PERIODS_FEW: u32 = 100;

/// How long an excuse is at first and at last.
const HOLD_MIN: Duration = Duration::from_secs(2);
const HOLD_MAX: Duration = Duration::from_secs(64);

/// All that is in whole.
const PPM: u64 = 1_000_000;

/// The opinions.
#[derive(Clone, Debug)]
pub(super) struct Window {
    settings: Settings,
    classes: Vec<Class>,
    period_end: Instant,
    /// When excess last waited for the window.
    bound: Option<Instant>,
    /// The classes that have an opinion, by it.
    heard: BTreeSet<(i64, u32)>,
    /// The ends of all opinions.
    low: i64,
    high: i64,
    /// The opinion that rules, and the window that it means, in 2^-16 requests.
    ruling: i64,
    size: u64,
}

/// What is promised to some: the share of their requests, in millionths, and the time.
pub(super) type Promised = (Duration, u32);

/// Promises of one time to one share.
#[derive(Clone, Debug)]
struct Class {
    promised: Promised,
    /// The time at the device past which a request has missed.
    late: Duration,
    /// The share that may miss, in millionths.
    budget: u64,
    /// Natural logarithm of the opinion.
    log: i64,
    heard: Option<Instant>,
    /// Endings and misses in this period.
    count: Tally,
    /// The same since the opinion has been at the floor, and for how many periods.
    floor: Tally,
    periods: u32,
    /// The share that the sample before missed, if it was too much.
    proof: Option<u64>,
    excuse: Option<Excuse>,
    /// How long the next excuse is.
    hold: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    ended: u64,
    missed: u64,
}

/// Leave to miss no less than a share, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Excuse {
    until: Instant,
    share: u64,
}

impl Window {
    pub(super) fn new(settings: Settings, mut promised: Vec<Promised>) -> Self {
        promised.sort_unstable();
        promised.dedup();
        let class = |promised: Promised| Class {
            promised,
            late: Duration::from_nanos(
                (u128::from(promised.0.as_nanos()) * u128::from(settings.theta_percent) / 100)
                    as u64,
            ),
            budget: PPM - u64::from(promised.1),
            log: log::ln(settings.first),
            heard: None,
            count: Tally::default(),
            floor: Tally::default(),
            periods: 0,
            proof: None,
            excuse: None,
            hold: HOLD_MIN,
        };
        Self {
            settings,
            classes: promised.into_iter().map(class).collect(),
            period_end: Instant::ZERO + PERIOD,
            bound: None,
            heard: BTreeSet::new(),
            low: log::ln(settings.min),
            high: log::ln(settings.max),
            ruling: i64::MAX,
            size: u64::from(settings.max) << 16,
        }
    }

    /// The class of a promise that it was made with.
    pub(super) fn class(&self, promised: Promised) -> u32 {
        let found = self.classes.binary_search_by_key(&promised, |class| class.promised);
        found.expect("every promise has a class") as u32
    }

    /// Whether so many at the device leave room for one more.
    pub(super) fn room(&self, inflight: u32) -> bool {
        u64::from(inflight) << 16 < self.size
    }

    /// Whether anything is promised.
    pub(super) fn promises(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The window, if guaranteed requests have formed it.
    pub(super) fn learnt(&self) -> Option<u32> {
        (self.ruling < i64::MAX).then_some(((self.size + (1 << 15)) >> 16) as u32)
    }

    /// All opinions begin here.
    pub(super) fn begin(&mut self, window: u32) {
        let log = log::ln(window.max(1)).clamp(self.low, self.high);
        for class in &mut self.classes {
            class.log = log;
        }
    }

    /// Excess waits for the window.
    pub(super) fn binds(&mut self, now: Instant) {
        self.bound = Some(now);
    }

    /// When the next period ends.
    pub(super) const fn period_end(&self) -> Instant {
        self.period_end
    }

    /// The first period that ends by `now` and has not been judged.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        (self.period_end <= now).then_some(self.period_end)
    }

    /// A guaranteed request of a class has ended after `device`, with `inflight` at the device, itself
    /// included.
    pub(super) fn ended(&mut self, now: Instant, class: u32, device: Duration, inflight: u32) {
        let grows = self.bound.is_some_and(|at| now.saturating_since(at) <= BOUND);
        let ceiling = self.size + self.size / 4 + (8 << 16);
        let kappa_percent = self.settings.kappa_percent;
        let id = class;
        let class = &mut self.classes[id as usize];
        let missed = device > class.late;
        self.heard.remove(&(class.log, id));
        class.heard = Some(now);
        class.count.add(missed);
        let budget = class.excuse.map_or(class.budget, |excuse| excuse.share);
        let step = |ppm: u64| {
            let whole = u128::from(log::ONE as u64) * u128::from(kappa_percent * ppm);
            let step = whole / (u128::from(inflight) * u128::from(100 * PPM));
            i64::try_from(step).unwrap_or(i64::MAX)
        };
        if missed {
            class.log = class.log.saturating_sub(step(PPM - budget));
        } else if grows && log::exp(class.log) < ceiling {
            class.log = class.log.saturating_add(step(budget));
        }
        class.log = class.log.clamp(self.low, self.high);
        self.heard.insert((class.log, id));
    }

    /// The smallest opinion that is heard rules.
    pub(super) fn rule(&mut self, now: Instant) {
        let ruling = loop {
            let Some(&(log, id)) = self.heard.first() else { break i64::MAX };
            let heard = self.classes[id as usize].heard;
            if heard.is_some_and(|at| now.saturating_since(at) <= SILENT) {
                break log;
            }
            self.heard.pop_first();
        };
        if ruling != self.ruling {
            self.ruling = ruling;
            self.size = match ruling {
                i64::MAX => u64::from(self.settings.max) << 16,
                log => log::exp(log),
            };
        }
    }

    /// Whether the period that has ended was at the floor, and whether its guarantees did not fit.
    pub(super) fn fits(&mut self) -> (bool, bool) {
        self.rule(self.period_end);
        let floor = self.size <= u64::from(self.settings.min + 1) << 16;
        let strict = self.classes.iter().filter(|class| class.excuse.is_none());
        let all = strict.fold(Tally::default(), |sum, class| sum.plus(class.count));
        (floor, floor && all.missed * 5 > all.ended)
    }

    /// Judges the period that has ended; `can_give` says whether guarantees can be scaled down. Says
    /// which promise has become infeasible or feasible again.
    pub(super) fn judge(&mut self, can_give: bool) -> Vec<(Promised, bool)> {
        let now = self.period_end;
        self.period_end += PERIOD;
        let mut news = Vec::new();
        for (id, class) in (0..).zip(&mut self.classes) {
            let (was, log) = (class.excuse.is_some(), class.log);
            class.judge(now, self.low, can_give);
            if class.log != log && self.heard.remove(&(log, id)) {
                self.heard.insert((class.log, id));
            }
            if class.excuse.is_some() != was {
                news.push((class.promised, !was));
            }
        }
        news
    }

    /// Nothing has been at the device or waited for so long that nothing is to be judged.
    pub(super) fn skip(&mut self, now: Instant) {
        let periods = 1 + now.since(self.period_end).as_nanos() / PERIOD.as_nanos();
        self.period_end += PERIOD * periods;
        self.rule(now);
    }

    /// Whether a period without any ending would leave everything as it is.
    pub(super) fn settled(&self) -> bool {
        let settled =
            |class: &Class| class.excuse.is_none() && class.count.ended == 0 && class.periods == 0;
        self.classes.iter().all(settled)
    }
}

impl Tally {
    const fn add(&mut self, missed: bool) {
        self.ended += 1;
        self.missed += missed as u64;
    }

    const fn plus(self, other: Self) -> Self {
        Self { ended: self.ended + other.ended, missed: self.missed + other.missed }
    }

    /// The share that missed in millionths, rounded down.
    const fn ppm(self) -> u64 {
        self.missed * PPM / self.ended
    }

    /// Whether more than `ppm` millionths missed.
    const fn above(self, ppm: u64) -> bool {
        self.missed * PPM > self.ended * ppm
    }
}

impl Class {
    fn judge(&mut self, now: Instant, floor: i64, can_give: bool) {
        let count = core::mem::take(&mut self.count);
        if let Some(excuse) = self.excuse {
            if now >= excuse.until {
                self.excuse = None;
                self.log = floor;
            }
            return;
        }
        let silent = self.heard.is_none_or(|at| now.saturating_since(at) > SILENT);
        if silent || self.log > floor + log::ONE / 8 {
            (self.floor, self.periods, self.proof) = (Tally::default(), 0, None);
            self.hold = HOLD_MIN;
            return;
        }
        self.floor = self.floor.plus(count);
        self.periods += 1;
        let many = self.periods >= PERIODS && self.floor.ended >= SAMPLE;
        let few = self.periods >= PERIODS_FEW && self.floor.ended >= SAMPLE_FEW;
        if !many && !few {
            return;
        }
        let sample = core::mem::take(&mut self.floor);
        self.periods = 0;
        let brown_out = sample.above(PPM / 5) && can_give;
        if brown_out || !sample.above(3 * self.budget) {
            (self.proof, self.hold) = (None, HOLD_MIN);
            return;
        }
        let share = sample.ppm();
        if let Some(before) = self.proof {
            let least = share.min(before);
            let until = now + self.hold;
            self.excuse = Some(Excuse { until, share: (least + least / 2).min(PPM - 1) });
            self.hold = if self.hold < HOLD_MAX { self.hold * 2 } else { HOLD_MAX };
        }
        self.proof = Some(share);
    }
}
