//! Stage 5, path: which way?
//!
//! The stage keeps, for each backend, a selector over its paths and the requests that found no path.
//! An I/O that fails because of its path marks the path failed and goes another way; when none is
//! left it waits, up to a limit, until a path is reinstated.

mod ewma;
mod historical_service_time;
mod jsw;
mod queue_length;
mod report;
mod round_robin;
mod roung;
mod roung_job;
mod service_time;
pub mod settings;
mod speed;
mod turns;
mod two_choices;

pub use report::{Access, Change, PathOrder, Speed, State, View, Why};
pub use settings::{Failback, Settings};

use crate::clock::{Duration, Instant};
use crate::pipeline::Backend;
use crate::policy::{Choice, Policy, Rule};
use crate::request::{BackendId, PathId, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Held because no path to the backend is left.
pub const RULE_NONE_LEFT: Rule = Rule("path/none_left");

/// Chooses among the paths of one backend.
///
/// Laws (checked for every policy in the list): a failed path is never chosen; with a usable path
/// the answer is never `None`; failing or reinstating twice changes nothing; the same inputs give
/// the same choices.
pub trait PathPolicy {
    /// The path for an I/O of `bytes`, which starts on it now; `None` if every path has failed.
    fn select(&mut self, now: Instant, bytes: u64) -> Option<PathId>;

    /// An I/O of `bytes` that started at `started` has ended on `path`, well or not.
    fn end(&mut self, now: Instant, path: PathId, bytes: u64, started: Instant);

    /// The path does not work; what is on it will still end.
    fn fail(&mut self, now: Instant, path: PathId);

    /// The path works again.
    fn reinstate(&mut self, now: Instant, path: PathId);

    /// What the policy takes the speed of a path to be, for operators; `None` if it does not learn
    /// speeds, or has not learnt this one yet.
    fn learned(&self, _path: PathId) -> Option<Speed> {
        None
    }
}

/// Builds a selector over this many paths from checked parameter values.
pub type Build = fn(&[u64], u32) -> Box<dyn PathPolicy>;

/// Every path policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    jsw::POLICY,
    round_robin::POLICY,
    roung::POLICY,
    roung_job::POLICY,
    queue_length::POLICY,
    service_time::POLICY,
    historical_service_time::POLICY,
    ewma::POLICY,
    two_choices::POLICY,
];

/// The stage: a selector and a waiting line per backend.
pub(crate) struct Paths {
    backends: Vec<Ways>,
    patience: Duration,
}

struct Ways {
    selector: Box<dyn PathPolicy>,
    paths: Vec<Way>,
    waiting: VecDeque<(Instant, RequestKey)>,
}

/// A path.
struct Way {
    group: u32,
    access: Access,
    state: State,
    since: Instant,
    why: Why,
    in_flight: u32,
    bytes: u64,
    changes: u64,
}

impl Way {
    fn turn(&mut self, now: Instant, place: (BackendId, PathId), state: State, why: Why) -> Change {
        let (from, lasted) = (self.state, now.since(self.since));
        (self.state, self.since, self.why) = (state, now, why);
        self.changes += 1;
        Change { backend: place.0, path: place.1, from, lasted, state, why }
    }
}

impl Paths {
    /// `patience` is how long a request waits for a path before it ends with
    /// [`NoPath`](crate::error::IoError::NoPath).
    pub(crate) fn new(
        choice: &Choice<Build>,
        backends: &[Backend],
        _: &Settings,
        patience: Duration,
    ) -> Self {
        let way = |&group: &u32| Way {
            group,
            access: Access::Optimized,
            state: State::Active,
            since: Instant::ZERO,
            why: Why::Start,
            in_flight: 0,
            bytes: 0,
            changes: 0,
        };
        let ways = |backend: &Backend| Ways {
            selector: (choice.policy().build)(choice.values(), backend.groups.len() as u32),
            paths: backend.groups.iter().map(way).collect(),
            waiting: VecDeque::new(),
        };
        Self { backends: backends.iter().map(ways).collect(), patience }
    }

