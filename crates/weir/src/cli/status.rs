//! `weir status`: how a gateway does.

use super::ask::Ask;
use crate::exit::{Exit, Failure};
use crate::table::{Align, Table};
use clap::Args;
use std::fmt::Write as _;
use weir_flow::clock::Duration;
use weir_flow::units::ByteCount;
use weir_serve::operator::{
    self, Answer, DeviceStatus, FenceStatus, Request, Spread, TargetStatus, TenantStatus,
};

/// Say how a gateway does that is serving
///
/// What is outstanding in which stage and for how long, what is overdue, who is connected, the volumes,
/// and how well the promises to tenants are kept. It is the gateway's own user who may ask, or root.
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
    let operator::GatewayStatus { release, pid, up_ns, driver, stopping } = &status.gateway;
    let _ = writeln!(
        text,
        "weir {release}, process {pid}, up {}, disk I/O by {driver}{}",
        age(*up_ns),
        if *stopping { "; stopping: it finishes what is in flight" } else { "" }
    );
    let operator::RequestCounts { completed, failed, refused, outstanding } = status.requests;
    let _ = writeln!(
        text,
        "{completed} requests have ended, {failed} of them failed; {refused} were refused; \
         {outstanding} are outstanding"
    );
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("outstanding", Align::Right),
        ("oldest", Align::Right),
    ]);
    for stage in &status.stages {
        let oldest = if stage.count > 0 { time(stage.oldest_ns) } else { "-".to_owned() };
        table.row(vec![stage.stage.clone(), stage.count.to_string(), oldest]);
    }
    section(&mut text, "Where requests are", &table, 0);
    section(&mut text, "Overdue", &overdue(status), status.overdue_left_out);
    section(&mut text, "Connected", &sessions(status), status.sessions_left_out);
    section(&mut text, "Volumes", &volumes(status), 0);
    section(&mut text, "Backends", &backends(status), status.backends_left_out);
    let heading = "Shares of the backends' time, of the last seconds and since the start";
    section(&mut text, heading, &shares(status), status.shares_left_out);
    let heading = "Modelled devices; I/Os whose file was later than the model are late";
    section(&mut text, heading, &devices(&status.devices), 0);
    section(&mut text, "Flash since the start", &flash(&status.devices), 0);
    let heading = "What was promised and what was kept; a budget that burns at 1 is just kept";
    section(&mut text, heading, &targets(&status.tenants), 0);
    let heading = "Tenants with a contract, and what held their requests";
    section(&mut text, heading, &tenants(&status.tenants), status.tenants_left_out);
    text
}

/// A heading and its table, if there is anything in it.
fn section(text: &mut String, heading: &str, table: &Table, left_out: u64) {
    if table.rows().is_empty() {
        return;
    }
    let _ = write!(text, "\n{heading}\n{}", table.render("  "));
    if left_out > 0 {
        let _ = writeln!(text, "  and {left_out} more");
    }
}

fn overdue(status: &operator::Status) -> Table {
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("for", Align::Right),
        ("op", Align::Left),
        ("bytes", Align::Right),
        ("at", Align::Right),
        ("volume", Align::Left),
        ("tenant", Align::Left),
    ]);
    for request in &status.overdue {
        table.row(vec![
            request.stage.clone(),
            time(request.age_ns),
            request.op.clone(),
            request.length.to_string(),
            request.offset.to_string(),
            request.volume.clone(),
            request.tenant.clone(),
        ]);
    }
    table
}

fn sessions(status: &operator::Status) -> Table {
    let mut table = Table::new(&[
        ("host", Align::Left),
        ("from", Align::Left),
        ("target or export", Align::Left),
        ("outstanding", Align::Right),
    ]);
    for session in &status.sessions {
        let host = session.initiator.clone().unwrap_or_else(|| "NBD client".to_owned());
        table.row(vec![
            host,
            session.peer.clone(),
            session.target.clone().unwrap_or_else(|| "(discovery)".to_owned()),
            session.outstanding.to_string(),
        ]);
    }
    table
}

