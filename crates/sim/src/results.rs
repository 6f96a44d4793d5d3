//! The results of a run: plain data with units in the names, for reports.

use serde::Serialize;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The plan's seed.
    pub seed: u64,
    /// Virtual time from the beginning to the end of the run.
    pub virtual_ns: u64,
    /// Length of the measured part, from the end of the warm-up to the end of the run.
    pub measured_ns: u64,
    /// Inputs and deadlines that the pipeline was given.
    pub events: u64,
    /// Actions that the pipeline asked for.
    pub actions: u64,
    /// Digest of all actions with their times, 16 hexadecimal digits.
    pub digest: String,
    /// Counts of the whole run, warm-up included.
    pub totals: Totals,
    /// Times that a path was found not to work, warm-up included.
    pub paths_failed: u64,
    /// Times that a path was reinstated, warm-up included.
    pub paths_reinstated: u64,
    /// I/Os that were lost with their path and went another way, warm-up included.
    pub ios_lost: u64,
    /// Times that a request was reported as overdue, warm-up included.
    pub overdue: u64,
    /// The measured part, all tenants together; its name is `all`.
    pub all: TenantResults,
    /// The measured part, by tenant id.
    pub tenants: Vec<TenantResults>,
}

/// Where requests went: `arrived = completed + refused + outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests that came; one that a closed loop repeats comes again.
    pub arrived: u64,
    /// Requests that were answered, errors included.
    pub completed: u64,
    /// Requests that were turned away at a limit.
    pub refused: u64,
    /// Requests that were neither when the run ended.
    pub outstanding: u64,
}

/// One tenant's part of the measured interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantResults {
    /// Its name.
    pub name: String,
    /// The whole run's counts, warm-up included.
    pub totals: Totals,
    /// Requests completed, errors included.
    pub count: u64,
    /// Those of `count` that ended with an error.
    pub errors: u64,
    /// Requests refused.
    pub refused: u64,
    /// Payload bytes of the requests that ended well.
    pub bytes: u64,
    /// `count` over the interval.
    pub requests_per_second: f64,
    /// `bytes` over the interval, in 10^6 bytes.
    pub megabytes_per_second: f64,
    /// Time from arrival to the last byte of the reply: reads, writes and all others.
    pub response: Times,
    /// The same, of reads.
    pub reads: Times,
    /// The same, of writes.
    pub writes: Times,
    /// Time spent in each of the seven stages, in order; zero counts.
    pub stages: Vec<StageResults>,
    /// How well its contract was kept, by row, direction and target; empty without requests under one.
    pub attainment: Vec<TargetResults>,
    /// What its time was spent on.
    pub ledger: LedgerResults,
}

/// How well one target of a contract was kept.
///
/// A request met it if the last byte of the reply had left by then. One that was refused, or that storage
/// failed, has missed it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetResults {
    /// The row of the contract, from 0.
    pub row: usize,
    /// Bytes of a request of this row.
    pub size: u32,
    /// The share of the contract up to which the row holds; none if it always does.
    pub load: Option<f64>,
    /// `read` or `write`.
    pub direction: &'static str,
    /// The share that was promised, 0 to 1.
    pub quantile: f64,
    /// The time that it was promised.
    pub target_ns: u64,
    /// Requests that the target is about, refused ones included.
    pub count: u64,
    /// Those that missed it.
    pub missed: u64,
    /// The share that met it.
    pub met: f64,
    /// Whether that is as much as was promised.
    pub kept: bool,
    /// The time that the promised share took, within 1 %; `None` if it was never served.
    pub measured_ns: Option<u64>,
    /// Missed share over the share that may be missed: above 1 the promise is broken.
    pub burn: f64,
    /// The same, of the last five minutes: the current minute and the four before it.
    pub burn_5min: f64,
    /// The same, of the last hour: the current minute and the 59 before it.
    pub burn_1h: f64,
}

/// Response times divided by what they were spent on.
///
/// Times of the causes add up to `time_ns`, and their late parts to `late_ns`, exactly. Sums of more than
/// 584 years are reported as that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerResults {
    /// Requests that ended.
    pub requests: u64,
    /// Sum of their response times.
    pub time_ns: u64,
    /// Those that the contract counts as missed; refused ones are not among them, they took no time.
    pub late_requests: u64,
    /// Sum of their response times.
    pub late_ns: u64,
    /// The part of `late_ns` beyond the last target of their row.
    pub beyond_ns: u64,
    /// By stage and rule, those that took time.
    pub causes: Vec<CauseResults>,
}

/// What requests waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseResults {
    /// Where they were.
    pub stage: &'static str,
    /// What held them there.
    pub rule: &'static str,
    /// Requests that it held.
    pub requests: u64,
    /// For how long, in sum.
    pub time_ns: u64,
    /// Those of them that were late.
    pub late_requests: u64,
    /// The time that it held those.
    pub late_ns: u64,
}

/// One stage's part of the response times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageResults {
    /// `accept`, `cache`, `control`, `dispatch`, `path`, `store` or `transfer`.
    pub stage: &'static str,
    /// Time spent there.
    pub times: Times,
}

/// A distribution of times. Percentiles are upper ends of histogram buckets, at most 0.1 % above
/// the true value; mean and maximum are exact. All zero when `count` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}
