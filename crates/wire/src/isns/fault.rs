//! What a server does wrong, and why a registration is not there.

use super::codes::{Function, Status};
use super::objects::{ALIAS_MAX, Object, TEXT_MAX};
use std::fmt;
use thiserror::Error;

/// A message that breaks a rule of RFC 4171. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Section 5.1.1.
    #[error("a PDU has version {0}, and only 1 is known")]
    Version(u16),
    /// Section 5.1.3: a payload has a multiple of four bytes.
    #[error("a PDU has a payload of {0} bytes, which is not a multiple of 4")]
    Unaligned(u16),
    /// A limit of this end.
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    /// Sections 5.1.4 and 5.1.6: the first PDU, and only it, has the flag and sequence 0.
    #[error("a PDU has sequence {got}, where {expected} must follow")]
    Sequence {
        /// What must follow.
        expected: u16,
        /// What came.
        got: u16,
    },
    /// A PDU of another message before the last one of this message.
    #[error("a PDU of {0} comes in the middle of another message")]
    Interleaved(Function),
    /// Section 5.5: authentication, which was not asked for.
    #[error("a message has an authentication block, which is not supported")]
    Authentication,
    /// The payload ends within an attribute.
    #[error("attribute {tag} is cut: {left} bytes are left for its {length}")]
    Cut {
        /// Its tag; 0 when that is cut as well.
        tag: u32,
        /// The length that it claims.
        length: u32,
        /// Bytes that are left.
        left: usize,
    },
    /// An answer without a status.
    #[error("an answer of {0} bytes has no status")]
    NoStatus(usize),
    /// An answer that was not asked for, or to a request that is not written yet.
    #[error("{0} was not expected here")]
    Unexpected(Function),
    /// A limit of this end: the server asks, and does not read the answers.
    #[error("the server does not read: {0} bytes of answers wait for it")]
    Unread(usize),
}

/// Why a registration is not there, or may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection: in words of the operating system.
    Connect(String),
    /// No connection in 5 s.
    ConnectTimeout,
    /// The connection ended.
    Closed(Option<String>),
    /// The server has not answered in time.
    Silent(Function),
    /// The server has refused something.
    Refused(Function, Status),
    /// The server has refused one object, and others not.
    NotTaken(Object, Status),
    /// An object has a longer name or alias than RFC 4171 allows, or one with a NUL: it is not registered.
    BadText(Object),
    /// The server does not speak iSNS.
    Fault(Fault),
    /// The server has taken a registration and does not show a portal or the gateway.
    NotShown,
    /// The entity has a name that only servers give, or none, or one that is too long.
    BadEntity,
    /// The server says that the gateway was removed.
    Removed,
    /// There is no address that could be registered.
    NoPortal,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "cannot connect: {why}"),
            Self::ConnectTimeout => f.write_str("cannot connect: no answer in 5 s"),
            Self::Closed(None) => f.write_str("the server closed the connection"),
            Self::Closed(Some(why)) => write!(f, "the connection failed: {why}"),
            Self::Silent(function) => write!(f, "the server does not answer {function}"),
            Self::Refused(function, status) => write!(f, "the server refuses {function}: {status}"),
            Self::NotTaken(object, status) => write!(f, "the server refuses {object}: {status}"),
            Self::BadText(object) => {
                let limits = format!("{TEXT_MAX} bytes for a name, {ALIAS_MAX} for an alias");
                write!(f, "{object} is not registered: its name or alias is too long ({limits}) or has a NUL")
            }
            Self::BadEntity => write!(
                f,
                "the entity cannot be registered: its name must have 1 to {ALIAS_MAX} bytes, no NUL, and not begin with `isns:`"
            ),
            Self::Removed => f.write_str("the gateway was removed at the server"),
            Self::Fault(fault) => write!(f, "the server breaks the protocol: {fault}"),
            Self::NotShown => {
                f.write_str("the server takes the registration, and does not show it")
            }
            Self::NoPortal => f.write_str(
                "no portal can be registered: the gateway listens on no address of the network of the server",
            ),
        }
    }
}
