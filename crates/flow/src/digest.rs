//! One number for a whole run: equal digests mean equal streams of actions.

use crate::clock::Instant;
use crate::pipeline::Action;
use crate::request::{Outcome, RequestKey};
use crate::rng::mix;
use core::fmt;
use slotmap::Key;

/// A running 64-bit digest of timed actions. Against accident, not against malice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    state: u64,
    actions: u64,
}

impl Digest {
    /// Takes one action performed at `now`.
    pub fn action(&mut self, now: Instant, action: &Action) {
        self.actions += 1;
        self.word(now.as_nanos());
        match action {
            Action::Store(io) => {
                self.word(1);
                self.key(io.key);
                self.word(io.tag.0);
                self.word(io.volume.index() as u64 | u64::from(io.part) << 32);
                self.word(io.backend.index() as u64);
                self.word(io.path.index() as u64);
                self.word(u64::from(io.op.code()) | u64::from(io.fua) << 8);
                self.word(io.extent.offset);
                self.word(io.extent.length);
                self.word(io.offset_in_request);
            }
            Action::Transfer { key, tag, outcome } => {
                self.word(2);
                self.key(*key);
                self.word(tag.0);
                self.word(outcome_code(*outcome));
            }
            Action::Refuse { tag } => {
                self.word(3);
                self.word(tag.0);
            }
            Action::Check { backend, path } | Action::Reset { backend, path } => {
                self.word(if matches!(action, Action::Check { .. }) { 4 } else { 5 });
                self.word(backend.index() as u64);
                self.word(path.index() as u64);
            }
            Action::Abandon { key, backend, path } => {
                self.word(6);
                self.key(*key);
                self.word(backend.index() as u64);
                self.word(path.index() as u64);
            }
        }
    }

    /// The digest so far.
    pub const fn value(&self) -> u64 {
        self.state
    }

    /// How many actions it covers.
    pub const fn actions(&self) -> u64 {
        self.actions
    }

    /// The digest that had reached this state, as a recording stores it.
    pub const fn resume(state: u64, actions: u64) -> Self {
        Self { state, actions }
    }

    fn key(&mut self, key: RequestKey) {
        self.word(key.data().as_ffi());
    }

    const fn word(&mut self, word: u64) {
        self.state = mix(self.state ^ mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.state)
    }
}

const fn outcome_code(outcome: Outcome) -> u64 {
    match outcome {
        Ok(()) => 0,
        Err(error) => error.code() as u64,
    }
}
