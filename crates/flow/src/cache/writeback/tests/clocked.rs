//! The same shell with times: every I/O takes as long as its kind does.

use super::rig::{Rig, Running};
use crate::cache::writeback::{Kind, Settings};
use crate::clock::{Duration, Instant};
use crate::request::Op;
use alloc::vec::Vec;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) local: Duration,
    pub(super) upstream: Duration,
    /// Per 512 bytes upstream, one I/O after the other.
    pub(super) sector: Duration,
}

/// A rig whose I/Os end when they are due.
pub(super) struct Clocked {
    pub(super) rig: Rig,
    costs: Costs,
    /// For each that runs, when it ends.
    due: Vec<Instant>,
    /// The link upstream is busy until then, and how long it was in all.
    link: Instant,
    pub(super) busy: Duration,
}

impl Clocked {
    pub(super) fn new(settings: Settings, sectors: u64, costs: Costs) -> Self {
        let mut rig = Rig::new(1, settings, sectors);
        // Long runs: once at the end is enough.
        rig.judges = false;
        let mut clocked =
            Self { rig, costs, due: Vec::new(), link: Instant::ZERO, busy: Duration::ZERO };
        clocked.rig.pump();
        clocked.plan();
        clocked
    }

    /// Gives times to what has begun.
    fn plan(&mut self) {
        for i in self.due.len()..self.rig.running.len() {
            let now = self.rig.now;
            let due = match self.rig.running[i] {
                Running::Write(..) | Running::Sync(_) => now + self.costs.local,
                Running::Gather(..) | Running::Abandon => now,
                Running::Upstream(_, op, extent, _) => {
                    self.carry(if op == Op::Write { extent.length / 512 } else { 0 })
                }
                Running::Through(key) => self.carry(self.rig.sectors(key)),
            };
            self.due.push(due);
        }
    }

    /// When the upstream has answered an I/O of this many sectors.
    fn carry(&mut self, sectors: u64) -> Instant {
        let takes = self.costs.sector * sectors;
        self.link = self.link.max(self.rig.now) + takes;
        self.busy += takes;
        self.link + self.costs.upstream
    }

    pub(super) fn write(&mut self, from: usize, count: usize) -> u64 {
        let number = self.rig.ask(Some(Kind::Write), from, count, false);
        self.plan();
        number
    }

    pub(super) fn flush(&mut self) -> u64 {
        let number = self.rig.ask(None, 0, 0, false);
        self.plan();
        number
    }

    /// Goes to the next thing that happens before `until`; whether there was one.
    pub(super) fn next(&mut self, until: Instant) -> bool {
        let first = (0..self.due.len()).min_by_key(|&i| self.due[i]);
        let ends = first.map(|i| self.due[i]);
        let deadline = self.rig.log.next_deadline();
        let Some(at) = ends.into_iter().chain(deadline).min().filter(|&at| at <= until) else {
            self.rig.now = until;
            return false;
        };
        self.rig.now = at.max(self.rig.now);
        if let Some(i) = first.filter(|_| ends == Some(at)) {
            // What it begins comes behind those that run.
            self.due.remove(i);
            self.rig.end(i);
        } else {
            self.rig.pump();
        }
        self.plan();
        true
    }

    pub(super) fn run_until(&mut self, until: Instant) {
        while self.next(until) {}
    }
}
