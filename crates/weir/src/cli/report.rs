//! What a run has measured, as text.

use crate::table::{Align, Table};
use std::fmt::Write as _;
use weir_sim::results::{Results, TenantResults};

/// Columns of counts and rates, the percentiles following.
const TENANTS: &[(&str, Align)] = &[
    ("tenant", Align::Left),
    ("requests", Align::Right),
    ("errors", Align::Right),
    ("refused", Align::Right),
    ("req/s", Align::Right),
    ("MB/s", Align::Right),
    ("mean ms", Align::Right),
    ("p50 ms", Align::Right),
    ("p95 ms", Align::Right),
    ("p99 ms", Align::Right),
    ("p99.9 ms", Align::Right),
    ("max ms", Align::Right),
];

const STAGES: &[(&str, Align)] = &[
    ("tenant", Align::Left),
    ("stage", Align::Left),
    ("share %", Align::Right),
    ("mean ms", Align::Right),
    ("p50 ms", Align::Right),
    ("p95 ms", Align::Right),
    ("p99 ms", Align::Right),
    ("p99.9 ms", Align::Right),
    ("max ms", Align::Right),
];

/// The whole report but its last line, which says how to run it again.
pub(super) fn text(results: &Results) -> String {
    let mut text = String::from("Response times, from arrival to the last byte of the reply\n");
    let mut table = Table::new(TENANTS);
    let rows: Vec<&TenantResults> = match &results.tenants[..] {
        [only] => vec![only],
        several => several.iter().chain([&results.all]).collect(),
    };
    for tenant in &rows {
        let times = &tenant.response;
        let mut row = vec![
            tenant.name.clone(),
            tenant.count.to_string(),
            tenant.errors.to_string(),
            tenant.refused.to_string(),
            format!("{:.1}", tenant.requests_per_second),
            format!("{:.2}", tenant.megabytes_per_second),
            format!("{:.3}", times.mean_ns / 1e6),
        ];
        let rest = [times.p50_ns, times.p95_ns, times.p99_ns, times.p999_ns, times.max_ns];
        row.extend(rest.map(millis));
        table.row(row);
    }
    text.push_str(&table.render("  "));
    text.push_str("\nWhere the time went; stages that took none are left out\n");
    text.push_str(&stages(&results.tenants).render("  "));
    let totals = &results.totals;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let _ = writeln!(
        text,
        "\n{} requests came: {} answered, {} refused, {} outstanding at the end",
        totals.arrived, totals.completed, totals.refused, totals.outstanding
    );
    let _ = writeln!(
        text,
        "virtual time {:.3} s, of which {:.3} s measured; {} events, {} actions",
        seconds(results.virtual_ns),
        seconds(results.measured_ns),
        results.events,
        results.actions
    );
    if results.paths_failed + results.paths_reinstated + results.ios_lost > 0 {
        let _ = writeln!(
            text,
            "paths: {} failed, {} reinstated, {} I/Os lost on the way and sent again",
            results.paths_failed, results.paths_reinstated, results.ios_lost
        );
    }
    if results.overdue > 0 {
        let _ = writeln!(text, "{} times a request was overdue in a stage", results.overdue);
    }
    text
}

fn stages(tenants: &[TenantResults]) -> Table {
    let mut table = Table::new(STAGES);
    for tenant in tenants {
        for stage in tenant.stages.iter().filter(|stage| stage.times.max_ns > 0) {
            let times = &stage.times;
            let mut row = vec![
                tenant.name.clone(),
                stage.stage.to_owned(),
                format!("{:.1}", 100.0 * times.mean_ns / tenant.response.mean_ns.max(1.0)),
                format!("{:.3}", times.mean_ns / 1e6),
            ];
            let rest = [times.p50_ns, times.p95_ns, times.p99_ns, times.p999_ns, times.max_ns];
            row.extend(rest.map(millis));
            table.row(row);
        }
    }
    table
}

/// Nanoseconds as milliseconds with three decimals.
fn millis(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}
