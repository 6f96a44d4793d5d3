//! One session with an upstream's target: from the connection to the logout.
//!
//! [`Channel`] is the connection and the commands in flight on it, [`OperationQueue`] the operations that become
//! commands. The session decides what the stage of the session and the responses mean for both.

mod channel;
mod doubt;
mod queue;
mod ready;

use super::claim::{self, Claim};
use super::network::Stream;
use super::operation::{Operation, Terms};
use super::ownership::{Denied, Holder, Owner};
use super::payload::Payload;
use super::probe::{Facts, Probe, Unfit};
use super::sense::{CHECK_CONDITION, News, Sense, Verdict, judge};
use crate::limits::Tally;
use crate::storage::io::{Ended, Io};
use channel::{Asked, Channel, Incoming};
use doubt::{doubt, holder_read, is_doubt};
use queue::OperationQueue;
use ready::ReadyQuestion;
use std::io;
use thiserror::Error;
use tracing::warn;
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::path::Access;
use weir_flow::request::{Outcome, RequestKey};
use weir_wire::iscsi::initiator::{Fault, Initiator, TmfResponse};

/// A session.
pub(super) struct Session<S> {
    channel: Channel<S>,
    pub(super) stage: Stage,
    operations: OperationQueue,
    /// What the unit has said of itself and of this path.
    facts: Option<Box<Facts>>,
    /// What can change while the session lasts is to be probed again.
    refresh: bool,
    /// The question whether the unit has something to report.
    ready: ReadyQuestion,
    /// It is in the list of sessions that have more input.
    pub(super) queued: bool,
}

/// How far a session has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// The connection is being established.
    Connecting,
    /// The login is in progress.
    Login,
    /// The unit is being probed.
    Probing(Box<Probe>),
    /// The unit was probed, and is to be claimed.
    Known,
    /// The unit is being claimed.
    Claiming(Box<Claim>),
    /// Operations are taken.
    Ready,
    /// A logout was requested.
    LoggingOut,
}

/// What a session reports.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// The connection is established, and the login begins.
    Connected,
    /// The login has succeeded, on a portal of this group: an older session of the same name is over.
    LoggedIn(Option<u16>),
    /// The unit was probed.
    Probed(Box<Facts>),
    /// The unit is the gateway's on this path.
    Claimed,
    /// The holder of the reservation.
    Owner(Option<Holder>),
    /// The reservation was given up, or that was refused.
    Cleared,
    /// What can change was probed again.
    Refreshed(Box<Facts>),
    /// An operation has ended.
    Ended(Ended),
    /// A flush of the unit has ended well.
    FlushEnded(Ended),
    /// TEST UNIT READY was executed: the unit has nothing more to report.
    Ready,
    /// The ALUA state of the path.
    Access(Access),
    /// A sign of life that was requested.
    Sign,
    /// The unit was reset: no command is in progress there.
    Reset,
    /// The unit says that it was reset or powered on: what it had not made durable may be lost.
    WasReset,
    /// The unit says that a write which it had acknowledged has failed.
    WriteLost(Sense),
    /// The target has refused to reset the unit.
    NotReset(TmfResponse),
    /// The last flush has ended.
    Flushed(Result<(), IoError>),
    /// The target requests a logout.
    LogoutRequested,
}

