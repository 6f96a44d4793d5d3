//! Detects silent paths and stuck I/Os: doubts a path, moves its reads, gives it up.
//!
//! A path is silent since its last answer, or since its first I/O began if that is later. A busy path that ends
//! one I/O after the other is never silent, however long each of them takes: queues are not silence.

use super::judge::{Retry, STUCK, Verdict};
use super::path_state::{Check, PathState};
use super::{BackendPaths, Core, NEVER, Step};
use crate::clock::{Duration, Instant};
use crate::path::{Grounds, Why};
use crate::request::{Op, PathId, RequestKey};

impl BackendPaths {
    /// The path does not work.
    pub(super) fn take_down(&mut self, path: usize, why: Why) {
        let path_state = &mut self.paths[path];
        if path_state.link.down.is_some() {
            return;
        }
        path_state.link.down = Some(why);
        (path_state.answers.check, path_state.answers.stuck) = (None, false);
        // Its speed was that of its connection.
        self.judge.reinstate(path);
    }

    /// A path has answered; true if it had been doubted.
    pub(super) fn note_answer(&mut self, now: Instant, path: usize) -> bool {
        let answers = &mut self.paths[path].answers;
        assert!(now >= answers.last, "an answer came before the last one");
        answers.last = now;
        answers.check.take().is_some_and(|check| check.overdue)
    }

    /// Does what is due.
    pub(super) fn handle_due(&mut self, core: &mut Core, now: Instant) {
        self.wake = NEVER;
        for path in 0..self.paths.len() {
            self.paths[path].step(now, core.settings.return_step);
            if self.paths[path].link.down.is_none() {
                self.check_silence(core, now, path);
            }
            if self.paths[path].link.down.is_none() {
                self.find_stuck(core, now, path);
            }
            match self.judge.retry(now, path) {
                Some(Retry::Overdue(probe)) => self.abandon_read(core, now, probe),
                Some(Retry::Trial) => self.paths[path].usable_why = Why::Trial,
                None => {}
            }
            self.paths[path].in_flight.check(&core.ios, path);
        }
        self.update(core, now);
        self.expire_held(core, now);
        self.plan(core, now);
    }

    /// Checks a silent path, stops using it, gives it up.
    fn check_silence(&mut self, core: &mut Core, now: Instant, path: usize) {
        let settings = core.settings;
        let path_state = &self.paths[path];
        let Some(check) = path_state.answers.check else {
            let last = path_state.answers.last;
            let overdue = core.head(path_state).is_some_and(|io| {
                io.since.max(last) + self.judge.overdue_after(path, io.context.bytes) <= now
            });
            let idle = self.is_checked_when_idle(path) && last + settings.check_interval <= now;
            if overdue || idle {
                self.send_check(core, now, path, overdue);
            }
            if overdue {
                self.check_unused(core, now);
            }
            return;
        };
        let another = self.others(path, |other| self.paths[other].could_replace(check.at));
        let dead = if another { settings.dead_after } else { settings.dead_after_last_path };
        if check.at + dead <= now {
            self.give_up(core, path);
        } else if check.is_late(&settings, now) {
            self.paths[path].answers.check = Some(Check { overdue: true, ..check });
            if another {
                self.abandon(core, now, path, |_| true);
            }
        }
    }

    /// Sends a check.
    fn send_check(&mut self, core: &mut Core, now: Instant, path: usize, overdue: bool) {
        self.paths[path].answers.check = Some(Check { at: now, overdue });
        core.steps.push_back(Step::Check(self.id, PathId::new(path as u32)));
    }

