//! Who stood in front: divides the time that a request waited among those who were served meanwhile.
//!
//! A request that waits in a stage from t0 to t1 waits for a resource: the cap of its volume, the control policy, a
//! backend, the log of its volume, a line. The resource keeps how much it gave to whom, and the wait is divided in these
//! proportions, in whole nanoseconds that add up to the wait. What a condition explains, such as a flush in flight,
//! is charged first. This is the direct contribution of queue measurement in network switches: who left the queue
//! between entry and exit. It does not say that the request would have been faster without them.
//!
//! | stage and rule | resource | given when | in | charged first |
//! | --- | --- | --- | --- | --- |
//! | `accept/cap` | the volume's cap | it lets a request go | payload and 4 KiB | |
//! | `accept/overlap` | | exact: the tenant whose request ended last | | |
//! | `cache/fill` | | the fill | | |
//! | other `cache/` | the volume's log | a request that waited there ends | payload and 4 KiB | storage away or blocked |
//! | `control/bucket`, `credit`, `limit` | | the tenant's own limit | | |
//! | other `control/` | the control policy | it releases a request | payload and 4 KiB | |
//! | `dispatch/` | the backend | an I/O ends there | its time there | a flush in flight |
//! | `path/` | | the path and its state | | |
//! | `storage/` | the backend | as dispatch | | the time of the device alone; a flush in flight |
//! | `transfer/` | the line | a reply has left | bytes of the reply and a header | |
//!
//! Memory is bounded: a resource has a history from the first wait of 1 ms for it in company until 60 s after the last, and
//! at most 64 have one. Waits before that, and waits for others, are [`Unknown`](Contributor::Unknown).

mod cells;
mod divide;
mod spans;
#[cfg(test)]
mod tests;

use crate::cache::writeback::Notice;
use crate::clock::{Duration, Instant};
use crate::dispatch::Owner;
use crate::event::{Completed, Event, Observer, Service, StageName, StorageIo, Trail};
use crate::path::{Change, State, Why};
use crate::request::{Op, PathId, TenantId, VolumeId};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use cells::Cells;
use core::fmt;
use spans::Spans;

/// Who or what a part of a wait is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contributor {
    /// Another tenant.
    Tenant(TenantId),
    /// Other requests of the same tenant.
    Own,
    /// A log that writes to storage.
    WriteBack,
    /// Prefetches.
    Prefetch,
    /// Jobs of the gateway.
    Job,
    /// Several that were not told apart.
    Others,
    /// The tenant's own limit.
    OwnLimit,
    /// The device, without company.
    Device,
    /// A flush in flight at the backend.
    Flush,
    /// A path that could not be used; `None` if no change of its state is known.
    Path(Option<PathCause>),
    /// The storage behind a log, which was away or refused data.
    Upstream,
    /// The fill of the cache.
    Fill,
    /// The rule itself: no other request was served.
    Idle,
    /// The resource was not watched.
    Unknown,
}

/// Why a path could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCause {
    /// The path.
    pub path: PathId,
    /// Its state.
    pub state: State,
    /// Why it came into it.
    pub why: Why,
}

impl Contributor {
    /// Its words in reports; `name` names a tenant.
    pub fn text(self, name: impl FnOnce(TenantId) -> String) -> String {
        let words = match self {
            Self::Tenant(tenant) => return name(tenant),
            Self::Path(Some(cause)) => return cause.to_string(),
            Self::Path(None) => "path",
            Self::Own => "own requests",
            Self::WriteBack => "write-back",
            Self::Prefetch => "prefetch",
            Self::Job => "jobs",
            Self::Others => "others",
            Self::OwnLimit => "own limit",
            Self::Device => "device",
            Self::Flush => "flush",
            Self::Upstream => "upstream of the log",
            Self::Fill => "fill of the cache",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        };
        words.to_owned()
    }

    /// Who or what most of these parts are charged to, and its time. What is unknown is not counted.
    pub fn most(parts: &[Part]) -> Option<(Self, Duration)> {
        let known = parts.iter().filter(|part| part.contributor != Self::Unknown);
        let mut sums: Vec<(Self, Duration)> = Vec::new();
        for part in known {
            match sums.iter_mut().find(|(contributor, _)| *contributor == part.contributor) {
                Some((_, sum)) => *sum += part.time,
                None => sums.push((part.contributor, part.time)),
            }
        }
        sums.into_iter().max_by_key(|&(contributor, sum)| (sum, core::cmp::Reverse(contributor)))
    }
}

impl PathCause {
    const fn rank(self) -> (PathId, u8, u8) {
        (self.path, self.state as u8, self.why as u8)
    }
}

