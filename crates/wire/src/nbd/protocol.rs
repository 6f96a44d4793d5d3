//! Numbers and layouts of the protocol, under the names that the document gives them.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `NBDMAGIC`, the first thing that a server says.
pub(super) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, behind it and before every option.
pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Zero bytes that end the answer to `NBD_OPT_EXPORT_NAME`, unless the client does without.
pub(super) const ZEROES: usize = 124;
/// Longest string, in bytes: section "Conventions".
pub(super) const STRING_MAX: usize = 4096;

/// Handshake flags.
pub(super) mod handshake {
    pub(in crate::nbd) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(in crate::nbd) const NO_ZEROES: u16 = 1 << 1;
}

/// Client flags.
pub(super) mod client {
    pub(in crate::nbd) const FIXED_NEWSTYLE: u32 = 1 << 0;
    pub(in crate::nbd) const NO_ZEROES: u32 = 1 << 1;
}

/// Transmission flags.
pub(super) mod transmission {
    pub(in crate::nbd) const HAS_FLAGS: u16 = 1 << 0;
    pub(in crate::nbd) const READ_ONLY: u16 = 1 << 1;
    pub(in crate::nbd) const SEND_FLUSH: u16 = 1 << 2;
    pub(in crate::nbd) const SEND_FUA: u16 = 1 << 3;
    pub(in crate::nbd) const SEND_TRIM: u16 = 1 << 5;
    pub(in crate::nbd) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in crate::nbd) const SEND_DF: u16 = 1 << 7;
    pub(in crate::nbd) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(in crate::nbd) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Option types.
pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    pub(in crate::nbd) const LIST: u32 = 3;
    pub(in crate::nbd) const STARTTLS: u32 = 5;
    pub(in crate::nbd) const INFO: u32 = 6;
    pub(in crate::nbd) const GO: u32 = 7;
    pub(in crate::nbd) const STRUCTURED_REPLY: u32 = 8;
    pub(in crate::nbd) const LIST_META_CONTEXT: u32 = 9;
    pub(in crate::nbd) const SET_META_CONTEXT: u32 = 10;
}

/// Option reply types.
pub(super) mod rep {
    pub(in crate::nbd) const ACK: u32 = 1;
    pub(in crate::nbd) const SERVER: u32 = 2;
    pub(in crate::nbd) const INFO: u32 = 3;
    pub(in crate::nbd) const META_CONTEXT: u32 = 4;
    pub(in crate::nbd) const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub(in crate::nbd) const ERR_POLICY: u32 = (1 << 31) + 2;
    pub(in crate::nbd) const ERR_INVALID: u32 = (1 << 31) + 3;
    pub(in crate::nbd) const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    pub(in crate::nbd) const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub(in crate::nbd) const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    pub(in crate::nbd) const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Information types.
pub(super) mod info {
    pub(in crate::nbd) const EXPORT: u16 = 0;
    pub(in crate::nbd) const NAME: u16 = 1;
    pub(in crate::nbd) const DESCRIPTION: u16 = 2;
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// Request types.
pub(super) mod command {
    pub(in crate::nbd) const READ: u16 = 0;
    pub(in crate::nbd) const WRITE: u16 = 1;
    pub(in crate::nbd) const DISC: u16 = 2;
    pub(in crate::nbd) const FLUSH: u16 = 3;
    pub(in crate::nbd) const TRIM: u16 = 4;
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 6;
    pub(in crate::nbd) const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub(super) mod flag {
    pub(in crate::nbd) const FUA: u16 = 1 << 0;
    pub(in crate::nbd) const NO_HOLE: u16 = 1 << 1;
    pub(in crate::nbd) const DF: u16 = 1 << 2;
    pub(in crate::nbd) const REQ_ONE: u16 = 1 << 3;
    pub(in crate::nbd) const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply types and their one flag.
pub(super) mod chunk {
    pub(in crate::nbd) const DONE: u16 = 1 << 0;
    pub(in crate::nbd) const OFFSET_DATA: u16 = 1;
    pub(in crate::nbd) const BLOCK_STATUS: u16 = 5;
    pub(in crate::nbd) const ERROR: u16 = (1 << 15) + 1;
    pub(in crate::nbd) const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// The metadata context that there is.
pub(super) mod context {
    /// Its name.
    pub(in crate::nbd) const ALLOCATION: &str = "base:allocation";
    /// The wildcard for all contexts of its namespace in a list request.
    pub(in crate::nbd) const WILDCARD: &str = "base:";
    /// Its number in replies.
    pub(in crate::nbd) const ID: u32 = 1;
    pub(in crate::nbd) const STATE_HOLE: u32 = 1 << 0;
    pub(in crate::nbd) const STATE_ZERO: u32 = 1 << 1;
}

/// The header of an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct OptionHeader {
    pub(super) magic: U64,
    pub(super) option: U32,
    pub(super) length: U32,
}

/// The header of a reply to an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct OptionReply {
    pub(super) magic: U64,
    pub(super) option: U32,
    pub(super) kind: U32,
    pub(super) length: U32,
}

/// A request without its payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RequestHeader {
    pub(super) magic: U32,
    pub(super) flags: U16,
    pub(super) kind: U16,
    pub(super) cookie: U64,
    pub(super) offset: U64,
    pub(super) length: U32,
}

/// A simple reply without its payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SimpleReply {
    pub(super) magic: U32,
    pub(super) error: U32,
    pub(super) cookie: U64,
}

/// A structured reply chunk without its payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Chunk {
    pub(super) magic: U32,
    pub(super) flags: U16,
    pub(super) kind: U16,
    pub(super) cookie: U64,
    pub(super) length: U32,
}

/// A chunk of type `NBD_REPLY_TYPE_OFFSET_DATA` without the data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DataChunk {
    pub(super) chunk: Chunk,
    pub(super) offset: U64,
}

const _: () = assert!(size_of::<OptionHeader>() == 16);
const _: () = assert!(size_of::<OptionReply>() == 20);
const _: () = assert!(size_of::<RequestHeader>() == 28);
const _: () = assert!(size_of::<SimpleReply>() == 16);
const _: () = assert!(size_of::<Chunk>() == 20);
const _: () = assert!(size_of::<DataChunk>() == 28);
