//! Command descriptor blocks as typed commands.

mod media;

pub use media::{Compare, Media, MediaOp};

use super::commands::{self, Features, Supported};
use super::log::LogSense;
use super::nexus::Access;
use super::reservation;
use super::sense::Sense;

/// A command that a disk understands, with its fields. Lengths and rooms are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cdb {
    TestUnitReady,
    /// Returns pending sense data, in descriptor or fixed format as the command requests.
    RequestSense {
        descriptor: bool,
        allocation: u32,
    },
    Inquiry {
        /// Vital product data page, or `None` for standard data.
        page: Option<u8>,
        allocation: u32,
    },
    ReportLuns {
        select: u8,
        allocation: u32,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: u32,
    },
    GetLbaStatus {
        lba: u64,
        allocation: u32,
    },
    LogSense(LogSense),
    ModeSense(ModeSense),
    ModeSelect {
        /// The 10-byte command with its longer header.
        is_long: bool,
        length: u32,
    },
    ReportSupportedOpcodes {
        /// All, or which one.
        options: u8,
        opcode: u8,
        action: u16,
        with_timeouts: bool,
        allocation: u32,
    },
    ReportTaskManagement {
        extended: bool,
        allocation: u32,
    },
    ReportTargetPortGroups {
        extended: bool,
        allocation: u32,
    },
    StartStop(StartStop),
    PreventRemoval(bool),
    Reserve,
    Release,
    PersistentIn {
        action: u8,
        allocation: u32,
    },
    PersistentOut(reservation::Out),
    PreFetch {
        lba: u64,
        blocks: u64,
    },
    ReadDefectData {
        /// The 12-byte command with its longer header.
        is_long: bool,
        /// The requested lists and their format.
        request: u8,
        allocation: u32,
    },
    ExtendedCopy {
        length: u32,
    },
    ReceiveCopyResults {
        action: u8,
        list_id: u8,
        allocation: u32,
    },
    /// The fields are read by [`sanitize`](super::sanitize).
    Sanitize,
    /// Something with the medium.
    Media(Media),
}

/// The fields of MODE SENSE(6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeSense {
    /// The 10-byte command with its longer header.
    pub(crate) is_long: bool,
    /// Long block descriptors are welcome.
    pub(crate) long_lba: bool,
    /// No block descriptors.
    pub(crate) no_descriptors: bool,
    /// Current, changeable, default or saved values.
    pub(crate) control: u8,
    pub(crate) page: u8,
    pub(crate) subpage: u8,
    pub(crate) allocation: u32,
}

/// The fields of START STOP UNIT (SBC-3 section 5.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartStop {
    /// Another power condition; the rest means nothing then.
    pub(crate) power: bool,
    /// Cached data need not reach the medium first.
    pub(crate) no_flush: bool,
    /// LOEJ: load or eject.
    pub(crate) load_eject: bool,
    pub(crate) start: bool,
}

impl Cdb {
    /// The access that the command needs under another nexus's reservation, where `usual` is what its opcode
    /// needs as a rule.
    // SPC-4's and SBC-3's tables of commands in the presence of reservations: to make a unit ready
    // and to stop preventing removal is always allowed.
    pub(crate) const fn access(&self, usual: Access) -> Access {
        match self {
            Self::StartStop(StartStop { power: false, start: true, .. })
            | Self::PreventRemoval(false) => Access::Free,
            _ => usual,
        }
    }
}

