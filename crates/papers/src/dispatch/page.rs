//! How the study of the dispatch policies is shown.

use crate::chapter::{Chapter, Part};
use crate::dispatch::study::{DebtRow, HotRow, ProbeRow, ShareRow, Study, TurnRow};
use weir_sim::table::{Align, Table};

const TURNS: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("S1 alone", Align::Right),
    ("S1, both read", Align::Right),
    ("S2", Align::Right),
    ("S1, S2 writes", Align::Right),
    ("S2", Align::Right),
    ("time of S1 %", Align::Right),
    ("of S2 %", Align::Right),
    ("S1 changes %", Align::Right),
];

const SHARES: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("all %", Align::Right),
    ("any %", Align::Right),
    ("100 ms %", Align::Right),
    ("order of ends", Align::Left),
    ("first end s", Align::Right),
    ("fluid", Align::Right),
    ("last end s", Align::Right),
    ("fluid", Align::Right),
    ("chips used %", Align::Right),
];

const GARBAGE: &[(&str, Align)] =
    &[("policy", Align::Left), ("S9 % of time", Align::Right), ("for each of S8", Align::Right)];

const HOT: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("A % of chips", Align::Right),
    ("B", Align::Right),
    ("C", Align::Right),
    ("used %", Align::Right),
    ("A slower by", Align::Right),
    ("B", Align::Right),
    ("C", Align::Right),
    ("most/least", Align::Right),
];

const PROBES: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("p50 ms", Align::Right),
    ("p99 ms", Align::Right),
    ("p99.9 ms", Align::Right),
    ("longest ms", Align::Right),
    ("others MiB/s", Align::Right),
];

const DEBTS: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("reader, of its third", Align::Right),
    ("writers MiB/s", Align::Right),
    ("stalled %", Align::Right),
    ("blocks erased", Align::Right),
];

/// The study as a chapter.
pub fn chapter(name: &'static str, study: Study) -> serde_json::Result<Chapter> {
    let runs = match study.runs {
        1 => "one run".to_owned(),
        runs => format!("{runs} runs, rates their mean, errors their worst"),
    };
    let mut parts = vec![part(
        format!("Figure 3, {runs}: MiB/s, and shares of time while S2 writes"),
        table(TURNS, &study.turns, turn),
    )];
    for (figure, what) in [
        (4, "eight streams of one weight"),
        (5, "weights that fall by a quarter from S1 to S8"),
        (6, "the same with garbage collection of S8's weight"),
    ] {
        let rows: Vec<_> = study.shares.iter().filter(|row| row.figure == figure).collect();
        let title = format!(
            "Figure {figure}, {what}: error of the worst share while all have work, in the worst \
             interval between two ends, in the worst 100 ms"
        );
        parts.push(part(title, table(SHARES, &rows, |row| share(row))));
        if figure == 6 {
            let title = "Figure 6: garbage collection, S9, while all have work".to_owned();
            parts.push(part(title, table(GARBAGE, &rows, |row| garbage(row))));
        }
    }
    for (title, table) in [
        ("A reads one chip of four, B all, C writes", table(HOT, &study.hot, hot)),
        (
            "400 reads of 4 KiB a second at weight 2 among two writers and a mixed stream",
            table(PROBES, &study.probes, probe),
        ),
        (
            "A reader and two writers on a filled device, collection of real blocks",
            table(DEBTS, &study.debts, debt),
        ),
    ] {
        parts.push(part(title.to_owned(), table));
    }
    let value = serde_json::to_value(&study)?;
    Ok(Chapter { name, seed: study.seed, claims: study.claims, parts, value })
}

fn part(title: String, table: Table) -> Part {
    Part { title, pictures: Vec::new(), table: Some(table) }
}

fn table<T>(columns: &[(&str, Align)], rows: &[T], cells: impl Fn(&T) -> Vec<String>) -> Table {
    let mut table = Table::new(columns);
    for row in rows {
        table.row(cells(row));
    }
    table
}

fn one(value: f64) -> String {
    format!("{value:.1}")
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn turn(row: &TurnRow) -> Vec<String> {
    let TurnRow { policy, alone, both_read, one_writes, time, change } = row;
    let mut cells = vec![(*policy).to_owned(), one(*alone)];
    cells.extend(both_read.iter().chain(one_writes).map(|&rate| one(rate)));
    cells.extend(time.iter().map(|share| one(100.0 * share)));
    cells.push(format!("{change:+.1}"));
    cells
}

fn share(row: &ShareRow) -> Vec<String> {
    let order: Vec<_> = row.order.iter().map(|stream| format!("S{stream}")).collect();
    let ends = |figure: fn(f64, f64) -> f64, start: f64| {
        let of = |ends: &[f64]| two(ends.iter().take(8).copied().fold(start, figure));
        [of(&row.ends), of(&row.fluid)]
    };
    let mut cells = vec![row.policy.to_owned(), two(row.all), two(row.any), one(row.window)];
    cells.push(order.join(" "));
    cells.extend(ends(f64::min, f64::INFINITY));
    cells.extend(ends(f64::max, 0.0));
    cells.push(one(row.used));
    cells
}

fn garbage(row: &ShareRow) -> Vec<String> {
    vec![row.policy.to_owned(), two(row.garbage), format!("{:.3}", row.ratio)]
}

fn hot(row: &HotRow) -> Vec<String> {
    let mut cells = vec![row.policy.to_owned()];
    cells.extend(row.shares.map(one));
    cells.push(one(row.used));
    cells.extend(row.slowdowns.map(two));
    cells.push(two(row.spread));
    cells
}

fn probe(row: &ProbeRow) -> Vec<String> {
    let ProbeRow { policy, p50_ms, p99_ms, p999_ms, longest_ms, others } = row;
    let mut cells = vec![(*policy).to_owned()];
    cells.extend([p50_ms, p99_ms, p999_ms, longest_ms].map(|&figure| two(figure)));
    cells.push(one(*others));
    cells
}

fn debt(row: &DebtRow) -> Vec<String> {
    vec![
        row.policy.to_owned(),
        two(row.reader),
        two(row.writers),
        one(row.stalled),
        format!("{:.0}", row.erased),
    ]
}
