//! The same shell with times: every I/O takes as long as its kind does.

use super::rig::{Rig, Running};
use crate::cache::writeback::{Kind, Settings};
use crate::clock::{Duration, Instant};
use crate::request::Op;
use crate::rng::Rng;
use alloc::vec::Vec;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) local: Duration,
    pub(super) upstream: Duration,
    /// Per 512 bytes upstream, one I/O after the other.
    pub(super) sector: Duration,
}

/// What is due next of an I/O that runs.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    /// Sectors that the upstream requests then (R2T); 0: it ends.
    rest: u64,
}

/// A read of a host upstream: when it began and when it ends.
#[derive(Clone, Copy, Debug)]
struct Read {
    begun: Instant,
    ends: Instant,
}

/// A rig whose I/Os end when they are due.
pub(super) struct Clocked {
    pub(super) rig: Rig,
    costs: Costs,
    /// Sectors of a write that the upstream takes with the command; it requests the others.
    pub(super) unasked: u64,
    /// Answers come up to so much later.
    pub(super) jitter: Duration,
    chance: Rng,
    due: Vec<Due>,
    reads: Vec<Read>,
    /// What ended reads took.
    pub(super) took: Vec<Duration>,
    /// The link upstream is busy until then, and how long it was in all.
    link: Instant,
    pub(super) busy: Duration,
}

impl Clocked {
    pub(super) fn new(settings: Settings, sectors: u64, costs: Costs) -> Self {
        let mut rig = Rig::new(1, settings, sectors);
        // Long runs: once at the end is enough.
        rig.judges = false;
        let mut clocked = Self {
            rig,
            costs,
            unasked: u64::MAX,
            jitter: Duration::ZERO,
            chance: Rng::stream(1, "answers"),
            due: Vec::new(),
            reads: Vec::new(),
            took: Vec::new(),
            link: Instant::ZERO,
            busy: Duration::ZERO,
        };
        clocked.rig.pump();
        clocked.plan();
        clocked
    }

    /// After the rig has crashed.
    pub(super) fn reopened(&mut self) {
        self.due.clear();
        self.plan();
    }

    /// Gives times to what has begun.
    fn plan(&mut self) {
        for i in self.due.len()..self.rig.running.len() {
            let now = self.rig.now;
            let at = |at| Due { at, rest: 0 };
            let due = match self.rig.running[i] {
                Running::Write(..) | Running::Sync(_) => at(now + self.costs.local),
                Running::Gather(..) | Running::Abandon => at(now),
                Running::Upstream(_, op, extent, _) => {
                    let sectors = if op == Op::Write { extent.length / 512 } else { 0 };
                    let first = sectors.min(self.unasked);
                    Due { at: self.carry(first), rest: sectors - first }
                }
                Running::Through(key) => at(self.carry(self.rig.sectors(key))),
            };
            self.due.push(due);
        }
    }

    /// When the upstream has answered an I/O of this many sectors.
    fn carry(&mut self, sectors: u64) -> Instant {
        let takes = self.costs.sector * sectors;
        self.link = self.link.max(self.rig.now) + takes;
        self.busy += takes;
        let late = self.chance.below(self.jitter.as_nanos() + 1);
        self.link + self.costs.upstream + Duration::from_nanos(late)
    }

    /// A host reads 4 KiB upstream: the command waits for what is on the link before it.
    pub(super) fn read(&mut self) {
        let ends = self.carry(0) + self.costs.sector * 8;
        self.reads.push(Read { begun: self.rig.now, ends });
        self.count_reads(4096);
    }

    pub(super) fn reading(&self) -> usize {
        self.reads.len()
    }

    fn count_reads(&mut self, begun: u64) {
        self.rig.log.set_reads(self.reads.len() as u32, begun);
        self.rig.pump();
        self.plan();
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
        let first = (0..self.due.len()).min_by_key(|&i| self.due[i].at);
        let ends = first.map(|i| self.due[i].at);
        let read = (0..self.reads.len()).min_by_key(|&i| self.reads[i].ends);
        let answered = read.map(|i| self.reads[i].ends);
        let deadline = self.rig.log.next_deadline();
        let next = ends.into_iter().chain(answered).chain(deadline).min();
        let Some(at) = next.filter(|&at| at <= until) else {
            self.rig.now = until;
            return false;
        };
        self.rig.now = at.max(self.rig.now);
        if let Some(i) = first.filter(|_| ends == Some(at)) {
            let rest = self.due[i].rest;
            if rest > 0 {
                self.due[i] = Due { at: self.carry(rest), rest: 0 };
                return true;
            }
            // What it begins comes behind those that run.
            self.due.remove(i);
            self.rig.end(i);
        } else if let Some(i) = read.filter(|_| answered == Some(at)) {
            let read = self.reads.remove(i);
            self.took.push(at.since(read.begun));
            self.count_reads(0);
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
