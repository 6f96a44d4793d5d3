//! The properties of a disk, and values derived from them.

use super::cdb::{self, Cdb, Media, MediaOp};
use super::commands::Features;
use super::sense::Sense;
use super::unit::Action;
use super::{inquiry, luns};

/// Facts about one disk, as initiators see them: a field for each fact that READ CAPACITY, a VPD page or a mode page
/// reports.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    /// Number of logical blocks, at least 1.
    pub blocks: u64,
    /// Size of a logical block, in bytes: 512 or 4096.
    pub block_size: u32,
    /// Logical blocks per physical block, as a power of two; 0 to 15.
    pub physical_block_exponent: u8,
    /// Serial number; the first 32 printable bytes are shown.
    pub serial: String,
    /// Identifies the disk uniquely, on every path and permanently; 60 bits are used.
    pub id: u64,
    /// Vendor, 8 bytes.
    pub vendor: String,
    /// Product, 16 bytes.
    pub product: String,
    /// Revision, 4 bytes.
    pub revision: String,
    /// A write that was acknowledged without FUA may be lost before a flush. Initiators can change
    /// that for a unit, until it is reset.
    pub write_cache: bool,
    /// Writing is forbidden.
    pub read_only: bool,
    /// Initiators may eject the medium and load it again.
    pub removable: bool,
    /// Initiators may have the whole medium wiped by SANITIZE: by overwriting it, and if it is thin
    /// by deallocating it.
    pub sanitize: bool,
    /// Blocks can be deallocated and read as zeros then. The shell must see to both.
    pub thin: bool,
    /// Most blocks of one read, write or verify; 0 means no limit.
    pub max_transfer_blocks: u32,
    /// Most blocks of one COMPARE AND WRITE; 0 means that there is no such command.
    pub max_compare_and_write_blocks: u8,
    /// Most blocks of one WRITE ATOMIC, at most `max_transfer_blocks`; 0 means that there is no such
    /// command. Address and length must be multiples of a physical block.
    pub max_atomic_blocks: u32,
    /// Blocks per command that go best; 0 says nothing.
    pub optimal_transfer_blocks: u32,
    /// Most blocks of one UNMAP.
    pub max_unmap_blocks: u32,
    /// Most extents of one UNMAP.
    pub max_unmap_descriptors: u32,
    /// Extents that are a multiple of this many blocks deallocate best; 0 says nothing.
    pub unmap_granularity_blocks: u32,
    /// Most blocks of one WRITE SAME; 0 means no limit. With a limit, a WRITE SAME of zero blocks is
    /// refused (WSNZ) instead of reaching to the end of the disk.
    pub max_write_same_blocks: u64,
    /// Revolutions per minute; 1 means that nothing turns, 0 says nothing.
    pub rotation_rate: u16,
}

impl Default for DiskInfo {
    /// A small disk without a cache; for tests and as a base.
    fn default() -> Self {
        Self {
            blocks: 2048,
            block_size: 512,
            physical_block_exponent: 3,
            serial: String::from("0"),
            id: 0,
            vendor: String::from("WEIR"),
            product: String::from("DISK"),
            revision: String::from("0001"),
            write_cache: false,
            read_only: false,
            removable: false,
            sanitize: false,
            thin: false,
            max_transfer_blocks: 0,
            max_compare_and_write_blocks: u8::MAX,
            max_atomic_blocks: 0,
            optimal_transfer_blocks: 0,
            max_unmap_blocks: 1 << 20,
            max_unmap_descriptors: 256,
            unmap_granularity_blocks: 8,
            max_write_same_blocks: 0,
            rotation_rate: 1,
        }
    }
}

/// The port of a command, and the other ports.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// iSCSI name of the target.
    pub iqn: &'a str,
    /// Portal group tag.
    pub portal_group: u16,
    /// Relative target port identifier, from 1 on.
    pub relative: u16,
    /// Numbers of the target's logical units that this initiator may see, in ascending order.
    pub units: &'a [u64],
}

impl DiskInfo {
    /// The last logical block.
    pub(crate) const fn last_lba(&self) -> u64 {
        self.blocks.saturating_sub(1)
    }

    /// Logical blocks per physical block.
    pub(crate) const fn physical_blocks(&self) -> u32 {
        1 << (self.physical_block_exponent & 0x0f)
    }

