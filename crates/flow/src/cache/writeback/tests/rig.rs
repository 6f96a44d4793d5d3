//! A small shell around a log: it performs effects against model devices, in any order, and an oracle
//! watches.

use super::disk::{Disk, Far};
pub(super) use super::disk::{fill, version};
use crate::cache::writeback::format::{Span, crc32c};
use crate::cache::writeback::{
    Effect, Fua, JobId, Kind, LocalId, Log, Memory, Mode, Notice, Origin, Part, Recovered, Refusal,
    Settings, Source, Upstream, Write, assemble, format_new, recover,
};
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::policy::Rule;
use crate::request::{Op, Outcome, RequestKey};
use crate::rng::Rng;
use crate::units::Extent;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use slotmap::SlotMap;

/// What a host has asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// `None` for a flush.
    pub(super) kind: Option<Kind>,
    pub(super) from: usize,
    pub(super) count: usize,
    pub(super) fua: bool,
    pub(super) issued: u64,
    pub(super) acked: Option<u64>,
    /// Answered, well or not, or lost in a crash.
    pub(super) over: bool,
    pub(super) busy: bool,
    /// It went past the log.
    pub(super) past: bool,
    pub(super) at: Instant,
    pub(super) took: Duration,
    pub(super) rule: Option<Rule>,
    key: RequestKey,
}

/// An effect that has not ended.
#[derive(Clone, Debug)]
pub(super) enum Running {
    Write(Write, Vec<u8>),
    Sync(LocalId),
    /// What is read from the log when it ends, and where it goes.
    Gather(JobId, Vec<(usize, Span)>),
    Upstream(JobId, Op, Extent, bool),
    Through(RequestKey),
    Abandon,
}

/// How likely things go wrong, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Luck {
    pub(super) local: u64,
    pub(super) upstream: u64,
}

/// The shell, the devices, the hosts and the oracle.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) settings: Settings,
    pub(super) log: Log,
    pub(super) disk: Disk,
    pub(super) far: Far,
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) luck: Luck,
    pub(super) running: Vec<Running>,
    /// The first has number 1.
    pub(super) asked: Vec<Asked>,
    pub(super) notices: Vec<Notice>,
    pub(super) drained: Vec<RequestKey>,
    /// Requests that were answered because another gateway owns the upstream.
    pub(super) fenced: u64,
    pub(super) closed: bool,
    pub(super) abandoned: bool,
    /// Whether hosts flush: else every acknowledgement orders.
    pub(super) strict: bool,
    /// Numbers of the writes and syncs of the log device that fail.
    pub(super) failing: core::ops::Range<u64>,
    locals: u64,
    /// What the upstream says to everything that touches this sector, or to everything.
    pub(super) refusal: Option<(Option<usize>, IoError)>,
    /// What the world says when it is to remember that the log is void.
    pub(super) remembers: Outcome,
    /// The oracle looks after every step.
    pub(super) judges: bool,
    /// The upstream can only write.
    pub(super) unable: bool,
    /// The log device may return bytes that were never written.
    pub(super) rotten: bool,
    /// The most pieces that one poll has looked at to clean the log.
    pub(super) looked: u64,
    /// Errors of `luck.local` so far in a row.
    faults: u32,
    keys: SlotMap<RequestKey, u64>,
    batches: BTreeMap<LocalId, Vec<u8>>,
    jobs: BTreeMap<JobId, Vec<u8>>,
    event: u64,
}

const LOG: [u8; 16] = [0x5a; 16];

