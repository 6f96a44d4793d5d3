//! The requests that are in the log and not answered, by what they wait for.

use crate::clock::{Duration, Instant};
use crate::policy::Rule;
use crate::request::RequestKey;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A request whose records are all in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Its last record, or the last that it waits for.
    pub(super) last: u64,
    pub(super) key: RequestKey,
    /// It closes an epoch when it is acknowledged.
    pub(super) flush: bool,
    /// What held it before it was admitted.
    pub(super) held: Option<Rule>,
    pub(super) arrived: Instant,
    pub(super) admitted: Instant,
}

/// A request that is passed on when everything before it is upstream.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// The record that it waits for.
    last: u64,
    key: RequestKey,
    /// It changes the upstream.
    updates: bool,
    /// A flush of what went past the log was begun after it came.
    flushing: bool,
    /// Such a flush has ended.
    flushed: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Acks {
    /// Requests that wait for durability.
    committing: VecDeque<Pending>,
    /// Requests that wait for the upstream, in order of their last record.
    awaiting_upstream: VecDeque<Pending>,
    /// Flushes that wait for what bypassed the log to be durable upstream, in the order of their arrival.
    awaiting_debt: VecDeque<Pending>,
    /// Requests that are acknowledged as soon as the next write to the log device has been asked for.
    ready: Vec<Pending>,
    drains: Vec<Drain>,
    /// How many were acknowledged.
    acked: u64,
}

impl Acks {
    /// It is acknowledged when its last record is durable.
    pub(super) fn await_commit(&mut self, pending: Pending) {
        // After a failed write a flush may wait behind a later record. It is then acknowledged late, never early.
        self.committing.push_back(pending);
    }

    /// It is acknowledged when its last record is upstream.
    pub(super) fn await_upstream(&mut self, pending: Pending) {
        assert!(
            self.awaiting_upstream.back().is_none_or(|last| last.last <= pending.last),
            "requests wait for the upstream in the order of their records: {pending:?}"
        );
        self.awaiting_upstream.push_back(pending);
    }

    /// It covers what bypassed the log.
    pub(super) fn await_debt(&mut self, flush: Pending) {
        assert!(flush.flush, "only a flush covers what bypassed the log: {flush:?}");
        self.awaiting_debt.push_back(flush);
    }

    /// Takes out the flushes that wait for what bypassed the log.
    pub(super) fn take_awaiting_debt(&mut self) -> VecDeque<Pending> {
        core::mem::take(&mut self.awaiting_debt)
    }

    /// Takes out the next of them that has waited for `hold`.
    pub(super) fn expire_awaiting_debt(&mut self, now: Instant, hold: Duration) -> Option<Pending> {
        self.awaiting_debt.pop_front_if(|first| now >= first.arrived + hold)
    }

    /// When the first of them has waited for `hold`.
    pub(super) fn debt_deadline(&self, hold: Duration) -> Option<Instant> {
        self.awaiting_debt.front().map(|first| first.arrived + hold)
    }

    /// How many of them there are.
    pub(super) fn awaiting_debt(&self) -> usize {
        self.awaiting_debt.len()
    }

    /// It is acknowledged when the effect that takes its payload has been asked for.
    pub(super) fn await_effect(&mut self, pending: Pending) {
        self.ready.push(pending);
    }

    /// A request wants all records up to `last` to be upstream; one that `updates` changes the upstream then.
    pub(super) fn await_drained(&mut self, last: u64, key: RequestKey, updates: bool) {
        self.drains.push(Drain { last, key, updates, flushing: false, flushed: false });
    }

    /// Whether a request waits to change the upstream.
    pub(super) fn has_updates(&self) -> bool {
        self.drains.iter().any(|drain| drain.updates)
    }

    /// The last record that such requests have waited for, of those up to `applied`.
    pub(super) fn update_behind(&self, applied: u64) -> Option<u64> {
        let updates = self.drains.iter().filter(|drain| drain.updates);
        updates.map(|drain| drain.last).filter(|&last| last <= applied).max()
    }

    /// Those whose effect has been asked for.
    pub(super) fn take_ready(&mut self) -> Vec<Pending> {
        core::mem::take(&mut self.ready)
    }

    /// The next whose records, up to `durable`, are durable.
    pub(super) fn pop_committed(&mut self, durable: u64) -> Option<Pending> {
        self.committing.pop_front_if(|first| first.last <= durable)
    }

    /// The next whose records, up to `applied`, are upstream.
    pub(super) fn pop_applied(&mut self, applied: u64) -> Option<Pending> {
        self.awaiting_upstream.pop_front_if(|first| first.last <= applied)
    }

