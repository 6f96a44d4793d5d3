//! Decides which paths are usable, which priority group is in use, and which of its paths take I/O.

use super::path_state::PathState;
use super::{BackendPaths, Core, Step};
use crate::clock::{Duration, Instant};
use crate::path::{Access, Change, Failback, Settings, State, Why};
use crate::request::PathId;
use alloc::vec::Vec;

/// The priority groups of a backend.
#[derive(Debug)]
pub(super) struct Groups {
    /// Their numbers, best first.
    numbers: Vec<u32>,
    /// The index of the group in use.
    current: usize,
    /// Since when a better group could be used.
    better_since: Option<Instant>,
}

impl Groups {
    /// The groups of paths, by path.
    pub(super) fn new(groups: &[u32]) -> Self {
        let mut numbers = groups.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        Self { numbers, current: 0, better_since: None }
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The index of the group with this number.
    pub(super) fn index(&self, number: u32) -> usize {
        self.numbers.binary_search(&number).expect("every group is in the list")
    }

    pub(super) fn number(&self, index: usize) -> u32 {
        self.numbers[index]
    }

    pub(super) const fn current(&self) -> usize {
        self.current
    }

    /// Keeps the group in use, leaves it, or returns to a better one. `usable` is the best group with a usable
    /// path, `settled` the best one with a path that has fully returned.
    fn choose(
        &mut self,
        settings: &Settings,
        now: Instant,
        works: bool,
        usable: Option<usize>,
        settled: Option<usize>,
    ) {
        if !works {
            self.current = usable.unwrap_or(self.current);
        }
        let Some(better) = settled.filter(|&group| group < self.current) else {
            self.better_since = None;
            return;
        };
        let since = *self.better_since.get_or_insert(now);
        let back = match settings.failback {
            Failback::Immediate => true,
            Failback::After => since + settings.failback_after <= now,
            Failback::Manual => false,
        };
        if back {
            (self.current, self.better_since) = (better, None);
        }
    }

    /// When the group in use is left for a better one, if that is a matter of time.
    pub(super) fn failback_at(&self, settings: &Settings) -> Option<Instant> {
        let since = self.better_since.filter(|_| settings.failback == Failback::After)?;
        Some(since + settings.failback_after)
    }
}

impl BackendPaths {
    /// Draws every conclusion from what is known. O(paths).
    pub(super) fn update(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            self.update_use(&core.settings, now, path);
        }
        self.admit_last_resort(&core.settings, now);
        let current = self.groups.current();
        let works = self.paths.iter().any(|one| one.usable && one.group == current);
        let usable = self.first_group(|path| self.paths[path].usable);
        let settled = self.first_group(|path| self.is_settled(path));
        self.groups.choose(&core.settings, now, works, usable, settled);
        self.promote_one();
        self.admit(now);
        self.report(core, now);
        self.release(core, now);
        self.plan(core, now);
    }

    /// Makes a path usable or unusable.
    fn update_use(&mut self, settings: &Settings, now: Instant, path: usize) {
        let others = self.others(path, |other| self.paths[other].usable);
        let ejected = self.judge.is_ejected(path);
        let path_state = &mut self.paths[path];
        match (path_state.usable, path_state.link.is_reachable() && !ejected) {
            (true, false) => {
                path_state.leave(now);
                self.judge.left(now, path);
            }
            (false, true) => {
                let max = settings.max_changes_per_minute;
                if let Some(until) = path_state.changes.barrier(now, max).filter(|_| others) {
                    path_state.changes.barred = Some(until);
                } else {
                    path_state.changes.called_in = false;
                    path_state.enter(now, settings.return_step);
                    self.judge.entered(now, path);
                }
            }
            (false, false) => path_state.changes.barred = None,
            (true, true) => {}
        }
    }

    /// Without a usable path that answers, a path that is slow or has changed too often is used.
    fn admit_last_resort(&mut self, settings: &Settings, now: Instant) {
        let mut checked = None;
        for path_state in self.paths.iter().filter(|path_state| path_state.usable) {
            match path_state.answers.check {
                Some(check) if check.is_late(settings, now) => {
                    checked = checked.max(Some(check.at));
                }
                _ => return,
            }
        }
        for path in 0..self.paths.len() {
            let path_state = &self.paths[path];
            let fit = checked.map_or(path_state.link.is_reachable(), |checked| {
                path_state.could_replace(checked)
            });
            if fit && !path_state.usable {
                self.use_last_resort(now, path);
            }
        }
    }

    /// Uses a path that was out, as there is no better one.
    pub(super) fn use_last_resort(&mut self, now: Instant, path: usize) {
        self.judge.reinstate(path);
        self.judge.entered(now, path);
        let path_state = &mut self.paths[path];
        path_state.usable_why = Why::LastLeft;
        path_state.enter(now, Duration::ZERO);
        path_state.ramp = None;
    }

    /// Whether another path satisfies this.
    pub(super) fn others(&self, path: usize, kind: impl Fn(usize) -> bool) -> bool {
        (0..self.paths.len()).any(|other| other != path && kind(other))
    }

