//! From `log` to `through`, and back.
//!
//! | state | a new write | ends when |
//! |---|---|---|
//! | `Log` | is logged, and acknowledged when durable | |
//! | `Draining` | is logged, and acknowledged when it is upstream | everything older is upstream |
//! | `Emptying` | waits | everything is upstream |
//! | `Marking` | waits | a durable super block says so: nothing of this log is ever replayed over what follows |
//! | `Abandoning` | waits | the log device has failed; the same is remembered elsewhere |
//! | `Through` | goes upstream | an operator says so |
//! | `Resuming` | waits | what went `through` has ended, and is flushed |
//!
//! Nothing overtakes the log: no write goes `through` before everything in it is upstream. When its device has
//! failed, what is then written back from memory is acknowledged when it is durable that the log is void: one
//! that was opened again would write older data over it.

use super::effect::{COMMIT, Effect, Notice, Why};
use super::log::{Log, Pending};
use super::recovered::Recovered;
use super::settings::Settings;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::request::{Outcome, RequestKey};
use alloc::vec::Vec;

/// What is done with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Log,
    Draining {
        mark: u64,
        why: Why,
    },
    Emptying {
        why: Why,
    },
    Marking {
        why: Why,
    },
    Abandoning {
        again: Option<Instant>,
    },
    Through {
        why: Why,
        outstanding: u64,
    },
    /// With `drain`, what comes next is to drain.
    Resuming {
        outstanding: u64,
        drain: bool,
    },
}

impl State {
    /// How a log begins: if writes have gone past it, with flushing them.
    pub(super) const fn first(settings: &Settings, recovered: &Recovered) -> Self {
        if recovered.passed && settings.upstream_flush {
            Self::Resuming { outstanding: 0, drain: false }
        } else {
            Self::Log
        }
    }
}

impl Log {
    /// An operator turns write-back off, or on.
    pub(super) fn switch(&mut self, now: Instant, drain: bool) {
        match (self.state, drain) {
            (State::Log, true) => {
                self.state = State::Draining { mark: self.next - 1, why: Why::Asked };
            }
            (State::Draining { .. } | State::Emptying { .. } | State::Marking { .. }, false)
                if !self.failed =>
            {
                self.state = State::Log;
                self.earn.reset();
                self.undefer(now);
                self.notice(Notice::Resumed);
            }
            (State::Through { outstanding, .. }, false) if !self.failed => {
                self.state = State::Resuming { outstanding, drain: false };
            }
            // Only a log that says that it is void may be gone past again at once.
            (State::Resuming { outstanding, .. }, true)
                if self.records.is_empty() && self.void() =>
            {
                self.go_through(now, Why::Asked, outstanding);
            }
            (State::Resuming { outstanding, .. }, drain) => {
                self.state = State::Resuming { outstanding, drain };
            }
            _ => {}
        }
    }

    /// Acknowledgements that waited for the upstream, and need not any more.
    fn undefer(&mut self, now: Instant) {
        if self.settings.sync == super::Sync::Upstream {
            let (flushes, writes): (Vec<Pending>, Vec<Pending>) =
                self.landing.drain(..).partition(|pending| pending.flush);
            self.landing.extend(flushes);
            self.committing.extend(writes);
        } else {
            self.committing.extend(self.landing.drain(..));
        }
        self.committing.make_contiguous().sort_by_key(|pending| pending.last);
        while let Some(&first) = self.committing.front() {
            if first.last > self.durable {
                break;
            }
            self.committing.pop_front();
            self.ack(now, first, COMMIT);
        }
    }

    /// Whether a write that has begun to enter the log, or not, may go there.
    pub(super) const fn admits(&self, begun: bool) -> bool {
        matches!(self.state, State::Log | State::Draining { .. })
            || (begun && matches!(self.state, State::Emptying { .. }))
    }

    /// Whether writes are acknowledged when they are upstream.
    pub(super) const fn defers(&self) -> bool {
        !matches!(self.state, State::Log)
    }

    /// Whether somebody waits for everything to be upstream.
    pub(super) const fn drains_all(&self) -> bool {
        matches!(self.state, State::Draining { .. } | State::Emptying { .. })
    }

    /// Whether a super block is wanted that says that everything is upstream.
    pub(super) const fn marking(&self) -> bool {
        matches!(self.state, State::Marking { .. }) && !self.void()
    }

    /// Whether a durable super block says that everything is upstream, and that more may be.
    const fn void(&self) -> bool {
        self.marked.applied_super >= self.applied && self.marked.passed
    }

    /// Whether what went past the log before it is used again may not be durable upstream.
    pub(super) const fn resuming(&self) -> bool {
        matches!(self.state, State::Resuming { .. })
    }

    /// Whether writes may be upstream that are not in the log and not flushed.
    pub(super) const fn passes(&self) -> bool {
        matches!(self.state, State::Marking { .. } | State::Through { .. } | State::Resuming { .. })
    }

