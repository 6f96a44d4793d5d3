//! Which paths are usable, which group is in use, and which of its paths take I/O.

use super::way::{Health, Way};
use super::{Core, Step, Ways};
use crate::clock::Instant;
use crate::path::{Access, Change, Failback, Settings, State, Why};
use crate::request::PathId;

impl Ways {
    /// Draws every conclusion from what is known. O(paths).
    pub(super) fn settle(&mut self, core: &mut Core, now: Instant) {
        for path in 0..self.paths.len() {
            self.judge(&core.settings, now, path);
        }
        self.last_left(&core.settings, now);
        self.choose(&core.settings, now);
        self.trust_one();
        self.admit(now);
        self.report(core, now);
        self.release(core, now);
        self.plan(core, now);
    }

    /// Lets a path in or puts it out.
    fn judge(&mut self, settings: &Settings, now: Instant, path: usize) {
        let others = self.others(path, |way| way.usable);
        let way = &mut self.paths[path];
        match (way.usable, way.is_fit()) {
            (true, false) => way.leave(now),
            (false, true) => {
                let barrier = way.barrier(now, settings.max_changes_per_minute);
                match barrier.filter(|_| others) {
                    Some(until) => way.barred = Some(until),
                    None => way.enter(now, settings.return_step),
                }
            }
            (false, false) => way.barred = None,
            (true, true) => {}
        }
    }

    /// Nothing is usable that answers: a path that is slow, or has changed too often, is better than none.
    fn last_left(&mut self, settings: &Settings, now: Instant) {
        let mut asked = None;
        for way in self.paths.iter().filter(|way| way.usable) {
            match way.check {
                Some(check) if check.is_late(settings, now) => asked = asked.max(Some(check.at)),
                _ => return,
            }
        }
        for path in 0..self.paths.len() {
            let way = &self.paths[path];
            let fit = asked.map_or(way.is_reachable(), |asked| way.could_replace(asked));
            if fit && !way.usable {
                self.let_in(now, path);
            }
        }
    }

    /// Lets in a path that was out, as there is no better one.
    pub(super) fn let_in(&mut self, now: Instant, path: usize) {
        let way = &mut self.paths[path];
        self.ejected -= u32::from(way.health == Health::Ejected);
        way.back = Why::LastLeft;
        way.enter(now, super::Duration::ZERO);
        way.health = Health::Good;
    }

    /// Whether there is another path of this kind.
    pub(super) fn others(&self, path: usize, kind: impl Fn(&Way) -> bool) -> bool {
        self.paths.iter().enumerate().any(|(index, way)| index != path && kind(way))
    }

    /// The first group in order with such a path.
    fn first_group(&self, kind: impl Fn(&Way) -> bool) -> Option<usize> {
        self.paths.iter().filter(|way| kind(way)).map(|way| way.group).min()
    }

    /// Keeps the group in use, leaves it, or goes back to a better one.
    fn choose(&mut self, settings: &Settings, now: Instant) {
        let current = self.current;
        if !self.paths.iter().any(|way| way.usable && way.group == current) {
            self.current = self.first_group(|way| way.usable).unwrap_or(current);
        }
        let better = self.first_group(Way::is_settled).filter(|&group| group < self.current);
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
    fn trust_one(&mut self) {
        let current = self.current;
        if self.paths.iter().any(|way| way.is_settled() && way.group == current) {
            return;
        }
        let returns = |way: &Way| match way.health {
            Health::Returning { step, .. } if way.usable && way.group == current => {
                Some((step, way.access == Access::Optimized))
            }
            _ => None,
        };
        let ways = self.paths.iter_mut().rev().filter_map(|way| Some((returns(way)?, way)));
        if let Some((_, way)) = ways.max_by_key(|(rank, _)| *rank) {
            way.health = Health::Good;
        }
    }

    /// The operator asks for the best group that works.
    pub(super) fn fail_back(&mut self) {
        let best = self.first_group(Way::is_settled).or_else(|| self.first_group(|way| way.usable));
        self.current = best.map_or(self.current, |best| best.min(self.current));
    }

    /// Tells the selectors which paths take I/O now: of the group in use the optimized ones, or the
    /// others if there is none; those without doubt, or the doubted ones if there are no others.
    /// None that has used up its share.
    pub(super) fn admit(&mut self, now: Instant) {
        let current = self.current;
        let open = |way: &Way| way.usable && way.group == current && !way.is_full();
        let free = |way: &Way| open(way) && !way.is_avoided();
        let best =
            |way: &Way| free(way) && way.access == Access::Optimized && way.health == Health::Good;
        let has_free = self.paths.iter().any(free);
        let has_best = self.paths.iter().any(best);
        for (path, way) in (0..).zip(&mut self.paths) {
            let admitted = if has_best {
                free(way) && way.access == Access::Optimized
            } else if has_free {
                free(way)
            } else {
                open(way)
            };
            if admitted != way.told {
                way.told = admitted;
                let selector = &mut self.selectors[way.group];
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
        let best = |way: &Way| way.is_settled() && way.access == Access::Optimized;
        for path in 0..self.paths.len() {
            let group = self.paths[path].group;
            let better = self.others(path, |way| best(way) && way.group == group);
            let way = &mut self.paths[path];
            let waits = group != self.current || better && way.access != Access::Optimized;
            let state = match way {
                Way { disabled: true, .. } => State::Disabled,
                Way { down: Some(_), .. } => State::Failed,
                _ if !way.access.is_accessible() => State::Inaccessible,
                Way { health: Health::Ejected, .. } => State::Ejected,
                Way { usable: false, .. } => State::Failed,
                _ if waits => State::Waiting,
                Way { health: Health::Returning { .. }, .. } => State::Returning,
                _ => State::Active,
            };
            let why = match state {
                State::Disabled => Why::ByOperator,
                State::Inaccessible => Why::ByTarget,
                State::Ejected => Why::Slow,
                State::Failed => way.down.unwrap_or(Why::Flapping),
                State::Active if way.state == State::Returning => Why::Settled,
                State::Active | State::Waiting if way.state.is_usable() => Why::Group,
                State::Active | State::Waiting | State::Returning => way.back,
            };
            // What keeps a failed path out may change without a change of state.
            if state == way.state && (state != State::Failed || why == way.why) {
                continue;
            }
            let (from, lasted) = (way.state, now.since(way.since));
            (way.state, way.since, way.why) = (state, now, why);
            way.changes += 1;
            let (backend, path) = (self.id, PathId::new(path as u32));
            core.steps.push_back(Step::Tell(Change { backend, path, from, lasted, state, why }));
        }
    }
}
