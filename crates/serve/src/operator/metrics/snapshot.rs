//! What a page of metrics needs besides counters: states, ages and sizes at one moment.

use crate::frontend::connection::Protocol;
use crate::operator::protocol::{BackendStatus, IsnsStatus, PathStatus, StageStatus, VolumeStatus};

/// A gateway at one moment, in the types of the control socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// For how long it has served.
    pub(crate) up_ns: u64,
    /// For how long its thread has not slept.
    pub(crate) busy_ns: u64,
    /// Its disk driver.
    pub(crate) driver: &'static str,
    pub(crate) stopping: bool,
    /// Its seven stages.
    pub(crate) stages: Vec<StageStatus>,
    /// Requests that have been in one stage for too long.
    pub(crate) overdue: u64,
    pub(crate) volumes: Vec<VolumeStatus>,
    pub(crate) paths: Vec<PathStatus>,
    pub(crate) backends: Vec<BackendStatus>,
    pub(crate) isns: Vec<IsnsStatus>,
    /// By protocol, iSCSI first.
    pub(crate) connections: [Connections; Protocol::COUNT],
    pub(crate) cache: CacheSize,
}

/// The connections of one protocol.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connections {
    /// All.
    pub(crate) all: u64,
    /// Those that have logged in.
    pub(crate) established: u64,
    pub(crate) limit: u64,
}

/// The memory of the read cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheSize {
    pub(crate) used_bytes: u64,
    pub(crate) limit_bytes: u64,
}
