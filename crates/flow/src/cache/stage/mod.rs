//! The cache stage: joins the read cache, the write-back logs and the prefetcher, and applies them to requests.
//!
//! | request | without a log, or a log that takes nothing | with a log |
//! |---|---|---|
//! | read | from frames if all of it is there; otherwise from storage, once for all who wait | as well, and what the log has is laid over what storage says |
//! | write, zero, unmap | passed to storage | into the log; answered as its mode says |
//! | flush | passed on | answered by the log |
//! | verify, update | passed on | when everything before it is on storage; durable there |
//!
//! Two rules keep a line from going back in time. What a request has written is taken out of the frames and out
//! of every fetch in flight when the request has ended; before that no host reads it, since requests for
//! the same bytes keep their order. And a fetch never installs a sector that the log has newer.
//!
//! Cost: a request that passes costs two look-ups; a hit one copy per line.

mod jobs;
mod lost;
mod reads;
#[cfg(test)]
mod tests;
mod work;
mod writes;

pub use work::{Buffer, Copied, Done, FetchKey, JobKey, LogWrite, Work};

use super::evict;
use super::lines::{Copy, FillId, LARGEST_LINE, Lines, SECTOR};
use super::prefetch::{self, Prefetch, Room};
use super::quarantine::{LostRange, Quarantine};
use super::writeback::{self, Dirty, Log, Pin};
use crate::clock::Instant;
use crate::error::IoError;
use crate::policy::{Choice, Rule};
use crate::request::{LinkId, Op, Outcome, Request, RequestKey, Tag, TenantId, VolumeId};
use crate::settings;
use crate::settings::{Invalid, KIB, Settings as _, TIB};
use crate::units::Extent;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use jobs::{Fetching, Job};
use lost::Waiter;
use slotmap::{SecondaryMap, SlotMap};

/// Waits for bytes that another request, or a prefetch, is fetching.
pub const RULE_FILL: Rule = Rule(&"cache/fill");

/// Waits for bytes that are in the log only.
pub const RULE_LOG: Rule = Rule(&"cache/log");

/// Waits until everything before it is on shared storage.
pub const RULE_DRAIN: Rule = Rule(&"cache/drain");

/// Answered from the cache, or passed on at once.
pub const RULE_HIT: Rule = Rule(&"cache/hit");

settings! {
    /// The size of the read cache, and the log of each volume.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Settings {
        /// Memory for data that was read; 0 keeps nothing and reads nothing ahead.
        pub size: u64 = Size(0, TIB), 0;
        /// The unit of caching and eviction, a power of two.
        pub line: u32 = Size(SECTOR, LARGEST_LINE as u64), 4 * KIB;
    }
    also {
        /// The tenant that pays for background I/O of each volume, by [`VolumeId`].
        pub owners: Vec<TenantId> = Vec::new();
        /// The log of each volume that has one, by [`VolumeId`]; may be shorter than there are volumes.
        pub logs: Vec<Option<writeback::Settings>> = Vec::new();
    }
    check Settings::consistent;
}

impl Settings {
    fn consistent(&self) -> Result<(), Invalid> {
        if !self.line.is_power_of_two() {
            return Err(Invalid::Rule("line", "of the cache is not a power of two"));
        }
        self.logs.iter().flatten().try_for_each(writeback::Settings::validate)
    }

    /// How many lines fit.
    pub fn lines(&self) -> u32 {
        u32::try_from(self.size / u64::from(self.line)).unwrap_or(u32::MAX)
    }
}

/// What is to happen next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The request is passed to shared storage; `durable` makes it force unit access.
    Pass {
        /// Which one.
        key: RequestKey,
        /// What held it here.
        rule: Rule,
        /// Whether it must be durable before it is answered.
        durable: bool,
    },
    /// The request is over.
    End(RequestKey, Outcome, Rule),
    /// A request of the cache's own begins.
    Begin(Begin),
    /// The world is to do something.
    Work(Work),
    /// There is something to tell.
    Tell(VolumeId, writeback::Notice),
}

/// A request of the cache's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    pub(crate) job: JobKey,
    pub(crate) tag: Tag,
    pub(crate) volume: VolumeId,
    pub(crate) op: Op,
    pub(crate) extent: Extent,
    pub(crate) fua: bool,
}

