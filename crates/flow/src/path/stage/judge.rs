//! Judges which paths of a backend are too slow, and when an ejected path is tried again.
//!
//! Long responses alone may be a slow path or a long queue. So a path with such responses is *suspected*: it
//! gets one I/O at a time for a moment, which tells the two apart. A path whose service and responses are both
//! a multiple of those of the best path of its group is *ejected*. It is probed with small reads that are due
//! anyway, and returns when several in a row are fast; or by trial, when it could not be probed for
//! 30 s, or its probes have been unclear for as long.
//!
//! The stage reports events with their times and sizes: [`answered`](Judge::answered),
//! [`probe_failed`](Judge::probe_failed), [`eject`](Judge::eject) and changes of a path's use. It asks for
//! the [`Verdict`] on a path, and for the times after which its I/Os are overdue or stuck. Everything that a
//! judgement is made from is in this file and in `history.rs`.

use super::history::{CostBySize, Factor, History, ONE, SAMPLES};
use crate::clock::{Duration, Instant};
use crate::path::{Settings, Speed, Why};
use crate::request::RequestKey;
use alloc::vec::Vec;

/// The judge of a backend's paths.
#[derive(Debug)]
pub(super) struct Judge {
    settings: Settings,
    /// The cost of an I/O on the better paths.
    cost: CostBySize,
    paths: Vec<Record>,
    /// The number of ejected paths.
    ejected: u32,
}

