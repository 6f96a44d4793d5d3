//! The counters of one volume, one tenant and one stage.

use super::counter::Counter;
use super::histogram::{Counts, Histogram, Sample};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_flow::account::Scored;
use weir_flow::clock::Duration;
use weir_flow::policy::Rule;

/// What hosts have asked of a volume. Arrays of four are by class of operation, of two by direction.
#[derive(Debug)]
pub(crate) struct VolumeBlock {
    pub(super) name: String,
    /// The volume has gone. Its counters continue if it comes back.
    gone: AtomicBool,
    /// Response times of requests that ended well; their number is that of these requests.
    pub(super) durations: [Histogram; 4],
    pub(super) errors: [Counter; 4],
    pub(super) refused: [Counter; 4],
    pub(super) bytes: [Counter; 2],
}

impl VolumeBlock {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            gone: AtomicBool::new(false),
            durations: Default::default(),
            errors: Default::default(),
            refused: Default::default(),
            bytes: Default::default(),
        }
    }

    /// The volume is there, or has gone.
    pub(crate) fn set_there(&self, there: bool) {
        self.gone.store(!there, Ordering::Relaxed);
    }

    /// Whether the volume is there.
    pub(super) fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Relaxed)
    }
}

/// What a tenant has asked for.
#[derive(Debug)]
pub(crate) struct TenantBlock {
    pub(super) name: String,
    /// Requests that ended, by class of operation.
    pub(super) requests: [Counter; 4],
    pub(super) refused: Counter,
    /// By direction.
    pub(super) bytes: [Counter; 2],
    /// Response times of requests that ended well.
    pub(super) durations: Histogram,
    pub(super) slo: SloBlock,
}

/// How well the objectives of a tenant are met.
#[derive(Debug, Default)]
pub(super) struct SloBlock {
    /// Requests under an objective.
    pub(super) requests: Counter,
    /// Those of them that missed it.
    pub(super) missed: Counter,
    /// The misses that the objectives allow for these requests, in millionths of a request.
    pub(super) allowed_ppm: Counter,
    /// No window meets the objective.
    pub(super) infeasible: Counter,
}

impl SloBlock {
    pub(super) fn score(&self, Scored { missed, allowed_ppm, .. }: Scored) {
        self.requests.add(1);
        self.missed.add(missed.into());
        self.allowed_ppm.add(allowed_ppm.into());
    }
}

impl TenantBlock {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            requests: Default::default(),
            refused: Counter::default(),
            bytes: Default::default(),
            durations: Histogram::default(),
            slo: SloBlock::default(),
        }
    }
}

/// The time that requests that ended well spent in a stage, by rule.
#[derive(Debug)]
pub(crate) struct StageBlock {
    /// On the heap: the histograms of all stages together are too large for the stack of a thread.
    rules: Box<[OnceLock<(Rule, Histogram)>]>,
}

impl Default for StageBlock {
    fn default() -> Self {
        Self { rules: (0..RULES_MAX).map(|_| OnceLock::new()).collect() }
    }
}

impl StageBlock {
    /// Counts the time that a rule held a request.
    pub(super) fn record(&self, rule: Rule, time: Duration) {
        for place in &self.rules {
            let (known, histogram) = place.get_or_init(|| (rule, Histogram::default()));
            // Rules are constants: mostly it is the same text in the same place.
            if std::ptr::eq(known.0, rule.0) || *known == rule {
                histogram.record(Sample::of(time));
                return;
            }
        }
        unreachable!("a stage has at most {RULES_MAX} rules");
    }

    /// The rules that have held requests, and their times.
    pub(super) fn rules(&self) -> impl Iterator<Item = (Rule, Counts)> {
        let held = self.rules.iter().filter_map(OnceLock::get);
        held.map(|(rule, histogram)| (*rule, histogram.read()))
    }
}

/// Rules of a stage. The cache has most, eight.
const RULES_MAX: usize = 32;
