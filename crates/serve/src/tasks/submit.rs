//! Turns commands into requests of the pipeline.

use super::set::TaskSet;
use crate::ids::TaskKey;
use crate::limits::{PIECE, ZEROES_AT_ONCE};
use crate::tasks::table::{Answer, End, Phase, Retries};
use crate::volume::catalog::Catalog;
use std::rc::Rc;
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Op, Request, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::nexus::RegistrantRef;
use weir_wire::scsi::{self, Sense};

impl TaskSet {
    /// Turns a command whose data is complete into requests; false if there is nothing to do, so that it is over.
    pub(crate) fn start(
        &mut self,
        catalog: &Catalog,
        key: TaskKey,
        link: LinkId,
    ) -> Result<bool, Refusal> {
        let task = &self.tasks[key];
        let volume = &catalog.volumes[task.volume];
        let block = u64::from(volume.block_size());
        let media = task.media();
        // What was gathered while a sanitize began would land behind it. A medium that has just been
        // ejected is still to be flushed.
        if !matches!(media.op, MediaOp::Synchronize { .. }) {
            volume.unit.ready()?;
        }
        let base = Request {
            tag: key.tag(),
            tenant: catalog.tenant(task.claim, task.volume),
            volume: VolumeId::new(task.volume as u32),
            link,
            op: Op::Read,
            extent: Extent::new(media.lba * block, media.blocks * block),
            // Both are durable when they are done, whatever the FUA bit says: a loss takes nothing of them.
            fua: media.fua || matches!(media.op, MediaOp::WriteVerify(_) | MediaOp::WriteAtomic),
            ordered: task.order.ordered,
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
                return Ok(!extents.is_empty());
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
            self.tasks[key].phase = Phase::InPipeline { left: 0, end: End::Good };
            return Ok(false);
        }
        let task = &mut self.tasks[key];
        if matches!(op, Op::Discard | Op::WriteZeroes) {
            task.steps.rest = extent;
            self.next_step(catalog, key, link);
            return Ok(true);
        }
        task.phase = Phase::InPipeline { left: 1, end: End::Good };
        self.inputs.push_back(Input::Arrive(Request { op, extent, ..base }));
        Ok(true)
    }

    /// The operation of a WRITE SAME. A pattern that is not zero is repeated over a whole buffer, so
    /// that it can be written in large pieces.
    fn write_same(&mut self, key: TaskKey, unmap: bool) -> Result<Op, Refusal> {
        let task = &mut self.tasks[key];
        if task.bytes().iter().all(|&byte| byte == 0) {
            return Ok(if unmap { Op::Discard } else { Op::WriteZeroes });
        }
        let block = task.data_length as usize;
        let length = (task.media().blocks as usize).saturating_mul(block).min(PIECE as usize);
        let owner = task.charge.owner;
        if !self.may_hold(owner, length as u64) {
            return Err(Refusal::Full);
        }
        let Some(mut repeated) = self.memory.take(length) else {
            return Err(Refusal::Full);
        };
        self.charge(key, length as u64);
        let task = &mut self.tasks[key];
        let source = task.data.take().expect("it is not zero, so it is there");
        let memory = Rc::get_mut(&mut repeated).expect("fresh from the pool").bytes_mut();
        for target in memory.chunks_exact_mut(block) {
            target.copy_from_slice(&source.bytes()[..block]);
        }
        self.memory.give(source);
        task.data = Some(repeated);
        Ok(Op::Write)
    }

    fn unmap(&mut self, key: TaskKey, base: &Request, extents: &[Extent]) {
        let left = extents.len() as u32;
        self.tasks[key].phase = Phase::InPipeline { left, end: End::Good };
        for &extent in extents {
            self.inputs.push_back(Input::Arrive(Request { op: Op::Discard, extent, ..*base }));
        }
    }

    /// Continues a command whose requests have ended well but that has more to do; true if it is
    /// not over. Only NBD asks for so much at once that it takes steps.
    pub(crate) fn go_on(&mut self, catalog: &Catalog, key: TaskKey, link: LinkId) -> bool {
        let task = &self.tasks[key];
        let Phase::InPipeline { left: 0, end: End::Good } = task.phase else { return false };
        if task.steps.rest.length == 0 || task.connection.is_none() {
            // All is done, or the host is gone and the rest is not wanted.
            return false;
        }
        if let Err(refusal) = self.admit_rest(catalog, key) {
            self.decide(key, Answer::Refused(refusal));
        } else {
            self.next_step(catalog, key, link);
        }
        true
    }

    /// Whether a client of NBD or an NVMe host may still do what is left of its request: much may have happened since
    /// the last step.
    pub(crate) fn admit_rest(
        &self,
        catalog: &Catalog,
        key: TaskKey,
    ) -> Result<(), scsi::nexus::Refusal> {
        let task = &self.tasks[key];
        if task.retries == Retries::Own {
            return Ok(());
        }
        let unit = &catalog.volumes[task.volume].unit;
        let (media, block) = (task.media(), u64::from(unit.disk().block_size));
        let media = match media.op {
            MediaOp::WriteSame { .. } => {
                let most = unit.disk().max_write_same_blocks;
                let blocks = (task.steps.rest.length / block).min(most);
                Media { lba: task.steps.rest.offset / block, blocks, ..media }
            }
            _ => media,
        };
        let host = task.connection.and_then(|id| self.sessions.host_of(id));
        unit.admit(host.map(RegistrantRef::Nvme), media).map(drop)
    }

    /// Zeroes the next part of what is left, or gives it back: a bounded number of bytes at a time, so that others
    /// come in between.
    pub(crate) fn next_step(&mut self, catalog: &Catalog, key: TaskKey, link: LinkId) {
        let task = &mut self.tasks[key];
        let unmap = match task.media().op {
            MediaOp::WriteSame { unmap, .. } => unmap,
            other => unreachable!("only zeroes are written step by step: {other:?}"),
        };
        let length = task.steps.rest.length.min(ZEROES_AT_ONCE);
        task.steps.current = Extent::new(task.steps.rest.offset, length);
        task.steps.rest =
            Extent::new(task.steps.rest.offset + length, task.steps.rest.length - length);
        task.phase = Phase::InPipeline { left: 1, end: End::Good };
        let (volume, claim) = (task.volume, task.claim);
        self.inputs.push_back(Input::Arrive(Request {
            tag: key.tag(),
            tenant: catalog.tenant(claim, volume),
            volume: VolumeId::new(volume as u32),
            link,
            op: if unmap { Op::Discard } else { Op::WriteZeroes },
            extent: self.tasks[key].steps.current,
            fua: self.tasks[key].media().fua,
            ordered: self.tasks[key].order.ordered,
            job: false,
        }));
    }

    /// A request that the pipeline had no room for is tried again when something has ended.
    pub(crate) fn try_again(&mut self, catalog: &Catalog, key: TaskKey) {
        let link = self.link(key);
        let Some(task) = self.tasks.get(key) else { return };
        if task.connection.is_none() {
            self.finish(key);
            return;
        }
        if let Err(refusal) = self.admit_rest(catalog, key) {
            self.decide(key, Answer::Refused(refusal));
            return;
        }
        if self.tasks[key].steps.rest.length > 0 {
            self.next_step(catalog, key, link);
            return;
        }
        match self.start(catalog, key, link) {
            Ok(_) => {}
            Err(Refusal::Full) => self.again.push_back(key),
            Err(Refusal::Wrong(sense)) => self.decide(key, Answer::Refused(sense.into())),
        }
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
pub(super) const FULL: Phase = Phase::InPipeline { left: 0, end: End::Full };
