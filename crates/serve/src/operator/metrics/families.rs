//! The families of metrics: name, type, labels, meaning, and where the numbers come from.
//!
//! Names and labels are an interface: one that goes or changes its meaning is announced a minor release before.

use super::histogram::{Bounds, Counts};
use super::page::{Page, Source};
use super::{OpClass, blocks::VolumeBlock};
use crate::operator::protocol::{LogStatus, PathStatus, VolumeStatus};
use std::fmt::Write as _;
use weir_flow::event::StageName;

/// A family of metrics.
pub(super) struct Family {
    /// Its name; samples of a counter have `_total` behind it.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The names of its labels, for the reference.
    labels: &'static str,
    /// A sentence without an end.
    pub(super) help: &'static str,
    /// Writes its samples.
    pub(super) emit: fn(&Source<'_>, &mut Page),
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram(Bounds),
}

use Kind::{Counter, Gauge, Histogram};

impl Family {
    /// What is behind the name in a sample.
    pub(super) const fn suffix(&self) -> &'static str {
        if matches!(self.kind, Counter) { "_total" } else { "" }
    }

    /// Its type, as a page has it.
    pub(super) const fn kind_name(&self) -> &'static str {
        match self.kind {
            Counter => "counter",
            Gauge => "gauge",
            Histogram(_) => "histogram",
        }
    }
}

/// The page `docs/reference/metrics.md`.
pub fn families_page() -> String {
    let mut page = String::from(PAGE);
    for family in FAMILIES {
        let kind = match family.kind {
            Counter => "counter",
            Gauge => "gauge",
            Histogram(Bounds::Fine) => "histogram, fine",
            Histogram(Bounds::Coarse) => "histogram, coarse",
        };
        let Family { name, labels, help, .. } = family;
        let _ = writeln!(page, "| `{name}{}` | {kind} | {labels} | {help} |", family.suffix());
    }
    page
}

const PAGE: &str = "\
# Metrics

What `weir metrics` prints; [the guide](../operate/metrics.md) says how to scrape it. This page is made from the table
in `crates/serve/src/operator/metrics/families.rs`.

Buckets of histograms are exact: *fine* has two for each power of two from 16.384 µs to 8.59 s, *coarse* one from
65.5 µs. Only requests that ended well are in a histogram. `op` is `read`, `write` (also COMPARE AND WRITE and
atomic writes), `flush` or `other`; `direction` is `read` or `write`. In a family with the label `state`, the state
that holds has the value 1 and the others 0.

| name | type | labels | meaning |
| --- | --- | --- | --- |
";

type Labels<'a> = &'a [(&'a str, &'a str)];

/// The volumes that are there.
fn volumes(source: &Source<'_>, each: impl FnMut(&VolumeBlock)) {
    source.metrics.volumes.all().filter(|volume| volume.is_there()).for_each(each);
}

fn tenants(source: &Source<'_>, mut each: impl FnMut(&super::TenantBlock, Labels<'_>)) {
    source.metrics.tenants.all().for_each(|tenant| each(tenant, &[("tenant", &tenant.name)]));
}

fn logs(source: &Source<'_>, mut each: impl FnMut(&LogStatus, Labels<'_>)) {
    for VolumeStatus { name, log, .. } in &source.snapshot.volumes {
        if let Some(log) = log {
            each(log, &[("volume", name)]);
        }
    }
}

fn paths(source: &Source<'_>, mut each: impl FnMut(&PathStatus, Labels<'_>)) {
    for path in &source.snapshot.paths {
        each(path, &[("backend", &path.backend), ("path", &path.path.to_string())]);
    }
}

/// The sum of histograms.
fn sum(all: impl Iterator<Item = Counts>) -> Counts {
    let mut whole = Counts::default();
    all.for_each(|counts| whole.merge(&counts));
    whole
}

/// Requests of a class that ended well, ended with an error, and were refused.
fn results(volume: &VolumeBlock, op: usize) -> [(&'static str, u64); 3] {
    let ok = volume.durations[op].read().count();
    [("ok", ok), ("error", volume.errors[op].get()), ("refused", volume.refused[op].get())]
}

const DIRECTIONS: [&str; 2] = ["read", "write"];
const TIERS: [&str; 3] = ["gold", "silver", "bronze"];
const PROTOCOLS: [&str; 3] = ["iscsi", "nbd", "nvme"];
const PATH_STATES: [&str; 7] =
    ["active", "waiting", "returning", "ejected", "failed", "disabled", "inaccessible"];
const VOLUME_STATES: [&str; 4] = ["serving", "read_only", "lost", "fenced"];
const FENCE_STATES: [&str; 3] = ["held", "unclaimed", "fenced"];
const LOG_PHASES: [&str; 5] = ["log", "ram", "draining", "emptying", "through"];
const LOG_STORAGES: [&str; 3] = ["up", "away", "blocked"];

fn volume_state(volume: &VolumeStatus) -> &'static str {
    if volume.lost {
        "lost"
    } else if volume.fences.iter().any(|fence| fence.state == "fenced") {
        "fenced"
    } else if volume.read_only {
        "read_only"
    } else {
        "serving"
    }
}

