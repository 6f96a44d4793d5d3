//! The tables of the dispatch study.

use super::live::{Live, LiveShares, LiveTurn};
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
    parts.extend(study.live.iter().map(|live| beside(study, live)));
    parts
}

/// A figure of a recording beside the simulated and the published one.
fn beside(study: &Study, live: &Live) -> Part {
    let (number, name, policy, slower, rows) = match live {
        Live::Turn(run) => (3, &run.name, &run.policy, run.slower, turn_rows(study, run)),
        Live::Shares(run) => (5, &run.name, &run.policy, run.slower, share_rows(study, run)),
    };
    let title = format!(
        "Figure {number} live, `{name}`, under {policy}: a device {slower:.1} times slower than the paper's. Rates are \
         parts of what S1 has alone, ends of the last"
    );
    Part::table(title, Table::of(LIVE, &rows))
}

/// One figure from three places. The paper publishes its own policy's; for the others there is nothing to say.
struct Beside {
    what: String,
    published: Option<f64>,
    simulated: Option<f64>,
    live: f64,
}

const LIVE: &[Column<Beside>] = &[
    words("%", |row| row.what.clone()),
    numbers("published", |row| row.published.map_or_else(|| "-".to_owned(), one)),
    numbers("simulated", |row| row.simulated.map_or_else(|| "-".to_owned(), two)),
    numbers("live", |row| two(row.live)),
];

fn turn_rows(study: &Study, run: &LiveTurn) -> Vec<Beside> {
    let simulated = study.turns.iter().find(|row| row.policy == label(&run.policy));
    let of = |alone: f64, both: [f64; 2], writes: [f64; 2], time: [f64; 2], change: f64| {
        let part = |rate: f64| 100.0 * rate / alone;
        let rates = [both[0], both[1], writes[0], writes[1]].map(part);
        [rates[0], rates[1], rates[2], rates[3], 100.0 * time[0], 100.0 * time[1], change]
    };
    let live = of(run.alone, run.both_read, run.one_writes, run.time, run.change);
    let simulated =
        simulated.map(|row| of(row.alone, row.both_read, row.one_writes, row.time, row.change));
    let whats = [
        ("rate of S1, both read", 50.0),
        ("rate of S2", 50.0),
        ("rate of S1, S2 writes", 50.0),
        ("rate of S2", 7.5),
        ("time of S1, S2 writes", 50.0),
        ("time of S2", 50.0),
        ("S1 changes as S2 turns", 0.0),
    ];
    let row = |(place, (what, published)): (usize, (&str, f64))| Beside {
        what: what.to_owned(),
        published: (run.policy == "fog").then_some(published),
        simulated: simulated.map(|all| all[place]),
        live: live[place],
    };
    whats.into_iter().enumerate().map(row).collect()
}

fn share_rows(study: &Study, run: &LiveShares) -> Vec<Beside> {
    let mut rows = study.shares.iter();
    let simulated = rows.find(|row| (row.figure, row.policy) == (5, label(&run.policy)));
    let last = |ends: &[f64]| most(ends.iter().take(8).copied());
    let published = |due: f64| (run.policy == "fog").then_some(due);
    let time = |stream: usize| Beside {
        what: format!("time of S{}, all have work", stream + 1),
        published: published(run.due[stream]),
        simulated: simulated.map(|row| row.times[stream]),
        live: run.times[stream],
    };
    let end = |stream: usize| Beside {
        what: format!("end of S{}", stream + 1),
        published: None,
        simulated: simulated.map(|row| 100.0 * row.ends[stream] / last(&row.ends)),
        live: 100.0 * run.ends[stream] / last(&run.ends),
    };
    (0..8).map(time).chain((0..8).map(end)).collect()
}

/// What the study calls a policy of the gateway.
fn label(policy: &str) -> &str {
    match policy {
        "round-robin" => "rr",
        "deficit-round-robin" => "drr",
        other => other,
    }
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
