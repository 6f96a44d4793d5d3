//! Judges which paths of a backend are too slow, and when an ejected path is tried again.
//!
//! A path is judged by *events*: answered I/Os whose times do not overlap, each compared with what the best path
//! of the group took for such I/Os at the same time. A pause delays everything that is in flight, and is one
//! event; a change of the load or of the sizes, or a pause of the machine, changes both sides. A stretch of time is
//! *slow* when most events were, and the path did a fraction of what the best path did. Two slow stretches in a row
//! eject the path. Long responses alone may be a long queue: such a path is *suspected* and gets one I/O at a time
//! for a stretch, which tells the two apart.
//!
//! An ejected path is probed with small reads that are due anyway, and returns when several in a row are as fast
//! as on the best path. Where that cannot be known, it is tried after a while. A path that is ejected again soon
//! after a return needs twice as many good probes.
//!
//! The stage reports events with their times and sizes: [`answered`](Judge::answered),
//! [`probe_failed`](Judge::probe_failed), [`eject`](Judge::eject) and changes of a path's use. It asks for
//! the [`Verdict`] on a path, and for the times after which its I/Os are overdue or stuck. Everything that a
//! judgement is made from is in this file, in `judge/slow.rs` and in `history.rs`.

use super::history::{CostBySize, Evidence, History, ONE, RecentSpeed, Shown};
use crate::clock::{Duration, Instant};
use crate::path::{Ejection, Grounds, Probe, Settings, Speed, Why};
use crate::request::RequestKey;
use alloc::vec::Vec;
use slow::Slow;

/// The judge of a backend's paths.
#[derive(Debug)]
pub(super) struct Judge {
    settings: Settings,
    /// The cost of an I/O on the better paths, as if they did one at a time.
    cost: CostBySize,
    /// The response to an I/O on the better paths that had nothing else to do.
    alone: CostBySize,
    paths: Vec<Record>,
    /// The number of ejected paths.
    ejected: u32,
}

/// What is known of a path.
#[derive(Debug)]
struct Record {
    history: History,
    recent: RecentSpeed,
    evidence: Evidence,
    /// The events of the slow stretches that ended last, without another between.
    slow: Slow,
    /// It was no slower than the best path at its last event, and what it takes is the cost of an I/O.
    good: bool,
    opinion: Opinion,
    /// The probe that is not answered; it may outlast the ejection that it was sent for.
    probe: Option<SentProbe>,
    /// When it last returned from an ejection.
    returned: Option<Instant>,
    /// How often it was ejected again soon after a return.
    relapses: u32,
}

#[derive(Clone, Copy, Debug)]
enum Opinion {
    Good {
        /// It is not suspected before then.
        until: Instant,
    },
    Suspected,
    Ejected {
        since: Instant,
        ejection: Ejection,
        /// The time between probes, which doubles with each bad one.
        interval: Duration,
    },
}

#[derive(Clone, Copy, Debug)]
struct SentProbe {
    key: RequestKey,
    sent: Instant,
    bytes: u64,
}

/// The judgement on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is used like other paths.
    Good,
    /// It may be slow: it gets one I/O at a time while others are there.
    Suspected,
    /// It is out of use as too slow. It returns without a probe, or its probe is overdue, at `retry_at`.
    Ejected {
        /// When [`Judge::retry`] does something.
        retry_at: Instant,
    },
}

/// An I/O that was answered on a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) path: usize,
    pub(super) bytes: u64,
    pub(super) started: Instant,
    /// Nothing else was on the path when it started.
    pub(super) alone: bool,
    /// It was a probe.
    pub(super) probe: bool,
    /// Whether its path is usable.
    pub(super) usable: bool,
    /// Whether its path has a limit as it returns.
    pub(super) returning: bool,
}

/// A change of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The path is suspected now, or no longer.
    Suspicion,
    /// The path is ejected as slow.
    Ejected,
    /// The path is no longer ejected, for this reason.
    Returned(Why),
}

