//! How a log is doing, for operators.

use super::effect::{Blocked, Why};
use super::log::Log;
use super::switch::State;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::policy::Rule;

/// What has been counted since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Payload bytes that are not upstream, without those overwritten in the same epoch.
    pub(super) dirty: u64,
    /// Records with data that are not upstream.
    pub(super) records: u64,
    pub(super) logged: u64,
    pub(super) collapsed: u64,
    pub(super) written: u64,
    pub(super) acked: u64,
    pub(super) batches: u64,
    pub(super) epochs: u64,
    pub(super) faults: u64,
    pub(super) busy: u64,
}

/// How a log is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What is done with a write.
    pub phase: Phase,
    /// Epochs are closed by every acknowledgement.
    pub strict: bool,
    /// The log device has failed.
    pub failed: bool,
    /// Bytes of payload that are to be written upstream.
    pub dirty_bytes: u64,
    /// Records that are not upstream.
    pub dirty_records: u64,
    /// How long the oldest of them has been there.
    pub oldest_dirty: Option<Duration>,
    /// How full the log is, in thousandths.
    pub fill: u32,
    /// Segments that are in use, free, and bad.
    pub segments: (u64, u64, u64),
    /// The last record that has a number.
    pub last: u64,
    /// All records up to this one are durable here.
    pub durable: u64,
    /// All records up to this one are upstream.
    pub applied: u64,
    /// Epochs that are not upstream.
    pub epochs: u64,
    /// Bytes of log that write-back frees in a second; 0 if that is not known.
    pub drain_rate: u64,
    /// When everything would be upstream at this rate.
    pub eta: Option<Duration>,
    /// How the upstream is.
    pub upstream: Upstream,
    /// I/Os of write-back that are outstanding.
    pub jobs: u32,
    /// Writes before the log.
    pub waiting: Waiters,
    /// Requests in the log that wait for durability.
    pub committing: u64,
    /// Requests that wait for the upstream.
    pub landing: u64,
    /// Running medians of a commit here and of a small write upstream.
    pub medians: (Option<Duration>, Option<Duration>),
    /// Payload bytes logged since the log was opened.
    pub logged: u64,
    /// Of these, bytes that were overwritten inside their epoch and never sent.
    pub collapsed: u64,
    /// Bytes written, zeroed or unmapped upstream.
    pub written: u64,
    /// Requests acknowledged.
    pub acked: u64,
    /// Batches written.
    pub batches: u64,
    /// Failed writes and syncs of the log device.
    pub faults: u64,
    /// Writes that were answered with `Busy`.
    pub busy: u64,
}

/// What is done with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is logged.
    Log,
    /// It is logged and acknowledged when it is upstream.
    Draining(Why),
    /// It waits until everything is upstream.
    Emptying(Why),
    /// It goes upstream.
    Through(Why),
    /// It waits until the log may be used again.
    Resuming,
}

/// How the upstream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// It answers.
    Up,
    /// It does not, and is tried again.
    Away {
        /// For how long.
        age: Duration,
        /// How often it was tried again.
        attempts: u32,
        /// What it said last.
        error: IoError,
    },
    /// It has refused data; a person has to decide.
    Blocked {
        /// What.
        at: Blocked,
        /// For how long.
        age: Duration,
    },
}

/// Writes that wait before the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiters {
    /// How many.
    pub count: u64,
    /// How long the first has waited.
    pub oldest: Duration,
    /// What for.
    pub rule: Option<Rule>,
}

impl Log {
    /// How the log is doing.
    pub fn status(&self, now: Instant) -> Status {
        let age = |since| now.saturating_since(since);
        let (rate, behind) = (self.gate.rate(), self.behind());
        let eta = (rate > 0 && behind > 0).then(|| {
            let nanos = u128::from(behind) * 1_000_000_000 / u128::from(rate);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        });
        let upstream = match (self.writer.blocked, self.writer.away) {
            (Some((at, since)), _) => Upstream::Blocked { at, age: age(since) },
            (None, Some(away)) => {
                Upstream::Away { age: age(away.since), attempts: away.attempts, error: away.error }
            }
            (None, None) => Upstream::Up,
        };
        let first = self.gate.queue.front();
        Status {
            phase: match self.state {
                State::Log => Phase::Log,
                State::Draining { why, .. } => Phase::Draining(why),
                State::Emptying { why } | State::Marking { why } => Phase::Emptying(why),
                State::Abandoning { .. } => Phase::Emptying(Why::Failed),
                State::Through { why, .. } => Phase::Through(why),
                State::Resuming { .. } => Phase::Resuming,
            },
            strict: self.epochs.strict(),
            failed: self.failed,
            dirty_bytes: self.counters.dirty,
            dirty_records: self.counters.records,
            oldest_dirty: self.epochs.oldest().map(|epoch| age(epoch.opened)),
            fill: self.fill(),
            segments: self.space.count(),
            last: self.next - 1,
            durable: self.durable,
            applied: self.applied,
            epochs: self.epochs.len() as u64,
            drain_rate: rate,
            eta,
            upstream,
            jobs: self.writer.jobs.len() as u32,
            waiting: Waiters {
                count: self.gate.queue.len() as u64,
                oldest: first.map_or(Duration::ZERO, |first| age(first.arrived)),
                rule: first.map(|first| self.waits_for(first)),
            },
            committing: self.committing.len() as u64,
            landing: self.landing.len() as u64,
            medians: self.earn.medians(),
            logged: self.counters.logged,
            collapsed: self.counters.collapsed,
            written: self.counters.written,
            acked: self.counters.acked,
            batches: self.counters.batches,
            faults: self.counters.faults,
            busy: self.counters.busy,
        }
    }

    /// Bytes of log that are not upstream.
    fn behind(&self) -> u64 {
        self.space.end().saturating_sub(self.reached())
    }
}
