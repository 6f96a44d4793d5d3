//! `weir replay RECORDING` with another policy, contract, cache or device: the question and the answer as text.

use crate::cli::config::warn;
use crate::cli::progress::Progress;
use crate::cli::report::{millis, targets};
use crate::config::source::{Source, reason};
use crate::config::{self, Kind, plan};
use crate::exit::{Exit, Failure};
use crate::output::{Color, print, print_json};
use crate::table::{Align, Table};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use weir_sim::whatif::{Answer, Compared, FEWEST_P99, Fitted, Question, Rules, ask};

/// Asks a recording and prints the answer. `asked` are the options that make the question.
pub(super) fn answer(
    path: &Path,
    question: &Question,
    asked: &str,
    json: bool,
) -> Result<Exit, Failure> {
    let file = File::open(path).map_err(|error| {
        let message = format!("cannot read `{}`: {}", path.display(), reason(&error));
        Failure::new(Exit::Invalid, message, "name a readable recording")
    })?;
    let bar = Progress::new();
    let answer = ask(file, question, |entries| bar.show(None, format!("{entries} entries")));
    drop(bar);
    let answer = answer.map_err(|error| super::failure(path, error))?;
    let exit = if answer.refused.is_empty() { Exit::Success } else { Exit::Unanswered };
    let name = path.display().to_string();
    if json {
        let answer = serde_json::to_value(&answer);
        let answer = answer.map_err(|error| Failure::unexpected(error.to_string()))?;
        print_json(&json!({
            "version": 1, "recording": name, "question": asked, "answer": answer,
        }))?;
    } else {
        print(&text(&answer, &name, asked))?;
    }
    Ok(exit)
}

/// The rules of a gateway's configuration or of a plan.
pub(super) fn rules(path: &Path, color: Color) -> Result<Rules, Failure> {
    let source = Source::read(path).map_err(Failure::unreadable)?;
    let invalid = |diagnostics| Failure::invalid(diagnostics, source.clone());
    match Kind::of(&source) {
        Kind::Gateway => {
            let loaded = config::gateway(&source).map_err(invalid)?;
            warn(&loaded.warnings, &source, color);
            let config = loaded.checked;
            Ok(Rules {
                volumes: config
                    .volumes
                    .into_iter()
                    .map(|volume| (volume.name, volume.cap))
                    .collect(),
                tenants: config.tenants.into_iter().map(|tenant| tenant.name).collect(),
                promises: config.promises,
                shares: config.shares,
                limits: config.limits,
                paths: config.paths,
                cache: config.cache,
                policies: config.policies,
            })
        }
        Kind::Plan => {
            let loaded = config::plan(&source).map_err(invalid)?;
            warn(&loaded.warnings, &source, color);
            let plan::Experiment { plan, .. } = loaded.checked;
            Ok(Rules {
                volumes: plan.volumes.into_iter().map(|volume| (volume.name, volume.cap)).collect(),
                tenants: plan.tenants,
                promises: plan.promises,
                shares: plan.shares,
                limits: plan.limits,
                paths: plan.paths,
                cache: plan.cache,
                policies: plan.policies,
            })
        }
    }
}

const ROWS: &[(&str, Align)] = &[
    ("tenant", Align::Left),
    ("volume", Align::Left),
    ("op", Align::Left),
    ("requests", Align::Right),
    ("IOPS was", Align::Right),
    ("would", Align::Right),
    ("mean ms was", Align::Right),
    ("would", Align::Right),
    ("p50 ms was", Align::Right),
    ("would", Align::Right),
    ("change", Align::Left),
    ("p99 ms was", Align::Right),
    ("would", Align::Right),
    ("change", Align::Left),
];

fn text(answer: &Answer, name: &str, asked: &str) -> String {
    let seconds = answer.recorded.virtual_ns as f64 / 1e9;
    let mut text =
        format!("What if {asked}? {name}: {seconds:.3} s, {} requests\n", answer.recorded.arrived);
    if !answer.rows.is_empty() {
        let _ = writeln!(text, "Response times as recorded and as they would have been");
        let mut table = Table::new(ROWS);
        for row in &answer.rows {
            table.row(cells(answer, row));
        }
        text.push_str(&table.render("  "));
        for row in answer.rows.iter().filter(|row| row.reason.is_some()) {
            let reason = row.reason.as_deref().unwrap_or_default();
            let (tenant, volume) = names(answer, row);
            let _ = writeln!(text, "  no answer for {tenant}, {volume}, {}: {reason}", row.op);
        }
    }
    objectives(&mut text, answer);
    evidence(&mut text, answer);
    for reason in &answer.refused {
        let _ = writeln!(text, "not answered: {reason}");
    }
    text
}

/// The names of a row's tenant and volume, or their numbers.
fn names(answer: &Answer, row: &Compared) -> (String, String) {
    let volume = answer.volumes.get(row.volume).cloned();
    (tenant(answer, row.tenant), volume.unwrap_or_else(|| format!("volume {}", row.volume)))
}

fn tenant(answer: &Answer, tenant: usize) -> String {
    let name = answer.tenants.get(tenant).cloned();
    name.unwrap_or_else(|| format!("tenant {tenant}"))
}

