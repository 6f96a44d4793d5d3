//! The parameter list of EXTENDED COPY(LID1).

use super::{
    BLOCK_TO_BLOCK, HEADER_LENGTH, IDENTIFICATION, LIST_LENGTH_MAX, SEGMENT_LENGTH, SEGMENTS_MAX,
    TARGET_LENGTH, TARGETS_MAX,
};
use crate::scsi::Sense;
use crate::scsi::disk::{DiskInfo, Port};
use crate::scsi::vpd;

/// A copy request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By which RECEIVE COPY RESULTS asks for this copy.
    pub list_id: u8,
    /// The initiator may ask for the copy's [`Progress`](super::Progress) by `list_id`. A second copy
    /// with the same identifier on the same nexus is then refused with OPERATION IN PROGRESS
    /// while the first is processed, and takes the place of its progress afterwards.
    pub tracked: bool,
    /// The disks, at most [`TARGETS_MAX`].
    pub targets: Vec<Designator>,
    /// The segments in order, at most [`SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

/// A disk by one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designator {
    code_set: u8,
    association: u8,
    kind: u8,
    name: Vec<u8>,
    /// The block size of the disk according to the initiator, in bytes; 0 if unspecified.
    pub block_size: u32,
}

/// Blocks to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The disk to read: an index of the plan's targets, or [`OWN`](Self::OWN).
    pub source: u16,
    /// The disk to write, likewise.
    pub destination: u16,
    /// `blocks` counts blocks of the destination, not of the source.
    pub counts_destination: bool,
    /// Number of blocks; zero is no error.
    pub blocks: u16,
    /// First block to read.
    pub source_lba: u64,
    /// First block to write.
    pub destination_lba: u64,
}

impl Segment {
    /// The disk to which the command was sent (SPC-4 section 6.4.6.1).
    pub const OWN: u16 = 0xffff;
}