    /// Sends a check on each unused path that might have to take over.
    fn check_unused(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            let path_state = &self.paths[path];
            let unchecked = path_state.answers.check.is_none();
            if path_state.link.is_reachable() && !path_state.usable && unchecked {
                self.send_check(core, now, path, false);
            }
        }
    }

    /// Whether the path is checked when it is idle: where there is no other, nothing would follow.
    fn is_checked_when_idle(&self, path: usize) -> bool {
        self.paths.len() > 1 && !self.paths[path].link.disabled
    }

    /// The target does not answer: I/Os on the path must be known dead before they go to another path.
    fn give_up(&mut self, core: &mut Core, path: usize) {
        self.take_down(path, Why::NoAnswer);
        core.steps.push_back(Step::Reset(self.id, PathId::new(path as u32)));
    }

    /// Finds an I/O that is stuck on a path that answers otherwise.
    fn find_stuck(&mut self, core: &mut Core, now: Instant, path: usize) {
        let settings = core.settings;
        let Some(key) = self.paths[path].in_flight.first() else { return };
        let head = core.ios[key];
        let age = now.since(head.since);
        let after = self.judge.stuck_after(path, head.context.bytes);
        if self.paths.len() == 1 || age < after {
            return;
        }
        let fares_better = |backend_paths: &Self, other: usize| {
            let path_state = &backend_paths.paths[other];
            let oldest = core.head(path_state).map_or(Duration::ZERO, |io| now.since(io.since));
            !path_state.answers.is_doubted() && oldest * u64::from(STUCK) <= age
        };
        if !self.others(path, |other| self.paths[other].usable) {
            let fit = |&other: &usize| {
                let PathState { link, changes, .. } = &self.paths[other];
                let callable = self.judge.is_ejected(other) || !changes.called_in;
                other != path && link.is_reachable() && callable && fares_better(self, other)
            };
            if let Some(other) = (0..self.paths.len()).find(fit) {
                self.paths[other].changes.called_in |= !self.judge.is_ejected(other);
                self.use_last_resort(now, other);
            }
        }
        let better =
            self.others(path, |other| self.paths[other].usable && fares_better(self, other));
        self.paths[path].answers.stuck = better;
        if !better {
            return;
        }
        if age >= settings.io_timeout {
            self.give_up(core, path);
            return;
        }
        self.abandon(core, now, path, |since| since + after <= now);
        if self.paths[path].in_flight.first() == Some(key) {
            core.steps.push_back(Step::Recall(key, self.id, PathId::new(path as u32)));
        } else if self.paths[path].usable {
            // Without an old I/O it would get more, which would hang as well.
            self.paths[path].ramp = None;
            let grounds = Grounds { response: age, expected: after, events: 1, over: age };
            self.judge.eject(now, path, grounds);
        }
    }

    /// Sends the reads on a path to another path whose start `overdue` accepts.
    fn abandon(
        &mut self,
        core: &mut Core,
        now: Instant,
        path: usize,
        overdue: impl Fn(Instant) -> bool,
    ) {
        let mut next = self.paths[path].in_flight.first();
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
            self.judge.probe_failed(now, path);
        }
        core.ios[key].retries += 1;
        core.steps.push_back(Step::Abandon(key, self.id, PathId::new(path as u32)));
        self.requeue(core, now, key);
    }

    /// Sets the time at which something is due next.
    pub(super) fn plan(&mut self, core: &mut Core, now: Instant) {
        let settings = &core.settings;
        // A step that is due and could not be done is tried again after a while.
        let later = |at: Instant| if at > now { at } else { now + settings.overdue_min };
        let mut next = NEVER;
        for (path, path_state) in self.paths.iter().enumerate() {
            if let Some(ramp) = path_state.ramp {
                next = next.min(later(ramp.next));
            }
            if let Some(until) = path_state.changes.barred {
                next = next.min(later(until));
            }
            if path_state.link.down.is_some() {
                continue;
            }
            let several = self.paths.len() > 1;
            let (head, answers) = (core.head(path_state), &path_state.answers);
            if let Some(check) = answers.check {
                let dead =
                    [Check::grace(settings), settings.dead_after, settings.dead_after_last_path];
                let due = dead.into_iter().map(|time| check.at + time).find(|&at| at > now);
                next = next.min(later(due.unwrap_or(now)));
            } else {
                if let Some(io) = head {
                    let quiet = self.judge.overdue_after(path, io.context.bytes);
                    next = next.min(later(io.since.max(answers.last) + quiet));
                }
                if self.is_checked_when_idle(path) {
                    next = next.min(later(answers.last + settings.check_interval));
                }
            }
            if let Some(io) = head.filter(|_| several) {
                let stuck = io.since + self.judge.stuck_after(path, io.context.bytes);
                next = next.min(later(stuck));
            }
            if let Verdict::Ejected { retry_at } = self.judge.verdict(path) {
                next = next.min(later(retry_at));
            }
        }
        if let Some(at) = self.groups.failback_at(settings) {
            next = next.min(later(at));
        }
        let waits = self.hold.iter().map(|key| core.ios[key].since + core.no_path_timeout);
        let next = waits.map(later).fold(next, Instant::min);
        assert!(next > now, "a deadline that is due at once would be handled for ever");
        self.wake = next;
        core.wake = core.wake.min(next);
    }
}
