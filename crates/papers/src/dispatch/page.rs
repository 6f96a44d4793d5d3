//! The tables of the dispatch study.

use super::study::{DebtRow, HotRow, ProbeRow, ShareRow, Study, TurnRow};
use crate::chapter::Part;
use crate::claim::{least, most};
use weir_sim::table::{Column, Table, numbers, words};

/// The tables of the study.
pub(crate) fn parts(study: &Study) -> Vec<Part> {
    let runs = match study.runs {
        1 => "one run".to_owned(),
        runs => format!("{runs} runs, rates their mean, errors their worst"),
    };
    let title = format!("Figure 3, {runs}: MiB/s, and shares of time while S2 writes");
    let mut parts = vec![Part::table(title, Table::of(TURNS, &study.turns))];
    for (figure, what) in [
        (4, "eight streams of one weight"),
        (5, "weights that fall by a quarter from S1 to S8"),
        (6, "the same with garbage collection of S8's weight"),
    ] {
        let rows = || study.shares.iter().filter(|row| row.figure == figure);
        let title = format!(
            "Figure {figure}, {what}: error of the worst share while all have work, in the worst \
             interval between two ends, in the worst 100 ms"
        );
        parts.push(Part::table(title, Table::of(SHARES, rows())));
        if figure == 6 {
            let title = "Figure 6: garbage collection, S9, while all have work";
            parts.push(Part::table(title, Table::of(GARBAGE, rows())));
        }
    }
    parts.extend([
        Part::table("A reads one chip of four, B all, C writes", Table::of(HOT, &study.hot)),
        Part::table(
            "400 reads of 4 KiB a second at weight 2 among two writers and a mixed stream",
            Table::of(PROBES, &study.probes),
        ),
        Part::table(
            "A reader and two writers on a filled device, collection of real blocks",
            Table::of(DEBTS, &study.debts),
        ),
    ]);
    parts
}

const TURNS: &[Column<TurnRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("S1 alone", |row| one(row.alone)),
    numbers("S1, both read", |row| one(row.both_read[0])),
    numbers("S2", |row| one(row.both_read[1])),
    numbers("S1, S2 writes", |row| one(row.one_writes[0])),
    numbers("S2", |row| one(row.one_writes[1])),
    numbers("time of S1 %", |row| one(100.0 * row.time[0])),
    numbers("of S2 %", |row| one(100.0 * row.time[1])),
    numbers("S1 changes %", |row| format!("{:+.1}", row.change)),
];

const SHARES: &[Column<ShareRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("all %", |row| two(row.all)),
    numbers("any %", |row| two(row.any)),
    numbers("100 ms %", |row| one(row.window)),
    words("order of ends", |row| {
        let order: Vec<_> = row.order.iter().map(|stream| format!("S{stream}")).collect();
        order.join(" ")
    }),
    numbers("first end s", |row| two(least(row.ends.iter().take(8).copied()))),
    numbers("fluid", |row| two(least(row.fluid.iter().take(8).copied()))),
    numbers("last end s", |row| two(most(row.ends.iter().take(8).copied()))),
    numbers("fluid", |row| two(most(row.fluid.iter().take(8).copied()))),
    numbers("chips used %", |row| one(row.used)),
];

const GARBAGE: &[Column<ShareRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("S9 % of time", |row| two(row.garbage)),
    numbers("for each of S8", |row| format!("{:.3}", row.ratio)),
];

const HOT: &[Column<HotRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("A % of chips", |row| one(row.shares[0])),
    numbers("B", |row| one(row.shares[1])),
    numbers("C", |row| one(row.shares[2])),
    numbers("used %", |row| one(row.used)),
    numbers("A slower by", |row| two(row.slowdowns[0])),
    numbers("B", |row| two(row.slowdowns[1])),
    numbers("C", |row| two(row.slowdowns[2])),
    numbers("most/least", |row| two(row.spread)),
];

const PROBES: &[Column<ProbeRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("p50 ms", |row| two(row.p50_ms)),
    numbers("p99 ms", |row| two(row.p99_ms)),
    numbers("p99.9 ms", |row| two(row.p999_ms)),
    numbers("longest ms", |row| two(row.longest_ms)),
    numbers("others MiB/s", |row| one(row.others)),
];

const DEBTS: &[Column<DebtRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("reader, of its third", |row| two(row.reader)),
    numbers("writers MiB/s", |row| two(row.writers)),
    numbers("stalled %", |row| one(row.stalled)),
    numbers("blocks erased", |row| format!("{:.0}", row.erased)),
];

fn one(value: f64) -> String {
    format!("{value:.1}")
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}
