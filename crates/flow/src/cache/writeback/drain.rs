//! Write-back: from the log to the upstream, one epoch at a time.
//!
//! | | |
//! |---|---|
//! | Order   | all of an epoch is upstream, and flushed there, before the next is begun |
//! | Inside  | the newest data of each byte, ascending, neighbours merged, `depth` at once |
//! | Alone   | an epoch that is one write goes with FUA and needs no flush: one way there and back instead of two, where it matters most, as hosts that never flush close an epoch with every answer |
//! | Yields  | while hosts read upstream it goes in short bursts, for a [share](super::share) that rises with the age of the data and the fill of the log; not at all from 75 % on, and while somebody waits for the data to be upstream |
//! | Again   | an epoch is written again from its start if the upstream may have lost its cache since |
//! | Marks   | the epoch after the next is begun only when the log device says that this one is upstream: a log that is opened again repeats two epochs at most, and never takes a block back behind what later epochs were built on |

use super::effect::{Blocked, Effect, JobId, Memory, Part, Piece, Source};
use super::epoch::Reason;
use super::format::RecordKind;
use super::gate::FILL_PACED;
use super::index::Held;
use super::log::Log;
use super::recovered::Recovered;
use super::settings::{Settings, Sync};
use super::share::{self, Share};
use super::switch::State;
use super::upstream::Away;
use crate::clock::{Duration, Instant};
use crate::request::{Op, Outcome};
use crate::units::Extent;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What is on its way upstream.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) jobs: BTreeMap<JobId, Job>,
    next_job: u64,
    /// The epoch that is being written, the oldest.
    pub(super) active: Option<Active>,
    /// What went `through` has not been flushed since.
    pub(super) owed: bool,
    /// So many jobs at once, at most.
    pub(super) limit: u32,
    pub(super) away: Option<Away>,
    pub(super) blocked: Option<(Blocked, Instant)>,
    /// Reads of hosts that are upstream.
    pub(super) demand: u32,
    /// When there was one last.
    demanded: Option<Instant>,
    /// What it has while it yields.
    pub(super) share: Share,
    /// The last records of the last two epochs that are upstream.
    pub(super) ended: (u64, u64),
    /// The upstream cannot do these.
    pub(super) no_discard: bool,
    pub(super) no_zeroes: bool,
}

/// The epoch that is being written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Active {
    /// Everything before it has been begun; `None` at the end.
    cursor: Option<u64>,
    /// All of it must be written again.
    pub(super) redo: bool,
    /// All of it is one write, which makes itself durable.
    alone: bool,
}

/// One I/O.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) extent: Extent,
    /// Whose data it is.
    pieces: Vec<Held>,
    pub(super) step: Step,
    /// It flushes what went `through`.
    pub(super) side: bool,
    /// It makes itself durable.
    fua: bool,
    /// It belongs to a burst.
    pub(super) yields: bool,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    New,
    Gathering,
    Ready,
    Sent(Instant),
}

impl Job {
    /// Its oldest record.
    pub(super) fn seq(&self) -> u64 {
        self.pieces.iter().map(|held| held.seq).min().unwrap_or(0)
    }
}

impl Writer {
    pub(super) fn new(settings: &Settings, recovered: &Recovered) -> Self {
        Self {
            jobs: BTreeMap::new(),
            next_job: 0,
            active: None,
            owed: recovered.passed && settings.upstream_flush,
            limit: settings.depth,
            away: None,
            blocked: None,
            demand: 0,
            demanded: None,
            share: Share::new(),
            ended: (recovered.applied, recovered.applied),
            no_discard: false,
            no_zeroes: false,
        }
    }

    /// The epoch that is being written must be written again.
    pub(super) fn redo(&mut self) {
        if let Some(active) = &mut self.active {
            active.redo = true;
        }
    }

    fn sent(&self) -> bool {
        self.jobs.values().any(|job| matches!(job.step, Step::Sent(_)))
    }

    fn first(&self, step: Step) -> Option<JobId> {
        self.jobs.iter().find(|(_, job)| job.step == step).map(|(&id, _)| id)
    }
}