/// What a probe says of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// It is as fast as the best path, also without the queue there.
    Good,
    /// It is no slower than the best path, which may have a long queue now.
    Unclear,
    /// It is slow, or silent.
    Slow,
}

/// What happens to an ejected path without an answer from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Its probe is overdue and wants another path.
    Overdue(RequestKey),
    /// It is used again, without a good probe.
    Trial,
}

/// Judgement.
impl Judge {
    pub(super) fn new(settings: &Settings, paths: usize) -> Self {
        let record = || Record {
            history: History::new(),
            recent: RecentSpeed::default(),
            evidence: Evidence::default(),
            slow: Slow::default(),
            good: true,
            opinion: Opinion::Good { until: Instant::ZERO },
            probe: None,
            returned: None,
            relapses: 0,
        };
        Self {
            settings: *settings,
            cost: CostBySize::default(),
            alone: CostBySize::default(),
            paths: (0..paths).map(|_| record()).collect(),
            ejected: 0,
        }
    }

    pub(super) fn verdict(&self, path: usize) -> Verdict {
        match self.paths[path].opinion {
            Opinion::Good { .. } => Verdict::Good,
            Opinion::Suspected => Verdict::Suspected,
            Opinion::Ejected { ejection, .. } => {
                let retry_at = match self.paths[path].probe {
                    None => ejection.trial_at,
                    Some(probe) => probe.sent + self.overdue_after(path, probe.bytes),
                };
                Verdict::Ejected { retry_at }
            }
        }
    }

    /// The ejection of a path, if it is ejected.
    pub(super) fn ejection(&self, path: usize) -> Option<Ejection> {
        match self.paths[path].opinion {
            Opinion::Ejected { ejection, .. } => Some(ejection),
            Opinion::Good { .. } | Opinion::Suspected => None,
        }
    }

    pub(super) fn is_ejected(&self, path: usize) -> bool {
        matches!(self.paths[path].opinion, Opinion::Ejected { .. })
    }

    pub(super) fn is_suspected(&self, path: usize) -> bool {
        matches!(self.paths[path].opinion, Opinion::Suspected)
    }

