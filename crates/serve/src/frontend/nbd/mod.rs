//! What clients say over NBD, and what is done about it.
//!
//! An NBD request is the same to a volume as the SCSI command that does as much, so it goes the same
//! way: it obeys reservations, is ordered among the others and is counted. There is no way to tell a
//! client to come again later; where SCSI says TASK SET FULL, an NBD connection is not read from until
//! there is room.

use crate::buffer::{LARGEST, Payload};
use crate::config;
use crate::frontend::Verdict;
use crate::frontend::connection::{Connection, NbdWire, Speech};
use crate::ids::TaskKey;
use crate::tasks::table::{Answer, Deed, End, Phase, Task};
use crate::tasks::{Desk, Errand, Held, Refusal as Refused};
use crate::volume::Volume;
use tracing::{info, warn};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_wire::nbd::{self, BlockSize, Command, Error, Event, Export, Exports, Limits, Tls};
use weir_wire::scsi::Sense;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::nexus::Refusal;

/// What clients find.
pub(crate) fn exports(nbd: &config::Nbd, volumes: &[Volume]) -> Exports {
    let export = |export: &config::Export| {
        let volume = &volumes[export.volume];
        let disk = volume.unit.disk();
        Export {
            name: export.name.clone(),
            description: format!("volume {}", volume.name),
            size: disk.blocks * u64::from(disk.block_size),
            read_only: disk.read_only,
            trim: disk.thin,
            // A file system that makes holes does it at once.
            fast_zero: disk.thin,
            block_size: BlockSize {
                minimum: disk.block_size,
                preferred: 4096,
                maximum: LARGEST as u32,
            },
        }
    };
    let exports = Exports::new(nbd.exports.iter().map(export).collect());
    exports.expect("names are checked by the configuration")
}

/// How much a client may ask.
pub(crate) fn limits(config: &config::Config) -> Limits {
    let tls = match &config.nbd.tls {
        None => Tls::Off,
        Some(tls) if tls.required => Tls::Required,
        Some(_) => Tls::Offered,
    };
    Limits { requests: config.iscsi.commands, tls }
}

impl Desk {
    /// Deals with everything that an NBD connection has received.
    pub(crate) fn receive_nbd(&mut self, connection: &mut Connection) -> Verdict {
        let mut received = std::mem::take(&mut connection.received);
        let verdict = loop {
            if let Some(request) = connection.waiting.take()
                && !self.request(connection, request)
            {
                break Verdict::Keep;
            }
            let Speech::Nbd(wire) = &mut connection.speech else {
                unreachable!("only NBD connections come here")
            };
            match wire.receive(received.bytes()) {
                Ok(step) => {
                    let (consumed, idle) = (step.consumed, step.event.is_none());
                    if let Some(event) = step.event {
                        self.nbd_event(connection, &event);
                    }
                    received.consume(consumed);
                    if consumed == 0 && idle {
                        break Verdict::Keep;
                    }
                }
                Err(problem) => {
                    warn!(peer = %connection.peer, %problem, "NBD protocol error; connection dropped");
                    break Verdict::Close;
                }
            }
        };
        connection.received = received;
        verdict
    }

    fn nbd_event(&mut self, connection: &mut Connection, event: &Event<'_>) {
        match *event {
            Event::StartTls => connection.starts_tls = true,
            Event::ExportChosen { index } => {
                let Speech::Nbd(wire) = &mut connection.speech else { return };
                connection.widen = true;
                wire.export_admitted();
                // A simple reply is in one piece.
                self.inbox.push_back(Input::Link(connection.link(), connection.way(false)));
                self.sessions.clients += 1;
                self.errands.push_back(Errand::Share);
                let export = &self.exports.as_slice()[index].name;
                info!(peer = %connection.peer, export, tls = connection.socket.is_tls(), "NBD client");
            }
            Event::Request(request) => connection.waiting = Some(request),
            Event::Data { slot, offset, bytes, complete } => {
                let Some(&key) = connection.tasks.get(&slot) else { return };
                self.keep(key, offset as usize, bytes);
                if complete && self.tasks[key].phase == Phase::Gathering {
                    self.begin(connection, key);
                }
            }
            Event::Disconnect => info!(peer = %connection.peer, "NBD client disconnects"),
        }
    }

    /// Takes in a request; false if there is no memory for it now.
    fn request(&mut self, connection: &mut Connection, request: nbd::Request) -> bool {
        let Speech::Nbd(wire) = &mut connection.speech else { return true };
        let export = wire.export().expect("requests come after the choice of an export");
        let index = self.export_volumes[export];
        let volume = &self.volumes[index];
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
                wire.respond(slot, Err(error_of(refusal)));
                return true;
            }
        };
        let deed = if let Some(media) = media {
            // The unit may ask for more than the client does: durable writes.
            Deed::Media(Media { fua: admitted.fua, ..media })
        } else {
            let one = request.command == Command::BlockStatus { one: true };
            let max = if one { 1 } else { RUNS_MAX };
            Deed::Map { offset, length, max, allocation: 0 }
        };
        let data = if request.command == Command::Write { request.length } else { 0 };
        let held = match &deed {
            Deed::Media(media) => Held::of(media, data, block),
            _ => Held { data: 0, medium: 0 },
        };
        if matches!(deed, Deed::Media(_)) && !self.has_room(connection.id, index, held) {
            connection.waiting = Some(request);
            return false;
        }
        let task = Task::new(self.now, index, deed);
        let Some(key) = self.take_in(connection, slot, held, task) else {
            connection.waiting = Some(request);
            self.hungry.push_back(connection.id);
            return false;
        };
        if data == 0 {
            self.begin(connection, key);
        }
        true
    }

    /// A request that the pipeline had no room for is tried again when something has ended.
    pub(crate) fn try_again(&mut self, key: TaskKey) {
        let link = self.link(key);
        let Some(task) = self.tasks.get(key) else { return };
        if task.connection.is_none() {
            self.finish(key);
            return;
        }
        if let Err(refusal) = self.admit_rest(key) {
            self.decide(key, Answer::Refused(refusal));
            return;
        }
        if self.tasks[key].rest.length > 0 {
            self.next_step(key, link);
            return;
        }
        match self.start(key, link) {
            Ok(()) => {}
            Err(Refused::Full) => self.again.push_back(key),
            Err(Refused::Wrong(sense)) => self.decide(key, Answer::Refused(sense.into())),
        }
    }
}

/// What a request does with the medium; `None` for a question about it.
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
pub(crate) fn put_reply(wire: &mut NbdWire, task: &Task) {
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
        (None, Phase::Flowing { end, .. }) => match (end, &task.medium) {
            (End::Good, Some(medium)) => {
                let length = (medium.len() as u64).min(task.held) as usize;
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
        // Only a client that is gone is told: what found no room is tried again.
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
