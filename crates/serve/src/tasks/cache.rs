//! The memory of the cache: frames of the read cache, buffers of the cache's requests, and the logs.

use super::blocking_calls::{BlockingCalls, SavedFor};
use super::set::TaskSet;
use crate::buffer::{Pool, Shared};
use crate::ids::TaskKey;
use crate::limits::PIECE;
use crate::storage::io::{Io, Location, StorageSubmit, Submit, Whose, Work as DiskWork};
use crate::storage::log_device::log::LogFile;
use crate::storage::log_device::lost;
use crate::tasks::frames::Frames;
use crate::tasks::table::{End, Phase, Task, TaskKind};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;
use tracing::error;
use weir_flow::cache::stage::{Buffer, Copied, FetchKey, LogWrite};
use weir_flow::cache::writeback::format::Span;
use weir_flow::cache::writeback::{LocalId, Part, assemble};
use weir_flow::cache::{Done, JobKey, Settings, Work};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{Outcome, Tag, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Media, MediaOp};

/// The memory of the cache, and the logs.
///
/// Invariant: a log write keeps its buffer in `batches` until the pipeline says that it is not needed.
#[derive(Debug)]
pub(crate) struct CacheMemory {
    frames: Frames,
    /// Memory of the cache's requests.
    pool: Pool,
    /// The cache's requests that wait for memory, in order.
    waiting: VecDeque<(JobKey, VolumeId, u64, bool)>,
    /// The cache's requests in progress.
    own: usize,
    /// Memory of what is being written to logs and read from them. The pipeline bounds it: a log has a few
    /// batches in flight, and write-back and readers few parts.
    scratch: Pool,
    /// What was written to logs and must be kept.
    batches: Vec<(VolumeId, LocalId, Shared)>,
    fetches: BTreeMap<FetchKey, Fetching>,
    /// The log of each volume that has one.
    logs: Vec<Option<LogFile>>,
    /// Where the lost ranges of each volume are kept.
    lost: Vec<Option<PathBuf>>,
    /// They were asked to close, since the gateway stops.
    closing: bool,
    /// Those that want nothing more before that.
    closed: Vec<bool>,
}

impl CacheMemory {
    pub(crate) fn new(
        settings: &Settings,
        logs: Vec<Option<LogFile>>,
        lost: Vec<Option<PathBuf>>,
    ) -> Self {
        Self {
            frames: Frames::new(settings.lines(), settings.line),
            pool: Pool::new(OWN_MEMORY),
            waiting: VecDeque::new(),
            own: 0,
            scratch: Pool::new(u64::MAX),
            batches: Vec::new(),
            fetches: BTreeMap::new(),
            closing: false,
            closed: logs.iter().map(Option::is_none).collect(),
            logs,
            lost,
        }
    }

    /// The cache's requests in progress.
    pub(super) const fn own(&self) -> usize {
        self.own
    }

    /// Whether every log has what it wants before the gateway leaves.
    fn is_closed(&self) -> bool {
        self.closed.iter().all(|&closed| closed)
    }

    /// Whether something that reads ahead of a volume waits for memory.
    pub(super) fn waits_for(&self, volume: usize) -> bool {
        self.waiting.iter().any(|&(_, of, ..)| of.index() == volume)
    }

    /// The volumes with a log.
    pub(super) fn logged(&self) -> impl Iterator<Item = VolumeId> {
        let logged = self.logs.iter().enumerate().filter(|(_, log)| log.is_some());
        logged.map(|(index, _)| VolumeId::new(index as u32))
    }

    /// Whether nothing of a volume is only in its log, as a start would find it. Nothing is in flight any more.
    pub(crate) fn is_clean(&self, volume: usize) -> bool {
        let log = self.logs.get(volume).and_then(Option::as_ref);
        log.is_none_or(LogFile::is_clean)
    }

    /// A volume comes: this is its log, if it has one, and its lost ranges are kept there.
    pub(super) fn put_log(&mut self, volume: usize, log: Option<LogFile>, lost: Option<PathBuf>) {
        let places = self.logs.len().max(volume + 1);
        self.logs.resize_with(places, || None);
        self.lost.resize(places, None);
        self.closed.resize(places, true);
        self.closed[volume] = log.is_none();
        (self.logs[volume], self.lost[volume]) = (log, lost);
    }

