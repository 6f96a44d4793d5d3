//! Reservations of a logical unit: RESERVE(6), RELEASE(6) and persistent reservations (SPC-2 section
//! 5.5, SPC-4 section 5.13), which NVMe hosts share (NVM Express Base 1.4 section 8.8).
//!
//! [`Reservations`] is the whole state of one logical unit. PERSISTENT RESERVE OUT gives a [`Change`] and leaves the
//! state as it is: state that must survive a loss of power is saved before it takes effect and before the initiator
//! gets its status.

mod host;
mod keys;
mod out;
mod report;
mod rules;
mod stored;
mod transport_id;

use super::nexus::{Access, Nexus, Refusal, Registrant, RegistrantRef};
use keys::Keys;
use rules::Kind;

pub use host::{HostAction, HostOut};
pub use out::{Change, LIST_LENGTH_MAX, Out};
pub use stored::DecodeError;

/// Most registrations of a logical unit. One more is refused with INSUFFICIENT REGISTRATION
/// RESOURCES.
pub const REGISTRATIONS_MAX: usize = 128;

/// The reservations and registrations of one logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    keys: Keys,
    persistent: Option<Persistent>,
    /// The holder of a RESERVE(6). There are no registrations then.
    reserved: Option<Nexus>,
    /// PRGENERATION: counts changes of registrations.
    generation: u32,
    /// APTPL: registrations and the persistent reservation outlive a loss of power.
    survives: bool,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Persistent {
    kind: Kind,
    /// The holder, which is registered; `None` if all registrants hold it.
    holder: Option<Registrant>,
}

impl Reservations {
    /// Whether a command of `who` that needs `access` may run. `None` is a host that cannot register, such as one of
    /// NBD. A command that may not is answered with RESERVATION CONFLICT.
    pub fn permits(&self, who: Option<RegistrantRef<'_>>, access: Access) -> bool {
        if let Some(holder) = &self.reserved {
            return access == Access::Free || who == Some(RegistrantRef::Scsi(holder));
        }
        let Some(persistent) = &self.persistent else {
            return true;
        };
        if who.is_some_and(|who| persistent.is_held_alone_by(who)) {
            return true;
        }
        let is_registered = who.is_some_and(|who| self.keys.contains(who));
        persistent.kind.permits(is_registered, access)
    }

    /// RESERVE(6): takes the whole unit for `nexus`.
    pub(crate) fn reserve(&mut self, nexus: &Nexus) -> Result<(), Refusal> {
        if self.is_compatible(nexus)? {
            return Ok(());
        }
        if self.reserved.as_ref().is_some_and(|holder| holder != nexus) {
            return Err(Refusal::Conflict);
        }
        self.reserved = Some(nexus.clone());
        Ok(())
    }

    /// RELEASE(6): gives back what [`reserve`](Self::reserve) took. From any other nexus it has no effect and is no
    /// error.
    pub(crate) fn release(&mut self, nexus: &Nexus) -> Result<(), Refusal> {
        if !self.is_compatible(nexus)? {
            self.nexus_lost(nexus);
        }
        Ok(())
    }

    /// Whether RESERVE(6) and RELEASE(6) of `nexus` do nothing and are GOOD (CRH).
    // SPC-4 section 5.13: true for a holder of the persistent reservation, and for every registered nexus if the type
    // is one for registrants. Otherwise SPC-2 section 5.5.1 holds: both conflict for every sender while any nexus is
    // registered.
    fn is_compatible(&self, nexus: &Nexus) -> Result<bool, Refusal> {
        let who = RegistrantRef::Scsi(nexus);
        let shares = |persistent: &Persistent| {
            self.holds(who) || persistent.kind.is_for_registrants() && self.keys.contains(who)
        };
        match &self.persistent {
            Some(persistent) if shares(persistent) => Ok(true),
            _ if self.keys.is_empty() => Ok(false),
            _ => Err(Refusal::Conflict),
        }
    }

    /// Ends the RESERVE(6) of a nexus that is no more. Registrations stay.
    pub(crate) fn nexus_lost(&mut self, nexus: &Nexus) {
        self.reserved.take_if(|holder| holder == nexus);
    }

    /// Ends any RESERVE(6): the logical unit was reset. Registrations stay.
    pub(crate) fn reset(&mut self) {
        self.reserved = None;
    }

    /// These reservations, with the current RESERVE(6), which may have ended while they were being saved.
    pub(crate) fn beside(mut self, now: &Self) -> Self {
        self.reserved.clone_from(&now.reserved);
        self
    }

    /// Who is registered, in ascending order.
    pub fn registrants(&self) -> impl Iterator<Item = RegistrantRef<'_>> {
        self.keys.iter().map(|(who, _)| who)
    }

    /// Whether registrations and the persistent reservation must outlive a loss of power (APTPL).
    pub const fn survives(&self) -> bool {
        self.survives
    }

    /// Whether `who` holds the persistent reservation, alone or with others.
    fn holds(&self, who: RegistrantRef<'_>) -> bool {
        match &self.persistent {
            Some(held) if held.holder.is_some() => held.is_held_alone_by(who),
            Some(_) => self.keys.contains(who),
            None => false,
        }
    }
}

impl Persistent {
    fn is_held_alone_by(&self, who: RegistrantRef<'_>) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.borrowed() == who)
    }
}

#[cfg(test)]
mod tests;
