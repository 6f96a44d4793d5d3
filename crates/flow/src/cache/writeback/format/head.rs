//! Super blocks and segment headers.

use super::bytes::{array, crc32c, put, u32_at, u64_at};
use super::{Bad, COUNTER_MAX, MIN_SEGMENTS, PAGE, SECTOR, SEGMENT_MAX, SEGMENTS_MAX, VERSION};
use alloc::vec::Vec;

/// A super block: which log this is, and how far it has come. Two copies take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Super {
    /// Name of the log: another one for every log that is made.
    pub log: [u8; 16],
    /// Name of the volume.
    pub volume: [u8; 16],
    /// How many logs the volume has had.
    pub incarnation: u64,
    /// Counts super blocks; the higher one counts. An odd one is copy A, an even one copy B.
    pub generation: u64,
    /// The highest owner of what was written before.
    pub owner: u64,
    /// Bytes of a segment.
    pub segment: u64,
    /// How many segments there are.
    pub segments: u64,
    /// Bytes of a logical block.
    pub block: u32,
    /// Number of the oldest segment that is still needed.
    pub oldest: u64,
    /// All records up to this one are upstream, and flushed there.
    pub applied: u64,
    /// All records up to this one were durable in the log.
    pub durable: u64,
    /// Nothing was dirty when this was written. For people: recovery finds out for itself.
    pub clean: bool,
    /// Writes may have gone upstream past the log since, and may not be flushed there.
    pub bypassed: bool,
}

impl Super {
    /// Where this copy belongs.
    pub const fn place(&self) -> u64 {
        if self.generation % 2 == 1 { 0 } else { PAGE }
    }

    /// The bytes of its page.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = alloc::vec![0; PAGE as usize];
        put(&mut page, 0, *SUPER_MAGIC);
        put(&mut page, 8, VERSION.to_le_bytes());
        put(&mut page, 12, self.block.to_le_bytes());
        put(&mut page, 16, self.log);
        put(&mut page, 32, self.volume);
        put(&mut page, 48, self.incarnation.to_le_bytes());
        put(&mut page, 56, self.generation.to_le_bytes());
        put(&mut page, 64, self.owner.to_le_bytes());
        put(&mut page, 72, self.segment.to_le_bytes());
        put(&mut page, 80, self.segments.to_le_bytes());
        put(&mut page, 88, self.oldest.to_le_bytes());
        put(&mut page, 96, self.applied.to_le_bytes());
        put(&mut page, 104, self.durable.to_le_bytes());
        let flags = u32::from(self.clean) | u32::from(self.bypassed) << 1;
        put(&mut page, 112, flags.to_le_bytes());
        let sum = crc32c(&page[..COVERED]);
        put(&mut page, COVERED, sum.to_le_bytes());
        page
    }

    /// Reads a page; at least its first 512 bytes.
    pub fn decode(page: &[u8]) -> Result<Self, Bad> {
        if page.len() < SECTOR as usize || array(page, 0) != *SUPER_MAGIC {
            return Err(Bad::Magic);
        }
        if u32_at(page, COVERED) != crc32c(&page[..COVERED]) {
            return Err(Bad::Checksum);
        }
        match u32_at(page, 8) {
            0 => return Err(Bad::Field("version")),
            version if version != VERSION => return Err(Bad::Version(version)),
            _ => {}
        }
        let block = Self {
            block: u32_at(page, 12),
            log: array(page, 16),
            volume: array(page, 32),
            incarnation: u64_at(page, 48),
            generation: u64_at(page, 56),
            owner: u64_at(page, 64),
            segment: u64_at(page, 72),
            segments: u64_at(page, 80),
            oldest: u64_at(page, 88),
            applied: u64_at(page, 96),
            durable: u64_at(page, 104),
            clean: u32_at(page, 112) & 1 == 1,
            bypassed: u32_at(page, 112) & 2 == 2,
        };
        block.validate().map_or_else(|field| Err(Bad::Field(field)), |()| Ok(block))
    }

    /// Whether each field has a value that is written; if not, the first that has none.
    fn validate(&self) -> Result<(), &'static str> {
        let sizes =
            self.segment.is_multiple_of(PAGE) && (2 * PAGE..=SEGMENT_MAX).contains(&self.segment);
        let counters = [self.generation, self.owner, self.oldest, self.applied, self.durable];
        match () {
            () if self.block != 512 && self.block != 4096 => Err("block"),
            () if !sizes => Err("segment"),
            () if !(MIN_SEGMENTS..=SEGMENTS_MAX).contains(&self.segments) => Err("segments"),
            () if counters.iter().any(|&counter| counter > COUNTER_MAX) => Err("counters"),
            () => Ok(()),
        }
    }
}

/// The header of a segment, one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// Name of the log.
    pub log: [u8; 16],
    /// Number of the segment: counts up, never used again.
    pub number: u64,
    /// The first record in it, if it has any.
    pub first: u64,
    /// Who writes it.
    pub owner: u64,
    /// The segment before it in the log; 0 if it is the first of all.
    pub previous: u64,
    /// Bytes of that segment that count, its header with them. What is behind them was never
    /// acknowledged.
    pub sealed: u64,
    /// Number of the oldest segment that was still needed.
    pub oldest: u64,
    /// All records up to this one were durable.
    pub durable: u64,
    /// All records up to this one were upstream.
    pub applied: u64,
    /// The epoch that was open at the first record, named after its own first; 0 if none was.
    pub epoch: u64,
}

