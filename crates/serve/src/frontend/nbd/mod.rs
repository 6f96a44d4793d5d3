//! The NBD front end: turns requests of clients into commands, and replies into bytes.
//!
//! An NBD request is treated as the SCSI command with the same effect: it obeys reservations, is ordered among
//! the others and is counted. NBD has no status that asks a client to try again later; where iSCSI answers
//! TASK SET FULL, an NBD connection is not read until there is room.

use crate::buffer::Payload;
use crate::config;
use crate::frontend::connection::{Connection, Encryption, NbdWire, Speech};
use crate::frontend::{Verdict, delays};
use crate::tasks::reply::{Reply, Worded};
use crate::tasks::set::{Origin, TaskSet};
use crate::tasks::table::{Answer, End, Phase, Retries, Task, TaskKind};
use crate::tasks::{CommandEngine, ConnectionAction, Held};
use tracing::{info, warn};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_wire::nbd::{self, Command, Error, Event, Limits, Tls};
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::nexus::Refusal;

/// The limits of a client.
pub(crate) fn limits(config: &config::Config) -> Limits {
    let tls = match &config.nbd.tls {
        None => Tls::Off,
        Some(tls) if tls.required => Tls::Required,
        Some(_) => Tls::Offered,
    };
    Limits { requests: config.iscsi.max_commands, tls }
}

/// The NBD front end at work on one connection.
pub(crate) struct NbdFrontend<'a> {
    pub(crate) engine: &'a mut CommandEngine,
}

impl NbdFrontend<'_> {
    /// Handles everything that an NBD connection has received.
    pub(crate) fn receive(&mut self, connection: &mut Connection) -> Verdict {
        let mut received = std::mem::take(&mut connection.received);
        let verdict = loop {
            if let Some(request) = connection.waiting.take() {
                if !self.request(connection, request) {
                    break Verdict::Keep;
                }
                let moves = matches!(request.command, Command::Read | Command::Write);
                connection.allowance.take(if moves { request.length.into() } else { 0 });
            }
            if connection.allowance.stops_before(received.bytes()) {
                break Verdict::Keep;
            }
            let Speech::Nbd(wire) = &mut connection.speech else {
                unreachable!("only NBD connections come here")
            };
            match wire.receive(received.bytes()) {
                Ok(step) => {
                    let (consumed, idle) = (step.consumed, step.event.is_none());
                    if let Some(event) = step.event {
                        self.event(connection, &event);
                    }
                    received.consume(consumed);
                    if consumed == 0 && idle {
                        break Verdict::Keep;
                    }
                }
                Err(problem) => {
                    let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
                    let text = "NBD protocol error; connection dropped";
                    log.line(*now, peer.source(), text, |text| warn!(%peer, %problem, "{text}"));
                    break Verdict::Close;
                }
            }
        };
        connection.received = received;
        verdict
    }

    fn event(&mut self, connection: &mut Connection, event: &Event<'_>) {
        match *event {
            Event::StartTls => connection.encryption = Encryption::Requested,
            Event::ExportChosen { index } => {
                let Speech::Nbd(wire) = &mut connection.speech else { return };
                let Some(volume) = self.engine.catalog.export_volumes[index] else {
                    wire.export_refused(nbd::Refusal::Unknown);
                    return;
                };
                connection.serves = true;
                connection.tenant = self.engine.catalog.tenant(None, volume);
                wire.export_admitted();
                // A simple reply is in one piece.
                self.engine
                    .set
                    .inputs
                    .push_back(Input::Link(connection.link(), connection.way(false)));
                self.engine.set.sessions.clients += 1;
                self.engine.set.actions.push_back(ConnectionAction::Share);
                let export = &self.engine.catalog.exports.as_slice()[index].name;
                let tls = connection.encryption == Encryption::Tls;
                let (peer, TaskSet { log, now, hosts, .. }) = (&connection.peer, &self.engine.set);
                hosts.enter(*now, connection.link(), peer, None);
                log.line(*now, peer.source(), "NBD client", |text| {
                    info!(%peer, export, tls, "{text}");
                });
            }
            Event::Request(request) => connection.waiting = Some(request),
            Event::Data { slot, offset, bytes, complete } => {
                let Some(&key) = connection.tasks.get(&slot) else { return };
                self.engine.set.keep(key, offset as usize, bytes);
                if complete && self.engine.set.tasks[key].phase == Phase::Gathering {
                    self.engine.begin(key, connection.link());
                }
            }
            Event::Disconnect => {
                let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
                log.line(*now, peer.source(), "NBD client disconnects", |text| {
                    info!(%peer, "{text}");
                });
            }
        }
    }

    /// Takes in a request; false if there is no memory for it now.
    fn request(&mut self, connection: &mut Connection, request: nbd::Request) -> bool {
        let Speech::Nbd(wire) = &mut connection.speech else { return true };
        let export = wire.export().expect("requests come after the choice of an export");
        let Some(index) = self.engine.catalog.export_volumes[export] else {
            wire.respond(request.slot, Err(Error::Eio));
            return true;
        };
        let volume = &self.engine.catalog.volumes[index];
        let block = volume.block_size();
        let slot = request.slot;
        let (offset, length) = (request.offset, u64::from(request.length));
        let thin = volume.unit.disk().thin;
        if let Command::WriteZeroes { may_punch, fast: true } = request.command
            && !(may_punch && thin)
        {
            // Holes are fast everywhere; zeroes that are allocated may have to be written.
            wire.respond(slot, Err(Error::Enotsup));
            return true;
        }
        let media = media_of(&request, block, thin);
        // Zeroes come in steps; each of them is within the limits of a command. To ask which blocks
        // are mapped takes what reading one takes.
        let most = if media.is_some_and(|media| !matches!(media.op, MediaOp::WriteSame { .. })) {
            u64::MAX
        } else if media.is_some() {
            volume.unit.disk().max_write_same_blocks
        } else {
            1
        };
        let (lba, blocks) = (offset / u64::from(block), length / u64::from(block));
        let asked =
            media.unwrap_or(Media { op: MediaOp::Read, lba, blocks, fua: false, dpo: false });
        let first = Media { blocks: asked.blocks.min(most), ..asked };
        let admitted = match volume.unit.admit(None, first) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                if !delays(self.engine, connection, slot, index, refusal)
                    && let Speech::Nbd(wire) = &mut connection.speech
                {
                    wire.respond(slot, Err(error_of(refusal)));
                }
                return true;
            }
        };
        let kind = if let Some(media) = media {
            // The unit may ask for more than the client does: durable writes.
            TaskKind::Media(Media { fua: admitted.fua, ..media })
        } else {
            let one = request.command == Command::BlockStatus { one: true };
            let max = if one { 1 } else { RUNS_MAX };
            TaskKind::Map { offset, length, max, allocation: 0 }
        };
        let data = if request.command == Command::Write { request.length } else { 0 };
        let held = match &kind {
            TaskKind::Media(media) => Held::of(media, data, block),
            _ => Held { data: 0, medium: 0 },
        };
        // No tenant claims an NBD client by name.
        let tenant = self.engine.catalog.tenant(None, index).index();
        let set = &mut self.engine.set;
        if matches!(kind, TaskKind::Media(_))
            && !set.quotas.has_room(connection.id, tenant, held.payload())
        {
            connection.waiting = Some(request);
            return false;
        }
        let task = Task::new(set.now, index, kind);
        let origin =
            Origin { connection: connection.id, claim: None, name: slot, retries: Retries::Judged };
        let Some(key) = set.take_in(origin, tenant, held, task) else {
            connection.waiting = Some(request);
            set.memory.wait(connection.id);
            return false;
        };
        connection.tasks.insert(slot, key);
        if data == 0 {
            self.engine.begin(key, connection.link());
        }
        true
    }
}

