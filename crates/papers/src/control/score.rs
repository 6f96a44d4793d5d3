//! The measurements of a run: counts by tenant and window, and a time series.

use serde::Serialize;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::Notice;

/// One tenant's part of a window of time; of several runs, the means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TenantFigures {
    /// Requests that came in the window, per second.
    pub offered_per_second: f64,
    /// Requests that ended in the window, per second.
    pub completed_per_second: f64,
    /// Share of the requests that came in the window and ended within the promised time, counted from
    /// arrival.
    pub satisfied: f64,
    /// 99th percentile in milliseconds, by nearest rank, of the time at the device, of the same requests.
    /// Those that had not ended a response time after the run are left out.
    pub device_p99_ms: f64,
    /// How often the tenant's bucket was put into its path before the window's end.
    pub switched_on: f64,
    /// Share of the window that it was there.
    pub on_share: f64,
}

impl TenantFigures {
    /// The mean of several runs.
    pub(super) fn mean(runs: &[Self]) -> Self {
        let count = runs.len() as f64;
        let mean = |part: fn(&Self) -> f64| runs.iter().map(part).sum::<f64>() / count;
        Self {
            offered_per_second: mean(|run| run.offered_per_second),
            completed_per_second: mean(|run| run.completed_per_second),
            satisfied: mean(|run| run.satisfied),
            device_p99_ms: mean(|run| run.device_p99_ms),
            switched_on: mean(|run| run.switched_on),
            on_share: mean(|run| run.on_share),
        }
    }
}

/// A window of time, in seconds from the start of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) from: f64,
    pub(super) until: f64,
}

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Course {
    /// The array every ten milliseconds.
    pub samples: Vec<Sample>,
    /// Every move of a switch.
    pub gates: Vec<Gate>,
}

/// The array at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds from the start.
    pub seconds: f64,
    /// Requests at the device.
    pub inflight: u32,
    /// What the first tenant's last request took at the device, in milliseconds.
    pub response_ms: f64,
}

/// A move of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// Seconds from the start.
    pub seconds: f64,
    /// Whose.
    pub tenant: u32,
    /// Whether the bucket is in the tenant's path from now on.
    pub on: bool,
}

/// The counts of a run in progress.
pub(super) struct Scores {
    promised: Vec<Duration>,
    windows: Vec<(Instant, Instant)>,
    /// By window, then by tenant.
    counts: Vec<Vec<Score>>,
    /// Since when each tenant's bucket is in its path.
    on_since: Vec<Option<Instant>>,
    gates: Vec<Gate>,
    course: bool,
}

#[derive(Clone, Default)]
struct Score {
    offered: u32,
    completed: u32,
    satisfied: u32,
    device: Vec<Duration>,
    switched_on: u32,
    on: Duration,
}

impl Scores {
    pub(super) fn new(promised: &[Duration], windows: &[Window], course: bool) -> Self {
        let at = super::script::at;
        Self {
            promised: promised.to_vec(),
            windows: windows.iter().map(|window| (at(window.from), at(window.until))).collect(),
            counts: vec![vec![Score::default(); promised.len()]; windows.len()],
            on_since: vec![None; promised.len()],
            gates: Vec::new(),
            course,
        }
    }

    /// By window, then by tenant, and the moves of switches. Ends the counting.
    pub(super) fn figures(&mut self) -> (Vec<Vec<TenantFigures>>, Vec<Gate>) {
        for tenant in 0..self.promised.len() {
            self.leave_gate(FAR, tenant);
        }
        let windows = self.windows.iter().zip(&mut self.counts).map(|(&(from, until), counts)| {
            let seconds = until.since(from).as_secs_f64();
            let figures = |score: &mut Score| {
                score.device.sort_unstable();
                let rank = (score.device.len() * 99).div_ceil(100);
                let p99 = rank.checked_sub(1).map_or(Duration::ZERO, |i| score.device[i]);
                TenantFigures {
                    offered_per_second: f64::from(score.offered) / seconds,
                    completed_per_second: f64::from(score.completed) / seconds,
                    satisfied: f64::from(score.satisfied) / f64::from(score.offered.max(1)),
                    device_p99_ms: p99.as_secs_f64() * 1e3,
                    switched_on: f64::from(score.switched_on),
                    on_share: score.on.as_secs_f64() / seconds,
                }
            };
            counts.iter_mut().map(figures).collect()
        });
        (windows.collect(), std::mem::take(&mut self.gates))
    }

    fn leave_gate(&mut self, now: Instant, tenant: usize) {
        if let Some(since) = self.on_since[tenant].take() {
            for (&(from, until), counts) in self.windows.iter().zip(&mut self.counts) {
                counts[tenant].on += now.min(until).saturating_since(since.max(from));
            }
        }
    }

    fn gate(&mut self, now: Instant, tenant: usize, on: bool) {
        self.leave_gate(now, tenant);
        if on {
            self.on_since[tenant] = Some(now);
            for (&(_, until), counts) in self.windows.iter().zip(&mut self.counts) {
                counts[tenant].switched_on += u32::from(now < until);
            }
        }
        if self.course {
            let seconds = now.since(Instant::ZERO).as_secs_f64();
            self.gates.push(Gate { seconds, tenant: tenant as u32, on });
        }
    }
}

const FAR: Instant = Instant::from_nanos(u64::MAX);

impl Scores {
    /// A request comes.
    pub(super) fn arrived(&mut self, now: Instant, tenant: usize) {
        for (&(from, until), counts) in self.windows.iter().zip(&mut self.counts) {
            counts[tenant].offered += u32::from(now >= from && now < until);
        }
    }

    /// A request has ended, which was at the device for `device`.
    pub(super) fn completed(
        &mut self,
        now: Instant,
        tenant: usize,
        arrived: Instant,
        device: Duration,
    ) {
        let whole = now.since(arrived);
        for (&(from, until), counts) in self.windows.iter().zip(&mut self.counts) {
            let score = &mut counts[tenant];
            score.completed += u32::from(now >= from && now < until);
            if arrived >= from && arrived < until {
                score.satisfied += u32::from(whole <= self.promised[tenant]);
                score.device.push(device);
            }
        }
    }

    /// The policy has told something.
    pub(super) fn notice(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Gate(tenant, on) => self.gate(now, tenant.index(), on),
            Notice::Infeasible(..) | Notice::Scaled(..) => {}
        }
    }
}
