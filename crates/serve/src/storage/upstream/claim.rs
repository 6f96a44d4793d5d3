//! Claims a unit over one session by its persistent reservation: the commands, and what follows (SPC-4, 5.13).
//!
//! | step | command | then |
//! |---|---|---|
//! | look | READ RESERVATION, READ KEYS | free, ours, or another's? Only here a refusal leaves no trace |
//! | register | REGISTER AND IGNORE EXISTING KEY | the path may write if the reservation is ours |
//! | preempt | PREEMPT AND ABORT of each key that gives way | the commands of its paths are aborted, also queued ones |
//! | reserve | RESERVE, Write Exclusive, Registrants Only | |
//! | verify | READ RESERVATION | ours, or the registration is taken back before anything was written |
//!
//! Between the look and the register another gateway may have become the owner. So nothing is written before
//! `verify`, which comes after the register: a later preemption of this key shuts the path out again.

use super::cdb::{self, Cdb, LIST};
use super::ownership::{Denied, Holder, KIND, Owner, Turn};
use super::sense::{Sense, Verdict, judge};
use tracing::warn;
use weir_wire::scsi::ScsiStatus;

/// The claim of one session.
#[derive(Debug)]
pub(super) struct Claim {
    step: Step,
    generation: u32,
    holder: Option<Holder>,
    /// Keys to preempt, and those to preempt once the unit is the owner's.
    preempt: Vec<u64>,
    others: Vec<u64>,
    /// It is to be reserved, too.
    reserves: bool,
    /// The optional part of the step was refused: APTPL, or the abort. Another path may have found out first.
    plain: bool,
    /// Repetitions of the step.
    again: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Keys,
    Register,
    Preempt,
    Reserve,
    Verify,
    Withdraw,
    Done,
}

/// A command of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) cdb: Cdb,
    /// Room for its answer, in bytes.
    pub(super) room: u32,
    /// Its parameter list.
    pub(super) list: Option<[u8; LIST]>,
}

impl Claim {
    /// A claim before its first command.
    pub(super) const fn new() -> Self {
        Self {
            step: Step::Look,
            generation: 0,
            holder: None,
            preempt: Vec::new(),
            others: Vec::new(),
            reserves: false,
            plain: false,
            again: 0,
        }
    }

    /// What to send next; `None` when the unit is the owner's on this path.
    pub(super) fn order(&self, owner: &Owner) -> Option<Order> {
        let key = owner.key.unwrap_or(0);
        let out = |action, own, of_action, survives| {
            let cdb = cdb::persistent_out(action, if action == REGISTER { 0 } else { KIND });
            let list = Some(cdb::persistent_list(own, of_action, survives));
            Some(Order { cdb, room: 0, list })
        };
        match self.step {
            Step::Look | Step::Verify => Some(look()),
            Step::Keys => {
                let cdb = cdb::persistent_in(READ_KEYS, ROOM);
                Some(Order { cdb, room: ROOM.into(), list: None })
            }
            Step::Register => out(REGISTER, 0, key, owner.survives),
            Step::Preempt => {
                let action = if owner.aborts { PREEMPT_AND_ABORT } else { PREEMPT };
                out(action, key, self.preempt.last().copied().unwrap_or(0), false)
            }
            Step::Reserve => out(RESERVE, key, 0, false),
            Step::Withdraw => out(REGISTER, 0, 0, false),
            Step::Done => None,
        }
    }

    /// Takes the answer to the last command.
    pub(super) fn answered(
        &mut self,
        owner: &mut Owner,
        (status, sense): (u8, Sense),
        answer: &[u8],
    ) -> Result<(), Denied> {
        if status == ScsiStatus::ReservationConflict as u8 {
            return self.conflict();
        }
        match judge(status, sense, false) {
            Verdict::Good => {
                (self.again, self.plain) = (0, false);
                self.step = self.good(owner, answer)?;
                Ok(())
            }
            Verdict::Again(_) | Verdict::Later if self.again < AGAIN_MAX => {
                self.again += 1;
                Ok(())
            }
            _ if sense.key == ILLEGAL_REQUEST => self.refused(owner, sense),
            _ => Err(Denied::Refused(self.asked(), sense.to_string())),
        }
    }

    /// RESERVATION CONFLICT: another gateway has the unit, or this path is not registered.
    fn conflict(&mut self) -> Result<(), Denied> {
        self.step = match self.step {
            // Another path of this gateway may have been faster, or another gateway; `verify` finds out.
            Step::Preempt => self.next_preempt(),
            Step::Reserve => Step::Verify,
            _ => return Err(Denied::Conflict(self.asked())),
        };
        Ok(())
    }

