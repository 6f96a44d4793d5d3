//! PERSISTENT RESERVE OUT (SPC-4 sections 5.13 and 6.16).

use super::rules::Kind;
use super::{Persistent, REGISTRATIONS_MAX, Reservations, transport_id};
use crate::scsi::nexus::{Effects, Nexus, Refusal, Registrant, RegistrantRef};
use crate::scsi::sense::Sense;

/// Longest parameter list that is taken, in bytes: one `TransportID` for every registration that
/// there is room for. A longer one is refused with PARAMETER LIST LENGTH ERROR.
pub const LIST_LENGTH_MAX: u32 =
    (BASIC_LENGTH + 4 + REGISTRATIONS_MAX * transport_id::LENGTH_MAX) as u32;

/// The fields of the CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// SERVICE ACTION, 5 bits.
    pub action: u8,
    /// SCOPE, 4 bits.
    pub scope: u8,
    /// TYPE, 4 bits.
    pub kind: u8,
    /// PARAMETER LIST LENGTH, in bytes.
    pub list_length: u32,
}

/// The result of a command, which is not applied yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state to install.
    pub next: Reservations,
    /// Effects on others, once the state is installed.
    pub effects: Effects,
    /// The persistent state changes: [`Reservations::encode`] of the next state must be durable before it is
    /// installed. If that fails, nothing may change.
    pub save: bool,
}

impl Reservations {
    /// PERSISTENT RESERVE OUT of `nexus` with the parameter list `list`.
    ///
    /// PREEMPT AND ABORT never asks to abort tasks of the sender, of which the command is one.
    pub(crate) fn persistent_out(
        &self,
        nexus: &Nexus,
        out: Out,
        list: &[u8],
    ) -> Result<Change, Refusal> {
        let action = Action::from_code(out.action).ok_or(Sense::invalid_cdb_field(1, Some(4)))?;
        // SPC-2 section 5.5.1: while any nexus holds a RESERVE(6), for every sender.
        if self.reserved.is_some() {
            return Err(Refusal::Conflict);
        }
        let length = out.list_length as usize;
        if out.list_length > LIST_LENGTH_MAX || length > list.len() || length < BASIC_LENGTH {
            return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
        }
        let list = &list[..length];
        let ports = specified_ports(action, list)?;
        let request = Request {
            who: RegistrantRef::Scsi(nexus),
            scope: out.scope,
            kind: out.kind,
            key: be64(list, 0),
            action_key: be64(list, 8),
            survives: list[20] & APTPL != 0,
        };
        let target = &*nexus.target;
        let mut draft = Draft::of(self);
        match action {
            Action::Register => draft.register(&request, ports.map(|it| (it, target)))?,
            Action::Reserve => draft.reserve(&request)?,
            Action::Release => draft.release(&request)?,
            Action::Clear => draft.clear(&request)?,
            Action::Preempt => draft.preempt(&request, false)?,
            Action::PreemptAndAbort => draft.preempt(&request, true)?,
            Action::RegisterAndIgnore => draft.set_own_key(&request)?,
            Action::RegisterAndMove => draft.register_and_move(&request, nexus, list)?,
        }
        Ok(draft.change_of(self))
    }
}

/// The service actions, in the order of their codes. REPLACE LOST RESERVATION, the next one, is
/// refused: no reservation is ever lost while its unit can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnore,
    RegisterAndMove,
}

impl Action {
    fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Register,
            Self::Reserve,
            Self::Release,
            Self::Clear,
            Self::Preempt,
            Self::PreemptAndAbort,
            Self::RegisterAndIgnore,
            Self::RegisterAndMove,
        ];
        all.get(usize::from(code)).copied()
    }
}

/// The `TransportIDs` of REGISTER, if `SPEC_I_PT` says that there are any.
fn specified_ports(action: Action, list: &[u8]) -> Result<Option<&[u8]>, Sense> {
    if action == Action::RegisterAndMove {
        return Ok(None);
    }
    if list[20] & SPEC_I_PT == 0 {
        // SPC-4 section 6.16: without SPEC_I_PT the list has exactly this length.
        let fits = list.len() == BASIC_LENGTH;
        return if fits { Ok(None) } else { Err(Sense::PARAMETER_LIST_LENGTH_ERROR) };
    }
    if action != Action::Register {
        return Err(Sense::invalid_parameter_field(20));
    }
    let Some((length, ports)) = list[BASIC_LENGTH..].split_first_chunk() else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    match ports.get(..u32::from_be_bytes(*length) as usize) {
        Some(ports) => Ok(Some(ports)),
        None => Err(Sense::invalid_parameter_field(24)),
    }
}

