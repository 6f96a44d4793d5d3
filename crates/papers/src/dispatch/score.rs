//! The measurements of a run: service time by stream, shares, and response times.

use super::hosts::Host;
use super::{Case, Garbage};
use weir_flow::dispatch::Stream;
use weir_model::ssd::chips::Page;

/// What a run measured.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) chips: u32,
    pub(super) end: u64,
    /// Weights in 1024ths; the last is garbage collection's, if there is any.
    pub(super) weights: Vec<u32>,
    /// By stream, when it had work first and when it ended.
    pub(super) lives: Vec<(u64, u64)>,
    /// What chips did: from when, until when, for which stream. In order of the start on each chip.
    served: Vec<(u64, u64, u16)>,
    /// By stream, when pages ended, in order.
    pages: Vec<Vec<u64>>,
    /// By stream, responses in nanoseconds, sorted.
    pub(super) responses: Vec<Vec<u64>>,
    /// When garbage collection had nothing to do, from and until.
    pub(super) lulls: Vec<(u64, u64)>,
    /// Nanoseconds in which a chip could write nothing for its hosts, since what they wanted to write waited for
    /// an erased block; all chips together.
    pub(super) stalled: u64,
    /// Blocks erased.
    pub(super) erased: u64,
}

/// The counts of a run in progress.
pub(super) struct Score {
    outcome: Outcome,
    waiting: Vec<u64>,
    pub(super) answered: Vec<u64>,
    /// By chip, what writers wait for.
    stalls: Vec<Stall>,
    /// Of garbage collection: nanoseconds, and blocks, since the beginning.
    collected: (u64, u64),
    copied: u64,
}

/// The writers of one chip.
#[derive(Clone, Default)]
struct Stall {
    /// Pages that wait for an erased block, and pages that have one.
    pages: u64,
    placed: u64,
    /// The last change of that.
    since: u64,
}

impl Stall {
    /// Nothing can be written before a block is erased.
    const fn holds(&self) -> bool {
        self.pages > 0 && self.placed == 0
    }
}

impl Score {
    pub(super) fn new(streams: &[Stream], chips: u32) -> Self {
        let count = streams.len();
        Self {
            outcome: Outcome {
                chips,
                end: 0,
                weights: streams.iter().map(|stream| stream.weight.as_1024ths()).collect(),
                lives: vec![(u64::MAX, 0); count],
                served: Vec::new(),
                pages: vec![Vec::new(); count],
                responses: vec![Vec::new(); count],
                lulls: Vec::new(),
                stalled: 0,
                erased: 0,
            },
            waiting: vec![0; count],
            answered: vec![0; count],
            stalls: vec![Stall::default(); chips as usize],
            collected: (0, 0),
            copied: 0,
        }
    }

    /// A request of the stream comes.
    pub(super) fn begins(&mut self, stream: usize, now: u64) {
        let life = &mut self.outcome.lives[stream];
        life.0 = life.0.min(now);
    }

    /// An operation of the stream is wanted.
    pub(super) fn waits(&mut self, stream: usize, now: u64) {
        self.begins(stream, now);
        let last = self.waiting.len() - 1;
        if self.waiting[stream] == 0
            && stream == last
            && let Some(lull) = self.outcome.lulls.last_mut().filter(|lull| lull.1 == u64::MAX)
        {
            lull.1 = now;
        }
        self.waiting[stream] += 1;
    }

    /// A chip serves an operation.
    pub(super) fn served(&mut self, stream: usize, from: u64, until: u64) {
        self.outcome.served.push((from, until, stream as u16));
    }

    /// An operation has ended.
    pub(super) fn done(&mut self, stream: usize, now: u64, page: Page, took: u64) {
        self.waiting[stream] -= 1;
        let life = &mut self.outcome.lives[stream];
        life.1 = life.1.max(now);
        if stream + 1 == self.waiting.len() {
            if self.waiting[stream] == 0 {
                self.outcome.lulls.push((now, u64::MAX));
            }
            self.collected.0 += took;
            match page {
                Page::Erase => {
                    self.collected.1 += 1;
                    self.outcome.erased += 1;
                }
                Page::Program => self.copied += 1,
                Page::Read => {}
            }
        }
    }

    /// A page of a host's request has ended.
    pub(super) fn page(&mut self, stream: usize, now: u64) {
        self.outcome.pages[stream].push(now);
    }

    /// A host's request has been answered.
    pub(super) fn answered(&mut self, stream: usize, response: u64, _now: u64) {
        self.outcome.responses[stream].push(response);
        self.answered[stream] += 1;
    }

    /// Whether a host has nothing left to ask for.
    pub(super) fn is_over(&self, stream: usize, host: &Host) -> bool {
        host.count.is_none_or(|count| self.answered[stream] >= count)
    }

    /// A page waits for an erased block of this chip.
    pub(super) fn stalls(&mut self, chip: u32, now: u64) {
        self.stall(chip, now, |stall| stall.pages += 1);
    }

    /// It does not wait any more.
    pub(super) fn resumes(&mut self, chip: u32, now: u64) {
        self.stall(chip, now, |stall| stall.pages -= 1);
    }

    /// A host's page that has a block is to be written by this chip.
    pub(super) fn writes(&mut self, chip: u32, now: u64) {
        self.stall(chip, now, |stall| stall.placed += 1);
    }

    /// It is.
    pub(super) fn written(&mut self, chip: u32, now: u64) {
        self.stall(chip, now, |stall| stall.placed -= 1);
    }

    fn stall(&mut self, chip: u32, now: u64, change: impl Fn(&mut Stall)) {
        let stall = &mut self.stalls[chip as usize];
        if stall.holds() {
            self.outcome.stalled += now - stall.since;
        }
        change(stall);
        stall.since = now;
    }

