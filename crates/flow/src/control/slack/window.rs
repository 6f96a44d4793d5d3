//! The window of the slack policy: how much may be at the device before excess waits.
//!
//! Tenants with equal promises form a class, and each class has an opinion of the window. A miss of a
//! guaranteed request shrinks it, a hit lets it grow, both by steps that sum up to one factor of
//! `e^kappa` per response time; where they balance, a share of `1 - q` misses. The smallest opinion
//! rules.
//!
//! Two things keep a promise that cannot be kept from costing others for nothing:
//!
//! * *Brown-out.* At the floor with more than a fifth missing, the guarantees themselves do not fit:
//!   they are scaled down until they do.
//! * *Futility.* At the floor with misses above three times `1 - q`, but not enough for a brown-out or
//!   with one that has reached its end: the class tries a window four times as large, and then the
//!   floor again, because load that only passes by also changes the share of misses. If the larger
//!   window had no more than `1 - q` above the better of the two floors, the window is not to blame.
//!   The class is then *excused* for a while: its opinion holds the misses at that share plus `1 - q`
//!   instead of asking for what no window gives, so that the excuse costs it `1 - q`. Afterwards the
//!   opinion is as strict as before; a promise that is still infeasible is tried and excused again,
//!   each time for twice as long.

use super::super::log;
use super::Settings;
use crate::clock::{Duration, Instant};
use alloc::vec::Vec;

/// How often misses are judged.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// A class without guaranteed endings for so long has no opinion.
const SILENT: Duration = Duration::from_secs(1);

/// The window grows while it has held somebody within this time.
const BOUND: Duration = Duration::from_millis(200);

/// Periods at the floor before a brown-out, and before a trial.
const MISFITS: u32 = 5;
const PERIODS: u32 = 20;

/// Guaranteed endings that a share of misses is taken from, at the floor and in a trial.
const SAMPLE: u64 = 2_000;

/// A trial that has not seen so many by then, in either of its phases, has no result.
const PHASE_MAX: Duration = Duration::from_secs(5);

/// How long an excuse, or the time to the next trial after one that failed, is at first and at last.
const HOLD_MIN: Duration = Duration::from_secs(1);
const HOLD_MAX: Duration = Duration::from_secs(64);

/// The scale of guarantees, in millionths: whole, and least.
pub(super) const WHOLE: u64 = 1_000_000;
const SCALE_MIN: u64 = 200_000;

/// The opinions, and the scale of guarantees.
#[derive(Clone, Debug)]
pub(super) struct Window {
    settings: Settings,
    classes: Vec<Class>,
    period_end: Instant,
    /// When excess last waited for the window.
    bound: Option<Instant>,
    /// Periods in a row in which the guarantees did not fit.
    misfits: u32,
    scale: u64,
    /// The window as it is, in 2^-16 requests.
    size: u64,
}

/// Tenants with one promised response time.
#[derive(Clone, Debug)]
struct Class {
    response: Duration,
    /// Natural logarithm of the opinion.
    log: i64,
    heard: Option<Instant>,
    /// Endings and misses in this period.
    count: Tally,
    /// The same since the opinion has been at the floor, and for how many periods.
    floor: Tally,
    periods: u32,
    stand: Stand,
    /// No trial before, and how long the next hold is.
    quiet_until: Instant,
    hold: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    ended: u64,
    missed: u64,
}

/// What a class makes of its misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// They are the window's fault.
    Strict,
    /// Are they? A larger window, for a while.
    Trial { until: Instant, seen: Tally },
    /// And the floor again, after what the trial has seen.
    Check { until: Instant, trial: Tally, seen: Tally },
    /// Not below this share, in thousandths.
    Excused { until: Instant, share: u64 },
}

