//! The cache in a pipeline, with bytes: in whatever order I/Os end, a read returns what the writes that
//! arrived before it have left.
//!
//! The model is the order of arrival, not the order of replies. Requests that share a byte run in the order
//! in which they arrive (`accept::hazard`), and a read has all of its bytes before the next write of them
//! begins. Its reply may leave later than that of the write: replies wait for their link, and the transfer
//! policy orders them. The host has had both requests outstanding, so either order of replies is right.

mod lost;

use crate::cache::lines::SECTOR;
use crate::cache::quarantine::LostRange;
use crate::cache::stage::{Buffer, Copied, Done, LogWrite, Settings, Work};
use crate::cache::writeback::format::crc32c;
use crate::cache::writeback::{
    LocalId, Mode, Part, Recovered, Settings as LogSettings, assemble, format_new,
};
use crate::cache::{evict, prefetch};
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::event::{Event, Observer, StageName};
use crate::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies, StoreIo};
use crate::policy::Choice;
use crate::request::{BackendId, Op, Outcome, Request, Tag, TenantId, VolumeId};
use crate::rng::Rng;
use crate::settings::Settings as _;
use crate::stage::Stage;
use crate::units::Extent;
use crate::{accept, control, path, testing};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

const CAPACITY: u64 = 64 << 10;
const LINE: u32 = 2048;

/// A host, a volume and its cache, whose every answer comes when chance wants it.
struct Rig {
    rng: Rng,
    now: Instant,
    pipeline: Pipeline<Seen>,
    /// What storage has.
    storage: Vec<u8>,
    /// What hosts have written, in the order in which their requests arrived.
    written: Content,
    frames: Vec<u8>,
    /// The device of the log, if there is one.
    log: Vec<u8>,
    /// What is being written there, or must be kept.
    batches: BTreeMap<LocalId, (u64, Vec<u8>)>,
    /// Work of the log that has not been done.
    works: Vec<Work>,
    /// The payload of each request that is outstanding.
    payloads: BTreeMap<Tag, (Op, Vec<u8>)>,
    /// Requests without a reply; with what it must return if it is a read.
    outstanding: BTreeMap<Tag, (Request, Content)>,
    /// Writes of which storage has failed an I/O.
    failed: BTreeSet<Tag>,
    ios: Vec<StoreIo>,
    answers: Vec<Input>,
    next: u64,
    failing: bool,
    /// Requests that ended with an error.
    errors: Vec<(Tag, IoError)>,
    /// The lost ranges that the world has kept.
    kept: Vec<LostRange>,
    /// The world can keep none.
    full: bool,
    reads: u64,
    ended: u64,
}

/// What must be in a range of the volume, and which write has put it there.
#[derive(Default)]
struct Content {
    start: u64,
    bytes: Vec<u8>,
    /// The last write of each sector.
    writers: Vec<Tag>,
}

impl Content {
    fn zeroes(length: u64) -> Self {
        Self {
            start: 0,
            bytes: alloc::vec![0; length as usize],
            writers: alloc::vec![Tag(0); (length / SECTOR) as usize],
        }
    }

    fn part(&self, Extent { offset, length }: Extent) -> Self {
        Self {
            start: offset,
            bytes: self.bytes[offset as usize..][..length as usize].to_vec(),
            writers: self.writers[(offset / SECTOR) as usize..][..(length / SECTOR) as usize]
                .to_vec(),
        }
    }

    fn write(&mut self, tag: Tag, offset: u64, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        self.writers[(offset / SECTOR) as usize..][..bytes.len() / SECTOR as usize].fill(tag);
    }

    /// A write has failed: the sectors that it was to leave are what storage has.
    fn resolve(&mut self, tag: Tag, storage: &[u8]) {
        for (index, _) in self.writers.iter().enumerate().filter(|&(_, writer)| *writer == tag) {
            let at = index * SECTOR as usize;
            let stored = &storage[self.start as usize + at..][..SECTOR as usize];
            self.bytes[at..at + SECTOR as usize].copy_from_slice(stored);
        }
    }
}

#[derive(Default)]
struct Seen {
    /// Time that reads spent at the store.
    hits: u64,
}