/// Reads a CDB. `features` decide which commands there are.
///
/// Protection information is refused, as are all bits without a meaning.
pub(crate) fn decode(
    cdb: &[u8; 16],
    features: Features,
) -> Result<(&'static Supported, Cdb), Sense> {
    let supported = commands::find(cdb, features)?;
    let action = cdb[1] & 0x1f;
    let command = match cdb[0] {
        0x00 => Cdb::TestUnitReady,
        0x03 => Cdb::RequestSense { descriptor: cdb[1] & 1 != 0, allocation: cdb[4].into() },
        0x12 => inquiry(cdb)?,
        0x15 | 0x55 => mode_select(cdb)?,
        0x16 => Cdb::Reserve,
        0x17 => Cdb::Release,
        0x1a | 0x5a => Cdb::ModeSense(mode_sense(cdb)),
        0x1b => Cdb::StartStop(StartStop {
            power: cdb[4] >> 4 != 0,
            no_flush: cdb[4] & 0x04 != 0,
            load_eject: cdb[4] & 0x02 != 0,
            start: cdb[4] & 0x01 != 0,
        }),
        0x1e => Cdb::PreventRemoval(cdb[4] & 1 != 0),
        // SBC-3 section 5.15: the address is only allowed with the obsolete PMI bit, which asks
        // for the last block before a delay; this medium has none.
        0x25 => match (be32(cdb, 2), cdb[8] & 1) {
            (0, _) | (_, 1) => Cdb::ReadCapacity10,
            _ => return Err(Sense::invalid_cdb_field(2, None)),
        },
        0x34 => Cdb::PreFetch { lba: be32(cdb, 2).into(), blocks: be16(cdb, 7).into() },
        0x37 => {
            Cdb::ReadDefectData { is_long: false, request: cdb[2], allocation: be16(cdb, 7).into() }
        }
        0x42 => Cdb::Media(Media {
            op: MediaOp::Unmap { list_length: be16(cdb, 7) },
            lba: 0,
            blocks: 0,
            fua: false,
            dpo: false,
        }),
        0x48 => Cdb::Sanitize,
        0x4d => Cdb::LogSense(LogSense {
            page: cdb[2] & 0x3f,
            subpage: cdb[3],
            parameter: be16(cdb, 5),
            allocation: be16(cdb, 7).into(),
        }),
        0x5e => Cdb::PersistentIn { action, allocation: be16(cdb, 7).into() },
        0x5f => Cdb::PersistentOut(reservation::Out {
            action,
            scope: cdb[2] >> 4,
            kind: cdb[2] & 0x0f,
            list_length: be32(cdb, 5),
        }),
        0x83 => Cdb::ExtendedCopy { length: be32(cdb, 10) },
        0x84 => Cdb::ReceiveCopyResults { action, list_id: cdb[2], allocation: be32(cdb, 10) },
        0x90 => Cdb::PreFetch { lba: be64(cdb, 2), blocks: be32(cdb, 10).into() },
        0x9e if action == 0x12 => {
            Cdb::GetLbaStatus { lba: be64(cdb, 2), allocation: be32(cdb, 10) }
        }
        0x9e => Cdb::ReadCapacity16 { allocation: be32(cdb, 10) },
        0xa0 => Cdb::ReportLuns { select: cdb[2], allocation: be32(cdb, 6) },
        0xa3 => maintenance_in(cdb, action),
        0xb7 => Cdb::ReadDefectData { is_long: true, request: cdb[1], allocation: be32(cdb, 6) },
        _ => Cdb::Media(media(cdb)?),
    };
    Ok((supported, command))
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

fn mode_select(cdb: &[u8; 16]) -> Result<Cdb, Sense> {
    let is_long = cdb[0] == 0x55;
    let length = if is_long { be16(cdb, 7).into() } else { cdb[4].into() };
    // SPC-4 section 6.9: without PF the pages are in a format of the vendor's, and there is none.
    if cdb[1] & 0x10 == 0 && length != 0 {
        return Err(Sense::invalid_cdb_field(1, Some(4)));
    }
    Ok(Cdb::ModeSelect { is_long, length })
}

fn maintenance_in(cdb: &[u8; 16], action: u8) -> Cdb {
    let allocation = be32(cdb, 6);
    match action {
        0x0a => Cdb::ReportTargetPortGroups { extended: cdb[1] & 0x20 != 0, allocation },
        0x0d => Cdb::ReportTaskManagement { extended: cdb[2] & 0x80 != 0, allocation },
        _ => Cdb::ReportSupportedOpcodes {
            options: cdb[2] & 7,
            opcode: cdb[3],
            action: be16(cdb, 4),
            with_timeouts: cdb[2] & 0x80 != 0,
            allocation,
        },
    }
}

fn media(cdb: &[u8; 16]) -> Result<Media, Sense> {
    let (lba, blocks) = match cdb[0] >> 5 {
        0 => {
            // SBC-3 section 5.10: zero means 256 in the 6-byte commands.
            let blocks = if cdb[4] == 0 { 256 } else { cdb[4].into() };
            ((be32(cdb, 0) & 0x001f_ffff).into(), blocks)
        }
        1 | 2 => (be32(cdb, 2).into(), be16(cdb, 7).into()),
        // COMPARE AND WRITE and WRITE ATOMIC have shorter fields; what is before them is zero then.
        4 => (be64(cdb, 2), be32(cdb, 10)),
        _ => (be32(cdb, 2).into(), be32(cdb, 6)),
    };
    let op = match cdb[0] {
        0x08 | 0x28 | 0x88 | 0xa8 => MediaOp::Read,
        0x0a | 0x2a | 0x8a | 0xaa => MediaOp::Write,
        0x2e | 0x8e | 0xae => MediaOp::WriteVerify(compare(cdb)?),
        0x2f | 0x8f | 0xaf => MediaOp::Verify(compare(cdb)?),
        0x35 | 0x91 => MediaOp::Synchronize { immediate: cdb[1] & 0x02 != 0 },
        0x41 | 0x93 => MediaOp::WriteSame {
            unmap: cdb[1] & 0x08 != 0,
            no_data: cdb[0] == 0x93 && cdb[1] & 1 != 0,
        },
        0x89 => MediaOp::CompareAndWrite,
        0x8b => MediaOp::OrWrite,
        0x9c => MediaOp::WriteAtomic,
        _ => return Err(Sense::INVALID_OPCODE),
    };
    let fua = match op {
        // The six-byte commands have the address in that place.
        MediaOp::Read | MediaOp::Write => cdb[0] > 0x1f && cdb[1] & 0x08 != 0,
        MediaOp::CompareAndWrite | MediaOp::OrWrite | MediaOp::WriteAtomic => cdb[1] & 0x08 != 0,
        // It is the medium that is verified, not a cache.
        MediaOp::WriteVerify(_) => true,
        _ => false,
    };
    let dpo = cdb[1] & 0x10 != 0 && cdb[0] > 0x1f;
    Ok(Media { op, lba, blocks: blocks.into(), fua, dpo })
}

/// BYTCHK.
fn compare(cdb: &[u8; 16]) -> Result<Compare, Sense> {
    Ok(match cdb[1] >> 1 & 3 {
        0 => Compare::Nothing,
        1 => Compare::Blocks,
        3 => Compare::OneBlock,
        _ => return Err(Sense::invalid_cdb_field(1, Some(2))),
    })
}

#[cfg(test)]
mod tests;
