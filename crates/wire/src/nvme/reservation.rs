//! Reservation commands: what they ask for, and the notices that they lead to.

use super::pdu::Sqe;
use super::status::Status;
use crate::scsi::reservation::{HostAction, HostOut};
use crate::scsi::sense::Sense;

/// Reads a Reservation Register, Acquire or Release.
pub(super) fn decode(sqe: &Sqe) -> Result<HostOut, Status> {
    let dword = sqe.cdw(10);
    let (rtype, ignores_key) = ((dword >> 8) as u8, dword & IGNORE_KEY != 0);
    let action = match (sqe.opcode(), dword & 0b111) {
        (opcode::REGISTER, 0) => HostAction::Register,
        (opcode::REGISTER, 1) => HostAction::Unregister,
        (opcode::REGISTER, 2) => HostAction::Replace,
        (opcode::ACQUIRE, 0) => HostAction::Acquire,
        (opcode::ACQUIRE, 1) => HostAction::Preempt,
        (opcode::ACQUIRE, 2) => HostAction::PreemptAndAbort,
        (opcode::RELEASE, 0) => HostAction::Release,
        (opcode::RELEASE, 1) => HostAction::Clear,
        _ => return Err(Status::INVALID_FIELD),
    };
    // NVM Express Base 1.4 sections 6.10 and 6.12: only Register may ignore the key.
    let has_key = sqe.opcode() == opcode::REGISTER || !ignores_key;
    let has_type = sqe.opcode() != opcode::ACQUIRE || (1..=6).contains(&rtype);
    if !has_key || !has_type {
        return Err(Status::INVALID_FIELD);
    }
    // CPTPL.
    let persistence = match dword >> 30 {
        _ if sqe.opcode() != opcode::REGISTER => None,
        0b00 => None,
        0b01 => return Err(Status::INVALID_FIELD),
        value => Some(value == 0b11),
    };
    Ok(HostOut { action, rtype, ignores_key, persistence })
}

/// Length of the list of a command, in bytes: its keys.
pub(super) const fn list_length(action: HostAction) -> u32 {
    match action {
        HostAction::Release | HostAction::Clear => 8,
        _ => 16,
    }
}

/// The keys in the list of a command: the current one, then the new or the preempted one, or zero if there is none.
pub fn keys(list: &[u8]) -> [u64; 2] {
    let (keys, _) = list.as_chunks();
    [0, 1].map(|place| keys.get(place).map_or(0, |key| u64::from_le_bytes(*key)))
}

/// What a host learns of its registration or reservation in the log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another host has taken its registration away.
    RegistrationPreempted = 1,
    /// The reservation was released, or has another type.
    ReservationReleased = 2,
    /// Another host has cleared the reservation and all registrations.
    ReservationPreempted = 3,
}

impl Notice {
    /// What a host learns where a SCSI nexus gets this unit attention.
    pub fn of(attention: Sense) -> Option<Self> {
        [
            (Sense::REGISTRATIONS_PREEMPTED, Self::RegistrationPreempted),
            (Sense::RESERVATIONS_RELEASED, Self::ReservationReleased),
            (Sense::RESERVATIONS_PREEMPTED, Self::ReservationPreempted),
        ]
        .into_iter()
        .find_map(|(sense, notice)| (sense == attention).then_some(notice))
    }

    /// The bit that masks it in the feature.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Opcodes.
pub(super) mod opcode {
    pub(in crate::nvme) const REGISTER: u8 = 0x0d;
    pub(in crate::nvme) const REPORT: u8 = 0x0e;
    pub(in crate::nvme) const ACQUIRE: u8 = 0x11;
    pub(in crate::nvme) const RELEASE: u8 = 0x15;
}

/// Dword 10: ignore the existing key (IEKEY).
const IGNORE_KEY: u32 = 1 << 3;
/// Every bit of the mask of notices.
pub(super) const NOTICES: u32 = 0b1110;
