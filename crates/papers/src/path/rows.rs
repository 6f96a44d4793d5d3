//! The rows of the path study.

use super::Sample;
use serde::Serialize;

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
    /// Their median over the runs.
    pub long_median: f64,
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
    /// I/Os that came while no path worked.
    pub came_without: u64,
    /// Those of them that failed when they came.
    pub failed_at_once: u64,
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
