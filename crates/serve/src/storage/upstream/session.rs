//! One session with an upstream's target: its socket, its state machine and what is under way on it.

mod commands;

use super::claim::{Claim, Denied, Holder, Owner};
use super::flight::{Flight, Terms};
use super::network::Stream;
use super::payload::Payload;
use super::probe::{Facts, Probe, Unfit};
use super::sense::Heard;
use crate::buffer::Received;
use crate::storage::io::{Ended, Io};
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use thiserror::Error;
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::path::Access;
use weir_flow::request::Outcome;
use weir_wire::iscsi::initiator::{AsyncEvent, Event, Fault, Initiator, Itt, TmfResponse};

new_key_type! {
    /// Something that the target is to answer.
    struct TagKey;
}

/// A session.
pub(super) struct Session<S> {
    pub(super) stream: S,
    wire: Initiator<Payload>,
    received: Received,
    pub(super) stage: Stage,
    lun: u64,
    asked: SlotMap<TagKey, Asked>,
    /// Operations that wait for the target to have room for them.
    waiting: VecDeque<Flight>,
    /// Operations that the target has put off, and until when.
    later: Vec<(Instant, Flight)>,
    /// Operations that have ended while bytes of theirs still wait to be sent.
    leaving: Vec<(Flight, Outcome)>,
    /// What it has said of the unit and of its own way there.
    facts: Option<Box<Facts>>,
    /// What changes while the session lasts is to be asked again.
    refresh: bool,
    /// Something waits to be written.
    pub(super) dirty: bool,
    /// There may be more to read.
    pub(super) queued: bool,
    /// The target will send nothing more: what has come is read up to the end, of which the kernel tells
    /// only once.
    pub(super) ends: bool,
}

/// How far a session has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// The connection is being made.
    Connecting,
    /// The login is under way.
    Login,
    /// The unit is looked at.
    Probing(Box<Probe>),
    /// The unit is known, and not yet to be used.
    Known,
    /// Its reservation is being settled.
    Claiming(Box<Claim>),
    /// Operations are taken.
    Ready,
    /// It has asked to log out.
    LoggingOut,
}

/// What the target is to answer.
enum Asked {
    Io { flight: Flight, itt: Itt },
    Question { answer: Vec<u8>, room: u32 },
    Refresh { probe: Box<Probe>, answer: Vec<u8>, room: u32 },
    Claim { answer: Vec<u8>, room: u32 },
    Owner { answer: Vec<u8>, room: u32 },
    Clear,
    Flush,
    Sign,
    Reset { since: Instant },
}

/// What a session tells.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// The connection is made, and the login begins.
    Connected,
    /// The target has let it in, on a portal of this group: an older session of the same name is over.
    LoggedIn(Option<u16>),
    /// The unit was looked at.
    Looked(Box<Facts>),
    /// The unit is the gateway's on this way.
    Claimed,
    /// Who has reserved it.
    Owner(Option<Holder>),
    /// The reservation was given up, or that was refused.
    Cleared,
    /// What may change was looked at again.
    Refreshed(Box<Facts>),
    /// An operation has ended.
    Ended(Ended),
    /// The target says how the way may be used.
    Access(Access),
    /// A sign of life that was asked for.
    Sign,
    /// The unit was reset: nothing that was under way is any more.
    Reset,
    /// The unit was not reset, since the target will not.
    NotReset(TmfResponse),
    /// The last flush has ended.
    Flushed(Result<(), IoError>),
    /// The target asks to be left.
    Leave,
}

