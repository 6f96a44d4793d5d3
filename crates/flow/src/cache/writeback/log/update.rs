//! Requests that go to the upstream although the log is in use: those that read there, and updates, which change it.
//!
//! Both wait until what was acknowledged before is upstream and flushed. What an update changes, no record of the log may
//! be written over after a crash, whatever rots: both super blocks say first that everything before is upstream. They also
//! say that writes may have bypassed the log, so that after a crash in the middle of an update hosts' flushes reach what
//! the upstream has of it in a cache.

use super::Log;
use crate::cache::writeback::effect::Effect;
use crate::clock::Instant;
use crate::request::{Outcome, RequestKey};

impl Log {
    /// [`Effect::Drained`] follows when everything that was acknowledged before is upstream and flushed, and the
    /// log says so durably: opened again, it would write nothing of it. [`Effect::Ack`] with an error follows if another
    /// gateway owns the upstream.
    pub fn await_drained(&mut self, now: Instant, key: RequestKey) {
        self.acks.await_drained(self.wal.marks().last(), key, false);
        self.ack_applied(now);
    }

    /// The same for a request that changes the upstream then, durably; [`update_ended`](Self::update_ended) says that it
    /// has.
    pub fn await_update(&mut self, now: Instant, key: RequestKey) {
        self.acks.await_drained(self.wal.marks().last(), key, true);
        self.ack_applied(now);
    }

    /// An update that [`Effect::Drained`] let go has ended.
    pub fn update_ended(&mut self, now: Instant, outcome: Outcome) {
        let doubtful = outcome.is_err() && self.destage.upstream_flush();
        self.destage.debt_mut().update_ended(doubtful);
        self.mark_soon_if_behind(now);
    }

    /// Lets requests go that wait for records of which all up to `safe` are upstream.
    pub(super) fn pass_drained(&mut self, safe: u64) {
        // A host may rely on the upstream alone after that, so the log has to know it for sure as well.
        let known = if self.wal.failed() { safe } else { self.wal.on_device().applied };
        let applied = self.wal.marks().applied().min(known);
        let Self { acks, destage, wal, switch, effects, .. } = self;
        let mut updates = 0;
        acks.take_drained(
            applied,
            destage.debt().owes_flush(),
            |last| switch.is_through() || wal.is_void_up_to(last),
            |key, update| {
                updates += u64::from(update);
                effects.push_back(Effect::Drained(key));
            },
        );
        for _ in 0..updates {
            destage.debt_mut().begin_update();
        }
    }

    /// Whether an update waits, or is outstanding.
    pub(super) fn updates(&self) -> bool {
        self.acks.has_updates() || self.destage.debt().has_updates()
    }

    /// Whether an update waits only for super blocks that say that what is before it is upstream.
    pub(super) fn wants_void(&self) -> bool {
        let behind = self.acks.update_behind(self.wal.marks().applied());
        self.wal.is_working() && behind.is_some_and(|last| !self.wal.is_void_up_to(last))
    }
}
