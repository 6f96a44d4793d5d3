//! The window of the slack policy: how many requests may be at the devices before excess waits.
//!
//! Objectives of the same time and quantile form a class, and each class has a window. A miss of a guaranteed
//! request shrinks it, a hit lets it grow, both by steps that sum up to one factor of `e^kappa` per response
//! time; where they balance, a share of `1 - q` misses. The smallest window of an active class, which had a
//! guaranteed ending within a second, is the effective window.
//!
//! Two things bound what an objective that cannot be met costs other tenants:
//!
//! * *Brown-out.* At the floor with more than a fifth missing, the guarantees themselves do not fit:
//!   they are scaled down until they do, see `brown_out.rs`.
//! * *SLO waiver.* Two samples in a row at the floor, of 4000 endings each, or of ten seconds and 200, with a
//!   missed share above three times `1 - q`, which no brown-out can cure, are evidence that not even the
//!   smallest window meets the objective. For the time of the waiver the class holds its misses at 1.5 times
//!   those of the better sample. Where the window makes no difference it opens to its end; where it does, the
//!   waiver costs this and no more. Then the floor is tried again, for one sample; while nothing has changed
//!   each waiver lasts twice as long.

use super::super::ln;
use super::Settings;
use crate::clock::{Duration, Instant};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// How often objectives are judged.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// A class without guaranteed endings for this long is not active.
const ACTIVE: Duration = Duration::from_secs(1);

/// The window grows while it has held a request within this time.
const FULL: Duration = Duration::from_millis(200);

/// Periods of a sample at the floor, at least.
const PERIODS: u32 = 3;

/// Guaranteed endings of a sample; a class with few of them is judged by the second number in ten seconds.
const SAMPLE: u64 = 4_000;
const SAMPLE_FEW: u64 = 200;
const PERIODS_FEW: u32 = 100;

/// The length of the first waiver and of the longest.
const WAIVER_MIN: Duration = Duration::from_secs(2);
const WAIVER_MAX: Duration = Duration::from_secs(64);

/// One, in millionths.
const PPM: u64 = 1_000_000;

/// The windows of all classes, and the effective one.
#[derive(Clone, Debug)]
pub(super) struct Window {
    settings: Settings,
    classes: Vec<ObjectiveClass>,
    period_end: Instant,
    /// When excess last waited for the window.
    full_at: Option<Instant>,
    /// The active classes, by the logarithm of their window.
    active: BTreeSet<(i64, u32)>,
    /// The bounds of every class's window, as logarithms.
    ln_min: i64,
    ln_max: i64,
    /// The smallest window of an active class, as a logarithm; `i64::MAX` without one.
    ln_effective: i64,
    /// The effective window in 2^-16 requests.
    size: u64,
}

/// The time and the quantile, in millionths, of the objectives of a class.
pub(super) type ClassKey = (Duration, u32);

/// The end of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeriodOutcome {
    /// The effective window is at its minimum.
    pub(super) at_floor: bool,
    /// Guarantees do not fit: it is at the floor, and more than a fifth of the requests missed.
    pub(super) misfit: bool,
}

/// The window of the objectives with one time and quantile.
#[derive(Clone, Debug)]
struct ObjectiveClass {
    key: ClassKey,
    /// The time at the device past which a request has missed.
    late: Duration,
    /// The share that may miss, in millionths.
    budget: u64,
    /// The window as a natural logarithm.
    ln: i64,
    /// The last guaranteed ending.
    ended_at: Option<Instant>,
    /// Endings in this period.
    period: MissCount,
    /// Endings since the window has been at the floor, and in how many periods.
    sample: MissCount,
    sample_periods: u32,
    /// The share that missed in the sample before, if it was too large.
    evidence: Option<u64>,
    waiver: Option<Waiver>,
    /// How long the next waiver is.
    next_waiver: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MissCount {
    ended: u64,
    missed: u64,
}

/// A time during which a class is held to a larger missed share than its objectives allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiver {
    until: Instant,
    /// In millionths.
    share: u64,
}

