//! Commands become requests.

use super::{Desk, PIECE};
use crate::buffer::Shared;
use crate::disk::journal;
use crate::listen::connection::Connection;
use crate::task::{Answer, Deed, End, Phase, Task, TaskKey};
use std::rc::Rc;
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Op, Request, TenantId, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};

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
            MediaOp::WriteAtomic => journal::HEADER as u64 + u64::from(data),
            _ if media.needs_medium() => media.blocks * u64::from(block),
            _ => 0,
        };
        Self { data, medium }
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
        let bytes = u64::from(held.data) + held.medium;
        *self.held.entry(owner).or_default() += bytes;
        task.connection = Some(connection.id);
        (task.owner, task.held, task.name) = (owner, bytes, name);
        (task.data, task.data_length, task.medium) = (data, held.data, medium);
        let key = self.tasks.insert(task);
        connection.tasks.insert(name, key);
        Some(key)
    }

    /// Buffers for a host's data and for the medium's; `None` if there is no memory for both.
    fn set_aside(&mut self, owner: u64, held: Held) -> Option<(Option<Shared>, Option<Shared>)> {
        if !self.may_hold(owner, u64::from(held.data) + held.medium) {
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
            Deed::Aside => unreachable!("what a job does for a host has begun already"),
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
            tenant: TenantId::new(volume.tenant as u32),
            volume: VolumeId::new(task.volume as u32),
            link,
            op: Op::Read,
            extent: Extent::new(media.lba * block, media.blocks * block),
            fua: media.fua,
            ordered: task.ordered,
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
        let first = match op {
            // So many at a time, that others come in between.
            Op::Discard | Op::WriteZeroes => extent.length.min(ZEROES_AT_ONCE),
            _ => extent.length,
        };
        let task = &mut self.tasks[key];
        task.rest = Extent::new(extent.offset + first, extent.length - first);
        task.phase = Phase::Flowing { left: 1, end: End::Good };
        let extent = Extent::new(extent.offset, first);
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
        let Some(mut repeated) = self.pool.take(length) else {
            return Err(Refusal::Full);
        };
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

    /// Goes on with a command whose requests have ended well but that has more to do; true if there
    /// was more.
    pub(crate) fn go_on(&mut self, key: TaskKey, link: LinkId) -> bool {
        let task = &mut self.tasks[key];
        let Phase::Flowing { left: 0, end: End::Good } = task.phase else { return false };
        if task.rest.length == 0 || task.connection.is_none() {
            // All is done, or nobody wants the rest any more.
            return false;
        }
        let MediaOp::WriteSame { unmap, .. } = task.media().op else {
            unreachable!("only zeroes are written step by step")
        };
        let length = task.rest.length.min(ZEROES_AT_ONCE);
        let extent = Extent::new(task.rest.offset, length);
        task.rest = Extent::new(task.rest.offset + length, task.rest.length - length);
        task.phase = Phase::Flowing { left: 1, end: End::Good };
        let (volume, fua) = (task.volume, task.media().fua);
        self.inbox.push_back(Input::Arrive(Request {
            tag: key.tag(),
            tenant: TenantId::new(self.volumes[volume].tenant as u32),
            volume: VolumeId::new(volume as u32),
            link,
            op: if unmap { Op::Discard } else { Op::WriteZeroes },
            extent,
            fua,
            ordered: false,
        }));
        true
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

/// Bytes that are zeroed or given back in one request. A host that asks for more at once, as NBD
/// lets it, has it done in steps of this size.
pub(crate) const ZEROES_AT_ONCE: u64 = 16 * PIECE;