/// The operation on the medium; `None` for a question about allocation.
fn media_of(request: &nbd::Request, block: u32, thin: bool) -> Option<Media> {
    let op = match request.command {
        Command::Read => MediaOp::Read,
        Command::Write => MediaOp::Write,
        Command::Flush => MediaOp::Synchronize { immediate: false },
        Command::Trim => MediaOp::WriteSame { unmap: thin, no_data: true },
        Command::WriteZeroes { may_punch, .. } => {
            MediaOp::WriteSame { unmap: may_punch && thin, no_data: true }
        }
        Command::BlockStatus { .. } => return None,
    };
    let block = u64::from(block);
    let (lba, blocks) = (request.offset / block, u64::from(request.length) / block);
    Some(Media { op, lba, blocks, fua: request.fua, dpo: false })
}

/// Puts the reply to a request into the outbox.
pub(crate) fn word(wire: &mut NbdWire, task: &Task, reply: &Reply) -> Worded {
    if let Some((_, part)) = reply.request {
        assert!(part.offset == 0 && part.last, "a simple reply is in one piece");
    }
    put_reply(wire, task);
    Worded { queued: true, ended: true }
}

fn put_reply(wire: &mut NbdWire, task: &Task) {
    let slot = task.name;
    match (&task.answer, task.phase) {
        (Some(Answer::Runs(runs)), _) => {
            let extents: Vec<nbd::Extent> = runs
                .iter()
                .map(|&(length, mapped)| {
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    nbd::Extent { length, hole: !mapped, zero: !mapped }
                })
                .collect();
            wire.respond_status(slot, &extents);
        }
        (Some(Answer::Refused(refusal)), _) => wire.respond(slot, Err(error_of(*refusal))),
        (Some(Answer::Busy), _) => wire.respond(slot, Err(Error::Eio)),
        (Some(Answer::Good), _) => wire.respond(slot, Ok(())),
        (None, Phase::InPipeline { end, .. }) => match (end, &task.medium) {
            (End::Good, Some(medium)) => {
                let length = (medium.len() as u64).min(task.charge.bytes) as usize;
                wire.respond_data(slot, Payload::Pooled(medium.clone()), 0..length);
            }
            (End::Good, None) => wire.respond(slot, Ok(())),
            (End::Failed(error), _) => wire.respond(slot, Err(number_of(error))),
            (End::Full, _) => wire.respond(slot, Err(Error::Enomem)),
        },
        (None, phase) => unreachable!("nothing was decided, and nothing has flowed: {phase:?}"),
    }
}

/// The number of an error: the table of [`IoError::sense`].
const fn number_of(error: IoError) -> Error {
    match error {
        IoError::Medium | IoError::PathFailed | IoError::NoPath | IoError::Fenced => Error::Eio,
        IoError::NoSpace => Error::Enospc,
        IoError::OutOfRange => Error::Einval,
        IoError::WriteProtected => Error::Eperm,
        IoError::Unsupported => Error::Enotsup,
        // No client that is there gets this: a request that found no room is tried again.
        IoError::Busy => Error::Enomem,
    }
}

/// The number for what a SCSI unit refuses.
fn error_of(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Conflict => Error::Eperm,
        Refusal::Check(sense) if sense == Sense::WRITE_PROTECTED => Error::Eperm,
        Refusal::Check(sense) if sense.asc == Sense::LBA_OUT_OF_RANGE.asc => Error::Einval,
        Refusal::Check(_) => Error::Eio,
    }
}

/// Most parts that one answer about allocation names.
const RUNS_MAX: usize = 256;
