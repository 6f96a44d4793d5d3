//! Destage: from the log to the upstream, one epoch at a time.
//!
//! | | |
//! |---|---|
//! | Order   | all of an epoch is upstream, and flushed there, before the next is begun |
//! | Inside  | the newest data of each byte, ascending, neighbours merged, `depth` at once |
//! | FUA     | an epoch that is one write takes FUA and needs no flush: one round trip instead of two, where it matters most, as hosts that never flush close an epoch with every answer; other small ones do if that is [faster](fua) |
//! | Yields  | while hosts read upstream it goes in short bursts, for a [share] that rises with what reads leave, the age of the data and the fill of the log; not at all from 75 % on, and while a request waits for the data to be upstream |
//! | Again   | an epoch is written again from its start if the upstream may have lost its cache since |
//! | Debt    | no epoch is begun before what bypassed the log is durable upstream |
//! | Marks   | the epoch after the next is begun only when the log device says that this one is upstream: a log that is opened again repeats two epochs at most, and never takes a block back behind what later epochs were built on |
//!
//! What the upstream answers:
//!
//! | answer | |
//! |---|---|
//! | transport, no path, busy, no space | tried again for ever, after 0.1 to 10 s, one I/O at a time until it answers |
//! | the same, with a volatile cache | and all of the epoch is written again: the cache may be lost |
//! | medium error, write protected, out of range | write-back of this volume stops until an operator gives `retry`; nothing is dropped |
//! | unsupported | an unmap becomes zeroes, zeroes become a write; else as above |

mod epoch;
mod fua;
mod job;
mod outage;
mod pieces;
mod send;
mod share;

pub use epoch::Reason;
pub(super) use epoch::{Epoch, Epochs};
pub(super) use outage::Outage;

use super::debt::Debt;
use super::effect::{Blocked, Cause, Effect, JobId, Notice};
use super::format::RecordKind;
use super::settings::{Settings, Sync};
use super::wal::Wal;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::request::{Op, Outcome};
use alloc::collections::{BTreeMap, VecDeque};
use fua::FuaChoice;
use job::{ActiveEpoch, Job, Step};
use share::Share;

/// Write-back of one volume.
#[derive(Debug)]
pub(super) struct Destage {
    settings: Settings,
    epochs: Epochs,
    jobs: BTreeMap<JobId, Job>,
    /// Bytes of all jobs that write.
    job_bytes: u64,
    next_job: u64,
    /// The epoch that is being written, the oldest.
    active: Option<ActiveEpoch>,
    /// What bypassed the log, and has to be durable upstream before an epoch is begun.
    debt: Debt,
    /// How many jobs at once, from 1 to `depth`.
    limit: u32,
    outage: Option<Outage>,
    blocked: Option<(Blocked, Instant)>,
    /// Reads of hosts that are upstream.
    reads: u32,
    /// When there was one last.
    last_read: Option<Instant>,
    /// What it may send while it yields to reads.
    share: Share,
    fua_choice: FuaChoice,
    /// The last records of the last two epochs that are upstream.
    ended: (u64, u64),
    /// The last of them was made of several.
    ended_merged: bool,
    no_discard: bool,
    no_zeroes: bool,
    counters: Counters,
    /// Pieces that were looked at for the cleaning of the log.
    #[cfg(test)]
    pub(super) visited: core::cell::Cell<u64>,
}

/// What has been written back since the log was opened, and what is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Payload bytes that are not upstream, without those overwritten in the same epoch.
    pub(super) dirty: u64,
    /// Payload bytes that were overwritten in their epoch.
    pub(super) collapsed: u64,
    /// Bytes written, zeroed or unmapped upstream.
    pub(super) written: u64,
    /// Epochs.
    pub(super) epochs: u64,
    /// Of these, epochs whose writes went with FUA, so that no flush followed.
    pub(super) fua_epochs: u64,
}

