//! Finds the depth of a backend: the smallest that has 97 % of its highest rate.
//!
//! | | |
//! |---|---|
//! | Model    | `rate(d)` = service time ended over time passed, with d operations outstanding. The search begins at the greatest depth, so that an unknown backend is as busy as under `fifo`. If nothing waits there, the depth that is used is tried next. Then about a third of it, as long as 97 % of the highest rate are kept, and the depths between the last two by bisection. After every [`REST`] measures, whose mean is the rate at rest, it tries one rung lower, and each [`CLIMB`]th time two rungs higher first; it moves up only for 3.5 % more, and down only if 98.5 % are kept. It begins anew when demand is twice that for which it was made, and when the cost of a class that is not well known yet turns out to be another one: rates are sums of costs |
//! | Units    | rates in millionths: a backend that does four operations at once has 4 000 000 |
//! | Cost     | O(1) per operation |
//! | Source   | `docs/reference/dispatch.md` sections 6.1 and 8.1: near the knee every estimator is in its good range, and a newcomer waits behind little |
//! | Not when | bursts are shorter than a measure: nothing is learned from them, and the depth stays |

use crate::clock::{Duration, Instant};

/// The depth of one backend, as it is found out.
#[derive(Debug)]
pub(super) struct Knee {
    /// The rung of [`LADDER`] in force.
    rung: usize,
    phase: Phase,
    /// The search begins anew with more operations than this, outstanding and waiting. It is twice the number for
    /// which the depth was found, or that number if it was no more than the depth: then no knee was found.
    demand_max: u32,
    measure: Measure,
    rest: Rest,
}

/// What is known of the depth at which it rests.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// All measures of this rest at which operations waited.
    work: Work,
    /// The highest rate that a greater depth had when it was tried last.
    most: u64,
    /// How often it has tried another depth.
    tries: u32,
}

/// Service time that ended, and the time that passed.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    service: u128,
    nanos: u128,
}

impl Work {
    /// In millionths.
    fn rate(self) -> u64 {
        u64::try_from(self.service * 1_000_000 / self.nanos.max(1)).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// At the greatest depth; `bad` and below are known to be too little.
    Begin { bad: Option<usize> },
    /// Between rungs that are too little and one that is `good`, given the highest rate so far. `permille` of it
    /// are enough.
    Search { most: u64, good: usize, bad: Option<usize>, permille: u64 },
    /// There, for this number of further measures.
    Rest { left: u32 },
    /// Above the rung where it rests, which has this rate.
    Climb { from: usize, had: u64 },
}

/// What has been seen at the rung in force.
#[derive(Clone, Copy, Debug)]
struct Measure {
    /// This number of operations ends before it counts: they met another depth.
    skip: u32,
    /// The last event.
    last: Option<Instant>,
    /// By the rungs that the outstanding operations reach; the first is of none outstanding.
    levels: [Level; LADDER.len() + 1],
    ends: u32,
    /// Ends while an operation waited.
    contended: u32,
    /// A long measure was judged early, and is to be continued.
    judged: bool,
    /// The most operations, outstanding and waiting.
    peak: u32,
}

/// Sums over the times at which the operations outstanding reached one rung and not the next.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    ends: u32,
    nanos: u64,
    service: u64,
}

impl Measure {
    const fn new(skip: u32) -> Self {
        let levels = [Level { ends: 0, nanos: 0, service: 0 }; LADDER.len() + 1];
        Self { skip, last: None, levels, ends: 0, contended: 0, judged: false, peak: 0 }
    }

    /// Time has passed with this number outstanding.
    fn pass(&mut self, now: Instant, outstanding: u32) {
        if let Some(last) = self.last.replace(now) {
            self.levels[level(outstanding)].nanos += now.saturating_since(last).as_nanos();
        }
    }

    /// Whether this is enough for `times` measures at a depth. Operations may end in batches as large as that, so it takes
    /// many of them.
    fn is_enough(&self, depth: u32, times: u32) -> bool {
        let nanos = || self.levels.iter().map(|level| level.nanos).sum::<u64>();
        let (enough, few) = (ENOUGH.max(32 * depth), FEW.max(4 * depth));
        self.ends >= times * enough
            || self.ends >= times * few && nanos() >= u64::from(times) * LONG
    }

    /// Whether the depth held operations back: some waited at more than an eighth of the ends.
    const fn is_full(&self) -> bool {
        self.contended > self.ends / 8
    }

