//! The paths to backends, for the control socket.

use super::backends::Backends;
use super::event_log::Watch;
use super::protocol::{EjectionStatus, LearnedSpeed, PathStatus};
use super::view::View;
use weir_flow::clock::Instant;
use weir_flow::path::{Ejection, State, View as PathView};
use weir_flow::pipeline::Pipeline;

/// The paths that `wanted` accepts.
pub(super) fn paths(
    pipeline: &Pipeline<Watch>,
    view: &View<'_>,
    backends: &Backends,
    wanted: impl Fn(&PathView) -> bool,
) -> Vec<PathStatus> {
    let status = |path: PathView| {
        let named = backends.get(path.backend);
        PathStatus {
            backend: named.name.clone(),
            path: path.path.index() as u32,
            portal: named.portals[path.path.index()].clone(),
            state: path.state.to_string(),
            since_ns: view.now.saturating_since(path.since).as_nanos(),
            why: path.why.to_string(),
            group: path.group,
            access: path.access.to_string(),
            in_flight: path.in_flight.into(),
            bytes: path.bytes,
            oldest_ns: path.oldest.as_nanos(),
            learned: path.learned.map(|speed| LearnedSpeed {
                fixed_ns: speed.fixed.as_nanos(),
                per_mib_ns: speed.per_mib.as_nanos(),
            }),
            changes: path.changes,
            next_try_ns: next_try(view, &path).map(|at| at.saturating_since(view.now).as_nanos()),
            ejection: path.ejection.map(|ejection| ejection_status(&ejection, view.now)),
        }
    };
    let there = |path: &PathView| backends.get(path.backend).is_there && wanted(path);
    pipeline.paths(view.now).filter(there).map(status).collect()
}

/// When a path that is out of use is tried next: by a connection, a probe, or because it may return.
fn next_try(view: &View<'_>, path: &PathView) -> Option<Instant> {
    if path.state == State::Disabled {
        return None;
    }
    let probe = path.ejection.map(|ejection| ejection.next_probe);
    view.next_attempt(path.backend, path.path).or(probe).or(path.barred)
}

fn ejection_status(ejection: &Ejection, now: Instant) -> EjectionStatus {
    let Ejection { grounds, trial_at, last_probe, probes_passed, probes_to_return, .. } = *ejection;
    EjectionStatus {
        response_ns: grounds.response.as_nanos(),
        best_path_ns: grounds.expected.as_nanos(),
        ios: grounds.events.into(),
        over_ns: grounds.over.as_nanos(),
        last_probe_ns: last_probe.map(|probe| probe.response.as_nanos()),
        good_probe_max_ns: last_probe.map(|probe| probe.max.as_nanos()),
        probes_passed: probes_passed.into(),
        probes_to_return: probes_to_return.into(),
        trial_ns: trial_at.saturating_since(now).as_nanos(),
    }
}
