//! The status of a gateway, for the control socket and for the log.

use super::backends::Backends;
use super::protocol::{
    BackendStatus, DeviceStatus, FenceStatus, FlashStatus, GatewayStatus, LogStatus, LostStatus,
    OverdueRequest, RequestCounts, SessionStatus, ShareStatus, Spread, StageStatus, Status,
    StreamStatus, TurnedAwayStatus, VolumeStatus,
};
use super::view::View;
use super::{paths, registrations};
use crate::clock::unix_nanos;
use crate::frontend::connection::{Connection, Speech};
use crate::ids::TaskKey;
use crate::operator::event_log::Watch;
use crate::operator::summary;
use crate::storage::emulated::Kept;
use crate::storage::upstream::{Key, Ownership, Standing};
use crate::volume::Life;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tracing::info;
use weir_flow::account::histogram::Histogram;
use weir_flow::cache::quarantine::LostRange;
use weir_flow::cache::writeback::{Blocked, Log, Mode, Phase, Upstream};
use weir_flow::clock::{Duration, Instant};
use weir_flow::dispatch::{Owner, StreamView, Substream, SubstreamView};
use weir_flow::event::StageName;
use weir_flow::pipeline::{Overdue, Pipeline};
use weir_flow::request::{BackendId, VolumeId};
use weir_flow::units::Extent;
use weir_model::device::Wear;

/// The status now. O(outstanding + connections + tenants).
pub(crate) fn status(
    pipeline: &mut Pipeline<Watch>,
    view: &View<'_>,
    backends: &Backends,
) -> Status {
    let now = view.now;
    let volumes = volumes(pipeline, view, backends);
    let (shares, shares_left_out) = shares(pipeline, view);
    let (streams, streams_left_out) = streams(pipeline, view);
    let (held, backends_left_out) = fullest(pipeline, backends);
    let bottleneck = bottleneck(pipeline, view, &held);
    let (overdue, overdue_left_out) = overdue(pipeline, view);
    let (sessions, sessions_left_out) = sessions(view);
    let (turned_away, turned_away_left_out) = turned_away(view);
    let stages = pipeline.census(now).into_iter().map(|census| StageStatus {
        stage: census.stage.as_str().to_owned(),
        count: census.count.into(),
        oldest_ns: census.oldest.as_nanos(),
    });
    let stages = stages.collect();
    let Watch { completed, failed, refused, .. } = *pipeline.observer();
    let outstanding = pipeline.outstanding().into();
    let paths_out = paths::paths(pipeline, view, backends, |path| !path.state.is_usable());
    let recorder = pipeline.observer().recorder(now);
    let (tenants, tenants_left_out) = pipeline.observer_mut().tenants(now);
    Status {
        gateway: GatewayStatus {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            up_ns: now.as_nanos(),
            driver: view.driver.to_owned(),
            stopping: view.stopping,
            busy: f64::from(view.busy) / 1e3,
            bottleneck,
        },
        requests: RequestCounts { completed, failed, refused, outstanding },
        stages,
        overdue,
        overdue_left_out,
        sessions,
        sessions_left_out,
        turned_away,
        turned_away_left_out,
        volumes,
        devices: devices(view, backends),
        tenants,
        tenants_left_out,
        shares,
        shares_left_out,
        streams,
        streams_left_out,
        backends: held,
        backends_left_out,
        isns: registrations::registrations(view),
        paths_out,
        recorder,
    }
}

