//! The whole of `weir reproduce transfer`, on all cores.

use super::engine::{Job, play};
pub use super::example::ExampleRow;
pub use super::score::Figures;
use super::{DELAY, Trace, contestants, example, score};
use crate::Settings;
use serde::Serialize;
use weir_flow::policy::Choice;
use weir_flow::transfer::Build;
use weir_sim::cores;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Nothing here is drawn; it is only told.
    pub seed: u64,
    /// The worked example, as the figures have it.
    pub example: Vec<ExampleRow>,
    /// Where each trace is played.
    pub points: Vec<PointRow>,
    /// Every policy on every trace.
    pub traces: Vec<TraceRow>,
    /// The traces of the program where another simulator has them: on links that take whole nanoseconds for a
    /// page, on which FIFO delays by 0.785 or a little less.
    pub known: Vec<TraceRow>,
    /// Every policy on a link with slightly too much to send.
    pub overload: Vec<TraceRow>,
}

/// The operating point of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct PointRow {
    /// The trace.
    pub trace: String,
    /// Reads.
    pub reads: usize,
    /// Their mean length in pages of 512 bytes.
    pub pages: f64,
    /// The rate of the link, in bytes per second, at which the delay is reached.
    pub rate: u64,
    /// Nanoseconds for a page on it.
    pub page_ns: f64,
    /// Mean delay over mean transfer of first in, first out on it.
    pub delay: f64,
}

/// One policy on one trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceRow {
    /// The trace.
    pub trace: String,
    /// The policy, its chunk, and a budget in mean transfers.
    pub policy: &'static str,
    /// What it gave.
    #[serde(flatten)]
    pub figures: Figures,
    /// By how much the mean delay differs from that of first in, first out, in per cent.
    pub delay_change: f64,
    /// And the mean response.
    pub response_change: f64,
}

/// A run: whose, and of what.
struct Run<'a> {
    trace: &'a str,
    policy: &'static str,
    choice: Choice<Build>,
    jobs: &'a [Job],
}

/// Runs everything, on the traces of the program and these. `progress` hears of the share that is done,
/// from any thread.
pub fn run(settings: Settings, traces: &[Trace], progress: &(dyn Fn(f64) + Sync)) -> Study {
    let own = Trace::own();
    let all: Vec<&Trace> = own.iter().chain(traces).collect();
    let points = cores::run(&all, &|share| progress(share * 0.1), |trace| {
        let rate = trace.rate(DELAY);
        (rate, trace.jobs(rate))
    });
    let coarse: Vec<_> =
        own.iter().zip(&points).map(|(trace, (rate, _))| trace.jobs(whole(*rate))).collect();
    let overload = overload();
    let mut runs = Vec::new();
    for (trace, (_, jobs)) in all.iter().zip(&points) {
        runs.extend(contestants(&trace.name, trace.mean(), jobs));
    }
    let of_traces = runs.len();
    for (trace, jobs) in own.iter().zip(&coarse) {
        runs.extend(contestants(&trace.name, trace.mean(), jobs));
    }
    let of_known = runs.len();
    let bytes: u64 = overload.iter().map(|job| job.bytes).sum();
    runs.extend(contestants("overload", bytes as f64 / overload.len() as f64, &overload));
    let play = |run: &Run<'_>| play(&run.choice, run.jobs);
    let done = cores::run(&runs, &|share| progress(0.1 + share * 0.9), play);
    let mut rows: Vec<TraceRow> = Vec::new();
    let mut fifo = 0;
    for (index, run) in runs.iter().enumerate() {
        if run.policy == "fifo" {
            fifo = index;
        }
        let figures = score::figures(run.jobs, &done[index], &done[fifo]);
        let base = rows.get(fifo).map_or(figures, |row| row.figures);
        rows.push(TraceRow {
            trace: run.trace.to_owned(),
            policy: run.policy,
            figures,
            delay_change: change(figures.delay, base.delay),
            response_change: change(figures.response, base.response),
        });
    }
    let overload = rows.split_off(of_known);
    let known = rows.split_off(of_traces);
    let points = all.iter().zip(&points).map(|(trace, &(rate, _))| {
        let fifo = rows.iter().find(|row| row.trace == trace.name && row.policy == "fifo");
        PointRow {
            trace: trace.name.clone(),
            reads: trace.reads.len(),
            pages: trace.mean() / 512.0,
            rate,
            page_ns: PAGES as f64 / rate as f64,
            delay: fifo.map_or(0.0, |row| row.figures.delay),
        }
    });
    Study {
        seed: settings.seed,
        example: example::rows(&example::JOBS),
        points: points.collect(),
        traces: rows,
        known,
        overload,
    }
}

fn contestants<'a>(
    trace: &'a str,
    mean: f64,
    jobs: &'a [Job],
) -> impl Iterator<Item = Run<'a>> + use<'a> {
    let all = contestants::all(mean).into_iter();
    all.map(move |(policy, choice)| Run { trace, policy, choice, jobs })
}

/// The rate next to this one at which a page takes whole nanoseconds.
const fn whole(rate: u64) -> u64 {
    PAGES / (PAGES / rate)
}

/// Bytes per second at which a page of 512 bytes takes a nanosecond.
const PAGES: u64 = 512_000_000_000;

/// In per cent.
fn change(value: f64, base: f64) -> f64 {
    100.0 * (value / base - 1.0)
}

/// Replies of 4 KiB that keep a link just busy, 16 of them at once, and a long one among every two thousand, so
/// that there is a little too much.
fn overload() -> Vec<Job> {
    let bytes = |index: u64| if index % 2_000 == 100 { 256 << 10 } else { 4 << 10 };
    (0..20_000)
        .map(|index: u64| Job { at: index.saturating_sub(16) * 4_096, bytes: bytes(index) })
        .collect()
}