    /// Judges by an I/O that was answered; `peer` says which other paths are of the same group, usable and
    /// answer.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        answered: Answered,
        peer: impl Fn(usize) -> bool,
    ) -> Option<Change> {
        let Answered { path, bytes, started, probe, .. } = answered;
        let stretch = self.stretch();
        let record = &mut self.paths[path];
        let service = record.history.service(now, started);
        let response = now.since(started);
        if record.good && !probe {
            self.cost.learn(bytes, service);
            if answered.alone && !answered.returning && self.ejected == 0 {
                self.alone.learn(bytes, response);
            }
        }
        let cost = self.cost.cost(bytes);
        record.history.learn(cost, service, response);
        if probe {
            let best = self.best(path, peer).map(|best| self.paths[best].recent.response(cost));
            return self.judge_probe(now, path, bytes, response, best);
        }
        // A size whose cost is unknown shows nothing.
        if !self.cost.is_known(bytes) {
            return None;
        }
        record.recent.add(now, stretch, (cost, service, response));
        record.evidence.add(cost, service, response);
        if !record.evidence.is_separate(now, started) {
            return None;
        }
        let recent = |other: usize| self.paths[other].history.ended() + RECENT >= now;
        let best = self.best(path, |other| recent(other) && peer(other));
        self.judge_event(now, answered, cost, response, best)
    }

    /// Judges by an event.
    fn judge_event(
        &mut self,
        now: Instant,
        Answered { path, usable, bytes, .. }: Answered,
        cost: u64,
        response: Duration,
        best: Option<usize>,
    ) -> Option<Change> {
        let Settings { slow_factor, slow_min, .. } = self.settings;
        let alone = self.alone(bytes);
        let best = best.map(|best| self.paths[best].recent);
        let stretch = self.stretch();
        let record = &mut self.paths[path];
        let Some(best) = best.filter(|_| usable) else {
            record.good = true;
            record.clear(now);
            return None;
        };
        let expected = best.response(cost);
        let exceeds = |factor: u64| response > (expected * factor).max(expected + slow_min);
        let (slow, long) = (exceeds(2), exceeds(slow_factor.into()));
        record.evidence.count(response, slow, long);
        // Nothing is asked of the response where no I/O was ever alone.
        let without_queue = alone.map_or(Duration::ZERO, |alone| alone.min(expected));
        record.slow.add(slow, response, (expected, without_queue), stretch);
        record.good = record.slow.stretches == 0 && !record.recent.is_slower(&best, 2);
        let shown = record.evidence.shown(now, stretch, &best, slow_factor);
        let stretches = record.slow.stretches + u32::from(shown == Some(Shown::Slow));
        let is_slow = stretches >= 2 && record.slow.is_enough(slow_factor);
        match (record.opinion, shown) {
            (Opinion::Ejected { .. }, _) => None,
            (_, None | Some(Shown::Slow)) if is_slow => {
                let Slow { since, events, response, expected, .. } = record.slow;
                let mean =
                    |sum: Duration| Duration::from_nanos(sum.as_nanos() / u64::from(events.max(1)));
                let (response, expected) = (mean(response), mean(expected));
                self.eject(
                    now,
                    path,
                    Grounds { response, expected, events, over: now.since(since) },
                );
                Some(Change::Ejected)
            }
            (Opinion::Good { until }, Some(Shown::Long)) if until <= now => {
                record.opinion = Opinion::Suspected;
                record.slow.stretches = 1;
                record.evidence.restart(now);
                Some(Change::Suspicion)
            }
            (Opinion::Suspected, shown)
                if shown.is_some_and(|shown| shown != Shown::Slow)
                    || record.evidence.is_acquitted() =>
            {
                record.opinion = Opinion::Good { until: now + ACQUITTED };
                record.clear(now);
                Some(Change::Suspicion)
            }
            (_, Some(Shown::Slow)) => {
                record.slow.stretches = stretches;
                record.evidence.next(now);
                None
            }
            (_, Some(Shown::Long | Shown::Fast)) => {
                record.clear(now);
                None
            }
            (_, None) => None,
        }
    }

    /// The best of the other paths that `fit` accepts.
    fn best(&self, path: usize, fit: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (other, record) in self.paths.iter().enumerate() {
            let faster = |best: usize| !record.recent.is_slower(&self.paths[best].recent, 1);
            if other != path && record.recent.is_known() && fit(other) && best.is_none_or(faster) {
                best = Some(other);
            }
        }
        best
    }

    /// What a lone I/O of `bytes` takes on a good path, if that is known.
    fn alone(&self, bytes: u64) -> Option<Duration> {
        self.alone.has_any().then(|| Duration::from_nanos(self.alone.cost(bytes)))
    }

    /// Half the time for which a path has to be slow.
    fn stretch(&self) -> Duration {
        Duration::from_nanos(self.settings.slow_after.as_nanos() / 2)
    }

    /// Ejects a usable path.
    pub(super) fn eject(&mut self, now: Instant, path: usize, grounds: Grounds) {
        let record = &mut self.paths[path];
        let relapsed = record.returned.is_some_and(|at| at + RELAPSE > now);
        record.relapses = if relapsed { RELAPSES_MAX.min(record.relapses + 1) } else { 0 };
        let interval = self.settings.probe_interval;
        let ejection = Ejection {
            grounds,
            next_probe: now + interval,
            trial_at: now + interval + trial_after(record.relapses),
            last_probe: None,
            probes_passed: 0,
            probes_to_return: self.settings.probes_to_return << record.relapses,
        };
        let opinion = Opinion::Ejected { since: now, ejection, interval };
        let before = core::mem::replace(&mut record.opinion, opinion);
        assert!(!matches!(before, Opinion::Ejected { .. }), "a path was ejected twice");
        record.good = false;
        self.ejected += 1;
    }

    /// An ejected path is used again, or its connection is gone: the ejection is over.
    pub(super) fn reinstate(&mut self, path: usize) {
        let record = &mut self.paths[path];
        if matches!(record.opinion, Opinion::Ejected { .. }) {
            record.opinion = Opinion::Good { until: Instant::ZERO };
            assert!(self.ejected > 0, "a path returned that was not counted as ejected");
            self.ejected -= 1;
        }
    }

    /// A path is put into use: what was measured before is of another time.
    pub(super) fn entered(&mut self, now: Instant, path: usize) {
        let record = &mut self.paths[path];
        record.recent.restart(now);
        record.evidence.restart(now);
        record.slow = Slow { since: now, ..Slow::default() };
        record.good = false;
    }

    /// A path is out of use: a suspicion is over.
    pub(super) fn left(&mut self, now: Instant, path: usize) {
        let record = &mut self.paths[path];
        if !matches!(record.opinion, Opinion::Ejected { .. }) {
            record.opinion = Opinion::Good { until: now };
        }
    }
}

