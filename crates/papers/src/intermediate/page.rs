//! The tables and pictures of the study of the intermediate target.

use super::study::{AheadRow, DepthRow, HitRow, ReadRow, Study, WriteRow};
use crate::chapter::Part;
use std::fmt::Write as _;
use weir_sim::table::{Align, Column, Table, numbers, words};

/// The tables and pictures of the study.
pub(crate) fn parts(study: &Study) -> Vec<Part> {
    let mut parts = Vec::new();
    for (reading, what) in [
        ("R1", "144 kbit/s, 7:3"),
        ("R2", "14.4 kbit/s, 3:7"),
        ("printed", "14.4 kbit/s, 7:3, as printed"),
    ] {
        let rows: Vec<_> = study.reads.iter().filter(|row| row.reading == reading).collect();
        let direct = direct(&rows, |row| (row.delay_ms, row.direct_bits));
        let curves = |figure| curves(&rows, |row: &ReadRow| row.data, figure);
        let [bits, rates, time]: [Figure<ReadRow>; 3] =
            [|row| row.through_bits / 1e3, |row| row.mean_of_rates, |row| row.bytes_over_time];
        let mut throughput = vec![("direct", kilo(&direct))];
        throughput.extend(curves(bits));
        parts.push(Part {
            title: format!(
                "Figure 6, reads, {what}: gain in %, mean of rates/bytes over time, by delay in ms"
            ),
            pictures: vec![
                picture("Throughput in kbit/s: bytes over time", &direct, &throughput),
                picture("Gain in %: mean of rates", &direct, &curves(rates)),
                picture("Gain in %: bytes over time", &direct, &curves(time)),
            ],
            table: Some(reads(&rows)),
        });
    }
    let rows: Vec<_> = study.writes.iter().collect();
    let direct = direct(&rows, |row| (row.delay_ms, row.direct_bits));
    let mut throughput = vec![("direct", kilo(&direct))];
    throughput.extend(curves(&rows, |row| row.split, |row| row.through_bits / 1e3));
    let gains = curves(&rows, |row| row.split, |row| row.gain);
    parts.push(Part {
        title: "Figure 7, writes, 14.4 kbit/s: bit/s and gain in %, by delay in ms".to_owned(),
        pictures: vec![
            picture("Throughput in kbit/s", &direct, &throughput),
            picture("Gain in %", &direct, &gains),
        ],
        table: Some(writes(&rows)),
    });
    let runs = study.hits.first().map_or(0, |row| row.runs);
    parts.extend([
        Part::table(
            format!("Hits of generated reads at 64 ms, FIFO of 64 blocks, next block; {runs} runs"),
            Table::of(HITS, &study.hits),
        ),
        Part::table(
            "Writes by how many are outstanding, 1:9 of 64 ms",
            Table::of(DEPTHS, &study.depths),
        ),
        Part::table("What write-back leaves at 64 ms", left_out(study)),
        Part::table(
            "Sequential reads at 1 Gbit/s, 50 us and 20 ms, next block",
            Table::of(AHEAD, &study.ahead),
        ),
    ]);
    parts
}

/// The rows of each name, in the order of the names' first.
fn named<'a, T>(
    rows: &[&'a T],
    name: fn(&T) -> &'static str,
) -> impl Iterator<Item = (&'static str, Vec<&'a T>)> {
    let mut groups: Vec<(&'static str, Vec<&'a T>)> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|(group, _)| *group == name(row)) {
            Some((_, group)) => group.push(row),
            None => groups.push((name(row), vec![row])),
        }
    }
    groups.into_iter()
}

/// The curve without the intermediate target, which every name has.
fn direct<T>(rows: &[&T], point: fn(&T) -> (u64, f64)) -> Vec<(u64, f64)> {
    let mut points: Vec<(u64, f64)> = Vec::new();
    for (delay, bits) in rows.iter().map(|row| point(row)) {
        if points.last().is_none_or(|last| last.0 < delay) {
            points.push((delay, bits));
        }
    }
    points
}

/// The delays of a table.
const SHOWN: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A row for each delay that is shown: it, throughput without the intermediate target, and a cell for each
/// name.
fn by_delay<T>(
    rows: &[&T],
    name: fn(&T) -> &'static str,
    point: fn(&T) -> (u64, f64),
    cell: fn(&T) -> String,
) -> Table {
    let groups: Vec<_> = named(rows, name).collect();
    let mut columns = vec![("delay", Align::Right), ("direct bit/s", Align::Right)];
    columns.extend(groups.iter().map(|(name, _)| (*name, Align::Right)));
    let mut table = Table::new(&columns);
    for (delay, bits) in direct(rows, point).into_iter().filter(|point| SHOWN.contains(&point.0)) {
        let mut cells = vec![delay.to_string(), format!("{bits:.0}")];
        for (_, rows) in &groups {
            let row = rows.iter().find(|row| point(row).0 == delay);
            cells.push(row.map_or_else(String::new, |row| cell(row)));
        }
        table.row(cells);
    }
    table
}

fn reads(rows: &[&ReadRow]) -> Table {
    let cell = |row: &ReadRow| format!("{:.2}/{:.2}", row.mean_of_rates, row.bytes_over_time);
    by_delay(rows, |row| row.data, |row| (row.delay_ms, row.direct_bits), cell)
}

