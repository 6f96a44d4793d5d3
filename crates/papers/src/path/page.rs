//! The tables and pictures of the path study.

use super::Sample;
use super::study::{
    CalmRow, Course, FaultRow, OutageRow, PrintedRow, ResponseRow, RuleRow, SlowRow, SpreadRow,
    Study, ThresholdRow,
};
use crate::chapter::Part;
use crate::html::escape;
use std::fmt::Write as _;
use weir_sim::table::{Align, Column, Table, numbers, words};

/// The tables and pictures of the study.
pub(crate) fn parts(study: &Study) -> Vec<Part> {
    let title = "Table 1: as printed, with one digit per block repaired, as measured";
    let mut parts = vec![Part::table(title, Table::of(PRINTED, &study.printed))];
    for situation in ["A", "B constant", "B uniform", "80/20"] {
        let rows: Vec<_> = study.spreads.iter().filter(|row| row.situation == situation).collect();
        let Some(first) = rows.first() else { continue };
        let title = format!(
            "Situation {situation}, 10,000 files, {}: seconds that each path served, the end, times \
             faster than rr, times that one path served longer",
            runs(first.runs)
        );
        parts.push(Part::table(title, spreads(&rows)));
    }
    parts.extend([
        Part::table(
            "The reading `job` by load, in seconds",
            Table::of(LOADS, study.loads.iter().filter(|row| row.selector != "rr")),
        ),
        Part::table(
            "More paths: seconds for 8000 I/Os in a closed loop; mean ms at load 0.8, heavy tails \
             (paths used, if not all)",
            rules(&study.rules),
        ),
        Part::table(
            "Thresholds of roung on two paths, situation A in a closed loop, seconds",
            Table::of(THRESHOLDS, &study.thresholds),
        ),
    ]);
    let selectors = "mean/p99 in ms";
    for (rows, title) in [
        (&study.responses, "Poisson arrivals on paths of one speed"),
        (&study.speeds, "Poisson arrivals on two paths of different speeds"),
        (&study.traces, "Traces on two paths, the busiest tenth at load 0.6"),
    ] {
        let Some(first) = rows.first() else { continue };
        let title = format!("{title}, {selectors}, {}", runs(first.runs));
        parts.push(Part::table(title, responses(rows)));
    }
    for (fault, sizes, title) in FAULT_PARTS {
        let mine = |row: &&FaultRow| (row.fault, row.sizes) == (fault, sizes);
        let rows: Vec<_> = study.faults.iter().filter(mine).collect();
        let Some(first) = rows.first() else { continue };
        let courses: Vec<_> =
            study.courses.iter().filter(|row| (row.fault, row.sizes) == (fault, sizes)).collect();
        let title = format!("{title}, {}", runs(first.runs));
        parts.push(Part::table(title, Table::of(FAULTS, rows)));
        let pictures = courses.iter().map(|course| picture(course, &courses)).collect();
        let title = format!("The same over time, first run: {fault}, {sizes}");
        parts.push(Part::pictures(title, pictures));
    }
    if let Some(first) = study.outages.first() {
        let title = format!(
            "Four paths in two groups fail one after the other and are repaired; sums of {} runs",
            first.runs
        );
        parts.push(Part::table(title, Table::of(OUTAGES, &study.outages)));
    }
    parts.extend([
        Part::table(
            "Two equal paths with pauses of machine, drive and switch, eight hosts: ejections",
            Table::of(CALM, &study.calm),
        ),
        Part::table(
            "The same while the second path is slow for 10 s: seconds until its share of I/Os is a tenth, and from its \
             repair until it is in use; median and longest",
            Table::of(SLOWDOWNS, &study.slowdowns),
        ),
    ]);
    parts
}

const CALM: &[Column<CalmRow>] = &[
    words("selector", |row| row.selector.to_owned()),
    numbers("hours", |row| format!("{:.1}", row.hours)),
    numbers("I/Os", |row| row.ios.to_string()),
    numbers("ejections", |row| row.ejections.to_string()),
    numbers("of a path in a day", |row| format!("{:.2}", row.ejections_in_a_day())),
    numbers("left as silent", |row| row.silent.to_string()),
];

const SLOWDOWNS: &[Column<SlowRow>] = &[
    words("selector", |row| row.selector.to_owned()),
    numbers("times slower", |row| row.factor.to_string()),
    numbers("runs", |row| row.runs.to_string()),
    numbers("ejected in", |row| row.ejected.to_string()),
    numbers("left after", |row| seconds(row.left_s)),
    numbers("used again after", |row| seconds(row.back_s)),
];

/// The median and the longest.
fn seconds((median, longest): (f64, f64)) -> String {
    format!("{median:.1}/{longest:.1} s")
}

