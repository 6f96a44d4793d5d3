//! A study as one page for a browser, with nothing outside it.

use super::text;
use crate::table::{Align, Table};
use std::fmt::Write as _;
use weir_sim::experiment::Course;
use weir_sim::experiment::study::{self, Study};

/// The page.
pub(super) fn page(found: &[(&str, Study)]) -> String {
    let mut page = String::from(HEAD);
    for (name, study) in found {
        let _ = writeln!(page, "<h1>Experiment {name}, seed {}</h1><h2>Claims</h2>", study.seed);
        table(&mut page, &text::claims(study));
        page.push_str("<details><summary>What is behind them</summary><ul>");
        for claim in study.claims.iter().filter(|claim| !claim.note.is_empty()) {
            let (id, set, arrivals) = (claim.id, claim.set, claim.arrivals);
            let _ = writeln!(page, "<li><b>{id} {set} {arrivals}</b> {}", escape(&claim.note));
        }
        page.push_str("</ul></details>");
        for intervals in &study.tables {
            let study::Table { set, arrivals, seeds, .. } = intervals;
            let _ =
                writeln!(page, "<h2>Set {set}, {arrivals} arrivals, means of {seeds} runs</h2>");
            for (interval, tenant) in [(3, 0), (7, 1), (6, 0), (8, 1)] {
                bars(&mut page, intervals, interval, tenant);
            }
            page.push_str("<details><summary>All figures, W1/W2 in pairs</summary>");
            table(&mut page, &text::intervals(intervals));
            page.push_str("</details>");
        }
        page.push_str("<h2>Interval 3 of set A as it goes</h2>");
        for (policy, course) in &study.courses {
            let _ = writeln!(page, "<h3>{policy}</h3>");
            series(&mut page, course);
            phases(&mut page, course);
        }
        page.push_str("<h2>Scenarios</h2>");
        table(&mut page, &text::scenarios(study));
        page.push_str("<h2>W2 alone, asking for 98 % of both contracts</h2>");
        table(&mut page, &text::idle(study));
        page.push_str("<h2>Told a share of the true capacity</h2>");
        table(&mut page, &text::stated(study));
    }
    page.push_str("</body></html>\n");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn table(page: &mut String, table: &Table) {
    page.push_str("<table><tr>");
    for (name, align) in table.columns() {
        let _ = write!(page, "<th{}>{}</th>", class(*align), escape(name));
    }
    page.push_str("</tr>");
    for row in table.rows() {
        page.push_str("<tr>");
        for (cell, (_, align)) in row.iter().zip(table.columns()) {
            let _ = write!(page, "<td{}>{}</td>", class(*align), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

const fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=n",
    }
}

/// Throughput as bars, by policy, with what a tenant that keeps its contract has of it.
fn bars(page: &mut String, table: &study::Table, interval: u32, tenant: usize) {
    let rows: Vec<_> = table.rows.iter().filter(|row| row.interval == interval).collect();
    let total = |row: &study::Row| -> f64 {
        row.tenants.iter().map(|tenant| tenant.completed_per_second).sum()
    };
    let most = rows.iter().map(|row| total(row)).fold(1.0, f64::max);
    let height = 18 * rows.len() + 24;
    let _ = writeln!(
        page,
        "<figure><svg viewBox=\"0 0 460 {height}\" width=460 height={height}><text x=0 y=14 class=t>\
         Interval {interval}: requests/s, satisfied of W{}</text>",
        tenant + 1
    );
    for (index, row) in rows.iter().enumerate() {
        let (y, rate) = (22 + 18 * index, total(row));
        let share = 100.0 * row.tenants[tenant].satisfied;
        let class = if share >= 96.5 { "good" } else { "bad" };
        let _ = writeln!(
            page,
            "<text x=0 y={}>{}</text><rect x=90 y={y} height=14 width={:.1} class={class} />\
             <text x=345 y={}>{rate:.0}, {share:.1} %</text>",
            y + 12,
            row.policy,
            rate / most * 250.0,
            y + 12
        );
    }
    page.push_str("</svg></figure>\n");
}

/// Requests at the device and the first tenant's response time over time, with the second tenant's
/// switch.
fn series(page: &mut String, course: &Course) {
    let (end, highest, longest) = extent(course);
    let x = |seconds: f64| seconds / end * 900.0;
    let _ = writeln!(
        page,
        "<figure><svg viewBox=\"0 0 900 200\" width=900 height=200><text x=0 y=12 class=t>Over {end:.0} s: \
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
                    page,
                    "<rect x={:.1} y=20 height=180 width={width:.1} class=on />",
                    x(from)
                );
                since = None;
            }
            (false, None) => {}
        }
    }
    let line = |value: fn(&weir_sim::experiment::Sample) -> f64, highest: f64| {
        let points = course.samples.iter().map(|sample| {
            let height = value(sample) / highest * 180.0;
            format!("{:.1},{:.1}", x(sample.seconds), 200.0 - height)
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let _ = writeln!(
        page,
        "<polyline class=flight points=\"{}\" /><polyline class=time points=\"{}\" /></svg></figure>",
        line(|sample| f64::from(sample.inflight), highest),
        line(|sample| sample.response_ms, longest)
    );
}

/// Response time against requests at the device, from sample to sample.
fn phases(page: &mut String, course: &Course) {
    let (_, highest, longest) = extent(course);
    let points = course.samples.iter().map(|sample| {
        let x = f64::from(sample.inflight) / highest * 380.0;
        let y = sample.response_ms / longest * 260.0;
        format!("{x:.1},{:.1}", 280.0 - y)
    });
    let _ = writeln!(
        page,
        "<figure><svg viewBox=\"0 0 480 300\" width=480 height=300><text x=0 y=12 class=t>Across: requests \
         at the device, to {highest:.0}; up: response time of W1, to {longest:.0} ms</text>\
         <polyline class=phase points=\"{}\" /></svg></figure>",
        points.collect::<Vec<_>>().join(" ")
    );
}

/// Length of a course in seconds, the most requests at the device, and the longest response time in
/// milliseconds.
fn extent(course: &Course) -> (f64, f64, f64) {
    let end = course.samples.last().map_or(1.0, |sample| sample.seconds);
    let most = course.samples.iter().map(|sample| f64::from(sample.inflight)).fold(1.0, f64::max);
    let longest = course.samples.iter().map(|sample| sample.response_ms).fold(1.0, f64::max);
    (end, most, longest)
}

const HEAD: &str = "<!doctype html>
<html lang=en><head><meta charset=utf-8><title>weir reproduce</title><style>
body { font: 14px sans-serif; margin: 2em; max-width: 110em }
table { border-collapse: collapse; margin: .5em 0 } th, td { padding: .1em .7em; text-align: left }
th { border-bottom: 1px solid } tr:nth-child(even) { background: #f4f4f4 } .n { text-align: right }
figure { display: inline-block; margin: .5em } svg { font: 11px sans-serif } .t { font-weight: bold }
.good { fill: #4a90c2 } .bad { fill: #c8553d } .on { fill: #ddd }
polyline { fill: none; stroke-width: .8 } .flight { stroke: #2a6fa8 } .time { stroke: #c8553d }
.phase { stroke: #2a6fa8; stroke-width: .3 }
</style></head><body>
";
