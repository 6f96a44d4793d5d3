//! The measurements of a run: delay, response, slowdown and lateness of replies.

use super::engine::{Done, Job};
use serde::Serialize;

/// Figures of one policy; times in mean transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Mean time from becoming ready to the first byte.
    pub delay: f64,
    /// Mean time from becoming ready to behind the last byte.
    pub response: f64,
    /// The 99th percentile of it.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub longest: f64,
    /// Mean response over own length.
    pub slowdown: f64,
    /// The 99.9th percentile of it.
    pub slowdown_p999: f64,
    /// The largest.
    pub slowdown_most: f64,
    /// The 99.9th percentile of how much later a reply ended than under first in, first out.
    pub late_p999: f64,
    /// The latest.
    pub late_most: f64,
}

/// Judges a run; `fifo` is that of first in, first out.
pub(super) fn figures(jobs: &[Job], done: &[Done], fifo: &[Done]) -> Figures {
    let count = jobs.len() as f64;
    let mean = jobs.iter().map(|job| job.bytes as f64).sum::<f64>() / count;
    let pairs = || jobs.iter().zip(done);
    let delays: f64 = pairs().map(|(job, done)| (done.start - job.at) as f64).sum();
    let mut responses: Vec<u64> = pairs().map(|(job, done)| done.end - job.at).collect();
    let sum: f64 = responses.iter().map(|&response| response as f64).sum();
    let mut slowdowns: Vec<f64> =
        responses.iter().zip(jobs).map(|(&time, job)| time as f64 / job.bytes as f64).collect();
    let slowdown = slowdowns.iter().sum::<f64>() / count;
    let mut late: Vec<u64> =
        done.iter().zip(fifo).map(|(done, fifo)| done.end.saturating_sub(fifo.end)).collect();
    responses.sort_unstable();
    late.sort_unstable();
    slowdowns.sort_by(f64::total_cmp);
    let at = |permille: usize| (jobs.len() * permille).div_ceil(1_000) - 1;
    let time = |sorted: &[u64], permille| sorted[at(permille)] as f64 / mean;
    Figures {
        delay: delays / count / mean,
        response: sum / count / mean,
        p99: time(&responses, 990),
        p999: time(&responses, 999),
        longest: time(&responses, 1_000),
        slowdown,
        slowdown_p999: slowdowns[at(999)],
        slowdown_most: slowdowns[at(1_000)],
        late_p999: time(&late, 999),
        late_most: time(&late, 1_000),
    }
}
