//! `weir status`: shows the state of a gateway.

use super::ask::Ask;
use super::path::PATHS_OUT;
use crate::exit::{Exit, Failure};
use crate::table::{Align, Column, Table, numbers, words};
use clap::Args;
use std::fmt::Write as _;
use weir_flow::clock::Duration;
use weir_flow::units::ByteCount;
use weir_serve::operator::{
    self, Answer, BackendStatus, DeviceStatus, FenceStatus, IsnsStatus, OverdueRequest,
    RecorderStatus, Request, SessionStatus, ShareStatus, Spread, StageStatus, StreamStatus,
    TargetStatus, TenantStatus, TurnedAwayStatus, VolumeStatus,
};

/// Show the state of a running gateway
///
/// Outstanding requests by stage with their age, overdue requests, sessions, volumes, backends, and how well tenants
/// meet their objectives. Only root and the gateway's user have access.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Status {
    #[command(flatten)]
    ask: Ask,
}

impl Status {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.ask.ask(Request::Status {}, |answer| match answer {
            Answer::Status(status) => Some(text(status)),
            _ => None,
        })
    }
}

fn text(status: &operator::Status) -> String {
    let mut text = String::new();
    let operator::GatewayStatus { release, pid, up_ns, driver, stopping, busy, bottleneck } =
        &status.gateway;
    let _ = writeln!(
        text,
        "weir {release}, process {pid}, up {}, disk I/O by {driver}{}",
        age(*up_ns),
        if *stopping { "; stopping: requests in flight are being finished" } else { "" }
    );
    let limit = match bottleneck.as_str() {
        "" => "nothing limits throughput".to_owned(),
        "thread" => "the gateway's thread limits throughput".to_owned(),
        "limits" => "contracts, caps or the order of requests limit throughput".to_owned(),
        other => format!("{other} limits throughput"),
    };
    let _ = writeln!(text, "gateway thread {:.0} % busy; {limit}", busy * 100.0);
    let operator::RequestCounts { completed, failed, refused, outstanding } = status.requests;
    let _ = writeln!(
        text,
        "{completed} requests completed, {failed} of them with an error; {refused} refused; {outstanding} \
         outstanding"
    );
    recorder(&mut text, status.recorder);
    section(&mut text, "Outstanding requests", &Table::of(STAGES, &status.stages), 0);
    section(&mut text, "Overdue", &Table::of(OVERDUE, &status.overdue), status.overdue_left_out);
    section(
        &mut text,
        "Connected",
        &Table::of(SESSIONS, &status.sessions),
        status.sessions_left_out,
    );
    let heading = "Turned away in the last hour";
    section(
        &mut text,
        heading,
        &Table::of(TURNED_AWAY, &status.turned_away),
        status.turned_away_left_out,
    );
    section(&mut text, "iSNS servers", &Table::of(ISNS, &status.isns), 0);
    section(&mut text, "Volumes", &Table::of(VOLUMES, &status.volumes), 0);
    section(
        &mut text,
        "Backends",
        &Table::of(BACKENDS, &status.backends),
        status.backends_left_out,
    );
    section(&mut text, "Paths out of use", &Table::of(PATHS_OUT, &status.paths_out), 0);
    let heading = "Backend-time shares, of the last seconds and since the start";
    section(&mut text, heading, &Table::of(SHARES, &status.shares), status.shares_left_out);
    let heading = "Streams within tenants, of the last seconds and since they began";
    section(&mut text, heading, &Table::of(STREAMS, &status.streams), status.streams_left_out);
    let heading = "Modelled devices; an I/O is late if its file took longer than the model";
    section(&mut text, heading, &devices(&status.devices), 0);
    section(&mut text, "Flash since the start", &flash(&status.devices), 0);
    let heading = "Objectives; a burn of 1 uses exactly the error budget";
    section(&mut text, heading, &targets(&status.tenants), 0);
    let heading = "Tenants with a contract, and the rules that held their requests";
    section(&mut text, heading, &Table::of(TENANTS, &status.tenants), status.tenants_left_out);
    text
}

