//! The claims of the flash operation group paper, and those about what it leaves out.
//!
//! F3 to F6 are the paper's figures, by their numbers (docs/research/dispatch.md, sections 0 to 2). W are
//! figures in which the policy of the gateway has to be better than the paper's (section 6).

use super::live::{Live, LiveShares, LiveTurn};
use super::study::{DebtRow, HotRow, ProbeRow, ShareRow, Study, TurnRow};
use crate::claim::{Claim, least, most};

/// All verdicts. The claims are the same whatever rows there are: without its row a claim does not hold.
pub(super) fn judge(study: &Study) -> Vec<Claim> {
    let mut claims = turns(study);
    claims.extend(figure_4(study));
    claims.extend(figure_5(study));
    claims.extend(figure_6(study));
    claims.extend(left_out(study));
    claims.extend(study.live.iter().flat_map(live));
    claims
}

const CLOSED: &str = "closed, 32";

/// What a missing row has: no comparison with it holds.
const NONE: f64 = f64::NAN;

fn row(study: &Study, figure: u32, policy: &'static str) -> ShareRow {
    let mut rows = study.shares.iter();
    let row = rows.find(|row| (row.figure, row.policy) == (figure, policy)).cloned();
    row.unwrap_or_else(|| ShareRow {
        figure,
        policy,
        times: vec![NONE; 8],
        all: NONE,
        any: NONE,
        window: NONE,
        ends: vec![NONE; 8],
        fluid: vec![NONE; 8],
        order: Vec::new(),
        used: NONE,
        garbage: NONE,
        ratio: NONE,
    })
}

fn turn(study: &Study, policy: &'static str) -> TurnRow {
    let row = study.turns.iter().find(|row| row.policy == policy).cloned();
    let (both_read, one_writes, time) = ([NONE; 2], [NONE; 2], [NONE; 2]);
    row.unwrap_or(TurnRow { policy, alone: NONE, both_read, one_writes, time, change: NONE })
}

fn hot(study: &Study, policy: &'static str) -> HotRow {
    let row = study.hot.iter().find(|row| row.policy == policy).cloned();
    let (shares, slowdowns) = ([NONE; 3], [NONE; 3]);
    row.unwrap_or(HotRow { policy, shares, used: NONE, slowdowns, spread: NONE })
}

fn probe(study: &Study, policy: &'static str) -> ProbeRow {
    let row = study.probes.iter().find(|row| row.policy == policy).cloned();
    row.unwrap_or(ProbeRow {
        policy,
        p50_ms: NONE,
        p99_ms: NONE,
        p999_ms: NONE,
        longest_ms: NONE,
        others: NONE,
    })
}

fn debt(study: &Study, policy: &'static str) -> DebtRow {
    let row = study.debts.iter().find(|row| row.policy == policy).cloned();
    row.unwrap_or(DebtRow { policy, reader: NONE, writers: NONE, stalled: NONE, erased: NONE })
}

