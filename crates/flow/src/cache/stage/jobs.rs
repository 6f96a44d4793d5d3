//! Requests of the cache itself: prefetch and write-back.

use super::{Begin, CacheStage, FetchKey, JobKey, Step, Work};
use crate::cache::lines::{FillId, Judged};
use crate::cache::prefetch::{Ended, Wish, WishId};
use crate::cache::writeback::{JobId, Part, Piece, Source};
use crate::clock::Instant;
use crate::request::{Op, Outcome, RequestKey, Tag, VolumeId};
use crate::units::Extent;
use alloc::vec::Vec;

/// An I/O of the cache itself.
pub(super) enum Job {
    /// A prefetch.
    Prefetch(PrefetchJob),
    /// A part of write-back.
    WriteBack(WriteBackJob),
}

impl Job {
    /// Its reads of a log that have not ended.
    pub(super) const fn fetches(&self) -> usize {
        match self {
            Self::Prefetch(_) => 0,
            Self::WriteBack(part) => part.left as usize,
        }
    }

    /// Whether memory of a job of this volume is awaited, or being filled.
    pub(super) fn is_in_progress(&self, of: VolumeId) -> bool {
        match self {
            Self::Prefetch(prefetch) => prefetch.volume == of,
            Self::WriteBack(part) => part.volume == of && (part.tag.is_none() || part.left > 0),
        }
    }
}

/// A prefetch.
pub(super) struct PrefetchJob {
    volume: VolumeId,
    extent: Extent,
    wish: WishId,
    fill: FillId,
    tag: Option<Tag>,
    began: Instant,
}

/// A part of write-back.
pub(super) struct WriteBackJob {
    volume: VolumeId,
    /// The log's name for it.
    job: JobId,
    /// Where its bytes come from.
    pieces: Vec<Piece>,
    /// Pieces that have not been read yet.
    left: u32,
    gathered: Outcome,
    /// What is to be done with storage, if that is known, and whether it must be durable then.
    end: Option<(Op, Extent, bool)>,
    tag: Option<Tag>,
}

/// Whom a read from a log is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetching {
    /// A request of a host.
    Overlay(RequestKey),
    /// A part of write-back.
    Gather(JobKey),
}

impl CacheStage {
    /// Fetches what the prefetcher wants.
    pub(super) fn prefetch_wishes(&mut self, now: Instant) {
        while let Some(Wish { id, volume, extent }) = self.prefetch.poll() {
            let lacking =
                self.lines.lacking(volume, extent).and_then(|lacking| within(lacking, extent));
            let Some(extent) = lacking.filter(|_| !self.volumes[volume.index()].gone) else {
                self.prefetch.ended(now, id, Ended::NotNeeded);
                continue;
            };
            let fill = self.lines.begin(volume, extent, true);
            self.exclude_dirty(volume, fill, extent);
            let job = Job::Prefetch(PrefetchJob {
                volume,
                extent,
                wish: id,
                fill,
                tag: None,
                began: now,
            });
            let job = self.jobs.insert(job);
            self.work(Work::Reserve { job, volume, bytes: extent.length, reads: true });
        }
    }

    /// What the log has newer of a fetch is not installed.
    fn exclude_dirty(&mut self, volume: VolumeId, fill: FillId, extent: Extent) {
        let Some(log) = &self.volumes[volume.index()].log else { return };
        let mut dirty = core::mem::take(&mut self.dirty);
        dirty.clear();
        log.look_up(extent, &mut dirty);
        for part in &dirty {
            self.lines.exclude(fill, part.extent);
        }
        self.dirty = dirty;
    }

    /// Tells the prefetcher what became of what it wished for.
    pub(super) fn judge(&mut self) {
        while let Some(Judged { volume, used, wasted }) = self.lines.take_judged() {
            self.prefetch.judge(volume, used, wasted);
        }
    }

    /// Begins a part of write-back: sets memory aside for it.
    pub(super) fn begin_job(&mut self, job: Job, volume: VolumeId, bytes: u64) {
        let job = self.jobs.insert(job);
        self.work(Work::Reserve { job, volume, bytes, reads: false });
    }

