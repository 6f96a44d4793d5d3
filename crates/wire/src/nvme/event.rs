//! Events that a connection reports to its shell, and faults of the peer.

use super::controller::Property;
use super::pdu::{Sqe, Transfer, digest_bit, field};
use super::status::Status;

/// The result of [`receive`](super::Connection::receive).
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes consumed from the front of the input.
    pub consumed: usize,
    /// The event for the shell, if there is one. With zero bytes consumed and no event, more bytes are needed, or an
    /// answer to [`Event::Connect`].
    pub event: Option<Event<'a>>,
}

/// An event that the shell must handle.
#[derive(Debug)]
pub enum Event<'a> {
    /// A host connects this queue to a controller. The shell calls [`admitted`](super::Connection::admitted) or
    /// [`refused`](super::Connection::refused). Nothing is received before that.
    Connect(Box<Connect>),
    /// Property Get or Set, on an admin queue. The shell answers with
    /// [`respond`](super::Connection::respond).
    Property {
        /// Slot of the command.
        slot: u32,
        /// What is read or set.
        property: Property,
    },
    /// An admin command, on the admin queue, or an I/O command. The shell answers it exactly once, with
    /// [`respond`](super::Connection::respond), [`respond_data`](super::Connection::respond_data) or
    /// [`respond_padded`](super::Connection::respond_padded).
    Command {
        /// Slot of the command.
        slot: u32,
        /// The command.
        sqe: Sqe,
        /// How its data moves.
        transfer: Transfer,
    },
    /// Data from the host for a command that is not answered yet. Data comes in order, without gaps.
    Data {
        /// Slot of the command.
        slot: u32,
        /// Offset in bytes from the start of the command's data.
        offset: u32,
        /// The data; may be empty in the event that completes it.
        bytes: &'a [u8],
        /// All data has come, and its digests are right. Before that the data must not take effect.
        complete: bool,
    },
    /// All data that [`gather`](super::Connection::gather) has asked for.
    Gathered {
        /// Slot of the command.
        slot: u32,
        /// The command.
        sqe: Sqe,
        /// The data.
        data: Vec<u8>,
    },
    /// The data of a command is damaged. The shell answers with this status; what was received must not be used.
    TransferFailed {
        /// Slot of the command.
        slot: u32,
        /// The status.
        status: Status,
    },
    /// The host ends this I/O queue; nothing more is received. The shell answers this command as the last one, after
    /// all others.
    Disconnect {
        /// Slot of the command.
        slot: u32,
    },
    /// The host has sent a termination request; the connection is to be closed. For logs only.
    Terminated {
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
}

/// What a Connect command asks for. Field by field it is valid; whether it fits the gateway is for the shell to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The queue: 0 is the admin queue.
    pub queue: u16,
    /// Places of the queue, at least 2.
    pub depth: u16,
    /// Keep alive timeout, in milliseconds; means something on the admin queue only.
    pub kato_ms: u32,
    /// The controller; `FFFFh` for the admin queue.
    pub controller: u16,
    /// Host identifier.
    pub host_id: [u8; 16],
    /// NQN of the host.
    pub host: String,
    /// NQN of the subsystem.
    pub subsystem: String,
}

/// Why the shell refuses a Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectRefusal {
    /// The subsystem does not exist for this host.
    Subsystem,
    /// The host is not admitted to the subsystem.
    Host,
    /// The host name differs from that of the controller.
    HostName,
    /// The host identifier differs from that of the controller.
    HostId,
    /// The controller does not exist, or is another subsystem's.
    Controller,
    /// No controller, or no memory for the queue, can be had now. A host tries again.
    Busy,
    /// The controller is not enabled, or the queue is connected already.
    Sequence,
}

/// The end of a command that moves no data to the host, or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The status.
    pub status: Status,
    /// Dword 0, which some commands define.
    pub dw0: u32,
    /// Dword 1.
    pub dw1: u32,
}