/// The volumes, in the order of the configuration.
pub(super) fn volumes(
    pipeline: &Pipeline<Watch>,
    view: &View<'_>,
    backends: &Backends,
) -> Vec<VolumeStatus> {
    let now = view.now;
    let volumes = view.engine.catalog.volumes.iter().enumerate();
    let there = volumes.filter(|(_, volume)| volume.life == Life::Served);
    let volumes = there.map(|(index, volume)| {
        let disk = volume.unit.disk();
        let id = VolumeId::new(index as u32);
        let log = pipeline.cache().log(id);
        let (quarantine, quarantine_left_out) = quarantine(pipeline.cache().lost(id));
        VolumeStatus {
            name: volume.name.clone(),
            bytes: disk.blocks * u64::from(disk.block_size),
            backend: backends.of_volume(index),
            read_only: disk.read_only,
            volatile: view.engine.catalog.volatile(index).to_owned(),
            lost: volume.lost || pipeline.is_lost(id),
            log: log.map(|log| {
                let mut status = log_status(log, now);
                if let Some((backend, age)) = cut_off(pipeline, backends, index, now)
                    && status.storage == "up"
                {
                    status.eta_ns = None;
                    "away".clone_into(&mut status.storage);
                    status.storage_why = format!("no path to `{backend}` works");
                    status.storage_ns = age.as_nanos();
                }
                status
            }),
            fences: fences(view, index),
            quarantine,
            quarantine_left_out,
        }
    });
    volumes.collect()
}

/// The ranges of a volume whose data is lost, and how many are left out.
fn quarantine(lost: &[LostRange]) -> (Vec<LostStatus>, u64) {
    if lost.is_empty() {
        return (Vec::new(), 0);
    }
    let now = unix_nanos();
    let status = |lost: &LostRange| LostStatus {
        offset: lost.extent.offset,
        length: lost.extent.length,
        record: lost.seq,
        age_ns: now.saturating_sub(lost.since),
    };
    first(lost.iter().map(status).collect())
}

/// The modelled devices, in the order of the configuration.
fn devices(view: &View<'_>, backends: &Backends) -> Vec<DeviceStatus> {
    let spread = |times: &Histogram| {
        let within = |ppm| times.quantile(ppm).map(Duration::as_nanos);
        Spread { p50_ns: within(500_000), p99_ns: within(990_000), max_ns: within(1_000_000) }
    };
    let flash = |wear: Wear| FlashStatus {
        programs: wear.programs,
        moves: wear.moves,
        erases: wear.erases,
        least_worn: wear.least,
        most_worn: wear.most,
        amplification: wear.amplification,
    };
    let device = |(index, (kept, wear)): (u32, (&Kept, Option<Wear>))| DeviceStatus {
        name: backends.get(BackendId::new(index)).name.clone(),
        ios: kept.ios,
        late: kept.late.count(),
        late_by: spread(&kept.late),
        timer: spread(&kept.timer),
        flash: wear.map(flash),
    };
    (0..).zip(view.engine.storage.emulated.kept()).map(device).collect()
}

/// The reservations of the units that a volume is on.
fn fences(view: &View<'_>, volume: usize) -> Vec<FenceStatus> {
    let set = &view.engine.set;
    let of_volume = |&&(_, key): &&(Instant, TaskKey)| set.tasks[key].volume == volume;
    let delayed = || set.delayed.iter().filter(of_volume).map(|&(_, key)| set.tasks[key].came);
    let age = |since: Instant| view.now.saturating_since(since).as_nanos();
    let fence = |(upstream, ownership): (&str, &Ownership)| {
        let (state, since, holder, why) = match &ownership.standing {
            Standing::Held => ("held", view.now, None, String::new()),
            Standing::Unclaimed { since, why } => ("unclaimed", *since, None, why.clone()),
            Standing::Standby { since, holder } => ("standby", *since, *holder, String::new()),
            Standing::Fenced { since, holder, why } => {
                let why = why.as_ref().map_or_else(String::new, ToString::to_string);
                ("fenced", *since, *holder, why)
            }
        };
        FenceStatus {
            upstream: upstream.to_owned(),
            state: state.to_owned(),
            key: ownership.key.map(|key| Key(key).to_string()),
            holder: holder.map(|key| Key(key).to_string()),
            age_ns: age(since),
            why,
            delayed: delayed().count() as u64,
            delayed_ns: delayed().min().map_or(0, age),
        }
    };
    view.ownership(volume).map(fence).collect()
}

