//! Command descriptor blocks as typed commands.

use super::commands;
use super::sense::Sense;

/// A command that a disk understands, with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cdb {
    /// Is the unit ready?
    TestUnitReady,
    /// What is pending?
    RequestSense {
        /// Answer in descriptor format.
        descriptor: bool,
        /// Room for the answer, in bytes.
        allocation: u32,
    },
    /// Who are you?
    Inquiry {
        /// Vital product data page, or `None` for standard data.
        page: Option<u8>,
        /// Room for the answer, in bytes.
        allocation: u32,
    },
    /// Which logical units are there?
    ReportLuns {
        /// Which kind is asked for.
        select: u8,
        /// Room for the answer, in bytes.
        allocation: u32,
    },
    /// How large is the medium? Answered in 32 bits.
    ReadCapacity10,
    /// How large is the medium? Answered in 64 bits.
    ReadCapacity16 {
        /// Room for the answer, in bytes.
        allocation: u32,
    },
    /// Mode parameters, please.
    ModeSense(ModeSense),
    /// Which commands are there?
    ReportSupportedOpcodes {
        /// All, or which one.
        options: u8,
        /// Opcode asked about.
        opcode: u8,
        /// Service action asked about.
        action: u16,
        /// Add timeouts descriptors.
        with_timeouts: bool,
        /// Room for the answer, in bytes.
        allocation: u32,
    },
    /// Start. Stopping and ejecting are refused: other initiators use the unit too.
    StartStopUnit,
    /// Something with the medium.
    Media(Media),
}

/// The fields of MODE SENSE(6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// The 10-byte command with its longer header.
    pub is_long: bool,
    /// Long block descriptors are welcome.
    pub long_lba: bool,
    /// No block descriptors.
    pub no_descriptors: bool,
    /// Current, changeable, default or saved values.
    pub control: u8,
    /// Page code.
    pub page: u8,
    /// Subpage code.
    pub subpage: u8,
    /// Room for the answer, in bytes.
    pub allocation: u32,
}

/// A command that concerns the medium. The shell performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    /// What to do.
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

/// What to do with the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOp {
    /// Read the blocks.
    Read,
    /// Write the blocks.
    Write,
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
    /// Deallocate the blocks of a parameter list, see [`unmap`](super::unmap).
    Unmap {
        /// Length of the list, in bytes.
        list_length: u16,
    },
}

/// What VERIFY compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Nothing: that the blocks can be read is enough.
    Nothing,
    /// As many blocks of data.
    Blocks,
    /// One block of data, again and again.
    OneBlock,
}

impl Media {
    /// How many bytes of write data the command takes by its own account.
    pub fn data_out_length(&self, block_size: u32) -> u64 {
        let block = u64::from(block_size);
        match self.op {
            MediaOp::Write | MediaOp::Verify(Compare::Blocks) => self.blocks.saturating_mul(block),
            MediaOp::WriteSame { no_data: false, .. } => block,
            MediaOp::Verify(Compare::OneBlock) if self.blocks > 0 => block,
            MediaOp::Unmap { list_length } => u64::from(list_length),
            MediaOp::Read
            | MediaOp::WriteSame { no_data: true, .. }
            | MediaOp::Verify(_)
            | MediaOp::Synchronize { .. } => 0,
        }
    }

    /// How many bytes of read data the command gives by its own account.
    pub fn data_in_length(&self, block_size: u32) -> u64 {
        match self.op {
            MediaOp::Read => self.blocks.saturating_mul(u64::from(block_size)),
            _ => 0,
        }
    }

    /// Whether the command changes the medium.
    pub const fn is_write(&self) -> bool {
        matches!(self.op, MediaOp::Write | MediaOp::WriteSame { .. } | MediaOp::Unmap { .. })
    }

