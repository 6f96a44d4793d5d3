//! The I/Os of destage, and how far each is.

use super::super::ranges::Held;
use super::super::wal::Pin;
use super::share::BurstId;
use crate::clock::Instant;
use crate::request::Op;
use crate::units::Extent;
use alloc::vec::Vec;

/// The epoch that is being written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActiveEpoch {
    /// Everything before it has been begun; `None` at the end.
    pub(crate) cursor: Option<u64>,
    /// All of it must be written again: the upstream may have lost its cache.
    pub(crate) redo: bool,
    /// Its writes make themselves durable, and no flush follows.
    pub(crate) fua: bool,
    /// How many writes it may have, if both ways to make them durable are possible.
    pub(crate) writes: Option<usize>,
    /// It yielded to reads when it was begun.
    pub(crate) shared: bool,
    /// Each record is a write on its own, since one of several could not be read.
    pub(crate) apart: bool,
    /// When its first I/O was sent.
    pub(crate) sent: Option<Instant>,
}

impl ActiveEpoch {
    /// An epoch of which nothing has been begun.
    pub(crate) const fn start() -> Self {
        Self {
            cursor: Some(0),
            redo: false,
            fua: false,
            writes: None,
            shared: false,
            apart: false,
            sent: None,
        }
    }

    /// The same epoch from its start.
    pub(crate) const fn again(&self) -> Self {
        Self { apart: self.apart, ..Self::start() }
    }
}

/// One I/O.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) op: Op,
    pub(crate) extent: Extent,
    /// The data of which records it writes.
    pub(crate) pieces: Vec<Held>,
    pub(crate) step: Step,
    /// It flushes what went past the log, and belongs to no epoch.
    pub(crate) side: bool,
    /// It makes itself durable.
    pub(crate) fua: bool,
    /// The burst that it belongs to.
    pub(crate) burst: Option<BurstId>,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    New,
    /// From the log, which keeps what is being read.
    Gathering(Pin),
    Ready,
    Sent(Instant),
}

impl Job {
    /// A flush: of an epoch, or with `side` of what went past the log.
    pub(crate) fn flush(side: bool) -> Self {
        Self {
            op: Op::Flush,
            extent: Extent::default(),
            pieces: Vec::new(),
            step: Step::Ready,
            side,
            fua: false,
            burst: None,
        }
    }

    /// Bytes that it moves.
    pub(crate) fn bytes(&self) -> u64 {
        if self.op == Op::Write { self.extent.length } else { 0 }
    }

    /// The data of `held` is in record `copy` from now on.
    pub(crate) fn replace(&mut self, held: &Held, copy: u64) {
        let overlaps =
            |one: &Held| one.seq == held.seq && one.start < held.end && held.start < one.end;
        if !self.pieces.iter().any(overlaps) {
            return;
        }
        for one in core::mem::take(&mut self.pieces) {
            if !overlaps(&one) {
                self.pieces.push(one);
                continue;
            }
            let (start, end) = (one.start.max(held.start), one.end.min(held.end));
            let parts = [
                Held { end: start, ..one },
                Held { start, end, seq: copy },
                Held { start: end, ..one },
            ];
            self.pieces.extend(parts.into_iter().filter(|part| part.start < part.end));
        }
    }
}