fn runs(count: u32) -> String {
    if count == 1 { "one run".to_owned() } else { format!("means of {count} runs") }
}

const FAULT_PARTS: [(&str, &str, &str); 4] = [
    ("slow", "fixed", "A path is 20 times slower for the middle third, equal sizes, load 0.4"),
    ("slow", "pareto", "A path is 20 times slower for the middle third, heavy tails, load 0.4"),
    ("stall", "fixed", "A path stalls for 2 s, equal sizes, load 0.4"),
    ("stall", "pareto", "A path stalls for 2 s, heavy tails, load 0.4"),
];

const PRINTED: &[Column<PrintedRow>] = &[
    words("block", |row| row.block.to_owned()),
    words("figure", |row| row.figure.to_owned()),
    numbers("printed", |row| format!("{:.2}", row.printed)),
    numbers("repaired", |row| format!("{:.2}", row.repaired)),
    numbers("measured", |row| format!("{:.2}", row.measured)),
    numbers("mean of the rows printed", |row| {
        row.means.map_or_else(String::new, |(printed, _)| format!("{printed:.3}"))
    }),
    numbers("repaired", |row| {
        row.means.map_or_else(String::new, |(_, repaired)| format!("{repaired:.3}"))
    }),
];

/// A time for each path.
fn served(row: &SpreadRow) -> String {
    format!("{:.1}/{:.1}", row.served_s[0], row.served_s[1])
}

/// How much longer one path served; far out it does not matter how much.
fn imbalance(row: &SpreadRow) -> String {
    if row.imbalance > 100.0 { "total".to_owned() } else { format!("{:.3}", row.imbalance) }
}

const SPREADS: &[(&str, Align)] = &[
    ("arrivals", Align::Left),
    ("rr", Align::Right),
    ("end", Align::Right),
    ("roung", Align::Right),
    ("end", Align::Right),
    ("faster", Align::Right),
    ("imbalance", Align::Right),
    ("roung-job", Align::Right),
    ("end", Align::Right),
    ("faster", Align::Right),
    ("imbalance", Align::Right),
];

fn spreads(rows: &[&SpreadRow]) -> Table {
    let mut table = Table::new(SPREADS);
    for row in rows.iter().filter(|row| row.selector == "rr") {
        let mut cells = vec![row.arrivals.to_owned(), served(row), format!("{:.1}", row.end_s)];
        for selector in ["roung", "roung-job"] {
            let same =
                |other: &&&SpreadRow| (other.arrivals, other.selector) == (row.arrivals, selector);
            if let Some(row) = rows.iter().find(same) {
                cells.extend([
                    served(row),
                    format!("{:.1}", row.end_s),
                    format!("{:.2}", row.speed_up),
                    imbalance(row),
                ]);
            }
        }
        cells.resize(SPREADS.len(), String::new());
        table.row(cells);
    }
    table
}

const LOADS: &[Column<SpreadRow>] = &[
    words("situation", |row| row.situation.to_owned()),
    words("arrivals", |row| row.arrivals.to_owned()),
    numbers("rr end", |row| format!("{:.1}", row.end_s * row.speed_up)),
    numbers("roung-job", served),
    numbers("end", |row| format!("{:.1}", row.end_s)),
    numbers("faster", |row| format!("{:.2}", row.speed_up)),
    numbers("imbalance", imbalance),
];

