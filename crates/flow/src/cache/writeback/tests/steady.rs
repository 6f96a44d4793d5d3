//! A full log beside no log, in virtual time: an upstream of 20 ms, hosts that always have as many writes outstanding.

use super::clocked::{Clocked, Costs};
use super::small;
use crate::cache::writeback::{Phase, Settings, Why};
use crate::clock::{Duration, Instant};
use alloc::vec::Vec;

const MS: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_secs(5);

/// Hosts with `depth` writes of 4 KiB outstanding, and a flush after each `flush` writes if that is not 0.
struct Hosts {
    clocked: Clocked,
    waiting: Vec<u64>,
    depth: usize,
    flush: u64,
    begun: u64,
    ended: u64,
}

impl Hosts {
    /// Write-back has up to `destage` writes outstanding.
    fn new(depth: usize, flush: u64, destage: u32) -> Self {
        let settings = Settings {
            capacity: 8192 + 32 * (1 << 20),
            segment: 1 << 20,
            batch_bytes: 512 << 10,
            batch_records: 256,
            epoch_bytes: 4 << 20,
            epoch_age: Duration::from_secs(1),
            merge: 64 << 10,
            depth: destage,
            earn: true,
            ..small()
        };
        let costs = Costs { local: MS, upstream: MS * 20, sector: Duration::from_nanos(2_500) };
        let clocked = Clocked::new(settings, 8192, costs);
        Self { clocked, waiting: Vec::new(), depth, flush, begun: 0, ended: 0 }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            while self.waiting.len() < self.depth {
                self.begun += 1;
                // Far from each other, and not the same for as long as one is outstanding.
                let place = self.begun * 389 % 1024;
                let number = self.clocked.write(place as usize * 8, 8);
                self.waiting.push(number);
                if self.flush > 0 && self.begun.is_multiple_of(self.flush) {
                    self.clocked.flush();
                }
            }
            let until = self.clocked.rig.now + MS * 100;
            self.clocked.next(until);
            let asked = &self.clocked.rig.asked;
            let before = self.waiting.len();
            self.waiting.retain(|&number| !asked[number as usize - 1].over);
            self.ended += (before - self.waiting.len()) as u64;
        }
    }

    fn fill(&self) -> u32 {
        self.clocked.rig.log.status(self.clocked.rig.now).fill
    }

    /// Writes that end in this time.
    fn count(&mut self, time: Duration) -> u64 {
        let (before, end) = (self.ended, self.clocked.rig.now + time);
        self.run_until(|hosts| hosts.clocked.rig.now >= end);
        self.ended - before
    }
}

/// Writes in five seconds without the log.
fn without(depth: usize, flush: u64) -> u64 {
    let mut hosts = Hosts::new(depth, flush, 128);
    hosts.clocked.rig.log.drain(Instant::ZERO, true);
    hosts.clocked.run_until(Instant::ZERO + MS * 500);
    hosts.count(PERIOD)
}

/// From 75 % on a log gives hosts 95 % of what they have without it, in each five seconds, at every depth, with flushes and
/// beside reads: write-back keeps up, because an epoch is as wide as what hosts have outstanding.
#[test]
fn a_full_log_is_not_slower_than_none() {
    for (depth, flush) in [(1, 0), (8, 0), (32, 0), (32, 32)] {
        let without = without(depth, flush);
        for reads in [0, 4] {
            let mut hosts = Hosts::new(depth, flush, 128);
            hosts.clocked.rig.log.set_reads(reads, u64::from(reads) * 4096);
            hosts.run_until(|hosts| hosts.fill() >= 750);
            let with: Vec<u64> = (0..6).map(|_| hosts.count(PERIOD)).collect();
            let status = hosts.clocked.rig.log.status(hosts.clocked.rig.now);
            let case = std::format!(
                "depth {depth}, flush {flush}, reads {reads}: {without} writes in five seconds without the log, {with:?} with it; the log is {} % full, {:?}",
                status.fill / 10,
                status.phase
            );
            assert!(with.iter().all(|with| with * 100 >= without * 95), "{case}");
        }
    }
}

/// An upstream that takes less from write-back than from hosts (here because it is sent eight writes at once) fills the log
/// for ever: the log is emptied, which costs hosts no more than staying has cost before, and the volume becomes
/// write-through.
#[test]
fn a_log_that_cannot_keep_up_is_left() {
    let without = without(32, 0);
    let mut hosts = Hosts::new(32, 0, 8);
    hosts.run_until(|hosts| hosts.fill() >= 750);
    let phase = |hosts: &Hosts| hosts.clocked.rig.log.status(hosts.clocked.rig.now).phase;
    // Writes less than without the log, in seconds of these.
    let lost = |hosts: &mut Hosts, log: bool| {
        let (from, before) = (hosts.clocked.rig.now, hosts.ended);
        hosts.run_until(|hosts| match phase(hosts) {
            Phase::Log => !log,
            Phase::Draining(Why::Behind { .. }) => log,
            _ => true,
        });
        let took = hosts.clocked.rig.now.since(from).as_secs_f64();
        (took, took - (hosts.ended - before) as f64 * PERIOD.as_secs_f64() / without as f64)
    };
    let (staying, emptying) = (lost(&mut hosts, true), lost(&mut hosts, false));
    hosts.run_until(|hosts| matches!(phase(hosts), Phase::Through(_)));
    let with = hosts.count(PERIOD);
    assert!(
        emptying.1 <= staying.1 * 1.25 && staying.1 <= emptying.1 * 1.25,
        "{staying:?} {emptying:?}"
    );
    assert!(with * 100 >= without * 95, "{with} of {without}");
}