    /// The rung that most operations used.
    fn used(&self) -> usize {
        let mut ends = 0;
        let rungs = (0..LADDER.len()).rev();
        let enough = |&rung: &usize| {
            ends += self.levels[rung + 1].ends;
            ends >= self.ends / 8 * 5
        };
        rungs.into_iter().find(enough).unwrap_or(0)
    }

    /// The work while half of a rung was outstanding at least. An estimator holds a backend at two operations from
    /// time to time; that does not count.
    fn work(&self, rung: usize) -> Work {
        let levels = &self.levels[level(LADDER[rung].div_ceil(2))..];
        let service = levels.iter().map(|level| u128::from(level.service)).sum();
        let nanos = levels.iter().map(|level| u128::from(level.nanos)).sum();
        Work { service, nanos }
    }

    /// Whether nothing was outstanding for more than a twentieth of the time.
    fn is_idle(&self) -> bool {
        let nanos: u64 = self.levels.iter().map(|level| level.nanos).sum();
        self.levels[0].nanos > nanos / 20
    }
}

impl Knee {
    pub(super) const fn new() -> Self {
        let phase = Phase::Begin { bad: None };
        let (measure, rest) =
            (Measure::new(0), Rest { work: Work { service: 0, nanos: 0 }, most: 0, tries: 0 });
        Self { rung: TOP, phase, demand_max: 0, measure, rest }
    }

    /// How many operations may be outstanding.
    pub(super) const fn depth(&self) -> u32 {
        LADDER[self.rung]
    }

    /// One more has been sent; `outstanding` are now, and `waiting` are not yet sent.
    pub(super) fn sent(&mut self, now: Instant, outstanding: u32, waiting: u32) {
        self.measure.pass(now, outstanding - 1);
        let demand = outstanding.saturating_add(waiting);
        self.measure.peak = self.measure.peak.max(demand);
        if demand > self.demand_max && !matches!(self.phase, Phase::Begin { .. }) {
            self.begin();
        }
    }

    /// What was measured so far says nothing: the search begins anew, and the measure too.
    pub(super) fn begin(&mut self) {
        self.go(TOP, Phase::Begin { bad: None });
    }

