//! Slow requests, as the control socket tells of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The slowest requests of late, or one with an id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slow {
    /// Requests that ended in that time.
    pub requests: u64,
    /// Those that missed an objective.
    pub late: u64,
    /// Those that storage or the way to it failed.
    pub failed: u64,
    /// Others that took `slow_ns` or longer.
    pub slow: u64,
    /// From this response time on a request is slow.
    pub slow_ns: u64,
    /// How far back the counts reach.
    pub within_ns: u64,
    /// How long ago the time ended that they are of; 0 if it has not.
    #[serde(default)]
    pub until_ns: u64,
    /// The requests: late and failed ones first, then the slowest.
    pub told: Vec<SlowRequest>,
}

/// A request that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequest {
    /// Its id, as in the log.
    pub id: String,
    /// How long ago it ended.
    pub age_ns: u64,
    /// When it came, since the gateway started.
    pub arrived_ns: u64,
    /// From then to the last byte of the reply.
    pub response_ns: u64,
    /// `late`, `failed` or `slow`; empty if it was none of these.
    pub reason: String,
    /// Its operation.
    pub op: String,
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its tenant.
    pub tenant: String,
    /// Its volume.
    pub volume: String,
    /// The name of its host, until another one has its connection; NBD has none.
    pub host: Option<String>,
    /// The address of its host, as the log lines of its session have it.
    #[serde(default)]
    pub peer: Option<String>,
    /// Its objective, if it has one.
    pub target_ns: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
    /// The backend that it was sent to last.
    pub backend: Option<String>,
    /// The path there.
    pub path: Option<u32>,
    /// Where it waited, in order; the times add up to `response_ns`.
    pub waits: Vec<Wait>,
    /// Who or what most of its time is charged to; `None` if it was not attributed.
    pub mostly: Option<Behind>,
}

/// The time of a request in a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// The stage.
    pub stage: String,
    /// The rule that held it there last.
    pub rule: String,
    /// For how long.
    pub time_ns: u64,
    /// Who was served meanwhile, or what was in the way: the largest part first. The times add up to `time_ns`; empty if
    /// the request was not attributed.
    pub behind: Vec<Behind>,
}

/// Part of the time in a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Behind {
    /// A tenant, or words such as `flush`.
    pub who: String,
    /// It is a tenant.
    pub is_tenant: bool,
    /// For how long.
    pub time_ns: u64,
}

/// What the flight recorder keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecorderStatus {
    /// Its memory.
    pub memory_bytes: u64,
    /// How far back the ring of all requests reaches.
    pub ring_ns: u64,
    /// How far back the slowest of each second reach.
    pub seconds_ns: u64,
    /// Those of each minute.
    pub minutes_ns: u64,
    /// Those of each hour.
    pub hours_ns: u64,
}

/// A minute: the time of a request that does not say.
pub(super) const fn last_minute() -> u64 {
    60_000_000_000
}

/// The limit of a request that does not say.
pub(super) const fn ten() -> u32 {
    10
}
