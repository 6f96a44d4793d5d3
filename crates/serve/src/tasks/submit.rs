//! Commands become requests.

use super::Desk;
use crate::buffer::Shared;
use crate::frontend::connection::Connection;
use crate::ids::TaskKey;
use crate::limits::{PIECE, ZEROES_AT_ONCE};
use crate::storage::file::atomic_journal;
use crate::tasks::table::{Answer, Deed, End, Phase, Task};
use std::rc::Rc;
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Op, Request, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::{self, Sense};

/// What a command is counted for before it is taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Bytes that the host sends.
    pub(crate) data: u32,
    /// Bytes from the medium, or of a journal record.
    pub(crate) medium: u64,
}

impl Held {
    /// For something with the medium, of which the host sends so many bytes.
    pub(crate) fn of(media: &Media, data: u32, block: u32) -> Self {
        let medium = match media.op {
            MediaOp::WriteAtomic => atomic_journal::HEADER as u64 + u64::from(data),
            _ if media.needs_medium() => media.blocks * u64::from(block),
            _ => 0,
        };
        Self { data, medium }
    }

    /// All of it, in bytes.
    pub(crate) fn payload(self) -> u64 {
        u64::from(self.data) + self.medium
    }
}

impl Desk {
    /// Takes a command in if there is memory for its payload.
    pub(crate) fn take_in(
        &mut self,
        connection: &mut Connection,
        name: u32,
        held: Held,
        mut task: Task,
    ) -> Option<TaskKey> {
        let owner = connection.id.serial;
        let (data, medium) = self.set_aside(owner, held)?;
        let bytes = held.payload();
        *self.held.entry(owner).or_default() += bytes;
        task.connection = Some(connection.id);
        task.claim = connection.seat.as_ref().and_then(|seat| seat.claim);
        (task.owner, task.held, task.name) = (owner, bytes, name);
        (task.data, task.data_length, task.medium) = (data, held.data, medium);
        if matches!(task.deed, Deed::Media(_)) {
            self.enter_room(&mut task);
        }
        let key = self.tasks.insert(task);
        connection.tasks.insert(name, key);
        Some(key)
    }

    /// Buffers for a host's data and for the medium's; `None` if there is no memory for both.
    fn set_aside(&mut self, owner: u64, held: Held) -> Option<(Option<Shared>, Option<Shared>)> {
        if !self.may_hold(owner, held.payload()) {
            return None;
        }
        let mut take = |length: u64| match length {
            0 => Some(None),
            _ => self.pool.take(length as usize).map(Some),
        };
        let data = take(held.data.into())?;
        let Some(medium) = take(held.medium) else {
            if let Some(buffer) = data {
                self.pool.give(buffer);
            }
            return None;
        };
        Some((data, medium))
    }

    /// Counts more payload memory for a command that was taken in.
    pub(crate) fn charge(&mut self, key: TaskKey, bytes: u64) {
        let task = &mut self.tasks[key];
        task.held += bytes;
        *self.held.entry(task.owner).or_default() += bytes;
    }

    /// Copies write data to its place; what lies past the end of the command is not wanted.
    pub(crate) fn keep(&mut self, key: TaskKey, offset: usize, bytes: &[u8]) {
        let task = &mut self.tasks[key];
        let length = (task.data_length as usize).saturating_sub(offset).min(bytes.len());
        if let Some(buffer) = &mut task.data {
            let memory = Rc::get_mut(buffer).expect("nobody else has it before it is complete");
            if length > 0 {
                memory.bytes_mut()[offset..offset + length].copy_from_slice(&bytes[..length]);
            }
        }
    }

    /// All data of a command is here.
    pub(crate) fn begin(&mut self, connection: &Connection, key: TaskKey) {
        match self.tasks[key].deed {
            Deed::Parameters(..) => self.parameters(key),
            Deed::Map { .. } => self.map(key),
            Deed::Aside => self.leave_failure(key),
            Deed::Media(_) => match self.start(key, connection.link()) {
                Ok(()) => {}
                Err(Refusal::Full) => self.tasks[key].phase = FULL,
                Err(Refusal::Wrong(sense)) => self.decide(key, Answer::Refused(sense.into())),
            },
        }
        if let Phase::Flowing { left: 0, .. } = self.tasks[key].phase {
            self.errands.push_back(super::Errand::Answer(key));
        }
    }

    /// Turns a command whose data is complete into requests; none if there is nothing to do.
    pub(crate) fn start(&mut self, key: TaskKey, link: LinkId) -> Result<(), Refusal> {
        let task = &self.tasks[key];
        let volume = &self.volumes[task.volume];
        let block = u64::from(volume.block_size());
        let media = task.media();
        // What was gathered while a sanitize began would land behind it. A medium that has just been
        // ejected is still to be flushed.
        if !matches!(media.op, MediaOp::Synchronize { .. }) {
            volume.unit.ready()?;
        }
        let base = Request {
            tag: key.tag(),
            tenant: self.tenant(task.claim, task.volume),
            volume: VolumeId::new(task.volume as u32),
            link,
            op: Op::Read,
            extent: Extent::new(media.lba * block, media.blocks * block),
            fua: media.fua,
            ordered: task.ordered,
            job: false,
        };
        let op = match media.op {
            MediaOp::Read => Op::Read,
            MediaOp::Write => Op::Write,
            MediaOp::Verify(_) => Op::Verify,
            MediaOp::Synchronize { .. } => Op::Flush,
            MediaOp::WriteSame { unmap, .. } => self.write_same(key, unmap)?,
            MediaOp::WriteVerify(_)
            | MediaOp::CompareAndWrite
            | MediaOp::OrWrite
            | MediaOp::WriteAtomic => Op::Update,
            MediaOp::Unmap { .. } => {
                let extents = volume.unmap_list(task.bytes())?;
                self.unmap(key, &base, &extents);
                return Ok(());
            }
        };
        let extent = match media.op {
            MediaOp::Synchronize { .. } => Extent::default(),
            // The host may have fewer blocks than its CDB says; what it has is written.
            MediaOp::Write | MediaOp::WriteVerify(_) => {
                Extent::new(base.extent.offset, self.tasks[key].data_length.into())
            }
            _ => base.extent,
        };
        if op != Op::Flush && extent.length == 0 {
            // Nothing to do is done at once, in order with nothing.
            self.tasks[key].phase = Phase::Flowing { left: 0, end: End::Good };
            return Ok(());
        }
        let task = &mut self.tasks[key];
        if matches!(op, Op::Discard | Op::WriteZeroes) {
            task.rest = extent;
            self.next_step(key, link);
            return Ok(());
        }
        task.phase = Phase::Flowing { left: 1, end: End::Good };
        self.inbox.push_back(Input::Arrive(Request { op, extent, ..base }));
        Ok(())
    }