fn writes(rows: &[&WriteRow]) -> Table {
    let cell = |row: &WriteRow| format!("{:.0} +{:.2}", row.through_bits, row.gain);
    by_delay(rows, |row| row.split, |row| (row.delay_ms, row.direct_bits), cell)
}

const LEFT_OUT: &[(&str, Align)] = &[
    ("split", Align::Left),
    ("exposed ms", Align::Right),
    ("acknowledged in an hour", Align::Right),
    ("home", Align::Right),
];

fn left_out(study: &Study) -> Table {
    let mut table = Table::new(LEFT_OUT);
    for (exposure, backlog) in study.exposure.iter().zip(&study.backlog) {
        table.row(vec![
            exposure.split.to_owned(),
            format!("{:.1}", exposure.exposed_ms),
            backlog.acknowledged.to_string(),
            backlog.home.to_string(),
        ]);
    }
    table
}

const HITS: &[Column<HitRow>] = &[
    words("reading", |row| row.reading.to_owned()),
    words("data", |row| row.data.to_owned()),
    numbers("follows", |row| row.follows.to_string()),
    numbers("followed", |row| format!("{:.4}", row.followed)),
    numbers("ready", |row| format!("{:.4}", row.ready)),
    numbers("least", |row| format!("{:.4}", row.ready_from_to.0)),
    numbers("most", |row| format!("{:.4}", row.ready_from_to.1)),
    numbers("in flight", |row| format!("{:.4}", row.in_flight)),
    numbers("gain %, mean of rates", |row| format!("{:.2}", row.mean_of_rates)),
    numbers("bytes over time", |row| format!("{:.2}", row.bytes_over_time)),
];

const DEPTHS: &[Column<DepthRow>] = &[
    numbers("link bit/s", |row| row.link_bits.to_string()),
    numbers("depth", |row| row.depth.to_string()),
    numbers("direct bit/s", |row| format!("{:.0}", row.direct_bits)),
    numbers("through bit/s", |row| format!("{:.0}", row.through_bits)),
    numbers("gain %", |row| format!("{:.1}", row.gain)),
];

const AHEAD: &[Column<AheadRow>] = &[
    numbers("depth", |row| row.depth.to_string()),
    numbers("direct kB/s", |row| format!("{:.1}", row.direct / 1e3)),
    numbers("through kB/s", |row| format!("{:.1}", row.through / 1e3)),
    numbers("ready %", |row| format!("{:.1}", 100.0 * row.ready)),
    numbers("in flight %", |row| format!("{:.1}", 100.0 * row.in_flight)),
];

/// What is drawn of a row.
type Figure<T> = fn(&T) -> f64;

/// A curve for each name.
fn curves<T>(
    rows: &[&T],
    name: fn(&T) -> &'static str,
    figure: Figure<T>,
) -> Vec<(&'static str, Vec<f64>)> {
    let curve = |(name, rows): (_, Vec<&T>)| (name, rows.into_iter().map(figure).collect());
    named(rows, name).map(curve).collect()
}

/// Thousands.
fn kilo(points: &[(u64, f64)]) -> Vec<f64> {
    points.iter().map(|point| point.1 / 1e3).collect()
}

/// Curves by delay, with their names in their colours. `delays` has the delay of each of their points.
fn picture(title: &str, delays: &[(u64, f64)], curves: &[(&str, Vec<f64>)]) -> String {
    let most = curves.iter().flat_map(|(_, values)| values.iter().copied()).fold(0.1, f64::max);
    let longest = delays.last().map_or(1, |point| point.0);
    let x = |delay: u64| LEFT + delay as f64 / longest as f64 * (WIDTH - LEFT - 4.0);
    let y = |value: f64| BOTTOM - value / most * (BOTTOM - TOP);
    let height = BOTTOM + 16.0;
    let mut page = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {height}\" width={WIDTH} height={height}>\
         <text x=0 y=12 class=t>{title}</text>\
         <path d=\"M{LEFT} {TOP}V{BOTTOM}H{WIDTH}\" class=grid fill=none />\
         <text x={0} y={1} text-anchor=end>{most:.1}</text><text x={0} y={BOTTOM} text-anchor=end>0</text>\
         <text x={LEFT} y={height}>0</text><text x={WIDTH} y={height} text-anchor=end>{longest} ms</text>",
        LEFT - 4.0,
        TOP + 4.0
    );
    // The last colours are those of the names, whether or not there is a curve without the target before.
    let colors = &COLORS[COLORS.len() - curves.len()..];
    for (index, ((name, values), color)) in curves.iter().zip(colors).enumerate() {
        let points = delays.iter().zip(values);
        let points = points.map(|(at, &value)| format!("{:.1},{:.1}", x(at.0), y(value)));
        let _ = writeln!(
            page,
            "<polyline stroke=\"{color}\" points=\"{}\" />\
             <text x={} y=28 fill=\"{color}\">{name}</text>",
            points.collect::<Vec<_>>().join(" "),
            LEFT + 80.0 * index as f64
        );
    }
    page.push_str("</svg></figure>\n");
    page
}

/// Colours of the curves of a picture, which has at most four.
const COLORS: [&str; 4] = ["#666", "#c8553d", "#2a6fa8", "#3a8a4a"];

/// A picture in pixels: its width, where the scale ends and the lines begin, their top and bottom.
const WIDTH: f64 = 400.0;
const LEFT: f64 = 40.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 220.0;