/// The backend of a volume to which no path works, if there is one, and for how long. Write-back waits there, in
/// the path stage, as requests of hosts do.
fn cut_off(
    pipeline: &Pipeline<Watch>,
    backends: &Backends,
    volume: usize,
    now: Instant,
) -> Option<(String, Duration)> {
    let mut under = backends.under(volume);
    under.find_map(|backend| {
        let paths = || pipeline.paths(now).filter(|view| view.backend == backend);
        let since = paths().map(|view| view.since).max()?;
        let none = !paths().any(|view| view.state.is_usable());
        none.then(|| (backends.get(backend).name.clone(), now.saturating_since(since)))
    })
}

fn log_status(log: &Log, now: Instant) -> LogStatus {
    let status = log.status(now);
    let (phase, why) = match status.phase {
        Phase::Log if log.mode() == Mode::Ram => ("ram", None),
        Phase::Log => ("log", None),
        Phase::Draining(why) => ("draining", Some(why)),
        Phase::Emptying(why) => ("emptying", Some(why)),
        Phase::Through(why) => ("through", Some(why)),
    };
    let (storage, storage_why, age) = match status.upstream {
        Upstream::Up => ("up", String::new(), Duration::ZERO),
        Upstream::Away { age, attempts, error } => {
            ("away", format!("{error}; tried {attempts} times"), age)
        }
        Upstream::Blocked { at: Blocked { seq, extent, cause }, age } => {
            let Extent { offset, length } = extent;
            ("blocked", format!("record {seq}, {length} bytes at {offset}: {cause}"), age)
        }
    };
    LogStatus {
        phase: phase.to_owned(),
        why: why.map_or_else(String::new, |why| why.to_string()),
        strict: status.strict,
        dirty_bytes: status.dirty_bytes,
        held_bytes: status.held,
        copied_bytes: status.copied,
        oldest_dirty_ns: status.oldest_dirty.map_or(0, Duration::as_nanos),
        fill: f64::from(status.fill) / 1e3,
        last: status.last,
        durable: status.durable,
        applied: status.applied,
        epochs: status.destaged_epochs,
        fua_epochs: status.fua_epochs,
        volatile_storage: status.volatile_upstream,
        drain_rate: status.drain_rate,
        eta_ns: status.eta.map(Duration::as_nanos),
        storage: storage.to_owned(),
        storage_why,
        storage_ns: age.as_nanos(),
        waiting: status.waiting.count,
        oldest_waiting_ns: status.waiting.oldest.as_nanos(),
        rule: status.waiting.rule.map_or_else(String::new, |rule| (*rule.0).to_owned()),
        debt_ns: status.debt.map(Duration::as_nanos),
        waiting_flushes: status.awaiting_debt,
        faults: status.faults,
        busy: status.busy,
    }
}

/// Logs a status.
pub(crate) fn log(status: &Status) {
    let RequestCounts { completed, failed, refused, outstanding } = status.requests;
    info!(completed, failed, refused, outstanding, "requests");
    for device in status.devices.iter().filter(|device| device.ios > 0) {
        let DeviceStatus { name, ios, late, late_by, .. } = device;
        let late_p99 = Duration::from_nanos(late_by.p99_ns.unwrap_or(0));
        info!(device = name, ios, late, %late_p99, "modelled device");
    }
    for held in status.stages.iter().filter(|held| held.count > 0) {
        let oldest = Duration::from_nanos(held.oldest_ns);
        info!(stage = %held.stage, count = held.count, %oldest, "outstanding");
    }
    for share in &status.shares {
        let ShareStatus { name, weight, share, .. } = share;
        info!(name, weight, per_cent = (share * 1e4).round() / 1e2, "share of the backends' time");
    }
    summary::log(&status.tenants, status.tenants_left_out);
}

/// The first of a list that is sorted, and how many more there are.
pub(crate) fn first<T>(mut all: Vec<T>) -> (Vec<T>, u64) {
    let left_out = all.len().saturating_sub(LISTED) as u64;
    all.truncate(LISTED);
    (all, left_out)
}