impl PartialOrd for PathCause {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathCause {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// Part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where the request waited.
    pub stage: StageName,
    /// Who or what it is charged to.
    pub contributor: Contributor,
    /// For how long; above zero.
    pub time: Duration,
}

/// What everybody was given of late.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    caps: Vec<Option<Box<History>>>,
    control: Option<Box<History>>,
    backends: Vec<Backend>,
    logs: Vec<LogState>,
    lines: Vec<Option<Box<History>>>,
    /// Histories that there are.
    histories: usize,
    /// When those that are unwanted were last looked for.
    swept: Instant,
}

/// The history of a resource that requests wait for.
#[derive(Clone, Debug)]
struct History {
    cells: Cells,
    /// When it began.
    since: Instant,
    /// The last wait that was long enough to keep it.
    wanted: Instant,
}

#[derive(Clone, Debug)]
struct Backend {
    history: Option<Box<History>>,
    flush: Spans,
    /// By direction and power of two of the length: what an I/O takes that finds the backend empty, in nanoseconds; 0 if none
    /// has. Those that find company would make this the time of a busy backend.
    alone: Box<[u64; 2 * SIZES]>,
    /// The latest changes for the worse.
    changes: VecDeque<(Instant, PathCause)>,
}

#[derive(Clone, Debug, Default)]
struct LogState {
    history: Option<Box<History>>,
    away: Spans,
    blocked: Spans,
}

impl Default for Backend {
    fn default() -> Self {
        let (flush, alone) = (Spans::default(), Box::new([0; 2 * SIZES]));
        Self { history: None, flush, alone, changes: VecDeque::new() }
    }
}

impl Attribution {
    /// Counts a use.
    #[inline]
    pub fn serve(&mut self, now: Instant, service: Service) {
        if let Service::Storage(backend, _, StorageIo { op, length, time, alone: true }) = service
            && op != Op::Flush
        {
            at(&mut self.backends, backend.index()).learn(class(op, length), time.as_nanos());
        }
        // Mostly nothing waits, and who was served does not matter.
        if self.histories > 0 || matches!(service, Service::Flush(..)) {
            self.count(now, service);
        }
    }

    fn count(&mut self, now: Instant, service: Service) {
        match service {
            Service::Cap(volume, owner, amount) => {
                if let Some(history) = self.caps.get_mut(volume.index()) {
                    add(&mut self.histories, history, now, owner, amount);
                }
            }
            Service::Control(owner, amount) => {
                add(&mut self.histories, &mut self.control, now, owner, amount);
            }
            Service::Storage(backend, owner, StorageIo { time, .. }) => {
                let history = &mut at(&mut self.backends, backend.index()).history;
                add(&mut self.histories, history, now, owner, time.as_nanos());
            }
            Service::Flush(backend, true) => {
                at(&mut self.backends, backend.index()).flush.begin(now);
            }
            Service::Flush(backend, false) => {
                at(&mut self.backends, backend.index()).flush.end(now);
            }
        }
    }

    /// Counts what a request was given that has ended, and begins the histories of what it waited for. To be called after
    /// [`explain`](Self::explain).
    #[inline]
    pub fn completed(&mut self, now: Instant, completed: &Completed<'_>) {
        if self.histories > 0 || completed.times.total() >= WATCHED {
            self.ended(now, completed);
        }
    }

    fn ended(&mut self, now: Instant, completed: &Completed<'_>) {
        let &Completed { request, times, trail, .. } = completed;
        let Trail { backend, line, alone, last, .. } = trail;
        let owner = if request.job { Owner::Job } else { Owner::Tenant(request.tenant) };
        if let Some(history) = self.lines.get_mut(line as usize) {
            add(&mut self.histories, history, now, owner, request.reply_bytes() + HEADER);
        }
        let volume = request.volume.index();
        if let Some(log) = self.logs.get_mut(volume).filter(|_| waited_for_log(completed)) {
            add(&mut self.histories, &mut log.history, now, owner, request.cost());
        }
        if times.total() < WATCHED {
            return;
        }
        if self.histories >= HISTORIES_MAX - SHARED_MIN && now.saturating_since(self.swept) >= SWEEP
        {
            self.drop_unwanted(now);
        }
        for (stage, _, time) in times.held() {
            if time < WATCHED {
                continue;
            }
            let most = HISTORIES_MAX - if stage == StageName::Transfer { SHARED_MIN } else { 0 };
            let history = match stage {
                // No other was in front, so there is nothing to count for the next one either.
                StageName::Storage if alone => continue,
                StageName::Transfer if last => continue,
                StageName::Accept => at(&mut self.caps, volume),
                StageName::Cache => &mut at(&mut self.logs, volume).history,
                StageName::Control => &mut self.control,
                StageName::Dispatch | StageName::Storage => {
                    &mut at(&mut self.backends, backend.index()).history
                }
                StageName::Path => continue,
                StageName::Transfer => at(&mut self.lines, line as usize),
            };
            if let Some(history) = history {
                history.wanted = now;
            } else if self.histories < most {
                let begun = History { cells: Cells::new(), since: now, wanted: now };
                *history = Some(Box::new(begun));
                self.histories += 1;
            }
        }
    }