impl Record {
    /// The path was not slow in the stretch that ends now.
    fn clear(&mut self, now: Instant) {
        self.slow = Slow { since: now, ..Slow::default() };
        self.evidence.next(now);
    }
}

/// Probes.
impl Judge {
    /// The ejected path whose probe is due, of those that are `reachable`, if an I/O of `bytes` is small
    /// enough for a probe.
    pub(super) fn probe_due(
        &self,
        now: Instant,
        bytes: u64,
        reachable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if self.ejected == 0 || bytes > PROBE_BYTES {
            return None;
        }
        (0..self.paths.len()).find(|&path| {
            let due = self.ejection(path).is_some_and(|ejection| ejection.next_probe <= now);
            due && self.paths[path].probe.is_none() && reachable(path)
        })
    }

    /// An I/O starts on an ejected path as its probe.
    pub(super) fn probe_sent(&mut self, now: Instant, path: usize, key: RequestKey, bytes: u64) {
        assert!(self.is_ejected(path), "only an ejected path is probed");
        let before = self.paths[path].probe.replace(SentProbe { key, sent: now, bytes });
        assert!(before.is_none(), "a path has one probe at a time");
    }

    /// A probe is off its path, answered or not.
    pub(super) fn probe_ended(&mut self, path: usize) {
        let before = self.paths[path].probe.take();
        assert!(before.is_some(), "a probe ended that was not sent");
    }

    /// A probe was not answered.
    pub(super) fn probe_failed(&mut self, now: Instant, path: usize) {
        self.probed(now, path, Finding::Slow, None);
    }

    /// The ejected path is due to be tried without an answer.
    pub(super) fn retry(&mut self, now: Instant, path: usize) -> Option<Retry> {
        let Verdict::Ejected { retry_at } = self.verdict(path) else { return None };
        if retry_at > now {
            return None;
        }
        if let Some(probe) = self.paths[path].probe {
            return Some(Retry::Overdue(probe.key));
        }
        self.reinstate(path);
        self.paths[path].returned = Some(now);
        Some(Retry::Trial)
    }

    /// Judges an answered probe; `best` is what it would take on the best path.
    fn judge_probe(
        &mut self,
        now: Instant,
        path: usize,
        bytes: u64,
        response: Duration,
        best: Option<Duration>,
    ) -> Option<Change> {
        let Settings { slow_factor, slow_min, .. } = self.settings;
        let queued = best.map(|best| (best * 2).max(best + slow_min));
        let alone = self.alone(bytes);
        let alone = alone.map(|alone| (alone * u64::from(slow_factor / 2)).max(alone + slow_min));
        let within = |max: Option<Duration>| max.is_none_or(|max| response <= max);
        let finding = match (within(queued), within(alone)) {
            (false, _) => Finding::Slow,
            (true, false) => Finding::Unclear,
            (true, true) => Finding::Good,
        };
        let max = [queued, alone].into_iter().flatten().min().unwrap_or(response);
        self.probed(now, path, finding, Some(Probe { response, max }))
    }

