//! Stage 5, path: which way?
//!
//! The stage keeps, for each backend, a selector over its paths and the requests that found no path.
//! An I/O that fails because of its path marks the path failed and goes another way; when none is
//! left it waits, up to a limit, until a path is reinstated.

mod round_robin;

use crate::clock::{Duration, Instant};
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
}

/// Builds a selector over this many paths from checked parameter values.
pub type Build = fn(&[u64], u32) -> Box<dyn PathPolicy>;

/// Every path policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[round_robin::POLICY];

/// The stage: a selector and a waiting line per backend.
pub(crate) struct Paths {
    backends: Vec<Ways>,
    patience: Duration,
}

struct Ways {
    selector: Box<dyn PathPolicy>,
    /// Which paths work, as far as is known.
    usable: Vec<bool>,
    waiting: VecDeque<(Instant, RequestKey)>,
}

impl Paths {
    /// `paths` has the number of paths of each backend; `patience` is how long a request waits for
    /// a path before it ends with [`NoPath`](crate::error::IoError::NoPath).
    pub(crate) fn new(choice: &Choice<Build>, paths: &[u32], patience: Duration) -> Self {
        let way = |&count: &u32| Ways {
            selector: (choice.policy().build)(choice.values(), count),
            usable: alloc::vec![true; count as usize],
            waiting: VecDeque::new(),
        };
        Self { backends: paths.iter().map(way).collect(), patience }
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
        match path {
            Some(path) => assert!(ways.usable[path.index()], "a failed path is never chosen"),
            None => ways.waiting.push_back((now, key)),
        }
        path
    }

    pub(crate) fn end(
        &mut self,
        now: Instant,
        (backend, path): (BackendId, PathId),
        bytes: u64,
        started: Instant,
    ) {
        self.backends[backend.index()].selector.end(now, path, bytes, started);
    }

    /// Fails a path; false if it had failed already.
    pub(crate) fn fail(&mut self, now: Instant, backend: BackendId, path: PathId) -> bool {
        let ways = &mut self.backends[backend.index()];
        let news = core::mem::replace(&mut ways.usable[path.index()], false);
        if news {
            ways.selector.fail(now, path);
        }
        news
    }

    /// Reinstates a path and returns those who waited for one, oldest first; `None` if it works
    /// already.
    pub(crate) fn reinstate(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: PathId,
    ) -> Option<VecDeque<(Instant, RequestKey)>> {
        let ways = &mut self.backends[backend.index()];
        if core::mem::replace(&mut ways.usable[path.index()], true) {
            return None;
        }
        ways.selector.reinstate(now, path);
        Some(core::mem::take(&mut ways.waiting))
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