fn volumes(status: &operator::Status) -> Table {
    let mut table = Table::new(&[
        ("volume", Align::Left),
        ("size", Align::Right),
        ("backend", Align::Left),
        ("", Align::Left),
    ]);
    for volume in &status.volumes {
        let mut notes = Vec::new();
        if volume.read_only {
            notes.push("read only".to_owned());
        }
        if volume.lost {
            notes.push("a flush has failed: what was written may be lost".to_owned());
        }
        notes.extend(volume.fences.iter().filter(|fence| fence.state != "held").map(fence));
        let size = ByteCount(volume.bytes).to_string();
        table.row(vec![volume.name.clone(), size, volume.backend.clone(), notes.join("; ")]);
    }
    table
}

fn backends(status: &operator::Status) -> Table {
    let mut table = Table::new(&[
        ("backend", Align::Left),
        ("outstanding", Align::Right),
        ("at most", Align::Right),
    ]);
    for operator::BackendStatus { name, outstanding, depth } in &status.backends {
        table.row(vec![name.clone(), outstanding.to_string(), depth.to_string()]);
    }
    table
}

fn shares(status: &operator::Status) -> Table {
    let mut table = Table::new(&[
        ("whose", Align::Left),
        ("weight", Align::Right),
        ("share %", Align::Right),
        ("service time", Align::Right),
    ]);
    for share in &status.shares {
        let name = if share.background { format!("({})", share.name) } else { share.name.clone() };
        let weight = format!("{:.3}", share.weight);
        let weight = weight.trim_end_matches('0').trim_end_matches('.').to_owned();
        let per_cent = format!("{:.1}", share.share * 1e2);
        table.row(vec![name, weight, per_cent, time(share.service_ns)]);
    }
    table
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
        ("promised", Align::Left),
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

fn tenants(tenants: &[TenantStatus]) -> Table {
    let mut table = Table::new(&[
        ("tenant", Align::Left),
        ("requests", Align::Right),
        ("late", Align::Right),
        ("refused", Align::Right),
        ("held by", Align::Left),
    ]);
    for tenant in tenants {
        let share = |nanos: u64| nanos as f64 / tenant.time_ns.max(1) as f64 * 1e2;
        let causes = tenant.causes.iter();
        let causes = causes.map(|cause| format!("{} {:.1} %", cause.rule, share(cause.time_ns)));
        table.row(vec![
            tenant.name.clone(),
            tenant.requests.to_string(),
            tenant.late.to_string(),
            tenant.refused.to_string(),
            causes.collect::<Vec<_>>().join(", "),
        ]);
    }
    table
}

/// Whose an upstream is.
pub(super) fn fence(fence: &FenceStatus) -> String {
    let FenceStatus { upstream, key, holder, fenced_ns, .. } = fence;
    if fence.state == "held" {
        return format!("upstream `{upstream}` is reserved for this gateway, key {key}");
    }
    let holder = match holder {
        Some(holder) => format!("somebody else's, key {holder}"),
        None => String::from("nobody's any more"),
    };
    format!(
        "FENCED for {}: upstream `{upstream}` is {holder}; nothing is written there, and hosts are refused",
        age(*fenced_ns)
    )
}

/// A length of time.
pub(super) fn time(nanos: u64) -> String {
    Duration::from_nanos(nanos).to_string()
}

/// How long ago something was, for people: in its two largest units.
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

    /// Ages are told in the units that people count in, cut rather than rounded.
    #[test]
    fn ages_read_well() {
        let ages = [59_999_000_000, 3_599_000_000_000, 86_399_000_000_000, 200_000_000_000_000];
        assert_eq!(ages.map(age), ["59.999 s", "59 min 59 s", "23 h 59 min", "2 d 7 h"]);
    }
}
