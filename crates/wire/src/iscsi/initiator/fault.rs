//! Protocol errors of a target: typed, with the PDU, the field and its value.

use std::fmt;

use crate::iscsi::codes::LoginStatus;
use crate::iscsi::pdu::opcode;

/// The kind of a PDU, by its opcode; prints the name in RFC 7143.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduKind(pub u8);

impl fmt::Display for PduKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            opcode::NOP_OUT => "NOP-Out",
            opcode::SCSI_COMMAND => "SCSI Command",
            opcode::TASK_MANAGEMENT_REQUEST => "Task Management Request",
            opcode::LOGIN_REQUEST => "Login Request",
            opcode::TEXT_REQUEST => "Text Request",
            opcode::DATA_OUT => "Data-Out",
            opcode::LOGOUT_REQUEST => "Logout Request",
            opcode::NOP_IN => "NOP-In",
            opcode::SCSI_RESPONSE => "SCSI Response",
            opcode::TASK_MANAGEMENT_RESPONSE => "Task Management Response",
            opcode::LOGIN_RESPONSE => "Login Response",
            opcode::TEXT_RESPONSE => "Text Response",
            opcode::DATA_IN => "Data-In",
            opcode::LOGOUT_RESPONSE => "Logout Response",
            opcode::R2T => "R2T",
            opcode::ASYNC_MESSAGE => "Asynchronous Message",
            opcode::REJECT => "Reject",
            other => return write!(f, "PDU with opcode {other:#04x}"),
        };
        f.write_str(name)
    }
}

/// The expected value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This value.
    Exactly(u32),
    /// This or less.
    AtMost(u32),
    /// This or more.
    AtLeast(u32),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(value) => write!(f, "{value:#x}"),
            Self::AtMost(value) => write!(f, "at most {value:#x}"),
            Self::AtLeast(value) => write!(f, "at least {value:#x}"),
        }
    }
}