    /// What the reclaiming of a page has cost so far, in nanoseconds; pages of a block less those that
    /// were copied are reclaimed.
    pub(super) fn price(&self) -> u64 {
        let (nanos, blocks) = self.collected;
        let freed = (blocks * REAL_PAGES).saturating_sub(self.copied);
        nanos.checked_div(freed).unwrap_or(0)
    }

    pub(super) fn outcome(self, case: &Case, now: u64) -> Outcome {
        let mut outcome = self.outcome;
        outcome.end = case.until.unwrap_or(now);
        let held = self.stalls.iter().filter(|stall| stall.holds());
        outcome.stalled += held.map(|stall| outcome.end.saturating_sub(stall.since)).sum::<u64>();
        outcome.responses.iter_mut().for_each(|responses| responses.sort_unstable());
        if case.garbage == Garbage::None {
            outcome.lulls.clear();
        }
        outcome
    }
}

impl Outcome {
    /// Page operations and erasures that chips did.
    pub(super) const fn operations(&self) -> u64 {
        self.served.len() as u64
    }

    /// By stream, nanoseconds of chips in this interval.
    pub(super) fn time(&self, from: u64, until: u64) -> Vec<f64> {
        let mut time = vec![0; self.weights.len()];
        for &(start, end, stream) in &self.served {
            time[usize::from(stream)] += end.min(until).saturating_sub(start.max(from));
        }
        time.into_iter().map(|nanos| nanos as f64).collect()
    }

    /// The share of the chips' time that was used in this interval.
    pub(super) fn used(&self, from: u64, until: u64) -> f64 {
        let used: f64 = self.time(from, until).iter().sum();
        used / ((until - from) as f64 * f64::from(self.chips))
    }

    /// MiB/s of a stream in this interval.
    pub(super) fn rate(&self, stream: usize, from: u64, until: u64) -> f64 {
        let pages = self.pages[stream].iter().filter(|&&at| at > from && at <= until).count();
        (pages * 4_096) as f64 / f64::from(1 << 20) / ((until - from) as f64 / 1e9)
    }

    /// How far the worst share is from its weight's, relative to it, among streams that have work
    /// throughout this interval. `None` if fewer than two have.
    pub(super) fn error(&self, from: u64, until: u64) -> Option<f64> {
        let last = self.weights.len() - 1;
        let lull = self.lulls.iter().any(|&(start, end)| start < until && end > from);
        let active: Vec<_> = (0..self.weights.len())
            .filter(|&stream| self.lives[stream].0 <= from && self.lives[stream].1 >= until)
            .filter(|&stream| !(stream == last && lull))
            .collect();
        if active.len() < 2 {
            return None;
        }
        let time = self.time(from, until);
        let sum: f64 = active.iter().map(|&stream| time[stream]).sum();
        let weights: f64 = active.iter().map(|&stream| f64::from(self.weights[stream])).sum();
        let off = |&stream: &usize| {
            let due = f64::from(self.weights[stream]) / weights;
            (time[stream] / sum / due - 1.0).abs()
        };
        active.iter().map(off).reduce(f64::max)
    }

    /// The times between which the same streams have work.
    pub(super) fn intervals(&self) -> Vec<(u64, u64)> {
        let lives = self.lives.iter().filter(|life| life.0 < life.1);
        let mut times: Vec<u64> = lives.flat_map(|&(from, until)| [from, until]).collect();
        times.sort_unstable();
        times.dedup();
        times.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// The worst error of all intervals of at least 100 ms, and of all windows of 100 ms inside them.
    pub(super) fn worst(&self) -> (f64, f64) {
        let (mut any, mut window) = (0.0_f64, 0.0_f64);
        for (from, until) in self.intervals() {
            if until - from < WINDOW {
                continue;
            }
            any = any.max(self.error(from, until).unwrap_or(0.0));
            let mut at = from;
            while at + WINDOW <= until {
                window = window.max(self.error(at, at + WINDOW).unwrap_or(0.0));
                at += WINDOW;
            }
        }
        (any, window)
    }

    /// When streams would end if all chips were one server that is divided without a remainder.
    pub(super) fn fluid(&self) -> Vec<f64> {
        let mut left = self.time(0, u64::MAX);
        let mut ends = vec![0.0; left.len()];
        let mut now = 0.0;
        loop {
            let active: Vec<_> = (0..left.len()).filter(|&stream| left[stream] > 0.5).collect();
            let weights: f64 = active.iter().map(|&stream| f64::from(self.weights[stream])).sum();
            let rate =
                |stream: usize| f64::from(self.weights[stream]) / weights * f64::from(self.chips);
            let first = active.iter().map(|&stream| left[stream] / rate(stream));
            let Some(step) = first.reduce(f64::min) else { return ends };
            now += step;
            for &stream in &active {
                left[stream] -= step * rate(stream);
                if left[stream] <= 0.5 {
                    ends[stream] = now;
                }
            }
        }
    }

    /// Streams in the order in which they ended.
    pub(super) fn order(&self, streams: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..streams).collect();
        order.sort_by_key(|&stream| self.lives[stream].1);
        order
    }

    /// A percentile of a stream's responses by nearest rank, in milliseconds.
    pub(super) fn percentile(&self, stream: usize, permille: usize) -> f64 {
        let responses = &self.responses[stream];
        let rank = (responses.len() * permille).div_ceil(1_000).max(1);
        responses.get(rank - 1).map_or(0.0, |&nanos| nanos as f64 / 1e6)
    }
}

/// The shortest interval that is looked at.
const WINDOW: u64 = 100_000_000;

/// Pages of a block where collection is of real blocks.
const REAL_PAGES: u64 = 64;
