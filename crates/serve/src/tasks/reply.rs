//! Outcomes become replies.

use super::{Desk, Errand};
use crate::buffer::{Payload, Shared};
use crate::frontend::connection::{Connection, Speech, Wire};
use crate::frontend::nbd;
use crate::ids::{ConnectionId, TaskKey};
use crate::tasks::table::{Answer, Deed, End, Phase, Task};
use std::rc::Rc;
use weir_flow::error::{IoError, SenseTriple};
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Outcome, RequestKey, Tag};
use weir_flow::transfer::Part;
use weir_flow::units::Extent;
use weir_wire::iscsi::target_role::Itt;
use weir_wire::scsi::cdb::{Compare, Media, MediaOp};
use weir_wire::scsi::lba_status::lba_status;
use weir_wire::scsi::nexus::Refusal;
use weir_wire::scsi::sense::SenseKey;
use weir_wire::scsi::{ScsiStatus, Sense};

impl Desk {
    /// Performs a transfer action: a request has ended, and its reply may leave, or a part of that.
    pub(crate) fn reply(
        &mut self,
        connections: &mut [Option<Box<Connection>>],
        key: RequestKey,
        tag: Tag,
        outcome: Outcome,
        part: Part,
    ) {
        let task = TaskKey::of(tag);
        if part.offset > 0 {
            self.go_on_replying(connections, task, key, part);
            return;
        }
        let end = match outcome {
            Ok(()) => End::Good,
            Err(error) => End::Failed(error),
        };
        let over = self.count_down(task, end) && !self.go_on(task, self.link(task));
        if over && !self.comes_again(connections, task) {
            self.answer(connections, task, Some((key, part)));
        } else {
            self.inbox.push_back(Input::Sent { key, bytes: part.length });
        }
    }

    /// Performs a refuse action.
    pub(crate) fn refuse(&mut self, connections: &mut [Option<Box<Connection>>], tag: Tag) {
        let key = TaskKey::of(tag);
        if self.count_down(key, End::Full) && !self.comes_again(connections, key) {
            self.answer(connections, key, None);
        }
    }

    /// Sets a command that found no room aside to be done again, if it is that of an NBD client: NBD
    /// cannot say that a client should come again. True if it is.
    fn comes_again(&mut self, connections: &[Option<Box<Connection>>], key: TaskKey) -> bool {
        let Some(task) = self.tasks.get_mut(key) else { return false };
        let full = matches!(
            task.phase,
            Phase::Flowing { left: 0, end: End::Full | End::Failed(IoError::Busy) }
        );
        let place = task.connection.and_then(|id| connections.get(id.index)?.as_deref());
        let nbd = place.is_some_and(|connection| matches!(connection.speech, Speech::Nbd(_)));
        if full && nbd {
            // What was refused is still to be done.
            let (step, rest) = (std::mem::take(&mut task.step), task.rest);
            task.rest = Extent::new(rest.offset - step.length, step.length + rest.length);
            self.again.push_back(key);
        }
        full && nbd
    }

    /// One request of a command has ended; true if it was the last.
    fn count_down(&mut self, key: TaskKey, how: End) -> bool {
        let task = &mut self.tasks[key];
        let Phase::Flowing { left, end } = &mut task.phase else {
            unreachable!("a command without requests has none that end")
        };
        *left -= 1;
        *end = end.and(how);
        *left == 0
    }

    /// The link of a command's connection, or the gateway's own.
    pub(crate) fn link(&self, key: TaskKey) -> LinkId {
        let connection = self.tasks.get(key).and_then(|task| task.connection);
        LinkId::new(connection.map_or(0, |id| id.index as u32))
    }

    /// Writes the reply of a command to its connection. `request` is the pipeline's request that is
    /// over when the reply has left, and the part of the reply that may leave now.
    pub(crate) fn answer(
        &mut self,
        connections: &mut [Option<Box<Connection>>],
        key: TaskKey,
        request: Option<(RequestKey, Part)>,
    ) {
        let sent = request.map(|(key, part)| Input::Sent { key, bytes: part.length });
        let task = &mut self.tasks[key];
        if let Some(job) = task.job {
            self.inbox.extend(sent);
            self.job_stepped(job, key);
            return;
        }
        let (id, name) = (task.connection, task.name);
        let Some(connection) = place(connections, id) else {
            self.inbox.extend(sent);
            self.finish(key);
            return;
        };
        if let Some((request, part)) = request {
            self.put(connection, key, request, part);
            return;
        }
        self.errands.push_back(Errand::Write(connection.id));
        match &mut connection.speech {
            Speech::Iscsi(wire) => {
                self.put_reply(wire, key, Part::default());
            }
            Speech::Nbd(wire) => nbd::put_reply(wire, &self.tasks[key]),
        }
        // Only what has gone through the pipeline refers to buffers.
        connection.tasks.remove(&name);
        self.finish(key);
    }