/// Stage 2 of a pipeline.
///
/// Large, and one type: data and its rules are in owners ([`Lines`], [`Log`], [`Prefetch`]), and each method here moves
/// one request or job between them. The fields are the tables of which request waits for which owner.
pub struct CacheStage {
    /// There are no frames: nothing that was read is kept, and nothing is read ahead.
    no_lines: bool,
    lines: Lines,
    prefetch: Box<dyn Prefetch>,
    volumes: Vec<VolumeState>,
    /// The requests that it has a part in.
    held: SecondaryMap<RequestKey, Held>,
    /// The reads that wait for each fetch, in the order in which they came.
    waiting: Vec<(FillId, RequestKey)>,
    /// Reads of what a log has taken but not written yet, in the order in which they came.
    uncommitted: Vec<RequestKey>,
    jobs: SlotMap<JobKey, Job>,
    fetches: SlotMap<FetchKey, Fetching>,
    steps: VecDeque<Step>,
    copies: Vec<Copy>,
    dirty: Vec<Dirty>,
}

/// What is known of a volume.
struct VolumeState {
    /// There is no volume at this place now.
    gone: bool,
    owner: TenantId,
    settings: Option<writeback::Settings>,
    log: Option<Log>,
    /// Reads of hosts that are on their way to storage.
    reads_at_storage: u32,
    /// Something was written to storage, past the log, that it may not have made durable.
    wrote_past_log: bool,
    lost: Quarantine<Waiter>,
    /// An operator has ordered, at this time, to give up what write-back is blocked on.
    ordered: Option<u64>,
}

impl VolumeState {
    /// That of a volume without a log, of which nothing is known.
    fn new(owner: TenantId) -> Self {
        Self {
            gone: false,
            owner,
            settings: None,
            log: None,
            reads_at_storage: 0,
            wrote_past_log: false,
            lost: Quarantine::default(),
            ordered: None,
        }
    }
}

/// A request that the cache has a part in.
struct Held {
    request: Request,
    state: State,
}

/// What a request does at the cache.
enum State {
    /// A read waits for a fetch, or for a log to have written what it reads.
    Waits,
    /// A read is on its way to storage.
    AtStorage(AtStorage),
    /// Storage has answered a read; parts are still being read from the log.
    Overlaid { left: u32, outcome: Outcome, pin: Pin },
    /// The log has it. It `heals` what was lost of its range before it came.
    Logged { heals: bool },
    /// It waits until everything before it is on storage.
    Drains,
    /// It is on its way to storage, and may change what is there.
    Direct,
    /// The same, and the log is to hear of its end.
    Through,
    /// The same of an update, past a log that is in use.
    Update,
}

/// A read on its way to storage.
struct AtStorage {
    /// Its answer goes into frames.
    fill: Option<FillId>,
    /// What the log has newer, and the hold on that.
    overlay: Vec<Dirty>,
    pin: Option<Pin>,
}

impl CacheStage {
    pub(crate) fn new(
        settings: &Settings,
        evict: &Choice<evict::Build>,
        prefetch: &Choice<prefetch::Build>,
        volumes: usize,
    ) -> Self {
        let room = Room { line: settings.line, lines: settings.lines() };
        let state = |index: usize| {
            let owner = settings.owners.get(index).copied().unwrap_or_default();
            let log = settings.logs.get(index).copied().flatten();
            VolumeState { settings: log, ..VolumeState::new(owner) }
        };
        Self {
            no_lines: room.lines == 0,
            lines: Lines::new(room.lines, room.line, evict),
            prefetch: (prefetch.policy().build)(prefetch.values(), room),
            volumes: (0..volumes).map(state).collect(),
            held: SecondaryMap::new(),
            waiting: Vec::new(),
            uncommitted: Vec::new(),
            jobs: SlotMap::with_key(),
            fetches: SlotMap::with_key(),
            steps: VecDeque::new(),
            copies: Vec::new(),
            dirty: Vec::new(),
        }
    }

    pub(crate) fn set_key(&mut self, key: u64) {
        self.lines.set_key(key);
    }

    /// For whom it does something with a volume on its own account.
    pub(crate) fn owner(&self, volume: VolumeId) -> TenantId {
        self.volumes[volume.index()].owner
    }

    /// What is in the frames, and how well that goes.
    pub const fn lines(&self) -> &Lines {
        &self.lines
    }

    /// What is fetched ahead, and how well that goes.
    pub fn prefetch(&self) -> &dyn Prefetch {
        &*self.prefetch
    }

    /// The log of a volume, if it has one and it was opened.
    pub fn log(&self, volume: VolumeId) -> Option<&Log> {
        self.volumes[volume.index()].log.as_ref()
    }