/// What the end of an I/O upstream means for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// Nothing, or it is tried again.
    None,
    /// What went past the log is durable.
    SideFlushed,
    /// The active epoch is upstream and flushed.
    EpochFlushed,
    /// A write of this many bytes took this long, while this many bytes were on their way.
    Written(u64, Duration, u64),
}

/// What a pass over the active epoch has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassEnd {
    /// It has not ended.
    None,
    /// It is written once more, or flushed.
    Continued,
    /// The epoch is upstream.
    Done,
}

impl Destage {
    /// Write-back of a log whose records up to `applied` are upstream; `dirty` bytes are not. With `bypassed`
    /// writes may have gone past the log.
    pub(super) fn new(
        settings: Settings,
        epochs: Epochs,
        applied: u64,
        dirty: u64,
        bypassed: bool,
    ) -> Self {
        Self {
            epochs,
            jobs: BTreeMap::new(),
            job_bytes: 0,
            next_job: 0,
            active: None,
            debt: Debt::new(bypassed && settings.upstream_flush),
            limit: settings.depth,
            outage: None,
            blocked: None,
            reads: 0,
            last_read: None,
            share: Share::new(),
            fua_choice: FuaChoice::default(),
            ended: (applied, applied),
            ended_merged: false,
            no_discard: false,
            no_zeroes: false,
            counters: Counters { dirty, ..Counters::default() },
            #[cfg(test)]
            visited: core::cell::Cell::new(0),
            settings,
        }
    }

