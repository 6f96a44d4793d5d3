//! Commands that concern the medium.

use crate::scsi::nexus::Access;
use crate::scsi::sense::Sense;

/// A command that concerns the medium. The shell performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    /// The operation.
    pub op: MediaOp,
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks. Once checked by a disk, never "to the end": that is resolved.
    pub blocks: u64,
    /// Force unit access: not done before it is on stable storage.
    pub fua: bool,
    /// Disable page out: not worth keeping in a cache.
    pub dpo: bool,
}

/// An operation on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOp {
    /// Read the blocks.
    Read,
    /// Write the blocks.
    Write,
    /// Write the blocks to stable storage, then read them and compare. Never
    /// [`Compare::OneBlock`].
    WriteVerify(Compare),
    /// Write the blocks, all of them or none.
    WriteAtomic,
    /// Read the blocks, and write what their bits and those of the data give by OR.
    OrWrite,
    /// Read the blocks, and if they are the first half of the data write the second half; no other command
    /// comes between the two.
    CompareAndWrite,
    /// Write one block's worth of data to every block.
    WriteSame {
        /// Deallocate where the pattern is zeros.
        unmap: bool,
        /// There is no data: the pattern is zeros.
        no_data: bool,
    },
    /// Read the blocks and compare.
    Verify(Compare),
    /// Bring the blocks to stable storage.
    Synchronize {
        /// The response may come before it is done.
        immediate: bool,
    },
    /// Deallocate the blocks of a parameter list, see [`unmap`](crate::scsi::unmap).
    Unmap {
        /// Length of the list, in bytes.
        list_length: u16,
    },
}

/// The data with which a verification compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// None: the blocks must only be readable.
    Nothing,
    /// As many blocks of data.
    Blocks,
    /// One block of data, again and again.
    OneBlock,
}

impl Media {
    /// The length of the command's write data in bytes, by its CDB.
    pub fn data_out_length(&self, block_size: u32) -> u64 {
        let block = u64::from(block_size);
        match self.op {
            MediaOp::Write
            | MediaOp::WriteVerify(_)
            | MediaOp::WriteAtomic
            | MediaOp::OrWrite
            | MediaOp::Verify(Compare::Blocks) => self.blocks.saturating_mul(block),
            MediaOp::CompareAndWrite => self.blocks.saturating_mul(2 * block),
            MediaOp::WriteSame { no_data: false, .. } => block,
            MediaOp::Verify(Compare::OneBlock) if self.blocks > 0 => block,
            MediaOp::Unmap { list_length } => u64::from(list_length),
            MediaOp::Read
            | MediaOp::WriteSame { no_data: true, .. }
            | MediaOp::Verify(_)
            | MediaOp::Synchronize { .. } => 0,
        }
    }

    /// The length of the command's read data in bytes, by its CDB.
    pub fn data_in_length(&self, block_size: u32) -> u64 {
        match self.op {
            MediaOp::Read => self.blocks.saturating_mul(u64::from(block_size)),
            _ => 0,
        }
    }

    /// Whether the command changes the medium.
    pub const fn is_write(&self) -> bool {
        match self.op {
            MediaOp::Write
            | MediaOp::WriteVerify(_)
            | MediaOp::WriteAtomic
            | MediaOp::OrWrite
            | MediaOp::CompareAndWrite
            | MediaOp::WriteSame { .. }
            | MediaOp::Unmap { .. } => true,
            MediaOp::Read | MediaOp::Verify(_) | MediaOp::Synchronize { .. } => false,
        }
    }

    /// Whether the command reads the medium, and so needs a buffer of as many blocks for what it
    /// finds there.
    pub const fn needs_medium(&self) -> bool {
        match self.op {
            MediaOp::Read
            | MediaOp::Verify(_)
            | MediaOp::WriteVerify(_)
            | MediaOp::OrWrite
            | MediaOp::CompareAndWrite => true,
            MediaOp::Write
            | MediaOp::WriteAtomic
            | MediaOp::WriteSame { .. }
            | MediaOp::Synchronize { .. }
            | MediaOp::Unmap { .. } => false,
        }
    }

    /// The access that the command needs under another nexus's reservation.
    // SBC-3's table of commands in the presence of reservations has flushing among the writes.
    pub(crate) const fn access(&self) -> Access {
        match self.op {
            MediaOp::Read | MediaOp::Verify(_) => Access::Read,
            _ => Access::Write,
        }
    }

    /// Whether the write data that the initiator has, `expected` bytes, fits the command, and how
    /// much of it to gather.
    ///
    /// A write of more blocks than there is data for is done as far as whole blocks of data go: the
    /// shell writes no more than what is returned, and the initiator learns of the rest by the
    /// overflow that [`data_out_length`](Self::data_out_length) leads to as the response's length.
    /// Any other lack of data fails without a byte written. Too much data is left alone, except for
    /// WRITE SAME, where it means that the initiator thinks of another block size, and COMPARE AND
    /// WRITE, where it moves the border between the two halves.
    // RFC 7143 section 11.4.5.1 counts the overflow; how far such a write goes is left to the target.
    pub fn check_data_out(&self, expected: u32, block_size: u32) -> Result<u32, Sense> {
        let needed = self.data_out_length(block_size);
        let enough = u64::from(expected) >= needed;
        let fits = match self.op {
            MediaOp::Write | MediaOp::WriteVerify(_) => {
                enough || expected.is_multiple_of(block_size)
            }
            MediaOp::WriteSame { .. } => u64::from(expected) == needed,
            // An initiator that asks for more blocks than the field can say has the data all the
            // same; the field is what is wrong then.
            MediaOp::CompareAndWrite if u64::from(expected) != needed => {
                return Err(Sense::invalid_cdb_field(13, None));
            }
            _ => enough,
        };
        if fits {
            Ok(needed.min(expected.into()) as u32)
        } else {
            Err(Sense::INVALID_FIELD_IN_INFORMATION_UNIT)
        }
    }
}
