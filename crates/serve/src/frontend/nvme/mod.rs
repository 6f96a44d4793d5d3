//! The NVMe/TCP front end: turns commands of hosts into requests, and replies into completions.
//!
//! A connection is a queue; the first of a host makes a controller ([`Controllers`]). An I/O command is treated as the
//! SCSI command with the same effect: it obeys reservations, is ordered among the others and is counted. NVMe has no
//! status that asks a host to come again for want of memory, so a command without memory waits, and the queue is read
//! all the same: a queue that is not read would keep commands that its host has given up.

mod abort;
mod admin;
pub(crate) mod controllers;
mod fused;
pub(crate) mod reply;
mod reservations;
mod without_tasks;

use crate::config::{self, DigestPolicy};
use crate::frontend::Verdict;
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::nvme_part::Part;
use crate::frontend::nvme_queue::{Data, Queue, Waiting};
use crate::ids::TaskKey;
use crate::tasks::set::{Origin, TaskSet};
use crate::tasks::table::{Phase, Retries, Task, TaskKind};
use crate::tasks::{CommandEngine, ConnectionAction, Held};
use controllers::Controllers;
use reply::status_of;
use std::collections::VecDeque;
use tracing::{info, warn};
use weir_flow::clock::Duration;
use weir_flow::pipeline::Input;
use weir_wire::nvme::io::{self, Blocks, Io, Target};
use weir_wire::nvme::{
    Completion, Connect, ConnectRefusal, Digest, Event, Limits, Sqe, Status, Transfer, reservation,
};
use weir_wire::scsi::cdb::{Compare, Media, MediaOp};
use weir_wire::scsi::nexus::RegistrantRef;

/// The limits towards a host.
pub(crate) fn limits(nvme: &config::Nvme) -> Limits {
    let digest = |policy| match policy {
        DigestPolicy::Never => Digest::Off,
        DigestPolicy::Allowed => Digest::Allowed,
        DigestPolicy::Required => Digest::Required,
    };
    Limits {
        queues: nvme.queues as u16,
        queue_depth: nvme.queue_depth as u16,
        max_transfer: nvme.max_transfer as u32,
        in_capsule: nvme.in_capsule as u32,
        header_digest: digest(nvme.header_digest),
        data_digest: digest(nvme.data_digest),
    }
}

/// The NVMe front end at work on one connection.
pub(crate) struct NvmeFrontend<'a> {
    pub(crate) engine: &'a mut CommandEngine,
    pub(crate) controllers: &'a mut Controllers,
}