/// What the flight recorder keeps.
fn recorder(text: &mut String, recorder: Option<RecorderStatus>) {
    let Some(RecorderStatus { memory_bytes, ring_ns, hours_ns, .. }) = recorder else {
        text.push_str("flight recorder off\n");
        return;
    };
    let _ = writeln!(
        text,
        "flight recorder: {}; all requests of the last {}, the slowest of the last {}",
        ByteCount(memory_bytes),
        age(ring_ns),
        age(hours_ns)
    );
}

/// A heading and its table, if the table has rows.
fn section(text: &mut String, heading: &str, table: &Table, left_out: u64) {
    if table.rows().is_empty() {
        return;
    }
    let _ = write!(text, "\n{heading}\n{}", table.render("  "));
    if left_out > 0 {
        let _ = writeln!(text, "  and {left_out} more");
    }
}

const STAGES: &[Column<StageStatus>] = &[
    words("stage", |stage| stage.stage.clone()),
    numbers("outstanding", |stage| stage.count.to_string()),
    numbers("oldest", |stage| if stage.count > 0 { time(stage.oldest_ns) } else { "-".to_owned() }),
];

const OVERDUE: &[Column<OverdueRequest>] = &[
    words("stage", |request| request.stage.clone()),
    numbers("for", |request| time(request.age_ns)),
    words("op", |request| request.op.clone()),
    numbers("bytes", |request| request.length.to_string()),
    numbers("at", |request| request.offset.to_string()),
    words("volume", |request| request.volume.clone()),
    words("tenant", |request| request.tenant.clone()),
];

const ISNS: &[Column<IsnsStatus>] = &[
    words("server", |one| one.server.clone()),
    words("state", |one| one.state.clone()),
    numbers("for", |one| age(one.age_ns)),
    numbers("answered", |one| ago(one.answered_ns)),
    words(
        "portals",
        |one| if one.portals.is_empty() { "-".to_owned() } else { one.portals.join(" ") },
    ),
    numbers("targets", |one| one.targets.to_string()),
    numbers("refused", |one| one.refused.to_string()),
    numbers("failures", |one| one.failures.to_string()),
    words("last problem", |one| match one.problem_ns {
        Some(_) => format!("{}, {}", one.problem, ago(one.problem_ns)),
        None => "-".to_owned(),
    }),
];

/// How long ago something was.
fn ago(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), |nanos| format!("{} ago", age(nanos)))
}

const SESSIONS: &[Column<SessionStatus>] = &[
    words("host", |one| one.initiator.clone().unwrap_or_else(|| "NBD client".to_owned())),
    words("from", |one| one.peer.clone()),
    words("target, export or subsystem", |one| match (&one.target, one.controller, one.queue) {
        (Some(name), Some(controller), Some(queue)) => {
            format!("{name}, controller {controller}, queue {queue}")
        }
        (Some(name), ..) => name.clone(),
        (None, ..) => "(discovery)".to_owned(),
    }),
    numbers("outstanding", |one| one.outstanding.to_string()),
];

const TURNED_AWAY: &[Column<TurnedAwayStatus>] = &[
    words("from", |one| one.source.clone()),
    words("host", |one| one.initiator.clone().unwrap_or_else(|| "-".to_owned())),
    words("why", |one| one.why.clone()),
    numbers("times", |one| one.count.to_string()),
    numbers("last", |one| format!("{} ago", age(one.age_ns))),
    numbers("may try again", |one| match one.retry_after_ns {
        0 => "now".to_owned(),
        wait => format!("in {}", age(wait)),
    }),
];

