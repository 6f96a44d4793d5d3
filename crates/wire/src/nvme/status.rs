//! Status of completions.

/// The status of a command: status code, type, retry delay and "do not retry".
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(u16);

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// The opcode is unknown.
    pub const INVALID_OPCODE: Self = Self::generic(0x01);
    /// A field of the command is wrong.
    pub const INVALID_FIELD: Self = Self::generic(0x02);
    /// The command identifier is in use.
    pub const CID_CONFLICT: Self = Self::generic(0x03);
    /// A fault of this gateway, or of a path behind it.
    pub const INTERNAL_ERROR: Self = Self::generic(0x06);
    /// An Abort has ended the command.
    pub const ABORTED_BY_REQUEST: Self = Self::generic(0x07);
    /// The queue of the command ends.
    pub const ABORTED_BY_QUEUE_DELETION: Self = Self::generic(0x08);
    /// The other command of a fused pair has failed. A host sends both again.
    pub const ABORTED_FAILED_FUSED: Self = Self(0x09);
    /// The other command of a fused pair did not come. A host sends both again.
    pub const MISSING_FUSED: Self = Self(0x0a);
    /// The namespace does not exist.
    pub const INVALID_NAMESPACE: Self = Self::generic(0x0b);
    /// The command is not allowed in this state.
    pub const SEQUENCE_ERROR: Self = Self::generic(0x0c);
    /// The length in the SGL descriptor does not fit the command.
    pub const SGL_LENGTH_INVALID: Self = Self::generic(0x0f);
    /// The type of the SGL descriptor does not fit the command.
    pub const SGL_TYPE_INVALID: Self = Self::generic(0x11);
    /// The host has an identifier of 128 bits, and asks for a format with 64.
    pub const HOST_ID_INCONSISTENT: Self = Self::generic(0x18);
    /// The keep alive timeout is zero, so there is nothing to keep alive.
    pub const KEEP_ALIVE_INVALID: Self = Self::generic(0x1a);
    /// A Preempt and Abort of another host has ended the command.
    pub const PREEMPTED: Self = Self::generic(0x1b);
    /// The medium is being sanitized.
    pub const SANITIZE_IN_PROGRESS: Self = Self::generic(0x1d);
    /// The namespace cannot be written.
    pub const WRITE_PROTECTED: Self = Self::generic(0x20);
    /// The command was interrupted; a host retries it after the first retry delay of Identify Controller.
    pub const INTERRUPTED: Self = Self(0x21 | 1 << CRD_SHIFT);
    /// Data was damaged on its way; a host retries the command.
    pub const TRANSIENT_TRANSPORT_ERROR: Self = Self(0x22);
    /// Blocks lie outside of the namespace.
    pub const LBA_OUT_OF_RANGE: Self = Self::generic(0x80);
    /// The storage is full.
    pub const CAPACITY_EXCEEDED: Self = Self::generic(0x81);
    /// A reservation of another host forbids the command.
    pub const RESERVATION_CONFLICT: Self = Self::generic(0x83);

    /// More Aborts than the limit are outstanding.
    pub const ABORT_LIMIT: Self = Self::specific(0x03);
    /// More Asynchronous Event Requests than the limit are outstanding.
    pub const EVENT_REQUEST_LIMIT: Self = Self::specific(0x05);
    /// There is no such log page.
    pub const INVALID_LOG_PAGE: Self = Self::specific(0x09);
    /// The feature cannot be saved.
    pub const FEATURE_NOT_SAVEABLE: Self = Self::specific(0x0d);
    /// The feature cannot be changed.
    pub const FEATURE_NOT_CHANGEABLE: Self = Self::specific(0x0e);
    /// Connect: the format of the record is unknown.
    pub const CONNECT_FORMAT: Self = Self::specific(0x80);
    /// Connect: no controller can be had now; a host tries again.
    pub const CONNECT_BUSY: Self = Self(SPECIFIC | 0x81);
    /// Connect: a parameter is wrong, see [`ConnectRefusal`](super::ConnectRefusal).
    pub const CONNECT_PARAMETERS: Self = Self::specific(0x82);
    /// Connect: this host is not admitted.
    pub const CONNECT_HOST: Self = Self::specific(0x84);

    /// The write failed.
    pub const WRITE_FAULT: Self = Self::media(0x80);
    /// The read failed.
    pub const UNRECOVERED_READ: Self = Self::media(0x81);
    /// The data differs.
    pub const COMPARE_FAILURE: Self = Self::media(0x85);

    /// ANA: the namespace is lost through this controller. A host tries another path.
    pub const ANA_PERSISTENT_LOSS: Self = Self(PATH | 0x01);
    /// ANA: the namespace is inaccessible through this controller. A host tries another path.
    pub const ANA_INACCESSIBLE: Self = Self(PATH | 0x02);
    /// ANA: the state changes. A host waits.
    pub const ANA_TRANSITION: Self = Self(PATH | 0x03);

    const fn generic(code: u16) -> Self {
        Self(code | DO_NOT_RETRY)
    }

    const fn specific(code: u16) -> Self {
        Self(SPECIFIC | code | DO_NOT_RETRY)
    }

    const fn media(code: u16) -> Self {
        Self(MEDIA | code | DO_NOT_RETRY)
    }

    /// Status code and type as commonly written: type × 256 + code, such as 182h.
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Whether a host must not retry the command.
    pub const fn is_final(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// Whether the command has succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// The field of a completion, with the phase bit zero.
    pub(super) const fn field(self) -> u16 {
        self.0 << 1
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let retry = if self.is_final() || self.is_success() { "" } else { ", retry" };
        write!(f, "Status({:x}h{retry})", self.code())
    }
}

const SPECIFIC: u16 = 1 << 8;
const MEDIA: u16 = 2 << 8;
const PATH: u16 = 3 << 8;
/// Position of the index of the retry delay.
const CRD_SHIFT: u16 = 11;
const DO_NOT_RETRY: u16 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes, types and bits are where a completion has them.
    #[test]
    fn fields_are_in_place() {
        assert_eq!(Status::SUCCESS.field(), 0);
        assert_eq!(Status::INVALID_FIELD.field(), 0x8004);
        assert_eq!(Status::CONNECT_PARAMETERS.field(), 0x8304);
        assert_eq!(Status::CONNECT_BUSY.field(), 0x0302);
        assert_eq!(Status::COMPARE_FAILURE.code(), 0x285);
        assert_eq!(Status::ANA_INACCESSIBLE.field(), 0x0604);
        assert_eq!(Status::INTERRUPTED.field(), 0x1042);
        assert_eq!(Status::TRANSIENT_TRANSPORT_ERROR.field(), 0x0044);
    }
}
