//! Lists of the REST interface: parts of the control socket's answers.

use super::problem::Fault;
use super::response::Response;
use crate::operator::protocol::{
    BackendStatus, LogStatus, PathStatus, SessionStatus, Status, TenantStatus, VolumeStatus,
};
use schemars::JsonSchema;
use serde::Serialize;

/// The release of the gateway.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Version {
    /// Its release.
    release: &'static str,
    /// The version of this interface.
    api: &'static str,
}

impl Version {
    /// That of this program.
    pub(super) const fn of_this() -> Self {
        Self { release: env!("CARGO_PKG_VERSION"), api: "v1" }
    }
}

/// Sessions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionList<'a> {
    /// Those with most outstanding commands first; the first 100.
    sessions: &'a [SessionStatus],
    /// How many there are that `sessions` does not have.
    left_out: u64,
}

impl<'a> SessionList<'a> {
    pub(super) fn of(status: &'a Status) -> Self {
        Self { sessions: &status.sessions, left_out: status.sessions_left_out }
    }
}

/// Tenants.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TenantList<'a> {
    /// Those with a contract and requests, those first whose budget burned fastest in the last hour; the first 100.
    tenants: &'a [TenantStatus],
    /// How many there are that `tenants` does not have.
    left_out: u64,
}

impl<'a> TenantList<'a> {
    pub(super) fn of(status: &'a Status) -> Self {
        Self { tenants: &status.tenants, left_out: status.tenants_left_out }
    }
}

/// Backends.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BackendList<'a> {
    /// The fullest first; the first 100.
    backends: &'a [BackendStatus],
    /// How many there are that `backends` does not have.
    left_out: u64,
}

impl<'a> BackendList<'a> {
    pub(super) fn of(status: &'a Status) -> Self {
        Self { backends: &status.backends, left_out: status.backends_left_out }
    }
}

/// Paths.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PathList<'a> {
    /// By backend and number.
    pub(super) paths: Vec<&'a PathStatus>,
}

impl<'a> PathList<'a> {
    /// All, or those to one backend.
    pub(super) fn of(paths: &'a [PathStatus], backend: Option<&str>) -> Self {
        let wanted = |path: &&PathStatus| backend.is_none_or(|name| path.backend == name);
        Self { paths: paths.iter().filter(wanted).collect() }
    }
}

/// Volumes.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VolumeList<'a> {
    /// In the order of the configuration.
    volumes: &'a [VolumeStatus],
}

impl<'a> VolumeList<'a> {
    pub(super) const fn of(volumes: &'a [VolumeStatus]) -> Self {
        Self { volumes }
    }
}

/// Write-back logs.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LogList<'a> {
    /// In the order of the volumes.
    logs: Vec<VolumeLog<'a>>,
}

/// The log of a volume.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeLog<'a> {
    /// The volume.
    volume: &'a str,
    /// Its log.
    log: &'a LogStatus,
}

impl<'a> LogList<'a> {
    pub(super) fn of(volumes: &'a [VolumeStatus]) -> Self {
        let log = |volume: &'a VolumeStatus| {
            Some(VolumeLog { volume: &volume.name, log: volume.log.as_ref()? })
        };
        Self { logs: volumes.iter().filter_map(log).collect() }
    }
}

/// The one of this name.
pub(super) fn named<T: Serialize>(
    what: &'static str,
    name: &str,
    all: &[T],
    of: impl Fn(&T) -> &str,
) -> Result<Response, Fault> {
    let found = all.iter().find(|one| of(one) == name);
    let unknown = || Fault::Unknown { what, name: name.to_owned() };
    found.map(Response::json).ok_or_else(unknown)
}