    /// Whether the write data that the initiator has, `expected` bytes, fits the command, and how
    /// much of it to gather.
    ///
    /// A write of more blocks than there is data for is done as far as whole blocks of data go: the
    /// shell writes no more than what is returned, and the initiator learns of the rest by the
    /// overflow that [`data_out_length`](Self::data_out_length) leads to as the response's length.
    /// Any other lack of data fails without a byte written. Too much data is left alone, except for
    /// WRITE SAME, where it means that the initiator thinks of another block size.
    // RFC 7143 section 11.4.5.1 counts the overflow; how far such a write goes is left to the target.
    pub fn check_data_out(&self, expected: u32, block_size: u32) -> Result<u32, Sense> {
        let needed = self.data_out_length(block_size);
        let enough = u64::from(expected) >= needed;
        let fits = match self.op {
            MediaOp::Write => enough || expected.is_multiple_of(block_size),
            MediaOp::WriteSame { .. } => u64::from(expected) == needed,
            _ => enough,
        };
        if fits {
            Ok(needed.min(expected.into()) as u32)
        } else {
            Err(Sense::INVALID_FIELD_IN_INFORMATION_UNIT)
        }
    }
}

/// Reads a CDB. `thin` adds the commands of thin provisioning.
///
/// Protection information is refused, as are all bits without a meaning.
pub fn decode(cdb: &[u8; 16], thin: bool) -> Result<Cdb, Sense> {
    let supported = commands::find(cdb)?;
    if supported.thin_only && !thin {
        return Err(Sense::INVALID_OPCODE);
    }
    Ok(match cdb[0] {
        0x00 => Cdb::TestUnitReady,
        0x03 => Cdb::RequestSense { descriptor: cdb[1] & 1 != 0, allocation: cdb[4].into() },
        0x12 => inquiry(cdb)?,
        0x1a | 0x5a => Cdb::ModeSense(mode_sense(cdb)),
        0x1b => start_stop(cdb)?,
        // SBC-3 section 5.15: the address is only allowed with the obsolete PMI bit, which asks
        // for the last block before a delay; this medium has none.
        0x25 => match (be32(cdb, 2), cdb[8] & 1) {
            (0, _) | (_, 1) => Cdb::ReadCapacity10,
            _ => return Err(Sense::invalid_cdb_field(2, None)),
        },
        0x42 => Cdb::Media(Media {
            op: MediaOp::Unmap { list_length: be16(cdb, 7) },
            lba: 0,
            blocks: 0,
            fua: false,
            dpo: false,
        }),
        0x9e => Cdb::ReadCapacity16 { allocation: be32(cdb, 10) },
        0xa0 => Cdb::ReportLuns { select: cdb[2], allocation: be32(cdb, 6) },
        0xa3 => Cdb::ReportSupportedOpcodes {
            options: cdb[2] & 7,
            opcode: cdb[3],
            action: be16(cdb, 4),
            with_timeouts: cdb[2] & 0x80 != 0,
            allocation: be32(cdb, 6),
        },
        _ => Cdb::Media(media(cdb, thin)?),
    })
}

fn be16(cdb: &[u8; 16], at: usize) -> u16 {
    u16::from_be_bytes([cdb[at], cdb[at + 1]])
}

fn be32(cdb: &[u8; 16], at: usize) -> u32 {
    u32::from(be16(cdb, at)) << 16 | u32::from(be16(cdb, at + 2))
}

fn be64(cdb: &[u8; 16], at: usize) -> u64 {
    u64::from(be32(cdb, at)) << 32 | u64::from(be32(cdb, at + 4))
}

fn inquiry(cdb: &[u8; 16]) -> Result<Cdb, Sense> {
    let evpd = cdb[1] & 1 != 0;
    // SPC-4 section 6.6.1: a page code without EVPD is wrong.
    if !evpd && cdb[2] != 0 {
        return Err(Sense::invalid_cdb_field(2, None));
    }
    Ok(Cdb::Inquiry { page: evpd.then_some(cdb[2]), allocation: be16(cdb, 3).into() })
}