    /// Whether a volume is configured with a log.
    pub(crate) fn has_log(&self, volume: VolumeId) -> bool {
        self.volumes[volume.index()].settings.is_some()
    }

    /// The lost ranges of a volume.
    pub fn lost(&self, volume: VolumeId) -> &[LostRange] {
        self.volumes[volume.index()].lost.ranges()
    }

    /// Whether the cache has no part in what happens to a volume.
    fn is_off(&self, volume: VolumeId) -> bool {
        let state = &self.volumes[volume.index()];
        self.no_lines && state.settings.is_none() && state.lost.ranges().is_empty()
    }

    /// A request has come, of a volume that ends at byte `end`. True if it is passed to storage and the cache has no
    /// part in it.
    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        key: RequestKey,
        request: &Request,
        end: u64,
    ) -> bool {
        if self.is_off(request.volume) {
            return true;
        }
        debug_assert!(
            self.held.values().all(|held| !conflict(&held.request, request)),
            "a conflicting request has not ended: {request:?}"
        );
        if self.is_lost(request) {
            self.end(key, Err(IoError::Medium), RULE_LOG);
            return false;
        }
        match request.op {
            Op::Read => self.read(now, key, request, Some(end)),
            Op::Write | Op::Discard | Op::WriteZeroes | Op::Flush => self.change(now, key, request),
            Op::Verify | Op::Update => self.settle(now, key, request),
        }
        false
    }

    /// Whether the cache wants to know that a request has come back from storage.
    pub(crate) fn holds(&self, key: RequestKey) -> bool {
        self.held.contains_key(key)
    }

    /// Storage has ended a request that was passed on.
    pub(crate) fn passed(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let Held { request, state } = self.held.remove(key).expect("asked before");
        match state {
            State::AtStorage(read) => self.read_ended(now, key, request, read, outcome),
            State::Direct => {
                self.written(&request, outcome);
                self.end_change(key, &request, outcome, (RULE_HIT, request.fua));
            }
            State::Through => {
                self.written(&request, outcome);
                self.end_change(key, &request, outcome, (RULE_HIT, request.fua));
                self.with(now, request.volume, Log::forward_ended);
            }
            State::Update => {
                self.written(&request, outcome);
                self.end_change(key, &request, outcome, (RULE_HIT, request.fua));
                self.with(now, request.volume, |log| log.update_ended(now, outcome));
            }
            State::Waits | State::Overlaid { .. } | State::Logged { .. } | State::Drains => {
                unreachable!("only what was passed on comes back")
            }
        }
    }

    /// The world has done something.
    pub(crate) fn done(&mut self, now: Instant, done: Done) {
        match done {
            Done::Fetched { fetch, outcome } => self.fetched(now, fetch, outcome),
            Done::Reserved { job, tag } => self.reserved(now, job, tag),
            Done::Logged { volume, io, outcome } => {
                self.with(now, volume, |log| log.log_io_ended(now, io, outcome));
                if self.volumes[volume.index()].ordered.is_some() {
                    self.give_up(volume);
                }
            }
            Done::Recovered(volume, recovered) => {
                let state = &mut self.volumes[volume.index()];
                let settings = state.settings.expect("only a log that is configured is opened");
                let mut log = Log::new(settings, &recovered);
                for lost in state.lost.ranges() {
                    log.skip(now, lost.extent, lost.seq);
                }
                state.log = Some(log);
                self.pump(now, volume);
            }
            Done::Drain(volume, on) => self.with(now, volume, |log| log.drain(now, on)),
            Done::Retry(volume) => self.with(now, volume, Log::retry),
            Done::Lost(volume, ranges) => {
                let lost = &mut self.volumes[volume.index()].lost;
                for range in ranges {
                    lost.add(range);
                }
            }
            Done::Quarantine(volume, since) => {
                self.volumes[volume.index()].ordered = Some(since);
                self.give_up(volume);
            }
            Done::LostKept(volume, outcome) => self.lost_kept(now, volume, outcome),
            Done::Abandoned(volume, outcome) => {
                self.with(now, volume, |log| log.abandoned(now, outcome));
            }
            Done::Close(volume) => self.with(now, volume, Log::close),
            Done::Gone(link) => {
                for index in 0..self.volumes.len() {
                    let volume = VolumeId::new(index as u32);
                    self.with(now, volume, |log| log.initiator_left(initiator(link)));
                }
            }
        }
    }

    /// Tells a volume's log something, if there is one, and does what it asks for then.
    fn with(&mut self, now: Instant, volume: VolumeId, tell: impl FnOnce(&mut Log)) {
        if let Some(log) = &mut self.volumes[volume.index()].log {
            tell(log);
            self.pump(now, volume);
        }
    }

    /// What is behind a volume may have lost what was not flushed: what a log has of that is written again, and
    /// what went past a log is not to be read from frames if it is nowhere else.
    pub(crate) fn reset(&mut self, now: Instant, volume: VolumeId) {
        let state = &mut self.volumes[volume.index()];
        if core::mem::take(&mut state.wrote_past_log) {
            self.lines.forget(volume);
        }
        self.with(now, volume, Log::upstream_reset);
    }

    /// A volume has another size: what is cached of it may not be there any more.
    pub(crate) fn resized(&mut self, volume: VolumeId) {
        self.lines.forget(volume);
    }

    /// Whether a volume without requests may go: its log has closed, and nothing of it is in progress. O(jobs).
    pub(crate) fn may_go(&self, volume: VolumeId) -> bool {
        let state = &self.volumes[volume.index()];
        let closed = match &state.log {
            Some(log) => log.is_closed(),
            None => state.settings.is_none(),
        };
        closed
            && !state.lost.is_saving()
            && !self.jobs.values().any(|job| job.is_in_progress(volume))
    }

    /// A place, or the next one, has another volume, for which this tenant pays, or none: nothing that was cached there is
    /// left, and no part of write-back that waited.
    pub(crate) fn put(
        &mut self,
        volume: VolumeId,
        cached: Option<(TenantId, Option<writeback::Settings>)>,
    ) {
        let Some((owner, settings)) = cached else {
            self.lines.forget(volume);
            self.end_write_back(volume);
            self.volumes[volume.index()] =
                VolumeState { gone: true, ..VolumeState::new(TenantId::default()) };
            return;
        };
        let state = VolumeState { settings, ..VolumeState::new(owner) };
        if volume.index() == self.volumes.len() {
            self.volumes.push(state);
        } else {
            self.volumes[volume.index()] = state;
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Step> {
        let step = self.steps.pop_front();
        if step.is_none() {
            debug_assert!(
                self.is_consistent(),
                "a request or a job waits for something that will not come"
            );
        }
        step
    }

    /// Whether each request that waits is in the table of what it waits for, and each read of a log has a user.
    /// O(requests and jobs).
    fn is_consistent(&self) -> bool {
        let states = || self.held.values().map(|held| &held.state);
        let waits = states().filter(|state| matches!(state, State::Waits)).count();
        let at_storage = states().filter(|state| matches!(state, State::AtStorage(_))).count();
        let overlaid = states().map(|state| match state {
            State::Overlaid { left, .. } => *left as usize,
            _ => 0,
        });
        let gathered = self.jobs.values().map(Job::fetches);
        waits == self.waiting.len() + self.uncommitted.len()
            && at_storage
                == self.volumes.iter().map(|volume| volume.reads_at_storage as usize).sum::<usize>()
            && overlaid.chain(gathered).sum::<usize>() == self.fetches.len()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.volumes.iter().filter_map(|volume| volume.log.as_ref()?.next_deadline()).min()
    }

    pub(crate) fn handle_deadline(&mut self, now: Instant) {
        for index in 0..self.volumes.len() {
            let deadline = self.volumes[index].log.as_ref().and_then(Log::next_deadline);
            if deadline.is_some_and(|at| at <= now) {
                self.pump(now, VolumeId::new(index as u32));
            }
        }
    }

    fn work(&mut self, work: Work) {
        self.steps.push_back(Step::Work(work));
    }

    fn end(&mut self, key: RequestKey, outcome: Outcome, rule: Rule) {
        self.steps.push_back(Step::End(key, outcome, rule));
    }

    /// Asks for the copies that were collected, between frames and the payload of `tag`.
    fn copy(&mut self, tag: Tag, keep: bool) {
        for Copy { frame, at, offset, length } in self.copies.drain(..) {
            let copied = Copied { tag, offset, frame, at, length, keep };
            self.steps.push_back(Step::Work(Work::Copy(copied)));
        }
    }
}

/// Whether two requests share bytes, and one of them writes.
fn conflict(one: &Request, other: &Request) -> bool {
    let shares = one.volume == other.volume && one.extent.overlaps(other.extent);
    shares && (one.op.writes() || other.op.writes())
}

/// The log's name for the host behind a link.
const fn initiator(link: LinkId) -> u64 {
    link.index() as u64
}
