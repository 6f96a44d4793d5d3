//! The registrations at iSNS servers, for operators.

use super::protocol::IsnsStatus;
use super::view::View;
use crate::isns::ServerState;
use std::net::SocketAddr;
use std::time::Duration;
use weir_wire::isns::Phase;

/// In the order of the configuration.
pub(super) fn registrations(view: &View<'_>) -> Vec<IsnsStatus> {
    let now = Duration::from_nanos(view.now.as_nanos());
    view.isns.iter().map(|state| registration(state, now)).collect()
}

fn registration(state: &ServerState, now: Duration) -> IsnsStatus {
    let ago = |at: Duration| nanos(now.saturating_sub(at));
    let view = &state.view;
    let phase = match view.phase {
        Phase::Waiting => "waiting",
        Phase::Connecting => "connecting",
        Phase::Registering => "registering",
        Phase::Registered => "registered",
        Phase::Leaving => "leaving",
        Phase::Left => "left",
    };
    let problem = view.failure.as_ref();
    IsnsStatus {
        server: state.address.to_string(),
        state: phase.to_owned(),
        age_ns: ago(view.since),
        answered_ns: view.answered.map(ago),
        portals: view.portals.iter().map(SocketAddr::to_string).collect(),
        targets: view.targets as u64,
        refused: view.refused as u64,
        failures: view.failures.into(),
        problem: problem.map_or_else(String::new, |(_, failure)| failure.to_string()),
        problem_ns: problem.map(|(at, _)| ago(*at)),
        next_ns: view.next.map(|at| nanos(at.saturating_sub(now))),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