    pub(super) const fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    pub(super) const fn epochs_mut(&mut self) -> &mut Epochs {
        &mut self.epochs
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the upstream has a volatile cache, so that an epoch ends with FUA or a flush.
    pub(super) const fn upstream_flush(&self) -> bool {
        self.settings.upstream_flush
    }

    /// How many I/Os are outstanding.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    pub(super) const fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Where it has stopped, and since when.
    pub(super) const fn blocked(&self) -> Option<(Blocked, Instant)> {
        self.blocked
    }

    /// How many reads of hosts are upstream now: write-back yields to them. `begun` are the bytes of those that
    /// were not there before.
    pub(super) fn set_reads(&mut self, reads: u32, begun: u64) {
        let more = reads.saturating_sub(self.reads);
        self.share.read(more.into(), begun);
        self.reads = reads;
    }

    /// The upstream may have lost its volatile cache: the active epoch is written again.
    pub(super) const fn redo(&mut self) {
        if let Some(active) = &mut self.active {
            active.redo = true;
        }
    }

    /// What bypassed the log.
    pub(super) const fn debt(&self) -> &Debt {
        &self.debt
    }

    pub(super) const fn debt_mut(&mut self) -> &mut Debt {
        &mut self.debt
    }

    /// A request that bypassed the log has ended.
    pub(super) fn forward_ended(&mut self) {
        self.debt.forward_ended(self.settings.upstream_flush);
    }

    /// Whether it is blocked because another gateway owns the upstream.
    pub(super) fn is_fenced(&self) -> bool {
        self.blocked.is_some_and(|(blocked, _)| blocked.cause == Cause::Upstream(IoError::Fenced))
    }

    /// Continues where it was blocked.
    pub(super) fn unblock(&mut self, effects: &mut VecDeque<Effect>) {
        if self.blocked.take().is_some() {
            effects.push_back(Effect::Notice(Notice::Unblocked));
        }
    }

    // Epochs.

    /// Record `seq` has changed a range of the volume, with this many bytes of payload.
    pub(super) fn add(
        &mut self,
        now: Instant,
        seq: u64,
        range: (u64, u64),
        payload: u64,
        wal: &Wal,
    ) {
        let mut collapsed = 0;
        self.epochs.add(now, seq, range, payload, |held| {
            if wal.records().get(held.seq).kind == RecordKind::Write {
                collapsed += held.end - held.start;
            }
        });
        let counters = &mut self.counters;
        counters.dirty += payload;
        assert!(collapsed <= counters.dirty, "only dirty data is overwritten: {collapsed}");
        counters.dirty -= collapsed;
        counters.collapsed += collapsed;
    }

    /// Closes the open epoch if that is due. `next` is the event number of the first request that waits before
    /// the log; with `hurried` requests wait for data to be upstream, or for room. Whether it closed one.
    pub(super) fn close_epoch_if_due(
        &mut self,
        now: Instant,
        next: Option<u64>,
        hurried: bool,
    ) -> bool {
        let mut closed = self.epochs.close_before(next);
        if let Some(open) = self.epochs.open() {
            let (bytes, opened) = (open.bytes, open.opened);
            if bytes >= self.settings.epoch_bytes {
                closed |= self.epochs.close(Reason::Size);
            } else if now >= opened + self.settings.epoch_age {
                closed |= self.epochs.close(Reason::Age);
            } else if hurried && self.epochs.closed().is_none() {
                closed |= self.epochs.close(Reason::Wanted);
            }
        }
        closed
    }

    /// When the open epoch is too old.
    pub(super) fn epoch_deadline(&self) -> Option<Instant> {
        self.epochs.open().map(|open| open.opened + self.settings.epoch_age)
    }

    /// Whether the log device should say at once how far write-back has come, so that the next epoch may begin.
    pub(super) fn waits_for_mark(&self, wal: &Wal) -> bool {
        !self.epochs.is_empty() && wal.on_device().applied < self.ended.1
    }

    /// Whether write-back rests: it is blocked, or the log closes and its device has what is dirty.
    pub(super) const fn rests(&self, closing: bool) -> bool {
        self.blocked.is_some() || closing
    }

    /// Notes whether hosts read upstream now.
    pub(super) fn note_reads(&mut self, now: Instant) {
        self.share.pass(now);
        if self.reads > 0 {
            self.last_read = Some(now);
        }
    }

    /// Begins the oldest epoch if that is allowed. Whether it did.
    pub(super) fn begin_epoch(&mut self, wal: &Wal) -> bool {
        let Some(epoch) = self.epochs.closed() else { return false };
        let durable = epoch.last <= wal.marks().durable() || wal.failed();
        // What is not marked is written again after a crash, over what came after it. One epoch may go
        // back so, but none that a host was told is upstream, and none that would be several then.
        let (before, last) = self.ended;
        let none = self.settings.sync == Sync::Upstream || self.ended_merged;
        let due = if none { last } else { before };
        let marked = wal.on_device().applied >= due || wal.is_unmarkable();
        // What bypassed the log comes first.
        if self.active.is_some() || !durable || !marked || self.debt.is_open() {
            return false;
        }
        self.active = Some(ActiveEpoch::start());
        true
    }

    /// Begins a flush of what bypassed the log, if one is owed. Whether it did.
    pub(super) fn begin_side_flush(&mut self) -> bool {
        let begins = self.debt.begin_flush();
        if begins {
            self.start(Job::flush(true));
        }
        begins
    }

    /// When all of the active epoch is written: once more, or flush, or the end.
    pub(super) fn end_pass(&mut self) -> PassEnd {
        let Some(active) = &mut self.active else { return PassEnd::None };
        if active.cursor.is_some() || !self.jobs.is_empty() {
            return PassEnd::None;
        }
        if active.redo {
            *active = active.again();
        } else if self.settings.upstream_flush && !active.fua {
            self.start(Job::flush(false));
        } else {
            return PassEnd::Done;
        }
        PassEnd::Continued
    }

    /// The active epoch is upstream and flushed. Returns its last record.
    pub(super) fn end_epoch(&mut self, now: Instant, wal: &mut Wal) -> u64 {
        assert!(
            self.active.is_some() && self.jobs.values().all(|job| job.side),
            "only an epoch that was begun, and of which no I/O is outstanding, ends"
        );
        let active = self.active.take().expect("as before");
        self.counters.fua_epochs += u64::from(active.fua);
        if let ActiveEpoch { fua, writes: Some(writes), shared, sent: Some(sent), .. } = active {
            self.fua_choice.ended(writes, shared, fua, now.saturating_since(sent));
        }
        let epoch = self.epochs.pop();
        for held in epoch.pieces.iter() {
            wal.forget(&held);
            if wal.records().get(held.seq).kind == RecordKind::Write {
                self.counters.dirty -= held.end - held.start;
            }
        }
        self.counters.epochs += 1;
        assert!(
            self.ended.1 < epoch.last,
            "epochs end in order: {} after {:?}",
            epoch.last,
            self.ended
        );
        assert!(
            !self.epochs.is_empty() || self.counters.dirty == 0,
            "all dirty bytes are those of epochs: {} are left",
            self.counters.dirty
        );
        (self.ended, self.ended_merged) = ((self.ended.1, epoch.last), epoch.merged);
        epoch.last
    }

    // Jobs.

    fn start(&mut self, job: Job) {
        let id = self.name_job();
        self.job_bytes += job.bytes();
        self.jobs.insert(id, job);
    }

    /// Whether one job more is allowed.
    fn has_room(&self) -> bool {
        self.jobs.len() < self.limit as usize
            && self.job_bytes < self.settings.merge.saturating_mul(LONG_WRITES_MAX)
    }

    fn any_sent(&self) -> bool {
        self.jobs.values().any(|job| matches!(job.step, Step::Sent(_)))
    }

    fn first(&self, step: Step) -> Option<JobId> {
        self.jobs.iter().find(|(_, job)| job.step == step).map(|(&id, _)| id)
    }

    /// A name for something that is to be gathered.
    pub(super) const fn name_job(&mut self) -> JobId {
        self.next_job += 1;
        JobId(self.next_job)
    }

    /// The bytes of a job are there, or cannot be had.
    pub(super) fn gathered(
        &mut self,
        now: Instant,
        id: JobId,
        outcome: Outcome,
        wal: &mut Wal,
        effects: &mut VecDeque<Effect>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Step::Gathering(pin) = job.step else { return };
        wal.unpin(pin);
        match outcome {
            Ok(()) => job.step = Step::Ready,
            Err(error) => {
                job.step = Step::New;
                let active = self.active.as_mut().expect("only an epoch's write is gathered");
                let job = &self.jobs[&id];
                if job.pieces.len() > 1 || !self.epochs.writes(&job.pieces[0]) {
                    // Which record is it? The others are written.
                    (active.apart, active.redo) = (true, true);
                    self.end_job(now, id, effects);
                } else {
                    self.block(now, id, Cause::Log(error), wal, effects);
                }
            }
        }
    }

    /// An I/O upstream has ended.
    pub(super) fn job_ended(
        &mut self,
        now: Instant,
        id: JobId,
        outcome: Outcome,
        wal: &Wal,
        effects: &mut VecDeque<Effect>,
    ) -> JobEnd {
        let Some(job) = self.jobs.get(&id) else { return JobEnd::None };
        let Step::Sent(sent) = job.step else { return JobEnd::None };
        let (op, bytes, side) = (job.op, job.extent.length, job.side);
        if let Err(error) = outcome {
            self.job_failed(now, id, error, wal, effects);
            return JobEnd::None;
        }
        let took = now.saturating_since(sent);
        if let Some(outage) = self.outage.take() {
            effects.push_back(Effect::Notice(Notice::Back(now.saturating_since(outage.since))));
        }
        self.limit = (self.limit + 1).min(self.settings.depth);
        self.end_job(now, id, effects);
        if side {
            return JobEnd::SideFlushed;
        }
        if op == Op::Flush {
            self.share.flushed(now, took);
            // Without a reset in between; else the pass ends by writing again.
            let whole = self.active.as_ref().is_some_and(|active| !active.redo);
            return if whole { JobEnd::EpochFlushed } else { JobEnd::None };
        }
        self.counters.written += bytes;
        if op != Op::Write {
            return JobEnd::None;
        }
        JobEnd::Written(bytes, took, bytes + self.job_bytes)
    }

    fn job_failed(
        &mut self,
        now: Instant,
        id: JobId,
        error: IoError,
        wal: &Wal,
        effects: &mut VecDeque<Effect>,
    ) {
        let job = &self.jobs[&id];
        let (op, side) = (job.op, job.side);
        match error {
            IoError::Unsupported if op == Op::Discard => {
                self.no_discard = true;
                self.replace_job(now, id, effects);
            }
            IoError::Unsupported if op == Op::WriteZeroes => {
                self.no_zeroes = true;
                self.replace_job(now, id, effects);
            }
            IoError::Medium
            | IoError::WriteProtected
            | IoError::OutOfRange
            | IoError::Unsupported
            | IoError::Fenced
                if !side || error == IoError::Fenced =>
            {
                self.send_again(id);
                if op == Op::Flush && !side {
                    // What it should have made durable may be gone.
                    self.redo();
                }
                self.block(now, id, Cause::Upstream(error), wal, effects);
            }
            _ => {
                if error == IoError::Busy {
                    self.limit = (self.limit / 2).max(1);
                } else if self.settings.upstream_flush {
                    self.redo();
                }
                self.send_again(id);
                let before = self.outage;
                self.outage = Some(Outage::after(before, now, id, wal.id()[0], error));
                if before.is_none() {
                    effects.push_back(Effect::Notice(Notice::Away(error)));
                }
            }
        }
    }

    /// The job is done in another way when its epoch is written again.
    fn replace_job(&mut self, now: Instant, id: JobId, effects: &mut VecDeque<Effect>) {
        self.end_job(now, id, effects);
        self.redo();
    }

    fn end_job(&mut self, now: Instant, id: JobId, effects: &mut VecDeque<Effect>) {
        let job = self.jobs.remove(&id).expect("a job ends once");
        self.job_bytes -= job.bytes();
        if job.side {
            self.debt.flush_ended();
        }
        if let Some(burst) = job.burst {
            let most = self.settings.merge.saturating_mul(self.settings.depth.into());
            self.share.ended(now, burst, most);
        }
        effects.push_back(Effect::Done(id));
    }

    fn send_again(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("an I/O that has failed is sent again");
        job.step = Step::Ready;
    }

    /// Write-back stops.
    fn block(
        &mut self,
        now: Instant,
        id: JobId,
        cause: Cause,
        wal: &Wal,
        effects: &mut VecDeque<Effect>,
    ) {
        if self.blocked.is_some() {
            return;
        }
        let job = &self.jobs[&id];
        let orders = job.pieces.iter().map(|held| wal.records().order(held.seq));
        let seq = orders.min().unwrap_or(wal.marks().applied() + 1);
        let blocked = Blocked { seq, extent: job.extent, cause };
        self.blocked = Some((blocked, now));
        effects.push_back(Effect::Notice(Notice::Blocked(blocked)));
    }

    /// When write-back continues although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if let Some(outage) = self.outage {
            let waits = self.first(Step::Ready).is_some() || self.jobs.is_empty();
            let work = self.active.is_some() || !self.jobs.is_empty();
            return (waits && work && !self.any_sent()).then_some(outage.until);
        }
        let active = self.active.as_ref()?;
        let next = if self.jobs.is_empty() {
            self.share.next()
        } else if active.cursor.is_some() && self.has_room() {
            self.share.next_overlapping()?
        } else {
            return None;
        };
        let quiet = self.last_read.map_or(Instant::ZERO, |at| at + YIELD);
        Some(next.min(quiet))
    }
}

/// Most bytes of jobs, as a multiple of the longest write: many small writes are to be outstanding, not as many
/// long ones.
const LONG_WRITES_MAX: u64 = 8;

/// How long after the last read of a host write-back still yields.
const YIELD: Duration = Duration::from_millis(100);
