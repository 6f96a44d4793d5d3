//! The protocol of the control socket: one line of JSON for each request, and one for its answer.
//!
//! `docs/reference/control-socket.md` is the reference. To add a verb, add a variant to [`Request`] and its
//! answer to [`Answer`]; `answer.rs` does not compile until it handles it. A new field is no new
//! version: readers ignore unknown fields. A field that is removed, or changes its meaning, is one.

mod devices;
mod isns;
mod moves;
mod refusal;
mod reload;
mod sample;
mod shares;
mod slow;
mod turned_away;
mod volumes;

pub use devices::{DeviceStatus, FlashStatus, Spread};
pub use isns::IsnsStatus;
pub(crate) use moves::MoveOrder;
pub use moves::MoveStatus;
pub use sample::{Bucket, Load, Sample};
pub use shares::{BackendStatus, ShareStatus, StreamStatus};
pub use slow::{Behind, RecorderStatus, Slow, SlowRequest, Wait};
pub use turned_away::TurnedAwayStatus;
pub use volumes::{FenceStatus, LogStatus, LostStatus, VolumeStatus};

pub use reload::{FileId, Verdict};

mod paths;

pub use paths::{EjectionStatus, LearnedSpeed, PathStatus};
pub(crate) use refusal::Refusal;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol, in every request and every answer.
pub const VERSION: u32 = 1;

/// The longest line of a request in bytes, without its end: a configuration fits. A longer one is refused, and the
/// connection is closed.
pub const LINE_MAX: usize = 2 << 20;

/// The longest `name` of [`Request::Apply`] in bytes: what a path may have (`PATH_MAX`). It is in each diagnostic.
pub(crate) const NAME_MAX: usize = 4_096;

/// A request or an answer as it is written: with its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line<T> {
    /// [`VERSION`].
    pub version: u32,
    /// The request or the answer.
    #[serde(flatten)]
    pub said: T,
}