    /// The best group with a path that satisfies this.
    fn first_group(&self, kind: impl Fn(usize) -> bool) -> Option<usize> {
        let paths = (0..self.paths.len()).filter(|&path| kind(path));
        paths.map(|path| self.paths[path].group).min()
    }

    /// Whether a path is usable and has fully returned.
    fn is_settled(&self, path: usize) -> bool {
        let path_state = &self.paths[path];
        path_state.usable && path_state.ramp.is_none() && !self.judge.is_ejected(path)
    }

    /// Whether an I/O should take another path than this if there is one.
    fn is_avoided(&self, path: usize) -> bool {
        let path_state = &self.paths[path];
        path_state.answers.is_doubted()
            || self.judge.is_suspected(path) && path_state.in_flight.count() > 0
    }

    /// Limits of a return only shift load to others. Where none of the group in use has fully returned
    /// there are no others, and held I/Os would wait for nothing: the path that is furthest gets no limit.
    /// Ties: an optimized one, then the first.
    fn promote_one(&mut self) {
        let current = self.groups.current();
        let paths = 0..self.paths.len();
        if paths.clone().any(|path| self.is_settled(path) && self.paths[path].group == current) {
            return;
        }
        let rank = |path: usize| {
            let path_state = &self.paths[path];
            let ramp =
                path_state.ramp.filter(|_| path_state.usable && path_state.group == current)?;
            Some((ramp.step, path_state.link.access == Access::Optimized))
        };
        let returning = paths.rev().filter_map(|path| Some((rank(path)?, path)));
        if let Some((_, path)) = returning.max_by_key(|&(rank, _)| rank) {
            self.paths[path].ramp = None;
        }
    }

    /// The operator orders the return to the best group that works.
    pub(super) fn fail_back(&mut self) {
        let best = self
            .first_group(|path| self.is_settled(path))
            .or_else(|| self.first_group(|path| self.paths[path].usable));
        let current = self.groups.current();
        self.groups.current = best.map_or(current, |best| best.min(current));
    }

    /// Tells the selectors which paths take I/O now: of the group in use the optimized ones, or the
    /// others if there is none; those without doubt, or the doubted ones if there are no others.
    /// None whose limit is reached.
    pub(super) fn admit(&mut self, now: Instant) {
        let current = self.groups.current();
        let open = |path_state: &PathState| {
            path_state.usable && path_state.group == current && !path_state.is_full()
        };
        let free = |path: usize| open(&self.paths[path]) && !self.is_avoided(path);
        let optimized = |path: usize| self.paths[path].link.access == Access::Optimized;
        let best = |path: usize| free(path) && optimized(path) && self.is_settled(path);
        let paths = 0..self.paths.len();
        let (has_free, has_best) = (paths.clone().any(free), paths.clone().any(best));
        for path in paths {
            let free = has_free && !self.is_avoided(path);
            let path_state = &mut self.paths[path];
            let admitted = open(path_state)
                && (free || !has_free)
                && (!has_best || path_state.link.access == Access::Optimized);
            if admitted != path_state.admitted {
                path_state.admitted = admitted;
                let (selector, path) =
                    (&mut self.selectors[path_state.group], PathId::new(path as u32));
                if admitted {
                    selector.reinstate(now, path);
                } else {
                    selector.fail(now, path);
                }
            }
        }
    }

    /// Reports changes of paths to observers.
    fn report(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            let group = self.paths[path].group;
            let better = self.others(path, |other| {
                let path_state = &self.paths[other];
                self.is_settled(other)
                    && path_state.link.access == Access::Optimized
                    && path_state.group == group
            });
            let ejection = self.judge.ejection(path);
            let path_state = &mut self.paths[path];
            let link = &path_state.link;
            let waits =
                group != self.groups.current() || better && link.access != Access::Optimized;
            let state = match path_state {
                _ if link.disabled => State::Disabled,
                _ if link.down.is_some() => State::Failed,
                _ if !link.access.is_accessible() => State::Inaccessible,
                _ if ejection.is_some() => State::Ejected,
                PathState { usable: false, .. } => State::Failed,
                _ if waits => State::Waiting,
                PathState { ramp: Some(_), .. } => State::Returning,
                _ => State::Active,
            };
            let before = &path_state.reported;
            let why = match state {
                State::Disabled => Why::ByOperator,
                State::Inaccessible => Why::ByTarget,
                State::Ejected => Why::Slow,
                State::Failed => link.down.unwrap_or(Why::Flapping),
                State::Active if before.state == State::Returning => Why::Settled,
                State::Active | State::Waiting if before.state.is_usable() => Why::Group,
                State::Active | State::Waiting | State::Returning => path_state.usable_why,
            };
            // The reason why a failed path is out may change without a change of state.
            if state == before.state && (state != State::Failed || why == before.why) {
                continue;
            }
            let (from, lasted) = (before.state, now.since(before.since));
            let reported = &mut path_state.reported;
            (reported.state, reported.since, reported.why) = (state, now, why);
            reported.changes += 1;
            let (backend, path) = (self.id, PathId::new(path as u32));
            let grounds =
                ejection.filter(|_| state == State::Ejected).map(|ejection| ejection.grounds);
            let change = Change { backend, path, from, lasted, state, why, grounds };
            core.steps.push_back(Step::Report(change));
        }
    }
}
