//! The claims of the `RounG` paper, and those about what it leaves out.
//!
//! C1 to C3 are the paper's (docs/reference/path.md, section 1), in the arrival regimes of section 4. The others are
//! the verdicts of docs/research/path.md; what those give as an order has to come out as one.

use super::contestants::ALL;
use super::ejection_claims;
use super::study::{FaultRow, OutageRow, ResponseRow, RuleRow, SpreadRow, Study};
use super::tables::OUTAGE_COUNT;
use crate::claim::{Claim, least, most};

/// All verdicts.
pub(super) fn judge(study: &Study) -> Vec<Claim> {
    let spreads = &study.spreads;
    let mut claims = vec![as_repaired(study)];
    claims.extend(equal_sizes(spreads, &study.loads));
    claims.extend(unequal_sizes(spreads));
    claims.extend(imbalance(spreads));
    claims.push(at_once(spreads));
    claims.extend(general(&study.responses));
    claims.extend(stall(&study.faults));
    claims.extend(slow(&study.faults));
    claims.extend(different_speeds(&study.speeds));
    claims.extend(many_paths(&study.rules));
    claims.extend(outage(&study.outages));
    claims.extend(ejection_claims::judge(&study.calm, &study.slowdowns));
    if !study.traces.is_empty() {
        claims.extend(traces(&study.traces));
    }
    claims
}

/// Numbers for a note.
fn list(values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    let values = values.into_iter().map(|value| format!("{value:.decimals$}"));
    values.collect::<Vec<_>>().join(" ")
}

fn as_repaired(study: &Study) -> Claim {
    let rows = || study.printed.iter().filter(|row| row.means.is_none());
    let off = |measured: f64, published: f64| 100.0 * (measured / published - 1.0).abs();
    let furthest = most(rows().map(|row| off(row.measured, row.repaired)));
    let printed = most(rows().map(|row| off(row.measured, row.printed)));
    Claim::new("T1", "A, B", "closed, 16", "the repaired table 1 is what comes out")
        .measured(furthest, "% off, furthest of eight figures")
        .judged("<= 2", furthest <= 2.0)
        .required(true)
        .note(format!(
            "{printed:.0} % off the table as printed. The files add up to 500.5 s; the 502.0 and 497.2 s of the \
             paper are further off than the mean of 100 runs can be, and look like single runs"
        ))
}

/// The row of a situation and a selector for each of these arrivals: a claim about rows that are not there means nothing.
fn rows<'a>(
    rows: &'a [SpreadRow],
    situation: &'a str,
    selector: &'a str,
    arrivals: &'a [&'a str],
) -> impl Iterator<Item = &'a SpreadRow> + Clone {
    arrivals.iter().map(move |&arrivals| {
        let is = |row: &&SpreadRow| {
            (row.situation, row.selector, row.arrivals) == (situation, selector, arrivals)
        };
        let row = rows.iter().find(is);
        row.unwrap_or_else(|| panic!("{situation}, {selector}, {arrivals} was run"))
    })
}

