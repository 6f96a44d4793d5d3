//! One number for a whole run: equal digests mean equal streams of actions.

use crate::cache::Work;
use crate::cache::quarantine::LostRange;
use crate::cache::stage::{Buffer, Copied, LogWrite};
use crate::clock::Instant;
use crate::pipeline::Action;
use crate::request::{Outcome, RequestKey};
use crate::rng::{FNV_OFFSET, fnv1a, mix};
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
            Action::Transfer { key, tag, outcome, part } => {
                self.word(2);
                self.key(*key);
                self.word(tag.0);
                self.word(outcome_code(*outcome));
                self.words(&[part.offset, part.length, part.last.into()]);
            }
            Action::Cache(work) => self.cache(work),
            Action::Refuse { tag } => {
                self.word(3);
                self.word(tag.0);
            }
            Action::Check { backend, path } | Action::Reset { backend, path } => {
                self.word(if matches!(action, Action::Check { .. }) { 4 } else { 5 });
                self.word(backend.index() as u64);
                self.word(path.index() as u64);
            }
            Action::Abandon { key, backend, path } | Action::Recall { key, backend, path } => {
                self.word(if matches!(action, Action::Abandon { .. }) { 6 } else { 7 });
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

    fn cache(&mut self, work: &Work) {
        match work {
            Work::Copy(Copied { tag, offset, frame, at, length, keep }) => {
                self.words(&[7, tag.0, *offset, frame.index() as u64, u64::from(*keep)]);
                self.words(&[u64::from(*at), u64::from(*length)]);
            }
            Work::Zero { tag, offset, length } => self.words(&[8, tag.0, *offset, *length]),
            Work::Fetch { fetch, volume, span, tag, offset } => {
                self.words(&[9, fetch.data().as_ffi(), volume.index() as u64, tag.0, *offset]);
                self.words(&[span.at, span.length, span.record, span.bytes, span.sums]);
            }
            Work::CopyBuffer { volume, from, tag, offset, length } => {
                self.words(&[14, volume.index() as u64, tag.0, *offset, *length]);
                self.buffer(*from);
            }
            Work::Reserve { job, volume, bytes, reads } => {
                let reads = u64::from(*reads);
                self.words(&[10, job.data().as_ffi(), volume.index() as u64, *bytes, reads]);
            }
            Work::Release(tag) => self.words(&[11, tag.0]),
            Work::Log { volume, write } => {
                let LogWrite { write, from } = &**write;
                self.words(&[12, volume.index() as u64, write.io.0, write.at, write.bytes]);
                self.words(&[fnv1a(FNV_OFFSET, &write.head), write.sums_at.into()]);
                for (part, &from) in write.payload.iter().zip(from) {
                    self.word(part.length);
                    self.buffer(from);
                }
            }
            Work::Sync { volume, io } => self.words(&[13, volume.index() as u64, io.0]),
            Work::ReleaseBatch { volume, io } => self.words(&[15, volume.index() as u64, io.0]),
            Work::Abandon(volume) => self.words(&[16, volume.index() as u64]),
            Work::Closed(volume) => self.words(&[17, volume.index() as u64]),
            Work::KeepLost(volume, ranges) => {
                self.words(&[18, volume.index() as u64, ranges.len() as u64]);
                for LostRange { extent, seq, since } in ranges {
                    self.words(&[extent.offset, extent.length, *seq, *since]);
                }
            }
        }
    }

    fn buffer(&mut self, buffer: Buffer) {
        match buffer {
            Buffer::Payload(tag, offset) => self.words(&[0, tag.0, offset]),
            Buffer::Batch(io, offset) => self.words(&[1, io.0, offset]),
        }
    }

    fn words(&mut self, words: &[u64]) {
        for &word in words {
            self.word(word);
        }
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
