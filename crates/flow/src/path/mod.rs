//! Stage 5, path: chooses the path of an I/O, and leaves paths that fail, hang or are slow.
//!
//! The stage keeps, for each backend, its paths in priority groups, a selector for each group, and the
//! requests that found no path. An I/O that fails because of its path marks the path failed and goes
//! to another path; when none is left it waits, up to a limit, until a path works again. A path may
//! also be too slow, or silent, without any error: then it is left before anything fails
//! (`docs/decisions/0010-paths.md`).

mod baselines;
mod jsw;
mod lru_order;
mod report;
pub mod settings;
mod speed;
mod stage;

pub use report::{Access, Change, Ejection, Grounds, PathOrder, Probe, Speed, State, View, Why};
pub use settings::{Failback, Settings};
pub(crate) use stage::{Paths, Step};

use crate::clock::Instant;
use crate::policy::{Policy, Rule, Values};
use crate::request::{Op, PathId, TenantId, VolumeId};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Held because no path to the backend is left.
pub const RULE_NO_PATH: Rule = Rule(&"path/no_path");

/// Held on a path that was silent or stuck, until the read was sent to another path.
pub const RULE_OVERDUE: Rule = Rule(&"path/overdue");

/// Held on a path that failed, until it was sure that the I/O would not be done there any more.
pub const RULE_LOST: Rule = Rule(&"path/lost");

/// A device or target behind, and the paths to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The priority group of each path, by [`PathId`]. The group with the smallest number that has a
    /// usable path is used.
    pub groups: Vec<u32>,
}

impl Backend {
    /// `paths` paths of one group.
    pub fn alike(paths: u32) -> Self {
        Self { groups: alloc::vec![0; paths as usize] }
    }
}

/// Chooses among the paths of one backend.
///
/// Laws, which `crates/flow/tests/laws/path.rs` checks for every policy in the list:
///
/// * a failed path is never chosen, and with a usable path `select` is not `None`;
/// * the first path to return is chosen at once;
/// * failing or reinstating a path twice changes nothing;
/// * the same inputs give the same choices.
///
/// [`Property::UsesEveryPath`](crate::policy::Property::UsesEveryPath) is claimed in the record, and is
/// checked against what the policy does: an active/passive selector leaves it out.
pub trait PathPolicy {
    /// The path for an I/O, which starts on it now; `None` if every path has failed.
    fn select(&mut self, now: Instant, io: &PathIo) -> Option<PathId>;

    /// An I/O that started at `started` has ended on `path`, well or not.
    fn end(&mut self, now: Instant, path: PathId, io: &PathIo, started: Instant);

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

/// What a selector knows of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathIo {
    /// Bytes that it moves; none for a flush or a discard.
    pub bytes: u64,
    /// What it does.
    pub op: Op,
    /// The tenant that asked.
    pub tenant: TenantId,
    /// The volume that is addressed.
    pub volume: VolumeId,
    /// Its first byte at the backend.
    pub offset: u64,
    /// When the request arrived at the gateway.
    pub arrived: Instant,
}

impl PathIo {
    /// A read of which nothing but the size matters.
    pub const fn sized(bytes: u64) -> Self {
        let (tenant, volume) = (TenantId::new(0), VolumeId::new(0));
        Self { bytes, op: Op::Read, tenant, volume, offset: 0, arrived: Instant::ZERO }
    }
}

/// Builds a selector over this many paths from checked parameter values.
pub type Build = fn(Values<'_>, u32) -> Box<dyn PathPolicy>;

/// Every path policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    jsw::POLICY,
    baselines::round_robin::POLICY,
    baselines::roung::POLICY,
    baselines::roung_job::POLICY,
    baselines::queue_length::POLICY,
    baselines::service_time::POLICY,
    baselines::historical_service_time::POLICY,
    baselines::ewma::POLICY,
    baselines::two_choices::POLICY,
];