fn equal_sizes(spreads: &[SpreadRow], loads: &[SpreadRow]) -> [Claim; 4] {
    let published = "equal sizes: as round robin";
    let apart = |arrivals| {
        let rows = rows(spreads, "B constant", "roung", arrivals);
        let time = most(rows.clone().map(|row| 100.0 * (1.0 / row.speed_up - 1.0).abs()));
        (time, most(rows.map(|row| (row.files[0] - 5_000.0).abs())))
    };
    let claim = |arrivals, (time, files): (f64, f64)| {
        Claim::new("C1", "B constant", arrivals, published)
            .measured(time, "% of time apart, roung, most")
            .judged("<= 1.2", time <= 1.2)
            .required(true)
            .note(format!("files per path within 5000 +- {files:.0}"))
    };
    let (time, _) = apart(&OVERLOAD);
    let job = || {
        rows(spreads, "B constant", "roung-job", &STABLE)
            .chain(rows(spreads, "B constant", "roung-job", &["interval, 1.1"]))
            .chain(rows(loads, "B constant", "roung-job", &JOB))
    };
    let different = job().map(|row| row.runs - row.as_round_robin).sum::<u32>();
    [
        claim("closed", apart(&CLOSED)),
        claim("interval, to 1", apart(&STABLE)),
        Claim::new("C1", "B constant", "interval, to 2.5", published)
            .measured(f64::from(different), "runs with a file on another path, roung-job")
            .judged("0", different == 0)
            .required(true)
            .note(format!("of {} runs; from load 2.9 on it breaks", job().map(|row| row.runs).sum::<u32>())),
        Claim::new("C1", "B constant", "interval, over 1", published)
            .measured(time, "% of time apart, roung, most")
            .judged("<= 1.2", time <= 1.2)
            .note(format!(
                "beyond capacity a path never drains, so what is blocked stays blocked: the reading `busy` is \
                 for bounded queues. It is chaotic there: at load 1.5 the first path gets {} files, and 5454 \
                 if the interval instead of each arrival is rounded to whole nanoseconds",
                list(rows(spreads, "B constant", "roung", &["interval, 1.5"]).map(|row| row.files[0]), 0)
            )),
    ]
}

fn unequal_sizes(spreads: &[SpreadRow]) -> [Claim; 5] {
    let published = "unequal sizes: 1.5 times faster";
    let claim = |situation, regime, selector, arrivals: &[&str]| {
        let gains: Vec<f64> =
            rows(spreads, situation, selector, arrivals).map(|row| row.speed_up).collect();
        let lowest = least(gains.iter().copied());
        Claim::new("C2", situation, regime, published)
            .measured(
                lowest,
                if selector == "roung" {
                    "times, roung, lowest"
                } else {
                    "times, roung-job, lowest"
                },
            )
            .judged(">= 1.4", lowest >= 1.4)
            .note(format!("{} of round robin's speed", list(gains, 2)))
    };
    let more = |claim: Claim, why: &str| {
        let note = format!("{}; {why}", claim.note);
        claim.note(note)
    };
    [
        claim("A", "closed, 4 to 64", "roung", &CLOSED).required(true),
        claim("A", "interval, 1", "roung", &["interval, 1"]).required(true),
        claim("A", "interval, 1.5 to 20", "roung-job", &JOB_FASTER).required(true),
        more(
            claim("80/20", "closed, 4 to 64", "roung", &CLOSED),
            "round robin itself differs by 1.85 only",
        ),
        more(
            claim("B uniform", "closed, 4 to 64", "roung", &CLOSED),
            "with sizes of their own round robin is even by itself: the gain is that of the strict alternation",
        ),
    ]
}

fn imbalance(spreads: &[SpreadRow]) -> [Claim; 2] {
    let claim = |regime, selector, arrivals: &[&str], limit, tolerance| {
        let of = |selector| -> Vec<f64> {
            rows(spreads, "A", selector, arrivals).map(|row| row.imbalance).collect()
        };
        let (rivals, own) = (of("rr"), of(selector));
        let highest = most(own);
        let third = rivals.iter().all(|rival| (2.8..=3.2).contains(rival));
        Claim::new("C3", "A", regime, "round robin's paths differ by a factor of 3, RounG's hardly")
            .measured(
                highest,
                if selector == "roung" { "times, roung, most" } else { "times, roung-job, most" },
            )
            .judged(tolerance, highest <= limit && third)
            .required(true)
            .note(format!("round robin {:.3}", most(rivals)))
    };
    [
        claim("closed, 4 to 64", "roung", &CLOSED, 1.02, "<= 1.02, round robin 2.8 to 3.2"),
        claim("interval, 1.5, 2", "roung-job", &JOB[..2], 1.1, "<= 1.1, round robin 2.8 to 3.2"),
    ]
}