fn overdue(pipeline: &Pipeline<Watch>, view: &View<'_>) -> (Vec<OverdueRequest>, u64) {
    let mut overdue: Vec<Overdue<'_>> = pipeline.overdue(view.now).collect();
    overdue.sort_by_key(|overdue| Reverse(overdue.age));
    let (overdue, left_out) = first(overdue);
    let engine = view.engine;
    let names = engine.catalog.tenant_names.borrow();
    let told = overdue.into_iter().map(|Overdue { request, stage, age }| OverdueRequest {
        stage: stage.as_str().to_owned(),
        age_ns: age.as_nanos(),
        tenant: names.get(request.tenant.index()).cloned().unwrap_or_default(),
        volume: engine.catalog.volumes[request.volume.index()].name.clone(),
        op: format!("{:?}", request.op).to_lowercase(),
        offset: request.extent.offset,
        length: request.extent.length,
    });
    (told.collect(), left_out)
}

fn sessions(view: &View<'_>) -> (Vec<SessionStatus>, u64) {
    let established = |connection: &&Connection| connection.speech.is_established();
    let connections = view.connections.iter().copied();
    let mut sessions: Vec<&Connection> = connections.filter(established).collect();
    sessions.sort_by_key(|connection| (Reverse(connection.tasks.len()), connection.id));
    let (sessions, left_out) = first(sessions);
    let told = sessions.into_iter().map(|connection| {
        let session = connection.view.as_ref();
        let (protocol, initiator, target) = match &connection.speech {
            Speech::Iscsi(wire) => {
                let target = session.map(|session| session.nexus.target.clone());
                ("iscsi", Some(wire.initiator().to_owned()), target)
            }
            Speech::Nbd(wire) => {
                let export = wire.export().and_then(|export| view.export_name(export));
                ("nbd", None, export.map(str::to_owned))
            }
            Speech::Nvme(queue) => {
                ("nvme", Some(queue.host.clone()), Some(queue.subsystem.clone()))
            }
        };
        let queue = match &connection.speech {
            Speech::Nvme(queue) => queue.controller.zip(queue.wire.queue()),
            Speech::Iscsi(_) | Speech::Nbd(_) => None,
        };
        SessionStatus {
            protocol: protocol.to_owned(),
            peer: connection.peer.to_string(),
            initiator,
            target,
            controller: queue.map(|(controller, _)| controller),
            queue: queue.map(|(_, queue)| queue),
            outstanding: connection.tasks.len() as u64,
        }
    });
    (told.collect(), left_out)
}

fn turned_away(view: &View<'_>) -> (Vec<TurnedAwayStatus>, u64) {
    let (hosts, left_out) = first(view.turned_away.hosts(view.now));
    let hosts = hosts.into_iter().map(|host| TurnedAwayStatus {
        source: host.source.to_string(),
        initiator: host.initiator.map(str::to_owned),
        why: host.why.to_owned(),
        count: host.count,
        age_ns: host.age.as_nanos(),
        retry_after_ns: host.retry_after.as_nanos(),
    });
    (hosts.collect(), left_out)
}

/// The shares of the backends' time.
fn shares(pipeline: &Pipeline<Watch>, view: &View<'_>) -> (Vec<ShareStatus>, u64) {
    let had = |view: &StreamView| view.service > Duration::ZERO;
    let mut views: Vec<StreamView> = pipeline.streams(view.now).filter(had).collect();
    let all: u64 = views.iter().map(|view| view.recent.as_nanos()).sum();
    views.sort_by_key(|view| (Reverse(view.recent), Reverse(view.service)));
    let (views, left_out) = first(views);
    let names = view.engine.catalog.tenant_names.borrow();
    let told = views.into_iter().map(|StreamView { owner, weight, service, recent }| ShareStatus {
        name: match owner {
            Owner::Tenant(tenant) => names.get(tenant.index()).cloned().unwrap_or_default(),
            Owner::WriteBack => "write-back".to_owned(),
            Owner::Prefetch => "prefetch".to_owned(),
            Owner::Job => "jobs".to_owned(),
        },
        background: !matches!(owner, Owner::Tenant(_)),
        weight: f64::from(weight.as_1024ths()) / 1_024.0,
        service_ns: service.as_nanos(),
        recent_ns: recent.as_nanos(),
        share: recent.as_nanos() as f64 / all.max(1) as f64,
    });
    (told.collect(), left_out)
}