fn mode_sense(cdb: &[u8; 16]) -> ModeSense {
    let is_long = cdb[0] == 0x5a;
    ModeSense {
        is_long,
        long_lba: is_long && cdb[1] & 0x10 != 0,
        no_descriptors: cdb[1] & 0x08 != 0,
        control: cdb[2] >> 6,
        page: cdb[2] & 0x3f,
        subpage: cdb[3],
        allocation: if is_long { be16(cdb, 7).into() } else { cdb[4].into() },
    }
}

fn start_stop(cdb: &[u8; 16]) -> Result<Cdb, Sense> {
    // SBC-3 section 5.25: power conditions, LOEJ and START.
    if cdb[4] >> 4 != 0 || cdb[4] & 0x02 != 0 || cdb[4] & 0x01 == 0 {
        return Err(Sense::invalid_cdb_field(4, None));
    }
    Ok(Cdb::StartStopUnit)
}

fn media(cdb: &[u8; 16], thin: bool) -> Result<Media, Sense> {
    let (lba, blocks) = match cdb[0] >> 5 {
        0 => {
            // SBC-3 section 5.10: zero means 256 in the 6-byte commands.
            let blocks = if cdb[4] == 0 { 256 } else { cdb[4].into() };
            (be32(cdb, 0) & 0x001f_ffff, blocks)
        }
        1 | 2 => (be32(cdb, 2), be16(cdb, 7).into()),
        4 => (0, be32(cdb, 10)),
        _ => (be32(cdb, 2), be32(cdb, 6)),
    };
    let lba = if cdb[0] >> 5 == 4 { be64(cdb, 2) } else { lba.into() };
    let reads_or_writes = matches!(cdb[0], 0x28 | 0x2a | 0x88 | 0x8a | 0xa8 | 0xaa);
    let op = match cdb[0] {
        0x08 | 0x28 | 0x88 | 0xa8 => MediaOp::Read,
        0x0a | 0x2a | 0x8a | 0xaa => MediaOp::Write,
        0x2f | 0x8f | 0xaf => MediaOp::Verify(match cdb[1] >> 1 & 3 {
            0 => Compare::Nothing,
            1 => Compare::Blocks,
            3 => Compare::OneBlock,
            _ => return Err(Sense::invalid_cdb_field(1, Some(2))),
        }),
        0x35 | 0x91 => MediaOp::Synchronize { immediate: cdb[1] & 0x02 != 0 },
        0x41 | 0x93 => {
            let unmap = cdb[1] & 0x08 != 0;
            if unmap && !thin {
                return Err(Sense::invalid_cdb_field(1, Some(3)));
            }
            MediaOp::WriteSame { unmap, no_data: cdb[0] == 0x93 && cdb[1] & 1 != 0 }
        }
        _ => return Err(Sense::INVALID_OPCODE),
    };
    Ok(Media {
        op,
        lba,
        blocks: blocks.into(),
        fua: reads_or_writes && cdb[1] & 0x08 != 0,
        dpo: cdb[1] & 0x10 != 0 && cdb[0] > 0x1f,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Cdb, Sense> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        decode(&cdb, true)
    }

    fn transfer(op: MediaOp, lba: u64, blocks: u64) -> Cdb {
        Cdb::Media(Media { op, lba, blocks, fua: false, dpo: false })
    }

    /// Addresses and lengths lie where each CDB size has them.
    #[test]
    fn every_size_has_its_places() {
        for (bytes, expected) in [
            (&[0x08, 0x1f, 0xff, 0xfe, 2, 0][..], transfer(MediaOp::Read, 0x1f_fffe, 2)),
            (&[0x0a, 0, 0, 1, 0, 0], transfer(MediaOp::Write, 1, 256)),
            (&[0x28, 0, 1, 2, 3, 4, 0x1f, 5, 6, 0], transfer(MediaOp::Read, 0x0102_0304, 0x0506)),
            (
                &[0xaa, 0, 1, 2, 3, 4, 0, 5, 6, 7, 0, 0],
                transfer(MediaOp::Write, 0x0102_0304, 0x5_0607),
            ),
            (
                &[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0],
                transfer(MediaOp::Read, 0x0102_0304_0506_0708, 9),
            ),
            (&[0x35, 2], transfer(MediaOp::Synchronize { immediate: true }, 0, 0)),
            (&[0x2f, 2, 0, 0, 0, 7, 0, 0, 1, 0], transfer(MediaOp::Verify(Compare::Blocks), 7, 1)),
            (
                &[0x93, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0],
                transfer(MediaOp::WriteSame { unmap: true, no_data: true }, 3, 4),
            ),
        ] {
            assert_eq!(read(bytes), Ok(expected), "{bytes:02x?}");
        }
    }

    /// FUA and DPO are read where they exist, and only there.
    #[test]
    fn cache_bits_are_read() {
        let Ok(Cdb::Media(media)) = read(&[0x2a, 0x18, 0, 0, 0, 0, 0, 0, 1, 0]) else {
            panic!("WRITE(10) is a media command");
        };
        assert!(media.fua && media.dpo);
        let Ok(Cdb::Media(media)) = read(&[0x0a, 0x18, 0, 0, 1, 0]) else {
            panic!("WRITE(6) is a media command");
        };
        assert!(!media.fua && !media.dpo && media.lba == 0x18_0000);
    }

    /// What is not offered is refused by name.
    #[test]
    fn refusals_name_the_field() {
        let code = |bytes: &[u8]| read(bytes).map_err(|sense| (sense.asc, sense.ascq)).unwrap_err();
        assert_eq!(code(&[0x12, 0, 0x80, 0, 96, 0]), (0x24, 0));
        assert_eq!(code(&[0x1b, 0, 0, 0, 0, 0]), (0x24, 0));
        assert_eq!(code(&[0x2f, 4]), (0x24, 0));
        assert_eq!(code(&[0x41, 0x10]), (0x24, 0), "anchor");
        assert_eq!(code(&[0x25, 0, 0, 0, 0, 1]), (0x24, 0));
        assert_eq!(code(&[0x5e]), (0x20, 0));
        let mut unmap = [0; 16];
        unmap[0] = 0x42;
        assert_eq!(decode(&unmap, false), Err(Sense::INVALID_OPCODE));
        unmap[..2].copy_from_slice(&[0x41, 8]);
        assert_eq!(decode(&unmap, false).unwrap_err().asc, 0x24);
    }

    /// Write data must fit the command; for a pattern it must fit exactly.
    #[test]
    fn data_out_must_fit() {
        let media = |op, blocks| Media { op, lba: 0, blocks, fua: false, dpo: false };
        let write = media(MediaOp::Write, 2);
        assert_eq!(write.check_data_out(1024, 512), Ok(1024));
        assert_eq!(write.check_data_out(4096, 512), Ok(1024));
        assert_eq!(write.check_data_out(1023, 512), Err(Sense::INVALID_FIELD_IN_INFORMATION_UNIT));
        assert_eq!(write.check_data_out(512, 512), Ok(512));
        assert_eq!(write.check_data_out(0, 512), Ok(0));
        assert!(media(MediaOp::Verify(Compare::Blocks), 2).check_data_out(512, 512).is_err());
        let same = media(MediaOp::WriteSame { unmap: false, no_data: false }, 99);
        assert_eq!(same.check_data_out(512, 512), Ok(512));
        assert!(same.check_data_out(1024, 512).is_err());
        assert!(same.check_data_out(256, 512).is_err());
        let huge = media(MediaOp::Write, u64::from(u32::MAX));
        assert_eq!(huge.check_data_out(0xffff_f000, 4096), Ok(0xffff_f000));
        let none = media(MediaOp::WriteSame { unmap: false, no_data: true }, 1);
        assert_eq!(none.check_data_out(0, 512), Ok(0));
    }
}