impl Log {
    /// Closes the open epoch if that is due.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let mut closed = self.epochs.turn(self.gate.queue.front().map(|first| first.event));
        if let Some(open) = self.epochs.open() {
            let (bytes, opened) = (open.bytes, open.opened);
            if bytes >= self.settings.epoch_bytes {
                closed |= self.epochs.close(Reason::Size);
            } else if now >= opened + self.settings.epoch_age {
                closed |= self.epochs.close(Reason::Age);
            } else if self.hurries() && self.epochs.closed().is_none() {
                closed |= self.epochs.close(Reason::Wanted);
            }
        }
        closed
    }

    /// When the open epoch is too old.
    pub(super) fn turn_deadline(&self) -> Option<Instant> {
        self.epochs.open().map(|open| open.opened + self.settings.epoch_age)
    }

    /// Whether somebody waits for data to be upstream, or for room.
    fn hurries(&self) -> bool {
        let held = self.gate.queue.front().is_some_and(|first| first.held.is_some());
        held || !self.landing.is_empty() || !self.drains.is_empty() || self.drains_all()
    }

    /// Begins and ends epochs and jobs; whether it did anything.
    pub(super) fn write_back(&mut self, now: Instant) -> bool {
        if self.writer.demand > 0 {
            self.writer.demanded = Some(now);
        }
        if self.writer.blocked.is_some() || (self.closing && !self.failed) {
            return false;
        }
        let mut changed = self.begin_epoch(now) | self.flush_side();
        while self.send_one(now) {
            changed = true;
        }
        changed | self.end_pass(now)
    }

    fn begin_epoch(&mut self, now: Instant) -> bool {
        let Some(epoch) = self.epochs.closed() else { return false };
        let durable = epoch.last <= self.durable || self.failed;
        // What is not marked is written again after a crash, over what came after it. One epoch may go
        // back so, but none that somebody was told is upstream.
        let (before, last) = self.writer.ended;
        let due = if self.settings.sync == Sync::Upstream { last } else { before };
        let marked = self.marked.applied >= due || self.unmarkable;
        // What went past the log comes first.
        if self.writer.active.is_some() || !durable || !marked || self.resuming() {
            return false;
        }
        self.writer.active = Some(Active { cursor: Some(0), ..Active::default() });
        self.gate.drained(now, 0);
        true
    }

    /// Whether a header that says how far write-back has come is wanted at once.
    pub(super) fn wants_applied_mark(&self) -> bool {
        let waits = !self.drains.is_empty() && self.marked.applied < self.applied;
        waits || (!self.epochs.is_empty() && self.marked.applied < self.writer.ended.1)
    }

    /// Whether write-back leaves the upstream to reads.
    fn yields(&self, now: Instant) -> bool {
        self.writer.demanded.is_some_and(|at| now < at + YIELD)
            && self.landing.is_empty()
            && self.fill() < FILL_PACED
    }

    /// Sends, or gathers, or makes one job, if that is allowed now.
    fn send_one(&mut self, now: Instant) -> bool {
        let barred = self.writer.away.is_some_and(|away| now < away.until || self.writer.sent());
        if !barred && let Some(id) = self.writer.first(Step::Ready) {
            let job = self.writer.jobs.get_mut(&id).expect("it was just found");
            job.step = Step::Sent(now);
            let (op, extent, fua) = (job.op, job.extent, job.fua);
            if job.yields {
                self.writer.share.sent(now);
            }
            self.effects.push_back(Effect::Upstream { job: id, op, extent, fua });
            return true;
        }
        if let Some(id) = self.writer.first(Step::New) {
            self.gather(id);
            return true;
        }
        let jobs = self.writer.jobs.len();
        let yields = self.writer.away.is_none() && self.yields(now);
        let share = if yields { self.writer.share.allows(now) } else { u64::MAX };
        if jobs >= self.writer.limit as usize
            || share == 0
            || (self.writer.away.is_some() && (jobs > 0 || barred))
        {
            return false;
        }
        let block = u64::from(self.settings.block);
        let most = (share.min(self.settings.merge) / block * block).max(block);
        let Some((op, pieces)) = self.next_group(most) else {
            return false;
        };
        let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
        let extent = Extent::new(first.start, last.end - first.start);
        let step = if op == Op::Write { Step::New } else { Step::Ready };
        if yields {
            self.writer.share.began(if op == Op::Write { extent.length } else { 0 });
        }
        let fua = self.writer.active.is_some_and(|active| active.alone);
        self.start(Job { op, extent, pieces, step, side: false, fua, yields });
        true
    }

    fn start(&mut self, job: Job) {
        self.writer.next_job += 1;
        self.writer.jobs.insert(JobId(self.writer.next_job), job);
    }

    /// The next neighbours of the active epoch that can be one I/O.
    fn next_group(&mut self, most: u64) -> Option<(Op, Vec<Held>)> {
        let cursor = self.writer.active.as_ref()?.cursor?;
        let epoch = self.epochs.closed().expect("what is active is closed");
        let mut group: Vec<Held> = Vec::new();
        let (mut op, mut limit) = (Op::Write, most);
        let mut next = cursor;
        for mut held in epoch.pieces.within(cursor, u64::MAX) {
            let wanted = match self.record(held.seq).kind {
                RecordKind::Unmap if !self.writer.no_discard => Op::Discard,
                RecordKind::Zero | RecordKind::Unmap if !self.writer.no_zeroes => Op::WriteZeroes,
                _ => Op::Write,
            };
            let Some(last) = group.last() else {
                op = wanted;
                limit = if op == Op::Write { most } else { ZEROES_MOST };
                held.end = held.end.min(held.start + limit);
                next = held.end;
                group.push(held);
                continue;
            };
            if last.end != held.start || wanted != op || group.len() >= PIECES {
                break;
            }
            let left = limit - (last.end - group[0].start);
            held.end = held.end.min(held.start + left);
            if held.end == held.start {
                break;
            }
            next = held.end;
            group.push(held);
        }
        let alone =
            cursor == 0 && op == Op::Write && epoch.pieces.within(next, u64::MAX).next().is_none();
        let active = self.writer.active.as_mut().expect("as before");
        active.alone |= alone && self.settings.upstream_flush && !group.is_empty();
        active.cursor = if group.is_empty() { None } else { Some(next) };
        (!group.is_empty()).then_some((op, group))
    }

    /// Asks for the bytes of a job.
    fn gather(&mut self, id: JobId) {
        let job = &self.writer.jobs[&id];
        let mut pieces = Vec::with_capacity(job.pieces.len());
        for held in &job.pieces {
            let offset = held.start - job.extent.offset;
            pieces.push(Piece { offset, source: self.source(held) });
        }
        let bytes = job.extent.length;
        self.writer.jobs.get_mut(&id).expect("as before").step = Step::Gathering;
        self.effects.push_back(Effect::Gather { job: id, bytes, pieces });
    }

    /// Where the bytes of a piece are.
    fn source(&self, held: &Held) -> Source {
        let record = self.record(held.seq);
        let length = held.end - held.start;
        if record.kind != RecordKind::Write {
            return Source::Zeroes(length);
        }
        let first = self.next - self.fresh.len() as u64;
        if held.seq <= self.durable || held.seq < first {
            return Source::Log(record.span(held.start, held.end));
        }
        let into = held.start - record.start;
        let from = match self.fresh[(held.seq - first) as usize].memory {
            Some(Memory::Request(key, offset)) => Memory::Request(key, offset + into),
            Some(Memory::Batch(io, offset)) => Memory::Batch(io, offset + into),
            None => unreachable!("a write that is not durable is in memory"),
        };
        Source::Memory(Part { from, length })
    }

    /// A flush of what went `through`, when that is wanted.
    fn flush_side(&mut self) -> bool {
        let wanted = match self.state {
            State::Resuming { outstanding: 0, .. } => true,
            State::Through { .. } => !self.drains.is_empty(),
            _ => false,
        };
        if !wanted || !self.writer.owed || self.writer.jobs.values().any(|job| job.side) {
            return false;
        }
        self.writer.owed = false;
        for drain in &mut self.drains {
            drain.rides = true;
        }
        self.start(Job {
            op: Op::Flush,
            extent: Extent::default(),
            pieces: Vec::new(),
            step: Step::Ready,
            side: true,
            fua: false,
            yields: false,
        });
        true
    }

    /// Whether what went `through` may not be durable upstream.
    pub(super) fn owes_flush(&self) -> bool {
        self.writer.owed || self.writer.jobs.values().any(|job| job.side)
    }

    /// When all of the active epoch is written: once more, or flush, or the end.
    fn end_pass(&mut self, now: Instant) -> bool {
        let Some(active) = &mut self.writer.active else { return false };
        if active.cursor.is_some() || !self.writer.jobs.is_empty() {
            return false;
        }
        if active.redo {
            *active = Active { cursor: Some(0), ..Active::default() };
        } else if self.settings.upstream_flush && !active.alone {
            self.start(Job {
                op: Op::Flush,
                extent: Extent::default(),
                pieces: Vec::new(),
                step: Step::Ready,
                side: false,
                fua: false,
                yields: false,
            });
        } else {
            self.end_epoch(now);
        }
        true
    }

    /// The oldest epoch is upstream and flushed.
    pub(super) fn end_epoch(&mut self, now: Instant) {
        let before = self.reached();
        self.writer.active = None;
        let epoch = self.epochs.pop();
        for held in epoch.pieces.iter() {
            self.index.remove(held.start, held.end, held.seq);
            if self.record(held.seq).kind == RecordKind::Write {
                self.counters.dirty -= held.end - held.start;
            }
        }
        self.counters.epochs += 1;
        self.writer.ended = (self.writer.ended.1, epoch.last);
        self.settle(epoch.last);
        let freed = self.reached().saturating_sub(before);
        self.gate.drained(now, freed);
        if self.epochs.is_empty() {
            self.gate.idle();
        }
        if self.is_unmarked() {
            self.unmarked.get_or_insert(now);
        }
        self.land(now);
    }

    /// How much log has ever been freed.
    pub(super) fn reached(&self) -> u64 {
        match self.tail() {
            _ if self.failed => 0,
            Some(at) => self.space.position_of(at),
            None => self.space.end(),
        }
    }

    /// All records up to `last` are upstream, and so are all that have no data behind them.
    pub(super) fn settle(&mut self, last: u64) {
        self.applied = self.applied.max(last);
        if self.epochs.is_empty() {
            let all = if self.failed { self.next - 1 } else { self.durable };
            self.applied = self.applied.max(all);
        }
        while self.base <= self.applied {
            self.base += 1;
            if self.records.pop_front().is_some_and(|record| record.kind.is_data()) {
                self.counters.records -= 1;
            }
        }
        if self.failed {
            while !self.fresh.is_empty() && self.next - self.fresh.len() as u64 <= self.applied {
                self.pop_fresh();
            }
        }
        self.space.retire(self.applied);
    }

    /// The bytes of a job are there, or cannot be had.
    pub(super) fn filled(&mut self, now: Instant, id: JobId, outcome: Outcome) {
        let Some(job) = self.writer.jobs.get_mut(&id).filter(|job| job.step == Step::Gathering)
        else {
            return;
        };
        match outcome {
            Ok(()) => job.step = Step::Ready,
            Err(error) => {
                job.step = Step::New;
                self.block(now, id, super::effect::Cause::Log(error));
            }
        }
    }

    /// A job of a burst has ended.
    pub(super) fn rest(&mut self, now: Instant) {
        let old = self
            .epochs
            .oldest()
            .is_some_and(|epoch| now.saturating_since(epoch.opened) > self.settings.dirty_age);
        let times = share::times(self.fill(), old);
        let most = self.settings.merge.saturating_mul(self.settings.depth.into());
        self.writer.share.ended(now, times, most);
    }

    /// When write-back goes on although nothing happens.
    pub(super) fn write_back_deadline(&self) -> Option<Instant> {
        let writer = &self.writer;
        if writer.blocked.is_some() || (self.closing && !self.failed) {
            return None;
        }
        if let Some(away) = writer.away {
            let waits = writer.first(Step::Ready).is_some() || writer.jobs.is_empty();
            let work = writer.active.is_some() || !writer.jobs.is_empty();
            return (waits && work && !writer.sent()).then_some(away.until);
        }
        let idle = writer.active.is_some() && writer.jobs.is_empty();
        let quiet = writer.demanded.map_or(Instant::ZERO, |at| at + YIELD);
        idle.then(|| writer.share.next().min(quiet))
    }
}

/// So long after the last read of a host, write-back still yields.
const YIELD: Duration = Duration::from_millis(100);

/// The most pieces of one write.
const PIECES: usize = 256;

/// The longest range that is zeroed or unmapped at once.
const ZEROES_MOST: u64 = 1 << 30;