    /// A further part of a reply may leave.
    fn go_on_replying(
        &mut self,
        connections: &mut [Option<Box<Connection>>],
        key: TaskKey,
        request: RequestKey,
        part: Part,
    ) {
        let wanted = |task: &&Task| task.phase == Phase::Replying(request) && !task.replied;
        let task = self.tasks.get(key).filter(wanted);
        match task.and_then(|task| place(connections, task.connection)) {
            Some(connection) => self.put(connection, key, request, part),
            None => self.inbox.push_back(Input::Sent { key: request, bytes: part.length }),
        }
    }

    /// Puts a part of a reply into the outbox, and notes that it is there.
    fn put(&mut self, connection: &mut Connection, key: TaskKey, request: RequestKey, part: Part) {
        self.errands.push_back(Errand::Write(connection.id));
        let (queued, ended) = match &mut connection.speech {
            Speech::Iscsi(wire) => {
                let queued = self.put_reply(wire, key, part);
                // An error, or data that the host has no room for, ends it before the last part.
                let itt = Itt(self.tasks[key].name);
                (queued, part.last || !wire.outstanding_tasks().contains(&itt))
            }
            Speech::Nbd(wire) => {
                assert!(part.offset == 0 && part.last, "a simple reply is in one piece");
                nbd::put_reply(wire, &self.tasks[key]);
                (true, true)
            }
        };
        let task = &mut self.tasks[key];
        task.phase = Phase::Replying(request);
        task.replied = ended;
        if !queued {
            self.inbox.push_back(Input::Sent { key: request, bytes: part.length });
        } else if task.leaving.is_none() {
            task.leaving = Some(part.length);
        } else {
            task.behind.push_back(part.length);
        }
        if task.replied && task.leaving.is_none() {
            connection.tasks.remove(&task.name);
            self.finish(key);
        }
    }

    /// Puts a part of the reply into the outbox; true if there is something to wait for. What is not
    /// the data of a read is in the first part.
    fn put_reply(&self, wire: &mut Wire, key: TaskKey, part: Part) -> bool {
        let task = &self.tasks[key];
        let (itt, volume) = (Itt(task.name), &self.volumes[task.volume]);
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
                        let Deed::Map { offset, allocation, .. } = task.deed else {
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
            (None, Phase::Flowing { end, .. }) => end,
            // Only what is read has further parts.
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
                let differs = task.differs.or_else(|| match (media.op, &task.medium) {
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

    /// The last byte of a reply, or of a part of one, has left.
    pub(crate) fn sent(&mut self, connection: &mut Connection, name: u32) {
        // Replies that never went through the pipeline have no task.
        let Some(&key) = connection.tasks.get(&name) else { return };
        let Phase::Replying(request) = self.tasks[key].phase else { return };
        let task = &mut self.tasks[key];
        let Some(bytes) = task.leaving else { return };
        task.leaving = task.behind.pop_front();
        let over = task.replied && task.leaving.is_none();
        self.inbox.push_back(Input::Sent { key: request, bytes });
        if over {
            connection.tasks.remove(&name);
            self.finish(key);
        }
    }
}

/// The connection of this name, if it is still there.
fn place(
    connections: &mut [Option<Box<Connection>>],
    id: Option<ConnectionId>,
) -> Option<&mut Connection> {
    let id = id?;
    connections.get_mut(id.index)?.as_deref_mut().filter(|connection| connection.id == id)
}

/// Answers GOOD with data of the gateway's own.
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

/// The offset of the first byte in which a VERIFY found a difference.
fn miscompare(
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

/// The offset of the first byte that differs.
pub(crate) fn difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(a, b)| a != b).map(|at| at as u64)
}