    /// A job has its memory.
    pub(super) fn reserved(&mut self, now: Instant, key: JobKey, reserved: Tag) {
        match self.jobs.get_mut(key) {
            None => {}
            Some(Job::Prefetch(prefetch)) => {
                assert!(prefetch.tag.is_none(), "memory is reserved once");
                (prefetch.tag, prefetch.began) = (Some(reserved), now);
                let (volume, extent) = (prefetch.volume, prefetch.extent);
                let op = Op::Read;
                let begin = Begin { job: key, tag: reserved, volume, op, extent, fua: false };
                self.steps.push_back(Step::Begin(begin));
            }
            Some(Job::WriteBack(part)) => {
                assert!(part.tag.is_none(), "memory is reserved once");
                part.tag = Some(reserved);
                let volume = part.volume;
                if let Some((op, extent, fua)) = part.end {
                    let begin = Begin { job: key, tag: reserved, volume, op, extent, fua };
                    self.steps.push_back(Step::Begin(begin));
                    return;
                }
                self.gather_now(now, key, reserved);
            }
        }
    }

    /// A log wants bytes brought together; if the job has its memory, that is filled again.
    pub(super) fn gather(
        &mut self,
        now: Instant,
        of: (VolumeId, JobId),
        bytes: u64,
        pieces: Vec<Piece>,
    ) {
        let (volume, job) = of;
        let Some(key) = self.write_back_job(volume, job) else {
            let part = WriteBackJob {
                volume,
                job,
                pieces,
                left: 0,
                gathered: Ok(()),
                end: None,
                tag: None,
            };
            self.begin_job(Job::WriteBack(part), volume, bytes);
            return;
        };
        let Job::WriteBack(part) = &mut self.jobs[key] else { unreachable!("found as such") };
        part.pieces = pieces;
        if let Some(tag) = part.tag {
            self.gather_now(now, key, tag);
        }
    }

    /// Fills the memory of a part of write-back.
    fn gather_now(&mut self, now: Instant, key: JobKey, tag: Tag) {
        let Job::WriteBack(part) = &mut self.jobs[key] else {
            unreachable!("only write-back gathers")
        };
        let volume = part.volume;
        let pieces = core::mem::take(&mut part.pieces);
        let mut left = 0;
        for Piece { offset, source } in pieces {
            match source {
                Source::Log(span) => {
                    let fetch = self.fetches.insert(Fetching::Gather(key));
                    self.work(Work::Fetch { fetch, volume, span, tag, offset });
                    left += 1;
                }
                Source::Memory(Part { from, length }) => {
                    let from = self.buffer(volume, from);
                    self.work(Work::CopyBuffer { volume, from, tag, offset, length });
                }
                Source::Zeroes(length) => self.work(Work::Zero { tag, offset, length }),
            }
        }
        let Job::WriteBack(part) = &mut self.jobs[key] else { unreachable!("as before") };
        (part.left, part.gathered) = (left, Ok(()));
        if left == 0 {
            self.gathered(now, key);
        }
    }

    /// The memory of a part of write-back is filled, or cannot be.
    fn gathered(&mut self, now: Instant, key: JobKey) {
        let Job::WriteBack(part) = &self.jobs[key] else { unreachable!("only write-back gathers") };
        let (job, outcome) = (part.job, part.gathered);
        self.with(now, part.volume, |log| log.gathered(now, job, outcome));
    }

    /// A read from a log has ended.
    pub(super) fn fetched(&mut self, now: Instant, fetch: FetchKey, outcome: Outcome) {
        match self.fetches.remove(fetch) {
            None => {}
            Some(Fetching::Overlay(key)) => self.overlaid(now, key, outcome),
            Some(Fetching::Gather(key)) => {
                let Job::WriteBack(part) = &mut self.jobs[key] else {
                    unreachable!("only write-back gathers")
                };
                part.left -= 1;
                part.gathered = part.gathered.and(outcome);
                if part.left > 0 {
                    return;
                }
                self.gathered(now, key);
            }
        }
    }