impl<T: Serialize> Line<T> {
    /// The line with its end.
    pub fn of(said: T) -> String {
        let line = Self { version: VERSION, said };
        // Maps have texts for keys here, and numbers are finite: there is no other way to fail.
        let mut text = serde_json::to_string(&line).expect("a line is plain data");
        text.push('\n');
        text
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", deny_unknown_fields)]
pub enum Request {
    /// The status of the gateway. Answered with [`Answer::Status`].
    #[serde(rename = "status")]
    Status {},
    /// The paths to backends. Answered with [`Answer::Paths`].
    #[serde(rename = "path.list")]
    PathList {
        /// Only those to this backend.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<String>,
    },
    /// Use a path no more until it is enabled again. Answered with the backend's paths after that.
    #[serde(rename = "path.disable")]
    PathDisable {
        /// The backend.
        backend: String,
        /// The path, from 0.
        path: u32,
        /// Even if no other path to the backend can be used.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Use a disabled path again. Answered with the backend's paths.
    #[serde(rename = "path.enable")]
    PathEnable {
        /// The backend.
        backend: String,
        /// The path, from 0.
        path: u32,
    },
    /// Go back to the best priority group with a path that can be used. Answered with the backend's paths.
    #[serde(rename = "path.failback")]
    PathFailback {
        /// The backend.
        backend: String,
    },
    /// The volumes. Answered with [`Answer::Volumes`].
    #[serde(rename = "volume.list")]
    VolumeList {
        /// Only this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
    },
    /// Write everything in a volume's log to its storage, and new writes directly there.
    /// Answered with the volume after that; it is drained when its log is in phase `through`.
    #[serde(rename = "volume.drain")]
    VolumeDrain {
        /// The volume.
        volume: String,
    },
    /// Write to the log of a drained volume again. Answered with the volume.
    #[serde(rename = "volume.resume")]
    VolumeResume {
        /// The volume.
        volume: String,
    },
    /// Retry the write-back of a volume that its storage has refused. Answered with the volume.
    #[serde(rename = "volume.retry")]
    VolumeRetry {
        /// The volume.
        volume: String,
    },
    /// Give up the data on which write-back of a volume is blocked because the log cannot be read there: reads of it fail
    /// until hosts have overwritten it. Answered with the volume.
    #[serde(rename = "volume.quarantine")]
    VolumeQuarantine {
        /// The volume.
        volume: String,
    },
    /// How far the move of a volume is at this gateway. Answered with [`Answer::Move`].
    #[serde(rename = "volume.move_look")]
    VolumeMoveLook {
        /// The volume.
        volume: String,
    },
    /// Prepare to give a volume to another gateway: drain its log, hold requests, and show the key of its unit. Answered
    /// with [`Answer::Move`] when that has begun.
    #[serde(rename = "volume.move_out")]
    VolumeMoveOut {
        /// The volume.
        volume: String,
        /// The number of the move. An order with the number of the move in progress changes nothing.
        number: u64,
        /// Where hosts find the volume after the move.
        to: String,
        /// `identity` of the volume at the other gateway, which must be the one here.
        identity: String,
        /// How long the log may take to drain.
        drain_within_ns: u64,
    },
    /// Take a volume over from the gateway with this key. Answered with [`Answer::Move`] when that has begun.
    #[serde(rename = "volume.move_in")]
    VolumeMoveIn {
        /// The volume.
        volume: String,
        /// The number of the move.
        number: u64,
        /// The key that the other gateway shows.
        key: String,
    },
    /// Give up the move of this number, unless the key of the unit was shown. Answered with [`Answer::Move`].
    #[serde(rename = "volume.move_cancel")]
    VolumeMoveCancel {
        /// The volume.
        volume: String,
        /// The number of the move.
        number: u64,
    },
    /// Read the configuration again, as at SIGHUP. Answered with [`Answer::Reloaded`].
    #[serde(rename = "reload")]
    Reload {
        /// Check only whether it can be put into force.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
        /// Take away volumes and exports even if hosts use them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Put this configuration into force. Answered with [`Answer::Reloaded`].
    #[serde(rename = "apply")]
    Apply {
        /// What messages call it; at most 4,096 bytes.
        name: String,
        /// Its text. Paths in it are relative to the folder of the file that the gateway was started with.
        text: String,
        /// Check only whether it can be put into force.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
        /// Take away volumes and exports even if hosts use them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Counters of the busiest volumes and tenants. Answered with [`Answer::Sample`], after which the gateway closes the
    /// connection.
    #[serde(rename = "sample")]
    Sample {},
    /// The slowest requests of late, or one of them. Answered with [`Answer::Slow`].
    #[serde(rename = "slow")]
    Slow {
        /// Only the request with this id; all else is ignored then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Those that ended in this time before now.
        #[serde(default = "slow::last_minute")]
        last_ns: u64,
        /// Those that ended around this moment, in nanoseconds of Unix time, instead of `last_ns`: in its minute, or in its hour
        /// if that is more than an hour ago.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_unix_ns: Option<u64>,
        /// Only this tenant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<String>,
        /// Only this volume.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
        /// Only those that this rule held.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// Only those that ended after the one with this id. One of another start of the gateway leaves out none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// At most this many, up to 32.
        #[serde(default = "slow::ten")]
        limit: u32,
    },
    /// The metrics. Answered with [`Answer::Metrics`], after which the gateway closes the connection.
    #[serde(rename = "metrics")]
    Metrics {
        /// As `OpenMetrics` 1.0, instead of the text format 0.0.4 of Prometheus.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        openmetrics: bool,
    },
    /// Stop the gateway as at SIGTERM. Answered with [`Answer::Stopping`].
    #[serde(rename = "stop")]
    Stop {},
}

impl Request {
    /// The slowest requests of the last minute.
    pub(crate) const fn slowest(limit: u32) -> Self {
        let last_ns = slow::last_minute();
        let (id, at_unix_ns, tenant, volume, rule, after) = (None, None, None, None, None, None);
        Self::Slow { id, last_ns, at_unix_ns, tenant, volume, rule, after, limit }
    }

    /// The request with this id.
    pub(crate) const fn ended(id: String) -> Self {
        let (last_ns, limit) = (slow::last_minute(), slow::ten());
        let (at_unix_ns, tenant, volume, rule, after) = (None, None, None, None, None);
        Self::Slow { id: Some(id), last_ns, at_unix_ns, tenant, volume, rule, after, limit }
    }

    /// Parses a line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let mut value: Value = serde_json::from_slice(line).map_err(Refusal::NotJson)?;
        let version = value.as_object_mut().and_then(|fields| fields.remove("version"));
        match version {
            Some(version) if version == VERSION => {}
            Some(version) => return Err(Refusal::Version(version)),
            None => return Err(Refusal::NoVersion),
        }
        serde_json::from_value(value).map_err(Refusal::NotARequest)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The status of the gateway.
    Status(Box<Status>),
    /// Paths, by backend and number.
    Paths(Vec<PathStatus>),
    /// Volumes, in the order of the configuration.
    Volumes(Vec<VolumeStatus>),
    /// The move of a volume at this gateway.
    Move(Box<MoveStatus>),
    /// The configuration is in force, or could be.
    Reloaded(Verdict),
    /// Counters of the busiest volumes and tenants.
    Sample(Box<Sample>),
    /// The slowest requests.
    Slow(Box<Slow>),
    /// A page of metrics.
    Metrics(String),
    /// The gateway takes no new work, and stops when requests in flight have ended.
    Stopping(Leaving),
    /// The request was refused.
    Error(Problem),
}

/// The data that a gateway leaves in logs when it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leaving {
    /// Bytes in logs that are not on the volumes' own storage; they go there after the next start.
    pub dirty_bytes: u64,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// For programs; `docs/reference/control-socket.md` lists them.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// The status of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The process.
    pub gateway: GatewayStatus,
    /// Requests since it started.
    pub requests: RequestCounts,
    /// The requests in each of the seven stages now, in their order.
    pub stages: Vec<StageStatus>,
    /// Requests that have been in one stage for too long, the oldest first; the first 100.
    pub overdue: Vec<OverdueRequest>,
    /// How many there are that `overdue` does not have.
    pub overdue_left_out: u64,
    /// Sessions, those with most outstanding commands first; the first 100.
    pub sessions: Vec<SessionStatus>,
    /// How many there are that `sessions` does not have.
    pub sessions_left_out: u64,
    /// Hosts that were turned away in the last hour, the latest first; the first 100.
    #[serde(default)]
    pub turned_away: Vec<TurnedAwayStatus>,
    /// How many there are that `turned_away` does not have.
    #[serde(default)]
    pub turned_away_left_out: u64,
    /// The volumes, in the order of the configuration.
    pub volumes: Vec<VolumeStatus>,
    /// The modelled devices, in the order of the configuration.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// The tenants with a contract and requests, those first whose budget burned fastest
    /// in the last hour; the first 100.
    pub tenants: Vec<TenantStatus>,
    /// How many there are that `tenants` does not have.
    pub tenants_left_out: u64,
    /// The shares of the backends' time, the largest of late first; the first 100.
    #[serde(default)]
    pub shares: Vec<ShareStatus>,
    /// How many there are that `shares` does not have.
    #[serde(default)]
    pub shares_left_out: u64,
    /// The streams within tenants (`streams` of `[[subsystem]]`), the largest of late first; the first 100.
    #[serde(default)]
    pub streams: Vec<StreamStatus>,
    /// How many there are that `streams` does not have.
    #[serde(default)]
    pub streams_left_out: u64,
    /// The depth of the backends, the fullest first; the first 100.
    #[serde(default)]
    pub backends: Vec<BackendStatus>,
    /// How many there are that `backends` does not have.
    #[serde(default)]
    pub backends_left_out: u64,
    /// The registrations at iSNS servers, in the order of the configuration.
    #[serde(default)]
    pub isns: Vec<IsnsStatus>,
    /// The paths that are out of use.
    #[serde(default)]
    pub paths_out: Vec<PathStatus>,
    /// What the flight recorder keeps; `None` if it is switched off.
    #[serde(default)]
    pub recorder: Option<RecorderStatus>,
}

/// The process that serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayStatus {
    /// Its release.
    pub release: String,
    /// Its process id.
    pub pid: u32,
    /// For how long it has served.
    pub up_ns: u64,
    /// Its disk driver.
    pub driver: String,
    /// It takes no new work: it was asked to stop, and ends requests in flight.
    pub stopping: bool,
    /// The part of the last second or so in which its thread has worked, 0 to 1.
    pub busy: f64,
    /// What limits throughput now: `thread`, `backend NAME` or `limits`; empty if nothing does.
    pub bottleneck: String,
}

/// Requests since the gateway started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestCounts {
    /// Those that have ended.
    pub completed: u64,
    /// Those of them that ended with an error.
    pub failed: u64,
    /// Those that were refused because a limit was reached.
    pub refused: u64,
    /// Those that have not ended.
    pub outstanding: u64,
}

/// The requests in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageStatus {
    /// Its name.
    pub stage: String,
    /// Requests, or pieces of large ones.
    pub count: u64,
    /// How long the one that came first has been there.
    pub oldest_ns: u64,
}

/// A request, or a piece of one, that has been in one stage for too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverdueRequest {
    /// The stage.
    pub stage: String,
    /// For how long.
    pub age_ns: u64,
    /// Its tenant.
    pub tenant: String,
    /// Its volume.
    pub volume: String,
    /// Its operation.
    pub op: String,
    /// Its offset in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// An iSCSI session, an NBD client, or a queue of an NVMe host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStatus {
    /// `iscsi`, `nbd` or `nvme`.
    pub protocol: String,
    /// The address of the host.
    pub peer: String,
    /// The host's iSCSI name or NQN; NBD has none.
    pub initiator: Option<String>,
    /// The target, the export or the subsystem; a discovery session of iSCSI has none.
    pub target: Option<String>,
    /// The controller of an NVMe host.
    pub controller: Option<u16>,
    /// The queue of this controller; 0 is the admin queue.
    pub queue: Option<u16>,
    /// Commands that have no complete reply yet.
    pub outstanding: u64,
}