    /// The target does not know a command, or something in it.
    fn refused(&mut self, owner: &mut Owner, sense: Sense) -> Result<(), Denied> {
        match self.step {
            Step::Register if !self.plain && sense.asc != INVALID_OPCODE => {
                (self.plain, owner.survives) = (true, false);
                Ok(())
            }
            Step::Preempt if !self.plain => {
                if std::mem::take(&mut owner.aborts) {
                    warn!(
                        %sense,
                        "the target does not support PREEMPT AND ABORT: writes that the old \
                         owner has sent may still be executed"
                    );
                }
                self.plain = true;
                Ok(())
            }
            _ if owner.holds => Err(Denied::Refused(self.asked(), sense.to_string())),
            _ => Err(Denied::Unsupported(format!("it does not know {}: {sense}", self.asked()))),
        }
    }

    const fn asked(&self) -> &'static str {
        match self.step {
            Step::Look | Step::Verify | Step::Done => "READ RESERVATION",
            Step::Keys => "READ KEYS",
            Step::Register | Step::Withdraw => "REGISTER AND IGNORE EXISTING KEY",
            Step::Preempt if self.preempt.is_empty() => "PREEMPT",
            Step::Preempt => "PREEMPT AND ABORT",
            Step::Reserve => "RESERVE",
        }
    }

    fn next_preempt(&mut self) -> Step {
        self.preempt.pop();
        match self.preempt.is_empty() {
            false => Step::Preempt,
            true if self.reserves => Step::Reserve,
            true => Step::Verify,
        }
    }

    fn good(&mut self, owner: &mut Owner, answer: &[u8]) -> Result<Step, Denied> {
        Ok(match self.step {
            Step::Look => {
                (self.generation, self.holder) = holder_of(answer)?;
                Step::Keys
            }
            Step::Keys => {
                let keys = keys_of(answer)?;
                self.decide(owner, &keys)?;
                Step::Register
            }
            Step::Register if !self.preempt.is_empty() => Step::Preempt,
            Step::Register if self.reserves => Step::Reserve,
            Step::Register | Step::Reserve => Step::Verify,
            Step::Preempt => self.next_preempt(),
            Step::Verify => {
                (self.generation, self.holder) = holder_of(answer)?;
                if owner.is_ours(self.holder) {
                    owner.holds = true;
                    if let Turn::Granted(_) = owner.turn {
                        owner.turn = Turn::Ready;
                    }
                    self.reserves = false;
                    self.preempt = std::mem::take(&mut self.others);
                    if self.preempt.is_empty() { Step::Done } else { Step::Preempt }
                } else {
                    Step::Withdraw
                }
            }
            Step::Withdraw => return Err(self.held()),
            Step::Done => Step::Done,
        })
    }

    fn held(&self) -> Denied {
        match self.holder {
            Some(Holder { key, kind }) => Denied::Held { key, kind: Some(kind) },
            None => Denied::Gone { generation: self.generation },
        }
    }

    /// Whether the unit may be claimed, and which keys are preempted.
    fn decide(&mut self, owner: &mut Owner, keys: &[u64]) -> Result<(), Denied> {
        if owner.holds {
            return self.return_to(owner, keys);
        }
        let kind = self.holder.map(|holder| holder.kind);
        // A grant is good only while its key holds the unit: it may be an old one, and a unit that no key holds may have
        // lost the reservation of a gateway that still owns it.
        if let Turn::Granted(given) = owner.turn
            && !self.holder.is_some_and(|holder| holder.key == given || owner.knows(holder.key))
        {
            return Err(Denied::NotGranted { given, holder: self.holder.map(|holder| holder.key) });
        }
        if let Some(holder) = self.holder.filter(|holder| holder.key == 0) {
            return Err(Denied::Held { key: 0, kind: Some(holder.kind) });
        }
        let known = || self.holder.map(|holder| holder.key).into_iter().chain(keys.iter().copied());
        // While the reservation is ours, no other registrant was ever the owner, and all are preempted: after it
        // is sure that it still is ours, or a gateway that takes over just now would lose the unit again.
        let ours = self.holder.is_some_and(|holder| owner.knows(holder.key));
        let foreign = |key: &u64| !ours && !owner.knows(*key);
        if let Some(key) = known().find(|key| foreign(key) && !owner.expected.contains(key)) {
            let reserved = self.holder.is_some_and(|holder| holder.key == key);
            return Err(Denied::Held { key, kind: kind.filter(|_| reserved) });
        }
        if let Some(key) = known().find(foreign).filter(|_| owner.dirty) {
            return Err(Denied::Dirty { key });
        }
        // A log with dirty data takes the unit back only if no gateway has registered since the target started.
        let nobody = known().next().is_none();
        if nobody && owner.dirty && self.generation > 0 && !owner.expected.contains(&0) {
            return Err(Denied::Gone { generation: self.generation });
        }
        // Every start has another key, so that commands that an earlier one has left in flight are shut out.
        let last = known().map(epoch).max().unwrap_or(0);
        let key = *owner.key.get_or_insert(next_key(last, owner.id));
        let mut give_way: Vec<u64> = known().filter(|&other| other != key).collect();
        give_way.sort_unstable();
        give_way.dedup();
        (self.preempt, self.others) =
            give_way.into_iter().partition(|other| !ours || owner.knows(*other));
        self.reserves = true;
        Ok(())
    }

    /// A path comes back, or is new, while the unit is owned.
    fn return_to(&mut self, owner: &Owner, keys: &[u64]) -> Result<(), Denied> {
        let own = |key: &u64| Some(*key) == owner.key;
        match self.holder {
            Some(_) if owner.is_ours(self.holder) => Ok(()),
            // Another gateway may have taken it over before the target lost its registrations.
            None if owner.turn == Turn::Given => {
                Err(Denied::NotGranted { given: owner.key().0, holder: None })
            }
            // The target has lost its registrations, and no other gateway has registered since.
            None if keys.iter().all(own) && (self.generation == 0 || !keys.is_empty()) => {
                self.reserves = true;
                Ok(())
            }
            None => Err(Denied::Gone { generation: self.generation }),
            Some(_) => Err(self.held()),
        }
    }
}

