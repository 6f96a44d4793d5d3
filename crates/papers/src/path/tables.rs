//! The runs of each table, and the rows made from their outcomes.
//!
//! Rates, loads and counts are those of docs/research/path.md. Where it does not say them, they follow from
//! its figures for round robin: 60,000 I/Os; an interval from what the files of the run add up to; a third
//! of the run before, in and after a fault.

use super::cells::{Cell, Found, Plan};
use super::contestants::{ALL, CONFIGURED, PAPER, PATHS, THRESHOLDS};
use super::link::Link;
use super::rows::{
    Course, FaultRow, OutageRow, PrintedRow, ResponseRow, RuleRow, SpreadRow, ThresholdRow,
};
use super::score::Outcome;
use super::work::{Arrivals, MEAN_FILE, Sizes};
use super::{Asked, Case, Contestant, Fault, Trace, contestants};
use crate::claim::{least, median, most};
use std::sync::Arc;

fn case(selector: Contestant, links: &[Link], asked: Asked, fault: Fault) -> Case {
    let paths = links.iter().map(|&link| (link, 0)).collect();
    Case { selector, paths, asked, fault }
}

/// Selectors on files over two paths of the paper.
pub(super) struct SpreadCell {
    situation: &'static str,
    arrivals: &'static str,
    /// The first is round robin.
    selectors: Vec<(&'static str, Cell)>,
}

const CLOSED: [(&str, Arrivals); 6] = [
    ("closed, 2", Arrivals::Closed(2)),
    ("closed, 4", Arrivals::Closed(4)),
    ("closed, 8", Arrivals::Closed(8)),
    ("closed, 16", Arrivals::Closed(16)),
    ("closed, 32", Arrivals::Closed(32)),
    ("closed, 64", Arrivals::Closed(64)),
];

const OPEN: [(&str, Arrivals); 9] = [
    ("all at once", Arrivals::AtOnce),
    ("interval, 0.5", Arrivals::Interval(0.5)),
    ("interval, 0.9", Arrivals::Interval(0.9)),
    ("interval, 1", Arrivals::Interval(1.0)),
    ("interval, 1.1", Arrivals::Interval(1.1)),
    ("interval, 1.5", Arrivals::Interval(1.5)),
    ("interval, 2", Arrivals::Interval(2.0)),
    ("interval, 5", Arrivals::Interval(5.0)),
    ("interval, 20", Arrivals::Interval(20.0)),
];

const LOADS: [(&str, Arrivals); 9] = [
    ("interval, 1.1", Arrivals::Interval(1.1)),
    ("interval, 1.3", Arrivals::Interval(1.3)),
    ("interval, 1.5", Arrivals::Interval(1.5)),
    ("interval, 2", Arrivals::Interval(2.0)),
    ("interval, 2.5", Arrivals::Interval(2.5)),
    ("interval, 2.9", Arrivals::Interval(2.9)),
    ("interval, 4", Arrivals::Interval(4.0)),
    ("interval, 10", Arrivals::Interval(10.0)),
    ("interval, 20", Arrivals::Interval(20.0)),
];

const SITUATIONS: [(&str, Sizes); 4] = [
    ("A", Sizes::SmallLarge),
    ("B constant", Sizes::Constant(MEAN_FILE)),
    ("B uniform", Sizes::Uniform),
    ("80/20", Sizes::EightyTwenty),
];

impl SpreadCell {
    fn new(
        plan: &mut Plan,
        (situation, sizes): (&'static str, Sizes),
        (arrivals, coming): (&'static str, Arrivals),
        selectors: &[Contestant],
        usual: u32,
    ) -> Self {
        let mut cell = |&selector: &Contestant| {
            let asked = Asked::Drawn(sizes, coming, FILES);
            let case = case(selector, &[HBA; 2], asked, Fault::None);
            (selector.label, plan.add(case, usual))
        };
        let selectors = selectors.iter().map(&mut cell).collect();
        Self { situation, arrivals, selectors }
    }

    pub(super) fn rows(&self, found: &Found) -> Vec<SpreadRow> {
        let (_, first) = self.selectors[0];
        let end = |cell| found.mean(cell, |run| run.end_ns as f64) / 1e9;
        let row = |&(selector, cell): &(&'static str, Cell)| {
            let path = |path: usize| {
                let served = found.mean(cell, |run| run.paths[path].0 as f64) / 1e9;
                (served, found.mean(cell, |run| run.paths[path].1 as f64))
            };
            let ((served_0, files_0), (served_1, files_1)) = (path(0), path(1));
            let pairs = found.runs(cell).iter().zip(found.runs(first));
            SpreadRow {
                situation: self.situation,
                arrivals: self.arrivals,
                selector,
                runs: found.count(cell),
                served_s: [served_0, served_1],
                files: [files_0, files_1],
                end_s: end(cell),
                speed_up: end(first) / end(cell),
                imbalance: found.mean(cell, |run| {
                    let served = [run.paths[0].0 as f64, run.paths[1].0 as f64];
                    served[0].max(served[1]) / served[0].min(served[1])
                }),
                as_round_robin: pairs.filter(|(run, first)| run.choices == first.choices).count()
                    as u32,
            }
        };
        self.selectors.iter().map(row).collect()
    }
}

/// The workloads of the paper.
pub(super) fn spreads(plan: &mut Plan) -> Vec<SpreadCell> {
    let mut cells = Vec::new();
    for situation in SITUATIONS {
        for arrivals in OPEN.into_iter().chain(CLOSED) {
            cells.push(SpreadCell::new(plan, situation, arrivals, &PAPER, RUNS_PAPER));
        }
    }
    cells
}

/// The reading `job` by load.
pub(super) fn loads(plan: &mut Plan) -> Vec<SpreadCell> {
    let mut cells = Vec::new();
    for situation in [SITUATIONS[0], SITUATIONS[1]] {
        for arrivals in LOADS {
            let selectors = [PAPER[0], PAPER[2]];
            cells.push(SpreadCell::new(plan, situation, arrivals, &selectors, RUNS));
        }
    }
    cells
}

/// Table 1. What is measured is round robin and the reading `busy` with 16 files outstanding, and of the
/// counts the reading `busy` on sizes of their own at load 1.
pub(super) fn printed(spreads: &[SpreadRow]) -> Vec<PrintedRow> {
    let measured = |situation, arrivals, selector| {
        let mut rows = spreads.iter();
        let row = rows.find(|row| {
            (row.situation, row.arrivals, row.selector) == (situation, arrivals, selector)
        });
        row.expect("it was run")
    };
    let rr = measured("A", "closed, 16", "rr").served_s;
    let roung = measured("A", "closed, 16", "roung").served_s;
    let rr_files = measured("B uniform", "interval, 1", "rr").files;
    let files = measured("B uniform", "interval, 1", "roung").files;
    let blocks = [
        ("RR, A", [126.94, 175.07, 251.01], [126.94, 375.07, 251.01], rr, true),
        ("RounG, A", [248.83, 248.85, 248.59], [248.33, 248.85, 248.59], roung, true),
        ("RR, B", [5_000.0; 3], [5_000.0; 3], rr_files, false),
        ("RounG, B", [5_000.0, 4_995.0, 5_000.0], [5_005.0, 4_995.0, 5_000.0], files, false),
    ];
    let rows = |(block, printed, repaired, measured, seconds): (_, [f64; 3], [f64; 3], _, _)| {
        let [first, second]: [f64; 2] = measured;
        let all = [first, second, f64::midpoint(first, second)];
        let names = if seconds {
            ["HBA 1, s", "HBA 2, s", "mean, s"]
        } else {
            ["HBA 1, files", "HBA 2, files", "mean, files"]
        };
        [0, 1, 2].map(|place| PrintedRow {
            block,
            figure: names[place],
            printed: printed[place],
            repaired: repaired[place],
            measured: all[place],
            means: (place == 2)
                .then(|| [printed, repaired].map(|rows| f64::midpoint(rows[0], rows[1])).into()),
        })
    };
    blocks.into_iter().flat_map(rows).collect()
}

/// A rule on some paths: closed loop and open arrivals.
pub(super) struct RuleCell {
    paths: u32,
    rule: &'static str,
    closed: Cell,
    open: Cell,
}

pub(super) fn rules(plan: &mut Plan) -> Vec<RuleCell> {
    let mut cells = Vec::new();
    for paths in PATHS {
        for selector in contestants::rules(paths) {
            let closed = Arrivals::Closed(8 * paths as usize);
            let closed = Asked::Drawn(Sizes::OneLargeIn(u64::from(paths)), closed, 8_000);
            let open = Asked::Drawn(Sizes::Pareto, Arrivals::Poisson(0.8), 20_000);
            let mut add = |link, asked| {
                let links = vec![link; paths as usize];
                plan.add(case(selector, &links, asked, Fault::None), RUNS)
            };
            let (closed, open) = (add(BARE, closed), add(LINK, open));
            cells.push(RuleCell { paths, rule: selector.label, closed, open });
        }
    }
    cells
}

impl RuleCell {
    pub(super) fn row(&self, found: &Found) -> RuleRow {
        let used = |run: &Outcome| run.paths.iter().filter(|&&(_, count)| count > 0).count();
        RuleRow {
            paths: self.paths,
            rule: self.rule,
            runs: found.count(self.open),
            closed_s: found.mean(self.closed, |run| run.end_ns as f64) / 1e9,
            mean_ms: found.mean(self.open, |run| run.mean_ns) / 1e6,
            used: found.runs(self.open).iter().map(used).max().unwrap_or_default() as u32,
        }
    }
}

/// A threshold on two paths with 4, 16 and 64 files outstanding.
pub(super) struct ThresholdCell {
    threshold: u32,
    closed: [Cell; 3],
}

pub(super) fn thresholds(plan: &mut Plan) -> Vec<ThresholdCell> {
    let cell = |(threshold, selector)| {
        let closed = [4, 16, 64].map(|outstanding| {
            let asked = Asked::Drawn(Sizes::SmallLarge, Arrivals::Closed(outstanding), FILES);
            plan.add(case(selector, &[HBA; 2], asked, Fault::None), RUNS)
        });
        ThresholdCell { threshold, closed }
    };
    THRESHOLDS.map(cell).into()
}

impl ThresholdCell {
    pub(super) fn row(&self, found: &Found) -> ThresholdRow {
        ThresholdRow {
            threshold: self.threshold,
            runs: found.count(self.closed[0]),
            end_s: self.closed.map(|cell| found.mean(cell, |run| run.end_ns as f64) / 1e9),
        }
    }
}

/// A selector under open arrivals.
pub(super) struct ResponseCell {
    workload: String,
    paths: &'static str,
    load: f64,
    selector: &'static str,
    cell: Cell,
}

impl ResponseCell {
    pub(super) fn row(&self, found: &Found) -> ResponseRow {
        let means = || found.runs(self.cell).iter().map(|run| run.mean_ns / 1e6);
        ResponseRow {
            workload: self.workload.clone(),
            paths: self.paths,
            load: self.load,
            selector: self.selector,
            runs: found.count(self.cell),
            mean_ms: found.mean(self.cell, |run| run.mean_ns) / 1e6,
            mean_from_to_ms: (least(means()), most(means())),
            p99_ms: found.mean(self.cell, |run| run.p99_ns as f64) / 1e6,
        }
    }
}

const FIXED: (&str, Sizes) = ("fixed", Sizes::Constant(64 << 10));
const PARETO: (&str, Sizes) = ("pareto", Sizes::Pareto);
const ALTERNATING: (&str, Sizes) = ("alt", Sizes::Alternating);

/// Paths of one speed.
pub(super) fn responses(plan: &mut Plan) -> Vec<ResponseCell> {
    let mut cells = Vec::new();
    for ((workload, sizes), paths, load) in [
        (FIXED, 2, 0.8),
        (ALTERNATING, 2, 0.5),
        (ALTERNATING, 2, 0.8),
        (PARETO, 2, 0.5),
        (PARETO, 2, 0.8),
        (PARETO, 2, 0.95),
        (PARETO, 4, 0.8),
    ] {
        for selector in ALL {
            let asked = Asked::Drawn(sizes, Arrivals::Poisson(load), COUNT);
            let links = vec![LINK; paths];
            cells.push(ResponseCell {
                workload: workload.to_owned(),
                paths: if paths == 2 { "2" } else { "4" },
                load,
                selector: selector.label,
                cell: plan.add(case(selector, &links, asked, Fault::None), RUNS),
            });
        }
    }
    cells
}

/// Two paths of different speeds.
pub(super) fn speeds(plan: &mut Plan) -> Vec<ResponseCell> {
    let mut cells = Vec::new();
    for (workload, sizes) in [FIXED, PARETO] {
        for ((paths, ratio), told) in
            [("2:1", 2), ("4:1", 4), ("10:1", 10)].into_iter().zip(CONFIGURED)
        {
            let links = [LINK, Link { rate: LINK.rate / ratio, ..LINK }];
            for selector in ALL.into_iter().chain([told]) {
                let asked = Asked::Drawn(sizes, Arrivals::Poisson(0.7), COUNT);
                cells.push(ResponseCell {
                    workload: workload.to_owned(),
                    paths,
                    load: 0.7,
                    selector: selector.label,
                    cell: plan.add(case(selector, &links, asked, Fault::None), RUNS),
                });
            }
        }
    }
    cells
}

/// A selector while the second of two paths is not well.
pub(super) struct FaultCell {
    fault: &'static str,
    sizes: &'static str,
    selector: &'static str,
    cell: Cell,
}

pub(super) fn faults(plan: &mut Plan) -> Vec<FaultCell> {
    let mut cells = Vec::new();
    for (name, fault) in [("slow", Fault::Slow), ("stall", Fault::Stall)] {
        for (workload, sizes) in [FIXED, PARETO] {
            for selector in ALL {
                let asked = Asked::Drawn(sizes, Arrivals::Poisson(0.4), COUNT);
                let cell = plan.add_with_course(case(selector, &[LINK; 2], asked, fault), RUNS);
                let selector = selector.label;
                cells.push(FaultCell { fault: name, sizes: workload, selector, cell });
            }
        }
    }
    cells
}

impl FaultCell {
    pub(super) fn row(&self, found: &Found) -> FaultRow {
        let mean = |figure: fn(&Outcome) -> f64| found.mean(self.cell, figure);
        let runs = found.runs(self.cell);
        FaultRow {
            fault: self.fault,
            sizes: self.sizes,
            selector: self.selector,
            runs: found.count(self.cell),
            mean_ms: mean(|run| run.mean_ns) / 1e6,
            p99_ms: mean(|run| run.p99_ns as f64) / 1e6,
            p999_ms: mean(|run| run.p999_ns as f64) / 1e6,
            long: mean(|run| run.long as f64),
            long_median: median(runs.iter().map(|run| run.long as f64)),
            long_most: runs.iter().map(|run| run.long).max().unwrap_or_default(),
            after_ms: mean(|run| run.after.1) / 1e6,
            after_share: mean(|run| run.after.2[1] as f64 / run.after.0.max(1) as f64),
        }
    }

    pub(super) fn course(&self, found: &Found) -> Course {
        let run = &found.runs(self.cell)[0];
        Course {
            fault: self.fault,
            sizes: self.sizes,
            selector: self.selector,
            trouble: run
                .trouble
                .map_or((0.0, 0.0), |(from, until)| (from as f64 / 1e9, until as f64 / 1e9)),
            samples: run.samples.clone(),
        }
    }
}

/// A selector while paths of two groups fail and are repaired.
pub(super) struct OutageCell {
    selector: &'static str,
    holds: bool,
    cell: Cell,
}

pub(super) fn outages(plan: &mut Plan) -> Vec<OutageCell> {
    let mut cells = Vec::new();
    for holds in [true, false] {
        for selector in ALL {
            // 60 % of one group's two paths: more than one of them can do.
            let asked = Asked::Drawn(PARETO.1, Arrivals::Poisson(0.3), OUTAGE_COUNT);
            let mut case = case(selector, &[LINK; 4], asked, Fault::Outage { holds });
            case.paths[2].1 = 1;
            case.paths[3].1 = 1;
            let cell = plan.add(case, RUNS);
            cells.push(OutageCell { selector: selector.label, holds, cell });
        }
    }
    cells
}

impl OutageCell {
    pub(super) fn row(&self, found: &Found) -> OutageRow {
        let runs = found.runs(self.cell);
        let sum = |figure: fn(&Outcome) -> u64| runs.iter().map(figure).sum::<u64>();
        let done = sum(|run| run.paths.iter().map(|&(_, count)| count).sum());
        let failed = sum(|run| run.failed);
        let longest = runs.iter().map(|run| run.longest_ns).max().unwrap_or_default();
        let second_group = sum(|run| run.after.2[2..].iter().sum());
        OutageRow {
            selector: self.selector,
            holds: self.holds,
            runs: found.count(self.cell),
            done,
            failed,
            came_without: sum(|run| run.outage.0),
            failed_at_once: sum(|run| run.outage.1),
            lost: (OUTAGE_COUNT as u64 * runs.len() as u64).abs_diff(done + failed),
            retried: sum(|run| run.retried),
            longest_ms: longest as f64 / 1e6,
            second_group: second_group as f64 / sum(|run| run.after.0).max(1) as f64,
        }
    }
}

/// Traces on two paths of one speed, and on one that is four times as fast as the other. Together they are
/// so fast that the busiest tenth of the trace loads them to 0.6.
pub(super) fn traces(plan: &mut Plan, traces: &[Trace]) -> Vec<ResponseCell> {
    let mut cells = Vec::new();
    for trace in traces {
        for (paths, shares) in [("1:1", [0.5, 0.5]), ("4:1", [0.8, 0.2])] {
            let rate = |share: f64| (trace.busiest() / 0.6 * share).max(1.0) as u64;
            let links = shares.map(|share| Link { rate: rate(share), ..LINK });
            for selector in ALL {
                let asked = Asked::Recorded(Arc::clone(&trace.ios));
                cells.push(ResponseCell {
                    workload: trace.name.clone(),
                    paths,
                    load: 0.6,
                    selector: selector.label,
                    cell: plan.add(case(selector, &links, asked, Fault::None), 1),
                });
            }
        }
    }
    cells
}

/// A path of the paper: 1 GB/s, and nothing else.
const HBA: Link = Link { fixed: 0, rate: 1_000_000_000 };

/// A path of the other experiments: 400 MB/s, and 10 us for every I/O.
const LINK: Link = Link { fixed: 10_000, rate: 400_000_000 };

/// The same without the fixed time.
const BARE: Link = Link { fixed: 0, ..LINK };

/// Files of the paper.
const FILES: usize = 10_000;

/// I/Os of the experiments with open arrivals.
const COUNT: usize = 60_000;

/// I/Os that come while paths fail.
pub(super) const OUTAGE_COUNT: usize = 40_000;

/// Runs of the paper's experiments.
const RUNS_PAPER: u32 = 100;

/// Runs of the others.
const RUNS: u32 = 10;
