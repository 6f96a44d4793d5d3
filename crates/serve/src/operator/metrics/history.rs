//! The last ten minutes in steps of two seconds, so that a page that has just been opened is not empty.
//!
//! The points are made from the counters, without the event loop, whether a page is open or not.

use super::Metrics;
use super::totals::Totals;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use weir_flow::clock::{Duration, Instant};
use weir_flow::event::StageName;

/// The points of the last ten minutes.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// When the counters were last read, and what they were.
    before: Option<(Instant, Totals)>,
    points: VecDeque<Point>,
}

/// What hosts got in one step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
struct Point {
    /// The end of the step, since the gateway started.
    at_ns: u64,
    /// Requests that ended well, in a second.
    requests: f64,
    /// Bytes read and written in a second.
    bytes: f64,
    /// Half of the reads and writes took no longer; `None` if there were none.
    p50_ns: Option<u64>,
    /// 99 % of the reads and writes took no longer.
    p99_ns: Option<u64>,
    /// The time in each stage, for each request that ended.
    stages_ns: [u64; StageName::ALL.len()],
}

/// The last ten minutes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HistoryStatus<'a> {
    /// The time now, since the gateway started.
    now_ns: u64,
    /// The names of the stages, as `stages_ns` of a point has them.
    stages: [&'static str; StageName::ALL.len()],
    /// The points, the oldest first.
    points: Vec<&'a Point>,
}

impl History {
    /// When the next point is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.before.as_ref().map_or(Instant::ZERO, |(at, _)| *at + STEP)
    }

    /// Adds a point if one is due.
    pub(crate) fn sample(&mut self, now: Instant, metrics: &Metrics) {
        if now < self.deadline() {
            return;
        }
        let totals = metrics.totals();
        if let Some((at, before)) = &self.before {
            if self.points.len() == POINTS_MAX {
                self.points.pop_front();
            }
            self.points.push_back(Point::between((*at, before), (now, &totals)));
        }
        self.before = Some((now, totals));
    }

    /// As the REST interface has it.
    pub(crate) fn status(&self, now: Instant) -> HistoryStatus<'_> {
        let oldest = now.as_nanos().saturating_sub(KEPT.as_nanos());
        let points = self.points.iter().filter(|point| point.at_ns >= oldest).collect();
        let stages = StageName::ALL.map(StageName::as_str);
        HistoryStatus { now_ns: now.as_nanos(), stages, points }
    }
}

impl Point {
    fn between((from, before): (Instant, &Totals), (to, after): (Instant, &Totals)) -> Self {
        let seconds = to.saturating_since(from).as_nanos() as f64 / 1e9;
        let grown = |of: fn(&Totals) -> u64| of(after).saturating_sub(of(before));
        let requests = grown(Totals::requests);
        let stages = (before.stages_ns(), after.stages_ns());
        let mut stages_ns = [0; StageName::ALL.len()];
        for (index, time) in stages_ns.iter_mut().enumerate() {
            *time = (stages.1[index].saturating_sub(stages.0[index])) / requests.max(1);
        }
        Self {
            at_ns: to.as_nanos(),
            requests: requests as f64 / seconds,
            bytes: grown(Totals::bytes) as f64 / seconds,
            p50_ns: after.quantile_since(before, 0.5),
            p99_ns: after.quantile_since(before, 0.99),
            stages_ns,
        }
    }
}

/// Between two points.
const STEP: Duration = Duration::from_secs(2);

/// How long a point is kept.
const KEPT: Duration = Duration::from_secs(600);

/// Points that are kept.
const POINTS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::metrics::tests::{complete, request};
    use weir_flow::request::Op;

    /// A point has what was counted since the one before it; points older than ten minutes go.
    #[test]
    fn points_are_differences() {
        let (metrics, mut history) = (Metrics::new(0), History::default());
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        history.sample(at(0), &metrics);
        for _ in 0..10 {
            complete(&metrics, &request(0, Op::Read, 4_096), Ok(()), None);
        }
        history.sample(at(1), &metrics);
        assert!(history.points.is_empty(), "it is not due");
        history.sample(at(2), &metrics);
        history.sample(at(4), &metrics);
        let [busy, idle] = [&history.points[0], &history.points[1]];
        let rates = |point: &Point| [point.requests, point.bytes].map(|rate| rate as u64);
        assert_eq!((rates(busy), rates(idle)), ([5, 20_480], [0, 0]));
        assert!(busy.p99_ns.is_some() && idle.p99_ns.is_none(), "{busy:?} {idle:?}");
        for step in 3..1_000 {
            history.sample(at(2 * step), &metrics);
        }
        assert_eq!(history.points.len(), POINTS_MAX);
        assert_eq!(history.status(at(2_598)).points.len(), 1, "the gateway has slept");
    }
}
