//! The settings of a log.

use super::format::{
    MIN_SEGMENTS, PAGE, RECORDS_MAX, SEGMENT_MAX, SEGMENTS_MAX, SUPERS, batch_most,
};
use crate::clock::Duration;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When its record is durable in the log.
    Log,
    /// When its record has been handed to the log device: a volatile cache, durable only after a flush
    /// or with FUA.
    Ram,
}

/// What a flush, or a write with FUA, waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The log.
    Local,
    /// The upstream: everything up to this point is written and flushed there.
    Upstream,
}

/// What orders write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Flushes and FUA, once every initiator that writes has sent one; strict until then.
    Epochs,
    /// A record comes after every one that was acknowledged before it arrived, for hosts that never flush.
    Strict,
}

/// How a log of one volume works. Source: the design of write-back, `docs/decisions/0011-write-back.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the volume, 16 bytes that no other volume has. A log of another volume is refused.
    pub volume: [u8; 16],
    /// Size of a logical block of the volume: 512 or 4096 bytes. All extents are whole blocks.
    pub block: u32,
    /// Which time this gateway has taken the volume over: written into the log, higher means later.
    pub owner: u64,
    /// When a write is acknowledged.
    pub mode: Mode,
    /// What flushes wait for.
    pub sync: Sync,
    /// What orders write-back.
    pub order: Order,
    /// Bytes of the log device that are used; room for three segments at least.
    pub capacity: u64,
    /// Bytes of a segment: whole pages of 4 KiB, room for a batch at least.
    pub segment: u64,
    /// Most payload in a batch, in bytes; whole blocks. A longer write is logged in pieces.
    pub batch_bytes: u32,
    /// Most records in a batch, from 2 to [`RECORDS_MAX`].
    pub batch_records: u32,
    /// An epoch with so many bytes of payload is closed.
    pub epoch_bytes: u64,
    /// An epoch that is open for so long is closed.
    pub epoch_age: Duration,
    /// Dirty data that is older gets half of the upstream while hosts read there, instead of an eighth.
    pub dirty_age: Duration,
    /// Most I/Os of write-back at once, from 1 to [`DEPTH_MAX`].
    pub depth: u32,
    /// Longest write that write-back makes of neighbours, in bytes; whole blocks.
    pub merge: u64,
    /// A write that has found no room for so long is answered with `Busy`.
    pub hold: Duration,
    /// The upstream has a volatile cache, which is flushed after each epoch.
    pub upstream_flush: bool,
    /// Turn to `through` after a drain if committing here takes longer than a write upstream.
    pub earn: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            volume: [0; 16],
            block: 512,
            owner: 1,
            mode: Mode::Log,
            sync: Sync::Local,
            order: Order::Epochs,
            capacity: 1 << 30,
            segment: 64 << 20,
            batch_bytes: 1 << 20,
            batch_records: 256,
            epoch_bytes: 4 << 20,
            epoch_age: Duration::from_secs(1),
            dirty_age: Duration::from_secs(30),
            depth: 8,
            merge: 1 << 20,
            hold: Duration::from_secs(20),
            upstream_flush: true,
            earn: true,
        }
    }
}

impl Settings {
    /// What is out of range or contradicts itself, in words for whoever made it.
    pub fn validate(&self) -> Result<(), &'static str> {
        let block = u64::from(self.block);
        if self.block != 512 && self.block != 4096 {
            return Err("the logical block of a volume with a log is neither 512 nor 4096 bytes");
        }
        if self.batch_records < 2 || self.batch_records > RECORDS_MAX {
            return Err("a batch of the log does not have from 2 to 4096 records");
        }
        if self.batch_bytes == 0
            || !self.batch_bytes.is_multiple_of(self.block)
            || self.batch_bytes > BATCH_MAX
        {
            return Err("a batch of the log is not of whole blocks, or above 64 MiB");
        }
        if !self.segment.is_multiple_of(PAGE)
            || self.segment < PAGE + batch_most(self.batch_bytes, self.batch_records)
            || self.segment > SEGMENT_MAX
        {
            return Err("a segment of the log has no room for a batch, or is above 1 GiB");
        }
        if self.segments() < MIN_SEGMENTS {
            return Err("the log has no room for three segments");
        }
        if self.capacity > CAPACITY_MAX || self.segments() > SEGMENTS_MAX {
            return Err("the log has too many segments: make them larger");
        }
        if self.merge < block || !self.merge.is_multiple_of(block) || self.merge > SEGMENT_MAX {
            return Err("the longest write to the upstream is not of whole blocks");
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return Err("the depth of write-back is not from 1 to 1024");
        }
        if self.epoch_bytes == 0 {
            return Err("an epoch of no bytes would hold nothing");
        }
        let times = [self.epoch_age, self.dirty_age, self.hold];
        if times.iter().any(|&time| time < TIME_MIN || time > TIME_MAX) {
            return Err("a time of the log is below a millisecond or above a day");
        }
        Ok(())
    }

    /// How many segments there are.
    pub const fn segments(&self) -> u64 {
        self.capacity.saturating_sub(SUPERS) / self.segment
    }
}

/// The largest payload of a batch.
pub const BATCH_MAX: u32 = 64 << 20;

/// The largest log.
pub const CAPACITY_MAX: u64 = 1 << 50;

/// The largest depth of write-back.
pub const DEPTH_MAX: u32 = 1024;

/// The shortest time.
pub const TIME_MIN: Duration = Duration::from_millis(1);

/// The longest time.
pub const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults are good; each value out of its range is not.
    #[test]
    fn what_contradicts_itself_is_noticed() {
        let good = Settings::default();
        assert_eq!(good.validate(), Ok(()));
        for bad in [
            Settings { block: 1024, ..good },
            Settings { batch_records: 1, ..good },
            Settings { batch_records: RECORDS_MAX + 1, ..good },
            Settings { batch_bytes: 0, ..good },
            Settings { batch_bytes: 513, ..good },
            Settings { segment: 4096 + (1 << 20), ..good },
            Settings { segment: SEGMENT_MAX + PAGE, capacity: 1 << 40, ..good },
            Settings { segment: (64 << 20) + 512, ..good },
            Settings { capacity: 3 * (64 << 20), ..good },
            Settings { capacity: CAPACITY_MAX, ..good },
            Settings { merge: 100, ..good },
            Settings { merge: 0, ..good },
            Settings { depth: 0, ..good },
            Settings { depth: DEPTH_MAX + 1, ..good },
            Settings { epoch_bytes: 0, ..good },
            Settings { epoch_age: Duration::ZERO, ..good },
            Settings { hold: Duration::MAX, ..good },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
