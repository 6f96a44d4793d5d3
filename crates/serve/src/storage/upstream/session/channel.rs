//! The connection of a session: bytes in and out, and the commands in flight on it.

use super::super::cdb::TEST_UNIT_READY;
use super::super::claim::Order;
use super::super::network::Stream;
use super::super::operation::Operation;
use super::super::payload::Payload;
use super::super::probe::{Probe, Question};
use super::super::sense::Sense;
use super::{Loss, Remains};
use crate::buffer::Received;
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use weir_flow::clock::Instant;
use weir_wire::iscsi::initiator::{
    AsyncEvent, Attribute, Command, Direction, Event, Initiator, Itt, TaskFunction, TmfResponse,
};

new_key_type! {
    /// A command, or another request, in flight.
    pub(super) struct TagKey;
}

/// The connection of a session.
pub(super) struct Channel<S> {
    pub(super) stream: S,
    wire: Initiator<Payload>,
    received: Received,
    pub(super) lun: u64,
    asked: SlotMap<TagKey, Asked>,
    /// There is output to write.
    pub(super) dirty: bool,
    /// The target will send nothing more.
    pub(super) ends: bool,
}

/// What is in flight, with the response as far as it has arrived.
pub(super) enum Asked {
    /// A command of an operation.
    Io { operation: Operation, itt: Itt },
    /// A question of the probe.
    Question { answer: Vec<u8>, room: u32 },
    /// A question of a probe in a session that is ready.
    Refresh { probe: Box<Probe>, answer: Vec<u8>, room: u32 },
    /// A command of a claim.
    Claim { answer: Vec<u8>, room: u32 },
    /// READ RESERVATION.
    Owner { answer: Vec<u8>, room: u32 },
    /// CLEAR of the reservation.
    Clear,
    /// The last flush.
    Flush,
    /// TEST UNIT READY.
    Ready,
    /// A ping.
    Sign,
    /// LOGICAL UNIT RESET.
    Reset { since: Instant },
}

/// What has arrived, without data.
pub(super) enum Incoming {
    Nothing,
    LoggedIn(Option<u16>),
    Redirected(String),
    Done { tag: u64, status: Option<u8>, sense: Sense },
    Aborted(u64),
    Pong(u64),
    Managed(u64, TmfResponse),
    LogoutRequested,
    LoggedOut,
}

impl<S: Stream> Channel<S> {
    /// A connection that is being established.
    pub(super) fn new(stream: S, wire: Initiator<Payload>, lun: u64) -> Self {
        Self {
            stream,
            wire,
            received: Received::default(),
            lun,
            asked: SlotMap::with_key(),
            dirty: true,
            ends: false,
        }
    }

    /// Whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// Whether one of the commands in flight is such.
    pub(super) fn any(&self, is: impl FnMut(&Asked) -> bool) -> bool {
        self.asked.values().any(is)
    }

    /// Commands that may be sent now.
    pub(super) fn room(&self) -> u32 {
        self.wire.room()
    }

    /// Takes what was in flight with this tag.
    pub(super) fn take(&mut self, tag: u64) -> Option<Asked> {
        self.asked.remove(KeyData::from_ffi(tag).into())
    }