/// The streams within tenants.
fn streams(pipeline: &Pipeline<Watch>, view: &View<'_>) -> (Vec<StreamStatus>, u64) {
    let all: u64 = pipeline.streams(view.now).map(|stream| stream.recent.as_nanos()).sum();
    let mut views: Vec<SubstreamView> = pipeline.substreams(view.now).collect();
    views.sort_by_key(|view| (Reverse(view.recent), Reverse(view.service)));
    let (views, left_out) = first(views);
    // One queue of each stream: those of a host have the same host and subsystem.
    let queues = view.connections.iter().filter_map(|&connection| match &connection.speech {
        Speech::Nvme(queue) => Some((queue.stream?.0.stream(), queue)),
        Speech::Iscsi(_) | Speech::Nbd(_) => None,
    });
    let queues: BTreeMap<_, _> = queues.collect();
    let told = views.into_iter().filter_map(|SubstreamView { stream, weight, service, recent }| {
        let told = |kind: &str, subsystem: &str| StreamStatus {
            kind: kind.to_owned(),
            subsystem: subsystem.to_owned(),
            host: None,
            controller: None,
            queue: None,
            namespace: None,
            weight: f64::from(weight.as_1024ths()) / 1_024.0,
            service_ns: service.as_nanos(),
            recent_ns: recent.as_nanos(),
            share: recent.as_nanos() as f64 / all.max(1) as f64,
        };
        if let Substream::Volume(volume) = stream {
            let (subsystem, namespace) = view.engine.catalog.namespace_of(volume)?;
            return Some(StreamStatus {
                namespace: Some(namespace),
                ..told("namespace", subsystem)
            });
        }
        let queue = queues.get(&stream)?;
        let host = Some(queue.host.clone());
        Some(match stream {
            Substream::Link(_) => {
                let (controller, queue_number) = (queue.controller, queue.wire.queue());
                StreamStatus {
                    host,
                    controller,
                    queue: queue_number,
                    ..told("queue", &queue.subsystem)
                }
            }
            _ => StreamStatus { host, ..told("host", &queue.subsystem) },
        })
    });
    (told.collect(), left_out)
}

/// What limits throughput now: the thread if it never sleeps, else a backend with requests that wait for it, else
/// what holds requests before dispatch.
fn bottleneck(pipeline: &Pipeline<Watch>, view: &View<'_>, held: &[BackendStatus]) -> String {
    let waiting = |stage: StageName| {
        let census = pipeline.census(view.now);
        census.into_iter().any(|one| one.stage == stage && one.count > 0)
    };
    let full = held.iter().find(|backend| backend.outstanding >= backend.depth);
    match full {
        _ if view.busy >= THREAD_FULL => "thread".to_owned(),
        Some(backend) if waiting(StageName::Dispatch) => format!("backend {}", backend.name),
        _ if waiting(StageName::Accept) || waiting(StageName::Control) => "limits".to_owned(),
        _ => String::new(),
    }
}

/// A thread that works more than this, in 1000ths of its time, is the bottleneck.
const THREAD_FULL: u32 = 970;

/// How full the backends are.
fn fullest(pipeline: &Pipeline<Watch>, all: &Backends) -> (Vec<BackendStatus>, u64) {
    let mut told = backends(pipeline, all);
    told.sort_by_key(|backend| Reverse(backend.outstanding));
    first(told)
}

/// The depth of all backends.
pub(super) fn backends(pipeline: &Pipeline<Watch>, backends: &Backends) -> Vec<BackendStatus> {
    let there = pipeline.backends().filter(|view| backends.get(view.backend).is_there);
    let told = there.map(|view| BackendStatus {
        name: backends.get(view.backend).name.clone(),
        outstanding: view.outstanding.into(),
        depth: view.depth.into(),
    });
    told.collect()
}

/// Entries of each list; the rest is counted.
const LISTED: usize = 100;