impl Rig {
    pub(super) fn new(seed: u64, settings: Settings, sectors: u64) -> Self {
        let mut disk = Disk::new(settings.capacity);
        for (at, bytes) in format_new(&settings, LOG, 1, 1) {
            disk.write(at, &bytes);
        }
        disk.sync();
        let recovered = Recovered::empty(&settings, LOG, 1, 1);
        Self {
            log: Log::new(settings, &recovered),
            far: Far::new(sectors, settings.upstream_flush),
            settings,
            disk,
            now: Instant::ZERO,
            rng: Rng::stream(seed, "write-back"),
            luck: Luck::default(),
            running: Vec::new(),
            asked: Vec::new(),
            notices: Vec::new(),
            drained: Vec::new(),
            fenced: 0,
            closed: false,
            abandoned: false,
            strict: false,
            failing: 0..0,
            locals: 0,
            refusal: None,
            remembers: Ok(()),
            rotten: false,
            looked: 0,
            unable: false,
            judges: true,
            faults: 0,
            keys: SlotMap::with_key(),
            batches: BTreeMap::new(),
            jobs: BTreeMap::new(),
            event: 0,
        }
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// A key, not of a request.
    pub(super) fn key(&mut self) -> RequestKey {
        self.keys.insert(0)
    }

    /// A host asks for something; sectors that are being written already are left alone.
    pub(super) fn ask(&mut self, kind: Option<Kind>, from: usize, count: usize, fua: bool) -> u64 {
        let number = self.asked.len() as u64 + 1;
        let key = self.keys.insert(number);
        let issued = self.tick();
        self.asked.push(Asked {
            kind,
            from,
            count,
            fua,
            issued,
            acked: None,
            over: false,
            busy: false,
            past: false,
            at: self.now,
            took: Duration::ZERO,
            rule: None,
            key,
        });
        let who = Origin { initiator: 1, ..Origin::default() };
        match kind {
            None => self.log.flush(self.now, key, who),
            Some(kind) => {
                let extent = Extent::new(from as u64 * 512, count as u64 * 512);
                let fua = if fua { Fua::Host } else { Fua::No };
                self.log.write(self.now, key, kind, extent, fua, who);
            }
        }
        self.pump();
        number
    }

    /// Whether an operation on these sectors has not ended.
    pub(super) fn in_flight(&self, from: usize, count: usize) -> bool {
        self.asked.iter().any(|one| {
            !one.over
                && one.kind.is_some()
                && one.from < from + count
                && from < one.from + one.count
        })
    }

    pub(super) fn outstanding(&self) -> usize {
        self.asked.iter().filter(|one| !one.over).count()
    }

    /// Takes all effects that there are.
    pub(super) fn pump(&mut self) {
        let mut steps = 0;
        loop {
            let before = self.log.visited();
            let effect = self.log.poll(self.now);
            self.looked = self.looked.max(self.log.visited() - before);
            let Some(effect) = effect else { break };
            steps += 1;
            assert!(steps < 100_000, "effects come to an end");
            self.begin(effect);
        }
        // What is due is done: a deadline that has come and stays would be a busy loop.
        if let Some(at) = self.log.next_deadline() {
            assert!(
                at > self.now,
                "a deadline that has come was met: {:?}",
                self.log.status(self.now)
            );
        }
    }

    fn begin(&mut self, effect: Effect) {
        match effect {
            Effect::Write(write) => {
                let mut bytes = vec![0xee; write.bytes as usize];
                assemble(&write, crc32c, |part, out| self.memory(part, out), &mut bytes);
                self.batches.insert(write.io, bytes.clone());
                self.running.push(Running::Write(write, bytes));
            }
            Effect::Sync(io) => self.running.push(Running::Sync(io)),
            Effect::Release(io) => assert!(self.batches.remove(&io).is_some(), "released once"),
            Effect::Ack(key, outcome, rule) => self.acked(key, outcome, rule),
            Effect::Through(key) => self.running.push(Running::Through(key)),
            Effect::Drained(key) => self.drained.push(key),
            Effect::Gather { job, bytes, pieces } => {
                let (mut memory, mut spans) = (Vec::new(), Vec::new());
                for piece in pieces {
                    assert_eq!(piece.offset, memory.len() as u64, "pieces follow each other");
                    let length = match piece.source {
                        Source::Zeroes(length) => length,
                        Source::Memory(part) => part.length,
                        Source::Log(span) => span.length,
                    };
                    let at = memory.len();
                    memory.resize(at + length as usize, 0);
                    match piece.source {
                        Source::Zeroes(_) => {}
                        Source::Memory(part) => self.memory(&part, &mut memory[at..]),
                        Source::Log(span) => spans.push((at, span)),
                    }
                }
                assert_eq!(memory.len() as u64, bytes);
                self.jobs.insert(job, memory);
                self.running.push(Running::Gather(job, spans));
            }
            Effect::Upstream { job, op, extent, fua } => {
                self.running.push(Running::Upstream(job, op, extent, fua));
            }
            Effect::Done(job) => {
                self.jobs.remove(&job);
            }
            Effect::Abandon => self.running.push(Running::Abandon),
            Effect::Closed => self.closed = true,
            Effect::Notice(notice) => self.notices.push(notice),
        }
    }

    pub(super) fn read_span(&self, span: &Span) -> Result<Vec<u8>, u64> {
        let (sums, payload) = span.reads();
        let read = |extent: Extent| {
            let mut out = vec![0; extent.length as usize];
            self.disk.read(extent.offset, &mut out);
            out
        };
        let (sums, payload) = (read(sums), read(payload));
        span.check(&sums, &payload, crc32c).map(<[u8]>::to_vec)
    }

    fn memory(&self, part: &Part, out: &mut [u8]) {
        match part.from {
            Memory::Batch(io, at) => {
                let bytes = self.batches.get(&io).expect("a batch is kept until it is released");
                out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
            }
            Memory::Job(job, at) => {
                let memory = self.jobs.get(&job).expect("a job's memory is kept until it is done");
                out.copy_from_slice(&memory[at as usize..at as usize + out.len()]);
            }
            Memory::Request(key, at) => {
                let number = *self.keys.get(key).expect("payload is kept until the answer");
                let from = self.asked[number as usize - 1].from + at as usize / 512;
                for (i, sector) in out.chunks_mut(512).enumerate() {
                    fill(number, from + i, sector);
                }
            }
        }
    }

    fn acked(&mut self, key: RequestKey, outcome: Outcome, rule: Rule) {
        let number = self.keys.remove(key).expect("answered once");
        if outcome == Err(IoError::Fenced) {
            self.fenced += 1;
            if number == 0 {
                return;
            }
        }
        let event = self.tick();
        let now = self.now;
        let one = &mut self.asked[number as usize - 1];
        one.over = true;
        one.took = now.since(one.at);
        one.rule = Some(rule);
        match outcome {
            Ok(()) => one.acked = Some(event),
            Err(IoError::Busy) => one.busy = true,
            Err(IoError::Fenced) => {}
            Err(error) => panic!("a host was told {error}"),
        }
    }

    /// Ends what runs as number `i` of [`running`](Self::running).
    pub(super) fn end(&mut self, i: usize) {
        let running = self.running.remove(i);
        match running {
            Running::Write(write, bytes) => {
                let bad = self.bad_luck();
                if bad {
                    self.disk.write_some(write.at, &bytes, &mut self.rng);
                } else {
                    self.disk.write(write.at, &bytes);
                }
                self.log.log_io_ended(
                    self.now,
                    write.io,
                    if bad { Err(IoError::Medium) } else { Ok(()) },
                );
            }
            Running::Sync(io) => {
                let bad = self.bad_luck();
                if bad {
                    self.disk.lose(&mut self.rng);
                } else {
                    self.disk.sync();
                    self.faults = 0;
                }
                self.log.log_io_ended(
                    self.now,
                    io,
                    if bad { Err(IoError::Medium) } else { Ok(()) },
                );
            }
            Running::Gather(job, spans) => {
                let outcome = self.gather(job, spans);
                self.log.gathered(self.now, job, outcome);
            }
            Running::Upstream(job, op, extent, fua) => {
                let outcome = self.upstream(job, op, extent, fua);
                self.log.upstream_ended(self.now, job, outcome);
            }
            Running::Through(key) => self.through(key),
            Running::Abandon => {
                self.abandoned = true;
                self.log.abandoned(self.now, self.remembers);
            }
        }
        self.pump();
        if self.judges {
            self.judge();
        }
    }

    /// Reads what a job wants of the log.
    fn gather(&mut self, job: JobId, spans: Vec<(usize, Span)>) -> Outcome {
        for (at, span) in spans {
            let Ok(bytes) = self.read_span(&span) else {
                // Only a sync that fails at the start can lose what is found.
                let failed = self.log.status(self.now).failed;
                assert!(failed || self.rotten, "the log is intact");
                return Err(IoError::Medium);
            };
            let memory = self.jobs.get_mut(&job).expect("it is being filled");
            memory[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn bad_luck(&mut self) -> bool {
        self.locals += 1;
        if self.failing.contains(&self.locals) {
            return true;
        }
        // A device that has failed for good and then fails again is another test's.
        let spared = self.faults > 0 || self.log.status(self.now).failed;
        let bad = self.rng.below(1000) < self.luck.local && !spared;
        self.faults += u32::from(bad);
        bad
    }

    fn upstream(&mut self, job: JobId, op: Op, extent: Extent, fua: bool) -> Outcome {
        let from = (extent.offset / 512) as usize;
        let touched = from..from + (extent.length / 512) as usize;
        if let Some((sector, error)) = self.refusal
            && sector.is_none_or(|sector| touched.contains(&sector))
        {
            return Err(error);
        }
        if self.unable && matches!(op, Op::Discard | Op::WriteZeroes) {
            return Err(IoError::Unsupported);
        }
        let bad = self.rng.below(1000) < self.luck.upstream;
        // It may have happened, and the answer was lost.
        if !bad || self.rng.below(2) == 0 {
            match op {
                Op::Flush => self.far.flush(),
                Op::Write => {
                    for (i, version) in self.jobs[&job].clone().chunks(512).map(version).enumerate()
                    {
                        if fua {
                            self.far.harden(from + i, version);
                        } else {
                            self.far.write(from + i, version);
                        }
                    }
                }
                _ => {
                    for sector in touched {
                        self.far.write(sector, 0);
                    }
                }
            }
        }
        if !bad {
            return Ok(());
        }
        if self.rng.below(3) == 0 {
            return Err(IoError::Busy);
        }
        // What went past the log is not the log's to repeat.
        if self.log.status(self.now).debt.is_none() {
            self.far.lose(&mut self.rng);
        }
        Err(IoError::PathFailed)
    }

    /// How many sectors a host writes with this request.
    pub(super) fn sectors(&self, key: RequestKey) -> u64 {
        let number = *self.keys.get(key).expect("it waits");
        self.asked[number as usize - 1].count as u64
    }

    fn through(&mut self, key: RequestKey) {
        let number = *self.keys.get(key).expect("it waits");
        let one = self.asked[number as usize - 1].clone();
        match one.kind {
            None => self.far.flush(),
            Some(kind) => {
                let version = if kind == Kind::Write { number } else { 0 };
                for sector in one.from..one.from + one.count {
                    self.far.write(sector, version);
                }
                if one.fua {
                    self.far.flush();
                }
            }
        }
        self.asked[number as usize - 1].past = true;
        self.acked(key, Ok(()), Rule(&"storage/device"));
        self.log.forward_ended();
    }

    /// Goes to the next deadline, or to `until` if that is sooner.
    pub(super) fn sleep(&mut self, until: Instant) {
        let at = self.log.next_deadline().map_or(until, |at| at.min(until));
        self.now = at.max(self.now);
        self.pump();
    }

    /// The gateway dies. With `power`, the log device forgets what was not flushed, in part.
    pub(super) fn crash(&mut self, power: bool) {
        for running in core::mem::take(&mut self.running) {
            match running {
                Running::Write(write, bytes) => {
                    self.disk.write_some(write.at, &bytes, &mut self.rng);
                }
                Running::Upstream(job, op, extent, fua) => {
                    let _ = self.upstream(job, op, extent, fua);
                }
                _ => {}
            }
        }
        if power {
            self.disk.lose(&mut self.rng);
        }
        let flushed = self.flushed();
        for one in &mut self.asked {
            one.over = true;
            self.keys.remove(one.key);
            // A volatile cache may lose what was not flushed, and no host relies on it any more.
            if self.settings.mode == Mode::Ram && !one.fua {
                one.acked = one.acked.filter(|&at| at < flushed);
            }
        }
        self.batches.clear();
        self.jobs.clear();
        self.faults = 0;
        self.judge();
        let recovered = self.recover().expect("a crash does no damage");
        let bytes = recovered.encode();
        assert_eq!(Recovered::decode(&bytes), Ok(recovered.clone()));
        self.log = Log::new(self.settings, &recovered);
        self.pump();
    }

    pub(super) fn recover(&self) -> Result<Recovered, Refusal<IoError>> {
        let size = self.disk.durable.len() as u64;
        let mut read = |at: u64, out: &mut [u8]| {
            self.disk.read(at, out);
            Ok(())
        };
        recover(&mut read, size, &self.settings)
    }
}

impl Rig {
    /// Ends what runs, in order, until `done` or for this number of steps; time passes when nothing runs.
    pub(super) fn until(&mut self, steps: u32, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..steps {
            if done(self) {
                return true;
            }
            if self.running.is_empty() {
                let until = self.now + Duration::from_secs(1);
                self.sleep(until);
            } else {
                self.end(0);
            }
        }
        done(self)
    }

    /// Nothing that bypassed the log is left to be flushed upstream.
    pub(super) fn pays_debt(&mut self) -> bool {
        self.until(50, |rig| rig.log.status(rig.now).debt.is_none())
    }

    /// Everything that was acknowledged goes upstream.
    pub(super) fn drain(&mut self) -> bool {
        let key = self.key();
        self.log.await_drained(self.now, key);
        self.pump();
        self.until(100_000, |rig| rig.drained.contains(&key))
    }

    pub(super) fn upstream_state(&self) -> Upstream {
        self.log.status(self.now).upstream
    }

    pub(super) fn blocked(&self) -> bool {
        matches!(self.upstream_state(), Upstream::Blocked { .. })
    }

    /// Lets everything end, and compares the upstream with what hosts read.
    pub(super) fn settle(&mut self) {
        self.luck = Luck::default();
        while !self.until(100_000, |rig| rig.outstanding() == 0 || rig.blocked()) || self.blocked()
        {
            // Only what a sync at the start lost can block here: opened again, it is cut off.
            assert!(self.blocked(), "requests end: {:?}", self.log.status(self.now));
            self.crash(false);
        }
        while !self.drain() {
            assert!(self.blocked(), "a drain ends: {:?}", self.log.status(self.now));
            self.crash(false);
        }
        self.judge();
        self.check_reads();
        let state = self.log.status(self.now);
        if !state.failed {
            let found = self.recover().expect("it is in use");
            assert_eq!(found.dirty(), (0, 0), "the log knows what is upstream");
        }
        let view = self.view();
        for (sector, &version) in self.far.durable.iter().enumerate() {
            assert_eq!(Some(version), view[sector], "sector {sector} is upstream as it is read");
        }
        assert_eq!(self.log.status(self.now).dirty_bytes, 0);
        assert_eq!(self.log.status(self.now).dirty_records, 0);
    }
}

impl Asked {
    pub(super) fn touches(&self, sector: usize) -> bool {
        self.kind.is_some() && (self.from..self.from + self.count).contains(&sector)
    }
}