/// Why a session is over.
#[derive(Debug, Error)]
pub(super) enum Loss {
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Broken(io::Error),
    /// The target has closed it.
    #[error("the target has closed the connection {}", .0)]
    Closed(&'static str),
    /// The target broke the protocol or refused the login.
    #[error("{0}")]
    Fault(Fault),
    /// It was not usable in time.
    #[error("no answer in time: {0}")]
    Late(&'static str),
    /// There is nothing of use behind it.
    #[error("{0}")]
    Unfit(Unfit),
    /// The unit is not the gateway's to write to.
    #[error("{0}")]
    Denied(Denied),
    /// The target has refused a command for a reservation, or tells that one has changed.
    #[error("another gateway may have taken the unit over: {0}")]
    Doubtful(String),
    /// Somebody else owns the unit now.
    #[error("another gateway holds the reservation")]
    Fenced,
    /// There is another unit behind it than behind the others.
    #[error("it leads to another unit: {0}")]
    Different(String),
    /// The unit cannot be used any more.
    #[error("the unit is not there any more: {0}")]
    Gone(Heard),
    /// It does nothing but put off what it is asked for.
    #[error("the target answers BUSY without end")]
    PutOff,
    /// Data that was told to be complete was not.
    #[error("the target reported a complete read after {came} bytes")]
    Short {
        /// What came.
        came: u32,
    },
    /// A command has an end that says nothing.
    #[error("the target does not know how a command has ended")]
    NoStatus,
    /// The target names another portal.
    #[error("the target redirects to {0}")]
    Redirected(String),
    /// Nothing else was to be done with it.
    #[error("logged out")]
    LoggedOut,
    /// The data path has given it up.
    #[error("given up: it did not answer")]
    GivenUp,
    /// The unit was reset.
    #[error("the unit was reset")]
    Reset,
}

/// What a session needs to know of its upstream.
pub(super) struct Around<'a> {
    /// What the unit takes; `None` before any session has looked at it.
    pub(super) terms: &'a mut Option<Terms>,
    /// Who owns it; `None` if nobody is kept from it.
    pub(super) owner: &'a mut Option<Owner>,
    /// What is to be told.
    pub(super) told: &'a mut Vec<SessionEvent>,
    /// Errors that the unit has told of, and who it is, for the log.
    pub(super) errors: &'a mut crate::limits::Tally,
    pub(super) who: &'a str,
    pub(super) now: Instant,
}

/// What was left when a session ended.
pub(super) struct Remains {
    /// Operations that the target has not done, or that change nothing.
    pub(super) dead: Vec<Flight>,
    /// Operations that the target may still be doing.
    pub(super) unknown: Vec<Flight>,
    /// Operations that have ended.
    pub(super) ended: Vec<Ended>,
}

/// What has come, without the bytes.
enum Came {
    Nothing,
    LoggedIn(Option<u16>),
    Redirected(String),
    Done { tag: u64, status: Option<u8>, heard: Heard },
    Aborted(u64),
    Pong(u64),
    Managed(u64, TmfResponse),
    Leave,
    LoggedOut,
}

impl<S: Stream> Session<S> {
    /// A session whose connection is being made.
    pub(super) fn new(stream: S, wire: Initiator<Payload>, lun: u64) -> Self {
        Self {
            stream,
            wire,
            received: Received::default(),
            stage: Stage::Connecting,
            lun,
            asked: SlotMap::with_key(),
            waiting: VecDeque::new(),
            later: Vec::new(),
            leaving: Vec::new(),
            facts: None,
            refresh: false,
            dirty: true,
            queued: false,
            ends: false,
        }
    }

    /// What it waits for before it is of use, in words.
    pub(super) const fn waits_for(&self) -> &'static str {
        match self.stage {
            Stage::Connecting => "the connection is not made",
            Stage::Login => "the login is not over",
            Stage::Probing(_) | Stage::Known => "the unit does not answer",
            Stage::Claiming(_) => "the reservation of the unit is not settled",
            Stage::Ready | Stage::LoggingOut => "it does not log out",
        }
    }

