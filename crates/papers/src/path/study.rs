//! The whole of `weir reproduce path`: every run that a claim needs, on all cores.

use super::score::Outcome;
use super::{Case, Sample, Trace, claims, tables};
use crate::Settings;
use crate::claim::Claim;
use serde::Serialize;
use weir_sim::cores;

/// What was found. Selectors are called as in docs/research/path.md: `rr1000` keeps a path for 1000 I/Os,
/// `hst2` has threshold 2, `p2c` and `p2cb` compare I/Os and bytes, `st*` is told the speeds.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The first seed.
    pub seed: u64,
    /// The verdicts.
    pub claims: Vec<Claim>,
    /// Table 1 of the paper: as printed, as repaired, and measured.
    pub printed: Vec<PrintedRow>,
    /// The workloads of the paper under many kinds of arrivals.
    pub spreads: Vec<SpreadRow>,
    /// The reading `job` by load.
    pub loads: Vec<SpreadRow>,
    /// More than two paths.
    pub rules: Vec<RuleRow>,
    /// Thresholds on two paths.
    pub thresholds: Vec<ThresholdRow>,
    /// Poisson arrivals on paths of one speed.
    pub responses: Vec<ResponseRow>,
    /// Poisson arrivals on two paths of different speeds.
    pub speeds: Vec<ResponseRow>,
    /// A path that is slow or stalls for a time and reports no error.
    pub faults: Vec<FaultRow>,
    /// Paths that fail and are repaired.
    pub outages: Vec<OutageRow>,
    /// Traces, if any were given.
    pub traces: Vec<ResponseRow>,
    /// How the first run of each fault went: thousands of samples, for pictures only.
    #[serde(skip)]
    pub courses: Vec<Course>,
}

/// A figure of table 1.
#[derive(Clone, Debug, Serialize)]
pub struct PrintedRow {
    /// Selector and situation.
    pub block: &'static str,
    /// What the figure is, with its unit.
    pub figure: &'static str,
    /// In the paper.
    pub printed: f64,
    /// With one changed digit per block.
    pub repaired: f64,
    /// Here.
    pub measured: f64,
    /// For a mean: what the two figures above it have as their mean, as printed and as repaired.
    pub means: Option<(f64, f64)>,
}

/// One selector on 10,000 files over two paths.
#[derive(Clone, Debug, Serialize)]
pub struct SpreadRow {
    /// `A`, `B constant`, `B uniform` or `80/20`.
    pub situation: &'static str,
    /// How the files come.
    pub arrivals: &'static str,
    /// The selector.
    pub selector: &'static str,
    /// Runs of which these are the means.
    pub runs: u32,
    /// Seconds that each path served.
    pub served_s: [f64; 2],
    /// Files that it was given.
    pub files: [f64; 2],
    /// When the last file was done.
    pub end_s: f64,
    /// The end of round robin, divided by this end.
    pub speed_up: f64,
    /// By how much one path served longer than the other.
    pub imbalance: f64,
    /// Runs in which every file took the path that it takes under round robin.
    pub as_round_robin: u32,
}

/// One rule on some paths.
#[derive(Clone, Debug, Serialize)]
pub struct RuleRow {
    /// How many.
    pub paths: u32,
    /// The selector or rule.
    pub rule: &'static str,
    /// Runs of the open experiment; the closed one has no chance in it.
    pub runs: u32,
    /// Seconds that 8000 I/Os take of which one in as many as there are paths is large, eight for each
    /// path being outstanding.
    pub closed_s: f64,
    /// Mean response in milliseconds of 20,000 I/Os of heavy-tailed sizes at load 0.8.
    pub mean_ms: f64,
    /// Paths that did anything in the open experiment, at most.
    pub used: u32,
}

/// One threshold on two paths.
#[derive(Clone, Debug, Serialize)]
pub struct ThresholdRow {
    /// The age at which a path is passed over.
    pub threshold: u32,
    /// Runs of which these are the means.
    pub runs: u32,
    /// Seconds that situation A takes with 4, 16 and 64 files outstanding.
    pub end_s: [f64; 3],
}

/// One selector under open arrivals.
#[derive(Clone, Debug, Serialize)]
pub struct ResponseRow {
    /// What comes.
    pub workload: String,
    /// How many paths, or the ratio of their speeds.
    pub paths: &'static str,
    /// The load of all paths together; of a trace, of its busiest tenth.
    pub load: f64,
    /// The selector.
    pub selector: &'static str,
    /// Runs of which these are the means.
    pub runs: u32,
    /// Mean response in milliseconds.
    pub mean_ms: f64,
    /// The smallest and the largest of the runs' means.
    pub mean_from_to_ms: (f64, f64),
    /// The 99th percentile.
    pub p99_ms: f64,
}

/// One selector while a path is not well.
#[derive(Clone, Debug, Serialize)]
pub struct FaultRow {
    /// `slow` or `stall`.
    pub fault: &'static str,
    /// `fixed` or `pareto`.
    pub sizes: &'static str,
    /// The selector.
    pub selector: &'static str,
    /// Runs of which these are the means.
    pub runs: u32,
    /// Mean response in milliseconds.
    pub mean_ms: f64,
    /// Its 99th percentile.
    pub p99_ms: f64,
    /// Its 99.9th percentile.
    pub p999_ms: f64,
    /// I/Os that took more than 100 ms.
    pub long: f64,
    /// The most in a run.
    pub long_most: u64,
    /// Mean response of those that came a second after the middle third, or later.
    pub after_ms: f64,
    /// Share of those that went over the path that had not been well.
    pub after_share: f64,
}

