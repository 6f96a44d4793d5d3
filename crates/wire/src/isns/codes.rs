//! Functions, status codes and attribute tags (RFC 4171, sections 4.1.3, 5.4 and 6.1).

use std::fmt;

/// The function of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u16);

impl Function {
    pub(super) const REGISTER: Self = Self(0x0001);
    pub(super) const QUERY: Self = Self(0x0002);
    pub(super) const DEREGISTER: Self = Self(0x0004);
    pub(super) const REGISTER_EVENTS: Self = Self(0x0005);
    pub(super) const STATE_CHANGE: Self = Self(0x0008);
    pub(super) const STATUS_INQUIRY: Self = Self(0x000d);

    /// That of the answer.
    pub(super) const fn answer(self) -> Self {
        Self(self.0 | ANSWER)
    }

    /// Whether a message with it is an answer.
    pub(super) const fn is_answer(self) -> bool {
        self.0 & ANSWER != 0
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::REGISTER => "DevAttrReg",
            Self::QUERY => "DevAttrQry",
            Self::DEREGISTER => "DevDereg",
            Self::REGISTER_EVENTS => "SCNReg",
            Self::STATE_CHANGE => "SCN",
            Self::STATUS_INQUIRY => "ESI",
            Self(other) => return write!(f, "function {other:#06x}"),
        })
    }
}

/// The status that an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    pub(super) const SUCCESS: Self = Self(0);
    pub(super) const SOURCE_UNKNOWN: Self = Self(6);
    pub(super) const SOURCE_ABSENT: Self = Self(7);
    pub(super) const NO_SUCH_ENTRY: Self = Self(9);
    pub(super) const INTERNAL_ERROR: Self = Self(11);
    pub(super) const BUSY: Self = Self(12);
    pub(super) const NOT_SUPPORTED: Self = Self(15);
    pub(super) const EVENT_REJECTED: Self = Self(16);
    pub(super) const INQUIRIES_UNAVAILABLE: Self = Self(21);
    pub(super) const FEATURE_NOT_SUPPORTED: Self = Self(23);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0 => "successful",
            1 => "unknown error",
            2 => "message format error",
            3 => "invalid registration",
            5 => "invalid query",
            6 => "source unknown",
            7 => "source absent",
            8 => "source unauthorized",
            9 => "no such entry",
            10 => "version not supported",
            11 => "internal error",
            12 => "busy",
            13 => "option not understood",
            14 => "invalid update",
            15 => "message not supported",
            16 => "SCN event rejected",
            17 => "SCN registration rejected",
            18 => "attribute not implemented",
            21 => "ESI not available",
            22 => "invalid deregistration",
            23 => "registration feature not supported",
            _ => "a status that RFC 4171 does not have",
        };
        write!(f, "{text} (status {})", self.0)
    }
}

/// Tags of attributes.
pub(super) mod tag {
    pub(crate) const DELIMITER: u32 = 0;
    pub(crate) const ENTITY: u32 = 1;
    pub(crate) const ENTITY_PROTOCOL: u32 = 2;
    pub(crate) const PERIOD: u32 = 6;
    pub(crate) const PORTAL_ADDRESS: u32 = 16;
    pub(crate) const PORTAL_PORT: u32 = 17;
    pub(crate) const INQUIRY_INTERVAL: u32 = 19;
    pub(crate) const INQUIRY_PORT: u32 = 20;
    pub(crate) const EVENT_PORT: u32 = 23;
    pub(crate) const NODE_NAME: u32 = 32;
    pub(crate) const NODE_TYPE: u32 = 33;
    pub(crate) const NODE_ALIAS: u32 = 34;
    pub(crate) const EVENTS: u32 = 35;
    pub(crate) const GROUP_ADDRESS: u32 = 49;
    pub(crate) const GROUP_PORT: u32 = 50;
    pub(crate) const GROUP_TAG: u32 = 51;
}

/// Entity protocol: iSCSI (section 6.2.2).
pub(super) const ISCSI: u32 = 2;

/// Node types (section 6.4.2).
pub(super) const TARGET: u32 = 1;
pub(super) const INITIATOR: u32 = 2;

/// Events (section 6.4.4): an object was removed; and of the initiator and the node itself only, that, added, updated.
pub(super) const EVENT_REMOVED: u32 = 0x10;
pub(super) const EVENTS_OF_SELF: u32 = 0x80 | EVENT_REMOVED | 0x08 | 0x04;

/// The bit that makes the function of an answer.
const ANSWER: u16 = 0x8000;
