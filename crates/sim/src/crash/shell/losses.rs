//! What a life has written past its log and not flushed, and what the unit says of its loss: which flushes may fail, and
//! which must.

use std::collections::{BTreeMap, BTreeSet};
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{Op, RequestKey};

/// The losses of one life.
#[derive(Default)]
pub(super) struct Losses {
    stores: Vec<Store>,
    /// The pipeline has heard of a loss or a reset while a write was unflushed: flushes may fail.
    may_fail: bool,
    /// It has heard of one at all.
    heard: bool,
    /// Something that was acknowledged is gone, and the upstream has said so: no flush may end well.
    gone: bool,
}

/// What was written to a store, and flushed there.
#[derive(Clone, Default)]
struct Store {
    /// Writes of hosts, without FUA, and how many losses the pipeline had heard of when each began.
    writes: BTreeMap<RequestKey, u64>,
    losses: u64,
    /// Those that were answered well after a loss: they are sent again.
    again: BTreeSet<RequestKey>,
    /// Flushes, and how many such writes had ended when each began.
    flushes: BTreeMap<RequestKey, u64>,
    /// Such writes that have ended, and how many of them a flush covers.
    ended: u64,
    covered: u64,
}

impl Losses {
    /// Of a life before which writes may have `bypassed` the log.
    pub(super) fn new(stores: u32, bypassed: bool) -> Self {
        let store = Store { ended: u64::from(bypassed), ..Store::default() };
        Self { stores: vec![store; stores as usize], ..Self::default() }
    }

    /// An I/O begins at the upstream.
    pub(super) fn begins(&mut self, io: &StoreIo, of_host: bool) {
        let store = &mut self.stores[io.part as usize];
        if io.op == Op::Flush {
            store.flushes.insert(io.key, store.ended);
        } else if of_host && io.op.writes() && !io.fua {
            store.writes.insert(io.key, store.losses);
        }
    }

    /// Whether an I/O is a write that was answered well after a loss.
    pub(super) fn takes_again(&mut self, io: &StoreIo) -> bool {
        self.stores[io.part as usize].again.remove(&io.key)
    }

    /// The pipeline is about to hear of this.
    pub(super) fn hears(&mut self, input: &Input) {
        match *input {
            Input::Stored { key, outcome } => {
                for store in &mut self.stores {
                    let wrote = store.writes.remove(&key);
                    let covers = store.flushes.remove(&key).unwrap_or(0);
                    if outcome.is_ok() {
                        let doubtful = wrote.is_some_and(|losses| losses < store.losses);
                        if doubtful {
                            store.again.insert(key);
                        }
                        store.ended += u64::from(wrote.is_some() && !doubtful);
                        store.covered = store.covered.max(covers);
                    }
                }
            }
            Input::UnitReset(backend) | Input::WriteLost(backend) => {
                self.heard = true;
                let store = &mut self.stores[backend.index()];
                store.losses += 1;
                self.may_fail |= store.covered < store.ended;
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
