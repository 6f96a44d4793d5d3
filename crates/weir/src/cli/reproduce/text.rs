//! A study as text: claims, then tables.

use crate::table::{Align, Table};
use std::fmt::Write as _;
use weir_sim::experiment::claims::Claim;
use weir_sim::experiment::study::{self, Study};

const CLAIMS: &[(&str, Align)] = &[
    ("claim", Align::Left),
    ("set", Align::Left),
    ("arrivals", Align::Left),
    ("verdict", Align::Left),
    ("published", Align::Left),
    ("measured", Align::Right),
    ("unit", Align::Left),
    ("must be", Align::Left),
];

const INTERVALS: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("int", Align::Right),
    ("asked req/s", Align::Right),
    ("req/s", Align::Right),
    ("both", Align::Right),
    ("satisfied %", Align::Right),
    ("device p99 ms", Align::Right),
    ("switch-ons", Align::Right),
    ("on-time %", Align::Right),
];

const SCENARIOS: &[(&str, Align)] = &[
    ("scenario", Align::Left),
    ("policy", Align::Left),
    ("worst conforming %", Align::Right),
    ("req/s", Align::Right),
    ("later %", Align::Right),
    ("req/s", Align::Right),
];

const IDLE: &[(&str, Align)] = &[
    ("set", Align::Left),
    ("arrivals", Align::Left),
    ("policy", Align::Left),
    ("asked req/s", Align::Right),
    ("req/s", Align::Right),
];

const STATED: &[(&str, Align)] = &[
    ("set", Align::Left),
    ("policy", Align::Left),
    ("told", Align::Right),
    ("worst cell %", Align::Right),
    ("mean cell %", Align::Right),
    ("req/s in 3", Align::Right),
];

/// Everything.
pub(super) fn text(found: &[(&str, Study)]) -> String {
    let mut text = String::new();
    for (name, study) in found {
        let _ = writeln!(text, "Experiment {name}: claims");
        text.push_str(&claims(study).render("  "));
        text.push_str("\nWhat is behind them\n");
        for claim in study.claims.iter().filter(|claim| !claim.note.is_empty()) {
            let (id, set, arrivals) = (claim.id, claim.set, claim.arrivals);
            let _ = writeln!(text, "  {id} {set} {arrivals}: {}", claim.note);
        }
        for table in &study.tables {
            let study::Table { set, arrivals, seeds, .. } = table;
            let _ = writeln!(
                text,
                "\nSet {set}, {arrivals} arrivals, means of {seeds} runs; W1/W2 in pairs"
            );
            text.push_str(&intervals(table).render("  "));
        }
        text.push_str("\nScenarios: the worst tenant who keeps its contract, and all requests\n");
        text.push_str(&scenarios(study).render("  "));
        text.push_str("\nW2 alone, asking for 98 % of both contracts\n");
        text.push_str(&idle(study).render("  "));
        text.push_str(
            "\nTold a share of the true capacity; cells that must be satisfied in 3, 5, 6, 7 and 8\n",
        );
        text.push_str(&stated(study).render("  "));
        let kept = study.claims.iter().filter(|claim| claim.holds).count();
        let broken = study.claims.iter().filter(|claim| claim.required && !claim.holds).count();
        let (all, seed) = (study.claims.len(), study.seed);
        let _ = writeln!(
            text,
            "\n{kept} of {all} claims hold, {broken} that must hold do not; seed {seed}"
        );
    }
    text
}

/// A claim's verdict in a word or two.
pub(super) const fn verdict(claim: &Claim) -> &'static str {
    match (claim.holds, claim.required) {
        (true, _) => "holds",
        (false, true) => "MUST HOLD, does not",
        (false, false) => "does not hold",
    }
}

/// A figure with as many decimals as it deserves.
pub(super) fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

pub(super) fn claims(study: &Study) -> Table {
    let mut table = Table::new(CLAIMS);
    for claim in &study.claims {
        table.row(vec![
            claim.id.to_owned(),
            claim.set.to_owned(),
            claim.arrivals.to_owned(),
            verdict(claim).to_owned(),
            claim.published.to_owned(),
            figure(claim.measured),
            claim.unit.to_owned(),
            claim.tolerance.to_owned(),
        ]);
    }
    table
}

pub(super) fn intervals(table: &study::Table) -> Table {
    let mut out = Table::new(INTERVALS);
    for row in &table.rows {
        let [first, second] = &row.tenants;
        let whole = |part: fn(&_) -> f64| format!("{:.0}/{:.0}", part(first), part(second));
        let both = first.completed_per_second + second.completed_per_second;
        out.row(vec![
            row.policy.to_owned(),
            row.interval.to_string(),
            whole(|tenant| tenant.offered_per_second),
            whole(|tenant| tenant.completed_per_second),
            format!("{both:.0}"),
            format!("{:.1}/{:.1}", 100.0 * first.satisfied, 100.0 * second.satisfied),
            whole(|tenant| tenant.device_p99_ms),
            whole(|tenant| tenant.switched_on),
            whole(|tenant| 100.0 * tenant.on_share),
        ]);
    }
    out
}

pub(super) fn scenarios(study: &Study) -> Table {
    let mut table = Table::new(SCENARIOS);
    for row in &study.scenarios {
        let (later, rate) = row.later.map_or_else(Default::default, |(share, rate)| {
            (format!("{:.1}", 100.0 * share), format!("{rate:.0}"))
        });
        table.row(vec![
            format!("S{}: {}", row.scenario, row.title),
            row.policy.to_owned(),
            format!("{:.1}", 100.0 * row.worst),
            format!("{:.0}", row.completed_per_second),
            later,
            rate,
        ]);
    }
    table
}

pub(super) fn idle(study: &Study) -> Table {
    let mut table = Table::new(IDLE);
    for row in &study.idle {
        table.row(vec![
            row.set.to_owned(),
            row.arrivals.to_owned(),
            row.policy.to_owned(),
            format!("{:.0}", row.tenant.offered_per_second),
            format!("{:.0}", row.tenant.completed_per_second),
        ]);
    }
    table
}

pub(super) fn stated(study: &Study) -> Table {
    let mut table = Table::new(STATED);
    for row in &study.stated {
        table.row(vec![
            row.set.to_owned(),
            row.policy.to_owned(),
            format!("x{}", row.stated),
            format!("{:.1}", 100.0 * row.worst),
            format!("{:.1}", 100.0 * row.mean),
            format!("{:.0}", row.third),
        ]);
    }
    table
}