    /// Whether the log of a volume wants nothing more.
    pub(super) fn has_closed(&self, volume: usize) -> bool {
        self.closed.get(volume).is_none_or(|&closed| closed)
    }

    /// Closes the log of a volume that has gone, and lets go of what was written to it.
    pub(super) fn close_log(&mut self, volume: usize) {
        self.put_log(volume, None, None);
        let batches = std::mem::take(&mut self.batches);
        for batch in batches {
            if batch.0.index() == volume {
                self.scratch.give(batch.2);
            } else {
                self.batches.push(batch);
            }
        }
    }

    /// Whether a volume has a log.
    pub(super) fn has_log(&self, volume: usize) -> bool {
        self.logs.get(volume).is_some_and(Option::is_some)
    }

    /// The log of a volume, which the pipeline asks for.
    fn log(&self, volume: VolumeId) -> Location {
        let log = self.logs.get(volume.index()).and_then(Option::as_ref);
        Location::File(log.expect("the pipeline was told of it").as_raw_fd())
    }

    /// What a write to a log was made of.
    fn batch(&self, volume: VolumeId, io: LocalId) -> &Shared {
        &self.batches[self.written(volume, io)].2
    }

    fn written(&self, volume: VolumeId, io: LocalId) -> usize {
        let mut batches = self.batches.iter();
        let found = batches.position(|&(of, one, _)| (of, one) == (volume, io));
        found.expect("it is kept until it is not needed")
    }

    /// Memory for whole sectors around a range of a log.
    fn sectors(&mut self, range: Extent) -> (Extent, Shared) {
        let start = range.offset / SECTOR * SECTOR;
        let end = (range.offset + range.length).next_multiple_of(SECTOR);
        (Extent::new(start, end - start), self.memory((end - start) as usize))
    }

    fn memory(&mut self, length: usize) -> Shared {
        let memory = self.scratch.take(length);
        memory.expect("batches and their parts are smaller than the largest buffer")
    }
}

impl CacheMemory {
    /// Performs an action of the cache.
    pub(crate) fn perform(
        &mut self,
        set: &mut TaskSet,
        drivers: &mut dyn Submit,
        blocking: &mut BlockingCalls,
        work: Work,
    ) {
        match work {
            Work::Copy(copied) => self.copy_near(set, copied),
            Work::Zero { tag, offset, length } => {
                let range = offset as usize..(offset + length) as usize;
                filling(&mut set.tasks[TaskKey::of(tag)])[range].fill(0);
            }
            Work::Fetch { fetch, volume, span, tag, offset } => {
                self.fetch(set, drivers, fetch, volume, (span, tag, offset));
            }
            Work::CopyBuffer { volume, from, tag, offset, length } => {
                let (kept, at) = match from {
                    Buffer::Payload(from, at) => {
                        (source(&set.tasks[TaskKey::of(from)]).clone(), at)
                    }
                    Buffer::Batch(io, at) => (self.batch(volume, io).clone(), at),
                };
                let to = &mut filling(&mut set.tasks[TaskKey::of(tag)])[offset as usize..];
                to[..length as usize]
                    .copy_from_slice(&kept.bytes()[at as usize..][..length as usize]);
            }
            Work::Reserve { job, volume, bytes, reads } => {
                self.waiting.push_back((job, volume, bytes, reads));
                self.reserve_near(set);
            }
            Work::Release(tag) => {
                let task = set.tasks.remove(TaskKey::of(tag)).expect("it is released once");
                self.own -= 1;
                for buffer in [task.data, task.medium].into_iter().flatten() {
                    self.pool.give(buffer);
                }
                self.reserve_near(set);
            }
            Work::Log { volume, write } => self.write_log(set, drivers, volume, &write),
            Work::Sync { volume, io } => {
                let (whose, work) = (Whose::Log(volume, io), DiskWork::Sync);
                set.submitted = true;
                drivers.submit(StorageSubmit::Io(
                    self.log(volume),
                    Io { whose, work, offset: 0, length: 0, promise: None },
                ));
            }
            Work::ReleaseBatch { volume, io } => {
                let index = self.written(volume, io);
                let (.., buffer) = self.batches.swap_remove(index);
                self.scratch.give(buffer);
            }
            Work::Abandon(volume) => {
                let log = self.logs[volume.index()].as_ref().expect("it has one");
                let (path, bytes) = (log.void.clone(), log.id.to_vec());
                blocking.save(SavedFor::Void(volume), path, bytes);
            }
            Work::KeepLost(volume, ranges) => {
                let path = self.lost[volume.index()].clone();
                let path = path.expect("what a log has lost is kept beside it at least");
                blocking.save(SavedFor::Lost(volume, ranges.len()), path, lost::encode(&ranges));
            }
            Work::Closed(volume) => self.closed[volume.index()] = true,
        }
    }

