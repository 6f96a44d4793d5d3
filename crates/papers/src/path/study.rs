//! The whole of `weir reproduce path`: every run that a claim needs, on all cores.

use super::cells::Plan;
pub use super::ejection::{CalmRow, SlowRow};
pub use super::rows::{
    Course, FaultRow, OutageRow, PrintedRow, ResponseRow, RuleRow, SpreadRow, ThresholdRow,
};
use super::{Trace, ejection, tables};
use crate::Settings;
use serde::Serialize;

/// What was found. Selectors are called as in docs/research/path.md: `rr1000` keeps a path for 1000 I/Os,
/// `hst2` has threshold 2, `p2c` and `p2cb` compare I/Os and bytes, `st*` has the speeds in its configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The first seed.
    pub seed: u64,
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
    /// Healthy paths that pause now and then.
    pub calm: Vec<CalmRow>,
    /// A path that is slow for ten seconds.
    pub slowdowns: Vec<SlowRow>,
    /// Traces, if any were given.
    pub traces: Vec<ResponseRow>,
    /// How the first run of each fault went: thousands of samples, for pictures only.
    #[serde(skip)]
    pub courses: Vec<Course>,
}

/// Runs everything. `progress` hears of the share that is done, from any thread.
pub fn run(settings: Settings, traces: &[Trace], progress: &(dyn Fn(f64) + Sync)) -> Study {
    let mut plan = Plan::new(settings);
    let faults = tables::faults(&mut plan);
    let responses = tables::responses(&mut plan);
    let speeds = tables::speeds(&mut plan);
    let rules = tables::rules(&mut plan);
    let spreads = tables::spreads(&mut plan);
    let loads = tables::loads(&mut plan);
    let thresholds = tables::thresholds(&mut plan);
    let outages = tables::outages(&mut plan);
    let traces = tables::traces(&mut plan, traces);
    let found = plan.run(&|share| progress(share / 2.0));
    let (calm, slowdowns) = ejection::run(settings, &|share| progress(0.5 + share / 2.0));
    let spreads: Vec<_> = spreads.iter().flat_map(|cell| cell.rows(&found)).collect();
    Study {
        seed: settings.seed,
        printed: tables::printed(&spreads),
        spreads,
        loads: loads.iter().flat_map(|cell| cell.rows(&found)).collect(),
        rules: rules.iter().map(|cell| cell.row(&found)).collect(),
        thresholds: thresholds.iter().map(|cell| cell.row(&found)).collect(),
        responses: responses.iter().map(|cell| cell.row(&found)).collect(),
        speeds: speeds.iter().map(|cell| cell.row(&found)).collect(),
        faults: faults.iter().map(|cell| cell.row(&found)).collect(),
        outages: outages.iter().map(|cell| cell.row(&found)).collect(),
        calm,
        slowdowns,
        traces: traces.iter().map(|cell| cell.row(&found)).collect(),
        courses: faults.iter().map(|cell| cell.course(&found)).collect(),
    }
}