impl Observer for Seen {
    fn event(&mut self, _: Instant, event: Event<'_>) {
        if let Event::Completed(completed) = event
            && completed.request.op == Op::Read
        {
            self.hits += u64::from(completed.times.spent(StageName::Storage) == Duration::ZERO);
        }
    }
}

impl Rig {
    fn new(seed: u64, frames: u64, ahead: &str) -> Self {
        Self::with(seed, frames, ahead, None)
    }

    /// The same, of a volume with a log.
    fn logged(seed: u64, frames: u64, ahead: &str, change: impl FnOnce(&mut LogSettings)) -> Self {
        let mut settings = LogSettings {
            segment: 64 << 10,
            capacity: (64 << 10) * 8 + 8192,
            batch_bytes: 8 << 10,
            batch_records: 8,
            epoch_bytes: 16 << 10,
            merge: 16 << 10,
            earn: false,
            ..LogSettings::default()
        };
        change(&mut settings);
        assert_eq!(settings.validate(), Ok(()));
        let mut rig = Self::with(seed, frames, ahead, Some(settings));
        rig.log = alloc::vec![0; settings.capacity as usize];
        for (at, bytes) in format_new(&settings, [1; 16], 1, 1) {
            rig.log[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let empty = Recovered::empty(&settings, [1; 16], 1, 1);
        rig.give(Input::Cache(Done::Recovered(VolumeId::new(0), Arc::new(empty))));
        rig
    }

    fn with(seed: u64, frames: u64, ahead: &str, log: Option<LogSettings>) -> Self {
        let policies = Policies {
            cache: Choice::default_of(evict::POLICIES),
            prefetch: Choice::named(prefetch::POLICIES, ahead).unwrap(),
            control: Choice::named(control::POLICIES, "open").unwrap(),
            ..Policies::default()
        };
        let config = Config {
            volumes: alloc::vec![accept::Volume {
                capacity: CAPACITY,
                layout: accept::Layout::One(BackendId::new(0)),
                max_transfer: 8192,
                cap: accept::Cap::default(),
            }],
            backends: alloc::vec![Backend::alike(1)],
            promises: control::Promises::default(),
            shares: crate::dispatch::Shares::default(),
            limits: Limits::default(),
            paths: path::Settings::default(),
            cache: Settings {
                size: frames * u64::from(LINE),
                line: LINE,
                owners: alloc::vec![TenantId::new(3)],
                logs: alloc::vec![log],
            },
            policies,
        };
        Self {
            rng: Rng::stream(seed, "cache"),
            now: Instant::ZERO,
            pipeline: Pipeline::new(&config, Seen::default()),
            storage: alloc::vec![0; CAPACITY as usize],
            written: Content::zeroes(CAPACITY),
            frames: alloc::vec![0xee; frames as usize * LINE as usize],
            log: Vec::new(),
            batches: BTreeMap::new(),
            works: Vec::new(),
            payloads: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            failed: BTreeSet::new(),
            ios: Vec::new(),
            answers: Vec::new(),
            next: 0,
            failing: false,
            errors: Vec::new(),
            kept: Vec::new(),
            full: false,
            reads: 0,
            ended: 0,
        }
    }

    fn give(&mut self, input: Input) {
        self.now += Duration::from_micros(1 + self.rng.below(50));
        while let Some(at) = self.pipeline.next_deadline().filter(|&at| at <= self.now) {
            self.pipeline.handle_deadline(at);
            self.act();
        }
        self.pipeline.handle(self.now, input);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.pipeline.poll(self.now) {
            match action {
                Action::Store(io) => self.ios.push(io),
                Action::Transfer { key, tag, outcome, part } => {
                    assert!(part.last && part.offset == 0, "the link has room");
                    self.answered(tag, outcome);
                    self.answers.push(Input::Sent { key, bytes: part.length });
                }
                Action::Cache(work) => self.work(work),
                Action::Check { backend, path } => self.answers.push(Input::Checked(backend, path)),
                other => panic!("nothing here asks for this: {other:?}"),
            }
        }
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Copy(Copied { tag, offset, frame, at, length, keep }) => {
                let (_, payload) = self.payloads.get_mut(&tag).expect("each I/O has a payload");
                let payload = &mut payload[offset as usize..][..length as usize];
                let start = frame.index() * LINE as usize + at as usize;
                let memory = &mut self.frames[start..start + length as usize];
                if keep {
                    memory.copy_from_slice(payload);
                } else {
                    payload.copy_from_slice(memory);
                }
            }
            Work::Reserve { job, bytes, reads, .. } => {
                self.next += 1;
                let tag = Tag(self.next);
                let op = if reads { Op::Read } else { Op::Write };
                self.payloads.insert(tag, (op, alloc::vec![0xdd; bytes as usize]));
                self.answers.push(Input::Cache(Done::Reserved { job, tag }));
            }
            Work::Release(tag) => {
                self.payloads.remove(&tag).expect("it is released once");
            }
            Work::Zero { tag, offset, length } => {
                let payload = &mut self.payloads.get_mut(&tag).expect("each I/O has a payload").1;
                payload[offset as usize..][..length as usize].fill(0);
            }
            Work::CopyBuffer { from, tag, offset, length, .. } => {
                let bytes = self.buffer(from, length).to_vec();
                let payload = &mut self.payloads.get_mut(&tag).expect("each I/O has a payload").1;
                payload[offset as usize..][..length as usize].copy_from_slice(&bytes);
            }
            Work::Log { ref write, .. } => {
                let LogWrite { write, from } = &**write;
                let mut bytes = alloc::vec![0; write.bytes as usize];
                let mut from = from.iter();
                let payload = |part: &Part, out: &mut [u8]| {
                    let buffer = *from.next().expect("each part has a place");
                    out.copy_from_slice(self.buffer(buffer, part.length));
                };
                assemble(write, crc32c, payload, &mut bytes);
                self.batches.insert(write.io, (write.at, bytes));
                self.works.push(work);
            }
            Work::ReleaseBatch { io, .. } => {
                self.batches.remove(&io).expect("it was kept until now");
            }
            Work::Fetch { .. } | Work::Sync { .. } | Work::KeepLost(..) => self.works.push(work),
            Work::Abandon(_) | Work::Closed(_) => panic!("nothing here asks for this: {work:?}"),
        }
    }

    fn buffer(&self, buffer: Buffer, length: u64) -> &[u8] {
        let (bytes, offset) = match buffer {
            Buffer::Payload(tag, offset) => (&self.payloads[&tag].1, offset),
            Buffer::Batch(io, offset) => (&self.batches[&io].1, offset),
        };
        &bytes[offset as usize..][..length as usize]
    }

    /// The log device does an I/O.
    fn do_work(&mut self, at: usize) {
        let outcome = Ok(());
        let done = match self.works.remove(at) {
            Work::Log { volume, write } => {
                let io = write.write.io;
                let (at, bytes) = &self.batches[&io];
                self.log[*at as usize..][..bytes.len()].copy_from_slice(bytes);
                Done::Logged { volume, io, outcome }
            }
            Work::Sync { volume, io } => Done::Logged { volume, io, outcome },
            Work::Fetch { fetch, span, tag, offset, .. } => {
                let (sums, bytes) = span.reads();
                let read =
                    |extent: Extent| &self.log[extent.offset as usize..][..extent.length as usize];
                let checked = span.check(read(sums), read(bytes), crc32c);
                if let Ok(bytes) = checked {
                    let (_, payload) = self.payloads.get_mut(&tag).expect("each I/O has a payload");
                    payload[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Done::Fetched { fetch, outcome: checked.map(|_| ()).map_err(|_| IoError::Medium) }
            }
            Work::KeepLost(volume, _) if self.full => Done::LostKept(volume, Err(IoError::Medium)),
            Work::KeepLost(volume, ranges) => {
                self.kept = ranges;
                Done::LostKept(volume, outcome)
            }
            other => unreachable!("done at once: {other:?}"),
        };
        self.answers.push(Input::Cache(done));
    }

    /// A host has its reply: a read returns what the writes before it have left.
    fn answered(&mut self, tag: Tag, outcome: Outcome) {
        let (op, payload) = self.payloads.remove(&tag).expect("each is answered once");
        let (request, expected) = self.outstanding.remove(&tag).unwrap();
        self.ended += 1;
        self.errors.extend(outcome.err().map(|error| (tag, error)));
        if outcome.is_ok() && op == Op::Read {
            self.reads += 1;
            let wrong = (0..payload.len()).find(|&at| payload[at] != expected.bytes[at]);
            assert_eq!(wrong, None, "the first wrong byte of {request:?}");
        }
    }

    /// A host asks for something.
    fn ask(&mut self) {
        self.next += 1;
        let tag = self.next;
        let length = 512 * (1 + self.rng.below(24));
        let offset = 512 * self.rng.below((CAPACITY - length) / 512 + 1);
        let op = match self.rng.below(10) {
            0..5 => Op::Read,
            5..8 => Op::Write,
            8 => Op::WriteZeroes,
            _ => Op::Flush,
        };
        let extent = if op == Op::Flush { Extent::default() } else { Extent::new(offset, length) };
        let request = Request { op, extent, fua: self.rng.below(8) == 0, ..testing::request(tag) };
        let fill = tag as u8;
        let payload = (0..extent.length).map(|at| fill ^ (at >> 9) as u8);
        self.arrive(request, payload.collect());
    }

    /// A request arrives.
    fn arrive(&mut self, request: Request, payload: Vec<u8>) {
        let Request { tag, op, extent, .. } = request;
        match op {
            Op::Write => self.written.write(tag, extent.offset, &payload),
            Op::Discard | Op::WriteZeroes => {
                self.written.write(tag, extent.offset, &alloc::vec![0; payload.len()]);
            }
            _ => {}
        }
        let expected = if op == Op::Read { self.written.part(extent) } else { Content::default() };
        self.payloads.insert(tag, (op, payload));
        self.outstanding.insert(tag, (request, expected));
        self.give(Input::Arrive(request));
    }

    /// Storage or the log device does an I/O, or the answer to an earlier one arrives: what was read can be old by
    /// then.
    fn answer(&mut self) {
        let open = self.open() as u64;
        if open == 0 {
            return;
        }
        let chosen = self.rng.below(open) as usize;
        if let Some(at) = chosen.checked_sub(self.ios.len() + self.answers.len()) {
            self.do_work(at);
            return;
        }
        if let Some(at) = chosen.checked_sub(self.ios.len()) {
            let input = self.answers.remove(at);
            self.give(input);
            return;
        }
        let StoreIo { key, tag, op, extent, offset_in_request, .. } = self.ios.remove(chosen);
        let fails = self.failing && self.rng.below(20) == 0;
        let sectors = extent.length / SECTOR;
        // What fails has done a part of what it was to do.
        let done = if fails { self.rng.below(sectors + 1) } else { sectors } * SECTOR;
        let range = extent.offset as usize..(extent.offset + done) as usize;
        let at = offset_in_request as usize;
        let payload = &mut self.payloads.get_mut(&tag).expect("each I/O has a payload").1;
        match op {
            Op::Read => payload[at..at + range.len()].copy_from_slice(&self.storage[range]),
            Op::Write => {
                self.storage[range.clone()].copy_from_slice(&payload[at..at + range.len()]);
            }
            Op::Discard | Op::WriteZeroes => self.storage[range].fill(0),
            _ => {}
        }
        if fails && op.writes() {
            self.failed.insert(tag);
        }
        if self.failed.contains(&tag) {
            self.written.resolve(tag, &self.storage);
            for (_, expected) in self.outstanding.values_mut() {
                expected.resolve(tag, &self.storage);
            }
        }
        let outcome = if fails { Err(IoError::Medium) } else { Ok(()) };
        self.answers.push(Input::Stored { key, outcome });
    }

    /// Answers that are owed.
    fn open(&self) -> usize {
        self.ios.len() + self.answers.len() + self.works.len()
    }

    /// Lets everything end that has begun; a log writes everything back.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.settle_one() {
                return;
            }
        }
        panic!("it never ends: {:?}", self.pipeline);
    }

