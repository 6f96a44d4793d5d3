//! What there is to tell of the parts of the backends' time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The share of the backends' time that a tenant or background work has had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareStatus {
    /// A tenant's name, or what the gateway does by itself: `write-back`, `prefetch`, `jobs`.
    pub name: String,
    /// The gateway does it by itself.
    pub background: bool,
    /// Its weight.
    pub weight: f64,
    /// Service time since the start; see `docs/operate/shares.md`.
    pub service_ns: u64,
    /// That of the last 5 to 10 s.
    pub recent_ns: u64,
    /// Its part of what all have had in the last 5 to 10 s, 0 to 1.
    pub share: f64,
}

/// The part of its tenants' shares that a queue, a host or a namespace has had that is a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatus {
    /// `queue`, `host` or `namespace`.
    pub kind: String,
    /// The subsystem.
    pub subsystem: String,
    /// The NQN of the host; a namespace has none.
    pub host: Option<String>,
    /// The controller of a queue.
    pub controller: Option<u16>,
    /// The queue of this controller.
    pub queue: Option<u16>,
    /// The namespace.
    pub namespace: Option<u32>,
    /// Its weight within its tenant.
    pub weight: f64,
    /// Service time since it began: since its first queue was connected, or since the start.
    pub service_ns: u64,
    /// That of the last 5 to 10 s.
    pub recent_ns: u64,
    /// Its part of what all have had in the last 5 to 10 s, 0 to 1.
    pub share: f64,
}

/// How full a backend is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendStatus {
    /// Its name, as `path.list` has it.
    pub name: String,
    /// I/Os that it has been given and has not ended.
    pub outstanding: u64,
    /// How many the dispatch policy lets it have at most, now.
    pub depth: u64,
}