    /// The optional commands that it supports.
    pub(crate) const fn features(&self) -> Features {
        Features {
            thin: self.thin,
            removable: self.removable,
            sanitize: self.sanitize,
            compare_and_write: self.max_compare_and_write_blocks != 0,
            atomic: self.max_atomic_blocks != 0,
        }
    }

    /// Checks a media command against the disk, and resolves "to the end".
    pub(crate) fn check(&self, mut media: Media) -> Result<Media, Sense> {
        if media.is_write() && self.read_only {
            return Err(Sense::WRITE_PROTECTED);
        }
        self.check_range(media.lba, media.blocks)?;
        let limit = match media.op {
            MediaOp::WriteSame { unmap: true, .. } if !self.thin => {
                return Err(Sense::invalid_cdb_field(1, Some(3)));
            }
            // SBC-3 section 6.6.4: with a limit, WSNZ says that zero blocks is not "to the end".
            MediaOp::WriteSame { .. } if media.blocks == 0 && self.max_write_same_blocks != 0 => {
                return Err(Sense::INVALID_FIELD_IN_CDB);
            }
            // SBC-3 sections 5.22 and 5.41: zero blocks means all to the end.
            MediaOp::Synchronize { .. } | MediaOp::WriteSame { .. } if media.blocks == 0 => {
                media.blocks = self.blocks - media.lba;
                self.limit(media.op)
            }
            MediaOp::WriteAtomic => {
                let unit = u64::from(self.physical_blocks());
                // The granularity and alignment of the Block Limits page.
                if !media.lba.is_multiple_of(unit) {
                    return Err(Sense::invalid_cdb_field(2, None));
                }
                if !media.blocks.is_multiple_of(unit) {
                    return Err(Sense::invalid_cdb_field(12, None));
                }
                self.limit(media.op)
            }
            op => self.limit(op),
        };
        if limit != 0 && media.blocks > limit {
            return Err(Sense::INVALID_FIELD_IN_CDB);
        }
        Ok(media)
    }

    /// Most blocks of one command; zero means no limit.
    const fn limit(&self, op: MediaOp) -> u64 {
        match op {
            MediaOp::Read
            | MediaOp::Write
            | MediaOp::WriteVerify(_)
            | MediaOp::OrWrite
            | MediaOp::Verify(_) => self.max_transfer_blocks as u64,
            MediaOp::CompareAndWrite => self.max_compare_and_write_blocks as u64,
            MediaOp::WriteAtomic => self.max_atomic_blocks as u64,
            MediaOp::WriteSame { .. } => self.max_write_same_blocks,
            MediaOp::Synchronize { .. } | MediaOp::Unmap { .. } => 0,
        }
    }

    /// Whether all these blocks exist. No blocks right behind the last are fine.
    pub fn check_range(&self, lba: u64, blocks: u64) -> Result<(), Sense> {
        match lba.checked_add(blocks) {
            Some(end) if end <= self.blocks => Ok(()),
            _ => Err(Sense::LBA_OUT_OF_RANGE.with_information(lba.max(self.blocks))),
        }
    }
}

/// The answer of a logical unit that does not exist (SPC-4 sections 5.9 and 6.6.2).
pub fn execute_absent(cdb: &[u8; 16], units: &[u64]) -> Result<Action, Sense> {
    match cdb::decode(cdb, Features::default()).map(|(_, command)| command) {
        Ok(Cdb::Inquiry { page: None, allocation }) => Ok(cut(inquiry::absent(), allocation)),
        Ok(Cdb::ReportLuns { select, allocation }) => {
            Ok(cut(luns::report(select, units, allocation)?, allocation))
        }
        // SPC-4 section 6.39: REQUEST SENSE says it in its data.
        Ok(Cdb::RequestSense { descriptor, allocation }) => {
            Ok(cut(encoded(&Sense::LOGICAL_UNIT_NOT_SUPPORTED, descriptor), allocation))
        }
        _ => Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED),
    }
}

/// Cuts data to the room that the initiator has, which is no error (SPC-4 section 4.3.5.6).
pub(crate) fn cut(mut data: Vec<u8>, allocation: u32) -> Action {
    data.truncate(allocation as usize);
    Action::Data(data)
}

/// The data of REQUEST SENSE, in the format that the command asks for.
pub(crate) fn encoded(sense: &Sense, descriptor: bool) -> Vec<u8> {
    let (bytes, length) = sense.in_descriptors(descriptor).encoded();
    bytes[..length].to_vec()
}