fn at_once(spreads: &[SpreadRow]) -> Claim {
    let files = ["roung", "roung-job"].into_iter().flat_map(|selector| {
        rows(spreads, "A", selector, &["all at once"]).map(|row| most(row.files))
    });
    let fewest = least(files);
    Claim::new("C-once", "A", "all at once", "all files at time zero: every reading fails")
        .measured(fewest, "files of 10,000 on one path, fewer")
        .judged(">= 9990", fewest >= 9_990.0)
        .required(true)
        .note(
            "nothing ends while the files are given out, so the first path is blocked after three",
        )
}

/// Rows of one workload, by selector.
fn response<'a>(rows: &'a [ResponseRow], like: &ResponseRow, selector: &str) -> &'a ResponseRow {
    let same = |row: &&ResponseRow| {
        row.selector == selector
            && (&row.workload, row.paths) == (&like.workload, like.paths)
            && row.load.total_cmp(&like.load).is_eq()
    };
    rows.iter().find(same).expect("every selector was run")
}

/// The workloads of a table: the rows of one selector.
fn workloads(rows: &[ResponseRow]) -> impl Iterator<Item = &ResponseRow> {
    rows.iter().filter(|row| row.selector == "rr")
}

/// The mean of `jsw` divided by that of the best of the others, at its worst, and where that is.
fn against_the_best<'a>(
    rows: &'a [ResponseRow],
    workloads: impl Iterator<Item = &'a ResponseRow>,
) -> (f64, String) {
    let ratio = |like: &ResponseRow| {
        let others = rows.iter().filter(|row| {
            row.selector != "jsw" && std::ptr::eq(response(rows, like, row.selector), *row)
        });
        let best = others.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms)).expect("there are many");
        let ratio = response(rows, like, "jsw").mean_ms / best.mean_ms;
        (
            ratio,
            format!("{} {}, where {} is the best other", like.workload, like.paths, best.selector),
        )
    };
    let ratios = workloads.map(ratio);
    ratios.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are some")
}

fn general(rows: &[ResponseRow]) -> [Claim; 4] {
    let cell = |workload, load: f64| {
        let is = |row: &&ResponseRow| {
            row.workload == workload && row.paths == "2" && row.load.total_cmp(&load).is_eq()
        };
        workloads(rows).find(is).expect("it was run")
    };
    let (fixed, tail, near) = (cell("fixed", 0.8), cell("pareto", 0.8), cell("pareto", 0.95));
    let loses = response(rows, fixed, "roung").p99_ms / fixed.p99_ms;
    let wins = response(rows, tail, "roung").mean_ms / tail.mean_ms;
    let pairs: Vec<bool> = workloads(rows)
        .flat_map(|like| {
            let roung = response(rows, like, "roung").mean_ms;
            ["ql", "st", "hst"].map(|selector| response(rows, like, selector).mean_ms <= roung)
        })
        .collect();
    let beaten = pairs.iter().filter(|&&beaten| beaten).count();
    let (worst, place) = against_the_best(rows, workloads(rows));
    [
        Claim::new(
            "G-rr",
            "fixed",
            "poisson, 0.8",
            "RounG loses to round robin where sizes are equal",
        )
        .measured(loses, "times round robin's p99")
        .judged("> 1.2", loses > 1.2)
        .required(true)
        .note(format!(
            "p99 {:.2} to {:.2} ms, mean {:.2} to {:.2} ms",
            response(rows, fixed, "roung").p99_ms,
            fixed.p99_ms,
            response(rows, fixed, "roung").mean_ms,
            fixed.mean_ms
        )),
        Claim::new("G-tail", "pareto", "poisson, 0.8", "RounG beats round robin on heavy tails")
            .measured(wins, "times round robin's mean")
            .judged("< 0.8", wins < 0.8)
            .required(true)
            .note(format!(
                "mean {:.2} to {:.2} ms",
                response(rows, tail, "roung").mean_ms,
                tail.mean_ms
            )),
        Claim::new("G-linux", "all", "poisson", "ql, st and hst beat RounG on every workload")
            .measured(beaten as f64, "of 21 comparisons of means")
            .judged("21", beaten == 21)
            .required(true)
            .note(format!(
                "near capacity runs differ much: at load 0.95 round robin's mean is {:.2} to {:.2} ms from run to \
                 run, and published is one of 1.98 ms",
                near.mean_from_to_ms.0, near.mean_from_to_ms.1
            )),
        Claim::new(
            "G-jsw",
            "all",
            "poisson",
            "jsw is the best on every workload, or level with it",
        )
        .measured(worst, "times the best other's mean, most")
        .judged("<= 1.01", worst <= 1.01)
        .required(true)
        .note(format!("on {place}")),
    ]
}

