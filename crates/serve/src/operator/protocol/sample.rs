//! Counters at one moment, for clients that show rates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counters since the start of the busiest volumes and tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// For how long the gateway has served.
    pub up_ns: u64,
    /// The part of the last second or so in which its thread has worked, 0 to 1.
    pub busy: f64,
    /// Requests that have not ended.
    pub outstanding: u64,
    /// All volumes together, also those that `volumes` does not have.
    #[serde(default)]
    pub all: Load,
    /// Volumes that have had requests, the busiest first; the first 100.
    pub volumes: Vec<Load>,
    /// How many there are that `volumes` does not have.
    pub volumes_left_out: u64,
    /// Tenants that have had requests, the busiest first; the first 100.
    pub tenants: Vec<Load>,
    /// How many there are that `tenants` does not have.
    pub tenants_left_out: u64,
}

/// What a volume or a tenant has had since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// Requests that ended, those that failed included.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Bytes that were read and written.
    pub bytes: u64,
    /// Response times of requests that ended well: the times within a factor of 1.1, and requests that took no longer
    /// and longer than the one before; ascending, without empty ones.
    pub times: Vec<Bucket>,
    /// The first objective of a tenant, if it has one.
    pub objective_ns: Option<u64>,
    /// Requests of a tenant under an objective.
    pub slo_requests: u64,
    /// Those that missed it.
    pub slo_missed: u64,
    /// The misses that its objectives allow, in millionths of a request.
    pub slo_allowed_ppm: u64,
    /// The rule that held its latest requests for longest; empty if the flight recorder has none.
    pub held_by: String,
}

/// Requests with about one response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// The longest time, inclusive.
    pub up_to_ns: u64,
    /// Requests.
    pub requests: u64,
}
