//! Reservation commands of NVMe hosts, on the same table (NVM Express Base 1.4 sections 6.10 to 6.13 and 8.8).
//!
//! | NVMe | SCSI | different here |
//! | --- | --- | --- |
//! | Register, action 0 | REGISTER of a new nexus | a host that is registered with this key may; with another one it conflicts |
//! | action 1, 2 | REGISTER, REGISTER AND IGNORE EXISTING KEY | only for who is registered; a zero key unregisters |
//! | Acquire, action 0, 1, 2 | RESERVE, PREEMPT, PREEMPT AND ABORT | |
//! | Release, action 0, 1 | RELEASE, CLEAR | a wrong type conflicts |

use sha2::{Digest, Sha256};

use super::Reservations;
use super::out::{Change, Draft, Request};
use super::rules::Kind;
use crate::scsi::nexus::{HostId, Nexus, Refusal, RegistrantRef};
use crate::scsi::sense::Sense;

/// What a reservation command of an NVMe host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// Register with a key.
    Register,
    /// End the registration.
    Unregister,
    /// Register with another key.
    Replace,
    /// Take the reservation.
    Acquire,
    /// Take the reservation, or the registrations, of others.
    Preempt,
    /// The same, and abort the commands of those who lose their registrations.
    PreemptAndAbort,
    /// Give the reservation back.
    Release,
    /// End the reservation and all registrations.
    Clear,
    /// Only the persistence is set.
    Persist,
}

/// A reservation command of an NVMe host without its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOut {
    /// What it does.
    pub action: HostAction,
    /// RTYPE: the type of the reservation, 1 to 6.
    pub rtype: u8,
    /// IEKEY: Unregister and Replace do not compare the current key.
    pub ignores_key: bool,
    /// Registrations and the reservation shall outlive a loss of power, or not; `None` leaves that as it is.
    pub persistence: Option<bool>,
}

impl Reservations {
    /// A command of this host. `keys`: the current key, then the new or the preempted one. `can_persist`: there is a
    /// place to keep what must outlive a loss of power.
    pub(crate) fn host_out(
        &self,
        host: &HostId,
        out: HostOut,
        keys: [u64; 2],
        can_persist: bool,
    ) -> Result<Change, Refusal> {
        let mut draft = Draft::of(self);
        // As for SCSI: while any nexus holds a RESERVE(6), for every sender. A feature is no command for the medium.
        if self.reserved.is_some() && out.action != HostAction::Persist {
            return Err(Refusal::Conflict);
        }
        let request = Request {
            who: RegistrantRef::Nvme(host),
            scope: 0,
            kind: Kind::from_rtype(out.rtype).map_or(0, Kind::code),
            key: keys[0],
            action_key: keys[1],
            survives: false,
        };
        match out.action {
            HostAction::Register | HostAction::Unregister | HostAction::Replace => {
                draft.register_host(host, out, &request)?;
                draft.persist(out, can_persist);
                draft.count();
            }
            HostAction::Acquire => draft.reserve(&request)?,
            HostAction::Preempt => draft.preempt(&request, false)?,
            HostAction::PreemptAndAbort => draft.preempt(&request, true)?,
            HostAction::Release => draft.release(&request).map_err(|refusal| {
                let wrong_type = Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
                if refusal == wrong_type.into() { Refusal::Conflict } else { refusal }
            })?,
            HostAction::Clear => draft.clear(&request)?,
            HostAction::Persist => {
                if out.persistence == Some(true) && !can_persist {
                    return Err(FIELD.into());
                }
                draft.persist(out, can_persist);
            }
        }
        Ok(draft.change_of(self))
    }

    /// The data of Reservation Report, in the extended format.
    ///
    /// Controllers are dynamic, so that a registrant is one entry, whose controller is `FFFFh`, whichever and however many
    /// its controllers are. A SCSI nexus has the first half of a SHA-256 in place of a host identifier.
    pub fn host_report(&self) -> Vec<u8> {
        let mut data = vec![0; ENTRY_LENGTH * (1 + self.keys.len())];
        data[..4].copy_from_slice(&self.generation.to_le_bytes());
        data[4] = self.persistent.as_ref().map_or(0, |held| held.kind.rtype());
        data[5..7].copy_from_slice(&(self.keys.len() as u16).to_le_bytes());
        data[9] = self.survives.into();
        let entries = data[ENTRY_LENGTH..].chunks_exact_mut(ENTRY_LENGTH);
        for (entry, (who, key)) in entries.zip(self.keys.iter()) {
            entry[..2].copy_from_slice(&u16::MAX.to_le_bytes());
            entry[2] = self.holds(who).into();
            entry[8..16].copy_from_slice(&key.to_le_bytes());
            entry[16..32].copy_from_slice(&match who {
                RegistrantRef::Scsi(nexus) => host_id_of(nexus),
                RegistrantRef::Nvme(host) => *host,
            });
        }
        data
    }
}

impl Draft {
    fn register_host(
        &mut self,
        host: &HostId,
        out: HostOut,
        request: &Request<'_>,
    ) -> Result<(), Refusal> {
        let who = request.who;
        if out.action == HostAction::Register {
            // A host without an identifier cannot be told from others of its kind.
            if request.action_key == 0 || *host == HostId::default() {
                return Err(FIELD.into());
            }
            return match self.next.keys.get(who) {
                Some(known) if known != request.action_key => Err(Refusal::Conflict),
                _ => Ok(self.set_key(who.owned(), request.action_key)?),
            };
        }
        if out.ignores_key && !self.next.keys.contains(who) {
            return Err(Refusal::Conflict);
        }
        if !out.ignores_key {
            self.check_key(request)?;
        }
        // Linux 6.1 unregisters by replacing the key with zero.
        if out.action == HostAction::Unregister || request.action_key == 0 {
            self.unregister(who);
            return Ok(());
        }
        Ok(self.set_key(who.owned(), request.action_key)?)
    }

    /// Linux asks for persistence with every registration: where it cannot be had it is not given, and the report says
    /// so.
    fn persist(&mut self, out: HostOut, can_persist: bool) {
        if let Some(persistence) = out.persistence {
            self.next.survives = persistence && can_persist;
        }
    }
}

/// What stands for a SCSI nexus where a host identifier is due; always the same.
fn host_id_of(nexus: &Nexus) -> HostId {
    let mut hash = Sha256::new();
    hash.update(nexus.initiator.name.as_bytes());
    // A null ends the name, and is in no name.
    hash.update([0]);
    hash.update(nexus.initiator.isid);
    hash.update(nexus.target.as_bytes());
    *hash.finalize().first_chunk().expect("a hash has 32 bytes")
}

/// A field has a value that it must not have. NVMe says no more than that.
const FIELD: Sense = Sense::INVALID_FIELD_IN_PARAMETER_LIST;
/// Length of an entry of a report, and of what is before the entries, in bytes.
const ENTRY_LENGTH: usize = 64;
