//! Events that a connection reports to its shell.

use super::LoginFault;
use crate::iscsi::codes::{Attribute, Isid, LoginStatus, LogoutReason, RejectReason, TaskFunction};
use crate::iscsi::pdu::Itt;

/// The result of [`receive`](super::Connection::receive).
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes consumed from the front of the input.
    pub consumed: usize,
    /// The event for the shell, if there is one. With zero bytes consumed and no event, more bytes are needed, or an
    /// answer to [`Event::SessionRequested`] or [`Event::CredentialsOffered`].
    pub event: Option<Event<'a>>,
}

/// An event that the shell must handle.
#[derive(Debug)]
pub enum Event<'a> {
    /// A login is about to succeed. The shell closes an older session of the same initiator name,
    /// ISID and target (RFC 7143 section 6.3.5), then calls
    /// [`session_admitted`](super::Connection::session_admitted) or
    /// [`login_refused`](super::Connection::login_refused). Nothing is received before that.
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
        /// The authenticated CHAP name; `None` without authentication.
        account: Option<String>,
    },
    /// The initiator has sent a CHAP name and response. The shell calls
    /// [`check_credentials`](super::Connection::check_credentials), or
    /// [`login_refused`](super::Connection::login_refused) if it allows no attempt now. Nothing is received before that.
    CredentialsOffered {
        /// iSCSI name of the initiator.
        initiator: String,
        /// The CHAP name, of 1 to 255 bytes.
        account: String,
    },
    /// The login was refused; the connection closes once the outbox is drained.
    LoginFailed {
        /// The code that was sent to the initiator.
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
        /// Offset in bytes from the start of the command's data.
        offset: u32,
        /// The data.
        bytes: &'a [u8],
        /// All requested data has arrived.
        complete: bool,
    },
    /// The write data of a command broke a rule. The shell answers with CHECK CONDITION and this
    /// sense data; what was received must not be used.
    TransferFailed {
        /// Task that it belongs to.
        itt: Itt,
        /// The sense data.
        sense: crate::scsi::Sense,
    },
    /// A task management function. The shell ends the tasks that it concerns by
    /// [`abandon`](super::Connection::abandon), then answers by
    /// [`task_management_response`](super::Connection::task_management_response).
    TaskManagement {
        /// Tag of the request itself.
        itt: Itt,
        /// The function.
        function: TaskFunction,
        /// The logical unit.
        lun: u64,
        /// The task, for functions that concern one.
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
    /// A PDU was refused with a Reject; the connection stays open. For logs only.
    Rejected {
        /// Opcode of the PDU.
        opcode: u8,
        /// The code that was sent to the initiator.
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
    /// The task attribute: how the command may be ordered.
    pub attribute: Attribute,
    /// The initiator expects data.
    pub reads: bool,
    /// The initiator has data to send.
    pub writes: bool,
    /// The expected data transfer length in bytes; zero without data.
    pub expected_length: u32,
    /// The first write data, from offset zero.
    pub immediate: &'a [u8],
    /// More unsolicited write data follows; it comes as [`Event::Data`].
    pub unsolicited: bool,
    /// Delivered outside of the command window.
    pub is_immediate: bool,
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
        /// The next status number.
        expected: u32,
        /// The received number.
        got: u32,
    },
    /// A command number was skipped. On a session's only connection it can never arrive.
    #[error("command number {got} where {expected} was due (RFC 7143 section 4.2.2.1)")]
    CommandGap {
        /// The expected number.
        expected: u32,
        /// The received number.
        got: u32,
    },
}
