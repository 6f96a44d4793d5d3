//! What is asked of a recording.

use super::arrivals::Arrivals;
use weir_flow::accept::Cap;
use weir_flow::control::Promises;
use weir_flow::dispatch::Shares;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::policy::Choice;
use weir_flow::{cache, control, dispatch, path, transfer};

/// What is to be different. What is `None` stays as recorded.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Rules of a configuration or plan; what else is given holds instead of theirs.
    pub rules: Option<Rules>,
    /// The eviction policy.
    pub cache: Option<Choice<cache::evict::Build>>,
    /// The prefetch policy.
    pub prefetch: Option<Choice<cache::prefetch::Build>>,
    /// The control policy.
    pub control: Option<Choice<control::Build>>,
    /// The dispatch policy.
    pub dispatch: Option<Choice<dispatch::Build>>,
    /// The path policy.
    pub path: Option<Choice<path::Build>>,
    /// The transfer policy.
    pub transfer: Option<Choice<transfer::Build>>,
    /// The size of the read cache in bytes.
    pub cache_size: Option<u64>,
    /// What stands for the devices.
    pub device: Device,
    /// How arrivals are made.
    pub arrivals: Arrivals,
    /// The most requests that each issuer has outstanding.
    pub depth: Option<u32>,
    /// Runs with a model, each with other draws; at least 1.
    pub seeds: u32,
}

/// What of a configuration or plan decides about requests.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The names of the volumes, in order.
    pub volumes: Vec<(String, Cap)>,
    /// The names of the tenants, in order.
    pub tenants: Vec<String>,
    /// The contracts.
    pub promises: Promises,
    /// The weights.
    pub shares: Shares,
    /// The limits.
    pub limits: Limits,
    /// How paths are judged.
    pub paths: path::Settings,
    /// The read cache.
    pub cache: cache::Settings,
    /// The policies.
    pub policies: Policies,
}

/// What stands for the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// Recorded times if the schedule stays the same, else a fitted model.
    #[default]
    Auto,
    /// Recorded times; refused if the schedule changes.
    Recorded,
    /// A fitted model.
    Fitted,
    /// This model for every backend.
    Named(weir_model::Model),
}