impl Window {
    pub(super) fn new(settings: Settings, responses: impl Iterator<Item = Duration>) -> Self {
        let mut responses: Vec<Duration> = responses.collect();
        responses.sort_unstable();
        responses.dedup();
        let class = |response| Class {
            response,
            log: log::ln(settings.first),
            heard: None,
            count: Tally::default(),
            floor: Tally::default(),
            periods: 0,
            stand: Stand::Strict,
            quiet_until: Instant::ZERO,
            hold: HOLD_MIN,
        };
        Self {
            settings,
            classes: responses.into_iter().map(class).collect(),
            period_end: Instant::ZERO + PERIOD,
            bound: None,
            misfits: 0,
            scale: WHOLE,
            size: u64::from(settings.max) << 16,
        }
    }

    /// Whether so many at the device leave room for one more.
    pub(super) fn room(&self, inflight: u32) -> bool {
        u64::from(inflight) << 16 < self.size
    }

    /// Excess waits for the window.
    pub(super) fn binds(&mut self, now: Instant) {
        self.bound = Some(now);
    }

    /// The scale of guarantees, in millionths.
    pub(super) const fn scale(&self) -> u64 {
        self.scale
    }

    /// When the scale changes next, if it is not whole.
    pub(super) fn next(&self) -> Option<Instant> {
        (self.scale < WHOLE).then_some(self.period_end)
    }

    /// The first period that ends by `now` and has not been judged.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        (self.period_end <= now).then_some(self.period_end)
    }

    /// A guaranteed request of the class with this promise has ended after `device`, with `inflight`
    /// at the device, itself included.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        response: Duration,
        device: Duration,
        inflight: u32,
    ) {
        let Settings { theta_percent, kappa_percent, .. } = self.settings;
        let strict = 1_000 - self.settings.quantile_permille;
        let grows = self.bound.is_some_and(|at| now.saturating_since(at) <= BOUND);
        let (low, high) = (log::ln(self.settings.min), log::ln(self.settings.max));
        let ceiling = self.size + self.size / 4 + (8 << 16);
        let index = self.classes.partition_point(|class| class.response < response);
        let class = &mut self.classes[index];
        let missed = u128::from(device.as_nanos()) * 100
            > u128::from(response.as_nanos()) * u128::from(theta_percent);
        class.heard = Some(now);
        class.count.add(missed);
        let budget = match &mut class.stand {
            Stand::Trial { seen, .. } | Stand::Check { seen, .. } => {
                seen.add(missed);
                return self.rule(now);
            }
            Stand::Strict => strict,
            Stand::Excused { share, .. } => *share,
        };
        let step = |permille: u64| {
            let step = log::ONE as u64 / 100_000 * kappa_percent * permille / u64::from(inflight);
            i64::try_from(step).unwrap_or(i64::MAX)
        };
        if missed {
            class.log = class.log.saturating_sub(step(1_000 - budget));
        } else if grows && log::exp(class.log) < ceiling {
            class.log = class.log.saturating_add(step(budget));
        }
        class.log = class.log.clamp(low, high);
        self.rule(now);
    }

    /// The smallest opinion that is heard rules.
    pub(super) fn rule(&mut self, now: Instant) {
        let heard =
            |class: &&Class| class.heard.is_some_and(|at| now.saturating_since(at) <= SILENT);
        let log = self.classes.iter().filter(heard).map(|class| class.log).min();
        self.size = log.map_or(u64::from(self.settings.max) << 16, log::exp);
    }

    /// Judges the period that has ended. Says which promise has become infeasible or feasible again,
    /// by its response time.
    pub(super) fn judge(&mut self) -> Vec<(Duration, bool)> {
        let now = self.period_end;
        self.period_end += PERIOD;
        self.rule(now);
        let floor = u64::from(self.settings.min + 1) << 16;
        let strict = self.classes.iter().filter(|class| class.stand == Stand::Strict);
        let all = strict.fold(Tally::default(), |sum, class| sum.plus(class.count));
        let misfit = self.size <= floor && all.missed * 5 > all.ended;
        self.misfits = if misfit { self.misfits.saturating_add(1) } else { 0 };
        self.scale = if self.misfits >= MISFITS {
            (self.scale * 95 / 100).max(SCALE_MIN)
        } else {
            (self.scale + 20_000).min(WHOLE)
        };
        let mut news = Vec::new();
        for class in &mut self.classes {
            let was = class.excused();
            class.judge(now, self.settings, self.scale);
            if class.excused() != was {
                news.push((class.response, !was));
            }
        }
        news
    }

    /// Nothing has been at the device or waited for so long that only the scale has changed.
    pub(super) fn skip(&mut self, now: Instant) {
        let periods = 1 + now.since(self.period_end).as_nanos() / PERIOD.as_nanos();
        self.period_end += PERIOD * periods;
        self.rule(now);
    }

    /// Whether a period without any ending would leave everything as it is.
    pub(super) fn settled(&self) -> bool {
        let settled = |class: &Class| {
            class.stand == Stand::Strict && class.count.ended == 0 && class.periods == 0
        };
        self.scale == WHOLE && self.misfits == 0 && self.classes.iter().all(settled)
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

    /// The share that missed in thousandths, rounded down.
    const fn permille(self) -> u64 {
        self.missed * 1_000 / self.ended
    }

    /// Whether more than `permille` thousandths missed.
    const fn above(self, permille: u64) -> bool {
        self.missed * 1_000 > self.ended * permille
    }
}