impl Window {
    pub(super) fn new(settings: Settings, mut keys: Vec<ClassKey>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let class = |key: ClassKey| ObjectiveClass {
            key,
            late: Duration::from_nanos(
                (u128::from(key.0.as_nanos()) * u128::from(settings.theta_percent) / 100) as u64,
            ),
            budget: PPM - u64::from(key.1),
            ln: ln::ln(settings.first),
            ended_at: None,
            period: MissCount::default(),
            sample: MissCount::default(),
            sample_periods: 0,
            evidence: None,
            waiver: None,
            next_waiver: WAIVER_MIN,
        };
        Self {
            settings,
            classes: keys.into_iter().map(class).collect(),
            period_end: Instant::ZERO + PERIOD,
            full_at: None,
            active: BTreeSet::new(),
            ln_min: ln::ln(settings.min),
            ln_max: ln::ln(settings.max),
            ln_effective: i64::MAX,
            size: u64::from(settings.max) << 16,
        }
    }

    pub(super) const fn settings(&self) -> Settings {
        self.settings
    }

    /// Continues `old`, whose settings are the same, with the objectives of this one. A new objective begins at the
    /// window of the active one with the nearest time, less if its own time is shorter, and is active at once.
    pub(super) fn succeed(&mut self, old: &Self, now: Instant) {
        (self.period_end, self.full_at) = (old.period_end, old.full_at);
        for (id, class) in (0..).zip(&mut self.classes) {
            if let Ok(place) = old.classes.binary_search_by_key(&class.key, |class| class.key) {
                class.clone_from(&old.classes[place]);
                if old.active.contains(&(class.ln, place as u32)) {
                    self.active.insert((class.ln, id));
                }
            } else if let Some((near, ratio)) = old.nearest(class.key, now) {
                class.ln = (near.ln + ratio.min(0)).clamp(self.ln_min, self.ln_max);
                class.ended_at = Some(now);
                self.active.insert((class.ln, id));
            }
        }
        self.update(now);
    }

    /// The active class whose time is nearest to that of `key`, and the logarithm of their ratio.
    fn nearest(&self, key: ClassKey, now: Instant) -> Option<(&ObjectiveClass, i64)> {
        let ln_micros = |time: Duration| {
            let micros = (time.as_nanos() / 1_000).clamp(1, u32::MAX.into());
            ln::ln(micros as u32)
        };
        let active = self
            .classes
            .iter()
            .filter(|class| class.ended_at.is_some_and(|at| now.saturating_since(at) <= ACTIVE));
        let all = active.map(|class| (class, ln_micros(key.0) - ln_micros(class.key.0)));
        all.min_by_key(|(_, ratio)| ratio.abs())
    }

    /// The class of an objective that the window was made with.
    pub(super) fn class(&self, key: ClassKey) -> u32 {
        let found = self.classes.binary_search_by_key(&key, |class| class.key);
        found.expect("every objective has a class") as u32
    }

    /// Whether one request more may be at the devices, beside `inflight`.
    pub(super) fn has_room(&self, inflight: u32) -> bool {
        u64::from(inflight) << 16 < self.size
    }

