//! What the upstream answers.
//!
//! | answer | |
//! |---|---|
//! | transport, no path, busy, no space | tried again for ever, after 0.1 to 10 s, one I/O at a time until it answers |
//! | the same, with a volatile cache | and all of the epoch is written again: the cache may be lost |
//! | medium error, write protected, out of range | write-back of this volume stops until a person says to go on; nothing is dropped |
//! | unsupported | an unmap becomes zeroes, zeroes become a write; else as above |

use super::drain::Step;
use super::effect::{Blocked, Cause, Effect, JobId, Notice};
use super::log::Log;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::request::{Op, Outcome};
use crate::rng::mix;

/// The upstream does not answer as it should.
#[derive(Clone, Copy, Debug)]
pub(super) struct Away {
    pub(super) since: Instant,
    /// Times that it was tried again.
    pub(super) attempts: u32,
    /// When it is tried next.
    pub(super) until: Instant,
    pub(super) error: IoError,
}

impl Log {
    /// An I/O upstream has ended.
    pub(super) fn landed(&mut self, now: Instant, id: JobId, outcome: Outcome) {
        let Some(job) = self.writer.jobs.get(&id) else { return };
        let Step::Sent(sent) = job.step else { return };
        let (op, bytes, side) = (job.op, job.extent.length, job.side);
        let Err(error) = outcome else {
            let took = now.saturating_since(sent);
            if let Some(away) = self.writer.away.take() {
                self.notice(Notice::Back(now.saturating_since(away.since)));
            }
            self.writer.limit = (self.writer.limit + 1).min(self.settings.depth);
            self.end_job(now, id);
            if side {
                for drain in &mut self.drains {
                    drain.covered |= drain.rides;
                }
                self.land(now);
            } else if op == Op::Flush {
                self.writer.share.flushed(now, took);
                // Without a reset in between; else the pass ends by writing again.
                if self.writer.active.as_ref().is_some_and(|active| !active.redo) {
                    self.end_epoch(now);
                }
            } else {
                self.counters.written += bytes;
                if op == Op::Write {
                    self.earn.wrote(bytes, took);
                }
            }
            return;
        };
        match error {
            IoError::Unsupported if op == Op::Discard => {
                self.writer.no_discard = true;
                self.instead(now, id);
            }
            IoError::Unsupported if op == Op::WriteZeroes => {
                self.writer.no_zeroes = true;
                self.instead(now, id);
            }
            IoError::Medium
            | IoError::WriteProtected
            | IoError::OutOfRange
            | IoError::Unsupported
            | IoError::Fenced
                if !side =>
            {
                self.again(id);
                if op == Op::Flush {
                    // What it should have made durable may be gone.
                    self.writer.redo();
                }
                self.block(now, id, Cause::Upstream(error));
            }
            _ => {
                if error == IoError::Busy {
                    self.writer.limit = (self.writer.limit / 2).max(1);
                } else if self.settings.upstream_flush {
                    self.writer.redo();
                }
                self.again(id);
                self.wait(now, id, error);
            }
        }
    }

    /// The job is done in another way when its epoch is written again.
    fn instead(&mut self, now: Instant, id: JobId) {
        self.end_job(now, id);
        self.writer.redo();
    }

    fn end_job(&mut self, now: Instant, id: JobId) {
        if self.writer.jobs.remove(&id).is_some_and(|job| job.yields) {
            self.rest(now);
        }
        self.effects.push_back(Effect::Done(id));
    }

    fn again(&mut self, id: JobId) {
        if let Some(job) = self.writer.jobs.get_mut(&id) {
            job.step = Step::Ready;
        }
    }

    /// The upstream is tried again later.
    fn wait(&mut self, now: Instant, id: JobId, error: IoError) {
        let before = self.writer.away;
        let attempts = match before {
            // Others that were sent at the same time fail as well.
            Some(away) if now < away.until => away.attempts,
            Some(away) => away.attempts + 1,
            None => 0,
        };
        let base = (BACKOFF_LEAST * (1 << attempts.min(10))).min(BACKOFF_MOST).as_nanos();
        // A quarter more or less, so that volumes of one upstream do not come together.
        let jitter =
            mix(id.0 ^ u64::from(attempts) << 32 ^ u64::from(self.id[0]) << 48) % (base / 2);
        let until = now + Duration::from_nanos(base - base / 4 + jitter).min(BACKOFF_MOST);
        let since = before.map_or(now, |away| away.since);
        self.writer.away = Some(Away { since, attempts, until, error });
        if before.is_none() {
            self.notice(Notice::Away(error));
        }
    }

    /// Write-back stops.
    pub(super) fn block(&mut self, now: Instant, id: JobId, cause: Cause) {
        if self.writer.blocked.is_some() {
            return;
        }
        let job = &self.writer.jobs[&id];
        let seq = if job.op == Op::Flush { self.applied + 1 } else { job.seq() };
        let blocked = Blocked { seq, extent: job.extent, cause };
        self.writer.blocked = Some((blocked, now));
        self.notice(Notice::Blocked(blocked));
    }

    /// Write-back goes on.
    pub(super) fn unblock(&mut self) {
        if self.writer.blocked.take().is_some() {
            self.notice(Notice::Unblocked);
        }
    }
}

const BACKOFF_LEAST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(10);
