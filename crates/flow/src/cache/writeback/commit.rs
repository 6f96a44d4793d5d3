//! Group commit: one write of a batch, or of a super block, and one sync at a time.
//!
//! A failed write or sync is final for its segment: the kernel may have dropped the pages, and the next
//! sync may succeed without them. What is not known to be durable is written again, from memory, to a
//! fresh segment. If that fails too, the log device has failed.

use super::effect::{COMMIT, Effect, LocalId, Notice, Write};
use super::format::Super;
use super::gate::FILL_PACED;
use super::log::{Log, Marks};
use super::settings::Mode;
use super::switch::State;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::request::Outcome;
use alloc::vec::Vec;

/// What is being written to the log device, up to and with the sync.
#[derive(Clone, Debug)]
pub(super) struct Cycle {
    /// Writes that have not ended.
    writes: Vec<LocalId>,
    sync: Option<LocalId>,
    /// It has to end with a sync.
    syncs: bool,
    batch: bool,
    /// The batch is a note, which nobody waits for.
    note: bool,
    /// Generation and oldest segment of the super block.
    mark: Option<(u64, u64)>,
    /// What the headers in it say.
    says: Marks,
    began: Instant,
    error: Option<IoError>,
}

impl Log {
    /// Begins a cycle if there is anything to write or to sync.
    pub(super) fn commit(&mut self, now: Instant) -> bool {
        if self.cycle.is_some() {
            return false;
        }
        let says = Marks {
            durable: self.durable,
            applied: self.applied,
            applied_super: self.applied,
            passed: self.passes(),
        };
        // What recovery has found must be durable before anything is built on it.
        let working = self.opened && !self.failed;
        let mut batch = if working { self.compose(now) } else { None };
        let (mut note, mut mark) = (false, self.marking());
        mark |= self.failed && !self.unmarkable && self.wants_applied_mark();
        if working && batch.is_none() && !mark && self.mark_due(now) {
            if self.witness > self.marked.durable && self.fill() < FILL_PACED {
                batch = self.compose_note(now);
                note = batch.is_some();
            }
            mark = !note;
        }
        mark |= working && self.space.wants_mark();
        let mark = mark.then(|| self.super_block());
        let opening = !self.opened && !self.failed;
        let syncs = match self.settings.mode {
            Mode::Log => batch.is_some() || mark.is_some() || opening,
            Mode::Ram => note || mark.is_some() || opening || self.wants_sync(now, batch.is_some()),
        };
        if batch.is_none() && mark.is_none() && !syncs {
            return false;
        }
        let mut cycle = Cycle {
            writes: Vec::new(),
            sync: None,
            syncs,
            batch: batch.is_some(),
            note,
            mark: mark.as_ref().map(|&(generation, oldest, _)| (generation, oldest)),
            says,
            began: now,
            error: None,
        };
        for write in batch.into_iter().chain(mark.map(|(.., write)| write)) {
            cycle.writes.push(write.io);
            self.effects.push_back(Effect::Write(write));
        }
        if cycle.batch && self.settings.mode == Mode::Ram {
            self.unsynced.get_or_insert(now);
        }
        // Bytes of requests, and of earlier writes, have been taken.
        for io in core::mem::take(&mut self.let_go) {
            self.forget(io);
        }
        for pending in core::mem::take(&mut self.at_once) {
            self.ack(now, pending, COMMIT);
        }
        if cycle.writes.is_empty() {
            cycle.sync = Some(self.sync());
        }
        self.cycle = Some(cycle);
        true
    }

    /// Whether the cache of the log device has to be flushed now. Mode `ram` only.
    fn wants_sync(&self, now: Instant, batch: bool) -> bool {
        let Some(since) = self.unsynced.or(batch.then_some(now)) else { return false };
        let behind = self.epochs.closed().is_some_and(|epoch| epoch.last > self.durable);
        let bytes = self.space.head().map_or(0, |head| head.length - head.sealed);
        self.sync_due
            || behind
            || self.closing
            || !self.committing.is_empty()
            || !self.landing.is_empty()
            || bytes >= self.settings.epoch_bytes
            || now >= since + self.settings.epoch_age
    }

    /// Whether what is on the device must be told how far things have come.
    fn mark_due(&self, now: Instant) -> bool {
        (self.unmarked.is_some() && (self.closing || self.wants_applied_mark()))
            || self.unmarked.is_some_and(|since| now >= since + MARK)
    }

    /// The next super block, with its generation and the oldest segment that it names.
    fn super_block(&mut self) -> (u64, u64, Write) {
        let io = self.local_id();
        let oldest = self.space.nameable();
        let block = Super {
            log: self.id,
            volume: self.settings.volume,
            incarnation: self.incarnation,
            generation: self.generation + 1,
            owner: self.owner_logged,
            segment: self.settings.segment,
            segments: self.settings.segments(),
            block: self.settings.block,
            oldest,
            applied: self.applied,
            durable: self.durable,
            clean: self.records.is_empty(),
            passed: self.passes(),
        };
        let head = block.encode();
        let write = Write {
            io,
            at: block.place(),
            bytes: head.len() as u64,
            head,
            sums_at: 0,
            payload: Vec::new(),
        };
        (block.generation, oldest, write)
    }

