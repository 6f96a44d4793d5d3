//! The state of one path, in parts: its connection, its answers, its use, its changes, its report.
//!
//! Whether it is too slow is not here but in `judge.rs`.

use super::in_flight::InFlight;
use crate::clock::{Duration, Instant};
use crate::path::settings::{CHANGES_MAX, RETURN_STEPS};
use crate::path::{Access, Settings, State, Why};
use alloc::collections::VecDeque;

/// A path.
#[derive(Debug)]
pub(super) struct PathState {
    /// Index of its group among those of the backend.
    pub(super) group: usize,
    pub(super) link: Link,
    pub(super) in_flight: InFlight,
    pub(super) answers: Answers,
    /// Whether I/O may be sent on it while its group is in use.
    pub(super) usable: bool,
    /// Why it has become usable.
    pub(super) usable_why: Why,
    /// The limit on its I/Os while it returns.
    pub(super) ramp: Option<Ramp>,
    /// Whether its selector may choose it.
    pub(super) admitted: bool,
    pub(super) changes: ChangeLimit,
    pub(super) reported: Reported,
}

/// Whether the target can take I/O on a path.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) access: Access,
    pub(super) disabled: bool,
    /// Why its connection does not work; `None` if it does.
    pub(super) down: Option<Why>,
    /// Its connection works since then; an I/O that began before and fails does not show that it is down.
    pub(super) up_since: Instant,
}

/// When a path answered, and what it has not answered.
#[derive(Debug)]
pub(super) struct Answers {
    /// The last answer to an I/O or a check.
    pub(super) last: Instant,
    /// The check that is unanswered.
    pub(super) check: Option<Check>,
    /// Its first I/O takes much longer than those of others.
    pub(super) stuck: bool,
}

/// A check without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    /// When it was sent.
    pub(super) at: Instant,
    /// It was sent because an I/O is overdue.
    pub(super) overdue: bool,
}

/// The limit on the I/Os of a path that returns; it doubles at `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    /// Doublings so far.
    pub(super) step: u32,
    pub(super) next: Instant,
}

/// The bound on how often a path changes between usable and unusable.
#[derive(Debug)]
pub(super) struct ChangeLimit {
    /// The changes in the last minute.
    recent: VecDeque<Instant>,
    /// It stays out until then.
    pub(super) barred: Option<Instant>,
    /// It was called in once although it was to stay out. It is not called in again before it has returned in time.
    pub(super) called_in: bool,
}

/// What observers were last told.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) state: State,
    pub(super) since: Instant,
    pub(super) why: Why,
    pub(super) changes: u64,
}

impl PathState {
    pub(super) fn new(group: usize, state: State) -> Self {
        Self {
            group,
            link: Link {
                access: Access::Optimized,
                disabled: false,
                down: None,
                up_since: Instant::ZERO,
            },
            in_flight: InFlight::default(),
            answers: Answers { last: Instant::ZERO, check: None, stuck: false },
            usable: true,
            usable_why: Why::Start,
            ramp: None,
            admitted: true,
            changes: ChangeLimit { recent: VecDeque::new(), barred: None, called_in: false },
            reported: Reported { state, since: Instant::ZERO, why: Why::Start, changes: 0 },
        }
    }

    /// It is there since `now`.
    pub(super) const fn begin(&mut self, now: Instant) {
        (self.link.up_since, self.answers.last, self.reported.since) = (now, now, now);
    }

    /// Whether it could take over from paths of which the last was checked at `checked` and has not answered
    /// since. An unused one must have answered since then: otherwise it may be as silent as they are.
    pub(super) fn could_replace(&self, checked: Instant) -> bool {
        self.link.is_reachable()
            && !self.answers.is_doubted()
            && (self.usable || self.answers.last >= checked)
    }

    /// Whether its limit while it returns is reached.
    pub(super) fn is_full(&self) -> bool {
        self.ramp.is_some_and(|ramp| self.in_flight.count() >= 1 << ramp.step)
    }

    /// Makes it usable, with a limit that doubles after each `step`.
    pub(super) fn enter(&mut self, now: Instant, step: Duration) {
        assert!(!self.usable, "a path returned that was in use");
        self.usable = true;
        self.changes.barred = None;
        self.ramp = Some(Ramp { step: 0, next: now + step });
        self.changes.count(now);
    }

    /// Makes it unusable.
    pub(super) fn leave(&mut self, now: Instant) {
        assert!(self.usable, "a path was taken out of use twice");
        self.usable = false;
        self.ramp = None;
        self.changes.count(now);
    }

    /// Doubles the limit of a path that returns, if it is time.
    pub(super) fn step(&mut self, now: Instant, step_time: Duration) {
        let Some(ramp) = self.ramp.filter(|ramp| ramp.next <= now) else { return };
        let step = ramp.step + 1;
        self.ramp = (step < RETURN_STEPS).then_some(Ramp { step, next: now + step_time });
    }
}

impl Link {
    /// Whether the target can take I/O on it.
    pub(super) const fn is_reachable(&self) -> bool {
        self.down.is_none() && !self.disabled && self.access.is_accessible()
    }
}

impl Answers {
    /// Whether the path is silent, or one I/O on it is stuck.
    pub(super) fn is_doubted(&self) -> bool {
        self.stuck || self.check.is_some_and(|check| check.overdue)
    }
}

impl Check {
    /// Whether it takes so long that the reads on the path are sent to another path.
    pub(super) fn is_late(&self, settings: &Settings, now: Instant) -> bool {
        self.at + Self::grace(settings) <= now
    }

    /// How long it may take before that.
    pub(super) const fn grace(settings: &Settings) -> Duration {
        Duration::from_nanos(settings.dead_after.as_nanos() / 3)
    }
}

impl ChangeLimit {
    /// Until when a path has to stay out so that a return, and leaving again after that, keeps the bound of
    /// `max` changes in a minute; `None` if it need not.
    pub(super) fn barrier(&self, now: Instant, max: u32) -> Option<Instant> {
        let late = self.recent.len().checked_sub(max as usize - 1)?;
        let until = self.recent[late] + MINUTE;
        (until > now).then_some(until)
    }

    /// Forgets the changes.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
    }

    fn count(&mut self, now: Instant) {
        while self.recent.len() >= CHANGES_MAX as usize
            || self.recent.front().is_some_and(|&at| at + MINUTE <= now)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
    }
}

/// The time in which changes of a path are counted.
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that is in use does not return.
    #[test]
    #[should_panic(expected = "that was in use")]
    fn a_path_returns_once() {
        PathState::new(0, State::Active).enter(Instant::ZERO, Duration::ZERO);
    }

    /// A path that is out does not leave.
    #[test]
    #[should_panic(expected = "out of use twice")]
    fn a_path_leaves_once() {
        let mut path = PathState::new(0, State::Active);
        path.leave(Instant::ZERO);
        path.leave(Instant::ZERO);
    }
}
