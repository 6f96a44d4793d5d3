//! Registrations at iSNS servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The registration at one iSNS server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IsnsStatus {
    /// Its address.
    pub server: String,
    /// `waiting`, `connecting`, `registering`, `registered`, `leaving` or `left`.
    pub state: String,
    /// For how long.
    pub age_ns: u64,
    /// How long ago it last answered.
    pub answered_ns: Option<u64>,
    /// The portals that it has acknowledged.
    pub portals: Vec<String>,
    /// Targets that it has acknowledged.
    pub targets: u64,
    /// Targets, portals and groups that it does not take.
    pub refused: u64,
    /// Failures since it last showed the registration.
    pub failures: u64,
    /// The last failure; empty if there was none.
    pub problem: String,
    /// How long ago that was.
    pub problem_ns: Option<u64>,
    /// In how long it is tried or checked next.
    pub next_ns: Option<u64>,
}