    fn sync(&mut self) -> LocalId {
        let io = self.local_id();
        self.effects.push_back(Effect::Sync(io));
        io
    }

    /// A write or a sync has ended.
    pub(super) fn committed(&mut self, now: Instant, io: LocalId, outcome: Outcome) {
        let Some(cycle) = &mut self.cycle else { return };
        if cycle.sync == Some(io) {
            let cycle = self.cycle.take().expect("it was just seen");
            match outcome {
                Ok(()) => self.synced(now, &cycle),
                Err(error) => self.fault(now, &cycle, error),
            }
            return;
        }
        let Some(i) = cycle.writes.iter().position(|&write| write == io) else { return };
        cycle.writes.remove(i);
        cycle.error = cycle.error.or(outcome.err());
        let ended = cycle.writes.is_empty();
        let (error, syncs, batch) = (cycle.error, cycle.syncs, cycle.batch);
        if !self.buffers.contains_key(&io) {
            self.effects.push_back(Effect::Release(io));
        }
        if !ended {
            return;
        }
        if let Some(error) = error {
            let cycle = self.cycle.take().expect("it was just seen");
            self.fault(now, &cycle, error);
            return;
        }
        if batch {
            self.stored = self.written;
        }
        let sync = syncs.then(|| self.sync());
        match (&mut self.cycle, sync) {
            (Some(cycle), Some(sync)) => cycle.sync = Some(sync),
            _ => self.cycle = None,
        }
    }

    /// Everything that was written is durable.
    fn synced(&mut self, now: Instant, cycle: &Cycle) {
        self.space.seal();
        if !self.opened && !self.failed {
            self.opened = true;
            self.space.opened();
        }
        self.failures = 0;
        self.sync_due = false;
        self.unsynced = None;
        self.marked.durable = self.marked.durable.max(cycle.says.durable);
        self.marked.applied = self.marked.applied.max(cycle.says.applied);
        if let Some((generation, oldest)) = cycle.mark {
            self.generation = generation;
            self.marked.applied_super = cycle.says.applied_super;
            self.marked.passed = cycle.says.passed;
            self.space.marked(oldest);
        }
        if self.written > self.durable && !cycle.note {
            self.witness = self.written;
        }
        let gone = (self.written - self.durable).min(self.fresh.len() as u64);
        self.durable = self.written;
        if !self.failed {
            for _ in 0..gone {
                self.pop_fresh();
            }
        }
        self.settle(self.applied);
        self.land(now);
        self.unmarked = self.is_unmarked().then_some(now);
        while let Some(&first) = self.committing.front() {
            if first.last > self.durable {
                break;
            }
            self.committing.pop_front();
            self.ack(now, first, COMMIT);
        }
        if cycle.batch && !cycle.note && self.settings.mode == Mode::Log {
            self.earn.committed(now.saturating_since(cycle.began));
        }
    }

    /// The oldest record that could be written again is not needed for that any more.
    pub(super) fn pop_fresh(&mut self) {
        if let Some(super::effect::Memory::Batch(io, _)) =
            self.fresh.pop_front().and_then(|fresh| fresh.memory)
        {
            self.forget(io);
        }
    }

    /// Whether a reader of the device would not know how far things have come.
    pub(super) const fn is_unmarked(&self) -> bool {
        self.witness > self.marked.durable
            || self.applied > self.marked.applied
            || (self.marked.passed && !self.passes())
    }

    /// A write or a sync has failed.
    fn fault(&mut self, now: Instant, cycle: &Cycle, error: IoError) {
        self.failures += 1;
        self.counters.faults += 1;
        self.notice(Notice::LogFault(error));
        if self.failed {
            self.unmarkable = true;
            self.land(now);
            self.mark_failed(now);
            return;
        }
        let memory = self.opened;
        if cycle.batch || self.unsynced.is_some() || !memory {
            self.space.freeze(self.durable);
            self.written = self.durable;
            self.stored = self.durable;
            self.unsynced = None;
        }
        if self.failures > RETRIES || !memory {
            self.fail(now, error);
        }
    }

    /// When the next cycle is due although nothing happens.
    pub(super) fn commit_deadline(&self) -> Option<Instant> {
        if self.cycle.is_some() || self.failed {
            return None;
        }
        let mark = self.unmarked.map(|since| since + MARK);
        let sync = self.unsynced.map(|since| since + self.settings.epoch_age);
        mark.into_iter().chain(sync).min()
    }

    /// After [`close`](Self::close), the end.
    pub(super) fn finish(&mut self) -> bool {
        let quiet = self.cycle.is_none()
            && self.gate.queue.is_empty()
            && self.committing.is_empty()
            && if self.failed {
                // What is in memory only is nowhere else.
                matches!(self.state, State::Through { .. })
            } else {
                self.durable + 1 == self.next && !self.is_unmarked()
            };
        let ends = self.closing && quiet && !self.closed;
        if ends {
            self.closed = true;
            self.effects.push_back(Effect::Closed);
        }
        ends
    }
}

/// Within this time after the last commit, the device says that it was durable.
const MARK: Duration = Duration::from_millis(100);

/// So many times in a row a fresh segment is tried.
const RETRIES: u32 = 1;