/// One selector while paths fail and are repaired; sums over the runs.
#[derive(Clone, Debug, Serialize)]
pub struct OutageRow {
    /// The selector.
    pub selector: &'static str,
    /// Whether what finds no path waits for one.
    pub holds: bool,
    /// How many runs.
    pub runs: u32,
    /// I/Os that were done.
    pub done: u64,
    /// I/Os that failed.
    pub failed: u64,
    /// I/Os that came and are not among those, or twice.
    pub lost: u64,
    /// How often one was given to a path again.
    pub retried: u64,
    /// The longest response in milliseconds.
    pub longest_ms: f64,
    /// Share of the second group of what came after the last repair.
    pub second_group: f64,
}

/// The response over time under one selector while a path is not well.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// `slow` or `stall`.
    pub fault: &'static str,
    /// `fixed` or `pareto`.
    pub sizes: &'static str,
    /// The selector.
    pub selector: &'static str,
    /// From when to when the path is not well, in seconds.
    pub trouble: (f64, f64),
    /// By time of arrival.
    pub samples: Vec<Sample>,
}

/// Runs everything. `progress` hears of the share that is done, from any thread.
pub fn run(settings: Settings, traces: &[Trace], progress: &(dyn Fn(f64) + Sync)) -> Study {
    let mut plan = Plan { settings, cells: Vec::new() };
    let faults = tables::faults(&mut plan);
    let responses = tables::responses(&mut plan);
    let speeds = tables::speeds(&mut plan);
    let rules = tables::rules(&mut plan);
    let spreads = tables::spreads(&mut plan);
    let loads = tables::loads(&mut plan);
    let thresholds = tables::thresholds(&mut plan);
    let outages = tables::outages(&mut plan);
    let traces = tables::traces(&mut plan, traces);
    let found = plan.run(progress);
    let spreads: Vec<_> = spreads.iter().flat_map(|cell| cell.rows(&found)).collect();
    let mut study = Study {
        seed: settings.seed,
        claims: Vec::new(),
        printed: tables::printed(&spreads),
        spreads,
        loads: loads.iter().flat_map(|cell| cell.rows(&found)).collect(),
        rules: rules.iter().map(|cell| cell.row(&found)).collect(),
        thresholds: thresholds.iter().map(|cell| cell.row(&found)).collect(),
        responses: responses.iter().map(|cell| cell.row(&found)).collect(),
        speeds: speeds.iter().map(|cell| cell.row(&found)).collect(),
        faults: faults.iter().map(|cell| cell.row(&found)).collect(),
        outages: outages.iter().map(|cell| cell.row(&found)).collect(),
        traces: traces.iter().map(|cell| cell.row(&found)).collect(),
        courses: faults.iter().map(|cell| cell.course(&found)).collect(),
    };
    study.claims = claims::judge(&study);
    study
}

/// What is to be run.
pub(super) struct Plan {
    settings: Settings,
    /// Runs of a cell differ in their seeds; only the first may be asked for its course.
    cells: Vec<(Case, Vec<u64>, bool)>,
}

/// The place of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell(usize);

impl Plan {
    /// Asks for so many runs of a case, unless the user has asked for another number; for one if chance
    /// has no part in it.
    pub(super) fn add(&mut self, case: Case, usual: u32) -> Cell {
        self.push(case, usual, false)
    }

    /// The same, and for the course of the first run.
    pub(super) fn add_with_course(&mut self, case: Case, usual: u32) -> Cell {
        self.push(case, usual, true)
    }

    fn push(&mut self, case: Case, usual: u32, course: bool) -> Cell {
        let settings = self.settings;
        let given = case.is_given();
        let settings = if given { Settings { seeds: Some(1), ..settings } } else { settings };
        self.cells.push((case, settings.seeds(usual).collect(), course));
        Cell(self.cells.len() - 1)
    }

    pub(super) fn run(self, progress: &(dyn Fn(f64) + Sync)) -> Found {
        let mut jobs = Vec::new();
        for (case, seeds, course) in &self.cells {
            let runs = seeds.iter().enumerate();
            jobs.extend(runs.map(|(place, &seed)| (case, seed, *course && place == 0)));
        }
        let play = |&(case, seed, course): &(&Case, u64, bool)| case.play(seed, course);
        let mut outcomes = cores::run(&jobs, progress, play).into_iter();
        let cells = self.cells.iter().map(|(_, seeds, _)| seeds.len());
        Found(cells.map(|runs| outcomes.by_ref().take(runs).collect()).collect())
    }
}

/// What the runs of each cell measured.
pub(super) struct Found(Vec<Vec<Outcome>>);

impl Found {
    pub(super) fn runs(&self, cell: Cell) -> &[Outcome] {
        &self.0[cell.0]
    }

    /// The mean of a figure over the runs of a cell.
    pub(super) fn mean(&self, cell: Cell, figure: impl Fn(&Outcome) -> f64) -> f64 {
        let runs = self.runs(cell);
        runs.iter().map(figure).sum::<f64>() / runs.len() as f64
    }

    pub(super) fn count(&self, cell: Cell) -> u32 {
        self.runs(cell).len() as u32
    }
}