/// Reads the reservation.
pub(super) fn look() -> Order {
    let room = 24;
    Order { cdb: cdb::persistent_in(READ_RESERVATION, room), room: room.into(), list: None }
}

/// Takes all registrations and the reservation away.
pub(super) fn clear(key: u64) -> Order {
    let list = Some(cdb::persistent_list(key, 0, false));
    Order { cdb: cdb::persistent_out(CLEAR, 0), room: 0, list }
}

/// The answer to READ RESERVATION: PRGENERATION and the holder.
pub(super) fn holder_of(answer: &[u8]) -> Result<(u32, Option<Holder>), Denied> {
    let (generation, rest) = counted(answer, "READ RESERVATION")?;
    match rest {
        [] => Ok((generation, None)),
        [key @ .., _, _, _, _, _, kind, _, _] if key.len() == 8 => {
            let holder = Holder { key: number(key), kind: kind & 0xf };
            Ok((generation, Some(holder)))
        }
        _ => Err(Denied::Nonsense("READ RESERVATION")),
    }
}

fn keys_of(answer: &[u8]) -> Result<Vec<u64>, Denied> {
    let (_, rest) = counted(answer, "READ KEYS")?;
    let (keys, []) = rest.as_chunks::<8>() else { return Err(Denied::Nonsense("READ KEYS")) };
    Ok(keys.iter().map(|key| number(key)).collect())
}

/// PRGENERATION and the list of an answer. An answer that was cut off could hide a registrant, so it is refused.
fn counted<'a>(answer: &'a [u8], question: &'static str) -> Result<(u32, &'a [u8]), Denied> {
    let nonsense = || Denied::Nonsense(question);
    let (head, rest) = answer.split_at_checked(8).ok_or_else(nonsense)?;
    let length = number(&head[4..]) as usize;
    Ok((number(&head[..4]) as u32, rest.get(..length).ok_or_else(nonsense)?))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The number of the owner with this key, in order.
const fn epoch(key: u64) -> u64 {
    key >> 48
}

/// The key of the owner after the one of epoch `last`.
const fn next_key(last: u64, id: u64) -> u64 {
    (last % 0xffff + 1) << 48 | id
}

/// Service actions of PERSISTENT RESERVE IN and OUT.
const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER: u8 = 6;

const ILLEGAL_REQUEST: u8 = 5;
const INVALID_OPCODE: u8 = 0x20;

/// Room for keys, in bytes: more than 500.
const ROOM: u16 = 4_096;

/// The most repetitions of a command because of unit attentions.
const AGAIN_MAX: u32 = 16;

#[cfg(test)]
mod tests;