fn turns(study: &Study) -> Vec<Claim> {
    let of = |policy| turn(study, policy);
    let fog = of("fog");
    let claim = |id, published| Claim::new(id, "figure 3", CLOSED, published).required(true);
    let after = fog.one_writes;
    let blind = ["fifo", "rr", "drr", "wfq, flat", "fog, flat, uncorrected"];
    let blind: Vec<TurnRow> = blind.into_iter().map(of).collect();
    let losses = most(blind.iter().map(|row| row.change));
    let each = blind.iter().map(|row| format!("{} {:.1} %", row.policy, row.change));
    let each: Vec<String> = each.collect();
    let corrected = of("fog, flat nominal").change.abs();
    let near = |measured: f64, due: f64| (measured / due - 1.0).abs() < 0.005;
    vec![
        claim("F3-alone", "S1 alone has the whole device")
            .measured(fog.alone, "MiB/s")
            .judged("104.2 +- 0.5 %", near(fog.alone, 104.17))
            .note("four chips of 150 us a read; the paper's curves have no scale in its text"),
        claim("F3-half", "two readers have half of it each")
            .measured(fog.both_read[0] / fog.both_read.iter().sum::<f64>() * 100.0, "% of bytes")
            .judged("50 +- 0.25", near(2.0 * fog.both_read[0], fog.both_read.iter().sum()))
            .note(format!("{:.1} and {:.1} MiB/s", fog.both_read[0], fog.both_read[1])),
        claim("F3-unchanged", "S1's rate does not change when S2 turns to writing")
            .measured(fog.change, "% change")
            .judged("0 +- 0.5", fog.change.abs() < 0.5)
            .note(format!("S2 then writes {:.1} MiB/s", after[1])),
        claim("F3-time", "time is shared 50:50 while S2 writes")
            .measured(fog.time[0] * 100.0, "% of time")
            .judged("50 +- 0.25", (fog.time[0] - 0.5).abs() < 0.0025),
        claim("F3-unknown", "service times need not be known before")
            .measured(corrected, "% change")
            .judged("< 0.5", corrected < 0.5)
            .note("500 us nominal for everything, corrected at the end of each operation"),
        claim("F3-others", "what counts operations, bytes or nominal times loses")
            .measured(losses, "% change, best of them")
            .judged("< -50", losses < -50.0)
            .note(each.join("; ")),
    ]
}

/// What a recording of a gateway under the paper's policy must show. Others are in the tables only.
fn live(live: &Live) -> Vec<Claim> {
    let (Live::Turn(LiveTurn { name, policy, slower, .. })
    | Live::Shares(LiveShares { name, policy, slower, .. })) = live;
    if policy != "fog" {
        return Vec::new();
    }
    let claim = |id, figure, published| {
        let note = format!("`{name}`, a device {slower:.1} times slower than the paper's");
        Claim::new(id, figure, "live", published).required(true).note(note)
    };
    match live {
        Live::Turn(run) => {
            let half = 100.0 * run.both_read[0] / run.both_read.iter().sum::<f64>();
            let time = 100.0 * run.time[0];
            let claim = |id, published| claim(id, "figure 3", published);
            vec![
                claim("L3-half", "live: two readers have half of the device each")
                    .measured(half, "% of bytes")
                    .judged("50 +- 1.5", (half - 50.0).abs() < 1.5),
                claim("L3-unchanged", "live: S1's rate does not change when S2 turns to writing")
                    .measured(run.change, "% change")
                    .judged("0 +- 3", run.change.abs() < 3.0),
                claim("L3-time", "live: time is shared 50:50 while S2 writes")
                    .measured(time, "% of time")
                    .judged("50 +- 1.5", (time - 50.0).abs() < 1.5),
            ]
        }
        Live::Shares(run) => {
            let places = run.order.iter().zip(1..);
            let in_place = places.filter(|(stream, place)| **stream == *place).count();
            let claim = |id, published| claim(id, "figure 5", published);
            vec![
                claim("L5-all", "live: shares follow weights of 1.25^k while all have work")
                    .measured(run.worst(), "% worst stream")
                    .judged("< 3", run.worst() < 3.0),
                claim("L5-order", "live: streams end in the order of their weights, S1 to S8")
                    .measured(in_place as f64, "in place")
                    .judged("8", in_place == 8),
            ]
        }
    }
}

