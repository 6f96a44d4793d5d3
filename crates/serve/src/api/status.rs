//! How a gateway does: what the control socket answers and what the log tells are the same.

use super::backends::Backends;
use super::protocol::{
    GatewayStatus, OverdueRequest, RequestCounts, SessionStatus, StageStatus, Status, VolumeStatus,
};
use crate::gateway::Gateway;
use crate::listen::connection::{Connection, Speech};
use crate::summary;
use crate::watch::Watch;
use std::cmp::Reverse;
use tracing::info;
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::{Overdue, Pipeline};

/// What there is to tell at `now`. O(outstanding + connections + tenants).
pub(crate) fn status(
    pipeline: &mut Pipeline<Watch>,
    gateway: &Gateway<'_>,
    backends: &Backends,
    now: Instant,
) -> Status {
    let (overdue, overdue_left_out) = overdue(pipeline, gateway, now);
    let (sessions, sessions_left_out) = sessions(gateway);
    let stages = pipeline.census(now).into_iter().map(|census| StageStatus {
        stage: census.stage.as_str().to_owned(),
        count: census.count.into(),
        oldest_ns: census.oldest.as_nanos(),
    });
    let stages = stages.collect();
    let volumes = gateway.desk().volumes.iter().enumerate();
    let volumes = volumes.map(|(index, volume)| {
        let disk = volume.unit.disk();
        VolumeStatus {
            name: volume.name.clone(),
            bytes: disk.blocks * u64::from(disk.block_size),
            backend: backends.of_volume(index),
            read_only: disk.read_only,
            lost: volume.lost,
        }
    });
    let Watch { completed, failed, refused, .. } = *pipeline.observer();
    let outstanding = pipeline.outstanding().into();
    let (tenants, tenants_left_out) = pipeline.observer_mut().tenants(now);
    Status {
        gateway: GatewayStatus {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            up_ns: now.as_nanos(),
            driver: gateway.driver_name().to_owned(),
            stopping: gateway.is_stopping(),
        },
        requests: RequestCounts { completed, failed, refused, outstanding },
        stages,
        overdue,
        overdue_left_out,
        sessions,
        sessions_left_out,
        volumes: volumes.collect(),
        tenants,
        tenants_left_out,
    }
}

/// Has the log tell of it.
pub(crate) fn log(status: &Status) {
    let RequestCounts { completed, failed, refused, outstanding } = status.requests;
    info!(completed, failed, refused, outstanding, "requests");
    for held in status.stages.iter().filter(|held| held.count > 0) {
        let oldest = Duration::from_nanos(held.oldest_ns);
        info!(stage = %held.stage, count = held.count, %oldest, "outstanding");
    }
    summary::log(&status.tenants, status.tenants_left_out);
}

/// The first of a list that is sorted, and how many more there are.
pub(crate) fn first<T>(mut all: Vec<T>) -> (Vec<T>, u64) {
    let left_out = all.len().saturating_sub(LISTED) as u64;
    all.truncate(LISTED);
    (all, left_out)
}

fn overdue(
    pipeline: &Pipeline<Watch>,
    gateway: &Gateway<'_>,
    now: Instant,
) -> (Vec<OverdueRequest>, u64) {
    let mut overdue: Vec<Overdue<'_>> = pipeline.overdue(now).collect();
    overdue.sort_by_key(|overdue| Reverse(overdue.age));
    let (overdue, left_out) = first(overdue);
    let desk = gateway.desk();
    let names = desk.tenant_names.borrow();
    let told = overdue.into_iter().map(|Overdue { request, stage, age }| OverdueRequest {
        stage: stage.as_str().to_owned(),
        age_ns: age.as_nanos(),
        tenant: names.get(request.tenant.index()).cloned().unwrap_or_default(),
        volume: desk.volumes[request.volume.index()].name.clone(),
        op: format!("{:?}", request.op).to_lowercase(),
        offset: request.extent.offset,
        length: request.extent.length,
    });
    (told.collect(), left_out)
}

fn sessions(gateway: &Gateway<'_>) -> (Vec<SessionStatus>, u64) {
    let established = |connection: &&Connection| connection.speech.is_established();
    let mut sessions: Vec<&Connection> = gateway.connections().filter(established).collect();
    sessions.sort_by_key(|connection| (Reverse(connection.tasks.len()), connection.id));
    let (sessions, left_out) = first(sessions);
    let told = sessions.into_iter().map(|connection| {
        let seat = connection.seat.as_ref();
        let (protocol, initiator, target) = match &connection.speech {
            Speech::Iscsi(wire) => {
                let target = seat.map(|seat| seat.nexus.target.clone());
                ("iscsi", Some(wire.initiator().to_owned()), target)
            }
            Speech::Nbd(wire) => {
                let export = wire.export().and_then(|export| gateway.export_name(export));
                ("nbd", None, export.map(str::to_owned))
            }
        };
        SessionStatus {
            protocol: protocol.to_owned(),
            peer: connection.peer.to_string(),
            initiator,
            target,
            outstanding: connection.tasks.len() as u64,
        }
    });
    (told.collect(), left_out)
}

/// Entries of each list; the rest is counted.
const LISTED: usize = 100;
