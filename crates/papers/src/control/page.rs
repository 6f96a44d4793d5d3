//! The tables and pictures of the control study.

use super::study::{self, IdleRow, Row, ScenarioRow, Study};
use super::{Course, Sample, TenantFigures};
use crate::chapter::Part;
use std::fmt::Write as _;
use weir_sim::table::{Column, Table, numbers, words};

/// The tables and pictures of the study.
pub(crate) fn parts(study: &Study) -> Vec<Part> {
    let mut parts = Vec::new();
    for table in &study.tables {
        let study::Table { set, arrivals, seeds, .. } = table;
        let shown = [(3, 0), (7, 1), (6, 0), (8, 1)];
        parts.push(Part {
            title: format!("Set {set}, {arrivals} arrivals, means of {seeds} runs; W1/W2 in pairs"),
            pictures: shown.map(|(interval, tenant)| bars(table, interval, tenant)).to_vec(),
            table: Some(Table::of(INTERVALS, &table.rows)),
        });
    }
    let courses = study.courses.iter();
    let pictures =
        courses.flat_map(|(policy, course)| [series(policy, course), phases(policy, course)]);
    parts.push(Part::pictures("Interval 3 of set A as it goes", pictures.collect()));
    parts.extend([
        Part::table(
            "Scenarios: the worst tenant who keeps its contract, and all requests",
            Table::of(SCENARIOS, &study.scenarios),
        ),
        Part::table("W2 alone, asking for 98 % of both contracts", Table::of(IDLE, &study.idle)),
    ]);
    parts
}

const INTERVALS: &[Column<Row>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("int", |row| row.interval.to_string()),
    numbers("asked req/s", |row| pair(row, |tenant| tenant.offered_per_second)),
    numbers("req/s", |row| pair(row, |tenant| tenant.completed_per_second)),
    numbers("both", |row| {
        let [first, second] = &row.tenants;
        format!("{:.0}", first.completed_per_second + second.completed_per_second)
    }),
    numbers("satisfied %", |row| {
        let [first, second] = &row.tenants;
        format!("{:.1}/{:.1}", 100.0 * first.satisfied, 100.0 * second.satisfied)
    }),
    numbers("device p99 ms", |row| pair(row, |tenant| tenant.device_p99_ms)),
    numbers("switch-ons", |row| pair(row, |tenant| tenant.switched_on)),
    numbers("on-time %", |row| pair(row, |tenant| 100.0 * tenant.on_share)),
];

/// A figure of both tenants in whole numbers.
fn pair(row: &Row, figure: fn(&TenantFigures) -> f64) -> String {
    let [first, second] = &row.tenants;
    format!("{:.0}/{:.0}", figure(first), figure(second))
}

const SCENARIOS: &[Column<ScenarioRow>] = &[
    words("scenario", |row| format!("S{}: {}", row.scenario, row.title)),
    words("policy", |row| row.policy.to_owned()),
    numbers("worst conforming %", |row| format!("{:.1}", 100.0 * row.worst)),
    numbers("req/s", |row| format!("{:.0}", row.completed_per_second)),
    numbers("later %", |row| {
        row.later.map_or_else(String::new, |(share, _)| format!("{:.1}", 100.0 * share))
    }),
    numbers("req/s", |row| row.later.map_or_else(String::new, |(_, rate)| format!("{rate:.0}"))),
];

const IDLE: &[Column<IdleRow>] = &[
    words("set", |row| row.set.to_owned()),
    words("arrivals", |row| row.arrivals.to_owned()),
    words("policy", |row| row.policy.to_owned()),
    numbers("asked req/s", |row| format!("{:.0}", row.tenant.offered_per_second)),
    numbers("req/s", |row| format!("{:.0}", row.tenant.completed_per_second)),
];

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