    /// One step of it; false if nothing is left.
    fn settle_one(&mut self) -> bool {
        if self.open() > 0 {
            self.answer();
            return true;
        }
        let log = self.pipeline.cache().log(VolumeId::new(0));
        let waits = log.is_some_and(|log| log.status(self.now).dirty_records > 0);
        match self.pipeline.next_deadline() {
            Some(at) if waits || !self.outstanding.is_empty() => {
                self.now = self.now.max(at);
                self.pipeline.handle_deadline(self.now);
                self.act();
                true
            }
            _ => false,
        }
    }

    /// Hosts ask and storage answers, for a while, until everything has ended.
    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.rng.below(3) {
                0 if self.outstanding.len() < 40 => self.ask(),
                _ => self.answer(),
            }
        }
        self.settle();
        assert!(self.outstanding.is_empty(), "without a reply: {:?}", self.outstanding.keys());
        assert!(self.payloads.is_empty(), "a job has kept its memory");
        assert_eq!(self.written.bytes, self.storage, "storage has everything when all has ended");
    }
}

/// With frames or none, with reads ahead or none: a read returns what was written last, in whatever order I/Os
/// end, and every request ends and gives its memory back.
#[test]
fn a_read_returns_what_was_written_last() {
    for (frames, ahead) in [(0, "off"), (4, "off"), (16, "next-block"), (64, "next-block")] {
        let mut hits = 0;
        for seed in 0..20 {
            let mut rig = Rig::new(seed, frames, ahead);
            rig.run(3000);
            assert!(rig.reads > 100, "{} reads", rig.reads);
            hits += rig.pipeline.observer().hits;
        }
        assert_eq!(hits > 0, frames > 0, "{hits} reads did not go to storage with {frames} frames");
    }
}

