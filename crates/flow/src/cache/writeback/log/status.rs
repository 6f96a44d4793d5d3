//! The status of a log, put together from its parts.

use super::super::status::{Status, Upstream, Waiters};
use super::Log;
use crate::clock::{Duration, Instant};

impl Log {
    /// How the log is doing.
    pub fn status(&self, now: Instant) -> Status {
        let age = |since| now.saturating_since(since);
        let upstream = match (self.destage.blocked(), self.destage.outage()) {
            (Some((at, since)), _) => Upstream::Blocked { at, age: age(since) },
            (None, Some(outage)) => Upstream::Away {
                age: age(outage.since),
                attempts: outage.attempts,
                error: outage.error,
            },
            (None, None) => Upstream::Up,
        };
        let (rate, behind) = (self.admission.rate(), self.wal.behind());
        // While nothing is written upstream, the rate of the past says nothing about the end.
        let eta = (rate > 0 && behind > 0 && upstream == Upstream::Up).then(|| {
            let nanos = u128::from(behind) * 1_000_000_000 / u128::from(rate);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        });
        let (marks, epochs) = (self.wal.marks(), self.destage.epochs());
        let (logged, destaged) = (self.wal.counters(), self.destage.counters());
        let first = self.admission.front();
        Status {
            phase: self.switch.phase(),
            strict: epochs.strict(),
            failed: self.wal.failed(),
            dirty_bytes: destaged.dirty,
            dirty_records: self.wal.records().dirty(),
            held: self.wal.records().payload(),
            oldest_dirty: epochs.oldest().map(|epoch| age(epoch.opened)),
            fill: self.wal.fill(),
            segments: self.wal.segments(),
            last: marks.last(),
            durable: marks.durable(),
            applied: marks.applied(),
            epochs: epochs.len() as u64,
            destaged_epochs: destaged.epochs,
            fua_epochs: destaged.fua_epochs,
            volatile_upstream: self.destage.upstream_flush(),
            drain_rate: rate,
            eta,
            upstream,
            jobs: self.destage.jobs() as u32,
            waiting: Waiters {
                count: self.admission.len() as u64,
                oldest: first.map_or(Duration::ZERO, |first| age(first.arrived)),
                rule: first.map(|first| self.waits_for(first)),
            },
            committing: self.acks.committing() as u64,
            awaiting_upstream: self.acks.awaiting_upstream() as u64,
            debt: self.in_debt().then(|| age(self.destage.debt().since().unwrap_or(now))),
            awaiting_debt: self.acks.awaiting_debt() as u64,
            medians: self.switch.latency().medians(),
            logged: logged.logged,
            copied: logged.copied,
            collapsed: destaged.collapsed,
            written: destaged.written,
            acked: self.acks.acked(),
            batches: logged.batches,
            faults: logged.faults,
            busy: self.admission.busy(),
        }
    }

    /// The last record that is durable and not a note.
    #[cfg(test)]
    pub(in super::super) const fn last_durable_data(&self) -> u64 {
        self.wal.last_durable_data()
    }

    /// Pieces that were looked at for the cleaning of the log.
    #[cfg(test)]
    pub(in super::super) fn visited(&self) -> u64 {
        self.destage.visited.get()
    }
}
