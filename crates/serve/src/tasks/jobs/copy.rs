//! EXTENDED COPY: blocks from one volume to another without passing through a host.

use super::{Job, JobContext, JobKey, Jobs, Step, Stepped};
use crate::buffer::Shared;
use crate::ids::TaskKey;
use crate::limits::PIECE;
use crate::tasks::table::Answer;
use std::rc::Rc;
use tracing::info;
use weir_flow::error::IoError;
use weir_flow::request::Op;
use weir_flow::units::Extent;
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::copy::{CONCURRENT_MAX, Move, Plan, Progress, Side, State};
use weir_wire::scsi::disk::DiskInfo;
use weir_wire::scsi::nexus::{Nexus, Refusal, RegistrantRef};

/// A copy in progress.
#[derive(Debug)]
pub(crate) struct Copy {
    /// The command, answered at the end.
    pub(super) key: TaskKey,
    nexus: Rc<Nexus>,
    plan: Plan,
    /// The volumes of the command and of its targets that the host sees, and the place of the first among them.
    volumes: Vec<usize>,
    own: usize,
    /// The segment that is being copied.
    number: usize,
    step: Option<Move>,
    /// Bytes of the segment, and how many of them are copied.
    length: u64,
    done: u64,
    /// What was read waits to be written.
    full: bool,
    /// Bytes copied in all.
    bytes: u64,
    failed: Option<IoError>,
    pub(super) buffer: Option<Shared>,
}

impl Copy {
    /// Whether it reads or writes this volume, or its command is one of it.
    pub(super) fn uses(&self, volume: usize) -> bool {
        self.volumes.contains(&volume)
    }

    /// A read or a write has ended.
    pub(super) fn stepped(&mut self, result: Stepped) {
        match (result, self.full) {
            (Err(error), _) => self.failed = Some(error),
            (Ok(()), false) => self.full = true,
            (Ok(()), true) => {
                let chunk = self.chunk();
                self.done += chunk;
                self.bytes += chunk;
                self.full = false;
            }
        }
    }

    /// Bytes of the piece that is copied now.
    fn chunk(&self) -> u64 {
        PIECE.min(self.length - self.done)
    }
}

impl Jobs {
    /// Begins a copy for a command that waits aside.
    pub(crate) fn copy(
        &mut self,
        cx: &mut JobContext<'_>,
        key: TaskKey,
        nexus: &Rc<Nexus>,
        plan: Plan,
        mut volumes: Vec<usize>,
    ) {
        let own = cx.set.tasks[key].volume;
        // The others may go while it runs.
        volumes.retain(|&volume| {
            let disk = cx.catalog.volumes[volume].unit.disk();
            volume == own || plan.targets.iter().any(|target| target.names(disk))
        });
        let Some(own) = volumes.iter().position(|&volume| volume == own) else {
            // It was hidden from the host while the list was on its way.
            cx.set.decide(key, Answer::Refused(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into()));
            return;
        };
        let copies = self.running.values().filter(|job| matches!(job, Job::Copy(_))).count();
        let owner = cx.set.tasks[key].charge.owner;
        if copies >= CONCURRENT_MAX.into() || !cx.set.may_hold(owner, PIECE) {
            cx.set.decide(key, Answer::Busy);
            return;
        }
        cx.set.charge(key, PIECE);
        let progress = Progress { state: State::InProgress, segments: 0, bytes: 0 };
        cx.catalog.volumes[volumes[own]].unit.copy_progressed(nexus, &plan, progress);
        let copy = Copy {
            key,
            nexus: nexus.clone(),
            plan,
            volumes,
            own,
            number: 0,
            step: None,
            length: 0,
            done: 0,
            full: false,
            bytes: 0,
            failed: None,
            buffer: None,
        };
        let job = self.running.insert(Job::Copy(copy));
        self.copy_on(cx, job);
    }

    /// Does the next piece, or ends the copy.
    pub(super) fn copy_on(&mut self, cx: &mut JobContext<'_>, job: JobKey) {
        let step = match self.next_piece(cx, job) {
            Ok(Some(step)) => step,
            Ok(None) => return self.copied(cx, job, Ok(())),
            Err(Halt::Failed(refusal)) => return self.copied(cx, job, Err(refusal)),
            Err(Halt::NoRoom) => return self.stall(job),
        };
        self.make_step(cx, job, step);
    }

