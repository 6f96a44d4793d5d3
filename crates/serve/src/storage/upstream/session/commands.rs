//! What is asked of a target, and what follows from its answers.

use super::super::claim::{self, Claim, Order, holder_of};
use super::super::flight::{Data, Flight};
use super::super::network::Stream;
use super::super::payload::Payload;
use super::super::probe::Probe;
use super::super::sense::{CHECK_CONDITION, Heard, News, Verdict, judge};
use super::{Around, Asked, Loss, PATH_FAILED, Session, SessionEvent, Stage, ended, key_of};
use crate::storage::io::{Io, Whose};
use slotmap::Key;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::request::{Outcome, RequestKey};
use weir_wire::iscsi::initiator::{Attribute, Command, Direction, TaskFunction};
use weir_wire::scsi::ScsiStatus;

impl<S: Stream> Session<S> {
    /// A command has ended.
    pub(super) fn done(
        &mut self,
        tag: u64,
        status: u8,
        heard: Heard,
        around: &mut Around<'_>,
    ) -> Result<(), Loss> {
        match self.asked.remove(key_of(tag)) {
            Some(Asked::Io { flight, .. }) => self.flown(flight, status, heard, around),
            Some(Asked::Question { answer, .. }) => {
                let Stage::Probing(probe) = &mut self.stage else { return Ok(()) };
                probe.answered(status, heard, &answer).map_err(Loss::Unfit)?;
                if probe.question().is_some() {
                    self.ask();
                } else if let Stage::Probing(probe) = std::mem::replace(
                    &mut self.stage,
                    if around.owner.is_some() { Stage::Known } else { Stage::Ready },
                ) {
                    let facts = Box::new(probe.into_facts());
                    self.facts = Some(facts.clone());
                    around.told.push(SessionEvent::Looked(facts));
                }
                Ok(())
            }
            Some(Asked::Refresh { mut probe, answer, .. }) => {
                probe.answered(status, heard, &answer).map_err(Loss::Unfit)?;
                match probe.question() {
                    Some(_) => self.ask_again(probe),
                    None => around.told.push(SessionEvent::Refreshed(Box::new(probe.into_facts()))),
                }
                Ok(())
            }
            Some(Asked::Claim { answer, .. }) => self.claimed((status, heard), &answer, around),
            Some(Asked::Owner { answer, .. }) => owner_told((status, heard), &answer, around),
            Some(Asked::Clear) => {
                around.told.push(SessionEvent::Cleared);
                Ok(())
            }
            Some(Asked::Flush) => {
                match judge(status, heard, true) {
                    Verdict::Again(_) => self.last_flush(around),
                    Verdict::Good => around.told.push(SessionEvent::Flushed(Ok(()))),
                    _ => {
                        warn!(upstream = around.who, %heard, "the last flush failed");
                        around.told.push(SessionEvent::Flushed(Err(IoError::Medium)));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A command of an operation has ended.
    fn flown(
        &mut self,
        mut flight: Flight,
        status: u8,
        heard: Heard,
        around: &mut Around<'_>,
    ) -> Result<(), Loss> {
        if around.owner.is_some() && is_doubt(status, heard) {
            // It was not done. Whose the unit is, is asked for anew.
            self.end(flight, PATH_FAILED, around.told);
            return Err(doubt(status, heard));
        }
        let verdict = judge(status, heard, flight.changes());
        let outcome = match verdict {
            Verdict::Good => {
                if !flight.is_whole() {
                    let came = flight.came;
                    around.told.push(SessionEvent::Ended(ended(flight, PATH_FAILED)));
                    return Err(Loss::Short { came });
                }
                flight.advance();
                self.start(flight, around);
                return Ok(());
            }
            Verdict::Again(news) => {
                self.refresh |= news != News::Nothing;
                flight.put_off += 1;
                if flight.put_off <= PUT_OFF_MAX {
                    self.start(flight, around);
                    self.ask_anew();
                    return Ok(());
                }
                self.end(flight, PATH_FAILED, around.told);
                return Err(Loss::PutOff);
            }
            Verdict::Later => {
                flight.put_off += 1;
                if flight.put_off <= PUT_OFF_MAX {
                    let wait = PUT_OFF_FIRST * (1 << flight.put_off.min(PUT_OFF_DOUBLINGS));
                    self.later.push((around.now + wait, flight));
                    return Ok(());
                }
                self.end(flight, PATH_FAILED, around.told);
                return Err(Loss::PutOff);
            }
            Verdict::Failed(error) => {
                let terms = around.terms.as_mut().filter(|_| error == IoError::Unsupported);
                if terms.is_some_and(|terms| flight.reword(terms)) {
                    self.start(flight, around);
                    return Ok(());
                }
                if around.errors.speaks() {
                    let errors_total = around.errors.total();
                    let who = around.who;
                    warn!(upstream = who, status, %heard, errors_total, "the unit reports an error");
                }
                Err(error)
            }
            Verdict::NotHere(access) => {
                around.told.push(SessionEvent::Access(access));
                PATH_FAILED
            }
            Verdict::Lost => {
                self.end(flight, PATH_FAILED, around.told);
                return Err(Loss::Gone(heard));
            }
        };
        self.end(flight, outcome, around.told);
        Ok(())
    }

    /// An operation has ended; its buffer is free when nothing of it waits to be sent.
    pub(super) fn end(&mut self, flight: Flight, outcome: Outcome, told: &mut Vec<SessionEvent>) {
        if flight.is_sent() {
            told.push(SessionEvent::Ended(ended(flight, outcome)));
        } else {
            self.leaving.push((flight, outcome));
        }
    }

    /// Takes an operation.
    pub(in crate::storage::upstream) fn submit(&mut self, io: Io, around: &mut Around<'_>) {
        let flight = Flight::new(io);
        if self.waiting.is_empty() {
            self.start(flight, around);
        } else {
            self.waiting.push_back(flight);
        }
    }

    /// Sends the next command of an operation, or tells that it has ended.
    fn start(&mut self, mut flight: Flight, around: &mut Around<'_>) {
        let terms = around.terms.as_ref().expect("operations come when the unit is known");
        if self.wire.room() == 0 {
            self.waiting.push_back(flight);
            return;
        }
        let Some(order) = flight.next(terms) else {
            self.end(flight, Ok(()), around.told);
            return;
        };
        let data = match order.data {
            Data::None => Direction::None,
            Data::Read(length) => Direction::Read(length),
            Data::Write(payload, range) => {
                flight.sends(payload.clone());
                Direction::Write(payload, range)
            }
        };
        let lun = self.lun;
        let wire = &mut self.wire;
        self.asked.insert_with_key(|key| {
            let tag = key.data().as_ffi();
            let command = Command { lun, cdb: order.cdb, attribute: Attribute::Simple, data, tag };
            Asked::Io { flight, itt: wire.command(command) }
        });
        self.dirty = true;
    }

    /// Sends what has waited for room, and what was put off and is due.
    pub(in crate::storage::upstream) fn start_waiting(&mut self, around: &mut Around<'_>) {
        let mut index = 0;
        while index < self.later.len() {
            if self.later[index].0 <= around.now {
                let (_, flight) = self.later.swap_remove(index);
                self.start(flight, around);
            } else {
                index += 1;
            }
        }
        while self.wire.room() > 0
            && let Some(flight) = self.waiting.pop_front()
        {
            self.start(flight, around);
        }
    }

    /// Has the reservation of the unit settled, before anything else is done with it.
    pub(in crate::storage::upstream) fn claim(&mut self, around: &Around<'_>) {
        self.stage = Stage::Claiming(Box::new(Claim::new()));
        self.ask_claim(around);
    }

    fn ask_claim(&mut self, around: &Around<'_>) {
        let (Stage::Claiming(claim), Some(owner)) = (&self.stage, &*around.owner) else { return };
        let Some(order) = claim.order(owner) else { return };
        self.put(Asked::Claim { answer: Vec::new(), room: order.room }, &order);
    }

    fn claimed(
        &mut self,
        end: (u8, Heard),
        answer: &[u8],
        around: &mut Around<'_>,
    ) -> Result<(), Loss> {
        let (Stage::Claiming(claim), Some(owner)) = (&mut self.stage, &mut *around.owner) else {
            return Ok(());
        };
        claim.answered(owner, end, answer).map_err(Loss::Denied)?;
        if claim.order(owner).is_some() {
            self.ask_claim(around);
        } else {
            self.stage = Stage::Ready;
            around.told.push(SessionEvent::Claimed);
        }
        Ok(())
    }

    /// Asks who has reserved the unit, unless that is being waited for or there is no room.
    pub(in crate::storage::upstream) fn look_at_owner(&mut self) {
        let asks = |asked: &Asked| matches!(asked, Asked::Owner { .. });
        if self.wire.room() > 0 && !self.asked.values().any(asks) {
            let order = claim::look();
            self.put(Asked::Owner { answer: Vec::new(), room: order.room }, &order);
        }
    }

    /// Gives the reservation of the unit up, and all registrations.
    pub(in crate::storage::upstream) fn give_up(&mut self, key: u64) {
        self.put(Asked::Clear, &claim::clear(key));
    }

    fn put(&mut self, asked: Asked, order: &Order) {
        let tag = self.asked.insert(asked).data().as_ffi();
        let data = match order.list {
            Some(list) => Direction::Write(Payload::owned(list.into()), 0..list.len()),
            None => Direction::Read(order.room),
        };
        let (lun, cdb) = (self.lun, order.cdb);
        self.wire.command(Command { lun, cdb, attribute: Attribute::Simple, data, tag });
        self.dirty = true;
    }

    /// Sends the next question about the unit.
    pub(super) fn ask(&mut self) {
        let Stage::Probing(probe) = &self.stage else { return };
        let Some(question) = probe.question() else { return };
        let asked = Asked::Question { answer: Vec::new(), room: question.room };
        self.send(asked, question.of_unit, question.cdb, question.room);
    }

    /// Asks again what may have changed, as far as there is room.
    fn ask_anew(&mut self) {
        let Some(facts) = self.facts.as_ref().filter(|_| self.refresh) else { return };
        if self.wire.room() > 0 {
            self.refresh = false;
            let probe = Box::new(Probe::again(self.lun, facts));
            self.ask_again(probe);
        }
    }

    /// Has it asked again what may have changed.
    pub(in crate::storage::upstream) fn look_again(&mut self) {
        self.refresh = true;
        self.ask_anew();
    }

    fn ask_again(&mut self, probe: Box<Probe>) {
        let Some(question) = probe.question() else { return };
        let room = question.room;
        let asked = Asked::Refresh { probe, answer: Vec::new(), room };
        self.send(asked, question.of_unit, question.cdb, room);
    }

    fn send(&mut self, asked: Asked, of_unit: bool, cdb: [u8; 16], room: u32) {
        let tag = self.asked.insert(asked).data().as_ffi();
        let lun = if of_unit { self.lun } else { 0 };
        let data = if room == 0 { Direction::None } else { Direction::Read(room) };
        self.wire.command(Command { lun, cdb, attribute: Attribute::Simple, data, tag });
        self.dirty = true;
    }

    /// Asks for a sign of life, unless one is being waited for.
    pub(in crate::storage::upstream) fn check(&mut self) {
        if self.asked.values().any(|asked| matches!(asked, Asked::Sign)) {
            return;
        }
        let tag = self.asked.insert(Asked::Sign).data().as_ffi();
        self.wire.ping(tag);
        self.dirty = true;
    }

    /// Has the unit reset, so that nothing is under way any more; or since when that is not answered.
    pub(in crate::storage::upstream) fn reset_unit(&mut self, now: Instant) -> Option<Instant> {
        let waits = |asked: &Asked| match asked {
            Asked::Reset { since } => Some(*since),
            _ => None,
        };
        if let Some(since) = self.asked.values().find_map(waits) {
            return Some(since);
        }
        let tag = self.asked.insert(Asked::Reset { since: now }).data().as_ffi();
        let lun = self.lun;
        self.wire.manage(TaskFunction::LogicalUnitReset, lun, None, tag);
        self.dirty = true;
        None
    }

    /// Makes all that was written durable, for the last time.
    pub(in crate::storage::upstream) fn last_flush(&mut self, around: &Around<'_>) {
        let Some(terms) = &*around.terms else { return };
        let cdb = terms.synchronize();
        self.send(Asked::Flush, true, cdb, 0);
    }

    /// Says goodbye.
    pub(in crate::storage::upstream) fn log_out(&mut self) {
        self.stage = Stage::LoggingOut;
        self.wire.logout();
        self.dirty = true;
    }

    /// Whether the target has put an operation off, or has begun none and takes none.
    pub(in crate::storage::upstream) fn has_put_off(&self, key: RequestKey) -> bool {
        let of = |flight: &Flight| flight.io.whose == Whose::Request(key);
        let begun = self.asked.values().any(|asked| matches!(asked, Asked::Io { .. }));
        self.later.iter().any(|(_, flight)| of(flight)) || !begun && self.waiting.iter().any(of)
    }

    /// Forgets an operation, which is a read. Its buffer is not touched any more.
    pub(in crate::storage::upstream) fn abandon(&mut self, key: RequestKey) {
        let of = |flight: &Flight| flight.io.whose == Whose::Request(key);
        let found = self.asked.iter().find_map(|(tag, asked)| match asked {
            Asked::Io { flight, itt, .. } if of(flight) => Some((tag, *itt)),
            _ => None,
        });
        if let Some((tag, itt)) = found {
            self.wire.forget(itt);
            if let Some(Asked::Io { flight, .. }) = self.asked.remove(tag) {
                flight.land();
            }
        } else if let Some(index) = self.waiting.iter().position(of) {
            self.waiting.remove(index).map(Flight::land);
        } else if let Some(index) = self.later.iter().position(|(_, flight)| of(flight)) {
            self.later.swap_remove(index).1.land();
        }
    }
}

/// Who has reserved the unit, as was asked.
fn owner_told(
    (status, heard): (u8, Heard),
    answer: &[u8],
    around: &mut Around<'_>,
) -> Result<(), Loss> {
    if is_doubt(status, heard) {
        return Err(doubt(status, heard));
    }
    // A refusal for now is none for long: it is asked again.
    if judge(status, heard, false) == Verdict::Good {
        let (_, holder) = holder_of(answer).map_err(Loss::Denied)?;
        around.told.push(SessionEvent::Owner(holder));
    }
    Ok(())
}

/// Whether somebody may have taken the unit over: RESERVATION CONFLICT, or a unit attention that tells of
/// reservations or registrations (SPC-4, 5.13.11).
const fn is_doubt(status: u8, heard: Heard) -> bool {
    status == RESERVATION_CONFLICT
        || status == CHECK_CONDITION
            && heard.key == UNIT_ATTENTION
            && heard.asc == PARAMETERS_CHANGED
            && matches!(heard.ascq, 0x03..=0x05)
}

fn doubt(status: u8, heard: Heard) -> Loss {
    Loss::Doubtful(match (status, heard.ascq) {
        (RESERVATION_CONFLICT, _) => String::from("RESERVATION CONFLICT"),
        (_, 0x03) => String::from("reservations preempted"),
        (_, 0x04) => String::from("reservations released"),
        _ => String::from("registrations preempted"),
    })
}

const RESERVATION_CONFLICT: u8 = ScsiStatus::ReservationConflict as u8;
const UNIT_ATTENTION: u8 = 6;
const PARAMETERS_CHANGED: u8 = 0x2a;

/// How often a command is sent again that the target has put off, before it goes another way: half a
/// minute, at the rate below.
const PUT_OFF_MAX: u32 = 64;

/// How long a command waits that was put off: twice as long each time, up to so many times.
const PUT_OFF_FIRST: Duration = Duration::from_millis(4);
const PUT_OFF_DOUBLINGS: u32 = 7;
