//! Cleaning: a log does not hold much more than the promised order of write-back needs.
//!
//! | | |
//! |---|---|
//! | Needed | the newest data of each byte in each epoch: nothing of it may go before its epoch is upstream (`docs/decisions/0035-log-limit.md`) |
//! | When   | superseded payload is more than half of what is needed, and there are two newer segments; with room for all that the oldest one has, before the first copy of it |
//! | How    | what is needed of the oldest segment is copied to the end of the log, with the epoch that it belongs to; when the copies are durable they take the place of what they are of; when a pass over the whole segment finds nothing that is needed, and what has superseded the rest is durable, it is given up |
//! | Cost   | at most two bytes copied for each one freed, over all segments; two passes over the records of the segment; at most `LOOK` pieces in `PAUSE`, so that the volume does not wait |
//! | Yields | a write that waits has its batch between two batches of copies; no copy takes the last room; no cleaning while the log is drained or closed; what cannot be read is read again after `AGAIN` |
//!
//! A copy covers only bytes that no newer record of its epoch has when it gets its number. So in each epoch later records
//! are newer, copies or not, and recovery needs no other order.

use super::effect::JobId;
use super::ranges::Held;
use super::wal::Pin;
use crate::clock::{Duration, Instant};
use alloc::vec::Vec;

/// What is being cleaned.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// The oldest segment, and what is to be looked at next: a record of it, from this byte of the volume on.
    pub(super) segment: Option<u64>,
    pub(super) cursor: (u64, u64),
    /// Whether something was needed in this pass, and in any pass over this segment: then there was room for all of it.
    pub(super) found: bool,
    pub(super) begun: bool,
    /// Pieces that were looked at since the last pause, and when this one ends.
    pub(super) looked: u32,
    pub(super) pause: Option<Instant>,
    /// Nothing of it is needed once the records up to this one are durable, which have superseded the rest.
    pub(super) until: Option<u64>,
    pub(super) job: Option<Copying>,
    /// A segment of which something cannot be read, and when that is tried again.
    pub(super) unreadable: Option<(u64, Instant)>,
}

/// Data that is being copied.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) id: JobId,
    /// What, and where in the job's memory.
    pub(super) pieces: Vec<(Held, u64)>,
    pub(super) step: Step,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Step {
    /// It is being read, from log space that is kept.
    Gathering(Pin),
    /// It waits for its turn.
    Ready,
    /// It has records, each with what it is a copy of.
    Written(Vec<(Held, u64)>),
}

impl Cleaner {
    /// What has waited for this time continues.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.pause.take_if(|until| now >= *until).is_some() {
            self.looked = 0;
        }
        self.unreadable.take_if(|(_, until)| now >= *until);
    }

    /// When it continues although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pause.into_iter().chain(self.unreadable.map(|(_, until)| until)).min()
    }

    /// Whether one more piece may be looked at now: it counts as looked at.
    pub(super) fn may_look(&mut self) -> bool {
        let may = self.looked < LOOK;
        self.looked += u32::from(may);
        may
    }

    /// The record that has to be durable before it continues; 0 if there is none.
    pub(super) fn waits_for(&self) -> u64 {
        let copy = self.job.as_ref().map_or(0, |job| match &job.step {
            Step::Written(copies) => copies.last().map_or(0, |&(_, copy)| copy),
            Step::Gathering(_) | Step::Ready => 0,
        });
        copy.max(self.until.unwrap_or(0))
    }

    /// What could not be read may be readable, or not needed any more.
    pub(super) const fn try_again(&mut self) {
        self.unreadable = None;
    }

    /// The job, if it waits for its turn.
    pub(super) fn ready(&self) -> Option<&Copying> {
        self.job.as_ref().filter(|job| matches!(job.step, Step::Ready))
    }
}

/// Pieces of epochs, and records, that are looked at before a pause.
pub(super) const LOOK: u32 = 1024;

/// How long that pause is: hosts and the devices come first. Never nothing, because a deadline that has come is met before
/// what has happened.
pub(super) const PAUSE: Duration = Duration::from_micros(100);

/// After what time it is tried again to read what could not be read. One volume reads one batch then.
pub(super) const AGAIN: Duration = Duration::from_secs(10);