impl Completion {
    /// Success.
    pub const SUCCESS: Self = Self::failed(Status::SUCCESS);

    /// Success with a value in dword 0.
    pub const fn value(dw0: u32) -> Self {
        Self { status: Status::SUCCESS, dw0, dw1: 0 }
    }

    /// A status, without values.
    pub const fn failed(status: Status) -> Self {
        Self { status, dw0: 0, dw1: 0 }
    }
}

/// The peer broke a rule that a connection does not survive. The outbox ends with a termination request: the shell
/// writes it, shuts its sending side down, reads no more, and closes after a second or when the peer has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A field of a header has a value that it must not have.
    #[error("invalid PDU header field at byte {0} (FES 01h)")]
    HeaderField(u32),
    /// The connection was initialized already.
    #[error("a second ICReq (FES 02h)")]
    SecondIcReq,
    /// The first PDU must be an `ICReq`.
    #[error("PDU of type {0:#04x} before ICReq (FES 02h)")]
    BeforeIcReq(u8),
    /// More commands are unanswered than the queue has places.
    #[error("more than {0} unanswered commands (FES 02h)")]
    TooManyCommands(u32),
    /// No R2T has granted this data.
    #[error("H2CData with tag {0}, for which no R2T is outstanding (FES 02h)")]
    UnknownTag(u16),
    /// The transfer tag is that of another command.
    #[error("H2CData of command {got}, the tag is of command {expected} (FES 02h)")]
    WrongCommand {
        /// The command of the tag.
        expected: u16,
        /// The received command identifier.
        got: u16,
    },
    /// `LAST_PDU` came before all granted data.
    #[error("LAST_PDU at byte {got} of {expected} granted (FES 02h)")]
    EndsEarly {
        /// The end of the grant, in bytes.
        expected: u32,
        /// The end of the data, in bytes.
        got: u32,
    },
    /// The header does not match its digest.
    #[error("header digest error (FES 03h)")]
    HeaderDigest {
        /// The received digest.
        got: u32,
    },
    /// Data does not continue the data before it, or leaves the grant.
    #[error("H2CData of {length} bytes at {offset}, where {expected} to {end} was due (FES 04h)")]
    OutOfRange {
        /// Where the data must begin.
        expected: u32,
        /// The end of the grant.
        end: u32,
        /// Where it begins.
        offset: u32,
        /// Its length.
        length: u32,
    },
    /// A PDU has more data than was announced as the limit.
    #[error("{length} bytes of data in a PDU, {limit} allowed (FES 05h)")]
    TooLong {
        /// Length of the data, in bytes.
        length: u32,
        /// The limit, in bytes.
        limit: u32,
    },
    /// Digests are required here, and the host does not ask for them.
    #[error("digests are required here, asked for were {asked:02b}b (FES 06h)")]
    DigestsRequired {
        /// DGST of the `ICReq`.
        asked: u8,
    },
}

impl PeerError {
    /// Fatal error status.
    pub const fn fes(self) -> u16 {
        match self {
            Self::HeaderField(_) => 0x01,
            Self::SecondIcReq
            | Self::BeforeIcReq(_)
            | Self::TooManyCommands(_)
            | Self::UnknownTag(_)
            | Self::WrongCommand { .. }
            | Self::EndsEarly { .. } => 0x02,
            Self::HeaderDigest { .. } => 0x03,
            Self::OutOfRange { .. } => 0x04,
            Self::TooLong { .. } => 0x05,
            Self::DigestsRequired { .. } => 0x06,
        }
    }

    /// Fatal error information.
    pub const fn fei(self) -> u32 {
        match self {
            Self::HeaderField(offset) => offset,
            Self::HeaderDigest { got } => got,
            Self::DigestsRequired { .. } => field::DGST,
            _ => 0,
        }
    }
}

/// Digest bits of an `ICReq` that have no meaning.
pub(super) const DIGEST_BITS_RESERVED: u8 = !(digest_bit::HEADER | digest_bit::DATA);
