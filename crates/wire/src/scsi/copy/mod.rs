//! Copies within the target: EXTENDED COPY(LID1) and RECEIVE COPY RESULTS (SPC-4
//! sections 5.17.7, 6.4 and 6.22 to 6.25).
//!
//! [`parse`] reads what an initiator asks for: a list of disks by the names that they show in the
//! Device Identification page, and a list of segments, each a range of blocks to copy. Segments are
//! done one after the other. [`Plan::resolve`] finds the two disks of a segment and checks it against
//! them; the shell moves the blocks and keeps a [`Progress`], from which [`receive`] answers.

mod list;
mod resolve;
mod results;

pub use list::{Designator, Plan, Segment, parse};
pub use resolve::{Move, Side};
pub use results::{Progress, State, receive};

/// Most disks that one list may name; TOO MANY TARGET DESCRIPTORS above.
pub const TARGETS_MAX: usize = 8;
/// Most segments of one list; TOO MANY SEGMENT DESCRIPTORS above.
pub const SEGMENTS_MAX: usize = 64;
/// Most bytes that one segment may move; COPY ABORTED above.
pub const SEGMENT_LENGTH_MAX: u32 = 64 << 20;
/// Length of the longest parameter list, in bytes. A shell need not gather a longer one: it is refused
/// with PARAMETER LIST LENGTH ERROR.
pub const LIST_LENGTH_MAX: usize = HEADER_LENGTH + DESCRIPTORS_LENGTH_MAX;
/// Most copies of one logical unit that are processed or wait to be processed at the same time. A shell
/// answers BUSY above.
pub const CONCURRENT_MAX: u8 = 8;

/// Length of a parameter list's header, in bytes.
const HEADER_LENGTH: usize = 16;
/// Length of a description of a disk, in bytes.
const TARGET_LENGTH: usize = 32;
/// Length of a segment descriptor from blocks to blocks, in bytes.
const SEGMENT_LENGTH: usize = 28;
/// Most bytes of both kinds of descriptors; PARAMETER LIST LENGTH ERROR above.
const DESCRIPTORS_LENGTH_MAX: usize = TARGETS_MAX * TARGET_LENGTH + SEGMENTS_MAX * SEGMENT_LENGTH;

/// Copy from block device to block device (SPC-4 section 6.4.6.4).
const BLOCK_TO_BLOCK: u8 = 0x02;
/// Identification Descriptor CSCD descriptor (SPC-4 section 6.4.5.6).
const IDENTIFICATION: u8 = 0xe4;

#[cfg(test)]
mod tests;
