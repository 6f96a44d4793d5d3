//! The basic header segments of every PDU that Weir sends or receives, byte for byte.
//!
//! Each structure is 48 bytes of big-endian fields and can be laid over received bytes without a
//! copy. Reserved bytes are zero when sent and ignored when received.

#![expect(unnameable_types, reason = "the layout derive declares helper types that have no name")]

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

mod requests;
mod responses;

pub use requests::*;
pub use responses::*;

use zerocopy::big_endian::U32;
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
    /// Target reports an event (asynchronous message).
    pub const ASYNC_MESSAGE: u8 = 0x32;
    /// Target refuses a PDU.
    pub const REJECT: u8 = 0x3f;
}

header! {
    /// The fields of every PDU; the rest depends on the opcode.
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
