//! What a connection tells its shell.

use super::LoginFault;
use crate::iscsi::pdu::Itt;

/// Initiator's part of a session identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isid(pub [u8; 6]);

/// What [`receive`](super::Connection::receive) made of the input.
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes at the front of the input that are dealt with.
    pub consumed: usize,
    /// What they mean to the shell, if anything. With zero bytes consumed and no event, more bytes
    /// are needed, or an answer to [`Event::SessionRequested`].
    pub event: Option<Event<'a>>,
}

/// Something that the shell must know or do.
#[derive(Debug)]
pub enum Event<'a> {
    /// A login is about to succeed. The shell closes an older session of the same initiator name,
    /// ISID and target (RFC 7143 section 6.3.5), then calls
    /// [`session_admitted`](super::Connection::session_admitted) or
    /// [`session_refused`](super::Connection::session_refused). Nothing is received before that.
    SessionRequested {
        /// iSCSI name of the initiator.
        initiator: String,
        /// Initiator's part of the session identifier.
        isid: Isid,
        /// Zero asks for a new session; anything else for a second connection of that session.
        tsih: u16,
        /// Index into [`Node::targets`](super::Node::targets), or `None` for a discovery session.
        target: Option<usize>,
        /// Connection identifier.
        cid: u16,
        /// The CHAP name that the initiator has proven; `None` if it was asked for no proof.
        account: Option<String>,
    },
    /// The login was refused; the connection closes once the outbox is drained.
    LoginFailed {
        /// What the initiator was told.
        status: LoginStatus,
        /// Why, for logs.
        reason: LoginFault,
    },
    /// A SCSI command. The shell answers it by [`respond`](super::Connection::respond) or
    /// [`respond_data`](super::Connection::respond_data), exactly once.
    Command(Command<'a>),
    /// Write data of a command that is not answered yet. Data comes in order, without gaps.
    Data {
        /// Task that it belongs to.
        itt: Itt,
        /// Where it belongs, in bytes from the start of the command's data.
        offset: u32,
        /// The data.
        bytes: &'a [u8],
        /// Everything that was wanted is here.
        complete: bool,
    },
    /// The write data of a command broke a rule. The shell answers with CHECK CONDITION and this
    /// sense data; what was received must not be used.
    TransferFailed {
        /// Task that it belongs to.
        itt: Itt,
        /// What to answer.
        sense: crate::scsi::Sense,
    },
    /// A task management function. The shell ends the tasks that it concerns by
    /// [`abandon`](super::Connection::abandon), then answers by
    /// [`task_management_response`](super::Connection::task_management_response).
    TaskManagement {
        /// Tag of the request itself.
        itt: Itt,
        /// What to do.
        function: TaskFunction,
        /// To which logical unit.
        lun: u64,
        /// To which task, for the functions that concern one.
        referenced_itt: Itt,
        /// Command number of that task.
        ref_cmd_sn: u32,
    },
    /// The initiator logs out. The shell answers by
    /// [`logout_response`](super::Connection::logout_response).
    Logout {
        /// Tag of the request.
        itt: Itt,
        /// Why.
        reason: LogoutReason,
    },
    /// The answer to a [`ping`](super::Connection::ping).
    Pong,
    /// A PDU was refused with a Reject; the connection goes on. For logs only.
    Rejected {
        /// Opcode of the PDU.
        opcode: u8,
        /// What the initiator was told.
        reason: RejectReason,
    },
}

/// A SCSI command as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Initiator task tag.
    pub itt: Itt,
    /// Logical unit number, decoded by [`scsi::luns::decode`](crate::scsi::luns::decode).
    pub lun: u64,
    /// The first 16 bytes of the command descriptor block.
    pub cdb: [u8; 16],
    /// The rest of a longer block, else empty.
    pub cdb_rest: &'a [u8],
    /// How it may be ordered among others.
    pub attribute: Attribute,
    /// The initiator expects data.
    pub reads: bool,
    /// The initiator has data to send.
    pub writes: bool,
    /// How much data the initiator expects to be moved, in bytes; zero if it expects none.
    pub expected_length: u32,
    /// The first write data, from offset zero.
    pub immediate: &'a [u8],
    /// More write data is under way without being asked for; it comes as [`Event::Data`].
    pub unsolicited: bool,
    /// Delivered outside of the command window.
    pub is_immediate: bool,
}

/// Task attributes, RFC 7143 section 11.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// In any order. Untagged commands are treated so too.
    Simple,
    /// After all earlier and before all later commands.
    Ordered,
    /// Before all that wait.
    HeadOfQueue,
    /// Auto contingent allegiance.
    Aca,
}

/// Task management functions, RFC 7143 section 11.5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFunction {
    /// End one task.
    AbortTask,
    /// End all tasks of this session on the logical unit.
    AbortTaskSet,
    /// Clear auto contingent allegiance.
    ClearAca,
    /// End all tasks of all sessions on the logical unit.
    ClearTaskSet,
    /// Reset the logical unit.
    LogicalUnitReset,
    /// Reset the target, keep the sessions.
    TargetWarmReset,
    /// Reset the target and close all its sessions.
    TargetColdReset,
}

