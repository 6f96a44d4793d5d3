//! The operations of a session that are not in flight: they wait for the command window, or are deferred, or have
//! ended while their bytes are still to be sent.

use super::super::network::Stream;
use super::super::operation::{Data, Operation};
use super::super::sense::{News, Sense, Verdict, judge};
use super::channel::{Asked, Channel};
use super::{Loss, PATH_FAILED, Remains, SessionEvent, UnitState, ended};
use crate::storage::io::{Io, Whose, Work};
use std::collections::VecDeque;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::request::{Outcome, RequestKey};
use weir_wire::iscsi::initiator::Direction;

/// The operations of a session that are not in flight.
#[derive(Default)]
pub(super) struct OperationQueue {
    /// Operations that wait for the command window.
    waiting: VecDeque<Operation>,
    /// Operations that the target has deferred, and until when.
    deferred: Vec<(Instant, Operation)>,
    /// Operations that have ended while bytes of theirs are still to be sent.
    unsent: Vec<(Operation, Outcome)>,
    /// A unit attention reports that the facts of the probe may have changed.
    changed: bool,
}

impl OperationQueue {
    /// Whether no operation waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.deferred.is_empty()
    }

    /// When a deferred operation is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deferred.iter().map(|&(at, _)| at).min()
    }

    /// Whether the unit is to be probed again, since a unit attention says that it may have changed.
    pub(super) const fn takes_refresh(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// Takes an operation.
    pub(super) fn submit<S: Stream>(
        &mut self,
        io: Io,
        channel: &mut Channel<S>,
        unit: &mut UnitState<'_>,
    ) {
        let operation = Operation::new(io);
        if self.waiting.is_empty() {
            self.start(operation, channel, unit);
        } else {
            self.waiting.push_back(operation);
        }
    }

    /// Sends the next command of an operation, or reports its end.
    fn start<S: Stream>(
        &mut self,
        mut operation: Operation,
        channel: &mut Channel<S>,
        unit: &mut UnitState<'_>,
    ) {
        let terms = unit.terms.as_ref().expect("operations come when the unit is known");
        if channel.room() == 0 {
            self.waiting.push_back(operation);
            return;
        }
        let Some(order) = operation.next(terms) else {
            self.end(operation, Ok(()), unit.events);
            return;
        };
        let data = match order.data {
            Data::None => Direction::None,
            Data::Read(length) => Direction::Read(length),
            Data::Write(payload, range) => {
                operation.sends(payload.clone());
                Direction::Write(payload, range)
            }
        };
        channel.start(operation, order.cdb, data);
    }

    /// Sends the operations that wait for room, and the deferred ones that are due.
    pub(super) fn start_waiting<S: Stream>(
        &mut self,
        channel: &mut Channel<S>,
        unit: &mut UnitState<'_>,
    ) {
        let mut index = 0;
        while index < self.deferred.len() {
            if self.deferred[index].0 <= unit.now {
                let (_, operation) = self.deferred.swap_remove(index);
                self.start(operation, channel, unit);
            } else {
                index += 1;
            }
        }
        while channel.room() > 0
            && let Some(operation) = self.waiting.pop_front()
        {
            self.start(operation, channel, unit);
        }
    }

    /// A command of an operation has ended: its next one, or its end.
    pub(super) fn command_ended<S: Stream>(
        &mut self,
        mut operation: Operation,
        (status, sense): (u8, Sense),
        channel: &mut Channel<S>,
        unit: &mut UnitState<'_>,
    ) -> Result<(), Loss> {
        let outcome = match judge(status, sense, operation.changes()) {
            Verdict::Good => {
                if !operation.is_whole() {
                    let came = operation.came;
                    unit.events.push(SessionEvent::Ended(ended(operation, PATH_FAILED)));
                    return Err(Loss::Short { came });
                }
                operation.advance();
                self.start(operation, channel, unit);
                return Ok(());
            }
            Verdict::Again(news) => {
                operation.deferrals += 1;
                if operation.deferrals <= DEFERRALS_MAX {
                    self.changed |= news != News::Nothing;
                    self.start(operation, channel, unit);
                    return Ok(());
                }
                self.end(operation, PATH_FAILED, unit.events);
                return Err(Loss::PutOff);
            }
            Verdict::Later => {
                operation.deferrals += 1;
                if operation.deferrals <= DEFERRALS_MAX {
                    let wait = deferral(operation.deferrals);
                    self.deferred.push((unit.now + wait, operation));
                    return Ok(());
                }
                self.end(operation, PATH_FAILED, unit.events);
                return Err(Loss::PutOff);
            }
            Verdict::Failed(error) => {
                let terms = unit.terms.as_mut().filter(|_| error == IoError::Unsupported);
                if terms.is_some_and(|terms| operation.reword(terms)) {
                    self.start(operation, channel, unit);
                    return Ok(());
                }
                if unit.errors.speaks() {
                    let errors_total = unit.errors.total();
                    let who = unit.who;
                    warn!(upstream = who, status, %sense, errors_total, "the unit reports an error");
                }
                Err(error)
            }
            Verdict::NotHere(access) => {
                unit.events.push(SessionEvent::Access(access));
                PATH_FAILED
            }
            Verdict::Lost => {
                self.end(operation, PATH_FAILED, unit.events);
                return Err(Loss::Gone(sense));
            }
        };
        self.end(operation, outcome, unit.events);
        Ok(())
    }

    /// An operation has ended; its buffer is free as soon as all of its bytes were sent.
    pub(super) fn end(
        &mut self,
        operation: Operation,
        outcome: Outcome,
        events: &mut Vec<SessionEvent>,
    ) {
        if operation.is_sent() {
            events.push(event(operation, outcome));
        } else {
            self.unsent.push((operation, outcome));
        }
    }

    /// Reports the operations that have ended and whose bytes were sent meanwhile.
    pub(super) fn release_sent(&mut self, events: &mut Vec<SessionEvent>) {
        let mut index = 0;
        while index < self.unsent.len() {
            if self.unsent[index].0.is_sent() {
                let (operation, outcome) = self.unsent.swap_remove(index);
                events.push(event(operation, outcome));
            } else {
                index += 1;
            }
        }
    }

    /// Whether the target has deferred an operation, or has begun none and takes none.
    pub(super) fn has_deferred<S: Stream>(&self, key: RequestKey, channel: &Channel<S>) -> bool {
        let of = |operation: &Operation| operation.io.whose == Whose::Request(key);
        let begun = channel.any(|asked| matches!(asked, Asked::Io { .. }));
        self.deferred.iter().any(|(_, operation)| of(operation))
            || !begun && self.waiting.iter().any(of)
    }

    /// Forgets an operation, which is a read. Its buffer is not touched any more.
    pub(super) fn abandon<S: Stream>(&mut self, key: RequestKey, channel: &mut Channel<S>) {
        let of = |operation: &Operation| operation.io.whose == Whose::Request(key);
        let operation = if let Some(operation) = channel.forget(of) {
            Some(operation)
        } else if let Some(index) = self.waiting.iter().position(of) {
            self.waiting.remove(index)
        } else if let Some(index) = self.deferred.iter().position(|(_, one)| of(one)) {
            Some(self.deferred.swap_remove(index).1)
        } else {
            None
        };
        if let Some(operation) = operation {
            assert!(!operation.changes(), "only a read is abandoned");
            operation.into_io();
        }
    }

    /// The session is over: none of these operations is executed any more.
    pub(super) fn drain(self, remains: &mut Remains) {
        remains.dead.extend(self.waiting);
        remains.dead.extend(self.deferred.into_iter().map(|(_, operation)| operation));
        let ends = self.unsent.into_iter().map(|(operation, outcome)| ended(operation, outcome));
        remains.ended.extend(ends);
    }

    #[cfg(test)]
    pub(super) fn put(&mut self, deferred: Operation, waiting: Operation) {
        self.deferred.push((Instant::ZERO, deferred));
        self.waiting.push_back(waiting);
    }
}

/// The report of the end of an operation.
fn event(operation: Operation, outcome: Outcome) -> SessionEvent {
    let flush = matches!(operation.io.work, Work::Sync) && outcome.is_ok();
    let ended = ended(operation, outcome);
    if flush { SessionEvent::FlushEnded(ended) } else { SessionEvent::Ended(ended) }
}

/// The most deferrals of a command, before it goes to another path: half a minute, with the waits below.
const DEFERRALS_MAX: u32 = 64;

/// How long a command waits that was deferred so often: twice as long each time, up to half a second.
pub(super) fn deferral(times: u32) -> Duration {
    DEFERRAL_FIRST * (1 << times.min(DEFERRAL_DOUBLINGS))
}

const DEFERRAL_FIRST: Duration = Duration::from_millis(4);
const DEFERRAL_DOUBLINGS: u32 = 7;