/// The parameters of all service actions.
pub(super) struct Request<'a> {
    pub(super) who: RegistrantRef<'a>,
    pub(super) scope: u8,
    pub(super) kind: u8,
    pub(super) key: u64,
    pub(super) action_key: u64,
    /// APTPL of REGISTER and REGISTER AND IGNORE EXISTING KEY.
    pub(super) survives: bool,
}

impl Request<'_> {
    /// The type to reserve with.
    fn kind(&self) -> Result<Kind, Sense> {
        if self.scope != SCOPE_UNIT {
            return Err(Sense::invalid_cdb_field(2, Some(7)));
        }
        Kind::from_code(self.kind).ok_or(Sense::invalid_cdb_field(2, Some(3)))
    }
}

/// A state under construction. If a step fails, it is discarded.
pub(super) struct Draft {
    pub(super) next: Reservations,
    effects: Effects,
}

impl Draft {
    /// One that begins with these reservations.
    pub(super) fn of(now: &Reservations) -> Self {
        Self { next: now.clone(), effects: Effects::default() }
    }

    /// The change from these reservations.
    pub(super) fn change_of(self, now: &Reservations) -> Change {
        let save = self.next.encode() != now.encode();
        Change { next: self.next, effects: self.effects, save }
    }

    /// REGISTER, with the `TransportIDs` of other ports at this target.
    fn register(
        &mut self,
        request: &Request<'_>,
        ports: Option<(&[u8], &str)>,
    ) -> Result<(), Refusal> {
        // SPC-4 section 5.13: an unregistered nexus has the key zero.
        let known = self.next.keys.get(request.who);
        if request.key != known.unwrap_or(0) {
            return Err(Refusal::Conflict);
        }
        if let Some((mut ports, target)) = ports {
            if known.is_some() {
                return Err(Sense::invalid_parameter_field(20).into());
            }
            // Without a key there is nothing to register them with, and they do not count.
            while request.action_key != 0 && !ports.is_empty() {
                let Some((initiator, rest)) = transport_id::take(ports) else {
                    return Err(Sense::invalid_parameter_field(28).into());
                };
                let nexus = Nexus { initiator, target: target.to_owned() };
                self.set_key(Registrant::Scsi(nexus), request.action_key)?;
                ports = rest;
            }
        }
        Ok(self.set_own_key(request)?)
    }

    /// REGISTER once the old key was checked, and REGISTER AND IGNORE EXISTING KEY.
    fn set_own_key(&mut self, request: &Request<'_>) -> Result<(), Sense> {
        let is_registered = self.next.keys.contains(request.who);
        match request.action_key {
            // SPC-4 section 5.13: the command has no effect, not even on APTPL.
            0 if !is_registered => return Ok(()),
            0 => self.unregister(request.who),
            key => self.set_key(request.who.owned(), key)?,
        }
        self.next.survives = request.survives;
        self.count();
        Ok(())
    }

    pub(super) fn reserve(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        self.check_key(request)?;
        let kind = request.kind()?;
        match &self.next.persistent {
            None => {
                self.hold(kind, request.who);
                Ok(())
            }
            Some(held) if held.kind == kind && self.next.holds(request.who) => Ok(()),
            Some(_) => Err(Refusal::Conflict),
        }
    }

    pub(super) fn release(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        self.check_key(request)?;
        let kind = request.kind()?;
        match &self.next.persistent {
            Some(held) if self.next.holds(request.who) => {
                if held.kind != kind {
                    return Err(Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION.into());
                }
            }
            // SPC-4 section 5.13: no error if there is nothing that the sender could release.
            _ => return Ok(()),
        }
        self.next.persistent = None;
        if kind.is_for_registrants() {
            self.tell_others(request.who, Sense::RESERVATIONS_RELEASED);
        }
        Ok(())
    }

    pub(super) fn clear(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        self.check_key(request)?;
        self.tell_others(request.who, Sense::RESERVATIONS_PREEMPTED);
        self.next.keys.clear();
        self.next.persistent = None;
        self.count();
        Ok(())
    }

