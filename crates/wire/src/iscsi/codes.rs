//! Names and codes that both ends of a connection use.

/// Initiator's part of a session identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isid(pub [u8; 6]);

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
#[repr(u8)]
pub enum TaskFunction {
    /// End one task.
    AbortTask = 1,
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
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

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

impl TmfResponse {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Complete,
            1 => Self::TaskDoesNotExist,
            2 => Self::LunDoesNotExist,
            3 => Self::TaskStillAllegiant,
            4 => Self::ReassignNotSupported,
            5 => Self::NotSupported,
            6 => Self::AuthorizationFailed,
            255 => Self::Rejected,
            _ => return None,
        })
    }
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

impl LoginStatus {
    /// The name of the status in RFC 7143.
    pub const fn name(self) -> &'static str {
        Self::words(self as u16)
    }

    /// The name of a status code in RFC 7143.
    pub(crate) const fn words(code: u16) -> &'static str {
        match code {
            0x0000 => "success",
            0x0101 => "target moved temporarily",
            0x0102 => "target moved permanently",
            0x0200 => "initiator error",
            0x0201 => "authentication failure",
            0x0202 => "authorization failure",
            0x0203 => "not found",
            0x0204 => "target removed",
            0x0205 => "unsupported version",
            0x0206 => "too many connections",
            0x0207 => "missing parameter",
            0x0208 => "can't include in session",
            0x0209 => "session type not supported",
            0x020a => "session does not exist",
            0x020b => "invalid during login",
            0x0300 => "target error",
            0x0301 => "service unavailable",
            0x0302 => "out of resources",
            0x020c..=0x02ff => "some other initiator error",
            0x0303..=0x03ff => "some other target error",
            _ => "a status that does not exist",
        }
    }
}
