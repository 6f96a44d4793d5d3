//! Events that a session reports to its shell.

use crate::iscsi::codes::TmfResponse;
use crate::iscsi::keys::Parameters;
use crate::iscsi::pdu::Itt;

/// What [`receive`](super::Initiator::receive) made of the input.
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes at the front of the input that are dealt with.
    pub consumed: usize,
    /// What they mean to the shell, if anything. With zero bytes consumed and no event, more bytes
    /// are needed.
    pub event: Option<Event<'a>>,
}

/// Something that the shell must know or do. Bytes are slices of the input.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The session is there.
    LoggedIn {
        /// The target's part of the session identifier.
        tsih: u16,
        /// The portal group that answered; `None` if the target does not say.
        portal_group: Option<u16>,
        /// Commands that the target takes at first.
        window: u32,
        /// What was negotiated.
        parameters: Parameters,
    },
    /// The target is to be found elsewhere. The connection is of no further use.
    Redirected {
        /// Where, as `host:port` (RFC 7143 section 13.8); the port may be missing.
        address: String,
        /// For ever.
        permanent: bool,
    },
    /// Data of a read, in order and without gaps. It counts only once the command has ended well.
    Data {
        /// The command.
        itt: Itt,
        /// The shell's name for it.
        tag: u64,
        /// Where it belongs, in bytes from the start of the command's data.
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
    /// A command has ended without an answer, because a task management function ended it. These
    /// come in front of its [`Managed`](Self::Managed).
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
        /// What came of it.
        response: TmfResponse,
    },
    /// The answer to [`send_targets`](super::Initiator::send_targets).
    Targets(Vec<Target>),
    /// The target has sent an asynchronous message.
    Asked(AsyncEvent),
    /// The target agreed to the logout. The connection is of no further use.
    LoggedOut,
}

/// What was moved, less or more than a command expected (RFC 7143 section 11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// Exactly what was expected.
    None,
    /// Underflow: bytes that were not moved.
    Underflow(u32),
    /// Overflow: bytes that the command had no room for.
    Overflow(u32),
}

/// A target that a discovery session was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// Where it can be reached. Empty: at the address of the discovery session.
    pub portals: Vec<Portal>,
}

/// Where a target can be reached.
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