const VOLUMES: &[Column<VolumeStatus>] = &[
    words("volume", |volume| volume.name.clone()),
    numbers("size", |volume| ByteCount(volume.bytes).to_string()),
    words("backend", |volume| volume.backend.clone()),
    words("", |volume| {
        let mut notes = Vec::new();
        if volume.read_only {
            notes.push("read only".to_owned());
        }
        match volume.volatile.as_str() {
            "" => {}
            "null" => notes.push("WRITES ARE DROPPED".to_owned()),
            _ => notes.push("in memory: gone when the gateway stops".to_owned()),
        }
        if volume.lost {
            notes.push("a flush failed: written data may be lost".to_owned());
        }
        if let Some(log) = volume.log.as_ref().filter(|log| log.storage == "blocked") {
            notes.push(format!(
                "WRITE-BACK IS BLOCKED for {}: {}",
                age(log.storage_ns),
                log.storage_why
            ));
        }
        notes.extend(volume.fences.iter().filter(|fence| fence.state != "held").map(fence));
        notes.join("; ")
    }),
];

const BACKENDS: &[Column<BackendStatus>] = &[
    words("backend", |backend| backend.name.clone()),
    numbers("outstanding", |backend| backend.outstanding.to_string()),
    numbers("max", |backend| backend.depth.to_string()),
];

const SHARES: &[Column<ShareStatus>] = &[
    words("tenant", |share| {
        if share.background { format!("({})", share.name) } else { share.name.clone() }
    }),
    numbers("weight", |share| weight(share.weight)),
    numbers("share %", |share| format!("{:.1}", share.share * 1e2)),
    numbers("service time", |share| time(share.service_ns)),
];

const STREAMS: &[Column<StreamStatus>] = &[
    words("subsystem", |one| one.subsystem.clone()),
    words("stream", |one| {
        let host = one.host.as_deref().unwrap_or_default();
        match (one.namespace, one.controller, one.queue) {
            (Some(namespace), ..) => format!("namespace {namespace}"),
            (None, Some(controller), Some(queue)) => {
                format!("{host}, controller {controller}, queue {queue}")
            }
            _ => host.to_owned(),
        }
    }),
    numbers("weight", |one| weight(one.weight)),
    numbers("share %", |one| format!("{:.1}", one.share * 1e2)),
    numbers("service time", |one| time(one.service_ns)),
];

/// A weight without zeroes at its end.
fn weight(weight: f64) -> String {
    let weight = format!("{weight:.3}");
    weight.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn devices(devices: &[DeviceStatus]) -> Table {
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("I/Os", Align::Right),
        ("late", Align::Right),
        ("late by p50", Align::Right),
        ("p99", Align::Right),
        ("most", Align::Right),
        ("timer p50", Align::Right),
        ("p99", Align::Right),
        ("most", Align::Right),
    ]);
    let time = |nanos: Option<u64>| nanos.map_or_else(|| "-".to_owned(), time);
    for DeviceStatus { name, ios, late, late_by, timer, .. } in devices {
        let mut row = vec![name.clone(), ios.to_string(), late.to_string()];
        for Spread { p50_ns, p99_ns, max_ns } in [late_by, timer] {
            row.extend([p50_ns, p99_ns, max_ns].map(|nanos| time(*nanos)));
        }
        table.row(row);
    }
    table
}

fn flash(devices: &[DeviceStatus]) -> Table {
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("pages written", Align::Right),
        ("moved", Align::Right),
        ("blocks erased", Align::Right),
        ("erasures of a block", Align::Right),
        ("write amplification", Align::Right),
    ]);
    for device in devices {
        let Some(flash) = device.flash else { continue };
        table.row(vec![
            device.name.clone(),
            flash.programs.to_string(),
            flash.moves.to_string(),
            flash.erases.to_string(),
            format!("{} to {}", flash.least_worn, flash.most_worn),
            format!("{:.2}", flash.amplification),
        ]);
    }
    table
}

