//! RECEIVE COPY RESULTS: the status of a copy, and the limits of copies.

use super::{
    BLOCK_TO_BLOCK, CONCURRENT_MAX, DESCRIPTORS_LENGTH_MAX, IDENTIFICATION, SEGMENT_LENGTH_MAX,
    SEGMENTS_MAX, TARGETS_MAX,
};
use crate::scsi::{ScsiStatus, Sense};

/// RECEIVE COPY STATUS(LID1).
const STATUS: u8 = 0x00;
/// RECEIVE COPY DATA(LID1).
const DATA: u8 = 0x01;
/// RECEIVE COPY OPERATING PARAMETERS.
const OPERATING_PARAMETERS: u8 = 0x03;
/// RECEIVE COPY FAILURE DETAILS(LID1).
const FAILURE_DETAILS: u8 = 0x04;

/// The smallest block of any disk, in bytes, as a power of two.
const GRANULARITY: u8 = 9;

/// The progress of a copy. A shell stores one per list identifier of a nexus and a logical unit, and forgets it when
/// the nexus is lost or the unit is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether it has ended, and how.
    pub state: State,
    /// Number of segments that were processed, counting the one that is being processed.
    pub segments: u16,
    /// Number of bytes written to destinations.
    pub bytes: u64,
}

/// Whether a copy has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being processed.
    InProgress,
    /// It ended with GOOD.
    Done,
    /// It ended with this sense data.
    Failed(Sense),
}

/// The parameter data of a service action, cut to `allocation` bytes. `progress` is that of the copy
/// with the list identifier in the CDB, if there is one.
pub fn receive(action: u8, progress: Option<&Progress>, allocation: u32) -> Result<Vec<u8>, Sense> {
    // SPC-4 sections 6.21, 6.23 and 6.25: an unknown list identifier, and one of a copy that is still
    // being processed, except for its status.
    let known = progress.ok_or(Sense::invalid_cdb_field(2, None));
    let ended = known.and_then(|copy| match copy.state {
        State::InProgress => Err(Sense::invalid_cdb_field(2, None)),
        State::Done => Ok(None),
        State::Failed(sense) => Ok(Some(sense)),
    });
    let body = match action {
        STATUS => status(known?),
        // No segment that is supported leaves data to be held.
        DATA => ended.map(|_| Vec::new())?,
        OPERATING_PARAMETERS => operating_parameters(),
        FAILURE_DETAILS => ended?.map_or_else(Vec::new, failure_details),
        _ => return Err(Sense::invalid_cdb_field(1, Some(4))),
    };
    let mut data = (body.len() as u32).to_be_bytes().to_vec();
    data.extend(body);
    data.truncate(allocation as usize);
    Ok(data)
}

/// SPC-4 table 253, less the length.
fn status(copy: &Progress) -> Vec<u8> {
    let state = match copy.state {
        State::InProgress => 0x00,
        State::Done => 0x01,
        State::Failed(_) => 0x02,
    };
    // SPC-4 table 251: bytes, kibibytes, mebibytes and so on.
    let (mut unit, mut count) = (0, copy.bytes);
    while count > u64::from(u32::MAX) {
        unit += 1;
        count >>= 10;
    }
    let [high, low] = copy.segments.to_be_bytes();
    let mut body = vec![state, high, low, unit];
    body.extend((count as u32).to_be_bytes());
    body
}

/// SPC-4 table 244, less the length.
fn operating_parameters() -> Vec<u8> {
    let mut body = vec![0; 40];
    // SNLID: a list may do without an identifier.
    body[0] = 0x01;
    body[4..6].copy_from_slice(&(TARGETS_MAX as u16).to_be_bytes());
    body[6..8].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
    body[8..12].copy_from_slice(&(DESCRIPTORS_LENGTH_MAX as u32).to_be_bytes());
    body[12..16].copy_from_slice(&SEGMENT_LENGTH_MAX.to_be_bytes());
    // No inline data, no held data, no streams.
    body[31] = CONCURRENT_MAX;
    body[32] = CONCURRENT_MAX;
    body[33] = GRANULARITY;
    // Ascending.
    let types = [BLOCK_TO_BLOCK, IDENTIFICATION];
    body[39] = types.len() as u8;
    body.extend(types);
    body
}

/// SPC-4 table 246, less the length.
fn failure_details(sense: Sense) -> Vec<u8> {
    let sense = sense.fixed();
    let mut body = vec![0; 56];
    body[52] = ScsiStatus::CheckCondition as u8;
    body[54..56].copy_from_slice(&(sense.len() as u16).to_be_bytes());
    body.extend(sense);
    body
}
