//! The results of a run as text.

use crate::table::{Align, Table};
use std::cmp::Reverse;
use std::fmt::Write as _;
use weir_flow::units::ByteCount;
use weir_sim::results::{LedgerResults, Results, TargetResults, TenantResults};

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

const TARGETS: &[(&str, Align)] = &[
    ("tenant", Align::Left),
    ("requests of up to", Align::Left),
    ("objective", Align::Left),
    ("count", Align::Right),
    ("met %", Align::Right),
    ("measured ms", Align::Right),
    ("budget burn", Align::Right),
    ("", Align::Left),
];

/// The report without its last line, which has the command to repeat the run.
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
    text.push_str("\nTime by stage; stages that took no time are left out\n");
    text.push_str(&stages(&results.tenants).render("  "));
    text.push_str("\nRules that held requests, by share of the time\n");
    let mut held = Table::new(&[("tenant", Align::Left), ("rules", Align::Left)]);
    for tenant in &results.tenants {
        held.row(vec![tenant.name.clone(), causes(&tenant.ledger)]);
    }
    text.push_str(&held.render("  "));
    let kept = results.tenants.iter().map(|tenant| (&*tenant.name, &*tenant.attainment));
    if let Some(table) = targets(kept) {
        text.push_str("\nObjectives; a burn of 1 uses exactly the error budget\n");
        text.push_str(&table);
    }
    let totals = &results.totals;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let _ = writeln!(
        text,
        "\n{} requests arrived: {} answered, {} refused, {} outstanding at the end",
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
            "paths: {} failed, {} reinstated, {} I/Os lost and sent again",
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

/// A line for each target of the tenants' contracts; `None` if there are none.
pub(super) fn targets<'a>(
    tenants: impl Iterator<Item = (&'a str, &'a [TargetResults])>,
) -> Option<String> {
    let mut table = Table::new(TARGETS);
    for (name, targets) in tenants {
        for target in targets {
            let quantile = (target.quantile * 1e6).round() / 1e4;
            // Cut, not rounded: 99.000 % is never less.
            let met = (target.count - target.missed) * 100_000 / target.count.max(1);
            table.row(vec![
                name.to_owned(),
                kind(target),
                format!("p{quantile} {} ms", millis(target.target_ns)),
                target.count.to_string(),
                format!("{}.{:03}", met / 1_000, met % 1_000),
                target.measured_ns.map_or_else(|| "never".to_owned(), millis),
                format!("{:.2}", target.burn),
                if target.kept { "met" } else { "missed" }.to_owned(),
            ]);
        }
    }
    (!table.rows().is_empty()).then(|| table.render("  "))
}

/// The requests to which an objective applies.
fn kind(target: &TargetResults) -> String {
    let load = target.load.map_or_else(String::new, |load| format!(" to load {load}"));
    format!("{} {}{load}", target.direction, ByteCount(target.size.into()))
}

/// The rules that took most of a tenant's time, in one line.
fn causes(ledger: &LedgerResults) -> String {
    let mut causes: Vec<_> = ledger.causes.iter().collect();
    causes.sort_by_key(|cause| Reverse(cause.time_ns));
    let shares = divided(causes.iter().map(|cause| cause.time_ns), 1_000);
    let mut parts = Vec::new();
    for (cause, share) in causes.iter().zip(&shares).take(TOP_CAUSES) {
        parts.push(format!("{} {} %", cause.rule, tenths(*share)));
    }
    let rest: u64 = shares.iter().skip(TOP_CAUSES).sum();
    if rest > 0 {
        parts.push(format!("others {} %", tenths(rest)));
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// Divides `whole` in proportion to the parts, rounded so that the sum is exactly `whole`; zeros if all parts are zero.
pub(super) fn divided(parts: impl Iterator<Item = u64> + Clone, whole: u64) -> Vec<u64> {
    let total: u128 = parts.clone().map(u128::from).sum();
    let total = total.max(1);
    let (mut sum, mut told) = (0, 0);
    parts
        .map(|part| {
            sum += u128::from(part);
            let until = ((sum * u128::from(whole) + total / 2) / total) as u64;
            until - std::mem::replace(&mut told, until)
        })
        .collect()
}

/// Thousandths as per cent with a decimal.
pub(super) fn tenths(permille: u64) -> String {
    format!("{}.{}", permille / 10, permille % 10)
}

/// Nanoseconds as milliseconds with three decimals.
pub(super) fn millis(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}

/// The maximum number of causes in one line.
const TOP_CAUSES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounded parts add up to the whole, and each is less than one off its exact value.
    #[test]
    fn rounded_parts_add_up() {
        for parts in [&[1, 1, 1][..], &[0, 7, 0, 2], &[1; 7], &[u64::MAX, 3, u64::MAX], &[5]] {
            let shares = divided(parts.iter().copied(), 1_000);
            assert_eq!(shares.iter().sum::<u64>(), 1_000, "{parts:?}: {shares:?}");
            let whole: f64 = parts.iter().map(|&part| part as f64).sum();
            for (&part, &share) in parts.iter().zip(&shares) {
                assert!((part as f64 / whole * 1e3 - share as f64).abs() <= 1.0, "{parts:?}");
            }
        }
        assert_eq!(divided([0, 0].into_iter(), 1_000), [0, 0]);
    }
}
