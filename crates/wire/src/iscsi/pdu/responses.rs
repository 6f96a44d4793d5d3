//! Headers of PDUs from a target.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::HEADER_LENGTH;

header! {
    /// SCSI Response, RFC 7143 section 11.4.
    ScsiResponse {
        /// Final and the residual flags.
        flags: u8,
        /// iSCSI service response; zero is "command completed at target".
        response: u8,
        /// SCSI status.
        status: u8,
        /// Always zero.
        ahs_words: u8,
        /// Length of the sense data with its length field, in bytes.
        data_length: [u8; 3],
        /// Reserved.
        reserved: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Only used above error recovery level 0.
        snack_tag: U32,
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// The number of Data-In or R2T PDUs that were sent for the command.
        exp_data_sn: U32,
        /// Only used by bidirectional commands.
        bidirectional_residual: U32,
        /// Bytes not transferred, as the flags say.
        residual: U32,
    }
}

header! {
    /// Task Management Function Response, RFC 7143 section 11.6.
    TaskManagementResponse {
        /// Final.
        flags: u8,
        /// Result of the function.
        response: u8,
        /// Reserved.
        reserved: u8,
        /// Always zero.
        ahs_words: u8,
        /// Always zero.
        data_length: [u8; 3],
        /// Reserved.
        reserved2: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Reserved.
        reserved3: [u8; 4],
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Reserved.
        reserved4: [u8; 12],
    }
}

header! {
    /// SCSI Data-In, RFC 7143 section 11.7.
    DataIn {
        /// Final, residual flags and the status bit.
        flags: u8,
        /// Reserved.
        reserved: u8,
        /// SCSI status, if the status bit is set.
        status: u8,
        /// Always zero.
        ahs_words: u8,
        /// Length of the data, in bytes.
        data_length: [u8; 3],
        /// Logical unit number; only with a target transfer tag.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// [`RESERVED_TAG`](super::RESERVED_TAG): no acknowledgement is asked for.
        ttt: U32,
        /// Status sequence number, if the status bit is set.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Number of this PDU within the command.
        data_sn: U32,
        /// Offset of the data in bytes.
        buffer_offset: U32,
        /// Bytes not transferred, as the flags say.
        residual: U32,
    }
}

header! {
    /// Ready To Transfer, RFC 7143 section 11.8.
    R2t {
        /// Final.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Always zero.
        ahs_words: u8,
        /// Always zero.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Tag that the answering Data-Out PDUs carry.
        ttt: U32,
        /// The next status number; not advanced.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Number of this R2T within the command.
        r2t_sn: U32,
        /// First byte asked for.
        buffer_offset: U32,
        /// Bytes asked for.
        desired_length: U32,
    }
}

header! {
    /// Text Response, RFC 7143 section 11.11; NOP-In (section 11.19) has the same layout.
    TextResponse {
        /// Final and continue.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Always zero.
        ahs_words: u8,
        /// Length of the text, in bytes.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Tag by which the initiator continues, or [`RESERVED_TAG`](super::RESERVED_TAG).
        ttt: U32,
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Reserved.
        reserved2: [u8; 12],
    }
}

/// NOP-In, RFC 7143 section 11.19: laid out as a text response.
pub type NopIn = TextResponse;

header! {
    /// Login Response, RFC 7143 section 11.13.
    LoginResponse {
        /// Transit, continue, current and next stage.
        flags: u8,
        /// Highest version that the target speaks.
        version_max: u8,
        /// The version in use.
        version_active: u8,
        /// Always zero.
        ahs_words: u8,
        /// Length of the text, in bytes.
        data_length: [u8; 3],
        /// Initiator's part of the session identifier.
        isid: [u8; 6],
        /// Target's part of the session identifier.
        tsih: U16,
        /// Initiator task tag.
        itt: U32,
        /// Reserved.
        reserved: [u8; 4],
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Status class in the high byte, detail in the low byte.
        status: U16,
        /// Reserved.
        reserved2: [u8; 10],
    }
}

header! {
    /// Logout Response, RFC 7143 section 11.15.
    LogoutResponse {
        /// Final.
        flags: u8,
        /// Result of the logout.
        response: u8,
        /// Reserved.
        reserved: u8,
        /// Always zero.
        ahs_words: u8,
        /// Always zero.
        data_length: [u8; 3],
        /// Reserved.
        reserved2: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Reserved.
        reserved3: [u8; 4],
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Reserved.
        reserved4: [u8; 4],
        /// Seconds to wait before a new login.
        time2wait: U16,
        /// Seconds for which tasks are kept.
        time2retain: U16,
        /// Reserved.
        reserved5: [u8; 4],
    }
}

header! {
    /// Reject, RFC 7143 section 11.17.
    Reject {
        /// Final.
        flags: u8,
        /// Why the PDU was refused.
        reason: u8,
        /// Reserved.
        reserved: u8,
        /// Always zero.
        ahs_words: u8,
        /// Length of the refused header, in bytes.
        data_length: [u8; 3],
        /// Reserved.
        reserved2: [u8; 8],
        /// Always [`RESERVED_TAG`](super::RESERVED_TAG).
        itt: U32,
        /// Reserved.
        reserved3: [u8; 4],
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Only used above error recovery level 0.
        data_sn: U32,
        /// Reserved.
        reserved4: [u8; 8],
    }
}

header! {
    /// Asynchronous Message, RFC 7143 section 11.9.
    AsyncMessage {
        /// Final.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Always zero.
        ahs_words: u8,
        /// Length of the data, in bytes.
        data_length: [u8; 3],
        /// Logical unit number; only for SCSI events.
        lun: [u8; 8],
        /// Always [`RESERVED_TAG`](super::RESERVED_TAG).
        itt: U32,
        /// Reserved.
        reserved2: [u8; 4],
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// The event code.
        event: u8,
        /// Only for events of a vendor.
        vendor_code: u8,
        /// Depends on the event.
        parameter1: U16,
        /// Depends on the event.
        parameter2: U16,
        /// Depends on the event.
        parameter3: U16,
        /// Reserved.
        reserved3: [u8; 4],
    }
}
