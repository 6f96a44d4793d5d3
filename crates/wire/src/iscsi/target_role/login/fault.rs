//! Login failures: the message for the operator and the status for the initiator.

use crate::iscsi::target_role::LoginStatus;
use crate::iscsi::target_role::chap::ChapFault;

/// The reason why a login was refused. It contains names from the initiator, escaped, and never secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginFault {
    /// A PDU other than a login request.
    #[error("a PDU with opcode {opcode:#04x} before the login was over (RFC 7143 section 6.3)")]
    NotALogin {
        /// Opcode of the PDU.
        opcode: u8,
    },
    /// Version 0 is not among those that the initiator speaks.
    #[error("the initiator speaks no protocol version below {lowest}")]
    Version {
        /// The lowest version that it speaks.
        lowest: u8,
    },
    /// ISID, TSIH, CID or stage changed half way.
    #[error("ISID, TSIH, CID or stage changed during the login (RFC 7143 section 11.12)")]
    HeaderChanged,
    /// An unknown stage, a transit backwards, or a transit while text continues.
    #[error("illegal stages or flags {flags:#04x} (RFC 7143 section 11.12.3)")]
    Stages {
        /// T, C and the stages of the request.
        flags: u8,
    },
    /// The text is not made of keys and values, or of too many.
    #[error("malformed text (RFC 7143 section 6.1)")]
    Text,
    /// The text does not end.
    #[error("text without end")]
    TextTooLong,
    /// Text instead of an empty request for the rest of an answer.
    #[error("new text before the old answer was fetched (RFC 7143 section 6.2)")]
    TextTooEarly,
    /// A key was received twice.
    #[error("key {} came twice (RFC 7143 section 6.2)", .key.escape_debug())]
    KeyTwice {
        /// The key.
        key: String,
    },
    /// More keys than a login can need.
    #[error("too many keys")]
    TooManyKeys,
    /// A key that is not allowed in this stage, or that only a target sends.
    #[error("key {} has no place here", .key.escape_debug())]
    KeyOutOfPlace {
        /// The key.
        key: String,
    },
    /// A declaration outside of its range.
    #[error("illegal value of key {}", .key.escape_debug())]
    IllegalValue {
        /// The key.
        key: String,
    },
    /// A name was repeated with another value.
    #[error("key {} changed during the login", .key.escape_debug())]
    NameChanged {
        /// The key.
        key: String,
    },
    /// A key that must be there is missing.
    #[error("key {key} is missing")]
    KeyMissing {
        /// The key.
        key: &'static str,
    },
    /// Neither normal nor discovery.
    #[error("no such session type `{}`", .name.escape_debug())]
    SessionType {
        /// The requested value.
        name: String,
    },
    /// There is no such target.
    #[error("no such target `{}`", .name.escape_debug())]
    NoSuchTarget {
        /// The requested value.
        name: String,
    },
    /// The initiator may not use the target, and gets "not found".
    #[error("target `{target}` does not admit this initiator")]
    NotAdmitted {
        /// Name of the target.
        target: String,
    },
    /// The target was removed.
    #[error("target `{target}` was removed")]
    Removed {
        /// Name of the target.
        target: String,
    },
    /// The target is served elsewhere.
    #[error("target `{target}` is served at {portal}")]
    Redirected {
        /// Name of the target.
        target: String,
        /// The new address.
        portal: String,
        /// Whether the move is permanent.
        permanent: bool,
    },
    /// The target is not served now.
    #[error("target `{target}` is not served now")]
    Unavailable {
        /// Name of the target.
        target: String,
    },
    /// The shell refuses logins on this connection.
    #[error("the host was turned away: {}", LoginStatus::words(*.status as u16))]
    TurnedAway {
        /// The status that it gets.
        status: LoginStatus,
    },
    /// No authentication method in common.
    #[error("the initiator does not offer AuthMethod={needed}")]
    NoMethod {
        /// The required method.
        needed: &'static str,
    },
    /// The initiator wanted to move on without authentication.
    #[error("the initiator left out the authentication")]
    NotAuthenticated,
    /// The authentication failed.
    #[error("CHAP: {0}")]
    Chap(#[from] ChapFault),
    /// The configuration requires a digest that the initiator does not support.
    #[error("the initiator does not agree to {key}=CRC32C, which is required here")]
    DigestRequired {
        /// The key.
        key: &'static str,
    },
}

impl LoginFault {
    /// The status for the initiator.
    pub const fn status(&self) -> LoginStatus {
        match self {
            Self::TurnedAway { status } => *status,
            Self::Unavailable { .. } => LoginStatus::ServiceUnavailable,
            Self::NotALogin { .. } => LoginStatus::InvalidDuringLogin,
            Self::Version { .. } => LoginStatus::UnsupportedVersion,
            Self::KeyMissing { .. } | Self::Chap(ChapFault::Missing { .. }) => {
                LoginStatus::MissingParameter
            }
            Self::SessionType { .. } => LoginStatus::SessionTypeNotSupported,
            // "Not authorized" would reveal that the target exists.
            Self::NoSuchTarget { .. } | Self::NotAdmitted { .. } => LoginStatus::NotFound,
            Self::Removed { .. } => LoginStatus::TargetRemoved,
            Self::Redirected { permanent: false, .. } => LoginStatus::TargetMovedTemporarily,
            Self::Redirected { permanent: true, .. } => LoginStatus::TargetMovedPermanently,
            Self::Chap(ChapFault::NotDue { .. } | ChapFault::IllegalValue { .. }) => {
                LoginStatus::InitiatorError
            }
            Self::NoMethod { .. } | Self::NotAuthenticated | Self::Chap(_) => {
                LoginStatus::AuthenticationFailure
            }
            Self::HeaderChanged
            | Self::Stages { .. }
            | Self::Text
            | Self::TextTooLong
            | Self::TextTooEarly
            | Self::KeyTwice { .. }
            | Self::TooManyKeys
            | Self::KeyOutOfPlace { .. }
            | Self::IllegalValue { .. }
            | Self::NameChanged { .. }
            | Self::DigestRequired { .. } => LoginStatus::InitiatorError,
        }
    }
}