fn cells(answer: &Answer, row: &Compared) -> Vec<String> {
    let (tenant, volume) = names(answer, row);
    let none = || "-".to_owned();
    let would = row.would.as_ref();
    let was = &row.was;
    let least = if row.at_least { ">= " } else { "" };
    let mean = |nanos: f64| format!("{:.3}", nanos / 1e6);
    let range = row.range.as_ref();
    let p50 = range.map(|(low, high)| change(was.p50_ns, low.p50_ns, high.p50_ns));
    let p99 = range.map(|(low, high)| change(was.p99_ns, low.p99_ns, high.p99_ns));
    let has_p99 = was.requests >= FEWEST_P99;
    let only_long = |cell: Option<String>| cell.filter(|_| has_p99).unwrap_or_else(none);
    vec![
        tenant,
        volume,
        row.op.to_owned(),
        was.requests.to_string(),
        format!("{:.1}", was.iops),
        would.map_or_else(none, |would| format!("{least}{:.1}", would.iops)),
        mean(was.mean_ns),
        would.map_or_else(none, |would| mean(would.mean_ns)),
        millis(was.p50_ns),
        would.map_or_else(none, |would| millis(would.p50_ns)),
        p50.unwrap_or_else(none),
        millis(was.p99_ns),
        only_long(would.map(|would| millis(would.p99_ns))),
        only_long(p99),
    ]
}

/// The change in per cent, from the lowest to the highest run.
fn change(was: u64, low: u64, high: u64) -> String {
    let percent = |would: u64| (would as f64 / was.max(1) as f64 - 1.0) * 100.0;
    let (low, high) = (percent(low), percent(high));
    if low.abs() < 1.0 && high.abs() < 1.0 {
        return "none".to_owned();
    }
    let (low, high) = (format!("{low:+.0}"), format!("{high:+.0}"));
    if low == high { format!("{low} %") } else { format!("{low} to {high} %") }
}

fn objectives(text: &mut String, answer: &Answer) {
    for (title, pick) in [("recorded", true), ("as they would have been", false)] {
        let names: Vec<_> =
            answer.objectives.iter().map(|objectives| tenant(answer, objectives.tenant)).collect();
        let each = names.iter().zip(&answer.objectives).map(|(name, objectives)| {
            let targets = if pick { &objectives.was } else { &objectives.would };
            (name.as_str(), targets.as_slice())
        });
        if let Some(table) = targets(each) {
            let _ = writeln!(text, "\nObjectives, {title}");
            text.push_str(&table);
        }
    }
}

fn evidence(text: &mut String, answer: &Answer) {
    if answer.checks.is_empty() {
        return;
    }
    let _ = match answer.device {
        "recorded" => writeln!(text, "\nDevice: recorded times, the schedule stays the same"),
        "named" => writeln!(
            text,
            "\nDevice: the named model, which nothing compares with the recorded one"
        ),
        _ => writeln!(text, "\nDevice: models fitted from the recording"),
    };
    for fitted in &answer.fits {
        text.push_str(&model(fitted));
    }
    let total = answer.requests.iter().sum::<usize>().max(1) as f64;
    let share = |requests: usize| 100.0 * requests as f64 / total;
    let [open, mixed, closed] = answer.requests.map(share);
    let _ = writeln!(
        text,
        "Arrivals: {open:.0} % open, {mixed:.0} % mixed, {closed:.0} % closed; hosts held a request back for {:.3} ms \
         on average",
        answer.host_wait_ns / 1e6
    );
    for check in &answer.checks {
        let _ = writeln!(
            text,
            "Check, {}: p50 {:+.1} %, p99 {:+.1} % at most: {}",
            check.what,
            check.p50 * 100.0,
            check.p99 * 100.0,
            if check.passed { "passed" } else { "failed" }
        );
    }
    if answer.beyond > 0.05 {
        let _ = writeln!(
            text,
            "Warning: {:.0} % of the I/Os are at depths that were not recorded",
            answer.beyond * 100.0
        );
    }
}

fn model(fitted: &Fitted) -> String {
    let (fewest, most) = fitted.consistent;
    let agree = if fewest == most { String::new() } else { format!(" ({fewest} to {most} agree)") };
    let grade = serde_json::to_value(fitted.grade).ok();
    let grade = grade.as_ref().and_then(|grade| grade.as_str()).unwrap_or_default();
    format!(
        "  backend {}, path {}: {} servers{agree}, error {:.1} % ({grade}), {} I/Os, depth up to {}\n",
        fitted.backend,
        fitted.path,
        fitted.servers,
        fitted.error * 100.0,
        fitted.ios,
        fitted.depth
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change has the sign of the difference, and its range if runs differ.
    #[test]
    fn changes_have_signs() {
        assert_eq!(change(1_000, 1_005, 1_009), "none");
        assert_eq!(change(1_000, 500, 500), "-50 %");
        assert_eq!(change(1_000, 1_200, 1_300), "+20 to +30 %");
        assert_eq!(change(0, 0, 0), "-100 %");
    }
}
