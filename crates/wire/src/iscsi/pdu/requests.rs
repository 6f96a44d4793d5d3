//! Headers of PDUs from an initiator.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::HEADER_LENGTH;

header! {
    /// SCSI Command, RFC 7143 section 11.3.
    ScsiCommand {
        /// Final, read, write and the task attribute.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Length of the additional header segments, in words.
        ahs_words: u8,
        /// Length of the immediate data, in bytes.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Expected data transfer length, in bytes.
        expected_length: U32,
        /// Command sequence number.
        cmd_sn: U32,
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// The first 16 bytes of the command descriptor block.
        cdb: [u8; 16],
    }
}

header! {
    /// Task Management Function Request, RFC 7143 section 11.5.
    TaskManagementRequest {
        /// Final and the function.
        function: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Length of the additional header segments, in words.
        ahs_words: u8,
        /// Always zero.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Tag of the task to act on.
        referenced_itt: U32,
        /// Command sequence number.
        cmd_sn: U32,
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// Command number of the task to act on.
        ref_cmd_sn: U32,
        /// Only used above error recovery level 0.
        exp_data_sn: U32,
        /// Reserved.
        reserved2: [u8; 8],
    }
}

header! {
    /// SCSI Data-Out, RFC 7143 section 11.7.
    DataOut {
        /// Final.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Length of the additional header segments, in words.
        ahs_words: u8,
        /// Length of the data, in bytes.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Tag of the R2T that asked for this, or [`RESERVED_TAG`](super::RESERVED_TAG).
        ttt: U32,
        /// Reserved.
        reserved2: [u8; 4],
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// Reserved.
        reserved3: [u8; 4],
        /// Number of this PDU within its sequence.
        data_sn: U32,
        /// Offset of the data in bytes from the start of the command's data.
        buffer_offset: U32,
        /// Reserved.
        reserved4: [u8; 4],
    }
}

header! {
    /// Text Request, RFC 7143 section 11.10.
    TextRequest {
        /// Final and continue.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Length of the additional header segments, in words.
        ahs_words: u8,
        /// Length of the text, in bytes.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Tag of the exchange that this continues, or [`RESERVED_TAG`](super::RESERVED_TAG).
        ttt: U32,
        /// Command sequence number.
        cmd_sn: U32,
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// Reserved.
        reserved2: [u8; 16],
    }
}

header! {
    /// Login Request, RFC 7143 section 11.12.
    LoginRequest {
        /// Transit, continue, current and next stage.
        flags: u8,
        /// Highest version that the initiator speaks.
        version_max: u8,
        /// Lowest version that the initiator speaks.
        version_min: u8,
        /// Length of the additional header segments, in words.
        ahs_words: u8,
        /// Length of the text, in bytes.
        data_length: [u8; 3],
        /// Initiator's part of the session identifier.
        isid: [u8; 6],
        /// Target's part of the session identifier; zero asks for a new session.
        tsih: U16,
        /// Initiator task tag.
        itt: U32,
        /// Connection identifier.
        cid: U16,
        /// Reserved.
        reserved: [u8; 2],
        /// Command sequence number.
        cmd_sn: U32,
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// Reserved.
        reserved2: [u8; 16],
    }
}

header! {
    /// Logout Request, RFC 7143 section 11.14.
    LogoutRequest {
        /// Final and the reason.
        reason: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Length of the additional header segments, in words.
        ahs_words: u8,
        /// Always zero.
        data_length: [u8; 3],
        /// Reserved.
        reserved2: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Connection to close.
        cid: U16,
        /// Reserved.
        reserved3: [u8; 2],
        /// Command sequence number.
        cmd_sn: U32,
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// Reserved.
        reserved4: [u8; 16],
    }
}

/// NOP-Out, RFC 7143 section 11.18: laid out as a text request.
pub type NopOut = TextRequest;
