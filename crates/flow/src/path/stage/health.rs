//! Detects silent paths and stuck I/Os: doubts a path, moves its reads, gives it up.
//!
//! A path is silent since the last time that anything was heard on it, or since its first I/O began
//! if that is later. A busy path that ends one I/O after the other is never silent, however long
//! each of them takes: queues are not silence.

use super::pace::Factor;
use super::path_state::{Check, Finding, Health, PathState};
use super::{BackendPaths, Core, NEVER, Step};
use crate::clock::{Duration, Instant};
use crate::path::{Failback, Settings, Why};
use crate::request::{Op, PathId, RequestKey};

impl BackendPaths {
    /// The path does not work.
    pub(super) fn take_down(&mut self, path: usize, why: Why) {
        let path_state = &mut self.paths[path];
        if path_state.down.is_some() {
            return;
        }
        path_state.down = Some(why);
        (path_state.check, path_state.stuck) = (None, false);
        if path_state.health == Health::Ejected {
            // What it was is over with its connection.
            path_state.health = Health::Good;
            self.ejected -= 1;
        }
    }

    /// Something was heard on a path; true if it had been doubted.
    pub(super) fn note_heard(&mut self, now: Instant, path: usize) -> bool {
        let path_state = &mut self.paths[path];
        path_state.heard = now;
        path_state.check.take().is_some_and(|check| check.overdue)
    }

    /// How long an I/O of so many bytes may be silent on a path.
    pub(super) fn overdue_after(&self, settings: &Settings, path: usize, bytes: u64) -> Duration {
        let usual = self.usual(settings, path, bytes);
        usual.map_or(settings.overdue_max, |usual| {
            usual.max(settings.overdue_min).min(settings.overdue_max)
        })
    }

    /// A multiple of the usual time of an I/O on a path, or on any other if nothing ended there yet.
    fn usual(&self, settings: &Settings, path: usize, bytes: u64) -> Option<Duration> {
        let known = |path: usize| Some(self.paths[path].pace.usual_response()).filter(|&f| f > 0);
        let others = || (0..self.paths.len()).filter_map(known).min();
        let factor = known(path).or_else(others)?;
        let nanos = u128::from(self.shape.cost(bytes))
            * u128::from(factor)
            * u128::from(settings.overdue_factor)
            / u128::from(super::pace::ONE);
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// How old the first I/O of a path has to be to be called stuck, if others do better.
    fn stuck_after(&self, settings: &Settings, path: usize, bytes: u64) -> Duration {
        let quiet = self.overdue_after(settings, path, bytes);
        let usual = self.usual(settings, path, bytes).unwrap_or(quiet);
        let longest = settings.io_timeout.as_nanos();
        let nanos = usual.max(quiet).as_nanos().saturating_mul(u64::from(STUCK)).min(longest);
        Duration::from_nanos(nanos)
    }

    /// Does what is due.
    pub(super) fn handle_due(&mut self, core: &mut Core, now: Instant) {
        self.wake = NEVER;
        for path in 0..self.paths.len() {
            let settings = core.settings;
            self.paths[path].step(now, settings.return_step, settings.probe_interval);
            if self.paths[path].down.is_none() {
                self.check_silence(core, now, path);
                self.find_stuck(core, now, path);
            }
            self.overdue_probe(core, now, path);
        }
        self.update(core, now);
        self.expire_held(core, now);
        self.plan(core, now);
    }

    /// Checks a silent path, stops using it, gives it up.
    fn check_silence(&mut self, core: &mut Core, now: Instant, path: usize) {
        let settings = core.settings;
        let path_state = &self.paths[path];
        let Some(check) = path_state.check else {
            let overdue = core.head(path_state).is_some_and(|io| {
                io.since.max(path_state.heard)
                    + self.overdue_after(&settings, path, io.context.bytes)
                    <= now
            });
            let idle = self.is_checked_when_idle(path)
                && path_state.heard + settings.check_interval <= now;
            if overdue || idle {
                self.send_check(core, now, path, overdue);
            }
            if overdue {
                self.check_unused(core, now);
            }
            return;
        };
        let another = self.others(path, |path_state| path_state.could_replace(check.at));
        let dead = if another { settings.dead_after } else { settings.dead_after_last_path };
        if check.at + dead <= now {
            self.give_up(core, path);
        } else if check.is_late(&settings, now) {
            self.paths[path].check = Some(Check { overdue: true, ..check });
            if another {
                self.abandon(core, now, path, |_| true);
            }
        }
    }

    /// Sends a check.
    fn send_check(&mut self, core: &mut Core, now: Instant, path: usize, overdue: bool) {
        self.paths[path].check = Some(Check { at: now, overdue });
        core.steps.push_back(Step::Check(self.id, PathId::new(path as u32)));
    }

    /// Sends a check on each unused path that might have to take over.
    fn check_unused(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            let path_state = &self.paths[path];
            if path_state.is_reachable() && !path_state.usable && path_state.check.is_none() {
                self.send_check(core, now, path, false);
            }
        }
    }