impl TaskFunction {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::AbortTask,
            2 => Self::AbortTaskSet,
            3 => Self::ClearAca,
            4 => Self::ClearTaskSet,
            5 => Self::LogicalUnitReset,
            6 => Self::TargetWarmReset,
            7 => Self::TargetColdReset,
            _ => return None,
        })
    }
}

/// Results of a task management function, RFC 7143 section 11.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TmfResponse {
    /// Done.
    Complete = 0,
    /// There is no such task.
    TaskDoesNotExist = 1,
    /// There is no such logical unit.
    LunDoesNotExist = 2,
    /// The task still belongs to another connection.
    TaskStillAllegiant = 3,
    /// Tasks cannot move between connections.
    ReassignNotSupported = 4,
    /// The function is not supported.
    NotSupported = 5,
    /// The initiator may not do that.
    AuthorizationFailed = 6,
    /// Refused.
    Rejected = 255,
}

/// Why an initiator logs out, RFC 7143 section 11.14.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutReason {
    /// The session ends.
    CloseSession,
    /// The connection ends, and with it a session of one connection.
    CloseConnection,
}

/// Why a PDU was refused, RFC 7143 section 11.17.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// The digest of the data is wrong.
    DataDigestError = 0x02,
    /// A rule of the protocol was broken.
    ProtocolError = 0x04,
    /// The opcode is not supported.
    CommandNotSupported = 0x05,
    /// Too many commands for immediate delivery.
    ImmediateCommandReject = 0x06,
    /// The tag belongs to a task that is not over.
    TaskInProgress = 0x07,
    /// A field has an illegal value.
    InvalidPduField = 0x09,
    /// Too many text exchanges, or a text without end.
    LongOperationReject = 0x0a,
    /// The session is about to be logged out.
    WaitingForLogout = 0x0c,
}

/// Results of a login, RFC 7143 section 11.13.5. The discriminants are class and detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum LoginStatus {
    /// Done.
    Success = 0x0000,
    /// The target is served elsewhere for now.
    TargetMovedTemporarily = 0x0101,
    /// The target is served elsewhere from now on.
    TargetMovedPermanently = 0x0102,
    /// The initiator broke a rule.
    InitiatorError = 0x0200,
    /// The initiator could not prove who it is.
    AuthenticationFailure = 0x0201,
    /// The initiator may not use the target.
    AuthorizationFailure = 0x0202,
    /// There is no such target.
    NotFound = 0x0203,
    /// The target is gone and will not come back.
    TargetRemoved = 0x0204,
    /// No protocol version in common.
    UnsupportedVersion = 0x0205,
    /// The session takes no further connection.
    TooManyConnections = 0x0206,
    /// A key that must be there is missing.
    MissingParameter = 0x0207,
    /// The connection cannot be added to the session.
    CannotIncludeInSession = 0x0208,
    /// Neither normal nor discovery.
    SessionTypeNotSupported = 0x0209,
    /// There is no session with that TSIH.
    SessionDoesNotExist = 0x020a,
    /// A request that has no place in a login.
    InvalidDuringLogin = 0x020b,
    /// The target failed.
    TargetError = 0x0300,
    /// Not now.
    ServiceUnavailable = 0x0301,
    /// The target has no room for another session.
    OutOfResources = 0x0302,
}

/// The peer broke a rule that a connection does not survive. Every variant means: write what the
/// outbox holds if that is possible at once, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The data segment is longer than was declared.
    #[error("data segment of {length} bytes, {limit} allowed (RFC 7143 section 13.12)")]
    SegmentTooLong {
        /// Length in the header, in bytes.
        length: u32,
        /// Length that was declared, in bytes.
        limit: u32,
    },
    /// The header does not match its digest, so not even its length can be believed.
    #[error("header digest error (RFC 7143 section 7.8)")]
    HeaderDigest,
    /// The data does not match its digest.
    #[error("data digest error (RFC 7143 section 7.8)")]
    DataDigest,
    /// The additional header segments do not add up.
    #[error("malformed additional header segment (RFC 7143 section 11.2.2)")]
    MalformedAhs,
    /// The initiator acknowledges a status that was never sent.
    #[error("ExpStatSN {got} where at most {expected} was sent (RFC 7143 section 4.2.2.2)")]
    StatusNeverSent {
        /// Status number that comes next.
        expected: u32,
        /// Number that came.
        got: u32,
    },
    /// A command number was skipped. On a session's only connection it can never arrive any more.
    #[error("command number {got} where {expected} was due (RFC 7143 section 4.2.2.1)")]
    CommandGap {
        /// Number that was due.
        expected: u32,
        /// Number that came.
        got: u32,
    },
}
