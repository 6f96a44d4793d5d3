//! What a host sets going that takes many requests: copies between volumes, and sanitizing.
//!
//! A job makes one request after another, through the whole pipeline, so that it is ordered with what
//! hosts do, held by the same policies and counted like anything else. Each step is a command without
//! a host ([`Task::job`](crate::tasks::table::Task::job)); its end brings the next. A step that finds no room
//! is tried again when something else has ended.

mod copy;
mod sanitize;

use crate::buffer::Shared;
use crate::ids::{JobKey, TaskKey};
use crate::tasks::Desk;
use crate::tasks::table::{Answer, Deed, End, Phase, Task};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Op, Request, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};

pub(crate) use copy::Copy;
pub(crate) use sanitize::Sanitize;

/// A job that is under way.
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

impl Desk {
    /// Makes the next request of a job, or notes that it must wait.
    fn make_step(&mut self, job: JobKey, step: Step) {
        let Step { volume, op, extent, fua, buffer } = step;
        let block = u64::from(self.volumes[volume].block_size());
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
        // A copy belongs to who asked for it; a sanitize, which outlives him, to the volume.
        let claim = match &self.jobs[job] {
            Job::Copy(copy) => self.tasks[copy.key].claim,
            Job::Sanitize(_) => None,
        };
        let mut task = Task::new(self.now, volume, Deed::Media(media));
        task.job = Some(job);
        task.phase = Phase::Flowing { left: 1, end: End::Good };
        match op {
            Op::Read => task.medium = buffer,
            _ => task.data = buffer,
        }
        let key = self.tasks.insert(task);
        self.inbox.push_back(Input::Arrive(Request {
            tag: key.tag(),
            tenant: self.tenant(claim, volume),
            volume: VolumeId::new(volume as u32),
            link: LinkId::new(0),
            op,
            extent,
            fua,
            ordered: false,
            job: true,
        }));
    }

    /// A step of a job has ended.
    pub(crate) fn job_stepped(&mut self, job: JobKey, key: TaskKey) {
        let task = &mut self.tasks[key];
        let Phase::Flowing { end, .. } = task.phase else { unreachable!("steps of jobs flow") };
        // The job keeps its buffer for the next step.
        let buffer = task.data.take().or(task.medium.take());
        self.finish(key);
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
        match &mut self.jobs[job] {
            Job::Copy(copy) => copy.stepped(result),
            Job::Sanitize(sanitize) => sanitize.stepped(result),
        }
        self.go_on_with(job);
    }

    fn put_back(&mut self, job: JobKey, buffer: Option<Shared>) {
        match &mut self.jobs[job] {
            Job::Copy(copy) => copy.buffer = buffer,
            Job::Sanitize(sanitize) => sanitize.buffer = buffer,
        }
    }

    /// Does what a job wants done next.
    pub(crate) fn go_on_with(&mut self, job: JobKey) {
        if self.stopping {
            self.leave_off(job);
            return;
        }
        match &self.jobs[job] {
            Job::Copy(_) => self.copy_on(job),
            Job::Sanitize(_) => self.sanitize_on(job),
        }
    }

    /// The gateway leaves: the job ends here, and its command with it. The state file still says what
    /// must go on after a restart.
    fn leave_off(&mut self, job: JobKey) {
        let (buffer, key) = match self.jobs.remove(job) {
            None => return,
            Some(Job::Copy(copy)) => (copy.buffer, Some(copy.key)),
            Some(Job::Sanitize(sanitize)) => (sanitize.buffer, sanitize.key),
        };
        if let Some(buffer) = buffer {
            self.pool.give(buffer);
        }
        if let Some(key) = key {
            self.decide(key, Answer::Refused(Sense::LOGICAL_UNIT_NOT_READY.into()));
        }
    }

    /// The job goes on when something else has ended.
    fn stall(&mut self, job: JobKey) {
        self.stalled.push_back(job);
    }
}

/// What a step failed with.
type Stepped = Result<(), IoError>;