    fn probed(
        &mut self,
        now: Instant,
        path: usize,
        finding: Finding,
        probe: Option<Probe>,
    ) -> Option<Change> {
        let record = &mut self.paths[path];
        let relapses = record.relapses;
        let Opinion::Ejected { since, ejection, interval } = &mut record.opinion else {
            return None;
        };
        ejection.last_probe = probe;
        let why = match finding {
            Finding::Good => {
                ejection.probes_passed += 1;
                *interval = self.settings.probe_interval;
                (ejection.probes_passed >= ejection.probes_to_return).then_some(Why::Probed)
            }
            Finding::Unclear | Finding::Slow => {
                ejection.probes_passed = 0;
                *interval = (*interval * 2).min(self.settings.probe_interval_max);
                let tried = finding == Finding::Unclear && *since + trial_after(relapses) <= now;
                tried.then_some(Why::Trial)
            }
        };
        ejection.next_probe = now + *interval;
        ejection.trial_at = ejection.next_probe + trial_after(relapses);
        let why = why?;
        self.reinstate(path);
        self.paths[path].returned = Some(now);
        Some(Change::Returned(why))
    }
}

/// Predictions.
impl Judge {
    /// How long an I/O of `bytes` may take on a path before it is overdue.
    pub(super) fn overdue_after(&self, path: usize, bytes: u64) -> Duration {
        let Settings { overdue_min, overdue_max, .. } = self.settings;
        let usual = self.usual(path, bytes);
        usual.map_or(overdue_max, |usual| usual.max(overdue_min).min(overdue_max))
    }

    /// How old the first I/O of a path has to be to be stuck, if other paths do better.
    pub(super) fn stuck_after(&self, path: usize, bytes: u64) -> Duration {
        let quiet = self.overdue_after(path, bytes);
        let usual = self.usual(path, bytes).unwrap_or(quiet);
        let longest = self.settings.io_timeout.as_nanos();
        let nanos = usual.max(quiet).as_nanos().saturating_mul(u64::from(STUCK)).min(longest);
        Duration::from_nanos(nanos)
    }

    /// A multiple of the usual time of an I/O on a path, or on any other if nothing ended there yet.
    fn usual(&self, path: usize, bytes: u64) -> Option<Duration> {
        let known =
            |path: usize| Some(self.paths[path].history.usual_response()).filter(|&f| f > 0);
        let others = || (0..self.paths.len()).filter_map(known).min();
        let factor = known(path).or_else(others)?;
        let nanos = u128::from(self.cost.cost(bytes))
            * u128::from(factor)
            * u128::from(self.settings.overdue_factor)
            / u128::from(ONE);
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The speed of a path; `None` before an I/O has ended on it.
    pub(super) fn speed(&self, path: usize) -> Option<Speed> {
        let factor = self.paths[path].history.usual_service();
        let (fixed, per_mib) = self.cost.line();
        let time = |nanos: u64| {
            let nanos = u128::from(nanos) * u128::from(factor) / u128::from(ONE);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        (factor > 0).then(|| Speed { fixed: time(fixed), per_mib: time(per_mib) })
    }
}

/// An I/O is stuck when it takes this many times longer than when it is overdue, and than the oldest
/// of another path.
pub(super) const STUCK: u32 = 4;

/// The largest read that is sent as a probe.
const PROBE_BYTES: u64 = 64 << 10;

/// How long an ejected path waits for a probe, or has unclear probes, before it is tried.
fn trial_after(relapses: u32) -> Duration {
    Duration::from_secs(5 << relapses)
}

/// A path that is ejected within this time after a return has not recovered.
const RELAPSE: Duration = Duration::from_secs(60);

/// Each relapse doubles the probes that a path needs, up to this number of relapses.
const RELAPSES_MAX: u32 = 4;

/// How long a path is not suspected again that was fast with one I/O at a time.
const ACQUITTED: Duration = Duration::from_secs(1);

/// A path whose last I/O ended longer ago is no measure for others.
const RECENT: Duration = Duration::from_secs(1);

mod slow;
#[cfg(test)]
mod tests;
