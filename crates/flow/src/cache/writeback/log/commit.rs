//! When the log commits, and what the end of a commit means for hosts and for write-back.

use super::super::admission::FILL_PACED;
use super::super::effect::{COMMIT, Notice};
use super::super::settings::Mode;
use super::super::wal::{Cycle, Failure, Plan};
use super::Log;
use crate::clock::Instant;
use crate::error::IoError;

impl Log {
    /// Begins a commit cycle if there is anything to write or to sync.
    pub(super) fn commit(&mut self, now: Instant) -> bool {
        if self.wal.is_committing() {
            return false;
        }
        if let Some(error) = self.stranded() {
            self.fail(now, error);
        }
        let bypassed = self.bypasses();
        // What recovery has found must be durable before anything is built on it.
        let working = self.wal.is_working();
        let (batch, copies) = if working { self.compose(now) } else { None }.unzip();
        let copies = copies.unwrap_or(false);
        let mut plan = Plan { batch, copies, bypassed, ..Plan::default() };
        let failed = self.wal.failed();
        plan.super_block = (self.switch.is_marking() && !self.wal.is_void())
            || self.wants_void()
            || (failed && !self.wal.is_unmarkable() && self.wants_applied_mark());
        if working && plan.batch.is_none() && !plan.super_block && self.is_mark_due(now) {
            if self.wal.lacks_durable_mark() && self.wal.fill() < FILL_PACED {
                plan.batch = self.wal.write_note();
                plan.note = plan.batch.is_some();
            }
            plan.super_block = !plan.note;
        }
        plan.sync = self.is_sync_awaited();
        if !self.wal.begin_cycle(now, plan, &mut self.effects) {
            return false;
        }
        for pending in self.acks.take_ready() {
            self.ack(now, pending, COMMIT);
        }
        true
    }

    /// The fault that leaves no place for records that are to be written again, if write-back cannot free one: the
    /// oldest epoch has such records, and nothing of it goes upstream before they are durable.
    fn stranded(&self) -> Option<IoError> {
        let working = self.wal.is_working();
        let fault = if working { self.wal.stranded() } else { None };
        let durable = self.wal.marks().durable();
        fault.filter(|_| self.destage.epochs().oldest().is_some_and(|epoch| epoch.last > durable))
    }

    /// Whether a request, an epoch or the cleaning of the log waits for what was written to be durable.
    fn is_sync_awaited(&self) -> bool {
        let (epochs, durable) = (self.destage.epochs(), self.wal.marks().durable());
        epochs.closed().is_some_and(|epoch| epoch.last > durable)
            || self.cleaner.waits_for() > durable
            || self.closing
            || self.acks.committing() > 0
            || self.acks.awaiting_upstream() > 0
    }

    /// Whether the log device must say at once how far write-back has come.
    fn wants_applied_mark(&self) -> bool {
        let waits =
            self.acks.has_drains() && self.wal.on_device().applied < self.wal.marks().applied();
        waits || self.destage.waits_for_mark(&self.wal)
    }

    fn is_mark_due(&self, now: Instant) -> bool {
        self.wal.is_mark_due(now, self.closing || self.wants_applied_mark())
    }

    /// All that was written is durable.
    pub(super) fn synced(&mut self, now: Instant, cycle: &Cycle) {
        self.wal.synced(cycle, &mut self.effects);
        self.settle(self.wal.marks().applied());
        self.ack_applied(now);
        self.wal.restart_marker(now, self.bypasses());
        self.ack_committed(now);
        if cycle.batch && !cycle.note && !cycle.copies && self.settings.mode == Mode::Log {
            self.switch.latency_mut().committed(now.saturating_since(cycle.began));
        }
    }

    pub(super) fn cycle_failed(&mut self, now: Instant, cycle: &Cycle, error: IoError) {
        match self.wal.cycle_failed(cycle, error, &mut self.effects) {
            Failure::Retry => {}
            Failure::Fatal => self.fail(now, error),
            Failure::Unmarkable => {
                self.ack_applied(now);
                self.switch.mark_failed(now);
            }
        }
    }

    /// The log device has failed: all goes upstream from memory, then new writes do.
    fn fail(&mut self, now: Instant, error: IoError) {
        self.notice(Notice::LogFailed(error));
        self.wal.fail();
        self.switch.log_failed();
        // A write that is half in the log must end: the rest of it has a number, and no place.
        while self.admission.is_partial() {
            let first = self.admission.front();
            let left = first.map_or(0, |first| first.extent.length - first.done);
            let most = u64::from(self.settings.batch_bytes);
            if let Some(pending) = self.admit_first(now, left.min(most)) {
                self.acks.await_upstream(pending);
            }
        }
        self.acks.log_failed(self.wal.marks().last());
    }
}
