//! The state of one path: reachability, health, the I/Os on it, and how often it changed.

use super::pace::{Factor, Pace, Shape};
use crate::clock::{Duration, Instant};
use crate::path::settings::{CHANGES_MAX, RETURN_STEPS};
use crate::path::{Access, Settings, State, Why};
use crate::request::RequestKey;
use alloc::collections::VecDeque;

/// A path.
#[derive(Debug)]
pub(super) struct PathState {
    /// Index of its group among those of the backend.
    pub(super) group: usize,
    pub(super) access: Access,
    pub(super) disabled: bool,
    /// Why its connection does not work; `None` if it does.
    pub(super) down: Option<Why>,
    /// Its connection works since then: what began before and fails says nothing of it.
    pub(super) up_since: Instant,
    pub(super) health: Health,
    /// It stays out until then, as it has changed too often.
    pub(super) barred: Option<Instant>,
    /// Whether I/O may be sent on it when it is its turn.
    pub(super) usable: bool,
    /// Why it has become usable.
    pub(super) back: Why,
    /// Whether its selector takes it for working.
    pub(super) admitted: bool,
    /// The first and the last I/O on it, in the order in which they began.
    pub(super) ends: Option<(RequestKey, RequestKey)>,
    pub(super) in_flight: u32,
    pub(super) bytes: u64,
    /// The last time that anything was heard on it.
    pub(super) heard: Instant,
    /// The check that is unanswered.
    pub(super) check: Option<Check>,
    /// Its first I/O takes much longer than those of others.
    pub(super) stuck: bool,
    pub(super) suspicion: Suspicion,
    pub(super) pace: Pace,
    pub(super) probing: Probing,
    /// When it became usable or ceased to be in the last minute.
    recent: VecDeque<Instant>,
    pub(super) state: State,
    pub(super) since: Instant,
    pub(super) why: Why,
    pub(super) changes: u64,
}

/// How a path that works is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Nothing is against it.
    Good,
    /// It takes a share that doubles at `next`.
    Returning {
        /// Doublings so far.
        step: u32,
        /// The next one.
        next: Instant,
    },
    /// It is too slow.
    Ejected,
}

/// A question without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    /// When it was asked.
    pub(super) at: Instant,
    /// It was asked because an I/O is overdue.
    pub(super) overdue: bool,
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

/// Whether a path gets one I/O at a time, to see if it is slow or has a long queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// No, and not before then.
    None {
        /// When it may be suspected again.
        until: Instant,
    },
    /// Yes.
    Narrow {
        /// Since when: what began before had others beside it.
        since: Instant,
        /// How many I/Os it has done so.
        alone: usize,
    },
}

/// How an ejected path is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    /// The read that is on its way.
    pub(super) out: Option<RequestKey>,
    /// Not before then.
    pub(super) next: Instant,
    /// Time between two of them.
    pub(super) pause: Duration,
    /// Good ones in a row.
    pub(super) good: u32,
    /// When the path was ejected, what I/Os cost elsewhere then, and how slow it was.
    pub(super) since: Instant,
    pub(super) shape: Shape,
    pub(super) slowness: Factor,
}

/// What a probe says of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is no slower than others, and much faster than when it was ejected.
    Well,
    /// It is no slower than others, who may have long queues just now.
    Unclear,
    /// It is slow, or silent.
    Slow,
}

impl PathState {
    pub(super) fn new(group: usize, state: State, pause: Duration) -> Self {
        Self {
            group,
            access: Access::Optimized,
            disabled: false,
            down: None,
            up_since: Instant::ZERO,
            health: Health::Good,
            barred: None,
            usable: true,
            back: Why::Start,
            admitted: true,
            ends: None,
            in_flight: 0,
            bytes: 0,
            heard: Instant::ZERO,
            check: None,
            stuck: false,
            suspicion: Suspicion::None { until: Instant::ZERO },
            pace: Pace::new(),
            probing: Probing {
                out: None,
                next: Instant::ZERO,
                pause,
                good: 0,
                since: Instant::ZERO,
                shape: Shape::default(),
                slowness: 0,
            },
            recent: VecDeque::new(),
            state,
            since: Instant::ZERO,
            why: Why::Start,
            changes: 0,
        }
    }

    /// Whether the target can take I/O on it.
    pub(super) const fn is_reachable(&self) -> bool {
        self.down.is_none() && !self.disabled && self.access.is_accessible()
    }

    /// Whether it could take over from paths of which the last was asked at `asked`, and has not answered
    /// since. One that is out has to have been heard since then: or it may be as silent as they are.
    pub(super) fn could_replace(&self, asked: Instant) -> bool {
        self.is_reachable() && !self.is_doubted() && (self.usable || self.heard >= asked)
    }

    /// Whether nothing is against using it, but for how often it has changed.
    pub(super) fn is_fit(&self) -> bool {
        self.is_reachable() && self.health != Health::Ejected
    }

    /// Whether it is usable and has fully returned.
    pub(super) fn is_settled(&self) -> bool {
        self.usable && self.health == Health::Good
    }

    /// Whether it is silent, or one I/O on it is stuck.
    pub(super) fn is_doubted(&self) -> bool {
        self.stuck || self.check.is_some_and(|check| check.overdue)
    }

    /// Whether its share of a return is used up.
    pub(super) const fn is_full(&self) -> bool {
        match self.health {
            Health::Returning { step, .. } => self.in_flight >= 1 << step,
            Health::Good | Health::Ejected => false,
        }
    }

    /// Whether it is suspected.
    pub(super) const fn is_narrow(&self) -> bool {
        matches!(self.suspicion, Suspicion::Narrow { .. })
    }

    /// Whether an I/O should take another path if there is one.
    pub(super) fn is_avoided(&self) -> bool {
        self.is_doubted() || self.is_narrow() && self.in_flight > 0
    }

    /// Lets it in, step by step.
    pub(super) fn enter(&mut self, now: Instant, step: Duration) {
        self.usable = true;
        self.barred = None;
        self.health = Health::Returning { step: 0, next: now + step };
        self.pace.forget();
        self.note(now);
    }

    /// Puts it out.
    pub(super) fn leave(&mut self, now: Instant) {
        self.usable = false;
        self.suspicion = Suspicion::None { until: now };
        if self.health != Health::Ejected {
            self.health = Health::Good;
        }
        self.note(now);
    }

    /// Doubles the share of a path that returns, if it is time. True if something has changed.
    pub(super) fn step(&mut self, now: Instant, step_time: Duration, pause: Duration) -> bool {
        let Health::Returning { step, next } = self.health else { return false };
        if next > now {
            return false;
        }
        if step + 1 < RETURN_STEPS {
            self.health = Health::Returning { step: step + 1, next: now + step_time };
        } else {
            self.health = Health::Good;
            self.probing.pause = pause;
        }
        true
    }

    /// Until when it has to stay out so that coming in, and going out again after that, keeps the
    /// bound on changes in a minute; `None` if it need not.
    pub(super) fn barrier(&self, now: Instant, most: u32) -> Option<Instant> {
        let late = self.recent.len().checked_sub(most as usize - 1)?;
        let until = self.recent[late] + MINUTE;
        (until > now).then_some(until)
    }

    /// Forgets how often it has changed.
    pub(super) fn forgive(&mut self) {
        self.recent.clear();
    }

    fn note(&mut self, now: Instant) {
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
