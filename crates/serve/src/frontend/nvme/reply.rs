//! Replies of commands as completions, and what statuses errors are.

use super::controllers::Controllers;
use super::{LEAVES, NvmeFrontend};
use crate::buffer::Payload;
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::nvme_queue::Queue;
use crate::tasks::CommandEngine;
use crate::tasks::reply::{Reply, Worded, miscompare};
use crate::tasks::table::{Answer, End, Phase, Task, TaskKind};
use crate::volume::Volume;
use weir_flow::error::IoError;
use weir_wire::nvme::{Completion, Status};
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::nexus::Refusal;
use weir_wire::scsi::unit::Unit;

/// Puts the reply to a command into the outbox, or continues a command that is done in parts.
pub(crate) fn reply(
    engine: &mut CommandEngine,
    controllers: &mut Controllers,
    connection: &mut Connection,
    reply: Reply,
) {
    let Speech::Nvme(queue) = &mut connection.speech else { return };
    let task = &engine.set.tasks[reply.task];
    let slot = task.name;
    if let Some((_, part)) = reply.request {
        assert!(part.offset == 0 && part.last, "a reply is in one piece");
    }
    let ended = outcome(task, &engine.catalog.volumes[task.volume]);
    let goes_on = ended.is_ok() && queue.rest.contains_key(&slot);
    let queued = !goes_on && slot < LEAVES;
    if queued {
        queue.rest.remove(&slot);
        let reads = matches!(task.kind, TaskKind::Media(Media { op: MediaOp::Read, .. }));
        match (ended, &task.medium) {
            (Ok(()), Some(medium)) if reads => {
                let length = (medium.len() as u64).min(task.charge.bytes) as usize;
                queue.wire.respond_data(slot, Payload::Pooled(medium.clone()), 0..length);
            }
            (Ok(()), _) => queue.wire.respond(slot, Completion::SUCCESS),
            (Err(status), _) => queue.wire.respond(slot, Completion::failed(status)),
        }
        controllers.ended(engine, queue, slot);
        if let Some(second) = NvmeFrontend::answer_second(queue, slot, ended) {
            controllers.ended(engine, queue, second);
        }
    }
    if engine.worded(reply, Worded { queued, ended: true }) {
        connection.tasks.remove(&slot);
    }
    if goes_on {
        NvmeFrontend { engine, controllers }.go_on(connection, slot);
    }
    if let Speech::Nvme(queue) = &mut connection.speech {
        leave(queue);
    }
}

/// Answers a Disconnect, if it is the last command that has no answer.
pub(super) fn leave(queue: &mut Queue) {
    if queue.wire.outstanding() == 1
        && let Some(slot) = queue.leaving.take()
    {
        queue.wire.respond(slot, Completion::SUCCESS);
    }
}

/// How a command has ended.
fn outcome(task: &Task, volume: &Volume) -> Result<(), Status> {
    match (&task.answer, task.phase) {
        (Some(Answer::Good), _) => Ok(()),
        (Some(Answer::Busy), _) => Err(Status::INTERRUPTED),
        (Some(Answer::Refused(refusal)), _) => Err(status_of(&volume.unit, *refusal)),
        (Some(Answer::Runs(_)), _) => unreachable!("no command asks which blocks are mapped"),
        (None, Phase::InPipeline { end, .. }) => match end {
            End::Good => {
                let media = task.media();
                let differs = task.comparison.differs.or_else(|| match (media.op, &task.medium) {
                    (MediaOp::Verify(compare), Some(medium)) => {
                        miscompare(compare, task.bytes(), medium, &media, volume.block_size())
                    }
                    _ => None,
                });
                if differs.is_some() { Err(Status::COMPARE_FAILURE) } else { Ok(()) }
            }
            End::Failed(error) => Err(status_of_error(error, task.media().is_write())),
            End::Full => Err(Status::INTERRUPTED),
        },
        (None, phase) => unreachable!("nothing was decided, and nothing has flowed: {phase:?}"),
    }
}

/// The status of an error. Linux takes a path error for a reason to wait for another path for ever, so only a fenced
/// volume is one.
const fn status_of_error(error: IoError, is_write: bool) -> Status {
    match error {
        IoError::Medium if is_write => Status::WRITE_FAULT,
        IoError::Medium => Status::UNRECOVERED_READ,
        IoError::PathFailed | IoError::NoPath => Status::INTERNAL_ERROR,
        IoError::Fenced => Status::ANA_INACCESSIBLE,
        IoError::NoSpace => Status::CAPACITY_EXCEEDED,
        IoError::OutOfRange => Status::LBA_OUT_OF_RANGE,
        IoError::WriteProtected => Status::WRITE_PROTECTED,
        IoError::Unsupported => Status::INVALID_FIELD,
        IoError::Busy => Status::INTERRUPTED,
    }
}

/// The status for what a SCSI unit refuses.
pub(super) fn status_of(unit: &Unit, refusal: Refusal) -> Status {
    match refusal {
        Refusal::Conflict => Status::RESERVATION_CONFLICT,
        Refusal::Check(_) if unit.is_withdrawn() => Status::ANA_INACCESSIBLE,
        Refusal::Check(sense) if sense == Sense::WRITE_PROTECTED => Status::WRITE_PROTECTED,
        Refusal::Check(sense) => {
            let is = |other: Sense| (sense.asc, sense.ascq) == (other.asc, other.ascq);
            if is(Sense::LBA_OUT_OF_RANGE) {
                Status::LBA_OUT_OF_RANGE
            } else if is(Sense::SANITIZE_IN_PROGRESS) {
                Status::SANITIZE_IN_PROGRESS
            } else if is(Sense::INVALID_FIELD_IN_CDB) || is(Sense::INVALID_FIELD_IN_PARAMETER_LIST)
            {
                Status::INVALID_FIELD
            } else {
                Status::INTERNAL_ERROR
            }
        }
    }
}