/// All families, in the order of the page.
#[rustfmt::skip]
pub(super) static FAMILIES: &[Family] = &[
    Family { name: "weir_build_info", kind: Gauge, labels: "`version`, `io_driver`",
        help: "Always 1",
        emit: |source, page| page.value(&[("version", env!("CARGO_PKG_VERSION")), ("io_driver", source.snapshot.driver)], 1) },
    Family { name: "weir_start_time_seconds", kind: Gauge, labels: "",
        help: "When the gateway started, since 1970",
        emit: |source, page| page.seconds(&[], source.now.saturating_sub(source.snapshot.up_ns)) },
    Family { name: "weir_stopping", kind: Gauge, labels: "",
        help: "1 if the gateway takes no new work because it was asked to stop",
        emit: |source, page| page.value(&[], source.snapshot.stopping.into()) },
    Family { name: "process_cpu_seconds", kind: Counter, labels: "",
        help: "User and system time of all threads",
        emit: |source, page| page.seconds(&[], source.process.cpu_ns) },
    Family { name: "process_resident_memory_bytes", kind: Gauge, labels: "",
        help: "Memory that is not swapped out",
        emit: |source, page| if let Some(bytes) = source.process.resident_bytes { page.value(&[], bytes); } },
    Family { name: "process_open_fds", kind: Gauge, labels: "",
        help: "Open file descriptors",
        emit: |source, page| if let Some(open) = source.process.open_fds { page.value(&[], open); } },
    Family { name: "process_max_fds", kind: Gauge, labels: "",
        help: "The most file descriptors that may be open",
        emit: |source, page| if let Some(most) = source.process.max_fds { page.value(&[], most); } },
    Family { name: "weir_config_last_reload_successful", kind: Gauge, labels: "",
        help: "0 if the last reload was refused; 1 also if there was none",
        emit: |source, page| page.value(&[], 1 - source.metrics.reload.failed.get()) },
    Family { name: "weir_config_last_reload_success_timestamp_seconds", kind: Gauge, labels: "",
        help: "When the configuration in force was read, since 1970",
        emit: |source, page| page.seconds(&[], source.metrics.reload.success.get()) },
    Family { name: "weir_loop_busy_seconds", kind: Counter, labels: "",
        help: "Time in which the thread of the gateway did not sleep",
        emit: |source, page| page.seconds(&[], source.snapshot.busy_ns) },
    Family { name: "weir_connections", kind: Gauge, labels: "`protocol`",
        help: "Connections of hosts",
        emit: |source, page| for (protocol, one) in PROTOCOLS.iter().zip(source.snapshot.connections) {
            page.value(&[("protocol", protocol)], one.all);
        } },
    Family { name: "weir_connections_limit", kind: Gauge, labels: "`protocol`",
        help: "Connections that are allowed",
        emit: |source, page| for (protocol, one) in PROTOCOLS.iter().zip(source.snapshot.connections) {
            page.value(&[("protocol", protocol)], one.limit);
        } },
    Family { name: "weir_sessions", kind: Gauge, labels: "`protocol`",
        help: "Connections of hosts that have logged in",
        emit: |source, page| for (protocol, one) in PROTOCOLS.iter().zip(source.snapshot.connections) {
            page.value(&[("protocol", protocol)], one.established);
        } },
    Family { name: "weir_requests", kind: Counter, labels: "`op`, `result`",
        help: "Requests of hosts that ended; `result` is ok, error or refused",
        emit: |source, page| for (op, name) in OpClass::NAMES.iter().enumerate() {
            let mut all = [("ok", 0), ("error", 0), ("refused", 0)];
            source.metrics.volumes.all().for_each(|volume| for (sum, (_, count)) in all.iter_mut().zip(results(volume, op)) { sum.1 += count; });
            for (result, count) in all { page.value(&[("op", name), ("result", result)], count); }
        } },
    Family { name: "weir_request_duration_seconds", kind: Histogram(Bounds::Fine), labels: "`op`",
        help: "Response time, from the arrival of a request to the last byte of its reply",
        emit: |source, page| for (op, name) in OpClass::NAMES.iter().enumerate() {
            let all = sum(source.metrics.volumes.all().map(|volume| volume.durations[op].read()));
            page.histogram(&[("op", name)], &all, Bounds::Fine);
        } },
    Family { name: "weir_stage_duration_seconds", kind: Histogram(Bounds::Coarse), labels: "`stage`",
        help: "Time of requests in a stage; requests that spent no time there are not counted",
        emit: |source, page| for (stage, block) in StageName::ALL.iter().zip(&source.metrics.stages) {
            let all = sum(block.rules().map(|(_, counts)| counts));
            page.histogram(&[("stage", stage.as_str())], &all, Bounds::Coarse);
        } },
    Family { name: "weir_stage_seconds", kind: Counter, labels: "`stage`, `rule`",
        help: "Time of requests by what held them; adds up to the sums of `weir_request_duration_seconds`",
        emit: |source, page| for (stage, block) in StageName::ALL.iter().zip(&source.metrics.stages) {
            for (rule, counts) in block.rules() {
                page.seconds(&[("stage", stage.as_str()), ("rule", *rule.0)], counts.sum_ns);
            }
        } },
    Family { name: "weir_stage_requests", kind: Counter, labels: "`stage`, `rule`",
        help: "Requests that a rule held",
        emit: |source, page| for (stage, block) in StageName::ALL.iter().zip(&source.metrics.stages) {
            for (rule, counts) in block.rules() {
                page.value(&[("stage", stage.as_str()), ("rule", *rule.0)], counts.count());
            }
        } },
    Family { name: "weir_stage_outstanding", kind: Gauge, labels: "`stage`",
        help: "Requests, or pieces of large ones, that are in a stage now",
        emit: |source, page| for stage in &source.snapshot.stages { page.value(&[("stage", &stage.stage)], stage.count); } },
    Family { name: "weir_stage_oldest_seconds", kind: Gauge, labels: "`stage`",
        help: "How long the request that came first has been in a stage",
        emit: |source, page| for stage in &source.snapshot.stages { page.seconds(&[("stage", &stage.stage)], stage.oldest_ns); } },
    Family { name: "weir_overdue_requests", kind: Gauge, labels: "",
        help: "Requests that have been in one stage for longer than `report_after`",
        emit: |source, page| page.value(&[], source.snapshot.overdue) },
    Family { name: "weir_volume_requests", kind: Counter, labels: "`volume`, `op`, `result`",
        help: "Requests for a volume that ended",
        emit: |source, page| volumes(source, |volume| for (op, name) in OpClass::NAMES.iter().enumerate() {
            for (result, count) in results(volume, op) {
                page.value(&[("volume", &volume.name), ("op", name), ("result", result)], count);
            }
        }) },
    Family { name: "weir_volume_io_bytes", kind: Counter, labels: "`volume`, `direction`",
        help: "Data of requests that ended well",
        emit: |source, page| volumes(source, |volume| for (direction, bytes) in DIRECTIONS.iter().zip(&volume.bytes) {
            page.value(&[("volume", &volume.name), ("direction", direction)], bytes.get());
        }) },
    Family { name: "weir_volume_request_duration_seconds", kind: Histogram(Bounds::Coarse), labels: "`volume`, `op`",
        help: "Response time of reads and writes of a volume",
        emit: |source, page| volumes(source, |volume| for (op, histogram) in DIRECTIONS.iter().zip(&volume.durations) {
            page.histogram(&[("volume", &volume.name), ("op", op)], &histogram.read(), Bounds::Coarse);
        }) },
    Family { name: "weir_volume_size_bytes", kind: Gauge, labels: "`volume`",
        help: "The size that hosts see",
        emit: |source, page| for volume in &source.snapshot.volumes { page.value(&[("volume", &volume.name)], volume.bytes); } },
    Family { name: "weir_volume_info", kind: Gauge, labels: "`volume`, `backend`",
        help: "Always 1",
        emit: |source, page| for volume in &source.snapshot.volumes {
            page.value(&[("volume", &volume.name), ("backend", &volume.backend)], 1);
        } },
    Family { name: "weir_volume_state", kind: Gauge, labels: "`volume`, `state`",
        help: "serving, read_only, fenced (another gateway has its reservation) or lost (a flush failed)",
        emit: |source, page| for volume in &source.snapshot.volumes {
            page.state(&[("volume", &volume.name)], &VOLUME_STATES, volume_state(volume));
        } },
    Family { name: "weir_fence_state", kind: Gauge, labels: "`volume`, `upstream`, `state`",
        help: "The reservation of an upstream: held, unclaimed or fenced",
        emit: |source, page| for volume in &source.snapshot.volumes { for fence in &volume.fences {
            page.state(&[("volume", &volume.name), ("upstream", &fence.upstream)], &FENCE_STATES, &fence.state);
        } } },
    Family { name: "weir_cache_limit_bytes", kind: Gauge, labels: "",
        help: "The size of the read cache",
        emit: |source, page| page.value(&[], source.snapshot.cache.limit_bytes) },
    Family { name: "weir_cache_used_bytes", kind: Gauge, labels: "",
        help: "Data in the read cache",
        emit: |source, page| page.value(&[], source.snapshot.cache.used_bytes) },
    Family { name: "weir_log_dirty_bytes", kind: Gauge, labels: "`volume`",
        help: "Acknowledged data that is only in the write-back log",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.dirty_bytes)) },
    Family { name: "weir_log_held_bytes", kind: Gauge, labels: "`volume`",
        help: "Data of which the log has records: what is only there, superseded data and copies",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.held_bytes)) },
    Family { name: "weir_log_copied_bytes", kind: Counter, labels: "`volume`",
        help: "Data that was copied inside the log, so that superseded data could leave it",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.copied_bytes)) },
    Family { name: "weir_log_fill_ratio", kind: Gauge, labels: "`volume`",
        help: "The part of the log that is in use, 0 to 1",
        emit: |source, page| logs(source, |log, labels| page.fraction(labels, log.fill)) },
    Family { name: "weir_log_oldest_dirty_seconds", kind: Gauge, labels: "`volume`",
        help: "The age of the oldest data that is only in the log",
        emit: |source, page| logs(source, |log, labels| page.seconds(labels, log.oldest_dirty_ns)) },
    Family { name: "weir_log_waiting_writes", kind: Gauge, labels: "`volume`",
        help: "Requests that wait for the log",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.waiting)) },
    Family { name: "weir_log_drain_bytes_per_second", kind: Gauge, labels: "`volume`",
        help: "The measured rate of write-back",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.drain_rate)) },
    Family { name: "weir_log_busy", kind: Counter, labels: "`volume`",
        help: "Requests that were answered with BUSY because the log was full",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.busy)) },
    Family { name: "weir_log_faults", kind: Counter, labels: "`volume`",
        help: "Failed writes to the device of the log",
        emit: |source, page| logs(source, |log, labels| page.value(labels, log.faults)) },
    Family { name: "weir_log_phase", kind: Gauge, labels: "`volume`, `state`",
        help: "The phase of a log, as `weir volume status` has it",
        emit: |source, page| logs(source, |log, labels| page.state(labels, &LOG_PHASES, &log.phase)) },
    Family { name: "weir_log_storage", kind: Gauge, labels: "`volume`, `state`",
        help: "The storage behind a log: up, away or blocked",
        emit: |source, page| logs(source, |log, labels| page.state(labels, &LOG_STORAGES, &log.storage)) },
    Family { name: "weir_backend_outstanding", kind: Gauge, labels: "`backend`",
        help: "I/Os that a backend has been given and has not ended",
        emit: |source, page| for backend in &source.snapshot.backends { page.value(&[("backend", &backend.name)], backend.outstanding); } },
    Family { name: "weir_backend_depth_limit", kind: Gauge, labels: "`backend`",
        help: "I/Os that the dispatch policy lets a backend have now",
        emit: |source, page| for backend in &source.snapshot.backends { page.value(&[("backend", &backend.name)], backend.depth); } },
    Family { name: "weir_path_info", kind: Gauge, labels: "`backend`, `path`, `portal`",
        help: "Always 1",
        emit: |source, page| paths(source, |path, labels| page.value(&[labels[0], labels[1], ("portal", &path.portal)], 1)) },
    Family { name: "weir_path_usable", kind: Gauge, labels: "`backend`, `path`",
        help: "1 if I/O may be sent on a path now or as soon as it is its turn",
        emit: |source, page| paths(source, |path, labels| {
            page.value(labels, ["active", "waiting", "returning"].contains(&path.state.as_str()).into());
        }) },
    Family { name: "weir_path_state", kind: Gauge, labels: "`backend`, `path`, `state`",
        help: "The state of a path",
        emit: |source, page| paths(source, |path, labels| page.state(labels, &PATH_STATES, &path.state)) },
    Family { name: "weir_path_state_changes", kind: Counter, labels: "`backend`, `path`",
        help: "How often the state of a path has changed",
        emit: |source, page| paths(source, |path, labels| page.value(labels, path.changes)) },
    Family { name: "weir_path_in_flight", kind: Gauge, labels: "`backend`, `path`",
        help: "I/Os on a path",
        emit: |source, page| paths(source, |path, labels| page.value(labels, path.in_flight)) },
    Family { name: "weir_path_learned_fixed_seconds", kind: Gauge, labels: "`backend`, `path`",
        help: "The time that an I/O takes on a path besides its data, if the path policy learns it",
        emit: |source, page| paths(source, |path, labels| if let Some(speed) = path.learned {
            page.seconds(labels, speed.fixed_ns);
        }) },
    Family { name: "weir_isns_registered", kind: Gauge, labels: "`server`",
        help: "1 while an iSNS server shows what the gateway has registered",
        emit: |source, page| for isns in &source.snapshot.isns {
            page.value(&[("server", &isns.server)], (isns.state == "registered").into());
        } },
    Family { name: "weir_control_tier_scale_ratio", kind: Gauge, labels: "`tier`",
        help: "The scale of the guarantees of a tier; below 1 the devices carry less than the contracts",
        emit: |source, page| for (tier, scale) in TIERS.iter().zip(&source.metrics.tiers) {
            page.fraction(&[("tier", tier)], scale.get() as f64 / 1e6);
        } },
    Family { name: "weir_tenant_requests", kind: Counter, labels: "`tenant`, `op`",
        help: "Requests of a tenant that ended, also those with an error",
        emit: |source, page| tenants(source, |tenant, labels| for (op, count) in OpClass::NAMES.iter().zip(&tenant.requests) {
            page.value(&[labels[0], ("op", op)], count.get());
        }) },
    Family { name: "weir_tenant_io_bytes", kind: Counter, labels: "`tenant`, `direction`",
        help: "Data of requests that ended well",
        emit: |source, page| tenants(source, |tenant, labels| for (direction, bytes) in DIRECTIONS.iter().zip(&tenant.bytes) {
            page.value(&[labels[0], ("direction", direction)], bytes.get());
        }) },
    Family { name: "weir_tenant_request_seconds", kind: Counter, labels: "`tenant`",
        help: "Sum of the response times of requests that ended well",
        emit: |source, page| tenants(source, |tenant, labels| page.seconds(labels, tenant.durations.read().sum_ns)) },
    Family { name: "weir_tenant_refused", kind: Counter, labels: "`tenant`",
        help: "Requests that were refused because a limit was reached",
        emit: |source, page| tenants(source, |tenant, labels| page.value(labels, tenant.refused.get())) },
    Family { name: "weir_tenant_slo_requests", kind: Counter, labels: "`tenant`",
        help: "Requests under an objective",
        emit: |source, page| tenants(source, |tenant, labels| page.value(labels, tenant.slo.requests.get())) },
    Family { name: "weir_tenant_slo_missed", kind: Counter, labels: "`tenant`",
        help: "Requests that missed the last objective of their row, failed or were refused",
        emit: |source, page| tenants(source, |tenant, labels| page.value(labels, tenant.slo.missed.get())) },
    Family { name: "weir_tenant_slo_allowed", kind: Counter, labels: "`tenant`",
        help: "Misses that the objectives allow: 0.01 for each request under a p99; the rate of misses over this rate is the burn rate",
        emit: |source, page| tenants(source, |tenant, labels| {
            page.fraction(labels, tenant.slo.allowed_ppm.get() as f64 / 1e6);
        }) },
    Family { name: "weir_control_infeasible", kind: Gauge, labels: "`tenant`",
        help: "1 while no window meets the objective of a tenant",
        emit: |source, page| tenants(source, |tenant, labels| if tenant.slo.requests.get() > 0 {
            page.value(labels, tenant.slo.infeasible.get());
        }) },
    Family { name: "weir_metrics_left_out", kind: Gauge, labels: "`kind`",
        help: "Tenants and volumes beyond the limits, which are summed under the name `_other`",
        emit: |source, page| for (kind, count) in
            [("tenant", source.metrics.tenants.left_out()), ("volume", source.metrics.volumes.left_out())] {
            page.value(&[("kind", kind)], count);
        } },
    Family { name: "weir_metrics_series", kind: Gauge, labels: "",
        help: "Series before this one",
        emit: |_, page| { let series = page.series(); page.value(&[], series); } },
];
