//! The settings of a log.

use super::format::{
    MIN_SEGMENTS, PAGE, RECORDS_MAX, SEGMENT_MAX, SEGMENTS_MAX, SUPERS, batch_most,
};
use crate::clock::Duration;
use crate::settings::{DAY, GIB, Invalid, MIB, MILLISECOND, SECOND};
use crate::{settings, word_field};

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
    /// `Flush` once every initiator that writes has flushed; `Strict` until then.
    Auto,
    /// Flushes and FUA writes alone: what a disk with a volatile cache promises.
    Flush,
    /// Every acknowledgement: a record comes after every one that was acknowledged before it arrived.
    Strict,
}

word_field!(Mode { Log, Ram });
word_field!(Sync { Local, Upstream });
word_field!(Order { Auto, Flush, Strict });

settings! {
    /// How a log of one volume works. Source: the design of write-back, `docs/decisions/0011-write-back.md`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Settings {
        /// When a write is acknowledged.
        pub mode: Mode = Word(&["log", "ram"]), 0;
        /// What flushes wait for.
        pub sync: Sync = Word(&["local", "upstream"]), 0;
        /// What orders write-back.
        pub order: Order = Word(&["auto", "flush", "strict"]), 0;
        /// The upstream has a volatile cache, which is flushed after each epoch.
        pub upstream_flush: bool = Flag, 1;
        /// Turn to `through` after a drain if committing here takes longer than a write upstream, or while hosts write more
        /// than write-back takes and would have more without the log.
        pub earn: bool = Flag, 1;
        /// Which time this gateway has taken the volume over: written into the log, higher means later.
        pub owner: u64 = Count(0, u64::MAX), 1;
        /// Bytes of the log device that are used; room for three segments at least.
        pub capacity: u64 = Size(0, CAPACITY_MAX), GIB;
        /// Bytes of a segment: whole pages of 4 KiB, room for a batch at least.
        pub segment: u64 = Size(2 * PAGE, SEGMENT_MAX), 64 * MIB;
        /// An epoch with this number of payload bytes is closed.
        pub epoch_bytes: u64 = Size(1, u64::MAX), 4 * MIB;
        /// Longest write that write-back makes of neighbours, in bytes; whole blocks.
        pub merge: u64 = Size(512, SEGMENT_MAX), MIB;
        /// An epoch that is open for so long is closed.
        pub epoch_age: Duration = Time(MILLISECOND, DAY), SECOND;
        /// Dirty data that is older gets half of the upstream while hosts read there, instead of an eighth.
        pub dirty_age: Duration = Time(MILLISECOND, DAY), 30 * SECOND;
        /// A write that has found no room for so long is answered with `Busy`.
        pub hold: Duration = Time(MILLISECOND, DAY), 20 * SECOND;
        /// Size of a logical block of the volume. All extents are whole blocks.
        pub block: u32 = OneOf(&[512, 4096]), 512;
        /// Most payload in a batch, in bytes; whole blocks. A longer write is logged in pieces.
        pub batch_bytes: u32 = Size(512, BATCH_MAX as u64), MIB;
        /// Most records in a batch.
        pub batch_records: u32 = Count(2, RECORDS_MAX as u64), 256;
        /// Most I/Os of write-back at once.
        pub depth: u32 = Count(1, DEPTH_MAX as u64), 8;
    }
    also {
        /// Name of the volume, 16 bytes that no other volume has. A log of another volume is refused.
        pub volume: [u8; 16] = [0; 16];
    }
    check Settings::consistent;
}

impl Settings {
    fn consistent(&self) -> Result<(), Invalid> {
        let rule =
            |holds, name, reason| if holds { Ok(()) } else { Err(Invalid::Rule(name, reason)) };
        let blocks = self.batch_bytes.is_multiple_of(self.block);
        rule(blocks, "batch_bytes", "of the log is not of whole blocks")?;
        let blocks = self.merge.is_multiple_of(self.block.into());
        rule(blocks, "merge", "of the log is not of whole blocks")?;
        let pages = self.segment.is_multiple_of(PAGE);
        rule(pages, "segment", "of the log is not of whole pages")?;
        let room = self.segment >= PAGE + batch_most(self.batch_bytes, self.batch_records);
        rule(room, "segment", "of the log has no room for a batch")?;
        rule(
            self.segments() >= MIN_SEGMENTS,
            "capacity",
            "of the log has no room for three segments",
        )?;
        rule(self.segments() <= SEGMENTS_MAX, "segment", "of the log is too small for its capacity")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings as _;

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