fn fault<'a>(rows: &'a [FaultRow], fault: &str, sizes: &str, selector: &str) -> &'a FaultRow {
    let mut rows = rows.iter();
    let row = rows.find(|row| (row.fault, row.sizes, row.selector) == (fault, sizes, selector));
    row.expect("every selector was run")
}

fn stall(rows: &[FaultRow]) -> [Claim; 4] {
    let both = |selector| ["fixed", "pareto"].map(|sizes| fault(rows, "stall", sizes, selector));
    let highest = |selector| most(both(selector).map(|row| row.long_median));
    let claim = |id, published, selector, limit: f64, tolerance| {
        let counted = highest(selector);
        Claim::new(id, "all", "poisson, 0.4", published)
            .measured(counted, "I/Os over 100 ms, median of the runs")
            .judged(tolerance, counted <= limit)
            .required(true)
            .note(format!(
                "means on equal sizes and heavy tails {}, in a run {} at most",
                list(both(selector).map(|row| row.long), 1),
                list(both(selector).map(|row| row.long_most as f64), 0)
            ))
    };
    let linux = ["ql", "st", "hst"];
    let lost = least(linux.into_iter().flat_map(|s| both(s).map(|row| row.long)));
    let back = least(both("jsw").map(|row| row.after_share));
    let stuck = fault(rows, "stall", "fixed", "ewma").after_share;
    [
        claim("S-roung", "a path stalls for 2 s: RounG loses 3 I/Os to it", "roung", 3.5, "<= 3.5"),
        claim("S-jsw", "a path stalls for 2 s: jsw loses 5 I/Os to it at most", "jsw", 5.0, "<= 5"),
        Claim::new("S-linux", "all", "poisson, 0.4", "ql, st and hst lose many")
            .measured(lost, "I/Os over 100 ms, mean, fewest")
            .judged(">= 10", lost >= 10.0)
            .note(
                linux.map(|s| format!("{s} {}", list(both(s).map(|row| row.long), 1))).join(", "),
            ),
        Claim::new(
            "S-back",
            "all",
            "poisson, 0.4",
            "after the stall jsw uses the path again, ewma never",
        )
        .measured(back, "share of the path after it, jsw, least")
        .judged(">= 0.3, ewma on fixed sizes < 0.05", back >= 0.3 && stuck < 0.05)
        .note(format!("ewma {stuck:.2}")),
    ]
}

fn slow(rows: &[FaultRow]) -> [Claim; 2] {
    let claim = |sizes| {
        let own = fault(rows, "slow", sizes, "jsw");
        let others = rows
            .iter()
            .filter(|row| (row.fault, row.sizes) == ("slow", sizes) && row.selector != "jsw");
        let best = others.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms)).expect("there are many");
        let ratio = own.mean_ms / best.mean_ms;
        Claim::new("S-slow", sizes, "poisson, 0.4", "a path is 20 times slower: jsw is the best, or level")
            .measured(ratio, "times the best other's mean")
            .judged("<= 1.05", ratio <= 1.05)
            .note(format!(
                "{} {:.2} ms, jsw {:.2}, roung {:.2}, st {:.2}; p99.9 of jsw {:.1}, of roung {:.1}, of st {:.1} ms",
                best.selector,
                best.mean_ms,
                own.mean_ms,
                fault(rows, "slow", sizes, "roung").mean_ms,
                fault(rows, "slow", sizes, "st").mean_ms,
                own.p999_ms,
                fault(rows, "slow", sizes, "roung").p999_ms,
                fault(rows, "slow", sizes, "st").p999_ms
            ))
    };
    ["fixed", "pareto"].map(claim)
}