    /// Whether the path is checked when it is idle: where there is no other, nothing would follow.
    fn is_checked_when_idle(&self, path: usize) -> bool {
        self.paths.len() > 1 && !self.paths[path].disabled
    }

    /// The target does not answer: what is on the path has to be known dead before it goes to another path.
    fn give_up(&mut self, core: &mut Core, path: usize) {
        self.take_down(path, Why::NoAnswer);
        core.steps.push_back(Step::Reset(self.id, PathId::new(path as u32)));
    }

    /// Finds an I/O that is stuck on a path that answers otherwise.
    fn find_stuck(&mut self, core: &mut Core, now: Instant, path: usize) {
        let settings = core.settings;
        let Some((key, _)) = self.paths[path].ends else { return };
        let head = core.ios[key];
        let age = now.since(head.since);
        let after = self.stuck_after(&settings, path, head.context.bytes);
        if self.paths.len() == 1 || age < after {
            return;
        }
        let fares_better = |path_state: &PathState| {
            let oldest = core.head(path_state).map_or(Duration::ZERO, |io| now.since(io.since));
            !path_state.is_doubted() && oldest * u64::from(STUCK) <= age
        };
        if !self.others(path, |path_state| path_state.usable) {
            let fit = |other: &usize| {
                let path_state = &self.paths[*other];
                let slow = path_state.is_reachable() && path_state.health == Health::Ejected;
                *other != path && slow && fares_better(path_state)
            };
            if let Some(other) = (0..self.paths.len()).find(fit) {
                self.let_in(now, other);
            }
        }
        let better = self.others(path, |path_state| path_state.usable && fares_better(path_state));
        self.paths[path].stuck = better;
        if !better {
            return;
        }
        if age >= settings.io_timeout {
            self.give_up(core, path);
            return;
        }
        self.abandon(core, now, path, |since| since + after <= now);
        if self.paths[path].ends.is_some_and(|(first, _)| first == key) {
            core.steps.push_back(Step::Recall(key, self.id, PathId::new(path as u32)));
        } else if self.paths[path].usable {
            // With nothing on it that is old it would get more, which would hang as well.
            self.eject(&settings, now, path, Factor::MAX);
        }
    }

    /// Sends reads to another path that have been on a path since then.
    fn abandon(
        &mut self,
        core: &mut Core,
        now: Instant,
        path: usize,
        overdue: impl Fn(Instant) -> bool,
    ) {
        let mut next = self.paths[path].ends.map(|(first, _)| first);
        while let Some(key) = next {
            let io = core.ios[key];
            next = io.behind;
            if io.context.op == Op::Read
                && io.retries < core.settings.max_read_retries
                && overdue(io.since)
            {
                self.abandon_read(core, now, key);
            }
        }
    }

    /// Sends a read to another path.
    pub(super) fn abandon_read(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let (path, io) = self.end(core, now, key);
        if io.probe {
            self.probed(&core.settings, now, path, Finding::Slow);
        }
        core.ios[key].retries += 1;
        core.steps.push_back(Step::Abandon(key, self.id, PathId::new(path as u32)));
        self.requeue(core, now, key);
    }

    /// Finds out when something is due next.
    pub(super) fn plan(&mut self, core: &mut Core, now: Instant) {
        let settings = &core.settings;
        // What is due and could not be done is looked at again after a while.
        let later = |at: Instant| if at > now { at } else { now + settings.overdue_min };
        let mut next = NEVER;
        for (path, path_state) in self.paths.iter().enumerate() {
            if let Health::Returning { next: step, .. } = path_state.health {
                next = next.min(later(step));
            }
            if let Some(until) = path_state.barred {
                next = next.min(later(until));
            }
            if path_state.down.is_some() {
                continue;
            }
            let several = self.paths.len() > 1;
            let head = core.head(path_state);
            if let Some(check) = path_state.check {
                let dead =
                    [Check::grace(settings), settings.dead_after, settings.dead_after_last_path];
                let due = dead.into_iter().map(|time| check.at + time).find(|&at| at > now);
                next = next.min(later(due.unwrap_or(now)));
            } else {
                if let Some(io) = head {
                    let quiet = self.overdue_after(settings, path, io.context.bytes);
                    next = next.min(later(io.since.max(path_state.heard) + quiet));
                }
                if self.is_checked_when_idle(path) {
                    next = next.min(later(path_state.heard + settings.check_interval));
                }
            }
            if let Some(io) = head.filter(|_| several) {
                let stuck = io.since + self.stuck_after(settings, path, io.context.bytes);
                next = next.min(later(stuck));
            }
            if path_state.health == Health::Ejected {
                next = next.min(later(self.trial(core, path)));
            }
        }
        if let (Some(since), Failback::After) = (self.better_since, settings.failback) {
            next = next.min(later(since + settings.failback_after));
        }
        let waits = self.hold.iter().map(|key| core.ios[key].since + core.no_path_timeout);
        let next = waits.map(later).fold(next, Instant::min);
        self.wake = next;
        core.wake = core.wake.min(next);
    }
}

/// An I/O is stuck when it takes so many times longer than when it is overdue, and than the oldest
/// of another path.
const STUCK: u32 = 4;