    /// One of `outstanding` has ended, which had this service time, while `waiting` were not yet sent.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        outstanding: u32,
        waiting: u32,
        service: Duration,
    ) {
        let measure = &mut self.measure;
        if let Some(skip) = measure.skip.checked_sub(1) {
            measure.skip = skip;
            measure.last = Some(now);
            return;
        }
        measure.pass(now, outstanding);
        let level = &mut measure.levels[level(outstanding)];
        level.ends += 1;
        level.service = level.service.saturating_add(service.as_nanos());
        measure.ends += 1;
        measure.contended += u32::from(waiting > 0);
        if self.is_over() {
            self.measured();
        }
    }

    /// Whether the measure of the rung in force is over. What a wrong step down loses is lost until the next climb, so a
    /// try of a smaller depth is long, unless it is clearly not enough.
    fn is_over(&mut self) -> bool {
        let (depth, rung, measure) = (LADDER[self.rung], self.rung, &mut self.measure);
        if !measure.is_enough(depth, 1) {
            return false;
        }
        let Phase::Search { most, permille: LEAVE, .. } = self.phase else { return true };
        let first = !core::mem::replace(&mut measure.judged, true);
        first && measure.work(rung).rate() < most / 1_000 * KEEP || measure.is_enough(depth, TRY)
    }

    /// The rung in force has been measured.
    fn measured(&mut self) {
        let (rung, measure) = (self.rung, self.measure);
        let full = measure.is_full();
        let used = if full { rung } else { measure.used().min(rung) };
        let work = measure.work(used);
        let rate = work.rate();
        if !full && measure.is_idle() {
            // A light load says nothing about the depth that a burst needs.
            return self.go(rung, self.phase);
        }
        let demand = match (full, measure.peak) {
            (true, peak) if peak >= DEMAND_MAX => u32::MAX,
            (true, peak) => 2 * peak,
            (false, peak) => peak,
        };
        self.demand_max = self.demand_max.max(demand);
        let used = (!full).then_some(used);
        match self.phase {
            Phase::Begin { bad } => self.lower(rate, rung, bad, used, SHARE),
            Phase::Search { most, good, bad, permille } => {
                let enough = !full || rate >= most / 1_000 * permille;
                let most = if full { most.max(rate) } else { rate };
                let (good, bad) = if enough { (rung, bad) } else { (good, Some(rung)) };
                self.lower(most, good, bad, used, permille);
            }
            Phase::Rest { left } => {
                if full {
                    self.rest.work.service += work.service;
                    self.rest.work.nanos += work.nanos;
                }
                if left > 0 {
                    return self.go(rung, Phase::Rest { left: left - 1 });
                }
                self.rest.tries = self.rest.tries.wrapping_add(1);
                if !full || rung == TOP {
                    self.demand_max = demand;
                    return self.look_below(rate, rung, used);
                }
                let had = self.rest.work.rate();
                if self.rest.tries.is_multiple_of(CLIMB) {
                    self.go((rung + 2).min(TOP), Phase::Climb { from: rung, had });
                } else {
                    self.look_below(had.max(self.rest.most), rung, None);
                }
            }
            Phase::Climb { from, had } if had < rate / 1_000 * KEEP => {
                self.go(TOP, Phase::Begin { bad: Some(from) });
            }
            Phase::Climb { from, had } => self.look_below(had.max(rate), from, None),
        }
    }

    /// Tries the rung below the one where it rests, or the one that is used, and if that is enough, lower ones.
    fn look_below(&mut self, most: u64, good: usize, used: Option<usize>) {
        let Some(below) = good.checked_sub(1) else {
            return self.settle(most, good);
        };
        let next = used.map_or(below, |used| used.min(below));
        self.go(next, Phase::Search { most, good, bad: None, permille: LEAVE });
    }

    /// Tries a rung between `bad` and `good`, or settles.
    fn lower(
        &mut self,
        most: u64,
        good: usize,
        bad: Option<usize>,
        used: Option<usize>,
        permille: u64,
    ) {
        let lowest = bad.map_or(0, |bad| bad + 1);
        assert!(lowest <= good, "the search for a depth has crossed its bounds");
        if lowest == good {
            return self.settle(most, good);
        }
        let next = match (used, bad) {
            (Some(used), _) if (lowest..good).contains(&used) => used,
            (_, Some(bad)) => bad.midpoint(good).max(lowest),
            (_, None) => good.saturating_sub(STEP),
        };
        self.go(next, Phase::Search { most, good, bad, permille });
    }

    /// Rests at a rung.
    fn settle(&mut self, most: u64, rung: usize) {
        (self.rest.work, self.rest.most) = (Work::default(), most);
        self.go(rung, Phase::Rest { left: REST });
    }

    fn go(&mut self, rung: usize, phase: Phase) {
        let skip = if rung == self.rung { 0 } else { self.depth().max(LADDER[rung]) };
        let last = self.measure.last;
        (self.rung, self.phase) = (rung, phase);
        self.measure = Measure { last, ..Measure::new(skip) };
    }
}

/// The highest rung that this number of operations reaches, from 1; 0 for none.
const fn level(outstanding: u32) -> usize {
    const LEVELS: [u8; LADDER[TOP] as usize + 1] = {
        let mut levels = [0; LADDER[TOP] as usize + 1];
        let (mut at, mut rung) = (1, 0);
        while at < levels.len() {
            if rung < LADDER.len() && LADDER[rung] as usize == at {
                rung += 1;
            }
            levels[at] = rung as u8;
            at += 1;
        }
        levels
    };
    let last = LEVELS.len() - 1;
    let outstanding = outstanding as usize;
    LEVELS[if outstanding < last { outstanding } else { last }] as usize
}

/// The depths. The greatest is the default of `fifo`.
const LADDER: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];

/// The rung of the greatest depth.
const TOP: usize = LADDER.len() - 1;

/// Rungs of a first step down: to about a third.
const STEP: usize = 3;

/// A search for this demand holds for more, too: it waits at every depth.
const DEMAND_MAX: u32 = 2 * LADDER[TOP];

/// Permille of the highest rate that are enough; that keep the rung where it rests; that let it go below.
const SHARE: u64 = 970;
const KEEP: u64 = 965;
const LEAVE: u64 = 985;

/// A measure is this number of operations at least, or if they take long, as many as end in this time, but not less
/// than a few.
const ENOUGH: u32 = 1_024;
const FEW: u32 = 256;
const LONG: u64 = 2_000_000_000;

/// Measures of rest before it tries other depths, and the number of such tries of which one is at a greater depth.
const REST: u32 = 32;
const CLIMB: u32 = 4;

/// A try of a smaller depth takes as long as this number of measures.
const TRY: u32 = 4;

#[cfg(test)]
mod tests;