/// The same with a log, in both of its modes: and when it has written everything back, storage has what was
/// written.
#[test]
fn a_log_changes_nothing_that_is_read() {
    for mode in [Mode::Log, Mode::Ram] {
        for (frames, ahead) in [(0, "off"), (16, "next-block")] {
            for seed in 0..20 {
                let mut rig = Rig::logged(seed, frames, ahead, |log| log.mode = mode);
                rig.run(3000);
                assert!(rig.reads > 100, "{} reads", rig.reads);
                let status = rig.pipeline.cache().log(VolumeId::new(0)).unwrap().status(rig.now);
                assert!(status.written > 0 && status.applied > 100, "{status:?}");
            }
        }
    }
}

/// An I/O that fails after a part of it was done leaves nothing wrong in the cache, and every request ends.
#[test]
fn errors_leave_nothing_wrong_behind() {
    for seed in 0..20 {
        let mut rig = Rig::new(seed, 16, "next-block");
        rig.failing = true;
        rig.run(3000);
        assert!(!rig.failed.is_empty(), "no write has failed");
    }
}

/// Three reads of what is not cached: storage is asked once.
#[test]
fn a_miss_is_fetched_once() {
    let mut rig = Rig::new(1, 16, "off");
    for tag in 1..=3 {
        let request = Request { extent: Extent::new(4096, 4096), ..testing::request(tag) };
        rig.arrive(request, alloc::vec![0; 4096]);
    }
    assert_eq!(rig.ios.len(), 1);
    rig.settle();
    assert_eq!((rig.ended, rig.pipeline.observer().hits), (3, 2));
}