    /// Has every log make durable what it has, the first time; true when that is done. Nothing may come any
    /// more.
    pub(crate) fn close_logs(&mut self, set: &mut TaskSet) -> bool {
        if !std::mem::replace(&mut self.closing, true) {
            let close = self.logged().map(|volume| Input::Cache(Done::Close(volume)));
            set.inputs.extend(close.collect::<Vec<_>>());
        }
        self.is_closed()
    }

    /// Copies between a frame and a payload.
    fn copy_near(
        &mut self,
        set: &mut TaskSet,
        Copied { tag, offset, frame, at, length, keep }: Copied,
    ) {
        let task = &mut set.tasks[TaskKey::of(tag)];
        if keep {
            let bytes = payload(task, offset, length.into());
            self.frames.bytes_mut(frame, at, length).copy_from_slice(bytes);
        } else {
            let place = &mut filling(task)[offset as usize..][..length as usize];
            place.copy_from_slice(self.frames.bytes(frame, at, length));
        }
    }

    /// Gives memory to the cache's requests, while there is some.
    fn reserve_near(&mut self, set: &mut TaskSet) {
        while let Some(&(job, volume, bytes, reads)) = self.waiting.front() {
            let buffer = match bytes {
                0 => None,
                _ => match self.pool.take(bytes as usize) {
                    Some(buffer) => Some(buffer),
                    None => return,
                },
            };
            self.waiting.pop_front();
            let op = if reads { MediaOp::Read } else { MediaOp::Write };
            let media = Media { op, lba: 0, blocks: 0, fua: false, dpo: false };
            let mut task = Task::new(set.now, volume.index(), TaskKind::Media(media));
            task.is_own = true;
            task.phase = Phase::InPipeline { left: 1, end: End::Good };
            *(if reads { &mut task.medium } else { &mut task.data }) = buffer;
            self.own += 1;
            let tag = set.tasks.insert(task).tag();
            set.inputs.push_back(Input::Cache(Done::Reserved { job, tag }));
        }
    }

    /// Puts a write to a log together and hands it to the driver.
    fn write_log(
        &mut self,
        set: &mut TaskSet,
        drivers: &mut dyn Submit,
        volume: VolumeId,
        write: &LogWrite,
    ) {
        let LogWrite { write, from } = write;
        let mut buffer = self.memory(write.bytes as usize);
        let bytes = Rc::get_mut(&mut buffer).expect("fresh from the pool").bytes_mut();
        let mut from = from.iter();
        let payload =
            |part: &Part, out: &mut [u8]| match *from.next().expect("each part is somewhere") {
                Buffer::Payload(tag, offset) => {
                    out.copy_from_slice(payload(&set.tasks[TaskKey::of(tag)], offset, part.length));
                }
                Buffer::Batch(io, at) => {
                    let kept = self.batch(volume, io);
                    out.copy_from_slice(&kept.bytes()[at as usize..][..part.length as usize]);
                }
            };
        assemble(write, crc32c::crc32c, payload, &mut bytes[..write.bytes as usize]);
        self.batches.push((volume, write.io, buffer.clone()));
        let whose = Whose::Log(volume, write.io);
        let work = DiskWork::Write { buffer, at: 0, durable: false };
        set.submitted = true;
        drivers.submit(StorageSubmit::Io(
            self.log(volume),
            Io { whose, work, offset: write.at, length: write.bytes, promise: None },
        ));
    }