    /// Whether any tenant has an objective.
    pub(super) fn has_objectives(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The effective window in requests, if a class is active.
    pub(super) fn learnt(&self) -> Option<u32> {
        (self.ln_effective < i64::MAX).then_some(((self.size + (1 << 15)) >> 16) as u32)
    }

    /// Sets the window of every class, within the bounds; each is active again from its next ending.
    pub(super) fn restore(&mut self, window: u32) {
        let ln = ln::ln(window.max(1)).clamp(self.ln_min, self.ln_max);
        self.active.clear();
        for class in &mut self.classes {
            class.ln = ln;
        }
    }

    /// Excess waits for the window.
    pub(super) fn set_full(&mut self, now: Instant) {
        self.full_at = Some(now);
    }

    /// When the present period ends.
    pub(super) const fn period_end(&self) -> Instant {
        self.period_end
    }

    /// The end of the present period, if that is over.
    pub(super) fn period_over(&self, now: Instant) -> Option<Instant> {
        (self.period_end <= now).then_some(self.period_end)
    }

    /// Counts the ending of a guaranteed request of a class after `device`, with `inflight` requests at the
    /// devices, itself included, and moves the window of the class.
    pub(super) fn count_ending(
        &mut self,
        now: Instant,
        class: u32,
        device: Duration,
        inflight: u32,
    ) {
        assert!(inflight > 0, "a request ended that was not at the devices");
        let grows = self.full_at.is_some_and(|at| now.saturating_since(at) <= FULL);
        let ceiling = self.size + self.size / 4 + (8 << 16);
        let kappa_percent = self.settings.kappa_percent;
        let id = class;
        let class = &mut self.classes[id as usize];
        let missed = device > class.late;
        self.active.remove(&(class.ln, id));
        class.ended_at = Some(now);
        class.period.add(missed);
        let budget = class.waiver.map_or(class.budget, |waiver| waiver.share);
        let step = |ppm: u64| {
            let whole = u128::from(ln::ONE as u64) * u128::from(kappa_percent * ppm);
            let step = whole / (u128::from(inflight) * u128::from(100 * PPM));
            i64::try_from(step).unwrap_or(i64::MAX)
        };
        if missed {
            class.ln = class.ln.saturating_sub(step(PPM - budget));
        } else if grows && ln::exp(class.ln) < ceiling {
            class.ln = class.ln.saturating_add(step(budget));
        }
        class.ln = class.ln.clamp(self.ln_min, self.ln_max);
        self.active.insert((class.ln, id));
    }

    /// Makes the smallest window of an active class the effective one.
    pub(super) fn update(&mut self, now: Instant) {
        let smallest = loop {
            let Some(&(ln, id)) = self.active.first() else { break i64::MAX };
            let ended_at = self.classes[id as usize].ended_at;
            if ended_at.is_some_and(|at| now.saturating_since(at) <= ACTIVE) {
                break ln;
            }
            self.active.pop_first();
        };
        if smallest != self.ln_effective {
            self.ln_effective = smallest;
            self.size = match smallest {
                i64::MAX => u64::from(self.settings.max) << 16,
                ln => {
                    let bounds = self.ln_min..=self.ln_max;
                    assert!(bounds.contains(&ln), "the window is outside its bounds");
                    ln::exp(ln)
                }
            };
        }
    }

    /// The state at the end of the period.
    pub(super) fn period_outcome(&mut self) -> PeriodOutcome {
        self.update(self.period_end);
        let at_floor = self.size <= u64::from(self.settings.min + 1) << 16;
        let held = self.classes.iter().filter(|class| class.waiver.is_none());
        let all = held.fold(MissCount::default(), |sum, class| sum.plus(class.period));
        PeriodOutcome { at_floor, misfit: at_floor && all.missed * 5 > all.ended }
    }

    /// Ends the period; `can_scale_down` says whether guarantees can be. Returns the classes that got a waiver
    /// (true) or whose waiver ended (false).
    pub(super) fn end_period(&mut self, can_scale_down: bool) -> Vec<(ClassKey, bool)> {
        let now = self.period_end;
        self.period_end += PERIOD;
        let mut changes = Vec::new();
        for (id, class) in (0..).zip(&mut self.classes) {
            let (was, ln) = (class.waiver.is_some(), class.ln);
            class.end_period(now, self.ln_min, can_scale_down);
            if class.ln != ln && self.active.remove(&(ln, id)) {
                self.active.insert((class.ln, id));
            }
            if class.waiver.is_some() != was {
                changes.push((class.key, !was));
            }
        }
        changes
    }

    /// Skips periods without requests at the devices or in the queues.
    pub(super) fn skip_periods(&mut self, now: Instant) {
        let periods = 1 + now.since(self.period_end).as_nanos() / PERIOD.as_nanos();
        self.period_end += PERIOD * periods;
        self.update(now);
    }

    /// Whether a period without an ending would change nothing.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |class: &ObjectiveClass| {
            class.waiver.is_none() && class.period.ended == 0 && class.sample_periods == 0
        };
        self.classes.iter().all(settled)
    }
}