fn figure_4(study: &Study) -> Vec<Claim> {
    let fog = row(study, 4, "fog");
    let claim = |id, published| Claim::new(id, "figure 4", CLOSED, published);
    let ends = |streams: std::ops::Range<usize>| fog.ends[streams].to_vec();
    let groups = [ends(0..3), ends(3..5), ends(5..8)];
    let before = |a: &[f64], b: &[f64]| most(a.iter().copied()) < least(b.iter().copied());
    let derived = before(&groups[0], &groups[1]) && before(&groups[1], &groups[2]);
    let printed = before(&groups[2], &groups[1]) && before(&groups[1], &groups[0]);
    let order = format!(
        "readers end at {:.2} s, mixed at {:.2}, writers at {:.2}",
        most(groups[0].iter().copied()),
        most(groups[1].iter().copied()),
        most(groups[2].iter().copied())
    );
    vec![
        claim("F4-shares", "equal shares of time at every moment")
            .measured(fog.any, "% worst interval")
            .judged("< 2", fog.any < 2.0 && fog.all < 0.5)
            .required(true)
            .note(format!("{:.2} % while all have work, {:.1} % in the worst 100 ms", fog.all, fog.window)),
        claim("F4-derived", "what equal shares of time make of equal counts: reads, mixed, writes")
            .measured(f64::from(u8::from(derived)), "1: so")
            .judged("1", derived)
            .required(true)
            .note(order.clone()),
        claim("F4-printed", "writers end first, then mixed, then readers")
            .measured(f64::from(u8::from(printed)), "1: so")
            .judged("1", printed)
            .note(format!(
                "contradicts figure 3: with r the cost of a read in programs, figure 3 needs r = 0.15, this \
                 order r > 1, and figure 5 r < 1.5; {order}"
            )),
    ]
}

fn fluid(fog: &ShareRow) -> f64 {
    most(fog.ends.iter().zip(&fog.fluid).map(|(end, fluid)| 100.0 * (end / fluid - 1.0).abs()))
}

fn figure_5(study: &Study) -> Vec<Claim> {
    let fog = row(study, 5, "fog");
    let claim = |id, published| Claim::new(id, "figure 5", CLOSED, published).required(true);
    let in_place = fog.order.iter().zip(1..).filter(|(stream, place)| **stream == *place).count();
    let off = fluid(&fog);
    let blind = ["fifo", "rr", "drr", "wfq, flat", "fog, flat, uncorrected"];
    let blind = least(blind.into_iter().map(|policy| row(study, 5, policy).all));
    let ours = row(study, 5, "fair-time, depth 4");
    vec![
        claim("F5-order", "streams end in the order of their weights, S1 to S8")
            .measured(in_place as f64, "in place")
            .judged("8", in_place == 8),
        claim("F5-all", "shares follow weights of 1.25^k while all have work")
            .measured(fog.all, "% worst stream, mean of runs")
            .judged("< 0.5", fog.all < 0.5),
        claim("F5-any", "and whenever the set of streams changes")
            .measured(fog.any, "% worst interval")
            .judged("< 2", fog.any < 2.0)
            .note(format!("{:.1} % in the worst 100 ms", fog.window)),
        claim("F5-fluid", "streams end when one divided server would let them")
            .measured(off, "% worst stream, mean of runs")
            .judged("< 0.5", off < 0.5),
        claim("F5-others", "what counts operations, bytes or nominal times is far off")
            .measured(blind, "% worst stream, best of them")
            .judged("> 50", blind > 50.0),
        claim("F5-fair-time", "no paper's: fair-time shares balanced load as well")
            .measured(ours.all, "% worst stream, mean of runs")
            .judged("< 1, chips 99 % used", ours.all < 1.0 && ours.used > 99.0)
            .note(format!("worst interval {:.1} %, chips {:.1} % used", ours.any, ours.used)),
    ]
}

