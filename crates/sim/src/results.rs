//! What a run has measured: plain data with units in the names, for reports.

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
