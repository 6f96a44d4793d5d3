//! Silence: when a path is doubted, when it is given up, and what becomes of what is on it.
//!
//! A path is silent since the last time that anything was heard on it, or since its first I/O began
//! if that is later. A busy path that ends one I/O after the other is never silent, however long
//! each of them takes: queues are not silence.

use super::pace::Factor;
use super::way::{Check, Finding, Health, Way};
use super::{Core, FAR, Step, Ways};
use crate::clock::{Duration, Instant};
use crate::path::{Failback, Settings, Why};
use crate::pipeline::Action;
use crate::request::{Op, PathId, RequestKey};

impl Ways {
    /// The path does not work.
    pub(super) fn take_down(&mut self, path: usize, why: Why) {
        let way = &mut self.paths[path];
        if way.down.is_some() {
            return;
        }
        way.down = Some(why);
        (way.check, way.stuck) = (None, false);
        if way.health == Health::Ejected {
            // What it was is over with its connection.
            way.health = Health::Good;
            self.ejected -= 1;
        }
    }

    /// Something was heard on a path; true if it had been doubted.
    pub(super) fn hear(&mut self, now: Instant, path: usize) -> bool {
        let way = &mut self.paths[path];
        way.heard = now;
        way.check.take().is_some_and(|check| check.overdue)
    }

    /// How long an I/O of so many bytes may be silent on a path.
    pub(super) fn quiet(&self, settings: &Settings, path: usize, bytes: u64) -> Duration {
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
        let quiet = self.quiet(settings, path, bytes);
        let usual = self.usual(settings, path, bytes).unwrap_or(quiet);
        let longest = settings.io_timeout.as_nanos();
        let nanos = usual.max(quiet).as_nanos().saturating_mul(u64::from(STUCK)).min(longest);
        Duration::from_nanos(nanos)
    }

    /// Does what is due.
    pub(super) fn look(&mut self, core: &mut Core, now: Instant) {
        self.wake = FAR;
        for path in 0..self.paths.len() {
            let settings = core.settings;
            self.paths[path].step(now, settings.return_step, settings.probe_interval);
            if self.paths[path].down.is_none() {
                self.listen(core, now, path);
                self.compare(core, now, path);
            }
            self.overdue_probe(core, now, path);
        }
        self.settle(core, now);
        self.lose_patience(core, now);
        self.plan(core, now);
    }

    /// Asks a silent path, leaves it, gives it up.
    fn listen(&mut self, core: &mut Core, now: Instant, path: usize) {
        let settings = core.settings;
        let way = &self.paths[path];
        let Some(check) = way.check else {
            let overdue = core.head(way).is_some_and(|io| {
                io.since.max(way.heard) + self.quiet(&settings, path, io.told.bytes) <= now
            });
            let idle = self.is_asked(path) && way.heard + settings.check_interval <= now;
            if overdue || idle {
                self.ask(core, now, path, overdue);
            }
            if overdue {
                self.ask_those_out(core, now);
            }
            return;
        };
        let another = self.others(path, |way| way.could_replace(check.at));
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

    /// Asks whether anybody is there.
    fn ask(&mut self, core: &mut Core, now: Instant, path: usize, overdue: bool) {
        self.paths[path].check = Some(Check { at: now, overdue });
        let (backend, path) = (self.id, PathId::new(path as u32));
        core.steps.push_back(Step::Ask(Action::Check { backend, path }));
    }

    /// Asks the paths that are out and might have to take over.
    fn ask_those_out(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            let way = &self.paths[path];
            if way.is_reachable() && !way.usable && way.check.is_none() {
                self.ask(core, now, path, false);
            }
        }
    }

    /// Whether the path is checked when it is idle: where there is no other, nothing would follow.
    fn is_asked(&self, path: usize) -> bool {
        self.paths.len() > 1 && !self.paths[path].disabled
    }

    /// Nobody is there: what is on the path has to be known dead before it goes another way.
    fn give_up(&mut self, core: &mut Core, path: usize) {
        self.take_down(path, Why::NoAnswer);
        let (backend, path) = (self.id, PathId::new(path as u32));
        core.steps.push_back(Step::Ask(Action::Reset { backend, path }));
    }