/// A unit that was reset may have lost what it had in its cache, also while its paths work: a flush that ends after that
/// makes durable what is left, and the log writes all of the epoch again.
#[test]
fn what_a_reset_unit_has_lost_is_written_again() {
    for told in [true, false] {
        let mut rig = Rig::logged(5, 0, "off", |_| ());
        // The cache's own requests have other tags.
        rig.next = 1_000;
        let write = |rig: &mut Rig, fill: u8| {
            for at in 1..=24 {
                let extent = Extent::new(at * 1024, 512);
                let tag = at + 100 * u64::from(fill);
                let request = Request { op: Op::Write, extent, ..testing::request(tag) };
                rig.arrive(request, alloc::vec![fill; 512]);
            }
        };
        // The first epoch is made durable by FUA, the next by a flush.
        write(&mut rig, 1);
        rig.settle();
        write(&mut rig, 2);
        while !matches!(rig.ios[..], [StoreIo { op: Op::Flush, .. }]) {
            assert!(rig.settle_one(), "no flush behind the epoch");
        }
        let stored = |rig: &Rig| (1..=24).filter(|at| rig.storage[at * 1024] == 2).count();
        let before = stored(&rig);
        assert!(before > 0);
        rig.storage.fill(1);
        if told {
            rig.give(Input::UnitReset(BackendId::new(0)));
        }
        rig.settle();
        assert_eq!(stored(&rig), if told { 24 } else { 24 - before });
    }
}
