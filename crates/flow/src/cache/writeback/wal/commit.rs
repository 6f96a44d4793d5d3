//! Group commit: one write of a batch, or of a super block, or both, and one sync at a time.
//!
//! A failed write or sync is final for its segment: the kernel may have dropped the pages, and the next sync may
//! succeed without them. What is not known to be durable is written again, from memory, to a fresh segment. If that
//! fails too, or there is none and write-back cannot free one, the log device has failed.

use super::super::effect::{Effect, LocalId, Memory, Notice, Write};
use super::super::format::Super;
use super::super::settings::Mode;
use super::Wal;
use super::cycle::{Cycle, CycleEnd, Failure, Plan};
use super::marker::Marks;
use crate::clock::Instant;
use crate::error::IoError;
use crate::request::Outcome;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl Wal {
    /// Whether durable data of hosts is not marked by a later header.
    pub(crate) const fn lacks_durable_mark(&self) -> bool {
        self.marker.lacks_durable()
    }

    /// Whether a reader of the device would not know how far the log has come.
    pub(crate) const fn is_unmarked(&self, bypassed: bool) -> bool {
        self.marker.is_behind(&self.marks, bypassed)
    }

    /// Write-back has come further, or the log is used again: a header should say so before long.
    pub(crate) fn mark_soon(&mut self, now: Instant) {
        self.marker.fall_behind(now);
    }

    /// Whether headers have to say how far the log has come: when that is `urgent`, or was put off for long enough.
    pub(crate) fn is_mark_due(&self, now: Instant, urgent: bool) -> bool {
        (self.marker.is_waiting() && urgent) || self.marker.deadline().is_some_and(|at| now >= at)
    }

    /// Whether a durable super block says that everything is upstream, and more may be.
    pub(crate) const fn is_void(&self) -> bool {
        self.marker.is_void(self.marks.applied())
    }

    /// Whether both super blocks say durably that everything up to this record is upstream, and more may be.
    pub(crate) const fn is_void_up_to(&self, last: u64) -> bool {
        self.marker.is_void(last)
    }

    /// Begins a commit cycle if there is anything to write or to sync. Whether it did.
    pub(crate) fn begin_cycle(
        &mut self,
        now: Instant,
        plan: Plan,
        effects: &mut VecDeque<Effect>,
    ) -> bool {
        assert!(self.cycle.is_none(), "one commit cycle at a time");
        let Plan { batch, note, copies, super_block, bypassed, sync } = plan;
        let (durable, applied) = (self.marks.durable(), self.marks.applied());
        let says = Marks { durable, applied, applied_super: applied, bypassed };
        let super_block = super_block || (self.is_working() && self.space.wants_mark());
        let super_block = super_block.then(|| self.super_block(bypassed));
        let opening = !self.opened && !self.failed();
        let syncs = match self.settings.mode {
            Mode::Log => batch.is_some() || super_block.is_some() || opening,
            Mode::Ram => {
                note || super_block.is_some()
                    || opening
                    || self.is_sync_due(now, batch.is_some(), sync)
            }
        };
        if batch.is_none() && super_block.is_none() && !syncs {
            return false;
        }
        let mut cycle = Cycle {
            writes: Vec::new(),
            sync: None,
            syncs,
            batch: batch.is_some(),
            note,
            copies,
            super_block: super_block.as_ref().map(|&(generation, oldest, _)| (generation, oldest)),
            says,
            began: now,
            error: None,
        };
        for write in batch.into_iter().chain(super_block.map(|(.., write)| write)) {
            cycle.writes.push(write.io);
            effects.push_back(Effect::Write(write));
        }
        if cycle.batch && self.settings.mode == Mode::Ram {
            self.unsynced_since.get_or_insert(now);
        }
        for io in self.buffers.take_superseded() {
            self.drop_buffer(io, effects);
        }
        if cycle.writes.is_empty() {
            cycle.sync = Some(self.sync(effects));
        }
        self.cycle = Some(cycle);
        true
    }

    /// Whether the cache of the log device has to be flushed now. Mode `ram` only.
    fn is_sync_due(&self, now: Instant, batch: bool, wanted: bool) -> bool {
        let Some(since) = self.unsynced_since.or(batch.then_some(now)) else { return false };
        let bytes = self.space.head().map_or(0, |head| head.length - head.sealed);
        self.sync_wanted
            || wanted
            || bytes >= self.settings.epoch_bytes
            || now >= since + self.settings.epoch_age
    }

    /// The next super block, with its generation and the oldest segment that it names.
    fn super_block(&mut self, bypassed: bool) -> (u64, u64, Write) {
        let io = self.next_io();
        let oldest = self.space.nameable();
        let block = Super {
            log: self.identity.log,
            volume: self.settings.volume,
            incarnation: self.identity.incarnation,
            generation: self.identity.generation + 1,
            owner: self.identity.owner,
            segment: self.settings.segment,
            segments: self.settings.segments(),
            block: self.settings.block,
            oldest,
            applied: self.marks.applied(),
            durable: self.marks.durable(),
            clean: self.records.is_empty(),
            bypassed,
        };
        let head = block.encode();
        let bytes = head.len() as u64;
        let (at, payload) = (block.place(), Vec::new());
        let write = Write { io, at, bytes, head, sums_at: 0, sum: 0, payload };
        (block.generation, oldest, write)
    }

    fn sync(&mut self, effects: &mut VecDeque<Effect>) -> LocalId {
        let io = self.next_io();
        effects.push_back(Effect::Sync(io));
        io
    }

    /// A write or a sync of the log device has ended.
    pub(crate) fn io_ended(
        &mut self,
        io: LocalId,
        outcome: Outcome,
        effects: &mut VecDeque<Effect>,
    ) -> CycleEnd {
        let Some(mut cycle) = self.cycle.take() else { return CycleEnd::None };
        if cycle.sync == Some(io) {
            return match outcome {
                Ok(()) => CycleEnd::Synced(cycle),
                Err(error) => CycleEnd::Failed(cycle, error),
            };
        }
        let Some(i) = cycle.writes.iter().position(|&write| write == io) else {
            self.cycle = Some(cycle);
            return CycleEnd::None;
        };
        assert!(cycle.sync.is_none(), "a sync follows the writes of its cycle");
        cycle.writes.remove(i);
        cycle.error = cycle.error.or(outcome.err());
        if !self.buffers.is_kept(io) {
            effects.push_back(Effect::Release(io));
        }
        if !cycle.writes.is_empty() {
            self.cycle = Some(cycle);
            return CycleEnd::None;
        }
        if let Some(error) = cycle.error {
            return CycleEnd::Failed(cycle, error);
        }
        if cycle.batch {
            self.marks.store();
        }
        if cycle.syncs {
            cycle.sync = Some(self.sync(effects));
            self.cycle = Some(cycle);
        }
        CycleEnd::None
    }

    /// All that was written is durable.
    pub(crate) fn synced(&mut self, cycle: &Cycle, effects: &mut VecDeque<Effect>) {
        assert!(cycle.writes.is_empty() && cycle.error.is_none(), "a sync covers what was written");
        self.space.seal();
        if !self.opened && !self.failed() {
            self.opened = true;
            self.space.opened();
        }
        self.failures = 0;
        self.sync_wanted = false;
        self.unsynced_since = None;
        self.marker.synced(cycle.says, cycle.super_block.is_some());
        if let Some((generation, oldest)) = cycle.super_block {
            assert!(
                generation > self.identity.generation,
                "super blocks are counted: {generation}"
            );
            self.identity.generation = generation;
            self.space.marked(oldest);
        }
        let synced = self.marks.sync();
        self.records.synced(self.marks.durable());
        if synced > 0 && !cycle.note {
            self.marker.data_synced(self.marks.durable());
        }
        if !self.failed() {
            for _ in 0..synced.min(self.records.unsynced()) {
                self.pop_unsynced(effects);
            }
        }
    }

    /// Says from when on the device is behind, after a sync.
    pub(crate) fn restart_marker(&mut self, now: Instant, bypassed: bool) {
        let behind = self.is_unmarked(bypassed);
        self.marker.restart(now, behind);
    }

    /// The oldest record that could be written again is not needed for that any more.
    pub(super) fn pop_unsynced(&mut self, effects: &mut VecDeque<Effect>) {
        let popped = self.records.pop_unsynced();
        if let Some(Memory::Batch(io, _)) = popped.and_then(|unsynced| unsynced.memory) {
            self.drop_buffer(io, effects);
        }
    }

    /// One record less needs the bytes of this write.
    fn drop_buffer(&mut self, io: LocalId, effects: &mut VecDeque<Effect>) {
        if self.buffers.drop_user(io) {
            effects.push_back(Effect::Release(io));
        }
    }

    /// A write or a sync has failed.
    pub(crate) fn cycle_failed(
        &mut self,
        cycle: &Cycle,
        error: IoError,
        effects: &mut VecDeque<Effect>,
    ) -> Failure {
        self.failures += 1;
        self.fault = Some(error);
        self.counters.faults += 1;
        effects.push_back(Effect::Notice(Notice::LogFault(error)));
        if self.failed() {
            self.unmarkable = true;
            return Failure::Unmarkable;
        }
        if cycle.batch || self.unsynced_since.is_some() || !self.opened {
            self.space.freeze(self.marks.durable());
            self.marks.roll_back();
            self.unsynced_since = None;
        }
        if self.failures > RETRIES || !self.opened { Failure::Fatal } else { Failure::Retry }
    }

    /// The log device has failed for good: nothing more is written to it but super blocks.
    pub(crate) fn fail(&mut self) {
        self.marks.fail_device();
        self.space.freeze(self.marks.durable());
    }

    /// When the next cycle is due although nothing happens.
    pub(crate) fn commit_deadline(&self) -> Option<Instant> {
        if self.cycle.is_some() || self.failed() {
            return None;
        }
        let sync = self.unsynced_since.map(|since| since + self.settings.epoch_age);
        self.marker.deadline().into_iter().chain(sync).min()
    }
}

/// How many times in a row a fresh segment is tried.
const RETRIES: u32 = 1;