    /// Reads a part of a log, and the checksums that go with it.
    fn fetch(
        &mut self,
        set: &mut TaskSet,
        drivers: &mut dyn Submit,
        fetch: FetchKey,
        volume: VolumeId,
        (span, tag, offset): (Span, Tag, u64),
    ) {
        let place = self.log(volume);
        let (sums, bytes) = span.reads();
        let (sums, bytes) = (self.sectors(sums), self.sectors(bytes));
        let fetching = Fetching { span, tag, offset, sums, bytes, left: 2, outcome: Ok(()) };
        for (range, buffer) in [&fetching.sums, &fetching.bytes] {
            let work = DiskWork::Read { buffer: buffer.clone(), at: 0 };
            let (whose, offset, length) = (Whose::Fetch(fetch), range.offset, range.length);
            drivers.submit(StorageSubmit::Io(
                place.clone(),
                Io { whose, work, offset, length, promise: None },
            ));
        }
        set.submitted = true;
        self.fetches.insert(fetch, fetching);
    }

    /// One of the two reads of a part of a log has ended.
    pub(super) fn fetched(&mut self, set: &mut TaskSet, fetch: FetchKey, outcome: Outcome) {
        let fetching = self.fetches.get_mut(&fetch).expect("two reads end");
        fetching.outcome = fetching.outcome.and(outcome);
        fetching.left -= 1;
        if fetching.left > 0 {
            return;
        }
        let Fetching { span, tag, offset, sums, bytes, outcome, .. } =
            self.fetches.remove(&fetch).expect("it was just there");
        let outcome = outcome.and_then(|()| {
            let (wanted, read) = span.reads();
            let within = |(range, _): &(Extent, Shared), wanted: Extent| {
                let start = (wanted.offset - range.offset) as usize;
                start..start + wanted.length as usize
            };
            let checked = span.check(
                &sums.1.bytes()[within(&sums, wanted)],
                &bytes.1.bytes()[within(&bytes, read)],
                crc32c::crc32c,
            );
            let checked = checked.map_err(|at| {
                error!(at, "the log is damaged: a record has a wrong checksum");
                IoError::Medium
            })?;
            let to = &mut filling(&mut set.tasks[TaskKey::of(tag)])[offset as usize..];
            to[..checked.len()].copy_from_slice(checked);
            Ok(())
        });
        for (_, buffer) in [sums, bytes] {
            self.scratch.give(buffer);
        }
        set.inputs.push_back(Input::Cache(Done::Fetched { fetch, outcome }));
    }
}

/// A part of a log that is being read.
#[derive(Debug)]
struct Fetching {
    span: Span,
    /// Where it goes.
    tag: Tag,
    offset: u64,
    /// What is read for it: whole sectors.
    sums: (Extent, Shared),
    bytes: (Extent, Shared),
    left: u8,
    outcome: Outcome,
}

/// Where the payload of a request is.
fn source(task: &Task) -> &Shared {
    let buffer = if task.media().is_write() { &task.data } else { &task.medium };
    buffer.as_ref().expect("it has a payload")
}

/// Bytes of a request's payload.
fn payload(task: &Task, offset: u64, length: u64) -> &[u8] {
    // A pattern stands there once, and is written again and again.
    let repeats = matches!(task.media().op, MediaOp::WriteSame { .. });
    let start = if repeats { offset % PIECE } else { offset };
    &source(task).bytes()[start as usize..][..length as usize]
}

/// The payload of a request, to be filled.
fn filling(task: &mut Task) -> &mut [u8] {
    let buffer = if task.media().is_write() { &mut task.data } else { &mut task.medium };
    let buffer = Rc::get_mut(buffer.as_mut().expect("it has a payload"));
    buffer.expect("no store has it now").bytes_mut()
}

/// Memory of the cache's requests, in bytes: reads ahead and write-back wait while it is all in use.
const OWN_MEMORY: u64 = 64 << 20;

/// What a log can be read in.
const SECTOR: u64 = 512;