    /// A path for an I/O, or `None` after putting the request into the waiting line.
    pub(crate) fn select(
        &mut self,
        now: Instant,
        backend: BackendId,
        key: RequestKey,
        bytes: u64,
    ) -> Option<PathId> {
        let ways = &mut self.backends[backend.index()];
        let path = ways.selector.select(now, bytes);
        let Some(path) = path else {
            ways.waiting.push_back((now, key));
            return None;
        };
        let way = &mut ways.paths[path.index()];
        assert!(way.state.is_usable(), "a failed path is never chosen");
        way.in_flight += 1;
        way.bytes += bytes;
        Some(path)
    }

    pub(crate) fn end(
        &mut self,
        now: Instant,
        (backend, path): (BackendId, PathId),
        bytes: u64,
        started: Instant,
    ) {
        let ways = &mut self.backends[backend.index()];
        ways.selector.end(now, path, bytes, started);
        let way = &mut ways.paths[path.index()];
        way.in_flight -= 1;
        way.bytes -= bytes;
    }

    /// Fails a path; `None` if it had failed already.
    pub(crate) fn fail(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: PathId,
    ) -> Option<Change> {
        let ways = &mut self.backends[backend.index()];
        let way = &mut ways.paths[path.index()];
        if way.state == State::Failed {
            return None;
        }
        ways.selector.fail(now, path);
        Some(way.turn(now, (backend, path), State::Failed, Why::LinkLost))
    }

    /// Reinstates a path and returns those who waited for one, oldest first; `None` if it works
    /// already.
    pub(crate) fn reinstate(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: PathId,
    ) -> Option<(Change, VecDeque<(Instant, RequestKey)>)> {
        let ways = &mut self.backends[backend.index()];
        let way = &mut ways.paths[path.index()];
        if way.state != State::Failed {
            return None;
        }
        ways.selector.reinstate(now, path);
        let change = way.turn(now, (backend, path), State::Active, Why::Repaired);
        Some((change, core::mem::take(&mut ways.waiting)))
    }

    /// The target says something of a path.
    pub(crate) fn access(&mut self, backend: BackendId, path: PathId, access: Access) {
        self.backends[backend.index()].paths[path.index()].access = access;
    }

    /// Every path as it is now.
    pub(crate) fn views(&self, _: Instant) -> impl Iterator<Item = View> {
        self.backends.iter().enumerate().flat_map(|(backend, ways)| {
            ways.paths.iter().enumerate().map(move |(index, way)| {
                let path = PathId::new(index as u32);
                View {
                    backend: BackendId::new(backend as u32),
                    path,
                    group: way.group,
                    access: way.access,
                    state: way.state,
                    since: way.since,
                    why: way.why,
                    in_flight: way.in_flight,
                    bytes: way.bytes,
                    oldest: Duration::ZERO,
                    learned: ways.selector.learned(path),
                    changes: way.changes,
                }
            })
        })
    }

    /// When the request that has waited longest for a path gives up.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let oldest = self.backends.iter().filter_map(|ways| ways.waiting.front());
        oldest.map(|&(since, _)| since + self.patience).min()
    }

    /// The next request whose patience has ended at `now`.
    pub(crate) fn give_up(&mut self, now: Instant) -> Option<RequestKey> {
        let patience = self.patience;
        let ended = |ways: &&mut Ways| {
            ways.waiting.front().is_some_and(|&(since, _)| since + patience <= now)
        };
        let ways = self.backends.iter_mut().find(ended)?;
        ways.waiting.pop_front().map(|(_, key)| key)
    }
}

impl core::fmt::Debug for Paths {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let waiting: usize = self.backends.iter().map(|ways| ways.waiting.len()).sum();
        write!(f, "Paths({} backends, {waiting} waiting)", self.backends.len())
    }
}