    /// Takes out the requests that wait for records up to `applied`; with `owes_flush` only if a flush of what went
    /// past the log has ended since they came; one that changes the upstream only if records up to its last are `void`.
    /// `drained` hears whether it is one.
    pub(super) fn take_drained(
        &mut self,
        applied: u64,
        owes_flush: bool,
        void: impl Fn(u64) -> bool,
        mut drained: impl FnMut(RequestKey, bool),
    ) {
        self.drains.retain(|drain| {
            let done = drain.last <= applied
                && (drain.flushed || !owes_flush)
                && (!drain.updates || void(drain.last));
            if done {
                drained(drain.key, drain.updates);
            }
            !done
        });
    }

    /// Takes out all requests that wait for the upstream.
    pub(super) fn take_awaiting_upstream(&mut self, mut taken: impl FnMut(RequestKey)) {
        let drains = core::mem::take(&mut self.drains).into_iter().map(|drain| drain.key);
        let pending = core::mem::take(&mut self.awaiting_upstream).into_iter();
        let flushes = self.take_awaiting_debt().into_iter();
        pending.chain(flushes).map(|one| one.key).chain(drains).for_each(&mut taken);
    }

    /// A flush of what went past the log begins.
    pub(super) fn side_flush_began(&mut self) {
        for drain in &mut self.drains {
            drain.flushing = true;
        }
    }

    /// It has ended.
    pub(super) fn side_flush_ended(&mut self) {
        for drain in &mut self.drains {
            drain.flushed |= drain.flushing;
        }
    }

    /// Acknowledgements need not wait for the upstream any more; with `flushes` those of flushes still do.
    pub(super) fn stop_deferring(&mut self, flushes: bool) {
        for pending in core::mem::take(&mut self.awaiting_upstream) {
            let to = if flushes && pending.flush {
                &mut self.awaiting_upstream
            } else {
                &mut self.committing
            };
            to.push_back(pending);
        }
        sort(&mut self.committing);
    }

    /// The log device has failed: all wait for the upstream, flushes for all records up to `last`.
    pub(super) fn log_failed(&mut self, last: u64) {
        self.awaiting_upstream.extend(self.committing.drain(..));
        sort(&mut self.awaiting_upstream);
        for pending in &mut self.awaiting_upstream {
            // What a host was told, in mode `ram`, may have been in the batches that were lost.
            if pending.flush {
                pending.last = last;
            }
        }
        sort(&mut self.awaiting_upstream);
        assert!(
            self.awaiting_upstream.back().is_none_or(|latest| latest.last <= last),
            "a request waits for records that are there: {last}"
        );
    }

    pub(super) fn count_acked(&mut self) {
        self.acked += 1;
    }

    /// How many were acknowledged.
    pub(super) const fn acked(&self) -> u64 {
        self.acked
    }

    /// How many wait for durability.
    pub(super) fn committing(&self) -> usize {
        self.committing.len()
    }

    /// How many wait for the upstream.
    pub(super) fn awaiting_upstream(&self) -> usize {
        self.awaiting_upstream.len()
    }

    pub(super) fn has_drains(&self) -> bool {
        !self.drains.is_empty()
    }
}

fn sort(queue: &mut VecDeque<Pending>) {
    queue.make_contiguous().sort_by_key(|pending| pending.last);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(last: u64) -> Pending {
        let (key, now) = (RequestKey::default(), Instant::ZERO);
        Pending { last, key, flush: false, held: None, arrived: now, admitted: now }
    }

    /// A request behind one with a later record would be answered late: it is noticed.
    #[test]
    #[should_panic(expected = "in the order of their records")]
    fn requests_wait_in_order() {
        let mut acks = Acks::default();
        acks.await_upstream(pending(2));
        acks.await_upstream(pending(1));
    }

    /// A request that waited for a record that does not exist would never be answered: it is noticed.
    #[test]
    #[should_panic(expected = "waits for records that are there")]
    fn requests_wait_for_records_that_exist() {
        let mut acks = Acks::default();
        acks.await_commit(pending(5));
        acks.log_failed(3);
    }

    /// A request is answered when its last record is there, and not before.
    #[test]
    fn requests_are_answered_in_time() {
        let mut acks = Acks::default();
        acks.await_upstream(pending(1));
        acks.await_upstream(pending(2));
        assert_eq!(acks.pop_applied(1).map(|one| one.last), Some(1));
        assert!(acks.pop_applied(1).is_none());
    }
}
