//! Login failures: the message for the operator and the status for the initiator.

use crate::iscsi::target_role::LoginStatus;
use crate::iscsi::target_role::chap::ChapFault;

/// Why a login was refused. Names in it are the initiator's own words, escaped; secrets never are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginFault {
    /// Something else than a login request.
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
    /// A stage that does not exist, a way back, or a transit while text continues.
    #[error("illegal stages or flags {flags:#04x} (RFC 7143 section 11.12.3)")]
    Stages {
        /// T, C and the stages as they came.
        flags: u8,
    },
    /// The text is not made of keys and values, or of too many.
    #[error("malformed text (RFC 7143 section 6.1)")]
    Text,
    /// The text does not end.
    #[error("text without end")]
    TextTooLong,
    /// Text where an empty request was to fetch the rest of an answer.
    #[error("new text before the old answer was fetched (RFC 7143 section 6.2)")]
    TextTooEarly,
    /// A key came twice.
    #[error("key {} came twice (RFC 7143 section 6.2)", .key.escape_debug())]
    KeyTwice {
        /// The key.
        key: String,
    },
    /// More keys than a login can need.
    #[error("too many keys")]
    TooManyKeys,
    /// A key that has no place in this stage, or that only a target sends.
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
    /// A name came again and was another.
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
        /// What was asked for.
        name: String,
    },
    /// There is no such target.
    #[error("no such target `{}`", .name.escape_debug())]
    NoSuchTarget {
        /// What was asked for.
        name: String,
    },
    /// The target is not for this initiator, which gets "not found".
    #[error("target `{target}` does not admit this initiator")]
    NotAdmitted {
        /// Name of the target.
        target: String,
    },
    /// The target was taken away.
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
        /// Where to go instead.
        portal: String,
        /// For ever.
        permanent: bool,
    },
    /// No authentication method in common.
    #[error("the initiator does not offer AuthMethod={needed}")]
    NoMethod {
        /// The method that would do.
        needed: &'static str,
    },
    /// The initiator wanted to move on without authentication.
    #[error("the initiator left out the authentication")]
    NotAuthenticated,
    /// The authentication failed.
    #[error("CHAP: {0}")]
    Chap(#[from] ChapFault),
    /// The operator wants a digest that the initiator will not use.
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
            Self::NotALogin { .. } => LoginStatus::InvalidDuringLogin,
            Self::Version { .. } => LoginStatus::UnsupportedVersion,
            Self::KeyMissing { .. } | Self::Chap(ChapFault::Missing { .. }) => {
                LoginStatus::MissingParameter
            }
            Self::SessionType { .. } => LoginStatus::SessionTypeNotSupported,
            // "Not authorized" would tell that the target exists.
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