    /// Whether the connection is being made.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting)
    }

    /// Whether operations are taken.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.waiting.is_empty() && self.later.is_empty()
    }

    /// When it wants to be asked again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.later.iter().map(|&(at, _)| at).min()
    }

    /// The socket has become writable.
    pub(super) fn writable(&mut self, around: &mut Around<'_>) -> Result<(), Loss> {
        if matches!(self.stage, Stage::Connecting) {
            if !self.stream.is_established().map_err(Loss::Broken)? {
                return Ok(());
            }
            self.stage = Stage::Login;
            around.told.push(SessionEvent::Connected);
        }
        self.write(around)
    }

    /// Writes what waits.
    pub(super) fn write(&mut self, around: &mut Around<'_>) -> Result<(), Loss> {
        self.dirty = false;
        if matches!(self.stage, Stage::Connecting) {
            return Ok(());
        }
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
        self.let_go(around.told);
        Ok(())
    }

    /// Tells of operations whose bytes have left meanwhile.
    fn let_go(&mut self, told: &mut Vec<SessionEvent>) {
        let mut index = 0;
        while index < self.leaving.len() {
            if self.leaving[index].0.is_sent() {
                let (flight, outcome) = self.leaving.swap_remove(index);
                told.push(SessionEvent::Ended(ended(flight, outcome)));
            } else {
                index += 1;
            }
        }
    }

    /// Reads once and deals with what has come; true if there may be more.
    pub(super) fn read(&mut self, around: &mut Around<'_>) -> Result<bool, Loss> {
        self.queued = false;
        if matches!(self.stage, Stage::Connecting) {
            return Ok(false);
        }
        let spare = self.received.spare(self.wire.needed(), RECEIVE);
        let room = spare.len();
        let count = loop {
            match self.stream.read(spare) {
                Ok(0) => return Err(Loss::Closed(self.when())),
                Ok(count) => break count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Loss::Broken(error)),
                },
            }
        };
        self.received.arrived(count);
        loop {
            let (consumed, came) = self.hear()?;
            self.received.consume(consumed);
            let idle = consumed == 0 && matches!(came, Came::Nothing);
            self.deal(came, around)?;
            if idle {
                break;
            }
        }
        self.start_waiting(around);
        self.dirty |= !self.wire.outbox().is_empty();
        Ok(count == room || self.ends)
    }

    const fn when(&self) -> &'static str {
        match self.stage {
            Stage::Connecting | Stage::Login => "during the login",
            Stage::Probing(_) | Stage::Known | Stage::Claiming(_) => {
                "when it was asked about the unit"
            }
            Stage::Ready => "of a session",
            Stage::LoggingOut => "at the end",
        }
    }

    /// Takes what is whole from what has come; data goes to its place at once.
    fn hear(&mut self) -> Result<(usize, Came), Loss> {
        let got = self.wire.receive(self.received.bytes()).map_err(Loss::Fault)?;
        let came = match got.event {
            Some(Event::Data { tag, offset, bytes, .. }) => {
                match self.asked.get_mut(key_of(tag)) {
                    Some(Asked::Io { flight, .. }) => {
                        let came = flight.came;
                        flight.fill(offset, bytes).ok_or(Loss::Short { came })?;
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
                Came::Nothing
            }
            Some(Event::LoggedIn { portal_group, .. }) => Came::LoggedIn(portal_group),
            Some(Event::Redirected { address, .. }) => Came::Redirected(address),
            Some(Event::Done { tag, status, sense, .. }) => {
                Came::Done { tag, status, heard: Heard::parse(sense) }
            }
            Some(Event::Pong { tag }) => Came::Pong(tag),
            Some(Event::Managed { tag, response }) => Came::Managed(tag, response),
            Some(Event::Aborted { tag, .. }) => Came::Aborted(tag),
            None
            | Some(
                Event::Asked(AsyncEvent::Unit { .. } | AsyncEvent::Other { .. })
                | Event::Targets(_),
            ) => Came::Nothing,
            Some(Event::Asked(_)) => Came::Leave,
            Some(Event::LoggedOut) => Came::LoggedOut,
        };
        Ok((got.consumed, came))
    }

    fn deal(&mut self, came: Came, around: &mut Around<'_>) -> Result<(), Loss> {
        match came {
            Came::Nothing => Ok(()),
            Came::LoggedIn(group) => {
                around.told.push(SessionEvent::LoggedIn(group));
                let probe = Box::new(Probe::new(self.lun));
                self.stage = Stage::Probing(probe);
                self.ask();
                Ok(())
            }
            Came::Redirected(address) => Err(Loss::Redirected(address)),
            Came::Done { tag, status: Some(status), heard } => {
                self.done(tag, status, heard, around)
            }
            // The target does not know what became of it; the end of the session decides.
            Came::Done { status: None, .. } => Err(Loss::NoStatus),
            Came::Aborted(tag) => {
                if let Some(Asked::Io { flight, .. }) = self.asked.remove(key_of(tag)) {
                    self.end(flight, PATH_FAILED, around.told);
                }
                Ok(())
            }
            Came::Pong(tag) => {
                if self.asked.remove(key_of(tag)).is_some() {
                    around.told.push(SessionEvent::Sign);
                }
                Ok(())
            }
            Came::Managed(tag, response) => {
                if self.asked.remove(key_of(tag)).is_some() {
                    around.told.push(match response {
                        TmfResponse::Complete => SessionEvent::Reset,
                        _ => SessionEvent::NotReset(response),
                    });
                }
                Ok(())
            }
            Came::Leave => {
                around.told.push(SessionEvent::Leave);
                Ok(())
            }
            Came::LoggedOut => Err(Loss::LoggedOut),
        }
    }

    /// Ends it. `reset`: the other end is told so at once, and nothing that waits in the kernel is sent
    /// any more.
    pub(super) fn bury(self, reset: bool) -> Remains {
        let Self { stream, wire, asked, waiting, later, leaving, .. } = self;
        if reset {
            stream.reset_on_close();
        }
        let unsent = wire.outstanding().filter(|one| !one.sent).map(|one| one.tag);
        let unsent: BTreeSet<u64> = unsent.collect();
        // First of all nothing refers to the buffers any more.
        drop((stream, wire));
        let mut remains = Remains { dead: Vec::new(), unknown: Vec::new(), ended: Vec::new() };
        for (key, asked) in asked {
            if let Asked::Io { flight, .. } = asked {
                let lands = flight.changes() && !unsent.contains(&key.data().as_ffi());
                let to = if lands { &mut remains.unknown } else { &mut remains.dead };
                to.push(flight);
            }
        }
        remains.dead.extend(waiting);
        remains.dead.extend(later.into_iter().map(|(_, flight)| flight));
        let ends = leaving.into_iter().map(|(flight, outcome)| ended(flight, outcome));
        remains.ended.extend(ends);
        remains
    }
}

/// How an operation has ended.
pub(super) fn ended(flight: Flight, outcome: Outcome) -> Ended {
    let Io { whose, promise, .. } = flight.land();
    Ended { whose, outcome, flushed: false, promise }
}

fn key_of(tag: u64) -> TagKey {
    KeyData::from_ffi(tag).into()
}

/// The end of an operation that is dead for sure and may be done on another path.
pub(super) const PATH_FAILED: Outcome = Err(IoError::PathFailed);

/// Slices given to one vectored write.
const SLICES: usize = 64;

/// Receive buffer, in bytes: the largest PDU and a good deal more.
const RECEIVE: usize = 256 << 10;

#[cfg(test)]
mod tests;
