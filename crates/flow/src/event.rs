//! What observers see: where each request spent its time, and what went wrong on the way.

use crate::accept::Volume;
use crate::cache::writeback::{self, Notice as CacheNotice};
use crate::clock::{Duration, Instant};
use crate::control::{Notice, Promises};
use crate::dispatch::Owner;
use crate::path::{Backend, Change};
use crate::policy::Rule;
use crate::request::{BackendId, Op, Outcome, PathId, Request, TenantId, VolumeId};
use core::fmt;

/// A stage of the pipeline, in the order in which a request meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StageName {
    /// Bounds, overlap, split.
    Accept,
    /// Is it cached?
    Cache,
    /// May it go now?
    Control,
    /// Who goes next?
    Dispatch,
    /// The path stage.
    Path,
    /// The device behind.
    Storage,
    /// Which reply is sent first?
    Transfer,
}

impl StageName {
    /// All stages, in order.
    pub const ALL: [Self; 7] = [
        Self::Accept,
        Self::Cache,
        Self::Control,
        Self::Dispatch,
        Self::Path,
        Self::Storage,
        Self::Transfer,
    ];

    /// Its place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Cache => "cache",
            Self::Control => "control",
            Self::Dispatch => "dispatch",
            Self::Path => "path",
            Self::Storage => "storage",
            Self::Transfer => "transfer",
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The time a request spent in each stage, and the last rule that held it there.
///
/// The parts add up to the whole: from arrival to the last byte of the reply. A split request has
/// the times of the piece that ended last, which is the one that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    spent: [Duration; 7],
    rules: [Option<Rule>; 7],
    total: Duration,
    /// A bit for each stage in which it spent time, so that its readers look at no other.
    held: u8,
}

impl StageTimes {
    /// Time spent in one stage.
    pub const fn spent(&self, stage: StageName) -> Duration {
        self.spent[stage.index()]
    }

    /// The rule that last held the request in a stage, if it spent time there.
    pub const fn rule(&self, stage: StageName) -> Option<Rule> {
        self.rules[stage.index()]
    }

    /// The whole: the sum of the parts.
    pub const fn total(&self) -> Duration {
        self.total
    }

    /// The stages in which it spent time, in order: the rule that last held it there, and for how long it was there.
    pub fn held(&self) -> impl Iterator<Item = (StageName, Rule, Duration)> {
        let mut left = self.held;
        core::iter::from_fn(move || {
            let index = left.trailing_zeros() as usize;
            let stage = *StageName::ALL.get(index)?;
            left &= left - 1;
            Some((stage, self.rules[index]?, self.spent[index]))
        })
    }

    /// Most stages are passed at once: that alone is worth being inlined.
    #[inline]
    pub(crate) fn charge(&mut self, stage: StageName, spent: Duration, rule: Rule) {
        if spent > Duration::ZERO {
            self.hold(stage, spent, rule);
        }
    }

    #[inline(never)]
    fn hold(&mut self, stage: StageName, spent: Duration, rule: Rule) {
        self.spent[stage.index()] += spent;
        self.rules[stage.index()] = Some(rule);
        self.total += spent;
        self.held |= 1 << stage.index();
    }
}

/// Something an observer may want to know.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A request has come in.
    Arrived(&'a Request),
    /// A request was turned away because a limit of the pipeline was reached. The protocol tells
    /// the host so; nothing was lost. The index is that of the row of its tenant's contract that it
    /// falls under, if under any.
    Refused(&'a Request, Option<u8>),
    /// A request has ended and the last byte of its reply has left.
    Completed(Completed<'a>),
    /// A path's state has changed.
    Path(Change),
    /// A request has been in one stage for at least the configured time.
    Overdue {
        /// The request.
        request: &'a Request,
        /// Where it is.
        stage: StageName,
        /// For how long.
        age: Duration,
    },
    /// The control policy has something to tell.
    Control(Notice),
    /// A volume's log has something to tell.
    Cache(VolumeId, CacheNotice),
    /// Other promises hold from now on, or another policy keeps them.
    ControlSet(&'a Promises),
    /// A volume has come, these backends with it, and this log if it has one.
    VolumeAdded(VolumeId, &'a Volume, &'a [Backend], Option<&'a writeback::Settings>),
    /// A volume has gone: nothing of it is outstanding.
    VolumeRemoved(VolumeId),
    /// A volume may have lost what was acknowledged: no flush of a host ends well from now on.
    Lost(VolumeId),
    /// A completion came for something that is not outstanding.
    Stray,
}

/// Use of a resource, which others may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The cap of a volume has let a request go.
    Cap(VolumeId, Owner, u64),
    /// The control policy has released a request.
    Control(Owner, u64),
    /// An I/O has ended at a backend.
    Storage(BackendId, Owner, StorageIo),
    /// One more flush is in flight at a backend, or one less.
    Flush(BackendId, bool),
}

/// An I/O that has ended at a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageIo {
    /// What it did.
    pub op: Op,
    /// Its length in bytes.
    pub length: u64,
    /// How long it was there.
    pub time: Duration,
    /// The backend had no other when it came.
    pub alone: bool,
}

/// A request's whole story.
#[derive(Clone, Copy, Debug)]
pub struct Completed<'a> {
    /// The request.
    pub request: &'a Request,
    /// The row of its tenant's contract that it falls under, if under any.
    pub row: Option<u8>,
    /// When it came.
    pub arrived: Instant,
    /// Where its time went.
    pub times: &'a StageTimes,
    /// How it ended.
    pub outcome: Outcome,
    /// What it met on its way.
    pub trail: Trail,
}

/// What a request met on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// The backend of the piece that ended last.
    pub backend: BackendId,
    /// The path of that piece, if it came so far.
    pub path: Option<PathId>,
    /// The bytes of that piece.
    pub length: u64,
    /// The line of its reply: the links of a port have one in common.
    pub line: u32,
    /// The tenant whose request it had to wait for last because both touch the same bytes.
    pub freed_by: Option<TenantId>,
    /// That piece found its backend empty.
    pub alone: bool,
    /// No other request was there when it ended.
    pub last: bool,
}

/// Learns of events as they happen. It must not act on them: what changes the data path is an
/// input.
pub trait Observer {
    /// Something has happened at `now`.
    fn event(&mut self, now: Instant, event: Event<'_>);

    /// A resource was used that other requests may wait for. This is no [`Event`], as there are several for each request, and
    /// few observers need them.
    fn service(&mut self, _now: Instant, _service: Service) {}
}

/// Watches nothing and costs nothing.
impl Observer for () {
    fn event(&mut self, _: Instant, _: Event<'_>) {}
}

/// Both watch.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        self.0.event(now, event);
        self.1.event(now, event);
    }

    fn service(&mut self, now: Instant, service: Service) {
        self.0.service(now, service);
        self.1.service(now, service);
    }
}