    /// Finds an I/O that is stuck on a path that answers otherwise.
    fn compare(&mut self, core: &mut Core, now: Instant, path: usize) {
        let settings = core.settings;
        let Some((key, _)) = self.paths[path].ends else { return };
        let head = core.ios[key];
        let age = now.since(head.since);
        let after = self.stuck_after(&settings, path, head.told.bytes);
        if self.paths.len() == 1 || age < after {
            return;
        }
        let fares_better = |way: &Way| {
            let oldest = core.head(way).map_or(Duration::ZERO, |io| now.since(io.since));
            !way.is_doubted() && oldest * u64::from(STUCK) <= age
        };
        if !self.others(path, |way| way.usable) {
            let fit = |other: &usize| {
                let way = &self.paths[*other];
                let slow = way.is_reachable() && way.health == Health::Ejected;
                *other != path && slow && fares_better(way)
            };
            if let Some(other) = (0..self.paths.len()).find(fit) {
                self.let_in(now, other);
            }
        }
        let better = self.others(path, |way| way.usable && fares_better(way));
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
            let (backend, path) = (self.id, PathId::new(path as u32));
            core.steps.push_back(Step::Ask(Action::Recall { key, backend, path }));
        } else if self.paths[path].usable {
            // With nothing on it that is old it would get more, which would hang as well.
            self.eject(&settings, now, path, Factor::MAX);
        }
    }

    /// Sends reads another way that have been on a path since then.
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
            if io.told.op == Op::Read
                && io.retries < core.settings.max_read_retries
                && overdue(io.since)
            {
                self.forget(core, now, key);
            }
        }
    }

    /// Sends a read another way.
    pub(super) fn forget(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let (path, io) = self.end(core, now, key);
        if io.probe {
            self.probed(&core.settings, now, path, Finding::Slow);
        }
        core.ios[key].retries += 1;
        core.steps.push_back(Step::Abandon(key, self.id, PathId::new(path as u32)));
        self.wait_again(core, now, key);
    }

    /// Finds out when something is due next.
    pub(super) fn plan(&mut self, core: &mut Core, now: Instant) {
        let settings = &core.settings;
        // What is due and could not be done is looked at again after a while.
        let later = |at: Instant| if at > now { at } else { now + settings.overdue_min };
        let mut next = FAR;
        for (path, way) in self.paths.iter().enumerate() {
            if let Health::Returning { next: step, .. } = way.health {
                next = next.min(later(step));
            }
            if let Some(until) = way.barred {
                next = next.min(later(until));
            }
            if way.down.is_some() {
                continue;
            }
            let several = self.paths.len() > 1;
            let head = core.head(way);
            if let Some(check) = way.check {
                let dead =
                    [Check::grace(settings), settings.dead_after, settings.dead_after_last_path];
                let due = dead.into_iter().map(|time| check.at + time).find(|&at| at > now);
                next = next.min(later(due.unwrap_or(now)));
            } else {
                if let Some(io) = head {
                    let quiet = self.quiet(settings, path, io.told.bytes);
                    next = next.min(later(io.since.max(way.heard) + quiet));
                }
                if self.is_asked(path) {
                    next = next.min(later(way.heard + settings.check_interval));
                }
            }
            if let Some(io) = head.filter(|_| several) {
                let stuck = io.since + self.stuck_after(settings, path, io.told.bytes);
                next = next.min(later(stuck));
            }
            if way.health == Health::Ejected {
                next = next.min(later(self.trial(core, path)));
            }
        }
        if let (Some(since), Failback::After) = (self.better_since, settings.failback) {
            next = next.min(later(since + settings.failback_after));
        }
        let waits = self.hold.iter().map(|key| core.ios[key].since + core.patience);
        let next = waits.map(later).fold(next, Instant::min);
        self.wake = next;
        core.wake = core.wake.min(next);
    }
}

/// An I/O is stuck when it takes so many times longer than when it is overdue, and than the oldest
/// of another path.
const STUCK: u32 = 4;