impl Class {
    const fn excused(&self) -> bool {
        matches!(self.stand, Stand::Excused { .. })
    }

    /// Excuses the class, up to a share of misses, or not.
    fn end_trial(&mut self, now: Instant, settings: Settings, share: Option<u64>) {
        let until = now + self.hold;
        self.log = log::ln(settings.min);
        self.stand = match share {
            Some(share) => Stand::Excused { until, share: share.min(999) },
            None => Stand::Strict,
        };
        self.quiet_until = until;
        self.hold = if self.hold < HOLD_MAX { self.hold * 2 } else { HOLD_MAX };
        (self.floor, self.periods) = (Tally::default(), 0);
    }

    fn judge(&mut self, now: Instant, settings: Settings, scale: u64) {
        let count = core::mem::take(&mut self.count);
        let strict = 1_000 - settings.quantile_permille;
        match self.stand {
            Stand::Strict => {
                if count.ended == 0 || self.log > log::ln(settings.min + 1) {
                    (self.floor, self.periods) = (Tally::default(), 0);
                    return;
                }
                self.floor = self.floor.plus(count);
                self.periods += 1;
                if self.periods < PERIODS || self.floor.ended < SAMPLE {
                    return;
                }
                let brown_out = self.floor.above(200) && scale > SCALE_MIN;
                if !brown_out && self.floor.above(3 * strict) && now >= self.quiet_until {
                    let seen = Tally::default();
                    self.stand = Stand::Trial { until: now + PHASE_MAX, seen };
                    self.log = log::ln((settings.min * 4).min(settings.max));
                } else {
                    // A fresh sample: what was long ago says nothing about now.
                    (self.floor, self.periods) = (Tally::default(), 0);
                }
            }
            Stand::Trial { until, seen } => {
                if seen.ended >= SAMPLE {
                    let until = now + PHASE_MAX;
                    self.stand = Stand::Check { until, trial: seen, seen: Tally::default() };
                    self.log = log::ln(settings.min);
                } else if now >= until {
                    self.end_trial(now, settings, None);
                }
            }
            Stand::Check { until, trial, seen } => {
                if seen.ended >= SAMPLE {
                    let share = self.floor.permille().min(seen.permille());
                    let futile = share > 3 * strict && trial.permille() <= share + strict;
                    self.end_trial(now, settings, futile.then_some(share + strict));
                } else if now >= until {
                    self.end_trial(now, settings, None);
                }
            }
            Stand::Excused { until, .. } => {
                if now >= until {
                    self.stand = Stand::Strict;
                }
            }
        }
        if self.stand == Stand::Strict && now.saturating_since(self.quiet_until) > self.hold {
            self.hold = HOLD_MIN;
        }
    }
}
