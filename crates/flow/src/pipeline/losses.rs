//! Losses of acknowledged data: what storage may not have made durable, and the volumes that may have lost some of it.
//!
//! | event | consequence |
//! |---|---|
//! | a write, without FUA, ends at storage | it is unflushed |
//! | a flush of its part ends that began after it had ended | it is not unflushed any more |
//! | the unit of a part was reset | the volume is lost if something of the part is unflushed |
//! | the unit of a part has lost a write | the same; a volume without a log is lost in any case |
//!
//! From then on no flush of a host ends well: one that did would promise what is gone. Write-back has its own flushes,
//! and what it has written is not counted: the log has it until it is flushed, and writes it again.
//!
//! Cost: O(1) for a write or a flush at storage, nothing for a read.

use crate::accept::Volume;
use crate::error::IoError;
use crate::request::{BackendId, Op, Outcome, Request, VolumeId};
use alloc::vec;
use alloc::vec::Vec;

/// The losses of all volumes.
#[derive(Clone, Debug)]
pub(super) struct Losses(Vec<VolumeLosses>);

#[derive(Clone, Debug)]
struct VolumeLosses {
    parts: Vec<Part>,
    lost: bool,
}

/// The writes of hosts that a part of a volume has ended, and how many of them a flush covers.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    ended: u64,
    flushed: u64,
}

impl Losses {
    pub(super) fn new(volumes: &[Volume]) -> Self {
        let of = |volume: &Volume| VolumeLosses {
            parts: vec![Part::default(); volume.layout.parts()],
            lost: false,
        };
        Self(volumes.iter().map(of).collect())
    }

    /// How many writes of a part have ended, for a flush that begins now.
    pub(super) fn ended(&self, volume: VolumeId, part: u32) -> u64 {
        self.0[volume.index()].parts[part as usize].ended
    }

    /// A part of a volume has ended a request. A flush covers the first `covered` writes.
    pub(super) fn stored(&mut self, request: &Request, part: u32, covered: u64, outcome: Outcome) {
        let part = &mut self.0[request.volume.index()].parts[part as usize];
        if outcome.is_err() {
            return;
        }
        if request.op == Op::Flush {
            part.flushed = part.flushed.max(covered);
        } else if request.op.writes() && !request.fua {
            part.ended += 1;
        }
        assert!(part.flushed <= part.ended, "a flush covers what had ended: {part:?}");
    }

    /// Writes may have bypassed the log of a volume before it was opened.
    pub(super) fn bypassed(&mut self, volume: VolumeId) {
        for part in &mut self.0[volume.index()].parts {
            part.ended += 1;
        }
    }

    /// The unit of a volume's parts on `backend` has lost what was not flushed, or with `certain` something at all.
    /// Whether the volume is lost by that and was not before.
    pub(super) fn lose(
        &mut self,
        (id, volume): (VolumeId, &Volume),
        backend: BackendId,
        certain: bool,
    ) -> bool {
        let losses = &mut self.0[id.index()];
        let mut parts = losses.parts.iter().enumerate();
        let unflushed = parts.any(|(index, part)| {
            volume.layout.backend(index) == backend && part.flushed < part.ended
        });
        (certain || unflushed) && !core::mem::replace(&mut losses.lost, true)
    }

    /// Whether a volume has lost what hosts had been told is done.
    pub(super) fn is_lost(&self, volume: VolumeId) -> bool {
        self.0[volume.index()].lost
    }

    /// The outcome that a host gets.
    pub(super) fn told(&self, request: &Request, outcome: Outcome) -> Outcome {
        if request.op == Op::Flush && self.is_lost(request.volume) {
            return outcome.and(Err(IoError::Medium));
        }
        outcome
    }
}
