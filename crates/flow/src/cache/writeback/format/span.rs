//! The place of payload in a batch: reading a part of it, and checking that.

use super::SUMMED;
use crate::units::Extent;

/// Bytes of one record's payload in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where they begin on the log device.
    pub at: u64,
    /// How many.
    pub length: u64,
    /// Where the payload of the record begins on the log device.
    pub record: u64,
    /// How long that is.
    pub bytes: u64,
    /// Where its checksums are on the log device: four bytes for each [`SUMMED`] of payload.
    pub sums: u64,
}

impl Span {
    /// What to read from the log device in order to have these bytes, checked: checksums and payload.
    pub const fn reads(&self) -> (Extent, Extent) {
        let (first, end) = self.pieces();
        let start = self.record + first * SUMMED;
        let most = self.record + self.bytes;
        let stop = self.record + end * SUMMED;
        let stop = if stop < most { stop } else { most };
        (Extent::new(self.sums + 4 * first, 4 * (end - first)), Extent::new(start, stop - start))
    }

    /// Picks these bytes out of what [`reads`](Self::reads) asked for, if every checksum is right;
    /// else says where on the log device the payload is damaged.
    pub fn check<'a>(
        &self,
        sums: &[u8],
        payload: &'a [u8],
        crc32c: impl Fn(&[u8]) -> u32,
    ) -> Result<&'a [u8], u64> {
        let start = self.reads().1.offset;
        let mut sums = sums.chunks_exact(4);
        for (i, piece) in payload.chunks(SUMMED as usize).enumerate() {
            if sums.next() != Some(&crc32c(piece).to_le_bytes()[..]) {
                return Err(start + i as u64 * SUMMED);
            }
        }
        payload
            .get((self.at - start) as usize..)
            .and_then(|rest| rest.get(..self.length as usize))
            .ok_or(start)
    }

    /// Which summed pieces of the record's payload these bytes are in.
    const fn pieces(&self) -> (u64, u64) {
        let from = self.at - self.record;
        (from / SUMMED, (from + self.length).div_ceil(SUMMED))
    }
}

/// How many checksums a record of so much payload has.
pub const fn sums_of(payload: u64) -> u64 {
    payload.div_ceil(SUMMED)
}
