//! A clock: the spans of time during which a condition held.

use crate::clock::{Duration, Instant};
use alloc::collections::VecDeque;

/// The latest spans of a condition that several things can cause at once. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    ended: VecDeque<(Instant, Instant)>,
    /// How many cause it now, and since when any has.
    causes: u32,
    since: Instant,
}

impl Spans {
    /// One more causes it.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.causes == 0 {
            self.since = now;
        }
        self.causes += 1;
    }

    /// One that caused it no longer does. One that never began is ignored.
    pub(super) fn end(&mut self, now: Instant) {
        let Some(left) = self.causes.checked_sub(1) else { return };
        self.causes = left;
        if left == 0 && self.since < now {
            if self.ended.len() == SPANS_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back((self.since, now));
        }
    }

    /// Whether it holds: what is either so or not.
    pub(super) fn set(&mut self, now: Instant, holds: bool) {
        match (holds, self.causes) {
            (true, 0) => self.begin(now),
            (false, 1..) => {
                self.causes = 1;
                self.end(now);
            }
            _ => {}
        }
    }

    /// For how long it held between `from` and `to`.
    pub(super) fn within(&self, from: Instant, to: Instant) -> Duration {
        let part = |(begin, end): (Instant, Instant)| end.min(to).saturating_since(begin.max(from));
        let ended = self.ended.iter().rev().take_while(|(_, end)| *end > from);
        let sum = ended.fold(Duration::ZERO, |sum, &span| sum + part(span));
        if self.causes > 0 { sum + part((self.since, to)) } else { sum }
    }
}

/// Spans that are kept; the time of older ones is charged to who was served meanwhile.
const SPANS_MAX: usize = 256;
