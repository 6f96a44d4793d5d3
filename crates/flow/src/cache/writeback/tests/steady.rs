//! A full log beside no log, in virtual time: an upstream of 20 ms, hosts that always have as many writes outstanding.

use super::clocked::{Clocked, Costs};
use super::small;
use crate::cache::writeback::{Phase, Settings, Why};
use crate::clock::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

const MS: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_secs(5);

/// Hosts with `depth` writes of 4 KiB outstanding, and a flush after each `flush` writes if that is not 0.
struct Hosts {
    clocked: Clocked,
    waiting: Vec<u64>,
    flush: u64,
    begun: u64,
    ended: u64,
    /// How long the host takes for each write, one after the other, and until when it is busy.
    think: Duration,
    busy: Instant,
    /// When the host sends the next writes.
    sends: VecDeque<Instant>,
}

impl Hosts {
    /// Write-back has up to `destage` writes outstanding.
    fn new(depth: usize, flush: u64, destage: u32) -> Self {
        Self::slow(depth, flush, destage, MS, Duration::ZERO)
    }

    /// The same with a log that takes `local` for a write or a sync, and a host that needs `think` for each of its writes.
    fn slow(depth: usize, flush: u64, destage: u32, local: Duration, think: Duration) -> Self {
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
        let costs = Costs { local, upstream: MS * 20, sector: Duration::from_nanos(2_500) };
        let clocked = Clocked::new(settings, 8192, costs);
        let sends = (0..depth).map(|_| Instant::ZERO).collect();
        let busy = Instant::ZERO;
        Self { clocked, waiting: Vec::new(), flush, begun: 0, ended: 0, think, busy, sends }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            while self.sends.pop_front_if(|at| *at <= self.clocked.rig.now).is_some() {
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
            self.clocked.next(self.sends.front().map_or(until, |&at| until.min(at)));
            let asked = &self.clocked.rig.asked;
            let before = self.waiting.len();
            self.waiting.retain(|&number| !asked[number as usize - 1].over);
            for _ in self.waiting.len()..before {
                self.ended += 1;
                self.busy = self.busy.max(self.clocked.rig.now) + self.think;
                self.sends.push_back(self.busy);
            }
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

/// Writes of these hosts, which are new, in five seconds without the log.
fn without(mut hosts: Hosts) -> u64 {
    hosts.clocked.rig.log.drain(Instant::ZERO, true);
    hosts.clocked.run_until(Instant::ZERO + MS * 500);
    hosts.sends.iter_mut().for_each(|at| *at = hosts.clocked.rig.now);
    hosts.count(PERIOD)
}

/// Checks that hosts, which are new, have `least` per cent of what they have `without` the log in each of these periods from
/// 75 % on, beside this number of reads.
fn check_full(
    case: &str,
    (least, without): (u64, u64),
    periods: u64,
    mut hosts: Hosts,
    reads: u32,
) {
    hosts.clocked.rig.log.set_reads(reads, u64::from(reads) * 4096);
    hosts.run_until(|hosts| hosts.fill() >= 750);
    let with: Vec<u64> = (0..periods).map(|_| hosts.count(PERIOD)).collect();
    let status = hosts.clocked.rig.log.status(hosts.clocked.rig.now);
    assert!(
        with.iter().all(|with| with * 100 >= without * least),
        "{case}, reads {reads}: {without} writes in five seconds without the log, {with:?} with it; the log is {} % full, {:?}",
        status.fill / 10,
        status.phase
    );
}

/// From 75 % on a log gives hosts 95 % of what they have without it, in each five seconds, at every depth, with flushes and
/// beside reads: write-back keeps up, because an epoch is as wide as what hosts have outstanding.
#[test]
fn a_full_log_is_not_slower_than_none() {
    for (depth, flush) in [(1, 0), (8, 0), (32, 0), (32, 32)] {
        let hosts = || Hosts::new(depth, flush, 128);
        let without = without(hosts());
        for reads in [0, 4] {
            check_full(
                &std::format!("depth {depth}, flush {flush}"),
                (95, without),
                6,
                hosts(),
                reads,
            );
        }
    }
}

/// The same where hosts need longer for their writes than the log: it answers each before the next has come, and without
/// waiting for the others an epoch would have one.
#[test]
fn a_log_that_is_faster_than_its_hosts_is_not_slower_than_none() {
    for (local, think) in [(50, 50), (50, 200), (200, 50)] {
        let (local, think) = (Duration::from_micros(local), Duration::from_micros(think));
        for depth in [8, 32] {
            let hosts = || Hosts::slow(depth, 0, 128, local, think);
            let without = without(hosts());
            for reads in [0, 4] {
                let case = std::format!("log {local}, host {think}, depth {depth}");
                check_full(&case, (95, without), 3, hosts(), reads);
            }
        }
    }
}

/// Where answers are late by up to 3 ms, an epoch ends with the last one and a host continues with each: 90 %.
#[test]
fn late_answers_cost_a_full_log_a_tenth_at_most() {
    let local = Duration::from_micros(50);
    for depth in [8, 32] {
        let hosts = || {
            let mut hosts = Hosts::slow(depth, 0, 128, local, local);
            hosts.clocked.jitter = MS * 3;
            hosts
        };
        let without = without(hosts());
        check_full(&std::format!("late answers, depth {depth}"), (90, without), 3, hosts(), 0);
    }
}

/// An upstream that takes less from write-back than from hosts (here because it is sent eight writes at once) fills the log
/// for ever: the log is emptied, which costs hosts no more than staying has cost before, and the volume becomes
/// write-through.
#[test]
fn a_log_that_cannot_keep_up_is_left() {
    let without = without(Hosts::new(32, 0, 8));
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
