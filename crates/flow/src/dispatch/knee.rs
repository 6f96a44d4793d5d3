//! Finds the depth of a backend: the smallest that has 97 % of the rate of a full queue.
//!
//! | | |
//! |---|---|
//! | Model    | `rate(d)` = service time ended over time passed, while d operations are outstanding all the time. From rung to rung of a ladder of depths: up by two rungs (to the double) as long as that brings more than 3 %; then down by one as long as 97 % of the highest rate are kept. Every [`REST`] measures it looks again, one time up and one down, and then moves only for 5 % up, or down if 98.5 % are kept |
//! | Units    | rates in millionths: a backend that does four operations at once has 4 000 000 |
//! | Cost     | O(1) per operation |
//! | Source   | `docs/reference/dispatch.md` section 8.1: near the knee every estimator is in its good range, and who comes waits behind little |
//! | Not when | little is outstanding: only a queue that is full all the time is measured, and the depth stays as it is otherwise |

use crate::clock::{Duration, Instant};

/// The depth of one backend, as it is found out.
#[derive(Debug)]
pub(super) struct Knee {
    /// The rung in force.
    rung: usize,
    phase: Phase,
    /// Where it settled last.
    settled: Option<usize>,
    measure: Measure,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Up from this rung, which had this rate; `None`: the one in force is the first.
    Climb(Option<(usize, u64)>),
    /// Down: so much is reached at most, and this rung is good enough.
    Descend { most: u64, good: usize },
    /// There, for this number of further measures.
    Rest(u32),
}

/// What has been seen at the rung in force.
#[derive(Clone, Copy, Debug)]
struct Measure {
    began: Option<Instant>,
    /// Full since then, as far as it has been counted.
    full: Option<Instant>,
    /// This number of operations ends before it counts: they met another depth.
    skip: u32,
    count: u32,
    passed: u64,
    service: u64,
}

impl Measure {
    const fn new(depth: u32) -> Self {
        Self { began: None, full: None, skip: depth, count: 0, passed: 0, service: 0 }
    }
}

impl Knee {
    pub(super) const fn new() -> Self {
        let (rung, phase) = (START, Phase::Climb(None));
        Self { rung, phase, settled: None, measure: Measure::new(LADDER[START]) }
    }

    /// How many operations may be outstanding.
    pub(super) const fn depth(&self) -> u32 {
        LADDER[self.rung]
    }

    /// One more has been sent; `outstanding` are now.
    pub(super) fn sent(&mut self, now: Instant, outstanding: u32) {
        let depth = self.depth();
        let measure = &mut self.measure;
        measure.began.get_or_insert(now);
        if outstanding < depth {
            return;
        }
        if measure.full.replace(now).is_none_or(|full| full < now) {
            // It has not been full all the time.
            measure.skip = depth;
        }
    }

    /// One of `outstanding` has ended, which had this service time.
    pub(super) fn ended(&mut self, now: Instant, outstanding: u32, service: Duration) {
        let measure = &mut self.measure;
        if outstanding >= LADDER[self.rung]
            && let Some(full) = measure.full.replace(now)
        {
            if let Some(skip) = measure.skip.checked_sub(1) {
                measure.skip = skip;
            } else {
                measure.count += 1;
                measure.passed += now.saturating_since(full).as_nanos();
                measure.service = measure.service.saturating_add(service.as_nanos());
            }
        }
        let waited = measure.began.map_or(Duration::ZERO, |began| now.saturating_since(began));
        let enough = measure.count >= ENOUGH || measure.count >= FEW && measure.passed >= LONG;
        if enough {
            let rate = u128::from(measure.service) * 1_000_000 / u128::from(measure.passed.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.measured(rate);
        } else if waited > PATIENCE {
            self.give_up();
        }
    }

    /// The rung in force has this rate.
    fn measured(&mut self, rate: u64) {
        let rung = self.rung;
        let keeps = |rate: u64, permille: u64, most: u64| rate >= most / 1_000 * permille;
        match self.phase {
            Phase::Climb(None) | Phase::Rest(0) => self.climb(rung, rate),
            Phase::Climb(Some((below, had))) => {
                let bound = if self.settled == Some(below) { KEEP } else { SHARE };
                if keeps(had, bound, rate) {
                    self.descend(had.max(rate), below);
                } else {
                    self.climb(rung, rate);
                }
            }
            Phase::Descend { most, good } => {
                let bound = if self.settled == Some(good) { LEAVE } else { SHARE };
                if keeps(rate, bound, most) {
                    self.descend(most, rung);
                } else {
                    self.settle(good);
                }
            }
            Phase::Rest(left) => self.go(rung, Phase::Rest(left - 1)),
        }
    }

    /// The streams do not keep so much outstanding: what was there before is enough.
    fn give_up(&mut self) {
        match self.phase {
            Phase::Climb(Some((below, had))) => self.descend(had, below),
            Phase::Descend { good, .. } => self.settle(good),
            phase @ (Phase::Climb(None) | Phase::Rest(_)) => self.go(self.rung, phase),
        }
    }

    fn climb(&mut self, rung: usize, rate: u64) {
        let next = (rung + 2).min(LADDER.len() - 1);
        if next > rung {
            self.go(next, Phase::Climb(Some((rung, rate))));
        } else {
            self.descend(rate, rung);
        }
    }

    fn descend(&mut self, most: u64, good: usize) {
        match good.checked_sub(1) {
            Some(next) => self.go(next, Phase::Descend { most, good }),
            None => self.settle(good),
        }
    }

    fn settle(&mut self, rung: usize) {
        self.settled = Some(rung);
        self.go(rung, Phase::Rest(REST));
    }

    fn go(&mut self, rung: usize, phase: Phase) {
        (self.rung, self.phase) = (rung, phase);
        self.measure = Measure::new(self.depth());
    }
}

/// The depths. Beyond the last the order of operations is the backend's own.
const LADDER: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Where it begins: at 4, which is the default of a fixed depth.
const START: usize = 3;

/// Permille of the highest rate that are enough; that keep the rung where it settled; that let it go below.
const SHARE: u64 = 970;
const KEEP: u64 = 950;
const LEAVE: u64 = 985;

/// A measure is this number of operations, or if they take long, as many as end in this time, but not less than a few.
const ENOUGH: u32 = 2_048;
const FEW: u32 = 128;
const LONG: u64 = 2_000_000_000;

/// Measures of rest before it looks again.
const REST: u32 = 32;

/// How long a measure may last until it is given up, as the queue is not full.
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
