//! Turns outcomes into replies; a reply that was sent ends its command.
//!
//! A [`Reply`] names a command whose reply may leave. The event loop looks its connection up and has the
//! front end put the reply into the outbox ([`Worded`] says what became of that); without a connection the
//! command ends without a reply.

use super::CommandEngine;
use crate::buffer::Shared;
use crate::ids::TaskKey;
use crate::tasks::set::Counted;
use crate::tasks::table::{End, Phase, Retries};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{Outcome, RequestKey, Tag};
use weir_flow::transfer::Part;
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Compare, Media};

/// A command that is to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) task: TaskKey,
    /// The pipeline's request that is over when the reply has left, and the part of the reply that may
    /// leave now; `None` for a command that was answered without the pipeline.
    pub(crate) request: Option<(RequestKey, Part)>,
}

/// What a front end has made of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worded {
    /// The outbox has something to send for it, and names the command when that has left.
    pub(crate) queued: bool,
    /// It ends the command for the host: an error, or data that the host has no room
    /// for, ends it before the last part.
    pub(crate) ended: bool,
}

impl CommandEngine {
    /// Performs a transfer action: a request has ended, and its reply may leave, or a part of that.
    pub(crate) fn reply(
        &mut self,
        key: RequestKey,
        tag: Tag,
        outcome: Outcome,
        part: Part,
    ) -> Option<Reply> {
        let task = TaskKey::of(tag);
        let sent = Input::Sent { key, bytes: part.length };
        if part.offset > 0 {
            let found = self.set.tasks.get(task);
            if found.is_some_and(|task| task.phase == Phase::Replying(key) && !task.reply.complete)
            {
                return Some(Reply { task, request: Some((key, part)) });
            }
            self.set.inputs.push_back(sent);
            return None;
        }
        let end = match outcome {
            Ok(()) => End::Good,
            Err(error) => End::Failed(error),
        };
        let request = Some((key, part));
        match self.set.count_down(task, end) {
            Counted::Over(None) => return Some(Reply { task, request }),
            Counted::Over(Some(_)) => return self.answer(task, request),
            Counted::Last => {
                let link = self.set.link(task);
                if !self.set.go_on(&self.catalog, task, link) && !self.comes_again(task) {
                    return self.answer(task, request);
                }
            }
            Counted::Running => {}
        }
        self.set.inputs.push_back(sent);
        None
    }

    /// Performs a refuse action.
    pub(crate) fn refuse(&mut self, tag: Tag) -> Option<Reply> {
        let key = TaskKey::of(tag);
        match self.set.count_down(key, End::Full) {
            Counted::Last if !self.comes_again(key) => self.answer(key, None),
            Counted::Over(_) => unreachable!("a request that was refused has not ended well"),
            Counted::Last | Counted::Running => None,
        }
    }

    /// Sets a command that found no room aside to be done again, if its protocol cannot say that the host
    /// should come again. True if it is.
    fn comes_again(&mut self, key: TaskKey) -> bool {
        let Some(task) = self.set.tasks.get_mut(key) else { return false };
        let full = matches!(
            task.phase,
            Phase::InPipeline { left: 0, end: End::Full | End::Failed(IoError::Busy) }
        );
        let again = full && task.retries != Retries::Host && task.connection.is_some();
        if again {
            // What was refused is still to be done.
            let (step, rest) = (std::mem::take(&mut task.steps.current), task.steps.rest);
            task.steps.rest = Extent::new(rest.offset - step.length, step.length + rest.length);
            self.set.again.push_back(key);
        }
        again
    }

    /// A command is over: a step of a job continues the job, and any other command is to be answered.
    pub(crate) fn answer(
        &mut self,
        task: TaskKey,
        request: Option<(RequestKey, Part)>,
    ) -> Option<Reply> {
        if let Some(job) = self.set.tasks[task].job {
            self.set.inputs.extend(sent_of(request));
            let (jobs, mut cx) = self.jobs();
            jobs.job_stepped(&mut cx, job, task);
            return None;
        }
        Some(Reply { task, request })
    }

    /// The connection of a reply is gone.
    pub(crate) fn unheard(&mut self, Reply { task, request }: Reply) {
        self.set.inputs.extend(sent_of(request));
        // Further parts of a reply come for a command that has ended with its connection.
        if request.is_none_or(|(_, part)| part.offset == 0) {
            self.set.finish(task);
        }
    }

    /// A reply was put into the outbox. True if the command is over, and its connection is to forget it.
    pub(crate) fn worded(&mut self, Reply { task: key, request }: Reply, worded: Worded) -> bool {
        let Some((request, part)) = request else {
            // Only what has gone through the pipeline refers to buffers.
            self.set.finish(key);
            return true;
        };
        let task = &mut self.set.tasks[key];
        task.phase = Phase::Replying(request);
        task.reply.complete = worded.ended;
        if !worded.queued {
            self.set.inputs.push_back(Input::Sent { key: request, bytes: part.length });
        } else if task.reply.leaving.is_none() {
            task.reply.leaving = Some(part.length);
        } else {
            task.reply.behind.push_back(part.length);
        }
        let over = task.reply.complete && task.reply.leaving.is_none();
        if over {
            self.set.finish(key);
        }
        over
    }

    /// The last byte of a reply, or of a part of one, has left. True if the command is over, and its
    /// connection is to forget it.
    pub(crate) fn sent(&mut self, key: TaskKey) -> bool {
        let task = &mut self.set.tasks[key];
        let Phase::Replying(request) = task.phase else { return false };
        let Some(bytes) = task.reply.leaving else { return false };
        task.reply.leaving = task.reply.behind.pop_front();
        let over = task.reply.complete && task.reply.leaving.is_none();
        self.set.inputs.push_back(Input::Sent { key: request, bytes });
        if over {
            self.set.finish(key);
        }
        over
    }
}

/// The input for a reply, or a part of one, that is not sent.
fn sent_of(request: Option<(RequestKey, Part)>) -> Option<Input> {
    request.map(|(key, part)| Input::Sent { key, bytes: part.length })
}

/// The offset of the first byte that differs.
pub(crate) fn difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(a, b)| a != b).map(|at| at as u64)
}

/// The offset of the first byte in which a VERIFY found a difference.
pub(crate) fn miscompare(
    compare: Compare,
    wanted: &[u8],
    medium: &Shared,
    media: &Media,
    block: u32,
) -> Option<u64> {
    let length = (media.blocks * u64::from(block)) as usize;
    let found = &medium.bytes()[..length];
    let period = match compare {
        Compare::Nothing => return None,
        Compare::Blocks => length,
        Compare::OneBlock => block as usize,
    };
    let wanted = wanted.get(..period)?;
    let mut parts = found.chunks_exact(period).enumerate();
    parts.find_map(|(index, part)| Some((index * period) as u64 + difference(part, wanted)?))
}
