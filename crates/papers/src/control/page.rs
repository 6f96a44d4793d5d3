//! How the study of the control policies is shown.

use crate::chapter::{Chapter, Part};
use crate::control::study::{self, Study};
use crate::control::{Course, Sample};
use std::fmt::Write as _;
use weir_sim::table::{Align, Table};

/// The study as a chapter.
pub fn chapter(name: &'static str, study: Study) -> serde_json::Result<Chapter> {
    let mut parts = Vec::new();
    for table in &study.tables {
        let study::Table { set, arrivals, seeds, .. } = table;
        let shown = [(3, 0), (7, 1), (6, 0), (8, 1)];
        parts.push(Part {
            title: format!("Set {set}, {arrivals} arrivals, means of {seeds} runs; W1/W2 in pairs"),
            pictures: shown.map(|(interval, tenant)| bars(table, interval, tenant)).to_vec(),
            table: Some(intervals(table)),
        });
    }
    let pictures = study
        .courses
        .iter()
        .flat_map(|(policy, course)| [series(policy, course), phases(policy, course)]);
    parts.push(Part {
        title: "Interval 3 of set A as it goes".to_owned(),
        pictures: pictures.collect(),
        table: None,
    });
    for (title, table) in [
        ("Scenarios: the worst tenant who keeps its contract, and all requests", scenarios(&study)),
        ("W2 alone, asking for 98 % of both contracts", idle(&study)),
        (
            "Told a share of the true capacity; cells that must be satisfied in 3, 5, 6, 7 and 8",
            stated(&study),
        ),
    ] {
        parts.push(Part { title: title.to_owned(), pictures: Vec::new(), table: Some(table) });
    }
    let value = serde_json::to_value(&study)?;
    Ok(Chapter { name, seed: study.seed, claims: study.claims, parts, value })
}

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

fn intervals(table: &study::Table) -> Table {
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

fn scenarios(study: &Study) -> Table {
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

fn idle(study: &Study) -> Table {
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

fn stated(study: &Study) -> Table {
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

/// Throughput as bars, by policy, with what a tenant that keeps its contract has of it.
fn bars(table: &study::Table, interval: u32, tenant: usize) -> String {
    let mut page = String::new();
    let rows: Vec<_> = table.rows.iter().filter(|row| row.interval == interval).collect();
    let total = |row: &study::Row| -> f64 {
        row.tenants.iter().map(|tenant| tenant.completed_per_second).sum()
    };
    let most = rows.iter().map(|row| total(row)).fold(1.0, f64::max);
    let height = 18 * rows.len() + 24;
    let _ = writeln!(
        &mut page,
        "<figure><svg viewBox=\"0 0 460 {height}\" width=460 height={height}><text x=0 y=14 class=t>\
         Interval {interval}: requests/s, satisfied of W{}</text>",
        tenant + 1
    );
    for (index, row) in rows.iter().enumerate() {
        let (y, rate) = (22 + 18 * index, total(row));
        let share = 100.0 * row.tenants[tenant].satisfied;
        let class = if share >= 96.5 { "good" } else { "bad" };
        let _ = writeln!(
            &mut page,
            "<text x=0 y={}>{}</text><rect x=90 y={y} height=14 width={:.1} class={class} />\
             <text x=345 y={}>{rate:.0}, {share:.1} %</text>",
            y + 12,
            row.policy,
            rate / most * 250.0,
            y + 12
        );
    }
    page.push_str("</svg></figure>\n");
    page
}

/// Requests at the device and the first tenant's response time over time, with the second tenant's
/// switch.
fn series(policy: &str, course: &Course) -> String {
    let mut page = String::new();
    let (end, highest, longest) = extent(course);
    let x = |seconds: f64| seconds / end * 900.0;
    let _ = writeln!(
        &mut page,
        "<figure><svg viewBox=\"0 0 900 200\" width=900 height=200><text x=0 y=12 class=t>{policy}, over {end:.0} s: \
         requests at the device (blue, to {highest:.0}), response time of W1 (red, to \
         {longest:.0} ms), bucket of W2 on (grey)</text>"
    );
    let mut since = None;
    for gate in course.gates.iter().filter(|gate| gate.tenant == 1) {
        match (gate.on, since) {
            (true, _) => since = Some(gate.seconds),
            (false, Some(from)) => {
                let width = (x(gate.seconds) - x(from)).max(0.3);
                let _ = write!(
                    &mut page,
                    "<rect x={:.1} y=20 height=180 width={width:.1} class=on />",
                    x(from)
                );
                since = None;
            }
            (false, None) => {}
        }
    }
    let line = |value: fn(&Sample) -> f64, highest: f64| {
        let points = course.samples.iter().map(|sample| {
            let height = value(sample) / highest * 180.0;
            format!("{:.1},{:.1}", x(sample.seconds), 200.0 - height)
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let _ = writeln!(
        &mut page,
        "<polyline class=flight points=\"{}\" /><polyline class=time points=\"{}\" /></svg></figure>",
        line(|sample| f64::from(sample.inflight), highest),
        line(|sample| sample.response_ms, longest)
    );
    page
}

/// Response time against requests at the device, from sample to sample.
fn phases(policy: &str, course: &Course) -> String {
    let mut page = String::new();
    let (_, highest, longest) = extent(course);
    let points = course.samples.iter().map(|sample| {
        let x = f64::from(sample.inflight) / highest * 380.0;
        let y = sample.response_ms / longest * 260.0;
        format!("{x:.1},{:.1}", 280.0 - y)
    });
    let _ = writeln!(
        &mut page,
        "<figure><svg viewBox=\"0 0 480 300\" width=480 height=300><text x=0 y=12 class=t>{policy}; across: requests \
         at the device, to {highest:.0}; up: response time of W1, to {longest:.0} ms</text>\
         <polyline class=phase points=\"{}\" /></svg></figure>",
        points.collect::<Vec<_>>().join(" ")
    );
    page
}

/// Length of a course in seconds, the most requests at the device, and the longest response time in
/// milliseconds.
fn extent(course: &Course) -> (f64, f64, f64) {
    let end = course.samples.last().map_or(1.0, |sample| sample.seconds);
    let most = course.samples.iter().map(|sample| f64::from(sample.inflight)).fold(1.0, f64::max);
    let longest = course.samples.iter().map(|sample| sample.response_ms).fold(1.0, f64::max);
    (end, most, longest)
}
