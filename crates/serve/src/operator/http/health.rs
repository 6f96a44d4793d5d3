//! Health for load balancers and service managers: is the event loop alive, and can hosts be served?

use crate::operator::protocol::{Status, VolumeStatus};
use schemars::JsonSchema;
use serde::Serialize;
use weir_flow::clock::Duration;

/// The answer of `/healthz` and `/readyz`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Health {
    /// The worst of the checks.
    pub(super) status: State,
    /// What was checked; of what is not `ok` the first 100.
    pub(super) checks: Vec<Check>,
    /// How many checks there are that `checks` does not have.
    pub(super) checks_left_out: u64,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Some requests wait or fail. Hosts would not be served better by another gateway, so the answer is 200.
    Degraded,
    /// Hosts are not served. The answer is 503.
    Failing,
}

/// What was checked.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Check {
    /// `loop`, `gateway`, `volume NAME` or `path NUMBER of BACKEND`.
    name: String,
    /// How it is.
    status: State,
    /// For how long it has been so, if that is known.
    since_ns: Option<u64>,
    /// Why; empty if it is `ok`.
    why: String,
}

impl Health {
    /// Of these checks.
    fn of(mut checks: Vec<Check>) -> Self {
        let status = checks.iter().map(|check| check.status).max().unwrap_or(State::Ok);
        let checks_left_out = checks.len().saturating_sub(CHECKS_MAX) as u64;
        checks.truncate(CHECKS_MAX);
        Self { status, checks, checks_left_out }
    }

    /// Whether the event loop lives: it beats once a second even when it is idle.
    pub(super) fn of_loop(age: Duration) -> Self {
        let stuck = age > BEAT_AGE_MAX;
        let why = if stuck { format!("the last turn was {age} ago") } else { String::new() };
        let status = if stuck { State::Failing } else { State::Ok };
        Self::of(vec![Check { name: "loop".to_owned(), status, since_ns: None, why }])
    }

    /// Whether hosts can be served.
    pub(super) fn of_gateway(status: &Status) -> Self {
        let stopping = status.gateway.stopping;
        let gateway = Check {
            name: "gateway".to_owned(),
            status: if stopping { State::Failing } else { State::Ok },
            since_ns: None,
            why: if stopping { "it was asked to stop".to_owned() } else { String::new() },
        };
        let paths = status.paths_out.iter().map(|path| Check {
            name: format!("path {} of {}", path.path, path.backend),
            status: State::Degraded,
            since_ns: Some(path.since_ns),
            why: format!("{}: {}", path.state, path.why),
        });
        let volumes = status.volumes.iter().flat_map(volume);
        Self::of([gateway].into_iter().chain(volumes).chain(paths).collect())
    }
}

/// What is wrong with a volume.
fn volume(volume: &VolumeStatus) -> Vec<Check> {
    let mut wrong = Vec::new();
    let mut note = |since_ns, why: String| {
        let name = format!("volume {}", volume.name);
        wrong.push(Check { name, status: State::Degraded, since_ns, why });
    };
    if volume.lost {
        note(None, "a flush has failed: acknowledged data may be lost".to_owned());
    }
    for fence in volume.fences.iter().filter(|fence| fence.state != "held") {
        note(Some(fence.age_ns), format!("upstream {} is {}", fence.upstream, fence.state));
    }
    if let Some(log) = &volume.log {
        if log.storage != "up" {
            let why = format!("write-back: storage is {}: {}", log.storage, log.storage_why);
            note(Some(log.storage_ns), why);
        }
        if log.waiting > 0 {
            let why = format!("write-back: {} writes wait for room in the log", log.waiting);
            note(Some(log.oldest_waiting_ns), why);
        }
    }
    wrong
}

/// Checks of one answer.
const CHECKS_MAX: usize = 100;

/// The event loop is stuck if its last turn was longer ago.
pub(super) const BEAT_AGE_MAX: Duration = Duration::from_secs(5);