/// Why a session is over.
#[derive(Debug, Error)]
pub(super) enum Loss {
    /// The connection could not be established, or broke.
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
    /// The unit cannot be used.
    #[error("{0}")]
    Unfit(Unfit),
    /// The gateway may not write to the unit.
    #[error("{0}")]
    Denied(Denied),
    /// The target has refused a command for a reservation, or reports that one has changed.
    #[error("another gateway may have taken the unit over: {0}")]
    Doubtful(String),
    /// Another gateway owns the unit now.
    #[error("another gateway holds the reservation")]
    Fenced,
    /// The unit is to be claimed with another key.
    #[error("the unit is claimed again")]
    Renewed,
    /// It leads to another unit than the other paths.
    #[error("it leads to another unit: {0}")]
    Different(String),
    /// The unit cannot be used any more.
    #[error("the unit is not there any more: {0}")]
    Gone(Sense),
    /// The target defers a command again and again.
    #[error("the target answers BUSY without end")]
    PutOff,
    /// A read was reported as complete and was not.
    #[error("the target reported a complete read after {came} bytes")]
    Short {
        /// Bytes that were received.
        came: u32,
    },
    /// A command ended without a status.
    #[error("the target does not know how a command has ended")]
    NoStatus,
    /// The target names another portal.
    #[error("the target redirects to {0}")]
    Redirected(String),
    /// The logout has ended.
    #[error("logged out")]
    LoggedOut,
    /// The pipeline has given it up.
    #[error("given up: it did not answer")]
    GivenUp,
    /// The unit was reset.
    #[error("the unit was reset")]
    Reset,
}

/// What the sessions of an upstream share, for the time of one call.
pub(super) struct UnitState<'a> {
    /// The commands that the unit takes; `None` before a session has probed it.
    pub(super) terms: &'a mut Option<Terms>,
    /// The reservation; `None` if the unit is not reserved.
    pub(super) owner: &'a mut Option<Owner>,
    /// The events of the session.
    pub(super) events: &'a mut Vec<SessionEvent>,
    /// Errors that the unit has reported.
    pub(super) errors: &'a mut Tally,
    /// The name of the path in the log.
    pub(super) who: &'a str,
    pub(super) now: Instant,
}

/// The operations of a session that is over.
pub(super) struct Remains {
    /// Operations that the target has not executed, or that change nothing.
    pub(super) dead: Vec<Operation>,
    /// Operations that the target may still execute.
    pub(super) unknown: Vec<Operation>,
    /// Operations that have ended.
    pub(super) ended: Vec<Ended>,
}

impl<S: Stream> Session<S> {
    /// A session whose connection is being established.
    pub(super) fn new(stream: S, wire: Initiator<Payload>, lun: u64) -> Self {
        Self {
            channel: Channel::new(stream, wire, lun),
            stage: Stage::Connecting,
            operations: OperationQueue::default(),
            facts: None,
            refresh: false,
            ready: ReadyQuestion::default(),
            queued: false,
        }
    }

