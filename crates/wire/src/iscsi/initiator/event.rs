//! Events that a session reports to its shell.

use crate::iscsi::codes::TmfResponse;
use crate::iscsi::keys::Parameters;
use crate::iscsi::pdu::Itt;

/// The result of [`receive`](super::Initiator::receive).
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes consumed from the front of the input.
    pub consumed: usize,
    /// The event for the shell, if there is one. With zero bytes consumed and no event, more bytes are needed.
    pub event: Option<Event<'a>>,
}

/// An event that the shell must handle. Bytes are slices of the input.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The session is established.
    LoggedIn {
        /// The target's part of the session identifier.
        tsih: u16,
        /// The portal group that answered; `None` if the target does not say.
        portal_group: Option<u16>,
        /// The initial command window.
        window: u32,
        /// The negotiated parameters.
        parameters: Parameters,
    },
    /// The target redirects the login. The connection is of no further use.
    Redirected {
        /// The address, as `host:port` (RFC 7143 section 13.8); the port may be missing.
        address: String,
        /// Whether the move is permanent.
        permanent: bool,
    },
    /// Data of a read, in order and without gaps. It is valid only after the command has ended with GOOD.
    Data {
        /// The command.
        itt: Itt,
        /// The shell's name for it.
        tag: u64,
        /// Offset in bytes from the start of the command's data.
        offset: u32,
        /// The data.
        bytes: &'a [u8],
    },
    /// A command has ended. After GOOD, all data of a read that the residual does not except has
    /// been handed out, and all such data of a write was fetched by the target.
    Done {
        /// The command; its tag is free.
        itt: Itt,
        /// The shell's name for it.
        tag: u64,
        /// SCSI status; `None` if the target failed and the command has none (RFC 7143 section
        /// 11.4.3).
        status: Option<u8>,
        /// Sense data, at most 252 bytes; empty if there is none.
        sense: &'a [u8],
        /// Whether more or less data was moved than the command expected.
        residual: Residual,
    },
    /// A task management function has ended a command without an answer. These events precede its
    /// [`Managed`](Self::Managed).
    Aborted {
        /// The command; its tag is free.
        itt: Itt,
        /// The shell's name for it.
        tag: u64,
    },
    /// The answer to a [`ping`](super::Initiator::ping).
    Pong {
        /// The shell's name for it.
        tag: u64,
    },
    /// The answer to a task management function.
    Managed {
        /// The shell's name for it.
        tag: u64,
        /// The result.
        response: TmfResponse,
    },
    /// The answer to [`send_targets`](super::Initiator::send_targets).
    Targets(Vec<Target>),
    /// The target has sent an asynchronous message.
    Asked(AsyncEvent),
    /// The target agreed to the logout. The connection is of no further use.
    LoggedOut,
}

/// Data moved, compared with the expected length of a command (RFC 7143 section 11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// Exactly what was expected.
    None,
    /// Underflow: bytes that were not moved.
    Underflow(u32),
    /// Overflow: bytes that did not fit into the command's buffer.
    Overflow(u32),
}

/// A target in the answer to a discovery session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// Its portals. Empty: the address of the discovery session.
    pub portals: Vec<Portal>,
}

/// A portal of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// `host:port` as the target wrote it, an IPv6 address in brackets; the port may be missing.
    pub address: String,
    /// Its portal group.
    pub group: u16,
}

/// An asynchronous message of a target (RFC 7143 section 11.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// Something happened at a logical unit; the shell finds out what by asking it.
    Unit {
        /// Logical unit number, decoded by [`scsi::luns::decode`](crate::scsi::luns::decode).
        lun: u64,
    },
    /// The target asks for a logout.
    Logout {
        /// Seconds until then, at most.
        seconds: u16,
    },
    /// The target will close the connection, or all of the session.
    Drop {
        /// Seconds to wait before a new login.
        time2wait: u16,
    },
    /// The target asks for a new negotiation, or it will close the connection. Weir answers by a new
    /// session.
    Renegotiate {
        /// Seconds until then, at most.
        seconds: u16,
    },
    /// Something that only a vendor, or another standard, knows.
    Other {
        /// The code.
        code: u8,
    },
}