/// Reads a parameter list, which is exactly as long as the CDB says. An empty one is no error: it asks
/// for nothing, and nothing is remembered of it.
///
/// Whether disks and blocks exist is a question that every segment asks for itself, see
/// [`Plan::resolve`].
pub fn parse(list: &[u8]) -> Result<Plan, Sense> {
    if list.is_empty() {
        return Ok(Plan::default());
    }
    let Some((header, rest)) = list.split_first_chunk::<HEADER_LENGTH>() else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    let targets_length = usize::from(be16(header, 2));
    let segments_length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let length = targets_length.saturating_add(segments_length as usize);
    // SPC-4 section 6.4.3.5: the limit, which holds for both kinds of descriptors together.
    if length > rest.len() || list.len() > LIST_LENGTH_MAX {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let (list_id, tracked) = identifier(header)?;
    if header[12..] != [0; 4] {
        return Err(Sense::INLINE_DATA_LENGTH_EXCEEDED.at_parameter(12));
    }
    let (targets, rest) = rest.split_at(targets_length);
    let start = HEADER_LENGTH + targets_length;
    Ok(Plan {
        list_id,
        tracked,
        targets: self::targets(targets)?,
        segments: segments(&rest[..segments_length as usize], start)?,
    })
}

/// The list identifier, and whether it is one. STR and PRIORITY are hints that are not taken.
fn identifier(header: &[u8; HEADER_LENGTH]) -> Result<(u8, bool), Sense> {
    if header[1] & 0xc0 != 0 {
        return Err(Sense::invalid_parameter_field(1));
    }
    if header[4..8] != [0; 4] {
        return Err(Sense::invalid_parameter_field(4));
    }
    // SPC-4 table 129. What 00b asks to be held exists with no segment that is supported.
    match header[1] >> 3 & 3 {
        0b00 | 0b10 => Ok((header[0], true)),
        0b11 if header[0] == 0 => Ok((0, false)),
        0b11 => Err(Sense::invalid_parameter_field(0)),
        _ => Err(Sense::invalid_parameter_field(1)),
    }
}

fn targets(bytes: &[u8]) -> Result<Vec<Designator>, Sense> {
    let (targets, rest) = bytes.as_chunks::<TARGET_LENGTH>();
    if targets.len() > TARGETS_MAX {
        return Err(Sense::TOO_MANY_TARGET_DESCRIPTORS.at_parameter(2));
    }
    if !rest.is_empty() {
        return Err(Sense::invalid_parameter_field(2));
    }
    let starts = (HEADER_LENGTH..).step_by(TARGET_LENGTH);
    targets.iter().zip(starts).map(|(one, start)| designator(one, start as u16)).collect()
}

/// One description of a disk, which lies at byte `start` of the list.
fn designator(bytes: &[u8; TARGET_LENGTH], start: u16) -> Result<Designator, Sense> {
    if bytes[0] != IDENTIFICATION {
        return Err(Sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE.at_parameter(start));
    }
    // Only direct access block devices. SPC-4 section 6.4.5.6: the LU ID TYPE field is ignored, and so
    // is the initiator port, as the disk is in this device.
    if bytes[1] & 0x1f != 0 {
        return Err(Sense::invalid_parameter_field(start + 1));
    }
    // The name has room for 20 bytes.
    let Some(name) = bytes[8..28].get(..usize::from(bytes[7])) else {
        return Err(Sense::invalid_parameter_field(start + 7));
    };
    Ok(Designator {
        code_set: bytes[4] & 0x0f,
        association: bytes[5] >> 4 & 3,
        kind: bytes[5] & 0x0f,
        name: name.to_vec(),
        block_size: u32::from_be_bytes([0, bytes[29], bytes[30], bytes[31]]),
    })
}

impl Designator {
    /// Whether the disk shows this name of a logical unit in its Device Identification page.
    pub fn names(&self, disk: &DiskInfo) -> bool {
        // Designators of ports are omitted: they identify more than one logical unit.
        let port = Port { iqn: "", portal_group: 0, relative: 0, units: &[] };
        let Ok(page) = vpd::page(disk, &port, DEVICE_IDENTIFICATION) else {
            return false;
        };
        let mut rest = &page[4..];
        while let Some((header, body)) = rest.split_first_chunk::<4>() {
            let (name, after) = body.split_at(usize::from(header[3]));
            let association = header[1] >> 4 & 3;
            let same = association == self.association
                && header[0] & 0x0f == self.code_set
                && header[1] & 0x0f == self.kind;
            if association == 0 && same && name == self.name {
                return true;
            }
            rest = after;
        }
        false
    }
}

/// The segments, the first of which lies at byte `start` of the list.
fn segments(bytes: &[u8], start: usize) -> Result<Vec<Segment>, Sense> {
    let mut segments = Vec::new();
    let mut rest = bytes;
    while let Some(&code) = rest.first() {
        let at = (start + bytes.len() - rest.len()) as u16;
        if segments.len() == SEGMENTS_MAX {
            return Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS.at_parameter(at));
        }
        if code != BLOCK_TO_BLOCK {
            return Err(Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE.at_parameter(at));
        }
        // The length field of the header ends in the middle of a descriptor.
        let Some((one, after)) = rest.split_first_chunk::<SEGMENT_LENGTH>() else {
            return Err(Sense::invalid_parameter_field(8));
        };
        segments.push(segment(one, at)?);
        rest = after;
    }
    Ok(segments)
}

fn segment(bytes: &[u8; SEGMENT_LENGTH], start: u16) -> Result<Segment, Sense> {
    // DC and CAT. A segment without a rest has nothing to concatenate, and one with a rest is refused.
    if bytes[1] & !0x03 != 0 {
        return Err(Sense::invalid_parameter_field(start + 1));
    }
    if usize::from(be16(bytes, 2)) != SEGMENT_LENGTH - 4 {
        return Err(Sense::invalid_parameter_field(start + 2));
    }
    if be16(bytes, 8) != 0 {
        return Err(Sense::invalid_parameter_field(start + 8));
    }
    Ok(Segment {
        source: be16(bytes, 4),
        destination: be16(bytes, 6),
        counts_destination: bytes[1] & 0x02 != 0,
        blocks: be16(bytes, 10),
        source_lba: be64(bytes, 12),
        destination_lba: be64(bytes, 20),
    })
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be64(bytes: &[u8; SEGMENT_LENGTH], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The VPD page that shows a disk's names (SPC-4 section 7.8.6).
const DEVICE_IDENTIFICATION: u8 = 0x83;