    pub(super) fn preempt(&mut self, request: &Request<'_>, abort: bool) -> Result<(), Refusal> {
        self.check_key(request)?;
        let held = self.next.persistent.clone();
        let holder = held.as_ref().and_then(|held| held.holder.as_ref());
        let held_by_all = held.is_some() && holder.is_none();
        let everybody = request.action_key == 0;
        if everybody && !held_by_all {
            return Err(Sense::invalid_parameter_field(8).into());
        }
        // SPC-4 section 5.13: the reservation falls if the key is its holder's, or zero for the
        // holders of an all registrants type. Otherwise only registrations do.
        let falls = everybody
            || holder.is_some_and(|holder| {
                self.next.keys.get(holder.borrowed()) == Some(request.action_key)
            });
        let mut preempted: Vec<Registrant> = self
            .next
            .keys
            .iter()
            .filter(|&(_, key)| everybody || key == request.action_key)
            .map(|(who, _)| who.owned())
            .collect();
        if preempted.is_empty() {
            return Err(Refusal::Conflict);
        }
        if falls {
            let kind = request.kind()?;
            preempted.retain(|who| who.borrowed() != request.who);
            for who in &preempted {
                self.next.keys.remove(who.borrowed());
            }
            if held.is_some_and(|held| held.kind != kind) {
                self.tell_others(request.who, Sense::RESERVATIONS_RELEASED);
            }
            self.hold(kind, request.who);
        } else {
            // Here the sender's own registration goes too if it has that key.
            for who in &preempted {
                self.unregister(who.borrowed());
            }
            preempted.retain(|who| who.borrowed() != request.who);
        }
        for who in &preempted {
            self.effects.attentions.push((who.clone(), Sense::REGISTRATIONS_PREEMPTED));
        }
        if abort {
            self.effects.aborts = preempted;
        }
        self.count();
        Ok(())
    }

    fn register_and_move(
        &mut self,
        request: &Request<'_>,
        from: &Nexus,
        list: &[u8],
    ) -> Result<(), Refusal> {
        self.check_key(request)?;
        let Some(held) = &self.next.persistent else {
            return Err(Sense::invalid_cdb_field(1, Some(4)).into());
        };
        if !held.is_held_alone_by(request.who) {
            return Err(Refusal::Conflict);
        }
        let kind = held.kind;
        if request.action_key == 0 {
            return Err(Sense::invalid_parameter_field(8).into());
        }
        if list[18..20] != RELATIVE_PORT.to_be_bytes() {
            return Err(Sense::invalid_parameter_field(18).into());
        }
        let length = [list[20], list[21], list[22], list[23]];
        let Some(id) = list[BASIC_LENGTH..].get(..u32::from_be_bytes(length) as usize) else {
            return Err(Sense::invalid_parameter_field(20).into());
        };
        let Some((initiator, &[])) = transport_id::take(id) else {
            return Err(Sense::invalid_parameter_field(24).into());
        };
        let to = Nexus { initiator, target: from.target.clone() };
        if to == *from {
            return Err(Sense::invalid_parameter_field(24).into());
        }
        if list[17] & UNREG != 0 {
            self.next.keys.remove(request.who);
        }
        self.hold(kind, RegistrantRef::Scsi(&to));
        self.set_key(Registrant::Scsi(to), request.action_key)?;
        self.next.survives = list[17] & APTPL != 0;
        self.count();
        Ok(())
    }

    /// The sender must be registered, and give its key.
    pub(super) fn check_key(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let known = self.next.keys.get(request.who) == Some(request.key);
        if known { Ok(()) } else { Err(Refusal::Conflict) }
    }

    pub(super) fn set_key(&mut self, who: Registrant, key: u64) -> Result<(), Sense> {
        let keys = &mut self.next.keys;
        if keys.len() >= REGISTRATIONS_MAX && !keys.contains(who.borrowed()) {
            return Err(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
        }
        keys.insert(who, key);
        Ok(())
    }

    /// Ends a registration, and the persistent reservation if it has no holder without it.
    pub(super) fn unregister(&mut self, who: RegistrantRef<'_>) {
        self.next.keys.remove(who);
        let (keys, persistent) = (&self.next.keys, &mut self.next.persistent);
        let released = persistent.take_if(|held| match &held.holder {
            Some(_) => held.is_held_alone_by(who),
            None => keys.is_empty(),
        });
        if released.is_some_and(|held| held.kind.is_for_registrants()) {
            self.tell_others(who, Sense::RESERVATIONS_RELEASED);
        }
    }

    fn hold(&mut self, kind: Kind, who: RegistrantRef<'_>) {
        let holder = (!kind.is_all_registrants()).then(|| who.owned());
        self.next.persistent = Some(Persistent { kind, holder });
    }

    /// A condition for every registrant but one.
    fn tell_others(&mut self, but: RegistrantRef<'_>, sense: Sense) {
        let others = self.next.registrants().filter(|&who| who != but);
        self.effects.attentions.extend(others.map(|who| (who.owned(), sense)));
    }

    pub(super) fn count(&mut self) {
        self.next.generation = self.next.generation.wrapping_add(1);
    }
}

fn be64(list: &[u8], at: usize) -> u64 {
    list[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The relative target port identifier of a target's only port.
pub(super) const RELATIVE_PORT: u16 = 1;
/// Length of the parameter list without `TransportIDs`, in bytes.
const BASIC_LENGTH: usize = 24;
/// The reservation is for the whole logical unit; there is no other scope.
const SCOPE_UNIT: u8 = 0;
const SPEC_I_PT: u8 = 0x08;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;