    /// What it waits for before it is usable, for the log.
    pub(super) const fn waits_for(&self) -> &'static str {
        match self.stage {
            Stage::Connecting => "the connection is not made",
            Stage::Login => "the login is not over",
            Stage::Probing(_) | Stage::Known => "the unit does not answer",
            Stage::Claiming(_) => "the reservation of the unit is not settled",
            Stage::Ready | Stage::LoggingOut => "it does not log out",
        }
    }

    /// Whether the connection is being established.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting)
    }

    /// Whether operations are taken.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// Whether no operation or question is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.channel.is_idle() && self.operations.is_empty()
    }

    /// Whether there is output to write.
    pub(super) const fn is_dirty(&self) -> bool {
        self.channel.dirty
    }

    /// The socket.
    pub(super) const fn stream(&mut self) -> &mut S {
        &mut self.channel.stream
    }

    /// The target will send nothing more, if `ended`: the input is read up to its end, which the kernel reports
    /// only once.
    pub(super) const fn note_end(&mut self, ended: bool) {
        self.channel.ends |= ended;
    }

    /// When a deferred command is due.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.operations.next(), self.ready.next()].into_iter().flatten().min()
    }

    /// The socket has become writable.
    pub(super) fn writable(&mut self, unit: &mut UnitState<'_>) -> Result<(), Loss> {
        if self.is_connecting() {
            if !self.channel.stream.is_established().map_err(Loss::Broken)? {
                return Ok(());
            }
            self.stage = Stage::Login;
            unit.events.push(SessionEvent::Connected);
        }
        self.write(unit)
    }

    /// Writes the output, as far as the socket takes it.
    pub(super) fn write(&mut self, unit: &mut UnitState<'_>) -> Result<(), Loss> {
        self.channel.dirty = false;
        if self.is_connecting() {
            return Ok(());
        }
        self.channel.write()?;
        self.operations.release_sent(unit.events);
        Ok(())
    }

    /// Reads once and handles the input; true if there may be more.
    pub(super) fn read(&mut self, unit: &mut UnitState<'_>) -> Result<bool, Loss> {
        self.queued = false;
        if self.is_connecting() {
            return Ok(false);
        }
        let Some(more) = self.channel.read().map_err(|error| self.read_failed(error))? else {
            return Ok(false);
        };
        while let Some(incoming) = self.channel.next_incoming()? {
            self.handle(incoming, unit)?;
        }
        self.start_waiting(unit);
        self.channel.note_output();
        Ok(more || self.channel.ends)
    }

    /// Why a read has failed; `None` if the target has closed the connection.
    fn read_failed(&self, error: Option<io::Error>) -> Loss {
        match (error, &self.stage) {
            (Some(error), _) => Loss::Broken(error),
            (None, Stage::Connecting | Stage::Login) => Loss::Closed("during the login"),
            (None, Stage::Probing(_) | Stage::Known | Stage::Claiming(_)) => {
                Loss::Closed("when it was asked about the unit")
            }
            (None, Stage::Ready) => Loss::Closed("of a session"),
            (None, Stage::LoggingOut) => Loss::Closed("at the end"),
        }
    }

    fn handle(&mut self, incoming: Incoming, unit: &mut UnitState<'_>) -> Result<(), Loss> {
        match incoming {
            Incoming::Nothing => {}
            Incoming::LoggedIn(group) => {
                unit.events.push(SessionEvent::LoggedIn(group));
                self.stage = Stage::Probing(Box::new(Probe::new(self.channel.lun)));
                self.ask();
            }
            Incoming::Redirected(address) => return Err(Loss::Redirected(address)),
            Incoming::Done { tag, status: Some(status), sense } => {
                return self.done(tag, status, sense, unit);
            }
            // The target does not know how the command has ended; the end of the session decides.
            Incoming::Done { status: None, .. } => return Err(Loss::NoStatus),
            Incoming::Aborted(tag) => {
                if let Some(Asked::Io { operation, .. }) = self.channel.take(tag) {
                    self.operations.end(operation, PATH_FAILED, unit.events);
                }
            }
            Incoming::Pong(tag) => {
                if self.channel.take(tag).is_some() {
                    unit.events.push(SessionEvent::Sign);
                }
            }
            Incoming::Managed(tag, response) => {
                if self.channel.take(tag).is_some() {
                    unit.events.push(match response {
                        TmfResponse::Complete => SessionEvent::Reset,
                        _ => SessionEvent::NotReset(response),
                    });
                }
            }
            Incoming::LogoutRequested => unit.events.push(SessionEvent::LogoutRequested),
            Incoming::LoggedOut => return Err(Loss::LoggedOut),
        }
        Ok(())
    }

    /// A command has ended.
    fn done(
        &mut self,
        tag: u64,
        status: u8,
        sense: Sense,
        unit: &mut UnitState<'_>,
    ) -> Result<(), Loss> {
        if status == CHECK_CONDITION && sense.deferred {
            unit.events.push(SessionEvent::WriteLost(sense));
        } else if status == CHECK_CONDITION && sense.is_reset() && self.is_ready() {
            // Before that it is news of a unit that nothing was written to yet, and the path comes up after it.
            unit.events.push(SessionEvent::WasReset);
        }
        match self.channel.take(tag) {
            Some(Asked::Io { operation, .. }) => {
                if unit.owner.is_some() && is_doubt(status, sense) {
                    // The command was not executed. The reservation is read again, by the next session.
                    self.operations.end(operation, PATH_FAILED, unit.events);
                    return Err(doubt(status, sense));
                }
                self.operations.command_ended(
                    operation,
                    (status, sense),
                    &mut self.channel,
                    unit,
                )?;
                if self.operations.takes_refresh() || self.refresh {
                    self.refresh();
                }
                Ok(())
            }
            Some(Asked::Question { answer, .. }) => self.answered(status, sense, &answer, unit),
            Some(Asked::Refresh { mut probe, answer, .. }) => {
                probe.answered(status, sense, &answer).map_err(Loss::Unfit)?;
                match probe.question() {
                    Some(_) => self.channel.probe_again(probe),
                    None => unit.events.push(SessionEvent::Refreshed(Box::new(probe.into_facts()))),
                }
                Ok(())
            }
            Some(Asked::Claim { answer, .. }) => self.claimed((status, sense), &answer, unit),
            Some(Asked::Owner { answer, .. }) => holder_read((status, sense), &answer, unit),
            Some(Asked::Clear) => {
                unit.events.push(SessionEvent::Cleared);
                Ok(())
            }
            Some(Asked::Flush) => {
                match judge(status, sense, true) {
                    Verdict::Again(_) => self.last_flush(unit),
                    Verdict::Good => unit.events.push(SessionEvent::Flushed(Ok(()))),
                    _ => {
                        warn!(upstream = unit.who, %sense, "the last flush failed");
                        unit.events.push(SessionEvent::Flushed(Err(IoError::Medium)));
                    }
                }
                Ok(())
            }
            Some(Asked::Ready) => {
                if unit.owner.is_some() && is_doubt(status, sense) {
                    return Err(doubt(status, sense));
                }
                match judge(status, sense, false) {
                    Verdict::Again(news) => {
                        self.ready.again(&mut self.channel, unit.now);
                        if news != News::Nothing {
                            self.refresh();
                        }
                    }
                    Verdict::Later => self.ready.later(unit.now),
                    _ => unit.events.push(SessionEvent::Ready),
                }
                Ok(())
            }
            Some(Asked::Sign | Asked::Reset { .. }) | None => Ok(()),
        }
    }

    /// A question of the probe was answered.
    fn answered(
        &mut self,
        status: u8,
        sense: Sense,
        answer: &[u8],
        unit: &mut UnitState<'_>,
    ) -> Result<(), Loss> {
        let Stage::Probing(probe) = &mut self.stage else { return Ok(()) };
        probe.answered(status, sense, answer).map_err(Loss::Unfit)?;
        if probe.question().is_some() {
            self.ask();
            return Ok(());
        }
        let next = if unit.owner.is_some() { Stage::Known } else { Stage::Ready };
        if let Stage::Probing(probe) = std::mem::replace(&mut self.stage, next) {
            let facts = Box::new(probe.into_facts());
            self.facts = Some(facts.clone());
            unit.events.push(SessionEvent::Probed(facts));
        }
        Ok(())
    }

    /// Sends the next question of the probe.
    fn ask(&mut self) {
        if let Stage::Probing(probe) = &self.stage
            && let Some(question) = probe.question()
        {
            let asked = Asked::Question { answer: Vec::new(), room: question.room };
            self.channel.ask(asked, &question);
        }
    }

    /// Claims the unit, before any other command for it.
    pub(super) fn claim(&mut self, unit: &UnitState<'_>) {
        self.stage = Stage::Claiming(Box::new(Claim::new()));
        self.ask_claim(unit);
    }

    fn ask_claim(&mut self, unit: &UnitState<'_>) {
        if let (Stage::Claiming(claim), Some(owner)) = (&self.stage, &*unit.owner)
            && let Some(order) = claim.order(owner)
        {
            let asked = Asked::Claim { answer: Vec::new(), room: order.room };
            self.channel.order(asked, &order);
        }
    }

    fn claimed(
        &mut self,
        end: (u8, Sense),
        answer: &[u8],
        unit: &mut UnitState<'_>,
    ) -> Result<(), Loss> {
        let (Stage::Claiming(claim), Some(owner)) = (&mut self.stage, &mut *unit.owner) else {
            return Ok(());
        };
        claim.answered(owner, end, answer).map_err(Loss::Denied)?;
        if claim.order(owner).is_some() {
            self.ask_claim(unit);
        } else {
            self.stage = Stage::Ready;
            unit.events.push(SessionEvent::Claimed);
        }
        Ok(())
    }

    /// Reads the reservation, unless that is in progress or there is no room.
    pub(super) fn read_reservation(&mut self) {
        let asks = |asked: &Asked| matches!(asked, Asked::Owner { .. });
        if self.channel.room() > 0 && !self.channel.any(asks) {
            let order = claim::look();
            self.channel.order(Asked::Owner { answer: Vec::new(), room: order.room }, &order);
        }
    }

    /// Clears the reservation of the unit and all registrations.
    pub(super) fn clear_reservation(&mut self, key: u64) {
        self.channel.order(Asked::Clear, &claim::clear(key));
    }

    /// Probes again what can change while the session lasts, as soon as there is room.
    pub(super) fn refresh(&mut self) {
        self.refresh = true;
        if let Some(facts) = &self.facts
            && self.channel.room() > 0
        {
            self.refresh = false;
            let probe = Box::new(Probe::again(self.channel.lun, facts));
            self.channel.probe_again(probe);
        }
    }

    /// Asks whether the unit has something to report.
    pub(super) fn ask_ready(&mut self, now: Instant) {
        self.ready.ask(&mut self.channel, now);
    }

    /// Takes an operation.
    pub(super) fn submit(&mut self, io: Io, unit: &mut UnitState<'_>) {
        self.operations.submit(io, &mut self.channel, unit);
    }

    /// Sends the commands that wait for room, and the deferred ones that are due.
    pub(super) fn start_waiting(&mut self, unit: &mut UnitState<'_>) {
        self.ready.send(&mut self.channel, unit.now);
        self.operations.start_waiting(&mut self.channel, unit);
    }

    /// Whether the target has deferred an operation, or has begun none and takes none.
    pub(super) fn has_deferred(&self, key: RequestKey) -> bool {
        self.operations.has_deferred(key, &self.channel)
    }

    /// Forgets a read. Its buffer is not touched any more.
    pub(super) fn abandon(&mut self, key: RequestKey) {
        self.operations.abandon(key, &mut self.channel);
    }

    /// Asks for a sign of life, unless one is awaited.
    pub(super) fn check(&mut self) {
        self.channel.ping();
    }

    /// Has the unit reset, so that no command is in progress there; or since when that is not answered.
    pub(super) fn reset_unit(&mut self, now: Instant) -> Option<Instant> {
        self.channel.reset_unit(now)
    }

    /// Makes durable what was written, for the last time.
    pub(super) fn last_flush(&mut self, unit: &UnitState<'_>) {
        if let Some(terms) = &*unit.terms {
            self.channel.flush(terms.synchronize());
        }
    }

    /// Logs out.
    pub(super) fn log_out(&mut self) {
        self.stage = Stage::LoggingOut;
        self.channel.log_out();
    }

    /// Ends it. `reset`: the connection is reset, so that the target knows at once and unsent data is discarded.
    pub(super) fn bury(self, reset: bool) -> Remains {
        let Self { channel, operations, .. } = self;
        let mut remains = Remains { dead: Vec::new(), unknown: Vec::new(), ended: Vec::new() };
        // First of all no outbox refers to the buffers any more.
        channel.close(reset, &mut remains);
        operations.drain(&mut remains);
        remains
    }
}

/// The end of an operation.
pub(super) fn ended(operation: Operation, outcome: Outcome) -> Ended {
    let Io { whose, promise, .. } = operation.into_io();
    Ended { whose, outcome, flushed: false, promise }
}

/// The end of an operation that the target has not executed, and that may be done on another path.
pub(super) const PATH_FAILED: Outcome = Err(IoError::PathFailed);

#[cfg(test)]
mod tests;