    /// The next piece; none if all is copied.
    fn next_piece(&mut self, cx: &mut JobContext<'_>, job: JobKey) -> Result<Option<Step>, Halt> {
        let Job::Copy(copy) = &mut self.running[job] else { unreachable!("asked of a copy") };
        if cx.set.tasks[copy.key].connection.is_none() {
            // It was aborted, or its host is gone.
            return Err(Sense::COPY_ABORTED.into());
        }
        let segment = loop {
            if copy.number == copy.plan.segments.len() {
                return Ok(None);
            }
            let segment = if let Some(segment) = copy.step {
                segment
            } else {
                let volumes = copy.volumes.iter();
                let disks: Vec<&DiskInfo> =
                    volumes.map(|&index| cx.catalog.volumes[index].unit.disk()).collect();
                let segment = copy.plan.resolve(copy.number, copy.own, &disks)?;
                let block = u64::from(disks[segment.source].block_size);
                copy.length = u64::from(segment.from.blocks) * block;
                *copy.step.insert(segment)
            };
            if let Some(error) = copy.failed {
                let side = if copy.full { Side::Destination } else { Side::Source };
                let volume = &cx.catalog.volumes[copy.volumes[copy.own]].name;
                let origin = format_args!("volume {volume}");
                cx.set.log.line(cx.set.now, origin, "a copy has failed", |text| {
                    info!(%volume, %error, segment = copy.number, "{text}");
                });
                let block = cx.catalog.volumes[copy.volumes[segment.destination]].block_size();
                let written = (copy.done / u64::from(block)) as u32;
                return Err(copy.plan.failed(&segment, side, written).into());
            }
            if copy.done < copy.length {
                break segment;
            }
            (copy.number, copy.step, copy.done) = (copy.number + 1, None, 0);
        };
        let chunk = copy.chunk();
        let place =
            if segment.from_the_end() { copy.length - copy.done - chunk } else { copy.done };
        let (place_of, range, op) = if copy.full {
            (segment.destination, segment.to, Op::Write)
        } else {
            (segment.source, segment.from, Op::Read)
        };
        let index = copy.volumes[place_of];
        let volume = &cx.catalog.volumes[index];
        let block = u64::from(volume.block_size());
        let extent = Extent::new(range.lba * block + place, chunk);
        let media = Media {
            op: if copy.full { MediaOp::Write } else { MediaOp::Read },
            lba: extent.offset / block,
            blocks: chunk / block,
            fua: false,
            dpo: false,
        };
        let Ok(Media { fua, .. }) =
            volume.unit.admit(Some(RegistrantRef::Scsi(&copy.nexus)), media)
        else {
            // Reserved by another host, or taken away meanwhile.
            let side = if copy.full { Side::Destination } else { Side::Source };
            return Err(copy.plan.failed(&segment, side, 0).into());
        };
        let buffer = match copy.buffer.take() {
            Some(buffer) => buffer,
            None => cx.set.memory.take(PIECE as usize).ok_or(Halt::NoRoom)?,
        };
        Ok(Some(Step { volume: index, op, extent, fua, buffer: Some(buffer) }))
    }

    /// The copy has ended.
    fn copied(&mut self, cx: &mut JobContext<'_>, job: JobKey, result: Result<(), Refusal>) {
        let Some(Job::Copy(copy)) = self.running.remove(job) else {
            unreachable!("asked of a copy")
        };
        if let Some(buffer) = copy.buffer {
            cx.set.memory.give(buffer);
        }
        let state = match result {
            Ok(()) => State::Done,
            Err(Refusal::Check(sense)) => State::Failed(sense),
            Err(Refusal::Conflict) => State::Failed(Sense::COPY_ABORTED),
        };
        let segments = (copy.number + 1).min(copy.plan.segments.len()) as u16;
        let progress = Progress { state, segments, bytes: copy.bytes };
        let unit = &mut cx.catalog.volumes[copy.volumes[copy.own]].unit;
        unit.copy_progressed(&copy.nexus, &copy.plan, progress);
        let volume = &cx.catalog.volumes[copy.volumes[copy.own]].name;
        cx.set.log.line(cx.set.now, format_args!("volume {volume}"), "copy", |text| {
            info!(%volume, bytes = copy.bytes, ok = result.is_ok(), "{text}");
        });
        cx.set.decide(copy.key, result.map_or_else(Answer::Refused, |()| Answer::Good));
    }
}

/// Why a copy has ended.
enum Halt {
    /// For good.
    Failed(Refusal),
    /// There is no buffer for it now.
    NoRoom,
}

impl From<Sense> for Halt {
    fn from(sense: Sense) -> Self {
        Self::Failed(sense.into())
    }
}
