//! Volumes: their logs, reservations and lost ranges.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The backend that it is on, as `path.list` names it; if there are several, all of them in order, with
    /// `, ` in between.
    pub backend: String,
    /// Writes are refused.
    pub read_only: bool,
    /// `null`: writes are dropped, on a store of it at least; `memory`: what is written is gone when the gateway stops;
    /// empty: neither.
    #[serde(default)]
    pub volatile: String,
    /// A flush has failed, or storage has lost writes that were not flushed: acknowledged data may be lost, and no flush of
    /// a host succeeds until a restart.
    pub lost: bool,
    /// Its log, if it has one.
    #[serde(default)]
    pub log: Option<LogStatus>,
    /// The reservations of its upstreams, of those that are reserved for one gateway.
    #[serde(default)]
    pub fences: Vec<FenceStatus>,
    /// The ranges whose data is lost, the first 100 of them: reads fail there until hosts have overwritten them.
    #[serde(default)]
    pub quarantine: Vec<LostStatus>,
    /// How many more there are.
    #[serde(default)]
    pub quarantine_left_out: u64,
}

/// A range of a volume whose data is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostStatus {
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// The record of the log that had the data.
    pub record: u64,
    /// How long ago an operator gave the order.
    pub age_ns: u64,
}

/// The reservation of the unit of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FenceStatus {
    /// The upstream.
    pub upstream: String,
    /// `held`: it is reserved for this gateway. `unclaimed`: the gateway has started without the upstream, and writes
    /// nothing there before it is reserved. `standby`: another gateway owns it, and the volume can be moved here.
    /// `fenced`: it is not this gateway's, nothing is written there, and hosts
    /// are refused the volume.
    pub state: String,
    /// The key of this gateway: `0x` and 16 digits. None before the unit was reserved.
    pub key: Option<String>,
    /// The key of the gateway that holds the unit, if this one is fenced and another holds it.
    pub holder: Option<String>,
    /// For how long it has been unclaimed or fenced; 0 if it is held.
    pub age_ns: u64,
    /// Why it is unclaimed, or could not be claimed; empty otherwise.
    pub why: String,
    /// Errors for hosts that are delayed now, since a host repeats refused commands: each for at most 1 s.
    pub delayed: u64,
    /// For how long the oldest of them has been delayed; 0 if there is none.
    pub delayed_ns: u64,
}

/// The log of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogStatus {
    /// The phase of the log: `log`, `ram`, `draining`, `emptying`, `through`.
    pub phase: String,
    /// Why it is not `log` or `ram`; empty if it is.
    pub why: String,
    /// Writes go to storage in exactly their order: a host that writes has not flushed yet.
    pub strict: bool,
    /// Bytes that are not on the volume's own storage.
    pub dirty_bytes: u64,
    /// Data of which the log has records: these bytes, what newer ones have superseded, and copies.
    #[serde(default)]
    pub held_bytes: u64,
    /// Data that was copied inside the log since the gateway started, so that superseded data could leave it.
    #[serde(default)]
    pub copied_bytes: u64,
    /// How long the oldest of the `dirty_bytes` has been in the log.
    pub oldest_dirty_ns: u64,
    /// How full the log is, 0 to 1.
    pub fill: f64,
    /// The last record; all up to `durable` are durable here, all up to `applied` are on storage.
    pub last: u64,
    /// See `last`.
    pub durable: u64,
    /// See `last`.
    pub applied: u64,
    /// Epochs that were destaged since the gateway started: one at a time, each durable on storage before the next.
    #[serde(default)]
    pub epochs: u64,
    /// Of these, epochs that were made durable by FUA on each write. The others were flushed.
    #[serde(default)]
    pub fua_epochs: u64,
    /// Storage has a volatile write cache; without one no epoch needs FUA or a flush.
    #[serde(default)]
    pub volatile_storage: bool,
    /// Bytes of log that write-back frees in a second; 0 if that is not known.
    pub drain_rate: u64,
    /// When everything would be on storage at this rate, if that is known.
    pub eta_ns: Option<u64>,
    /// `up`, `away` or `blocked`.
    pub storage: String,
    /// Its error, if it is not `up`.
    pub storage_why: String,
    /// For how long it has been so, if it is not `up`.
    pub storage_ns: u64,
    /// Writes that wait for room.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub oldest_waiting_ns: u64,
    /// The rule that holds it; empty if none does.
    pub rule: String,
    /// For how long writes that bypassed the log have waited for the flush that makes them durable on storage, while
    /// the log is used: flushes of hosts wait for it, and write-back. `None` if none wait.
    pub debt_ns: Option<u64>,
    /// Flushes of hosts that wait for it.
    pub waiting_flushes: u64,
    /// Failed writes and flushes of the log itself.
    pub faults: u64,
    /// Writes that were answered BUSY.
    pub busy: u64,
}
