//! Takes a snapshot of the gateway for a page of metrics.

use super::backends::Backends;
use super::event_log::Watch;
use super::metrics::snapshot::{CacheSize, Connections, Snapshot};
use super::protocol::StageStatus;
use super::view::View;
use super::{paths, registrations, status};
use weir_flow::pipeline::Pipeline;

/// Takes a snapshot. O(outstanding + connections + volumes + backends + paths), and not O(tenants).
pub(crate) fn take(pipeline: &Pipeline<Watch>, view: &View<'_>, backends: &Backends) -> Snapshot {
    let now = view.now;
    let stages = pipeline.census(now).into_iter().map(|census| StageStatus {
        stage: census.stage.as_str().to_owned(),
        count: census.count.into(),
        oldest_ns: census.oldest.as_nanos(),
    });
    let lines = pipeline.cache().lines();
    let config = view.config;
    let limits =
        [&config.iscsi.max_connections, &config.nbd.max_connections, &config.nvme.max_connections];
    let mut connections =
        limits.map(|limit| Connections { limit: (*limit).into(), ..Connections::default() });
    for connection in &view.connections {
        let place = &mut connections[connection.protocol() as usize];
        place.all += 1;
        place.established += u64::from(connection.speech.is_established());
    }
    Snapshot {
        up_ns: now.as_nanos(),
        busy_ns: now.as_nanos().saturating_sub(view.asleep.as_nanos()),
        driver: view.driver,
        stopping: view.stopping,
        stages: stages.collect(),
        overdue: pipeline.overdue(now).count() as u64,
        volumes: status::volumes(pipeline, view, backends),
        paths: paths::paths(pipeline, view, backends, |_| true),
        backends: status::backends(pipeline, backends),
        isns: registrations::registrations(view),
        connections,
        cache: CacheSize {
            used_bytes: u64::from(lines.resident()) * u64::from(lines.line()),
            limit_bytes: view.config.cache.size,
        },
    }
}