    /// What WRITE SAME amounts to. A pattern that is not zero is repeated over a whole buffer, so
    /// that it can be written in large pieces.
    fn write_same(&mut self, key: TaskKey, unmap: bool) -> Result<Op, Refusal> {
        let task = &mut self.tasks[key];
        if task.bytes().iter().all(|&byte| byte == 0) {
            return Ok(if unmap { Op::Discard } else { Op::WriteZeroes });
        }
        let block = task.data_length as usize;
        let length = (task.media().blocks as usize).saturating_mul(block).min(PIECE as usize);
        let owner = task.owner;
        if !self.may_hold(owner, length as u64) {
            return Err(Refusal::Full);
        }
        let Some(mut repeated) = self.pool.take(length) else {
            return Err(Refusal::Full);
        };
        self.charge(key, length as u64);
        let task = &mut self.tasks[key];
        let source = task.data.take().expect("it is not zero, so it is there");
        let memory = Rc::get_mut(&mut repeated).expect("fresh from the pool").bytes_mut();
        for target in memory.chunks_exact_mut(block) {
            target.copy_from_slice(&source.bytes()[..block]);
        }
        self.pool.give(source);
        task.data = Some(repeated);
        Ok(Op::Write)
    }

    fn unmap(&mut self, key: TaskKey, base: &Request, extents: &[Extent]) {
        let left = extents.len() as u32;
        self.tasks[key].phase = Phase::Flowing { left, end: End::Good };
        for &extent in extents {
            self.inbox.push_back(Input::Arrive(Request { op: Op::Discard, extent, ..*base }));
        }
    }

    /// Goes on with a command whose requests have ended well but that has more to do; true if it is
    /// not over. Only NBD asks for so much at once that it takes steps.
    pub(crate) fn go_on(&mut self, key: TaskKey, link: LinkId) -> bool {
        let task = &self.tasks[key];
        let Phase::Flowing { left: 0, end: End::Good } = task.phase else { return false };
        if task.rest.length == 0 || task.connection.is_none() {
            // All is done, or nobody wants the rest any more.
            return false;
        }
        if let Err(refusal) = self.admit_rest(key) {
            self.decide(key, Answer::Refused(refusal));
        } else {
            self.next_step(key, link);
        }
        true
    }

    /// Whether an NBD client may still do what is left of its request: much may have happened since
    /// the last step.
    pub(crate) fn admit_rest(&self, key: TaskKey) -> Result<(), scsi::nexus::Refusal> {
        let task = &self.tasks[key];
        let unit = &self.volumes[task.volume].unit;
        let (media, block) = (task.media(), u64::from(unit.disk().block_size));
        let media = match media.op {
            MediaOp::WriteSame { .. } => {
                let most = unit.disk().max_write_same_blocks;
                let blocks = (task.rest.length / block).min(most);
                Media { lba: task.rest.offset / block, blocks, ..media }
            }
            _ => media,
        };
        unit.admit(None, media).map(drop)
    }

    /// Zeroes the next part of what is left, or gives it back: so many bytes at a time, that others
    /// come in between.
    pub(crate) fn next_step(&mut self, key: TaskKey, link: LinkId) {
        let task = &mut self.tasks[key];
        let unmap = match task.media().op {
            MediaOp::WriteSame { unmap, .. } => unmap,
            other => unreachable!("only zeroes are written step by step: {other:?}"),
        };
        let length = task.rest.length.min(ZEROES_AT_ONCE);
        task.step = Extent::new(task.rest.offset, length);
        task.rest = Extent::new(task.rest.offset + length, task.rest.length - length);
        task.phase = Phase::Flowing { left: 1, end: End::Good };
        let (volume, claim) = (task.volume, task.claim);
        self.inbox.push_back(Input::Arrive(Request {
            tag: key.tag(),
            tenant: self.tenant(claim, volume),
            volume: VolumeId::new(volume as u32),
            link,
            op: if unmap { Op::Discard } else { Op::WriteZeroes },
            extent: self.tasks[key].step,
            fua: self.tasks[key].media().fua,
            ordered: self.tasks[key].ordered,
            job: false,
        }));
    }
}

/// Why a command is answered without a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is wrong.
    Wrong(Sense),
    /// There is no memory for it now; the host may try again.
    Full,
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Self::Wrong(sense)
    }
}

/// The phase of a command that no request was made of for want of memory.
const FULL: Phase = Phase::Flowing { left: 0, end: End::Full };