    /// Gives a request back if it is to go upstream; a flush also while the log is about to be used
    /// again, since what went upstream before may not be durable there. Not with dirty data: a flush of the
    /// upstream does not cover that.
    pub(super) fn pass(&mut self, key: RequestKey, flush: bool) -> bool {
        let clean = self.epochs.is_empty();
        match &mut self.state {
            State::Through { outstanding, .. } => *outstanding += 1,
            State::Resuming { outstanding, .. } if flush && clean => *outstanding += 1,
            _ => return false,
        }
        self.effects.push_back(Effect::Through(key));
        true
    }

    /// One of them has ended.
    pub(super) fn passed_one(&mut self) {
        if let State::Through { outstanding, .. } | State::Resuming { outstanding, .. } =
            &mut self.state
        {
            *outstanding = outstanding.saturating_sub(1);
        }
        self.writer.owed = self.settings.upstream_flush;
    }

    /// The log device has failed: all goes upstream from memory, then new writes do.
    pub(super) fn fail(&mut self, now: Instant, error: IoError) {
        self.failed = true;
        self.notice(Notice::LogFailed(error));
        self.space.freeze(self.durable);
        self.state = State::Emptying { why: Why::Failed };
        // A write that is half in the log must end: the rest of it has a number, and no place.
        while self.gate.queue.front().is_some_and(|first| first.done > 0) {
            let left = self.gate.queue.front().map_or(0, |first| first.extent.length - first.done);
            let most = u64::from(self.settings.batch_bytes);
            let mut acks = Vec::new();
            self.admit_first(now, left.min(most), &mut acks);
            self.landing.extend(acks);
        }
        self.landing.extend(self.committing.drain(..));
        self.landing.make_contiguous().sort_by_key(|pending| pending.last);
        for pending in &mut self.landing {
            // What a host was told, in mode `ram`, may have been in the batches that were lost.
            if pending.flush {
                pending.last = self.next - 1;
            }
        }
        self.landing.make_contiguous().sort_by_key(|pending| pending.last);
    }

    /// The last super block could not be written.
    pub(super) fn mark_failed(&mut self, now: Instant) {
        if let State::Marking { .. } = self.state {
            self.state = State::Abandoning { again: Some(now) };
        }
    }

    /// The world has remembered that the log is void, or could not.
    pub(super) fn left(&mut self, now: Instant, outcome: Outcome) {
        if let State::Abandoning { again } = &mut self.state {
            match outcome {
                Ok(()) => self.go_through(now, Why::Failed, 0),
                Err(_) => *again = Some(now + ABANDON),
            }
        }
    }

    /// What waits goes upstream, and what comes after it; so much has gone already and has not ended.
    fn go_through(&mut self, now: Instant, why: Why, outstanding: u64) {
        self.state = State::Through { why, outstanding };
        self.notice(Notice::Through(why));
        self.land(now);
        let waiting = core::mem::take(&mut self.gate.queue);
        for one in waiting {
            self.pass(one.key, false);
        }
    }

    /// Goes from state to state; whether it did.
    pub(super) fn change(&mut self, now: Instant) -> bool {
        let empty = self.epochs.is_empty() && self.cycle.is_none() && self.written + 1 == self.next;
        match self.state {
            State::Log => {
                let Some((local, upstream)) = self.earn.slower().filter(|_| self.settings.earn)
                else {
                    return false;
                };
                let why = Why::Slower { local, upstream };
                self.state = State::Draining { mark: self.next - 1, why };
            }
            State::Draining { mark, why } if self.applied >= mark => {
                self.state = State::Emptying { why };
            }
            State::Emptying { why }
                if self.failed && self.epochs.is_empty() && self.cycle.is_none() =>
            {
                self.state = State::Marking { why };
            }
            State::Emptying { why }
                if !self.failed
                    && empty
                    && self.durable == self.applied
                    && self.gate.queue.front().is_none_or(|first| first.done == 0) =>
            {
                self.state = State::Marking { why };
            }
            State::Marking { why } if self.cycle.is_none() && self.void() => {
                self.go_through(now, why, 0);
            }
            State::Abandoning { again: Some(at) } if now >= at => {
                self.state = State::Abandoning { again: None };
                self.effects.push_back(Effect::Abandon);
            }
            State::Resuming { outstanding: 0, drain } if !self.owes_flush() => {
                let mark = self.next - 1;
                self.state =
                    if drain { State::Draining { mark, why: Why::Asked } } else { State::Log };
                self.earn.reset();
                self.unmarked.get_or_insert(now);
                self.notice(Notice::Resumed);
            }
            _ => return false,
        }
        true
    }

    /// When trying again is due.
    pub(super) const fn change_deadline(&self) -> Option<Instant> {
        match self.state {
            State::Abandoning { again } => again,
            _ => None,
        }
    }
}

/// How long until remembering that the log is void is tried again.
const ABANDON: Duration = Duration::from_secs(10);