    /// A log wants something done with storage.
    pub(super) fn upstream(&mut self, of: (VolumeId, JobId), op: Op, extent: Extent, fua: bool) {
        let (volume, job) = of;
        let Some(key) = self.write_back_job(volume, job) else {
            let (pieces, end) = (Vec::new(), Some((op, extent, fua)));
            let part =
                WriteBackJob { volume, job, pieces, left: 0, gathered: Ok(()), end, tag: None };
            self.begin_job(Job::WriteBack(part), volume, 0);
            return;
        };
        let Job::WriteBack(part) = &mut self.jobs[key] else { unreachable!("found as such") };
        part.end = Some((op, extent, fua));
        if let Some(tag) = part.tag {
            self.steps.push_back(Step::Begin(Begin { job: key, tag, volume, op, extent, fua }));
        }
    }

    /// Whether it is a prefetch.
    pub(crate) fn is_prefetch(&self, key: JobKey) -> bool {
        matches!(self.jobs.get(key), Some(Job::Prefetch(_)))
    }

    /// A request of the cache's own has ended at storage.
    pub(crate) fn job_ended(&mut self, now: Instant, key: JobKey, outcome: Outcome) {
        match &self.jobs[key] {
            Job::Prefetch(prefetch) => {
                let &PrefetchJob { wish, fill, tag, began, .. } = prefetch;
                self.jobs.remove(key);
                let tag = tag.expect("it was begun with one");
                self.copies.clear();
                self.lines.end(fill, outcome.is_ok(), &mut self.copies);
                self.copy(tag, true);
                self.work(Work::Release(tag));
                self.judge();
                let took = now.since(began);
                let how = outcome.map_or(Ended::Failed, |()| Ended::Fetched(took));
                self.prefetch.ended(now, wish, how);
                self.wake(now, fill);
                self.prefetch_wishes(now);
            }
            Job::WriteBack(part) => {
                let job = part.job;
                self.with(now, part.volume, |log| log.upstream_ended(now, job, outcome));
            }
        }
    }

    /// A log has done with a part of write-back.
    pub(super) fn job_over(&mut self, volume: VolumeId, job: JobId) {
        let Some(key) = self.write_back_job(volume, job) else { return };
        if let Some(Job::WriteBack(WriteBackJob { tag: Some(tag), left, .. })) =
            self.jobs.remove(key)
        {
            assert!(left == 0, "memory is released when nothing fills it any more");
            self.work(Work::Release(tag));
        }
    }

    /// Gives up the parts of write-back that wait until a volume that goes can be written to. None is in progress.
    pub(super) fn end_write_back(&mut self, volume: VolumeId) {
        let is_its = |job: &Job| matches!(job, Job::WriteBack(part) if part.volume == volume);
        let its: Vec<_> =
            self.jobs.iter().filter(|(_, job)| is_its(job)).map(|(key, _)| key).collect();
        for key in its {
            if let Some(Job::WriteBack(WriteBackJob { tag: Some(tag), .. })) = self.jobs.remove(key)
            {
                self.work(Work::Release(tag));
            }
        }
    }

    /// The memory of a job that a log calls so, which has filled it.
    pub(super) fn memory_of(&self, volume: VolumeId, job: JobId) -> Tag {
        let key = self.write_back_job(volume, job);
        let Some(Job::WriteBack(WriteBackJob { tag: Some(tag), .. })) =
            key.map(|key| &self.jobs[key])
        else {
            unreachable!("a log writes from memory that it has not given back")
        };
        *tag
    }

    /// The part of write-back that a log calls so. O(jobs), which are few.
    fn write_back_job(&self, of: VolumeId, id: JobId) -> Option<JobKey> {
        let mut jobs = self.jobs.iter();
        let found =
            |job: &Job| matches!(job, Job::WriteBack(part) if part.volume == of && part.job == id);
        jobs.find(|(_, job)| found(job)).map(|(key, _)| key)
    }
}

/// The part of an extent that lies in another.
fn within(extent: Extent, limits: Extent) -> Option<Extent> {
    let start = extent.offset.max(limits.offset);
    let end = extent.end()?.min(limits.end()?);
    (start < end).then(|| Extent::new(start, end - start))
}
