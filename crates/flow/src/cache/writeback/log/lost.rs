//! Data that cannot be written back: records that the log cannot read any more, and an upstream that is fenced.

use super::Log;
use crate::cache::writeback::effect::{Cause, DRAIN, Effect};
use crate::cache::writeback::ranges::Held;
use crate::clock::Instant;
use crate::error::IoError;
use crate::units::Extent;
use alloc::vec::Vec;

impl Log {
    /// The bytes of the volume, and the record, on which write-back is blocked because the log cannot be read there.
    pub fn unreadable(&self) -> Option<(Extent, u64)> {
        let (blocked, _) = self.destage.blocked()?;
        matches!(blocked.cause, Cause::Log(_)).then_some((blocked.extent, blocked.seq))
    }

    /// The parts of an extent of which the log has nothing newer than record `seq`; `None` while something newer is not
    /// durable: a crash may take it.
    pub fn newest_up_to(&self, extent: Extent, seq: u64) -> Option<Vec<Extent>> {
        let end = extent.end().expect("a volume ends before the address space does");
        let (mut at, mut parts) = (extent.offset, Vec::new());
        let records = self.wal.records();
        let newer = |held: &Held| records.order(held.seq) > seq;
        for held in records.newest(at, end).filter(newer) {
            if held.seq > self.wal.marks().durable() {
                return None;
            }
            if at < held.start {
                parts.push(Extent::new(at, held.start - at));
            }
            at = held.end;
        }
        if at < end {
            parts.push(Extent::new(at, end - at));
        }
        Some(parts)
    }

    /// What records up to `seq` have of an extent is lost: it is not written back, and [`look_up`](Self::look_up) finds
    /// nothing of it.
    pub fn skip(&mut self, now: Instant, extent: Extent, seq: u64) {
        let end = extent.end().expect("a volume ends before the address space does");
        self.destage.skip(now, (extent.offset, end), seq, &self.wal, &mut self.effects);
        self.wal.skip((extent.offset, end), seq);
        self.cleaner.try_again();
    }

    /// Answers requests that wait for an upstream that another gateway owns for good, or for room in a log that will
    /// never have any. Whether there were any.
    pub(super) fn refuse_waiting(&mut self) -> bool {
        if self.wal.records().unsynced() > 0 {
            // The payload is needed until it is durable.
            return false;
        }
        let waiting = self.admission.take_all();
        let waiting = waiting.iter().map(|one| (one.key, self.waits_for(one)));
        let mut keys: Vec<_> = waiting.collect();
        self.acks.take_awaiting_upstream(|key| keys.push((key, DRAIN)));
        for &(key, rule) in &keys {
            self.effects.push_back(Effect::Ack(key, Err(IoError::Fenced), rule));
        }
        !keys.is_empty()
    }
}