impl NvmeFrontend<'_> {
    /// Handles everything that a queue has received.
    pub(crate) fn receive(&mut self, connection: &mut Connection) -> Verdict {
        let mut received = std::mem::take(&mut connection.received);
        let mut proceeds = false;
        self.connect_again(connection);
        self.miss_late(connection);
        self.feed(connection);
        let verdict = loop {
            if connection.allowance.stops_before(received.bytes()) {
                break Verdict::Keep;
            }
            let Speech::Nvme(queue) = &mut connection.speech else {
                unreachable!("only NVMe connections come here")
            };
            match queue.wire.receive(received.bytes()) {
                Ok(step) => {
                    let (consumed, idle) = (step.consumed, step.event.is_none());
                    if let Some(event) = step.event {
                        self.event(connection, event);
                    }
                    received.consume(consumed);
                    proceeds |= consumed > 0;
                    if consumed == 0 && idle {
                        break Verdict::Keep;
                    }
                }
                Err(problem) => {
                    let host = queue.host.escape_debug();
                    let (peer, number) = (&connection.peer, queue.wire.queue());
                    let TaskSet { log, now, .. } = &self.engine.set;
                    let text = "NVMe/TCP protocol error; connection dropped";
                    log.line(*now, peer.source(), text, |text| {
                        warn!(%peer, %host, queue = number, %problem, "{text}");
                    });
                    break Verdict::Close;
                }
            }
        };
        if let Speech::Nvme(queue) = &mut connection.speech {
            let now = self.engine.set.now;
            queue.partial = match queue.partial {
                _ if received.bytes().is_empty() => None,
                Some(since) if !proceeds => Some(since),
                _ => Some(now),
            };
        }
        connection.received = received;
        verdict
    }

    fn event(&mut self, connection: &mut Connection, event: Event<'_>) {
        let now = self.engine.set.now;
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        match event {
            Event::Connect(connect) => self.connect(connection, connect),
            Event::Property { slot, property } => {
                queue.heard = now;
                self.property(queue, slot, property);
            }
            Event::Command { slot, sqe, transfer } => {
                queue.heard = now;
                if queue.wire.queue() != Some(0) {
                    self.command(connection, slot, &sqe, transfer);
                } else if let Some(change) = self.admin(queue, slot, &sqe, transfer) {
                    self.reserve(connection, slot, change, [0; 2]);
                }
            }
            Event::Data { slot, offset, bytes, complete } => {
                if let Some(&key) = connection.tasks.get(&slot) {
                    // It may just have been ended by another host.
                    let Some(key) = self.engine.set.live(key, connection.id) else { return };
                    self.engine.set.keep(key, offset as usize, bytes);
                    if complete && self.engine.set.tasks[key].phase == Phase::Gathering {
                        self.engine.begin(key, connection.link());
                    }
                } else if let Some(Waiting { data, .. }) = queue.waiting_in(slot)
                    && let Data::InCapsule { bytes: kept, complete: whole, .. } = data
                {
                    kept.extend_from_slice(bytes);
                    *whole = complete;
                }
            }
            Event::Gathered { slot, sqe, data } => {
                if queue.wire.queue() == Some(0) {
                    self.gathered(queue, slot, &sqe, &data);
                } else {
                    self.listed(connection, slot, &sqe, &data);
                }
            }
            Event::TransferFailed { slot, status } => {
                let (peer, TaskSet { log, .. }) = (&connection.peer, &self.engine.set);
                let text = "data of a command was damaged on its way";
                log.line(now, peer.source(), text, |text| warn!(%peer, "{text}"));
                queue.waiting.retain(|waiting| waiting.slot != slot);
                self.end(queue, slot, Completion::failed(status));
                let key = connection.tasks.remove(&slot);
                if let Some(key) = key.and_then(|key| self.engine.set.live(key, connection.id)) {
                    self.engine.set.finish(key);
                }
            }
            Event::Disconnect { slot } => {
                queue.leaving = Some(slot);
                self.leave(connection);
            }
            Event::Terminated { fes, fei } => {
                let (peer, TaskSet { log, .. }) = (&connection.peer, &self.engine.set);
                let host = queue.host.escape_debug();
                log.line(now, peer.source(), "NVMe host ends the connection", |text| {
                    warn!(%peer, %host, fes, fei, "{text}");
                });
            }
        }
    }

    /// The host sends nothing more on the queue: ends the commands that have not begun, or whose data is not whole.
    fn leave(&mut self, connection: &mut Connection) {
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        queue.waiting.clear();
        queue.fused.close(|lead| connection.tasks.contains_key(&lead));
        let slots: Vec<u32> = queue.wire.outstanding_slots().collect();
        for slot in slots {
            let key = connection.tasks.get(&queue.fused.lead(slot)).copied();
            let begun = key.and_then(|key| self.engine.set.live(key, connection.id));
            let gathers = |key: TaskKey| self.engine.set.tasks[key].phase == Phase::Gathering;
            if begun.is_some_and(|key| !gathers(key)) || queue.leaving == Some(slot) {
                continue;
            }
            connection.tasks.remove(&slot);
            let status = Status::ABORTED_BY_QUEUE_DELETION;
            self.end(queue, slot, Completion::failed(status));
            if let Some(key) = begun {
                self.engine.set.finish(key);
            }
        }
        reply::leave(queue);
    }

    /// Tries again to connect a queue whose older connection may have ended.
    fn connect_again(&mut self, connection: &mut Connection) {
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        if let Some((connect, until)) = queue.connecting.take() {
            if until <= self.engine.set.now {
                self.refuse(connection, &connect, ConnectRefusal::Sequence);
            } else {
                self.connect_io(connection, connect, until);
            }
        }
    }

    fn connect(&mut self, connection: &mut Connection, connect: Box<Connect>) {
        if connect.queue > 0 {
            let until = self.engine.set.now + QUEUE_ENDS_WITHIN;
            return self.connect_io(connection, connect, until);
        }
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        match self.controllers.admit_admin(self.engine, connection.id, &connect, queue.local) {
            Ok((id, namespaces)) => {
                queue.namespaces = namespaces;
                self.admitted(connection, &connect, id);
            }
            Err(refusal) => self.refuse(connection, &connect, refusal),
        }
    }

    /// Connects an I/O queue. If an older connection of the queue has not ended, this one waits for that.
    fn connect_io(
        &mut self,
        connection: &mut Connection,
        connect: Box<Connect>,
        until: weir_flow::clock::Instant,
    ) {
        let reserved =
            (u64::from(connect.depth) + 1) * u64::from(self.controllers.limits.in_capsule);
        let link = connection.link();
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        match self.controllers.admit_io(connection.id, &connect) {
            None => queue.connecting = Some((connect, until)),
            Some(Err(refusal)) => self.refuse(connection, &connect, refusal),
            Some(Ok(_)) if !self.engine.set.memory.set_aside(reserved) => {
                self.controllers.forget_queue(connect.controller, connect.queue);
                self.refuse(connection, &connect, ConnectRefusal::Busy);
            }
            Some(Ok(namespaces)) => {
                queue.reserved = reserved;
                queue.namespaces = namespaces;
                let catalog = &self.engine.catalog;
                queue.claim = catalog.claims.of(&connect.host.to_ascii_lowercase());
                if let Some(&volume) = queue.namespaces.volumes.first() {
                    connection.tenant = catalog.tenant(queue.claim, volume);
                }
                connection.serves = true;
                self.engine.set.sessions.clients += 1;
                self.engine.set.sessions.enter_queue(connection.id, connect.host_id);
                self.engine.set.actions.push_back(ConnectionAction::Share);
                let id = connect.controller;
                self.admitted(connection, &connect, id);
                if let Speech::Nvme(queue) = &mut connection.speech {
                    self.controllers.assign(self.engine, link, queue);
                }
            }
        }
    }

    fn admitted(&mut self, connection: &mut Connection, connect: &Connect, id: u16) {
        // A reply is in one piece.
        let (link, way) = (connection.link(), connection.way(false));
        self.engine.set.inputs.push_back(Input::Link(link, way));
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        queue.controller = Some(id);
        queue.host.clone_from(&connect.host);
        queue.host_id = connect.host_id;
        queue.subsystem.clone_from(&connect.subsystem);
        queue.heard = self.engine.set.now;
        queue.wire.admitted(id);
        let (peer, TaskSet { log, now, hosts, .. }) = (&connection.peer, &self.engine.set);
        hosts.enter(*now, link, peer, Some(&connect.host));
        let (host, subsystem) = (connect.host.escape_debug(), connect.subsystem.escape_debug());
        let (queue, depth, kato_ms) = (connect.queue, connect.depth, connect.kato_ms);
        log.line(*now, peer.source(), "NVMe queue connected", |text| {
            info!(%peer, %host, %subsystem, controller = id, queue, depth, kato_ms, "{text}");
        });
    }

    fn refuse(&self, connection: &mut Connection, connect: &Connect, refusal: ConnectRefusal) {
        let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
        let (host, subsystem) = (connect.host.escape_debug(), connect.subsystem.escape_debug());
        let queue = connect.queue;
        log.line(*now, peer.source(), "NVMe queue refused", |text| {
            warn!(%peer, %host, %subsystem, queue, ?refusal, "{text}");
        });
        if let Speech::Nvme(queue) = &mut connection.speech {
            queue.wire.refused(refusal);
        }
    }

    /// Handles an I/O command. Everything that can be said of it is said before its data is asked for.
    fn command(&mut self, connection: &mut Connection, slot: u32, sqe: &Sqe, transfer: Transfer) {
        let moved = transfer.from_host().or(transfer.to_host()).unwrap_or(0);
        connection.allowance.take(moved.into());
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        let namespaces = queue.namespaces.clone();
        let decoded = io::decode(sqe, transfer, &namespaces.facts);
        let first = queue.fused.take_first();
        let first = if sqe.fuse() == fused::SECOND {
            first
        } else {
            self.miss(queue, first);
            None
        };
        if matches!(sqe.fuse(), fused::FIRST | fused::SECOND) {
            return self.fuse(queue, (slot, sqe, transfer), decoded, first);
        }
        let (io, target) = match decoded {
            Ok(decoded) => decoded,
            Err(status) => return queue.wire.respond(slot, Completion::failed(status)),
        };
        let place = match target {
            Target::All => {
                let parts = namespaces.volumes.iter();
                let parts = parts.map(|&volume| Part { volume, media: flush() }).collect();
                return self.in_parts(connection, slot, parts);
            }
            Target::One(place) => place,
        };
        let (facts, volume) = (&namespaces.facts[place], namespaces.volumes[place]);
        let media = media_of(io, facts.thin);
        let concerns_medium = !matches!(io, Io::Reserve(_) | Io::ReservationReport { .. });
        if concerns_medium
            && let Some(refusal) = self.refusal(queue, volume, media.unwrap_or_else(flush))
        {
            return queue.wire.respond(slot, Completion::failed(refusal));
        }
        if let Err(status) = io.check(transfer, facts, self.controllers.limits.max_transfer) {
            return queue.wire.respond(slot, Completion::failed(status));
        }
        if let Io::ReservationReport { .. } = io {
            return self.report(queue, slot, volume);
        }
        let Some(media) = media else {
            return queue.wire.gather(slot, *sqe, io.list_length());
        };
        let data = match transfer {
            Transfer::InCapsule(length) => {
                Data::InCapsule { length, bytes: Vec::new(), complete: false }
            }
            Transfer::ByRequest(length) => Data::ByRequest(length),
            _ => Data::None,
        };
        self.take_in(connection, Waiting { slot, part: Part { volume, media }, data });
    }

    /// The list of a Dataset Management, or the keys of a reservation command, are here.
    fn listed(&mut self, connection: &mut Connection, slot: u32, sqe: &Sqe, list: &[u8]) {
        if sqe.fuse() != 0 {
            return self.fused_data(connection, slot, list);
        }
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        let namespaces = queue.namespaces.clone();
        // The namespace may have gone while the list came.
        let length = Transfer::InCapsule(list.len() as u32);
        let decoded = io::decode(sqe, length, &namespaces.facts);
        if let Ok((Io::Reserve(out), Target::One(place))) = decoded {
            let change = (namespaces.volumes[place], out);
            return self.reserve(connection, slot, change, reservation::keys(list));
        }
        let ranges = decoded.and_then(|(io, target)| match (io, target) {
            (Io::DatasetManagement { deallocate, .. }, Target::One(place)) => {
                let facts = &namespaces.facts[place];
                let ranges = io::ranges(list, facts)?;
                let wanted = if deallocate && facts.thin { ranges } else { Vec::new() };
                Ok((namespaces.volumes[place], wanted))
            }
            _ => Err(Status::INVALID_FIELD),
        });
        match ranges {
            Ok((volume, ranges)) => {
                let op = MediaOp::WriteSame { unmap: true, no_data: true };
                let part = |range: Blocks| Part { volume, media: media(op, range) };
                let parts = ranges.into_iter().filter(|range| range.count > 0).map(part).collect();
                self.in_parts(connection, slot, parts);
            }
            Err(status) => queue.wire.respond(slot, Completion::failed(status)),
        }
    }

    /// Does the parts of a command one after the other.
    fn in_parts(&mut self, connection: &mut Connection, slot: u32, parts: VecDeque<Part>) {
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        queue.rest.insert(slot, Ok(parts));
        self.go_on(connection, slot);
    }

    /// Does the next part of a command, or answers it if there is none.
    fn go_on(&mut self, connection: &mut Connection, slot: u32) {
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        let next = match queue.rest.get_mut(&slot) {
            Some(Ok(parts)) => parts.pop_front(),
            Some(&mut Err(status)) => return self.end(queue, slot, Completion::failed(status)),
            None => None,
        };
        let Some(part) = next else { return self.end(queue, slot, Completion::SUCCESS) };
        if let Some(refusal) = self.refusal(queue, part.volume, part.media) {
            return self.end(queue, slot, Completion::failed(refusal));
        }
        self.take_in(connection, Waiting { slot, part, data: Data::None });
    }

    /// Why the volume refuses a command, by its reservations, its state and its size.
    fn refusal(&self, queue: &Queue, volume: usize, media: Media) -> Option<Status> {
        let unit = &self.engine.catalog.volumes[volume].unit;
        // Zeroes come in steps; each of them is within the limits of a command.
        let most = match media.op {
            MediaOp::WriteSame { .. } => unit.disk().max_write_same_blocks,
            _ => u64::MAX,
        };
        let first = Media { blocks: media.blocks.min(most), ..media };
        let host = Some(RegistrantRef::Nvme(&queue.host_id));
        unit.admit(host, first).err().map(|refusal| status_of(unit, refusal))
    }

    /// Takes a command in, or keeps it until there is memory.
    fn take_in(&mut self, connection: &mut Connection, command: Waiting) {
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        let passes = queue.waiting.is_empty();
        if let Err(command) = if passes { self.start(connection, command) } else { Err(command) }
            && let Speech::Nvme(queue) = &mut connection.speech
        {
            queue.waiting.push_back(command);
        }
    }

    /// Starts the commands that have waited for memory, as far as there is some now.
    fn feed(&mut self, connection: &mut Connection) {
        while let Speech::Nvme(queue) = &mut connection.speech
            && let Some(command) = queue.waiting.pop_front()
        {
            // Once more: another host may have taken a reservation while it waited.
            let Part { volume, media } = command.part;
            if let Some(refusal) = self.refusal(queue, volume, media) {
                self.end(queue, command.slot, Completion::failed(refusal));
                reply::leave(queue);
                continue;
            }
            if let Err(command) = self.start(connection, command) {
                if let Speech::Nvme(queue) = &mut connection.speech {
                    queue.waiting.push_front(command);
                }
                return;
            }
        }
    }

    /// Starts a command; gives it back if there is no memory for it now, and the connection is fed when there may be.
    fn start(&mut self, connection: &mut Connection, command: Waiting) -> Result<(), Waiting> {
        let (id, link) = (connection.id, connection.link());
        let Speech::Nvme(queue) = &mut connection.speech else { return Ok(()) };
        let Waiting { slot, part: Part { volume, media }, ref data } = command;
        let CommandEngine { set, catalog, .. } = &mut *self.engine;
        let unit = &catalog.volumes[volume].unit;
        connection.tenant = catalog.tenant(queue.claim, volume);
        let tenant = connection.tenant.index();
        let held = Held::of(&media, data.length(), unit.disk().block_size);
        if !set.quotas.has_room(id, tenant, held.payload()) {
            return Err(command);
        }
        let task = Task::new(set.now, volume, TaskKind::Media(media));
        let origin =
            Origin { connection: id, claim: queue.claim, name: slot, retries: Retries::Judged };
        let Some(key) = set.take_in(origin, tenant, held, task) else {
            set.memory.wait(id);
            return Err(command);
        };
        connection.tasks.insert(slot, key);
        match command.data {
            Data::None => self.engine.begin(key, link),
            Data::ByRequest(length) => queue.wire.solicit(slot, length),
            Data::InCapsule { bytes, complete, .. } => {
                if !bytes.is_empty() {
                    set.keep(key, 0, &bytes);
                }
                if complete {
                    self.engine.begin(key, link);
                }
            }
        }
        Ok(())
    }
}

