//! The status of a log, for operators.

use super::effect::{Blocked, Why};
use crate::clock::Duration;
use crate::error::IoError;
use crate::policy::Rule;

/// A snapshot of a log, for operators. Flat, with one field for each value that they see.
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
    /// Records that are not upstream, superseded ones and copies with them.
    pub dirty_records: u64,
    /// Payload bytes of them.
    pub held: u64,
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
    /// Epochs that are upstream, since the log was opened.
    pub destaged_epochs: u64,
    /// Of these, epochs whose writes went with FUA. Each other one was flushed if the upstream has a volatile cache.
    pub fua_epochs: u64,
    /// The upstream has a volatile cache.
    pub volatile_upstream: bool,
    /// Bytes of log that write-back frees in a second; 0 if that is not known.
    pub drain_rate: u64,
    /// When everything would be upstream at this rate; `None` if that is not known, or nothing is written upstream
    /// now.
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
    pub awaiting_upstream: u64,
    /// How long writes that bypassed the log have waited to be durable upstream while the log is used: write-back and
    /// flushes wait for that.
    pub debt: Option<Duration>,
    /// Flushes that wait for it.
    pub awaiting_debt: u64,
    /// Running medians of a commit here and of a small write upstream.
    pub medians: (Option<Duration>, Option<Duration>),
    /// Payload bytes logged since the log was opened.
    pub logged: u64,
    /// Of these, bytes that were overwritten inside their epoch and never sent.
    pub collapsed: u64,
    /// Payload bytes that were copied to the end of the log, so that the oldest segment could be given up.
    pub copied: u64,
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