/// What is known of a path.
#[derive(Debug)]
struct Record {
    history: History,
    opinion: Opinion,
    /// The time between probes, which grows with each bad one; kept after a return.
    pause: Duration,
    /// The probe that is not answered; it may outlast the ejection that it was sent for.
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
enum Opinion {
    Good {
        /// It is not suspected before then.
        until: Instant,
    },
    Suspected {
        since: Instant,
        /// I/Os that began since then and have ended.
        alone: usize,
    },
    Ejected(Ejection),
}

#[derive(Clone, Copy, Debug)]
struct Ejection {
    since: Instant,
    /// The costs of the better paths, and how slow this path was, at that time.
    cost: CostBySize,
    slowness: Factor,
    /// The time of the next probe.
    next: Instant,
    /// Good probes in a row.
    good: u32,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
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
    /// It is no slower than others, and much faster than when it was ejected.
    Good,
    /// It is no slower than others, which may have long queues now.
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
            opinion: Opinion::Good { until: Instant::ZERO },
            pause: settings.probe_interval,
            probe: None,
        };
        let records = (0..paths).map(|_| record()).collect();
        Self { settings: *settings, cost: CostBySize::default(), paths: records, ejected: 0 }
    }

    pub(super) fn verdict(&self, path: usize) -> Verdict {
        match self.paths[path].opinion {
            Opinion::Good { .. } => Verdict::Good,
            Opinion::Suspected { .. } => Verdict::Suspected,
            Opinion::Ejected(ejection) => {
                let retry_at = match self.paths[path].probe {
                    None => ejection.next + TRIAL,
                    Some(probe) => probe.sent + self.overdue_after(path, probe.bytes),
                };
                Verdict::Ejected { retry_at }
            }
        }
    }

    pub(super) fn is_ejected(&self, path: usize) -> bool {
        matches!(self.paths[path].opinion, Opinion::Ejected(_))
    }

    pub(super) fn is_suspected(&self, path: usize) -> bool {
        matches!(self.paths[path].opinion, Opinion::Suspected { .. })
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
        let service = self.paths[path].history.service(now, started);
        let response = now.since(started);
        let known = self.paths[path].history.is_known();
        let best = self.best(now, path, peer);
        // Only the better paths say what an I/O costs, or a slow one would be its own measure.
        let history = |path: usize| &self.paths[path].history;
        let good = best.is_none_or(|best| {
            !known || history(path).recent_service() <= history(best).fair_service() * 2
        });
        if good && !probe {
            self.cost.learn(bytes, service);
        }
        let cost = self.cost.cost(bytes);
        self.paths[path].history.learn(cost, service, response);
        if probe {
            let usual = best.map(|best| self.paths[best].history.usual_response());
            return self.judge_probe(now, path, bytes, response, usual);
        }
        let best = self.paths[best.filter(|_| answered.usable)?].history;
        let record = &mut self.paths[path];
        if record.history.is_slower(&best, self.settings.slow_factor) {
            let slowness = record.history.recent_service();
            self.eject(now, path, slowness, answered.returning);
            return Some(Change::Ejected);
        }
        match &mut record.opinion {
            Opinion::Suspected { since, alone } => {
                *alone += usize::from(started >= *since);
                if *alone < SAMPLES {
                    return None;
                }
                record.opinion = Opinion::Good { until: now + ACQUITTED };
            }
            Opinion::Good { until }
                if *until <= now && record.history.is_suspect(&best, self.settings.slow_factor) =>
            {
                record.opinion = Opinion::Suspected { since: now, alone: 0 };
            }
            Opinion::Good { .. } | Opinion::Ejected(_) => return None,
        }
        Some(Change::Suspicion)
    }

    /// The best peer of a path that has ended an I/O recently.
    fn best(&self, now: Instant, path: usize, peer: impl Fn(usize) -> bool) -> Option<usize> {
        let fit = |&(other, record): &(usize, &Record)| {
            other != path
                && record.history.is_known()
                && record.history.ended() + RECENT >= now
                && peer(other)
        };
        let records = self.paths.iter().enumerate().filter(fit);
        records.min_by_key(|(_, record)| record.history.fair_service()).map(|(path, _)| path)
    }

    /// Ejects a usable path. `returning`: it has returned a moment ago, so it is probed less often.
    pub(super) fn eject(&mut self, now: Instant, path: usize, slowness: Factor, returning: bool) {
        let record = &mut self.paths[path];
        if returning {
            record.pause = longer(&self.settings, record.pause);
        }
        let (next, cost) = (now + record.pause, self.cost);
        let ejection = Ejection { since: now, cost, slowness, next, good: 0 };
        let before = core::mem::replace(&mut record.opinion, Opinion::Ejected(ejection));
        assert!(!matches!(before, Opinion::Ejected(_)), "a path was ejected twice");
        self.ejected += 1;
    }

    /// An ejected path is used again, or its connection is gone: the ejection is over.
    pub(super) fn reinstate(&mut self, path: usize) {
        let record = &mut self.paths[path];
        if matches!(record.opinion, Opinion::Ejected(_)) {
            record.opinion = Opinion::Good { until: Instant::ZERO };
            assert!(self.ejected > 0, "a path returned that was not counted as ejected");
            self.ejected -= 1;
        }
    }

    /// A path is put into use: its last samples are of another time.
    pub(super) fn entered(&mut self, path: usize) {
        self.paths[path].history.forget();
    }

    /// A path is out of use: a suspicion is over.
    pub(super) fn left(&mut self, now: Instant, path: usize) {
        let record = &mut self.paths[path];
        if !matches!(record.opinion, Opinion::Ejected(_)) {
            record.opinion = Opinion::Good { until: now };
        }
    }

    /// A path has fully returned.
    pub(super) fn returned(&mut self, path: usize) {
        self.paths[path].pause = self.settings.probe_interval;
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
            let Record { opinion, probe, .. } = &self.paths[path];
            let due = matches!(opinion, Opinion::Ejected(ejection) if ejection.next <= now);
            due && probe.is_none() && reachable(path)
        })
    }

    /// An I/O starts on an ejected path as its probe.
    pub(super) fn probe_sent(&mut self, now: Instant, path: usize, key: RequestKey, bytes: u64) {
        assert!(self.is_ejected(path), "only an ejected path is probed");
        let before = self.paths[path].probe.replace(Probe { key, sent: now, bytes });
        assert!(before.is_none(), "a path has one probe at a time");
    }

    /// A probe is off its path, answered or not.
    pub(super) fn probe_ended(&mut self, path: usize) {
        let before = self.paths[path].probe.take();
        assert!(before.is_some(), "a probe ended that was not sent");
    }

    /// A probe was not answered.
    pub(super) fn probe_failed(&mut self, now: Instant, path: usize) {
        self.probed(now, path, Finding::Slow);
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
        Some(Retry::Trial)
    }

    /// Judges an answered probe; `usual` is the usual response of the best peer.
    fn judge_probe(
        &mut self,
        now: Instant,
        path: usize,
        bytes: u64,
        response: Duration,
        usual: Option<Factor>,
    ) -> Option<Change> {
        let Opinion::Ejected(Ejection { cost, slowness, .. }) = &self.paths[path].opinion else {
            return None;
        };
        let factor = |cost| response.as_nanos().saturating_mul(ONE) / cost;
        let half = u64::from(self.settings.slow_factor / 2);
        let finding = if usual.is_some_and(|usual| factor(self.cost.cost(bytes)) > usual * half) {
            Finding::Slow
        } else if factor(cost.cost(bytes)) * half <= *slowness {
            Finding::Good
        } else {
            Finding::Unclear
        };
        self.probed(now, path, finding)
    }

    fn probed(&mut self, now: Instant, path: usize, finding: Finding) -> Option<Change> {
        let record = &mut self.paths[path];
        let Opinion::Ejected(ejection) = &mut record.opinion else { return None };
        if finding == Finding::Good {
            ejection.good += 1;
            ejection.next = now + self.settings.probe_interval;
            if ejection.good < self.settings.probes_to_return {
                return None;
            }
            self.reinstate(path);
            return Some(Change::Returned(Why::Probed));
        }
        record.pause = longer(&self.settings, record.pause);
        ejection.good = 0;
        ejection.next = now + record.pause;
        if finding == Finding::Slow || ejection.since + TRIAL > now {
            return None;
        }
        self.reinstate(path);
        Some(Change::Returned(Why::Trial))
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

/// The next longer time between probes.
fn longer(settings: &Settings, pause: Duration) -> Duration {
    (pause * 2).min(settings.probe_interval_max)
}

/// An I/O is stuck when it takes this many times longer than when it is overdue, and than the oldest
/// of another path.
pub(super) const STUCK: u32 = 4;

/// The largest read that is sent as a probe.
const PROBE_BYTES: u64 = 64 << 10;

/// An ejected path that could not be probed for this long, or whose probes were unclear, is tried.
const TRIAL: Duration = Duration::from_secs(30);

/// How long a path is not suspected again that was fast with one I/O at a time.
const ACQUITTED: Duration = Duration::from_secs(1);

/// A path whose last I/O ended longer ago is no measure for others.
const RECENT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::keys;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// A path that takes twenty times as long as its peer is suspected, then ejected; it returns after as many
    /// good probes in a row as the settings ask for. Each step is a change that the judge reports.
    #[test]
    fn a_slow_path_goes_and_returns() {
        let settings = Settings::default();
        let mut judge = Judge::new(&settings, 2);
        let answer = |judge: &mut Judge, now: Instant, path: usize, millis: u64, probe: bool| {
            let started = Instant::from_nanos(now.as_nanos() - millis * 1_000_000);
            let (usable, returning) = (!probe, false);
            let answered = Answered { path, bytes: 4_096, started, probe, usable, returning };
            judge.answered(now, answered, |_| true)
        };
        let mut changes = Vec::new();
        for n in 0..40 {
            answer(&mut judge, at(1_000 + n * 20), 0, 1, false);
            let slow = at(1_010 + n * 20);
            if !judge.is_ejected(1) {
                changes.extend(answer(&mut judge, slow, 1, 20, false));
            }
        }
        assert_eq!(changes.last(), Some(&Change::Ejected));
        let Verdict::Ejected { retry_at } = judge.verdict(1) else { panic!("it is ejected") };
        assert!(retry_at > at(30_000));
        let (key, mut good) = (keys(1)[0], 0);
        for n in 0..20 {
            let now = at(2_000 + n * 200);
            answer(&mut judge, now, 0, 1, false);
            if judge.probe_due(now, 4_096, |_| true).is_some() {
                judge.probe_sent(now, 1, key, 4_096);
                judge.probe_ended(1);
                let end = now + Duration::from_millis(1);
                if let Some(change) = answer(&mut judge, end, 1, 1, true) {
                    assert_eq!((change, good + 1), (Change::Returned(Why::Probed), 4));
                    assert_eq!(judge.verdict(1), Verdict::Good);
                    return;
                }
                good += 1;
            }
        }
        panic!("the path did not return");
    }

    /// A path that is ejected is not ejected again.
    #[test]
    #[should_panic(expected = "ejected twice")]
    fn a_path_is_ejected_once() {
        let mut judge = Judge::new(&Settings::default(), 2);
        judge.eject(at(1), 0, ONE, false);
        judge.eject(at(1), 0, ONE, false);
    }

    /// A return that was not counted would hide ejected paths from probes.
    #[test]
    #[should_panic(expected = "not counted as ejected")]
    fn ejected_paths_are_counted() {
        let mut judge = Judge::new(&Settings::default(), 2);
        judge.eject(at(1), 0, ONE, false);
        judge.ejected = 0;
        judge.reinstate(0);
    }

    /// One probe at a time.
    #[test]
    #[should_panic(expected = "one probe at a time")]
    fn probes_do_not_overlap() {
        let mut judge = Judge::new(&Settings::default(), 2);
        judge.eject(at(1), 0, ONE, false);
        let key = keys(1)[0];
        judge.probe_sent(at(2), 0, key, 512);
        judge.probe_sent(at(2), 0, key, 512);
    }
}