    /// Writes the output, as far as the socket takes it.
    pub(super) fn write(&mut self) -> Result<(), Loss> {
        while !self.wire.outbox().is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slot, bytes) in slices.iter_mut().zip(self.wire.outbox().slices()) {
                *slot = IoSlice::new(bytes);
                count += 1;
            }
            match self.stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err(Loss::Closed("while it was written to")),
                Ok(written) => self.wire.written(written),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Loss::Broken(error)),
                },
            }
        }
        Ok(())
    }

    /// Reads once; whether there may be more. `Ok(None)` if there is nothing, `Err(None)` if the target has closed
    /// the connection.
    pub(super) fn read(&mut self) -> Result<Option<bool>, Option<io::Error>> {
        let spare = self.received.spare(self.wire.needed(), RECEIVE);
        let room = spare.len();
        let count = loop {
            match self.stream.read(spare) {
                Ok(0) => return Err(None),
                Ok(count) => break count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Some(error)),
                },
            }
        };
        self.received.arrived(count);
        Ok(Some(count == room))
    }

    /// Takes the next event of the input; data goes to its buffer at once. `None` when the input has no whole PDU.
    pub(super) fn next_incoming(&mut self) -> Result<Option<Incoming>, Loss> {
        let got = self.wire.receive(self.received.bytes()).map_err(Loss::Fault)?;
        let incoming = match got.event {
            Some(Event::Data { tag, offset, bytes, .. }) => {
                match self.asked.get_mut(KeyData::from_ffi(tag).into()) {
                    Some(Asked::Io { operation, .. }) => {
                        let came = operation.came;
                        operation.fill(offset, bytes).ok_or(Loss::Short { came })?;
                    }
                    Some(
                        Asked::Question { answer, room }
                        | Asked::Refresh { answer, room, .. }
                        | Asked::Claim { answer, room }
                        | Asked::Owner { answer, room },
                    ) => {
                        let more = (*room as usize).saturating_sub(answer.len()).min(bytes.len());
                        answer.extend_from_slice(&bytes[..more]);
                    }
                    _ => {}
                }
                Incoming::Nothing
            }
            Some(Event::LoggedIn { portal_group, .. }) => Incoming::LoggedIn(portal_group),
            Some(Event::Redirected { address, .. }) => Incoming::Redirected(address),
            Some(Event::Done { tag, status, sense, .. }) => {
                Incoming::Done { tag, status, sense: Sense::parse(sense) }
            }
            Some(Event::Pong { tag }) => Incoming::Pong(tag),
            Some(Event::Managed { tag, response }) => Incoming::Managed(tag, response),
            Some(Event::Aborted { tag, .. }) => Incoming::Aborted(tag),
            None
            | Some(
                Event::Asked(AsyncEvent::Unit { .. } | AsyncEvent::Other { .. })
                | Event::Targets(_),
            ) => Incoming::Nothing,
            Some(Event::Asked(_)) => Incoming::LogoutRequested,
            Some(Event::LoggedOut) => Incoming::LoggedOut,
        };
        let consumed = got.consumed;
        self.received.consume(consumed);
        let idle = consumed == 0 && matches!(incoming, Incoming::Nothing);
        Ok((!idle).then_some(incoming))
    }

    /// Notes output that the input has caused.
    pub(super) fn note_output(&mut self) {
        self.dirty |= !self.wire.outbox().is_empty();
    }

    /// Sends a command of an operation, which was asked about while there was [`room`](Self::room).
    pub(super) fn start(&mut self, operation: Operation, cdb: [u8; 16], data: Direction<Payload>) {
        let (lun, wire) = (self.lun, &mut self.wire);
        self.asked.insert_with_key(|key| {
            let tag = key.data().as_ffi();
            let command = Command { lun, cdb, attribute: Attribute::Simple, data, tag };
            Asked::Io { operation, itt: wire.command(command) }
        });
        self.dirty = true;
    }

    /// Sends a question of a probe.
    pub(super) fn ask(&mut self, asked: Asked, question: &Question) {
        let lun = if question.of_unit { self.lun } else { 0 };
        self.send(asked, lun, question.cdb, reads(question.room));
    }

    /// Sends the next question of a probe in a session that is ready.
    pub(super) fn probe_again(&mut self, probe: Box<Probe>) {
        if let Some(question) = probe.question() {
            let asked = Asked::Refresh { probe, answer: Vec::new(), room: question.room };
            self.ask(asked, &question);
        }
    }

    /// Sends a command for the reservation.
    pub(super) fn order(&mut self, asked: Asked, order: &Order) {
        let data = match order.list {
            Some(list) => Direction::Write(Payload::owned(list.into()), 0..list.len()),
            None => Direction::Read(order.room),
        };
        self.send(asked, self.lun, order.cdb, data);
    }

    /// Sends the last flush.
    pub(super) fn flush(&mut self, cdb: [u8; 16]) {
        self.send(Asked::Flush, self.lun, cdb, Direction::None);
    }

    /// Sends TEST UNIT READY, which was asked about while there was [`room`](Self::room).
    pub(super) fn test_unit_ready(&mut self) {
        self.send(Asked::Ready, self.lun, TEST_UNIT_READY, Direction::None);
    }

    fn send(&mut self, asked: Asked, lun: u64, cdb: [u8; 16], data: Direction<Payload>) {
        let tag = self.asked.insert(asked).data().as_ffi();
        self.wire.command(Command { lun, cdb, attribute: Attribute::Simple, data, tag });
        self.dirty = true;
    }

    /// Sends a ping, unless one is in flight.
    pub(super) fn ping(&mut self) {
        if self.any(|asked| matches!(asked, Asked::Sign)) {
            return;
        }
        let tag = self.asked.insert(Asked::Sign).data().as_ffi();
        self.wire.ping(tag);
        self.dirty = true;
    }

    /// Sends a LOGICAL UNIT RESET, unless one is in flight; since when it is.
    pub(super) fn reset_unit(&mut self, now: Instant) -> Option<Instant> {
        let since = |asked: &Asked| match asked {
            Asked::Reset { since } => Some(*since),
            _ => None,
        };
        if let Some(since) = self.asked.values().find_map(since) {
            return Some(since);
        }
        let tag = self.asked.insert(Asked::Reset { since: now }).data().as_ffi();
        self.wire.manage(TaskFunction::LogicalUnitReset, self.lun, None, tag);
        self.dirty = true;
        None
    }

    /// Sends a logout.
    pub(super) fn log_out(&mut self) {
        self.wire.logout();
        self.dirty = true;
    }

    /// Takes back an operation in flight for which `of` holds; its command is forgotten.
    pub(super) fn forget(&mut self, of: impl Fn(&Operation) -> bool) -> Option<Operation> {
        let found = self.asked.iter().find_map(|(tag, asked)| match asked {
            Asked::Io { operation, itt } if of(operation) => Some((tag, *itt)),
            _ => None,
        });
        let (tag, itt) = found?;
        self.wire.forget(itt);
        match self.asked.remove(tag) {
            Some(Asked::Io { operation, .. }) => Some(operation),
            _ => None,
        }
    }

    /// Closes the connection; the operations in flight go to `remains`.
    pub(super) fn close(self, reset: bool, remains: &mut Remains) {
        let Self { stream, wire, asked, .. } = self;
        if reset {
            stream.reset_on_close();
        }
        let unsent = wire.outstanding().filter(|one| !one.sent).map(|one| one.tag);
        let unsent: BTreeSet<u64> = unsent.collect();
        drop((stream, wire));
        for (key, asked) in asked {
            if let Asked::Io { operation, .. } = asked {
                let unknown = operation.changes() && !unsent.contains(&key.data().as_ffi());
                let to = if unknown { &mut remains.unknown } else { &mut remains.dead };
                to.push(operation);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn in_flight(&mut self) -> &mut SlotMap<TagKey, Asked> {
        &mut self.asked
    }
}

const fn reads(room: u32) -> Direction<Payload> {
    if room == 0 { Direction::None } else { Direction::Read(room) }
}

/// The most slices of one vectored write.
const SLICES: usize = 64;

/// The size of the receive buffer, in bytes: more than the largest PDU.
const RECEIVE: usize = 256 << 10;