fn targets(tenants: &[TenantStatus]) -> Table {
    let mut table = Table::new(&[
        ("tenant", Align::Left),
        ("requests of up to", Align::Left),
        ("objective", Align::Left),
        ("count", Align::Right),
        ("met %", Align::Right),
        ("measured", Align::Right),
        ("burn", Align::Right),
        ("5 min", Align::Right),
        ("1 h", Align::Right),
    ]);
    for (tenant, target) in
        tenants.iter().flat_map(|tenant| tenant.targets.iter().map(move |target| (tenant, target)))
    {
        let TargetStatus { direction, size, quantile, count, missed, .. } = target;
        let load = target.load.map_or_else(String::new, |load| format!(" to load {load}"));
        // Cut, not rounded: 99.000 % is never less.
        let met = count.saturating_sub(*missed).saturating_mul(100_000) / (*count).max(1);
        table.row(vec![
            tenant.name.clone(),
            format!("{direction} {}{load}", ByteCount(*size)),
            format!("p{} {}", (quantile * 1e6).round() / 1e4, time(target.target_ns)),
            count.to_string(),
            format!("{}.{:03}", met / 1_000, met % 1_000),
            target.measured_ns.map_or_else(|| "never".to_owned(), time),
            format!("{:.2}", target.burn),
            format!("{:.2}", target.burn_5min),
            format!("{:.2}", target.burn_1h),
        ]);
    }
    table
}

const TENANTS: &[Column<TenantStatus>] = &[
    words("tenant", |tenant| tenant.name.clone()),
    numbers("requests", |tenant| tenant.requests.to_string()),
    numbers("late", |tenant| tenant.late.to_string()),
    numbers("refused", |tenant| tenant.refused.to_string()),
    words("held by", |tenant| {
        let share = |nanos: u64| nanos as f64 / tenant.time_ns.max(1) as f64 * 1e2;
        let causes = tenant.causes.iter();
        let causes = causes.map(|cause| format!("{} {:.1} %", cause.rule, share(cause.time_ns)));
        causes.collect::<Vec<_>>().join(", ")
    }),
];

/// The holder of an upstream's reservation.
pub(super) fn fence(fence: &FenceStatus) -> String {
    let FenceStatus { upstream, holder, age_ns, why, delayed, delayed_ns, .. } = fence;
    let key = fence.key.as_deref().unwrap_or("unknown");
    match &fence.state[..] {
        "held" => return format!("upstream `{upstream}` is reserved for this gateway, key {key}"),
        "unclaimed" => {
            return format!(
                "UNCLAIMED for {}: the gateway has started without upstream `{upstream}`, and writes nothing there \
                 before it has reserved it: {why}",
                age(*age_ns)
            );
        }
        _ => {}
    }
    let holder = match holder {
        Some(holder) => format!("reserved by key {holder}"),
        None if !why.is_empty() => why.clone(),
        None => String::from("no longer reserved"),
    };
    let repeats = match delayed {
        0 => String::new(),
        _ => format!(
            "; hosts repeat commands: {delayed} errors are delayed, the oldest for {}",
            time(*delayed_ns)
        ),
    };
    format!(
        "FENCED for {}: upstream `{upstream}` is {holder}; the gateway refuses all I/O and writes nothing \
         there{repeats}",
        age(*age_ns)
    )
}

/// A duration.
pub(super) fn time(nanos: u64) -> String {
    Duration::from_nanos(nanos).to_string()
}

/// An age in its two largest units.
pub(super) fn age(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let two = |large: u64, name: &str, small: u64, less: &str| {
        format!("{} {name} {} {less}", seconds / large, seconds % large / small)
    };
    match seconds {
        0..60 => time(nanos),
        60..3_600 => two(60, "min", 1, "s"),
        3_600..86_400 => two(3_600, "h", 60, "min"),
        _ => two(86_400, "d", 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An age has its two largest units and is truncated, not rounded.
    #[test]
    fn ages_read_well() {
        let ages = [59_999_000_000, 3_599_000_000_000, 86_399_000_000_000, 200_000_000_000_000];
        assert_eq!(ages.map(age), ["59.999 s", "59 min 59 s", "23 h 59 min", "2 d 7 h"]);
    }
}
