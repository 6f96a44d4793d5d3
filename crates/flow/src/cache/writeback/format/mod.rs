//! The format of a log: super blocks, segment headers, batches. Byte tables: `docs/reference/log-format.md`.
//!
//! All integers are little-endian. Checksums are CRC-32C. Nothing here reads or writes a device.

mod batch;
mod bytes;
mod head;
mod span;

pub(super) use batch::Size;
pub use batch::{
    Batch, Descriptor, RecordKind, batch_most, binding, decode_batch, encode_batch, head_bytes,
    presumed,
};
pub use bytes::crc32c;
pub use head::{SegmentHead, Super};
pub use span::{Span, sums_of};

use core::fmt;

/// Why bytes are not what was expected at their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They begin differently: nothing of this kind was ever written here.
    Magic,
    /// They begin as expected, and the checksum is wrong.
    Checksum,
    /// The checksum is right, and a field has a value that no writer writes.
    Field(&'static str),
    /// The checksum is right, and the version is not known here.
    Version(u32),
    /// Of another log.
    Foreign,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("nothing that a log has here"),
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Field(name) => write!(f, "its field `{name}` has a value that no version writes"),
            Self::Version(version) => write!(f, "it has version {version}"),
            Self::Foreign => f.write_str("it is of another log"),
        }
    }
}

impl core::error::Error for Bad {}

/// The version of the format that is written and read. Batches of version 1 had no binding of their checksums, so that
/// every batch of theirs that nothing confirms would be taken for torn. A reader of version 2 would take a copy for
/// a write that is newer than all before it.
pub const VERSION: u32 = 3;

/// Super blocks, segment headers and batches begin at multiples of this.
pub const PAGE: u64 = 4096;

/// Payload is laid out in multiples of this, and a device may tear a write between them.
pub const SECTOR: u64 = 512;

/// Where the segments begin: behind super blocks A and B.
pub const SUPERS: u64 = 2 * PAGE;

/// The least number of segments: one to write to, one to write back, one for when writing fails.
pub const MIN_SEGMENTS: u64 = 3;

/// The largest number of records in a batch.
pub const RECORDS_MAX: u32 = 4096;

/// The largest segment, in bytes.
pub const SEGMENT_MAX: u64 = 1 << 30;

/// The largest number of segments.
pub const SEGMENTS_MAX: u64 = 1 << 20;

/// What no counter of a log exceeds, so that one can always be added to it.
pub(super) const COUNTER_MAX: u64 = u64::MAX >> 1;

/// Bytes of payload that have a checksum of their own.
pub const SUMMED: u64 = 4096;
