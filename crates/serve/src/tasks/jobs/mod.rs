//! Jobs, which need many requests for one command: copies between volumes, and sanitize.
//!
//! A job makes one request after another, through the whole pipeline, so that it is ordered with what
//! hosts do, held by the same policies and counted like anything else. Each step is a command without
//! a host ([`Task::job`](crate::tasks::table::Task::job)); its end brings the next. A step that finds no room
//! is tried again when something else has ended.

mod copy;
mod sanitize;

use crate::buffer::Shared;
use crate::ids::{JobKey, TaskKey};
use crate::storage::blocking::Run;
use crate::tasks::blocking_calls::BlockingCalls;
use crate::tasks::set::TaskSet;
use crate::tasks::table::{Answer, End, Phase, Task, TaskKind};
use crate::volume::catalog::Catalog;
use slotmap::SlotMap;
use std::collections::VecDeque;
use std::io;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Op, Request, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};

pub(crate) use copy::Copy;
pub(crate) use sanitize::Sanitize;

/// A job in progress.
#[derive(Debug)]
pub(crate) enum Job {
    /// EXTENDED COPY.
    Copy(Copy),
    /// SANITIZE.
    Sanitize(Sanitize),
}

/// What a job does with a volume next.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Index of the volume.
    pub(crate) volume: usize,
    /// What is done.
    pub(crate) op: Op,
    /// With which bytes.
    pub(crate) extent: Extent,
    /// Durable when done.
    pub(crate) fua: bool,
    /// The data, or where it goes.
    pub(crate) buffer: Option<Shared>,
}

/// The jobs that have not ended.
///
/// Invariant: a job has one step in the pipeline, one call at a helper thread, or a place in `stalled`.
#[derive(Default)]
pub(crate) struct Jobs {
    running: SlotMap<JobKey, Job>,
    /// Steps that were refused for want of room, to be tried again when a task ends.
    stalled: VecDeque<JobKey>,
    /// The gateway is about to leave: jobs begin no further step.
    stopping: bool,
}

/// What jobs need from others.
pub(crate) struct JobContext<'a> {
    pub(crate) set: &'a mut TaskSet,
    pub(crate) catalog: &'a mut Catalog,
    pub(crate) blocking: &'a mut BlockingCalls,
}

impl Jobs {
    /// Ends each job at its next step; what it was doing continues after a restart, or was asked for by a
    /// host that receives the announcement of the stop.
    pub(crate) const fn stop(&mut self) {
        self.stopping = true;
    }