fn different_speeds(rows: &[ResponseRow]) -> [Claim; 4] {
    let of = |workload| workloads(rows).filter(move |row| row.workload == workload);
    let below = |selector| {
        let gain = |like| {
            let (own, other) = (response(rows, like, "jsw"), response(rows, like, selector));
            100.0 * (1.0 - own.mean_ms / other.mean_ms)
        };
        of("pareto").map(gain).collect::<Vec<f64>>()
    };
    let (hst, told) = (below("hst"), below("st*"));
    let limits = [10.0, 20.0, 35.0];
    let kept =
        hst.len() == limits.len() && hst.iter().zip(limits).all(|(&gain, least)| gain >= least);
    let first = least(hst.iter().copied());
    let lowest = least(told.iter().copied());
    let lost = least(
        of("fixed").chain(of("pareto")).map(|row| row.mean_ms / response(rows, row, "jsw").mean_ms),
    );
    let (worst, place) = against_the_best(rows, of("fixed"));
    [
        Claim::new("V-hst", "pareto", "poisson, 0.7", "jsw beats hst by 17, 27 and 43 % at 2:1, 4:1, 10:1")
            .measured(first, "% below hst's mean, least")
            .judged(">= 10, 20 and 35", kept)
            .required(true)
            .note(format!("{} %", list(hst.iter().copied(), 1))),
        Claim::new("V-told", "pareto", "poisson, 0.7", "jsw beats service-time with configured speeds")
            .measured(lowest, "% below its mean, least")
            .judged("> 0", lowest > 0.0)
            .required(true)
            .note(format!("{} %", list(told.iter().copied(), 1))),
        Claim::new("V-rr", "all", "poisson, 0.7", "round robin cannot be used on paths of different speeds")
            .measured(lost, "times the mean of jsw, at best")
            .judged("> 5", lost > 5.0)
            .required(true),
        Claim::new("V-fixed", "fixed", "poisson, 0.7", "jsw is the best on equal sizes too, or level with it")
            .measured(worst, "times the best other's mean, most")
            .judged("<= 1.01", worst <= 1.01)
            .note(format!(
                "on {place}; published are 0.42 to 0.45 and 0.45 to 0.48 ms at 4:1 and 10:1. ewma pays for it on \
                 other sizes and after a stall"
            )),
    ]
}

fn many_paths(rows: &[RuleRow]) -> [Claim; 2] {
    let of = |rule, paths: u32| {
        let mut rows = rows.iter();
        rows.find(|row| (row.rule, row.paths) == (rule, paths)).expect("it was run")
    };
    let used = most([6, 8, 16].map(|paths| f64::from(of("literal", paths).used)));
    let all = [6, 8, 16].iter().all(|&paths| of("roung", paths).used == paths);
    let ratio = |paths| {
        let others = least(["literal", "roung 4(n-1)"].map(|rule| of(rule, paths).mean_ms));
        of("roung", paths).mean_ms / others
    };
    let ratios = [2, 4, 6, 8, 16].map(ratio);
    let worst = most(ratios);
    [
        Claim::new("N-lock", "pareto", "poisson, 0.8", "if idle paths age, those beyond the fourth are never used")
            .measured(used, "of 6, 8 and 16 paths used, most")
            .judged("<= 4, all of them with our rule", used <= 4.0 && all)
            .required(true)
            .note(format!(
                "means {} ms, with our rule {} ms. docs/research/path.md, section 6, has one path; its means of \
                 24.1, 53.2 and 97.6 ms are those of four",
                list([6, 8, 16].map(|paths| of("literal", paths).mean_ms), 1),
                list([6, 8, 16].map(|paths| of("roung", paths).mean_ms), 3)
            )),
        Claim::new("N-rule", "pareto", "poisson, 0.8", "our rule of aging is the best or level at 2 to 16 paths")
            .measured(worst, "times the mean of the best other rule, most")
            .judged("<= 1.01", worst <= 1.01)
            .note(format!("{} at 2, 4, 6, 8, 16", list(ratios, 2))),
    ]
}