impl SegmentHead {
    /// The bytes of its page, and its checksum, which the first batch is chained to.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut page = alloc::vec![0; PAGE as usize];
        put(&mut page, 0, *SEGMENT_MAGIC);
        put(&mut page, 8, VERSION.to_le_bytes());
        put(&mut page, 16, self.log);
        put(&mut page, 32, self.number.to_le_bytes());
        put(&mut page, 40, self.first.to_le_bytes());
        put(&mut page, 48, self.owner.to_le_bytes());
        put(&mut page, 56, self.previous.to_le_bytes());
        put(&mut page, 64, self.sealed.to_le_bytes());
        put(&mut page, 72, self.oldest.to_le_bytes());
        put(&mut page, 80, self.durable.to_le_bytes());
        put(&mut page, 88, self.applied.to_le_bytes());
        put(&mut page, 96, self.epoch.to_le_bytes());
        let sum = crc32c(&page[..COVERED]);
        put(&mut page, COVERED, sum.to_le_bytes());
        (page, sum)
    }

    /// Reads the header of a segment of `log`, and its checksum; at least its first 512 bytes.
    pub fn decode(log: [u8; 16], page: &[u8]) -> Result<(Self, u32), Bad> {
        if page.len() < SECTOR as usize || array(page, 0) != *SEGMENT_MAGIC {
            return Err(Bad::Magic);
        }
        let sum = u32_at(page, COVERED);
        if sum != crc32c(&page[..COVERED]) {
            return Err(Bad::Checksum);
        }
        let head = Self {
            log: array(page, 16),
            number: u64_at(page, 32),
            first: u64_at(page, 40),
            owner: u64_at(page, 48),
            previous: u64_at(page, 56),
            sealed: u64_at(page, 64),
            oldest: u64_at(page, 72),
            durable: u64_at(page, 80),
            applied: u64_at(page, 88),
            epoch: u64_at(page, 96),
        };
        if head.log != log {
            return Err(Bad::Foreign);
        }
        if head.number == 0 || head.previous >= head.number || head.first == 0 {
            return Err(Bad::Field("number"));
        }
        if head.epoch > head.first {
            return Err(Bad::Field("epoch"));
        }
        let counters =
            [head.number, head.first, head.owner, head.oldest, head.durable, head.applied];
        if counters.iter().any(|&counter| counter > COUNTER_MAX) {
            return Err(Bad::Field("counters"));
        }
        Ok((head, sum))
    }
}

const SUPER_MAGIC: &[u8; 8] = b"WEIRLOG\0";
const SEGMENT_MAGIC: &[u8; 8] = b"WEIRSEG\0";

/// Where the checksum stands in every version: all of the first sector before it is covered, so that a
/// version is believed only if it was written so.
const COVERED: usize = 508;

#[cfg(test)]
mod tests {
    use super::*;

    const SUPER: Super = Super {
        log: [1; 16],
        volume: [2; 16],
        incarnation: 3,
        generation: 4,
        owner: 5,
        segment: 1 << 20,
        segments: 7,
        block: 512,
        oldest: 8,
        applied: 9,
        durable: 10,
        clean: true,
        bypassed: true,
    };

    const SEGMENT: SegmentHead = SegmentHead {
        log: [1; 16],
        number: 12,
        first: 3,
        owner: 4,
        previous: 5,
        sealed: 6,
        oldest: 7,
        durable: 8,
        applied: 9,
        epoch: 2,
    };

    /// What was written is read again, and no flipped bit of the first sector passes for something else.
    #[test]
    fn both_survive_the_way_there_and_back() {
        let mut page = SUPER.encode();
        assert_eq!(Super::decode(&page), Ok(SUPER));
        let (mut head, sum) = SEGMENT.encode();
        assert_eq!(SegmentHead::decode([1; 16], &head), Ok((SEGMENT, sum)));
        for bit in 0..512 * 8 {
            for page in [&mut page, &mut head] {
                page[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(Super::decode(&page).is_err());
            assert!(SegmentHead::decode([1; 16], &head).is_err());
            for page in [&mut page, &mut head] {
                page[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(SegmentHead::decode([7; 16], &head), Err(Bad::Foreign));
        assert_eq!(Super::decode(&page[..511]), Err(Bad::Magic));
        assert_eq!(SegmentHead::decode([1; 16], &head[..511]), Err(Bad::Magic));
    }

    /// Another version is not taken for damage.
    #[test]
    fn another_version_is_named() {
        for version in [VERSION - 1, VERSION + 1] {
            let mut page = SUPER.encode();
            put(&mut page, 8, version.to_le_bytes());
            assert_eq!(Super::decode(&page), Err(Bad::Checksum));
            let sum = crc32c(&page[..COVERED]);
            put(&mut page, COVERED, sum.to_le_bytes());
            assert_eq!(Super::decode(&page), Err(Bad::Version(version)));
        }
    }
}
