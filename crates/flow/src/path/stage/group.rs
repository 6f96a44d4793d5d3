//! Chooses the priority group in use and admits its paths to the selectors.

use super::path_state::{Health, PathState};
use super::{BackendPaths, Core, Step};
use crate::clock::Instant;
use crate::path::{Access, Change, Failback, Settings, State, Why};
use crate::request::PathId;

impl BackendPaths {
    /// Draws every conclusion from what is known. O(paths).
    pub(super) fn update(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            self.judge(&core.settings, now, path);
        }
        self.admit_last_resort(&core.settings, now);
        self.choose(&core.settings, now);
        self.promote_one();
        self.admit(now);
        self.report(core, now);
        self.release(core, now);
        self.plan(core, now);
    }

    /// Lets a path in or puts it out.
    fn judge(&mut self, settings: &Settings, now: Instant, path: usize) {
        let others = self.others(path, |path_state| path_state.usable);
        let path_state = &mut self.paths[path];
        match (path_state.usable, path_state.is_fit()) {
            (true, false) => path_state.leave(now),
            (false, true) => {
                let barrier = path_state.barrier(now, settings.max_changes_per_minute);
                match barrier.filter(|_| others) {
                    Some(until) => path_state.barred = Some(until),
                    None => path_state.enter(now, settings.return_step),
                }
            }
            (false, false) => path_state.barred = None,
            (true, true) => {}
        }
    }

    /// Nothing is usable that answers: a path that is slow, or has changed too often, is better than none.
    fn admit_last_resort(&mut self, settings: &Settings, now: Instant) {
        let mut asked = None;
        for path_state in self.paths.iter().filter(|path_state| path_state.usable) {
            match path_state.check {
                Some(check) if check.is_late(settings, now) => asked = asked.max(Some(check.at)),
                _ => return,
            }
        }
        for path in 0..self.paths.len() {
            let path_state = &self.paths[path];
            let fit =
                asked.map_or(path_state.is_reachable(), |asked| path_state.could_replace(asked));
            if fit && !path_state.usable {
                self.let_in(now, path);
            }
        }
    }

    /// Lets in a path that was out, as there is no better one.
    pub(super) fn let_in(&mut self, now: Instant, path: usize) {
        let path_state = &mut self.paths[path];
        self.ejected -= u32::from(path_state.health == Health::Ejected);
        path_state.back = Why::LastLeft;
        path_state.enter(now, super::Duration::ZERO);
        path_state.health = Health::Good;
    }

    /// Whether there is another path of this kind.
    pub(super) fn others(&self, path: usize, kind: impl Fn(&PathState) -> bool) -> bool {
        self.paths.iter().enumerate().any(|(index, path_state)| index != path && kind(path_state))
    }

    /// The first group in order with such a path.
    fn first_group(&self, kind: impl Fn(&PathState) -> bool) -> Option<usize> {
        self.paths
            .iter()
            .filter(|path_state| kind(path_state))
            .map(|path_state| path_state.group)
            .min()
    }

    /// Keeps the group in use, leaves it, or goes back to a better one.
    fn choose(&mut self, settings: &Settings, now: Instant) {
        let current = self.current;
        if !self.paths.iter().any(|path_state| path_state.usable && path_state.group == current) {
            self.current = self.first_group(|path_state| path_state.usable).unwrap_or(current);
        }
        let better = self.first_group(PathState::is_settled).filter(|&group| group < self.current);
        let Some(better) = better else {
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

    /// Steps of a return only shift load to others. Where none of the group in use has fully returned
    /// there are no others, and what the steps keep back would wait for nothing: the one that is
    /// furthest takes it all. Ties: an optimized one, then the first.
    fn promote_one(&mut self) {
        let current = self.current;
        if self
            .paths
            .iter()
            .any(|path_state| path_state.is_settled() && path_state.group == current)
        {
            return;
        }
        let returns = |path_state: &PathState| match path_state.health {
            Health::Returning { step, .. } if path_state.usable && path_state.group == current => {
                Some((step, path_state.access == Access::Optimized))
            }
            _ => None,
        };
        let backend_paths = self
            .paths
            .iter_mut()
            .rev()
            .filter_map(|path_state| Some((returns(path_state)?, path_state)));
        if let Some((_, path_state)) = backend_paths.max_by_key(|(rank, _)| *rank) {
            path_state.health = Health::Good;
        }
    }

    /// The operator asks for the best group that works.
    pub(super) fn fail_back(&mut self) {
        let best = self
            .first_group(PathState::is_settled)
            .or_else(|| self.first_group(|path_state| path_state.usable));
        self.current = best.map_or(self.current, |best| best.min(self.current));
    }

    /// Tells the selectors which paths take I/O now: of the group in use the optimized ones, or the
    /// others if there is none; those without doubt, or the doubted ones if there are no others.
    /// None that has used up its share.
    pub(super) fn admit(&mut self, now: Instant) {
        let current = self.current;
        let open = |path_state: &PathState| {
            path_state.usable && path_state.group == current && !path_state.is_full()
        };
        let free = |path_state: &PathState| open(path_state) && !path_state.is_avoided();
        let best = |path_state: &PathState| {
            free(path_state)
                && path_state.access == Access::Optimized
                && path_state.health == Health::Good
        };
        let has_free = self.paths.iter().any(free);
        let has_best = self.paths.iter().any(best);
        for (path, path_state) in (0..).zip(&mut self.paths) {
            let admitted = if has_best {
                free(path_state) && path_state.access == Access::Optimized
            } else if has_free {
                free(path_state)
            } else {
                open(path_state)
            };
            if admitted != path_state.admitted {
                path_state.admitted = admitted;
                let selector = &mut self.selectors[path_state.group];
                if admitted {
                    selector.reinstate(now, PathId::new(path));
                } else {
                    selector.fail(now, PathId::new(path));
                }
            }
        }
    }

    /// Tells observers what has become of the paths.
    fn report(&mut self, core: &mut Core, now: Instant) {
        let best = |path_state: &PathState| {
            path_state.is_settled() && path_state.access == Access::Optimized
        };
        for path in 0..self.paths.len() {
            let group = self.paths[path].group;
            let better =
                self.others(path, |path_state| best(path_state) && path_state.group == group);
            let path_state = &mut self.paths[path];
            let waits = group != self.current || better && path_state.access != Access::Optimized;
            let state = match path_state {
                PathState { disabled: true, .. } => State::Disabled,
                PathState { down: Some(_), .. } => State::Failed,
                _ if !path_state.access.is_accessible() => State::Inaccessible,
                PathState { health: Health::Ejected, .. } => State::Ejected,
                PathState { usable: false, .. } => State::Failed,
                _ if waits => State::Waiting,
                PathState { health: Health::Returning { .. }, .. } => State::Returning,
                _ => State::Active,
            };
            let why = match state {
                State::Disabled => Why::ByOperator,
                State::Inaccessible => Why::ByTarget,
                State::Ejected => Why::Slow,
                State::Failed => path_state.down.unwrap_or(Why::Flapping),
                State::Active if path_state.state == State::Returning => Why::Settled,
                State::Active | State::Waiting if path_state.state.is_usable() => Why::Group,
                State::Active | State::Waiting | State::Returning => path_state.back,
            };
            // What keeps a failed path out may change without a change of state.
            if state == path_state.state && (state != State::Failed || why == path_state.why) {
                continue;
            }
            let (from, lasted) = (path_state.state, now.since(path_state.since));
            (path_state.state, path_state.since, path_state.why) = (state, now, why);
            path_state.changes += 1;
            let (backend, path) = (self.id, PathId::new(path as u32));
            core.steps.push_back(Step::Report(Change { backend, path, from, lasted, state, why }));
        }
    }
}