fn outage(rows: &[OutageRow]) -> [Claim; 3] {
    let held = || rows.iter().filter(|row| row.holds);
    // A row for each selector, with I/Os that may wait and with those that may not.
    let all = [held().count(), rows.len() - held().count()] == [ALL.len(); 2];
    let lost: u64 =
        rows.iter().map(|row| row.lost).sum::<u64>() + held().map(|row| row.failed).sum::<u64>();
    let failing = || rows.iter().filter(|row| !row.holds);
    let at_once = |row: &OutageRow| row.failed_at_once as f64 / row.came_without.max(1) as f64;
    let fewest = least(failing().map(at_once));
    let few = |figure: fn(&OutageRow) -> u64| {
        let figures = move || failing().map(move |row| figure(row) as f64 / f64::from(row.runs));
        format!("{:.0} to {:.0}", least(figures()), most(figures()))
    };
    let stays = least(rows.iter().map(|row| row.second_group));
    let retried = || held().map(|row| row.retried as f64 / f64::from(row.runs));
    [
        Claim::new("F-done", "pareto", "poisson, 0.3", "every path fails: what may wait is done, nothing is lost")
            .measured(lost as f64, "I/Os lost, or failed though they may wait")
            .judged("0", all && lost == 0)
            .required(true)
            .note(format!(
                "{:.0} to {:.0} of {OUTAGE_COUNT} in a run had to be retried; the longest took {:.0} ms, of \
                 which 200 ms is the time without a path, the rest the queue behind it",
                least(retried()),
                most(retried()),
                most(held().map(|row| row.longest_ms))
            )),
        Claim::new("F-fail", "pareto", "poisson, 0.3", "what may not wait fails at once")
            .measured(fewest, "share of what came without a path that failed when it came, least")
            .judged("1", all && fewest >= 1.0)
            .required(true)
            .note(format!(
                "{} came in a run; {} more failed, which were on the last path as it failed",
                few(|row| row.came_without),
                few(|row| row.failed - row.failed_at_once)
            )),
        Claim::new("F-stay", "pareto", "poisson, 0.3", "without failback the second group stays in use")
            .measured(stays, "share of it after all repairs, least")
            .judged("1", all && stays >= 1.0)
            .required(true),
    ]
}

fn traces(rows: &[ResponseRow]) -> [Claim; 2] {
    let (worst, place) = against_the_best(rows, workloads(rows));
    let ratio = |like: &ResponseRow| response(rows, like, "roung").mean_ms / like.mean_ms;
    let even = || workloads(rows).filter(|row| row.paths == "1:1");
    let lowest = least(even().map(ratio));
    [
        Claim::new("R-jsw", "given", "recorded", "jsw is the best on every trace, or within 1 %")
            .measured(worst, "times the best other's mean, most")
            .judged("<= 1.01", worst <= 1.01)
            .note(format!("on {place}")),
        Claim::new(
            "R-roung",
            "given",
            "recorded",
            "RounG's mean is worse than round robin's on equal paths",
        )
        .measured(lowest, "times round robin's mean, least")
        .judged("> 1", lowest > 1.0)
        .note(
            even()
                .map(|like| format!("{} {:.2}", like.workload, ratio(like)))
                .collect::<Vec<_>>()
                .join(", "),
        ),
    ]
}

/// Arrivals, as the tables call them.
const CLOSED: [&str; 5] = ["closed, 4", "closed, 8", "closed, 16", "closed, 32", "closed, 64"];
const STABLE: [&str; 3] = ["interval, 0.5", "interval, 0.9", "interval, 1"];
const OVERLOAD: [&str; 5] =
    ["interval, 1.1", "interval, 1.5", "interval, 2", "interval, 5", "interval, 20"];
const JOB: [&str; 3] = ["interval, 1.5", "interval, 2", "interval, 2.5"];
const JOB_FASTER: [&str; 4] = ["interval, 1.5", "interval, 2", "interval, 5", "interval, 20"];