/// The request for a command; `None` for one whose ranges are in its data, and for reservation commands.
fn media_of(io: Io, thin: bool) -> Option<Media> {
    Some(match io {
        Io::Flush => flush(),
        Io::Read(blocks) => media(MediaOp::Read, blocks),
        Io::Write(blocks) => media(MediaOp::Write, blocks),
        Io::Compare(blocks) => media(MediaOp::Verify(Compare::Blocks), blocks),
        Io::Verify(blocks) => media(MediaOp::Verify(Compare::Nothing), blocks),
        Io::WriteZeroes { blocks, deallocate } => {
            media(MediaOp::WriteSame { unmap: deallocate && thin, no_data: true }, blocks)
        }
        Io::DatasetManagement { .. } | Io::Reserve(_) | Io::ReservationReport { .. } => {
            return None;
        }
    })
}

const fn media(op: MediaOp, Blocks { lba, count, fua }: Blocks) -> Media {
    Media { op, lba, blocks: count as u64, fua, dpo: false }
}

const fn flush() -> Media {
    let op = MediaOp::Synchronize { immediate: false };
    Media { op, lba: 0, blocks: 0, fua: false, dpo: false }
}

/// An older connection of a queue must have ended by then.
const QUEUE_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Names of the flushes that end a controller: no slot is as high.
const LEAVES: u32 = 1 << 31;
