//! Registrants (`I_T` nexuses and NVMe hosts), effects of a command on others, and refusals.

use super::sense::Sense;

/// An initiator port: the name of a SCSI initiator over iSCSI (RFC 7143 section 4.4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InitiatorPort {
    /// iSCSI name of the initiator, in lower case.
    pub name: String,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
}

/// An `I_T` nexus: an initiator port and the target that it has logged in to. Every target has one
/// port, and distinguishes all nexuses of a logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexus {
    /// The initiator port.
    pub initiator: InitiatorPort,
    /// iSCSI name of the target.
    pub target: String,
}

/// The identifier of an NVMe host, 128 bits. It is the same over all controllers of the host.
pub type HostId = [u8; 16];

/// Who can register a key and hold a persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Registrant {
    /// A SCSI initiator port at a target.
    Scsi(Nexus),
    /// An NVMe host, through whichever controllers.
    Nvme(HostId),
}

/// A [`Registrant`] that is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrantRef<'a> {
    /// A SCSI initiator port at a target.
    Scsi(&'a Nexus),
    /// An NVMe host.
    Nvme(&'a HostId),
}

impl Registrant {
    /// The same, borrowed.
    pub const fn borrowed(&self) -> RegistrantRef<'_> {
        match self {
            Self::Scsi(nexus) => RegistrantRef::Scsi(nexus),
            Self::Nvme(host) => RegistrantRef::Nvme(host),
        }
    }
}

impl RegistrantRef<'_> {
    /// The same, owned.
    pub fn owned(self) -> Registrant {
        match self {
            Self::Scsi(nexus) => Registrant::Scsi(nexus.clone()),
            Self::Nvme(host) => Registrant::Nvme(*host),
        }
    }
}

/// Effects of a command on others. The shell applies them before it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Conditions for single registrants: unit attentions of nexuses, notices of NVMe hosts.
    pub attentions: Vec<(Registrant, Sense)>,
    /// A condition for every nexus of the logical unit but the sender's.
    pub others: Option<Sense>,
    /// Registrants whose tasks on the logical unit are aborted.
    pub aborts: Vec<Registrant>,
}

/// The refusal of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// CHECK CONDITION with this sense data.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

/// The access that a command needs under a reservation of another nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// None: the command is always allowed.
    Free,
    /// Not restricted by a persistent reservation, but by a RESERVE(6) of another nexus: TEST UNIT READY, PERSISTENT
    /// RESERVE IN and OUT (SPC-2 section 5.5.1).
    Query,
    /// It reads the medium, or asks what only a reader needs.
    Read,
    /// It changes the medium or the unit.
    Write,
}
