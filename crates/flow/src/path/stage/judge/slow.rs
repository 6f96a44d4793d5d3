//! Slow stretches of a path, until they are enough for an ejection.

use crate::clock::{Duration, Instant};

/// Slow stretches in a row, and their events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow {
    pub(super) stretches: u32,
    pub(super) since: Instant,
    pub(super) events: u32,
    /// The weight of the events for an ejection.
    pub(super) score: u32,
    /// The responses of all events, what was expected beside the queue of the best path, and without a queue.
    pub(super) response: Duration,
    pub(super) expected: Duration,
    pub(super) lone: Duration,
}

impl Slow {
    /// Adds an event. For an ejection a slow one counts 1, 2 if it took a quarter of a stretch, 3 if it took half of
    /// one; any other counts 3 against it.
    pub(super) fn add(
        &mut self,
        slow: bool,
        response: Duration,
        (expected, lone): (Duration, Duration),
        stretch: Duration,
    ) {
        self.events = self.events.saturating_add(1);
        self.response += response;
        self.expected += expected;
        self.lone += lone;
        if !slow {
            self.score = self.score.saturating_sub(3);
            return;
        }
        let quarters = response.as_nanos() / (stretch.as_nanos() / 4).max(1);
        self.score = self.score.saturating_add(1 + quarters.min(2) as u32);
    }

    /// Whether this is enough for an ejection. A path that does one I/O at a time is compared with one that does
    /// several beside each other, so its service times look longer than they are; its responses do not.
    pub(super) fn is_enough(&self, slow_factor: u32) -> bool {
        self.score >= SCORE_MIN && self.response >= self.lone * u64::from(slow_factor)
    }
}

/// The weight of slow events at which a path is ejected. On a path that pauses for a third of the time, a random
/// walk that rises by 1 with chance 1/3 and falls by 3 otherwise gets there once in millions of events.
const SCORE_MIN: u32 = 14;
