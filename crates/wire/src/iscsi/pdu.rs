//! The basic header segments of every PDU that Weir sends or receives, byte for byte.
//!
//! Each structure is 48 bytes of big-endian fields and can be laid over received bytes without a
//! copy. Reserved bytes are zero when sent and ignored when received.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a basic header segment, in bytes.
pub const HEADER_LENGTH: usize = 48;
/// Longest additional header segment that the length field can name, in bytes.
pub const AHS_LENGTH_MAX: usize = 255 * 4;
/// The tag that means "no tag".
pub const RESERVED_TAG: u32 = 0xffff_ffff;
/// The bits of the first byte that hold the opcode.
pub const OPCODE_MASK: u8 = 0x3f;
/// The bit of the first byte that marks a request for immediate delivery.
pub const IMMEDIATE: u8 = 0x40;
/// The final bit (F) of the second byte; in login PDUs the transit bit (T).
pub const FINAL: u8 = 0x80;
/// The continue bit (C) of the second byte of text and login PDUs.
pub const CONTINUE: u8 = 0x40;
/// SCSI command: data flows to the initiator.
pub const READ: u8 = 0x40;
/// SCSI command: data flows to the target.
pub const WRITE: u8 = 0x20;
/// SCSI response and Data-In: the residual count is an overflow.
pub const OVERFLOW: u8 = 0x04;
/// SCSI response and Data-In: the residual count is an underflow.
pub const UNDERFLOW: u8 = 0x02;
/// Data-In: this PDU carries the status of the command.
pub const STATUS: u8 = 0x01;

/// Initiator task tag: names a task within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Itt(pub u32);

/// Opcodes, RFC 7143 section 11.2.1.2.
pub mod opcode {
    /// Initiator asks for an echo, or answers one.
    pub const NOP_OUT: u8 = 0x00;
    /// Initiator sends a SCSI command.
    pub const SCSI_COMMAND: u8 = 0x01;
    /// Initiator asks for a task management function.
    pub const TASK_MANAGEMENT_REQUEST: u8 = 0x02;
    /// Initiator logs in.
    pub const LOGIN_REQUEST: u8 = 0x03;
    /// Initiator sends key-value text.
    pub const TEXT_REQUEST: u8 = 0x04;
    /// Initiator sends write data.
    pub const DATA_OUT: u8 = 0x05;
    /// Initiator logs out.
    pub const LOGOUT_REQUEST: u8 = 0x06;
    /// Initiator asks for retransmission; not supported at error recovery level 0.
    pub const SNACK: u8 = 0x10;
    /// Target answers an echo, or asks for one.
    pub const NOP_IN: u8 = 0x20;
    /// Target ends a SCSI command.
    pub const SCSI_RESPONSE: u8 = 0x21;
    /// Target ends a task management function.
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    /// Target answers a login request.
    pub const LOGIN_RESPONSE: u8 = 0x23;
    /// Target answers key-value text.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// Target sends read data.
    pub const DATA_IN: u8 = 0x25;
    /// Target answers a logout.
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// Target is ready for write data.
    pub const R2T: u8 = 0x31;
    /// Target reports an event that nobody asked about.
    pub const ASYNC_MESSAGE: u8 = 0x32;
    /// Target refuses a PDU.
    pub const REJECT: u8 = 0x3f;
}

/// Declares one 48-byte header and proves its size.
macro_rules! header {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
            Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            /// Opcode and immediate bit.
            pub opcode: u8,
            $($(#[$doc])* pub $field: $kind,)*
        }

        const _: () = assert!(size_of::<$name>() == HEADER_LENGTH);

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}

header! {
    /// What every PDU has in common; the rest depends on the opcode.
    Header {
        /// Flags; their meaning depends on the opcode.
        flags: u8,
        /// Depends on the opcode.
        specific: [u8; 2],
        /// Length of the additional header segments, in words of four bytes.
        ahs_words: u8,
        /// Length of the data segment without padding, in bytes.
        data_length: [u8; 3],
        /// Logical unit number, or depends on the opcode.
        lun: [u8; 8],
        /// Initiator task tag.
        itt: U32,
        /// Depends on the opcode.
        rest: [u8; 28],
    }
}

impl Header {
    /// The opcode without the immediate bit.
    pub const fn kind(&self) -> u8 {
        self.opcode & OPCODE_MASK
    }

    /// Whether the request asks for immediate delivery.
    pub const fn is_immediate(&self) -> bool {
        self.opcode & IMMEDIATE != 0
    }

    /// Length of the additional header segments, in bytes.
    pub const fn ahs_length(&self) -> usize {
        self.ahs_words as usize * 4
    }

    /// Length of the data segment without padding, in bytes.
    pub const fn data_length(&self) -> usize {
        let [high, middle, low] = self.data_length;
        u32::from_be_bytes([0, high, middle, low]) as usize
    }
}

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
        /// How many Data-In or R2T PDUs were sent for the command.
        exp_data_sn: U32,
        /// Only used by bidirectional commands.
        bidirectional_residual: U32,
        /// Bytes not transferred, as the flags say.
        residual: U32,
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
        /// Tag of the R2T that asked for this, or [`RESERVED_TAG`].
        ttt: U32,
        /// Reserved.
        reserved2: [u8; 4],
        /// Status number that the initiator expects next.
        exp_stat_sn: U32,
        /// Reserved.
        reserved3: [u8; 4],
        /// Number of this PDU within its sequence.
        data_sn: U32,
        /// Where the data belongs, in bytes from the start of the command's data.
        buffer_offset: U32,
        /// Reserved.
        reserved4: [u8; 4],
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
        /// [`RESERVED_TAG`]: no acknowledgement is asked for.
        ttt: U32,
        /// Status sequence number, if the status bit is set.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// Number of this PDU within the command.
        data_sn: U32,
        /// Where the data belongs, in bytes.
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
    /// Asynchronous Message, RFC 7143 section 11.9.
    AsyncMessage {
        /// Final.
        flags: u8,
        /// Reserved.
        reserved: [u8; 2],
        /// Always zero.
        ahs_words: u8,
        /// Length of sense data, in bytes.
        data_length: [u8; 3],
        /// Logical unit number.
        lun: [u8; 8],
        /// Always [`RESERVED_TAG`].
        itt: U32,
        /// Reserved.
        reserved2: [u8; 4],
        /// Status sequence number.
        stat_sn: U32,
        /// Command number that the target expects next.
        exp_cmd_sn: U32,
        /// Last command number that the target accepts.
        max_cmd_sn: U32,
        /// What happened.
        event: u8,
        /// Vendor code.
        vendor: u8,
        /// Depends on the event.
        parameters: [U16; 3],
        /// Reserved.
        reserved3: [u8; 4],
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
        /// Tag of the exchange that this continues, or [`RESERVED_TAG`].
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
        /// Tag by which the initiator continues, or [`RESERVED_TAG`].
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

/// NOP-Out, RFC 7143 section 11.18: laid out as a text request.
pub type NopOut = TextRequest;
/// NOP-In, RFC 7143 section 11.19: laid out as a text response.
pub type NopIn = TextResponse;

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
        /// Always [`RESERVED_TAG`].
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