/// The state of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// Requests that ended.
    pub requests: u64,
    /// Those of them that missed their objective.
    pub late: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Sum of the response times.
    pub time_ns: u64,
    /// The rules that held its requests for longest.
    pub causes: Vec<CauseStatus>,
    /// How well each objective of its contract was met.
    pub targets: Vec<TargetStatus>,
}

/// The time that requests waited for one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CauseStatus {
    /// The rule that held them.
    pub rule: String,
    /// For how long, in sum.
    pub time_ns: u64,
}

/// How well one objective of a contract was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetStatus {
    /// `read` or `write`.
    pub direction: String,
    /// Bytes of a request of this row.
    pub size: u64,
    /// The share of the contract up to which the row holds; `None` if it always does.
    pub load: Option<f64>,
    /// The share of requests of the objective, 0 to 1.
    pub quantile: f64,
    /// The response time of the objective.
    pub target_ns: u64,
    /// Requests of the objective, refused ones included.
    pub count: u64,
    /// Those that missed it.
    pub missed: u64,
    /// The response time of that share, within 1 %; `None` if no request was served.
    pub measured_ns: Option<u64>,
    /// Missed share over the share that may be missed: above 1 the objective is missed.
    pub burn: f64,
    /// The same, of the last five minutes.
    pub burn_5min: f64,
    /// The same, of the last hour.
    pub burn_1h: f64,
}

impl Answer {
    /// Metrics cannot be encoded now.
    pub(crate) fn busy() -> Self {
        (&Refusal::Busy).into()
    }
}

#[cfg(test)]
mod tests;
