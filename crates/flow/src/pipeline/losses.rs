//! Losses of acknowledged data: what storage may not have made durable, and the volumes that may have lost some of it.
//!
//! | event | consequence |
//! |---|---|
//! | a write, without FUA, ends at storage | it is unflushed |
//! | a flush of its part ends that began after it had ended | it is not unflushed any more |
//! | the unit of a part was reset | the volume is lost if something of the part is unflushed |
//! | the unit of a part has lost a write | the same; a volume without a log is lost in any case |
//! | a write, without FUA, that began before either ends well after it | it is sent again: the unit may have done it before, and lost it, while the answer was on its way on another path |
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

/// The writes of hosts that a part of a volume has ended, how many of them a flush covers, and the losses of its unit.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    ended: u64,
    flushed: u64,
    /// How often the unit has said that it may have lost something.
    losses: u64,
}

impl VolumeLosses {
    fn none(volume: &Volume) -> Self {
        Self { parts: vec![Part::default(); volume.layout.parts()], lost: false }
    }
}

impl Losses {
    pub(super) fn new(volumes: &[Volume]) -> Self {
        Self(volumes.iter().map(VolumeLosses::none).collect())
    }

    /// A place, or the next one, has another volume, or none.
    pub(super) fn put(&mut self, id: VolumeId, volume: &Volume) {
        if id.index() == self.0.len() {
            self.0.push(VolumeLosses::none(volume));
        } else {
            self.0[id.index()] = VolumeLosses::none(volume);
        }
    }

    /// What a request that begins at a part now has to know when it ends: a flush, how many writes had ended; any other, how
    /// many losses there had been.
    pub(super) fn at_start(&self, request: &Request, part: u32) -> u64 {
        let part = &self.0[request.volume.index()].parts[part as usize];
        if request.op == Op::Flush { part.ended } else { part.losses }
    }

    /// Whether a request, which began when a part had had this number of losses, may have been done before the last of
    /// them. An update is durable when it ends.
    pub(super) fn may_be_lost(&self, request: &Request, part: u32, losses: u64) -> bool {
        let part = &self.0[request.volume.index()].parts[part as usize];
        let volatile = request.op.writes() && request.op != Op::Update && !request.fua;
        volatile && losses != part.losses
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
        let mut unflushed = false;
        for (index, part) in losses.parts.iter_mut().enumerate() {
            if volume.layout.backend(index) == backend {
                part.losses += 1;
                unflushed |= part.flushed < part.ended;
            }
        }
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
