//! A logical unit as a disk: its facts, and what it does with a command.

use super::attention::UnitAttention;
use super::cdb::{self, Cdb, Media, MediaOp};
use super::sense::Sense;
use super::{capacity, commands, inquiry, luns, mode, vpd};

/// Facts about one disk, as initiators see them.
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
    /// What makes the disk itself and no other, on every path and for ever; 60 bits are used.
    pub id: u64,
    /// Vendor, 8 bytes.
    pub vendor: String,
    /// Product, 16 bytes.
    pub product: String,
    /// Revision, 4 bytes.
    pub revision: String,
    /// A write that was acknowledged without FUA may be lost before a flush.
    pub write_cache: bool,
    /// Writing is forbidden.
    pub read_only: bool,
    /// Blocks can be deallocated and read as zeros then. The shell must see to both.
    pub thin: bool,
    /// Most blocks of one read, write or verify; 0 means no limit.
    pub max_transfer_blocks: u32,
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
            thin: false,
            max_transfer_blocks: 0,
            optimal_transfer_blocks: 0,
            max_unmap_blocks: 1 << 20,
            max_unmap_descriptors: 256,
            unmap_granularity_blocks: 8,
            max_write_same_blocks: 0,
            rotation_rate: 1,
        }
    }
}

/// The port through which a command came, and what else is there.
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

/// What to do with a command that is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer GOOD with this data, which is already cut to the room that the initiator has for it.
    Data(Vec<u8>),
    /// Answer GOOD.
    Done,
    /// Do this with the medium. It lies within the disk and its limits.
    Media(Media),
}

impl DiskInfo {
    /// The last logical block.
    pub(crate) const fn last_lba(&self) -> u64 {
        self.blocks.saturating_sub(1)
    }

    /// Reads a CDB and does what can be done without the medium. An error is the sense data of a
    /// CHECK CONDITION.
    pub fn execute(
        &self,
        cdb: &[u8; 16],
        port: &Port<'_>,
        attention: &mut UnitAttention,
    ) -> Result<Action, Sense> {
        if let Some(sense) = attention.intercept(cdb[0]) {
            return Err(sense);
        }
        let (data, allocation) = match cdb::decode(cdb, self.thin)? {
            Cdb::TestUnitReady | Cdb::StartStopUnit => return Ok(Action::Done),
            Cdb::Media(media) => return self.check(media).map(Action::Media),
            Cdb::RequestSense { descriptor, allocation } => {
                // SPC-4 section 6.39: a unit attention is reported as data, and is over then.
                let sense = attention.take().unwrap_or(Sense::NO_SENSE);
                (encoded(&sense, descriptor), allocation)
            }
            Cdb::Inquiry { page: None, allocation } => (inquiry::standard(self), allocation),
            Cdb::Inquiry { page: Some(code), allocation } => {
                (vpd::page(self, port, code)?, allocation)
            }
            Cdb::ReportLuns { select, allocation } => {
                let data = luns::report(select, port.units, allocation)?;
                attention.luns_reported();
                (data, allocation)
            }
            Cdb::ReadCapacity10 => (capacity::short(self), u32::MAX),
            Cdb::ReadCapacity16 { allocation } => (capacity::long(self), allocation),
            Cdb::ModeSense(asked) => (mode::sense(self, &asked)?, asked.allocation),
            Cdb::ReportSupportedOpcodes { options, opcode, action, with_timeouts, allocation } => {
                let data = commands::report(options, opcode, action, with_timeouts, self.thin)?;
                (data, allocation)
            }
        };
        Ok(cut(data, allocation))
    }

    /// Checks a media command against the disk, and resolves "to the end".
    pub fn check(&self, mut media: Media) -> Result<Media, Sense> {
        if media.is_write() && self.read_only {
            return Err(Sense::WRITE_PROTECTED);
        }
        self.check_range(media.lba, media.blocks)?;
        let limit = match media.op {
            // SBC-3 section 6.6.4: with a limit, WSNZ says that zero blocks is not "to the end".
            MediaOp::WriteSame { .. } if media.blocks == 0 && self.max_write_same_blocks != 0 => {
                return Err(Sense::INVALID_FIELD_IN_CDB);
            }
            // SBC-3 sections 5.22 and 5.41: zero blocks means all to the end.
            MediaOp::Synchronize { .. } | MediaOp::WriteSame { .. } if media.blocks == 0 => {
                media.blocks = self.blocks - media.lba;
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
            MediaOp::Read | MediaOp::Write | MediaOp::Verify(_) => self.max_transfer_blocks as u64,
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

/// What a logical unit that does not exist does with a command (SPC-4 sections 5.9 and 6.6.2).
pub fn execute_absent(cdb: &[u8; 16], units: &[u64]) -> Result<Action, Sense> {
    match cdb::decode(cdb, false) {
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
fn cut(mut data: Vec<u8>, allocation: u32) -> Action {
    data.truncate(allocation as usize);
    Action::Data(data)
}

fn encoded(sense: &Sense, descriptor: bool) -> Vec<u8> {
    if descriptor {
        let (bytes, length) = sense.descriptor();
        bytes[..length].to_vec()
    } else {
        sense.fixed().to_vec()
    }
}

#[cfg(test)]
mod tests;
