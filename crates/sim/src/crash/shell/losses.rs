//! What a life has written past its log and not flushed, and what the unit says of its loss: which flushes may fail, and
//! which must.

use std::collections::{BTreeMap, BTreeSet};
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{Op, RequestKey};

/// The losses of one life.
#[derive(Default)]
pub(super) struct Losses {
    /// Writes of hosts at the upstream, without FUA.
    writes: BTreeSet<RequestKey>,
    /// Flushes there, and how many such writes had ended when each began.
    flushes: BTreeMap<RequestKey, u64>,
    /// Such writes that have ended, and how many of them a flush covers.
    ended: u64,
    covered: u64,
    /// The pipeline has heard of a loss or a reset while a write was unflushed: flushes may fail.
    may_fail: bool,
    /// It has heard of one at all.
    heard: bool,
    /// Something that was acknowledged is gone, and the upstream has said so: no flush may end well.
    gone: bool,
}

impl Losses {
    /// Of a life before which writes may have `bypassed` the log.
    pub(super) fn new(bypassed: bool) -> Self {
        Self { ended: u64::from(bypassed), ..Self::default() }
    }

    /// An I/O begins at the upstream.
    pub(super) fn begins(&mut self, io: &StoreIo, of_host: bool) {
        if io.op == Op::Flush {
            self.flushes.insert(io.key, self.ended);
        } else if of_host && io.op.writes() && !io.fua {
            self.writes.insert(io.key);
        }
    }

    /// The pipeline is about to hear of this.
    pub(super) fn hears(&mut self, input: &Input) {
        match *input {
            Input::Stored { key, outcome } => {
                let wrote = self.writes.remove(&key);
                let covers = self.flushes.remove(&key).unwrap_or(0);
                if outcome.is_ok() {
                    self.ended += u64::from(wrote);
                    self.covered = self.covered.max(covers);
                }
            }
            Input::UnitReset(_) | Input::WriteLost(_) => {
                self.heard = true;
                self.may_fail |= self.covered < self.ended;
            }
            _ => {}
        }
    }

    /// The upstream says so of a change that was acknowledged.
    pub(super) const fn lost(&mut self) {
        self.gone = true;
    }

    pub(super) const fn may_fail(&self) -> bool {
        self.may_fail
    }

    pub(super) const fn has_heard(&self) -> bool {
        self.heard
    }

    pub(super) const fn must_fail(&self) -> bool {
        self.gone
    }
}