fn figure_6(study: &Study) -> Vec<Claim> {
    let fog = row(study, 6, "fog");
    let claim = |id, published| Claim::new(id, "figure 6", CLOSED, published).required(true);
    let blocks = row(study, 6, "wfq").all;
    let ours = row(study, 6, "fair-time, depth 4");
    let one = row(study, 6, "fair-time, one clock");
    vec![
        claim("F6-ratio", "garbage collection of S8's weight has S8's share")
            .measured(fog.ratio, "of S8's time")
            .judged("1 +- 0.01", (fog.ratio - 1.0).abs() < 0.01),
        claim("F6-all", "shares follow weights while all nine have work")
            .measured(fog.all, "% worst stream, mean of runs")
            .judged("< 0.5", fog.all < 0.5)
            .note(format!("worst interval {:.1} %", fog.any)),
        claim("F6-fair-time", "no paper's: fair-time gives garbage collection S8's share, too")
            .measured(ours.ratio, "of S8's time")
            .judged("1 +- 0.01", (ours.ratio - 1.0).abs() < 0.01)
            .required(false)
            .note(format!(
                "worst stream {:.1} % off. Blocks are collected on one chip after the other, and with a clock for \
                 each chip a stream has its share of the chips where it has work, not of all",
                ours.all
            )),
        claim("F6-clocks", "no paper's: it does with one clock for all chips, so the clock of each chip is the cause")
            .measured(one.ratio, "of S8's time, lead of an hour")
            .judged("1 +- 0.01, worst stream < 0.5 %", (one.ratio - 1.0).abs() < 0.01 && one.all < 0.5)
            .note(format!("worst stream {:.2} % off", one.all)),
        claim("F6-blocks", "no paper's: with a tag per request 129 operations go as a block")
            .measured(blocks, "% worst stream, wfq")
            .judged("> 5", blocks > 5.0)
            .required(false),
    ]
}

fn left_out(study: &Study) -> Vec<Claim> {
    let claim = |id, set, published| Claim::new(id, set, CLOSED, published).required(true);
    let (fog, ours) = (hot(study, "fog"), hot(study, "fair-time, depth 4"));
    let used =
        claim("W-hot", "hot chip", "no paper's: a stream with one chip does not idle the others")
            .measured(ours.used, "% of chips used")
            .judged("> 70, fog < 55", ours.used > 70.0 && fog.used < 55.0)
            .note(format!("fog uses {:.1} %", fog.used));
    let even = claim("W-even", "hot chip", "no paper's: and all are slowed down alike")
        .measured(ours.spread, "largest slowdown over smallest")
        .judged("< 1.1, fog > 2", ours.spread < 1.1 && fog.spread > 2.0)
        .note(format!("fog {:.2}", fog.spread));
    let (fog, shallow, ours) =
        (probe(study, "fog"), probe(study, "fog, depth 1"), probe(study, "fair-time"));
    let (gain, kept) = (fog.p99_ms / ours.p99_ms, ours.others / fog.others);
    let small = claim("W-probe", "probe", "no paper's: fair-time keeps small reads short")
        .measured(gain, "times shorter p99 than fog at its depth of 4")
        .judged("> 2, others keep 95 %", gain > 2.0 && kept > 0.95)
        .note(format!(
            "{:.2} against {:.2} ms, and {:.2} for fog told the depth that serves these chips best, 1; others have \
             {:.1} and {:.1} MiB/s",
            ours.p99_ms, fog.p99_ms, shallow.p99_ms, ours.others, fog.others
        ));
    let (fog, ours) = (debt(study, "fog"), debt(study, "fair-time, depth 4"));
    let debts =
        claim("W-debt", "real blocks", "no paper's: a reader does not pay for writers' garbage")
            .measured(ours.reader, "of its third")
            .judged("1 +- 0.05", (ours.reader - 1.0).abs() < 0.05)
            .required(false)
            .note(format!("fog {:.2}", fog.reader));
    let stalls = claim("W-stall", "real blocks", "no paper's: collection keeps up with writers")
        .measured(ours.stalled, "% of the chips' time stalled")
        .judged("less than half of fog's", ours.stalled < fog.stalled / 2.0)
        .required(false)
        .note(format!(
            "fog {:.1} %. Of a writer's pages and the collection that it owes, both at its clock, the older goes \
             first, so that a block is collected only after the pages that came before",
            fog.stalled
        ));
    vec![used, even, small, debts, stalls]
}