/// The target refused the session or broke a rule. The connection is of no further use. Text of the target is
/// escaped; secrets are never included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The target answered the login with an error status.
    #[error("the target refused the login: {} ({code:#06x})", LoginStatus::words(*.code))]
    Refused {
        /// Status class and detail (RFC 7143 section 11.13.5).
        code: u16,
    },
    /// The header does not match its digest, so not even its length can be believed.
    #[error("header digest error (RFC 7143 section 7.8)")]
    HeaderDigest,
    /// The data does not match its digest.
    #[error("{pdu}: data digest error (RFC 7143 section 7.8)")]
    DataDigest {
        /// The PDU.
        pdu: PduKind,
    },
    /// The data segment is longer than was declared.
    #[error("{pdu}: data segment of {length} bytes, {limit} allowed (RFC 7143 section 13.12)")]
    SegmentTooLong {
        /// The PDU.
        pdu: PduKind,
        /// Length in the header, in bytes.
        length: u32,
        /// Length that was declared, in bytes.
        limit: u32,
    },
    /// A PDU that has no place here, or that only an initiator sends.
    #[error("{pdu} has no place {when}")]
    OutOfPlace {
        /// The PDU.
        pdu: PduKind,
        /// In which phase.
        when: &'static str,
    },
    /// The tag belongs to nothing that waits for an answer: it never did, or it has had one.
    #[error("{pdu}: nothing waits for an answer under tag {itt:#x}")]
    UnknownTag {
        /// The PDU.
        pdu: PduKind,
        /// The initiator task tag.
        itt: u32,
    },
    /// The tag belongs to a request that has another kind of answer, or data in another direction.
    #[error("{pdu}: the request under tag {itt:#x} has no such answer")]
    WrongAnswer {
        /// The PDU.
        pdu: PduKind,
        /// The initiator task tag.
        itt: u32,
    },
    /// The answer to a request that was not yet sent, or to a write whose data was not.
    #[error("{pdu}: the answer came before the request under tag {itt:#x} was sent")]
    TooEarly {
        /// The PDU.
        pdu: PduKind,
        /// The initiator task tag.
        itt: u32,
    },
    /// A field has an invalid value.
    #[error("{pdu}: {field} is {value:#x}, must be {wanted} ({rule})")]
    Field {
        /// The PDU.
        pdu: PduKind,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The expected value.
        wanted: Wanted,
        /// The rule that requires it.
        rule: &'static str,
    },
    /// The answer to the login of another session.
    #[error("Login Response: it has another ISID (RFC 7143 section 11.13)")]
    OtherIsid,
    /// Data, or a request for data, beyond what the command moves.
    #[error("{pdu}: {length} bytes at {offset} of a command that moves {expected}")]
    OutOfRange {
        /// The PDU.
        pdu: PduKind,
        /// Offset in bytes.
        offset: u32,
        /// Length in bytes.
        length: u32,
        /// Transfer length of the command in bytes.
        expected: u32,
    },
    /// A command ended with GOOD although data was missing that no residual excepts.
    #[error("{pdu}: GOOD after {moved} of {due} bytes were moved")]
    DataMissing {
        /// The PDU.
        pdu: PduKind,
        /// Bytes moved.
        moved: u32,
        /// Bytes moved according to the target.
        due: u32,
    },
    /// The target refused a PDU.
    #[error("the target rejected a {pdu}, reason {reason:#04x} (RFC 7143 section 11.17.1)")]
    Rejected {
        /// The refused PDU, as far as the target identifies it.
        pdu: PduKind,
        /// Why.
        reason: u8,
    },
    /// The text is not made of keys and values, or of too many.
    #[error("{pdu}: malformed text (RFC 7143 section 6.1)")]
    Text {
        /// The PDU.
        pdu: PduKind,
    },
    /// The text, or the login, does not end.
    #[error("{pdu}: no end after {limit} {unit}")]
    Endless {
        /// The PDU.
        pdu: PduKind,
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        unit: &'static str,
    },
    /// A key was received twice.
    #[error("key {} came twice (RFC 7143 section 6.2)", .key.escape_debug())]
    KeyTwice {
        /// The key.
        key: String,
    },
    /// A key has a value that it cannot have, given what was offered.
    #[error("{}={} is no answer to what was offered", .key.escape_debug(), .value.escape_debug())]
    IllegalValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A key that is not allowed in this stage.
    #[error("key {} has no place here", .key.escape_debug())]
    KeyOutOfPlace {
        /// The key.
        key: String,
    },
    /// A key that must be there is missing.
    #[error("key {key} is missing")]
    KeyMissing {
        /// The key.
        key: &'static str,
    },
    /// The target does not agree to a digest that is required here.
    #[error("the target does not agree to {key}=CRC32C, which is required here")]
    DigestRefused {
        /// The key.
        key: &'static str,
    },
    /// The authentication failed.
    #[error("CHAP: {0}")]
    Chap(#[from] ChapFault),
    /// The target refused the logout.
    #[error("the target refused the logout, response {response} (RFC 7143 section 11.15.1)")]
    LogoutRefused {
        /// Its response.
        response: u8,
    },
}

/// The reason why the authentication failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChapFault {
    /// The target requires authentication, and there is no account for it.
    #[error("the target asks for authentication by {}, which is not configured", .method.escape_debug())]
    NotConfigured {
        /// The method.
        method: String,
    },
    /// The target must authenticate and refuses authentication.
    #[error("the target must prove itself and left out the authentication")]
    NotAuthenticated,
    /// The target chose an algorithm that was not offered.
    #[error("the target chose algorithm {}; MD5 (5) and SHA-256 (7) were offered", .name.escape_debug())]
    Algorithm {
        /// The chosen algorithm.
        name: String,
    },
    /// A key that is due is missing.
    #[error("{key} is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A key was received out of order.
    #[error("{key} is not due")]
    NotDue {
        /// The key.
        key: &'static str,
    },
    /// A value cannot be read or is too long.
    #[error("{key} has an illegal value")]
    IllegalValue {
        /// The key.
        key: &'static str,
    },
    /// The target proved a name, but not the required one.
    #[error("the target says that it is `{}`", .name.escape_debug())]
    WrongName {
        /// The name that the target gave.
        name: String,
    },
    /// The target does not know its secret.
    #[error("the target gave a wrong response")]
    WrongResponse,
    /// The target's challenge is the one that it is to be asked itself.
    #[error("the target's challenge is the initiator's own")]
    Reflected,
}