    /// The job that a volume is used for, if there is one.
    pub(crate) fn of(&self, volume: usize) -> Option<&'static str> {
        self.running.values().find_map(|job| match job {
            Job::Copy(copy) => copy.uses(volume).then_some("an EXTENDED COPY"),
            Job::Sanitize(sanitize) => (sanitize.volume() == volume).then_some(SANITIZE),
        })
    }

    /// The job that a volume is used for that not even force takes it away from: a sanitize is a promise of the gateway. A
    /// copy is the wish of a host, and of a volume that leaves it ends first.
    pub(crate) fn holding(&self, volume: usize) -> Option<&'static str> {
        self.of(volume).filter(|&job| job == SANITIZE)
    }

    /// Tries again the steps that found no room.
    pub(crate) fn retry(&mut self, cx: &mut JobContext<'_>) {
        for job in std::mem::take(&mut self.stalled) {
            self.go_on_with(cx, job);
        }
    }

    /// The map that a job has asked for is there.
    pub(crate) fn job_mapped(
        &mut self,
        cx: &mut JobContext<'_>,
        job: JobKey,
        runs: io::Result<Vec<Run>>,
    ) {
        let Job::Sanitize(sanitize) = &mut self.running[job] else {
            unreachable!("copies ask for no map")
        };
        sanitize.mapped(runs);
        self.go_on_with(cx, job);
    }

    /// Makes the next request of a job, or notes that it must wait.
    fn make_step(&mut self, cx: &mut JobContext<'_>, job: JobKey, step: Step) {
        let Step { volume, op, extent, fua, buffer } = step;
        let block = u64::from(cx.catalog.volumes[volume].block_size());
        let media = Media {
            op: match op {
                Op::Read => MediaOp::Read,
                Op::Write => MediaOp::Write,
                Op::Flush => MediaOp::Synchronize { immediate: false },
                Op::Discard => MediaOp::WriteSame { unmap: true, no_data: true },
                Op::WriteZeroes => MediaOp::WriteSame { unmap: false, no_data: true },
                Op::Verify | Op::Update => unreachable!("no job verifies or updates"),
            },
            lba: extent.offset / block,
            blocks: extent.length / block,
            fua,
            dpo: false,
        };
        // A copy belongs to who asked for it, and a log counts its writes as those of that host; a sanitize, which outlives
        // him, belongs to the volume, which has no log. The replies of jobs leave by no link.
        let (claim, link) = match &self.running[job] {
            Job::Copy(copy) => (cx.set.tasks[copy.key].claim, cx.set.link(copy.key)),
            Job::Sanitize(_) => (None, LinkId::new(0)),
        };
        let mut task = Task::new(cx.set.now, volume, TaskKind::Media(media));
        task.job = Some(job);
        task.phase = Phase::InPipeline { left: 1, end: End::Good };
        match op {
            Op::Read => task.medium = buffer,
            _ => task.data = buffer,
        }
        let key = cx.set.tasks.insert(task);
        cx.set.inputs.push_back(Input::Arrive(Request {
            tag: key.tag(),
            tenant: cx.catalog.tenant(claim, volume),
            volume: VolumeId::new(volume as u32),
            link,
            op,
            extent,
            fua,
            ordered: false,
            job: true,
        }));
    }

    /// A step of a job has ended.
    pub(crate) fn job_stepped(&mut self, cx: &mut JobContext<'_>, job: JobKey, key: TaskKey) {
        let task = &mut cx.set.tasks[key];
        let Phase::InPipeline { end, .. } = task.phase else { unreachable!("steps of jobs flow") };
        // The job keeps its buffer for the next step.
        let buffer = task.data.take().or(task.medium.take());
        cx.set.finish(key);
        let result = match end {
            End::Good => Ok(()),
            End::Full | End::Failed(IoError::Busy) => {
                self.put_back(job, buffer);
                self.stall(job);
                return;
            }
            End::Failed(error) => Err(error),
        };
        self.put_back(job, buffer);
        match &mut self.running[job] {
            Job::Copy(copy) => copy.stepped(result),
            Job::Sanitize(sanitize) => sanitize.stepped(result),
        }
        self.go_on_with(cx, job);
    }

    fn put_back(&mut self, job: JobKey, buffer: Option<Shared>) {
        match &mut self.running[job] {
            Job::Copy(copy) => copy.buffer = buffer,
            Job::Sanitize(sanitize) => sanitize.buffer = buffer,
        }
    }

    /// Does what a job wants done next.
    pub(crate) fn go_on_with(&mut self, cx: &mut JobContext<'_>, job: JobKey) {
        if self.stopping {
            self.leave_off(cx, job);
            return;
        }
        match &self.running[job] {
            Job::Copy(_) => self.copy_on(cx, job),
            Job::Sanitize(_) => self.sanitize_on(cx, job),
        }
    }

    /// The gateway leaves: the job ends here, and its command with it. The state file still says what
    /// must continue after a restart.
    fn leave_off(&mut self, cx: &mut JobContext<'_>, job: JobKey) {
        let (buffer, key) = match self.running.remove(job) {
            None => return,
            Some(Job::Copy(copy)) => (copy.buffer, Some(copy.key)),
            Some(Job::Sanitize(sanitize)) => (sanitize.buffer, sanitize.key),
        };
        if let Some(buffer) = buffer {
            cx.set.memory.give(buffer);
        }
        if let Some(key) = key {
            cx.set.decide(key, Answer::Refused(Sense::LOGICAL_UNIT_NOT_READY.into()));
        }
    }

    /// The job continues when something else has ended.
    fn stall(&mut self, job: JobKey) {
        self.stalled.push_back(job);
    }
}

const SANITIZE: &str = "a SANITIZE";

/// What a step failed with.
type Stepped = Result<(), IoError>;
