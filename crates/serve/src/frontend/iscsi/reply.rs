//! Replies of commands as iSCSI PDUs.

use crate::buffer::Payload;
use crate::frontend::connection::Wire;
use crate::tasks::reply::{Reply, Worded, miscompare};
use crate::tasks::table::{Answer, End, Phase, Task, TaskKind};
use crate::volume::Volume;
use std::rc::Rc;
use weir_flow::error::SenseTriple;
use weir_flow::transfer::Part;
use weir_wire::iscsi::target_role::Itt;
use weir_wire::scsi::cdb::MediaOp;
use weir_wire::scsi::lba_status::lba_status;
use weir_wire::scsi::nexus::Refusal;
use weir_wire::scsi::sense::SenseKey;
use weir_wire::scsi::{ScsiStatus, Sense};

/// Puts a reply, or the part of it that may be sent, into the outbox.
pub(crate) fn word(wire: &mut Wire, task: &Task, volume: &Volume, reply: &Reply) -> Worded {
    let part = reply.request.map_or_else(Part::default, |(_, part)| part);
    let queued = put_reply(wire, task, volume, part);
    // An error, or data that the host has no room for, ends it before the last part.
    let ended = part.last || !wire.outstanding_tasks().contains(&Itt(task.name));
    Worded { queued, ended }
}

/// Puts a part of the reply into the outbox; true if there is something to wait for. Everything
/// but the data of a read is in the first part.
fn put_reply(wire: &mut Wire, task: &Task, volume: &Volume, part: Part) -> bool {
    let itt = Itt(task.name);
    let check = |wire: &mut Wire, sense: Sense, moved: u32| {
        let sense = volume.unit.worded(sense);
        wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), moved);
    };
    let end = match (&task.answer, task.phase) {
        (Some(answer), _) => {
            match answer {
                Answer::Good => {
                    wire.respond(itt, ScsiStatus::Good, None, task.data_length);
                }
                Answer::Busy => wire.respond(itt, ScsiStatus::Busy, None, 0),
                Answer::Refused(Refusal::Check(sense)) => check(wire, *sense, 0),
                Answer::Refused(Refusal::Conflict) => {
                    wire.respond(itt, ScsiStatus::ReservationConflict, None, 0);
                }
                Answer::Runs(runs) => {
                    let TaskKind::Map { offset, allocation, .. } = task.kind else {
                        unreachable!("only a map has runs")
                    };
                    let block = u64::from(volume.block_size());
                    let blocks: Vec<_> =
                        runs.iter().map(|&(n, mapped)| (n / block, mapped)).collect();
                    put_data(wire, itt, &lba_status(offset / block, &blocks, allocation));
                }
            }
            return true;
        }
        (None, Phase::InPipeline { end, .. }) => end,
        // Only the data of a read has further parts.
        (None, Phase::Replying(_)) => End::Good,
        (None, phase) => unreachable!("nothing was decided, and nothing has flowed: {phase:?}"),
    };
    let (media, block) = (task.media(), volume.block_size());
    let moved = (media.data_out_length(block) + media.data_in_length(block)) as u32;
    match end {
        End::Full => wire.respond(itt, ScsiStatus::TaskSetFull, None, 0),
        End::Failed(error) => match error.sense(media.is_write()) {
            Some(triple) => check(wire, sense_of(triple), 0),
            None => wire.respond(itt, ScsiStatus::Busy, None, 0),
        },
        End::Good => {
            let differs = task.comparison.differs.or_else(|| match (media.op, &task.medium) {
                (MediaOp::Verify(compare), Some(medium)) => {
                    miscompare(compare, task.bytes(), medium, &media, block)
                }
                _ => None,
            });
            match (differs, media.op, &task.medium) {
                (Some(at), ..) => check(wire, Sense::MISCOMPARE.with_information(at), moved),
                (None, MediaOp::Read, Some(medium)) => {
                    let payload = Payload::Pooled(medium.clone());
                    let (from, length) = (part.offset as usize, part.length as usize);
                    let part = from..from + length;
                    return wire.respond_part(itt, payload, 0..moved as usize, part, moved);
                }
                _ => wire.respond(itt, ScsiStatus::Good, None, moved),
            }
        }
    }
    true
}

/// Answers GOOD with data that the gateway has made.
pub(crate) fn put_data(wire: &mut Wire, itt: Itt, bytes: &[u8]) {
    let length = bytes.len();
    wire.respond_data(itt, Payload::Small(Rc::from(bytes)), 0..length, length as u32);
}

/// The sense data for a failed command.
fn sense_of(SenseTriple { key, asc, ascq }: SenseTriple) -> Sense {
    let key = match key {
        0x3 => SenseKey::MediumError,
        0x4 => SenseKey::HardwareError,
        0x5 => SenseKey::IllegalRequest,
        0x7 => SenseKey::DataProtect,
        _ => unreachable!("the table of errors has no other key"),
    };
    Sense::new(key, asc, ascq)
}
