//! Stage 5, path: which way?
//!
//! The stage keeps, for each backend, its paths in priority groups, a selector for each group, and the
//! requests that found no path. An I/O that fails because of its path marks the path failed and goes
//! another way; when none is left it waits, up to a limit, until a path works again. A path may
//! also be too slow, or silent, without any error: then it is left before anything fails
//! (`docs/decisions/0010-paths.md`).

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
mod stage;
mod turns;
mod two_choices;

pub use report::{Access, Change, PathOrder, Speed, State, View, Why};
pub use settings::{Failback, Settings};
pub(crate) use stage::{Paths, Step};

use crate::clock::Instant;
use crate::policy::{Policy, Rule};
use crate::request::PathId;
use alloc::boxed::Box;

/// Held because no path to the backend is left.
pub const RULE_NONE_LEFT: Rule = Rule("path/none_left");

/// Held on a path that was silent or stuck, until the read was sent another way.
pub const RULE_OVERDUE: Rule = Rule("path/overdue");

/// Held on a path that failed, until it was sure that the I/O would not be done there any more.
pub const RULE_LOST: Rule = Rule("path/lost");

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
