//! What is answered.

use super::arrivals::Issuer;
use super::fit::Fitted;
use super::scores::Figures;
use crate::replay::Replay;
use crate::results::TargetResults;
use serde::Serialize;

/// What would have been.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The recorded run.
    pub recorded: Replay,
    /// Why the whole question cannot be answered; empty if it can.
    pub refused: Vec<String>,
    /// What stood for the devices: `recorded`, `fitted` or `named`.
    pub device: &'static str,
    /// The fitted models, if any.
    pub fits: Vec<Fitted>,
    /// How arrivals were made.
    pub issuers: Vec<Issuer>,
    /// Requests of open, mixed and closed issuers.
    pub requests: [usize; 3],
    /// Percentiles of the recorded configuration in the same machinery against the recorded ones.
    pub checks: Vec<Check>,
    /// The share of I/Os at depths that were not recorded.
    pub beyond: f64,
    /// Mean time for which hosts held requests back at their depth, in nanoseconds a request.
    pub host_wait_ns: f64,
    /// The figures.
    pub rows: Vec<Compared>,
    /// The objectives.
    pub objectives: Vec<Objectives>,
    /// Names of tenants, if the question had some.
    pub tenants: Vec<String>,
    /// Names of volumes, if the question had some.
    pub volumes: Vec<String>,
}

/// A check of the machinery or of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What was checked.
    pub what: &'static str,
    /// The largest deviation of a median, as a share; its sign is kept.
    pub p50: f64,
    /// The same of a 99th percentile.
    pub p99: f64,
    /// Whether every row passed.
    pub passed: bool,
}

/// One tenant's requests of one kind to one volume, as they were and as they would have been.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The tenant, by its place in the configuration.
    pub tenant: usize,
    /// The volume, by its place in the configuration.
    pub volume: usize,
    /// `read`, `write` or `other`.
    pub op: &'static str,
    /// As recorded.
    pub was: Figures,
    /// The median over the runs; `None` if it cannot be told.
    pub would: Option<Figures>,
    /// The lowest and highest figures of the runs.
    pub range: Option<(Figures, Figures)>,
    /// Hosts may have wanted more than they sent: `iops` is a lower bound.
    pub at_least: bool,
    /// Why there is no answer.
    pub reason: Option<String>,
}

/// The objectives of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objectives {
    /// The tenant, by its place in the configuration.
    pub tenant: usize,
    /// As recorded, by the recorded contract.
    pub was: Vec<TargetResults>,
    /// As it would have been, by the contract of the question, in the first run.
    pub would: Vec<TargetResults>,
}