/// Rows by their first name, columns by their second.
fn pivot<T>(
    corner: &str,
    rows: &[T],
    names: impl Fn(&T) -> (String, String),
    cell: impl Fn(&T) -> String,
) -> Table {
    let (mut downs, mut acrosses) = (Vec::new(), Vec::new());
    for (down, across) in rows.iter().map(&names) {
        if !downs.contains(&down) {
            downs.push(down);
        }
        if !acrosses.contains(&across) {
            acrosses.push(across);
        }
    }
    let mut columns = vec![(corner, Align::Left)];
    columns.extend(acrosses.iter().map(|across| (across.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for down in &downs {
        let figure = |across: &String| {
            let found = rows.iter().find(|row| names(row) == (down.clone(), across.clone()));
            found.map_or_else(|| "-".to_owned(), &cell)
        };
        let mut cells = vec![down.clone()];
        cells.extend(acrosses.iter().map(figure));
        table.row(cells);
    }
    table
}

fn rules(rows: &[RuleRow]) -> Table {
    let cell = |row: &RuleRow| {
        let used = if row.used == row.paths { String::new() } else { format!(" ({})", row.used) };
        format!("{:.2}; {:.3}{used}", row.closed_s, row.mean_ms)
    };
    pivot("paths", rows, |row| (row.paths.to_string(), row.rule.to_owned()), cell)
}

const THRESHOLDS: &[Column<ThresholdRow>] = &[
    numbers("threshold", |row| row.threshold.to_string()),
    numbers("4 outstanding", |row| format!("{:.1}", row.end_s[0])),
    numbers("16", |row| format!("{:.1}", row.end_s[1])),
    numbers("64", |row| format!("{:.1}", row.end_s[2])),
];

/// Milliseconds with as many decimals as fit.
fn millis(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn responses(rows: &[ResponseRow]) -> Table {
    let names = |row: &ResponseRow| {
        let paths = match row.paths {
            "2" => String::new(),
            "4" => " 4 paths".to_owned(),
            ratio => format!(" {ratio}"),
        };
        let across = format!("{}{paths}, {}", row.workload, row.load);
        (row.selector.to_owned(), across)
    };
    let cell = |row: &ResponseRow| format!("{}/{}", millis(row.mean_ms), millis(row.p99_ms));
    pivot("selector", rows, names, cell)
}

const FAULTS: &[Column<FaultRow>] = &[
    words("selector", |row| row.selector.to_owned()),
    numbers("mean ms", |row| format!("{:.2}", row.mean_ms)),
    numbers("p99 ms", |row| format!("{:.1}", row.p99_ms)),
    numbers("p99.9 ms", |row| format!("{:.1}", row.p999_ms)),
    numbers("over 100 ms", |row| format!("{:.1}", row.long)),
    numbers("most in a run", |row| row.long_most.to_string()),
    numbers("mean after ms", |row| format!("{:.2}", row.after_ms)),
    numbers("share after", |row| format!("{:.2}", row.after_share)),
];

const OUTAGES: &[Column<OutageRow>] = &[
    words("selector", |row| row.selector.to_owned()),
    words("without a path", |row| if row.holds { "wait" } else { "fail" }.to_owned()),
    numbers("done", |row| row.done.to_string()),
    numbers("failed", |row| row.failed.to_string()),
    numbers("came without a path", |row| row.came_without.to_string()),
    numbers("failed at once", |row| row.failed_at_once.to_string()),
    numbers("lost", |row| row.lost.to_string()),
    numbers("retried", |row| row.retried.to_string()),
    numbers("longest ms", |row| format!("{:.0}", row.longest_ms)),
    numbers("second group after", |row| format!("{:.2}", row.second_group)),
];

/// Response over time under one selector, on a logarithmic scale that all of them share.
fn picture(course: &Course, all: &[&Course]) -> String {
    let end = all.iter().flat_map(|course| &course.samples).map(|sample| sample.seconds);
    let end = end.fold(course.trouble.1, f64::max).max(1e-9);
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - 4.0);
    let y = |ms: f64| {
        let decades = (ms.clamp(LEAST_MS, MOST_MS) / LEAST_MS).log10();
        BOTTOM - decades / (MOST_MS / LEAST_MS).log10() * (BOTTOM - TOP)
    };
    let mut page = String::new();
    let height = BOTTOM + 16.0;
    let _ = write!(
        page,
        "<figure><svg viewBox=\"0 0 {WIDTH} {height}\" width={WIDTH} height={height}>\
         <text x=0 y=12 class=t>{}</text><text x=70 y=12>mean (blue), longest (red), trouble (grey)</text>\
         <rect x={:.1} y={TOP} width={:.1} height={:.1} class=on />",
        escape(course.selector),
        x(course.trouble.0),
        x(course.trouble.1) - x(course.trouble.0),
        BOTTOM - TOP
    );
    let mut ms = LEAST_MS;
    while ms <= MOST_MS * 1.01 {
        let at = y(ms);
        let label = if ms < 1_000.0 { format!("{ms} ms") } else { format!("{} s", ms / 1e3) };
        let _ = write!(
            page,
            "<path d=\"M{LEFT} {at:.1}H{WIDTH}\" class=grid /><text x={:.0} y={:.1} text-anchor=end>{label}</text>",
            LEFT - 4.0,
            at + 4.0
        );
        ms *= 10.0;
    }
    let line = |value: fn(&Sample) -> f64| {
        let points =
            course.samples.iter().map(|s| format!("{:.1},{:.1}", x(s.seconds), y(value(s))));
        points.collect::<Vec<_>>().join(" ")
    };
    let _ = writeln!(
        page,
        "<polyline class=time points=\"{}\" /><polyline class=flight points=\"{}\" />\
         <text x={LEFT} y={height}>0</text><text x={WIDTH} y={height} text-anchor=end>{end:.1} s</text></svg></figure>",
        line(|sample| sample.longest_ms),
        line(|sample| sample.mean_ms)
    );
    page
}

/// A picture in pixels: its width, where the scale ends and the lines begin, their top and bottom.
const WIDTH: f64 = 420.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 150.0;

/// The scale of pictures in milliseconds.
const LEAST_MS: f64 = 0.01;
const MOST_MS: f64 = 10_000.0;
