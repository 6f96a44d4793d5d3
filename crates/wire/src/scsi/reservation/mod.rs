//! Reservations of a logical unit: RESERVE(6), RELEASE(6) and persistent reservations (SPC-2 section
//! 5.5, SPC-4 section 5.13).
//!
//! [`Reservations`] is the whole state of one logical unit. PERSISTENT RESERVE OUT gives a [`Change`] and leaves the
//! state as it is: state that must survive a loss of power is saved before it takes effect and before the initiator
//! gets its status.

mod out;
mod report;
mod rules;
mod stored;
mod transport_id;

use std::collections::BTreeMap;

use super::nexus::{Access, Nexus, Refusal};
use rules::Kind;

pub use out::{Change, LIST_LENGTH_MAX, Out};
pub use stored::DecodeError;

/// Most registrations of a logical unit. One more is refused with INSUFFICIENT REGISTRATION
/// RESOURCES.
pub const REGISTRATIONS_MAX: usize = 128;

/// The reservations and registrations of one logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// Reservation keys; none is zero.
    keys: BTreeMap<Nexus, u64>,
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
    holder: Option<Nexus>,
}

impl Reservations {
    /// Whether a command of `nexus` that needs `access` may run. `None` is a nexus without a
    /// registration and without a reservation, such as another protocol. A command that may not
    /// is answered with RESERVATION CONFLICT.
    pub fn permits(&self, nexus: Option<&Nexus>, access: Access) -> bool {
        if let Some(holder) = &self.reserved {
            return access == Access::Free || nexus == Some(holder);
        }
        let Some(persistent) = &self.persistent else {
            return true;
        };
        if nexus.is_some_and(|nexus| persistent.holder.as_ref() == Some(nexus)) {
            return true;
        }
        let is_registered = nexus.is_some_and(|nexus| self.keys.contains_key(nexus));
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
        let shares = |persistent: &Persistent| {
            self.holds(nexus)
                || persistent.kind.is_for_registrants() && self.keys.contains_key(nexus)
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

    /// The registered nexuses, in ascending order.
    pub fn registrants(&self) -> impl Iterator<Item = &Nexus> {
        self.keys.keys()
    }

    /// Whether registrations and the persistent reservation must outlive a loss of power (APTPL).
    pub const fn survives(&self) -> bool {
        self.survives
    }

    /// Whether `nexus` holds the persistent reservation, alone or with others.
    fn holds(&self, nexus: &Nexus) -> bool {
        match &self.persistent {
            Some(Persistent { holder: Some(holder), .. }) => holder == nexus,
            Some(Persistent { holder: None, .. }) => self.keys.contains_key(nexus),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