    /// Ends the histories of resources that are not used any more: [`add`] ends those of the others.
    fn drop_unwanted(&mut self, now: Instant) {
        self.swept = now;
        let logs = self.logs.iter_mut().map(|log| &mut log.history);
        let backends = self.backends.iter_mut().map(|backend| &mut backend.history);
        let alone = core::iter::once(&mut self.control);
        let all =
            self.lines.iter_mut().chain(&mut self.caps).chain(logs).chain(backends).chain(alone);
        for history in all {
            if history.as_ref().is_some_and(|kept| kept.is_unwanted(now)) {
                *history = None;
                self.histories -= 1;
            }
        }
    }

    /// A path has changed its state.
    fn path_changed(&mut self, now: Instant, change: &Change) {
        let &Change { backend, path, state, why, .. } = change;
        if state.is_usable() {
            return;
        }
        let changes = &mut at(&mut self.backends, backend.index()).changes;
        if changes.len() == CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back((now, PathCause { path, state, why }));
    }

    /// A log has something to tell.
    fn log_notice(&mut self, now: Instant, volume: VolumeId, notice: Notice) {
        let log = at(&mut self.logs, volume.index());
        match notice {
            Notice::Away(_) => log.away.set(now, true),
            Notice::Back(_) => log.away.set(now, false),
            Notice::Blocked(_) => log.blocked.set(now, true),
            Notice::Unblocked => log.blocked.set(now, false),
            _ => {}
        }
    }
}

impl Attribution {
    /// The memory of the histories.
    pub fn memory(&self) -> usize {
        self.histories * Cells::MEMORY
    }
}

impl Observer for Attribution {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Completed(completed) => self.completed(now, &completed),
            Event::Path(change) => self.path_changed(now, &change),
            Event::Cache(volume, notice) => self.log_notice(now, volume, notice),
            Event::Arrived(_)
            | Event::Refused(..)
            | Event::Overdue { .. }
            | Event::Control(_)
            | Event::ControlSet(_)
            | Event::VolumeAdded(..)
            | Event::VolumeRemoved(_)
            | Event::Lost(_)
            | Event::Stray => {}
        }
    }

    fn service(&mut self, now: Instant, service: Service) {
        self.serve(now, service);
    }
}

impl History {
    fn is_unwanted(&self, now: Instant) -> bool {
        now.saturating_since(self.wanted) > UNWANTED
    }
}

impl Backend {
    /// Follows the 0.1 quantile of the times of a class: nine steps up weigh as much as one down. Others can come while the
    /// I/O is there, so its time is not that of the device alone, but seldom shorter.
    fn learn(&mut self, class: usize, time: u64) {
        let known = &mut self.alone[class];
        if *known == 0 {
            *known = time;
        } else if time < *known {
            *known -= *known / 64;
        } else {
            *known += *known / 576;
        }
    }
}

/// Adds an amount to a history, if there is one that is still wanted.
fn add(
    histories: &mut usize,
    history: &mut Option<Box<History>>,
    now: Instant,
    owner: Owner,
    amount: u64,
) {
    let Some(kept) = history else { return };
    if kept.is_unwanted(now) {
        *history = None;
        *histories -= 1;
        return;
    }
    kept.cells.add(now, owner.stream().index() as u32, amount);
}

/// The element at an index, made if need be.
fn at<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}

/// The class of an I/O: by direction and power of two of its length.
const fn class(op: Op, length: u64) -> usize {
    let size = 64 - length.leading_zeros() as usize;
    let size = if size < SIZES { size } else { SIZES - 1 };
    if op.writes() { SIZES + size } else { size }
}

/// Whether a request waited for the log of its volume.
fn waited_for_log(completed: &Completed<'_>) -> bool {
    let rule = completed.times.rule(StageName::Cache);
    rule.is_some_and(|rule| !matches!(*rule.0, "cache/fill" | "cache/hit"))
}

impl fmt::Display for PathCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {}: {}, {}", self.path.index(), self.state, self.why)
    }
}

/// A wait of this length begins the history of a resource.
const WATCHED: Duration = Duration::from_millis(1);

/// A history ends after this time without such a wait.
const UNWANTED: Duration = Duration::from_secs(60);

/// Parts that a stage is divided into at most: the smallest are summed as [`Contributor::Others`].
const PARTS_MAX: usize = 16;

/// Histories at once, 126 KiB each. The waits for further resources are [`Contributor::Unknown`].
const HISTORIES_MAX: usize = 64;

/// Histories that are left to what hosts share, however many connections have one.
const SHARED_MIN: usize = 16;

/// How often unwanted histories are looked for, if few more can begin.
const SWEEP: Duration = Duration::from_secs(1);

/// Changes of paths that a backend remembers.
const CHANGES_MAX: usize = 32;

/// Classes by power of two of a length.
const SIZES: usize = 32;

/// Bytes of the header of a reply.
const HEADER: u64 = 48;