impl MissCount {
    const fn add(&mut self, missed: bool) {
        self.ended += 1;
        self.missed += missed as u64;
    }

    const fn plus(self, other: Self) -> Self {
        Self { ended: self.ended + other.ended, missed: self.missed + other.missed }
    }

    /// The share that missed in millionths, rounded down.
    const fn ppm(self) -> u64 {
        assert!(self.missed <= self.ended, "more requests missed than ended");
        self.missed * PPM / self.ended
    }

    /// Whether more than `ppm` millionths missed.
    const fn above(self, ppm: u64) -> bool {
        self.missed * PPM > self.ended * ppm
    }
}

impl ObjectiveClass {
    /// Ends a period; `floor` is the smallest window as a logarithm.
    fn end_period(&mut self, now: Instant, floor: i64, can_scale_down: bool) {
        let period = core::mem::take(&mut self.period);
        if let Some(waiver) = self.waiver {
            if now >= waiver.until {
                self.waiver = None;
                self.ln = floor;
            }
            return;
        }
        let silent = self.ended_at.is_none_or(|at| now.saturating_since(at) > ACTIVE);
        if silent || self.ln > floor + ln::ONE / 8 {
            (self.sample, self.sample_periods) = (MissCount::default(), 0);
            (self.evidence, self.next_waiver) = (None, WAIVER_MIN);
            return;
        }
        self.sample = self.sample.plus(period);
        self.sample_periods += 1;
        let many = self.sample_periods >= PERIODS && self.sample.ended >= SAMPLE;
        let few = self.sample_periods >= PERIODS_FEW && self.sample.ended >= SAMPLE_FEW;
        if many || few {
            self.sample_periods = 0;
            let sample = core::mem::take(&mut self.sample);
            self.judge(now, sample, can_scale_down);
        }
    }

    /// Takes a sample at the floor as evidence, and grants a waiver on the second in a row.
    fn judge(&mut self, now: Instant, sample: MissCount, can_scale_down: bool) {
        let brown_out = sample.above(PPM / 5) && can_scale_down;
        if brown_out || !sample.above(3 * self.budget) {
            (self.evidence, self.next_waiver) = (None, WAIVER_MIN);
            return;
        }
        let share = sample.ppm();
        if let Some(before) = self.evidence {
            let better = share.min(before);
            let until = now + self.next_waiver;
            self.waiver = Some(Waiver { until, share: (better + better / 2).min(PPM - 1) });
            self.next_waiver =
                if self.next_waiver < WAIVER_MAX { self.next_waiver * 2 } else { WAIVER_MAX };
        }
        self.evidence = Some(share);
    }
}

#[cfg(test)]
mod tests {
    use super::super::POLICY;
    use super::*;
    use crate::testing;
    use alloc::vec;

    fn window() -> Window {
        let settings = Settings::from(testing::choice(&POLICY, &[]).values());
        Window::new(settings, vec![(Duration::from_millis(1), 990_000)])
    }

    /// A request that ends was at the devices, so it counts itself.
    #[test]
    #[should_panic(expected = "was not at the devices")]
    fn an_ending_counts_itself() {
        window().count_ending(Instant::ZERO, 0, Duration::ZERO, 0);
    }

    /// The effective window cannot leave its bounds unnoticed.
    #[test]
    #[should_panic(expected = "outside its bounds")]
    fn the_window_has_bounds() {
        let mut window = window();
        window.active.insert((window.ln_min - 1, 0));
        window.classes[0].ended_at = Some(Instant::ZERO);
        window.update(Instant::ZERO);
    }

    /// A class cannot miss more than has ended.
    #[test]
    #[should_panic(expected = "more requests missed than ended")]
    fn misses_are_endings() {
        MissCount { ended: 1, missed: 2 }.ppm();
    }
}
