//! The measurements of a run: response times, load of each path, and a time series.

use super::link::Link;
use super::run::Done;
use serde::Serialize;
use weir_flow::rng::mix;

/// What is to be looked at, besides what always is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// I/Os that come from then on, in nanoseconds, are looked at once more.
    pub(super) after: Option<u64>,
    /// From when to when no path works, in nanoseconds.
    pub(super) outage: Option<(u64, u64)>,
    /// The response over time, for a run of this length in nanoseconds.
    pub(super) course: Option<u64>,
}

/// What a run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// By path: how long it served, in nanoseconds, and how many I/Os.
    pub(super) paths: Vec<(u64, u64)>,
    /// When the last I/O ended.
    pub(super) end_ns: u64,
    /// Mean response in nanoseconds, and percentiles by nearest rank.
    pub(super) mean_ns: f64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    pub(super) longest_ns: u64,
    /// I/Os that took more than 100 ms.
    pub(super) long: u64,
    /// Of the I/Os that came after the time that was wanted: their number, their mean response in
    /// nanoseconds, and how many each path did.
    pub(super) after: (u64, f64, Vec<u64>),
    /// I/Os that failed.
    pub(super) failed: u64,
    /// I/Os that came while no path worked, and those of them that failed when they came.
    pub(super) outage: (u64, u64),
    /// How often an I/O was given to a path again.
    pub(super) retried: u64,
    /// Which path did which I/O, as one number.
    pub(super) choices: u64,
    /// From when to when a path was not well.
    pub(super) trouble: Option<(u64, u64)>,
    pub(super) samples: Vec<Sample>,
}

/// The I/Os that came in a short time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// The middle of that time, in seconds from the start.
    pub seconds: f64,
    /// Their mean response in milliseconds.
    pub mean_ms: f64,
    /// The longest.
    pub longest_ms: f64,
}

/// The counts of a run in progress.
pub(super) struct Score {
    wanted: Wanted,
    links: Vec<Link>,
    outcome: Outcome,
    responses: Vec<u64>,
    /// By I/O, whether it is over.
    over: Vec<bool>,
    after_sum: u128,
    /// Number, sum and longest, by piece of the course.
    pieces: Vec<(u64, u128, u64)>,
}

impl Score {
    pub(super) fn new(links: Vec<Link>, ios: usize, wanted: Wanted) -> Self {
        let outcome = Outcome {
            paths: vec![(0, 0); links.len()],
            after: (0, 0.0, vec![0; links.len()]),
            ..Outcome::default()
        };
        let pieces = if wanted.course.is_some() { PIECES } else { 0 };
        Self {
            wanted,
            links,
            outcome,
            responses: Vec::with_capacity(ios),
            over: vec![false; ios],
            after_sum: 0,
            pieces: vec![(0, 0, 0); pieces],
        }
    }

    pub(super) fn add(&mut self, done: Done) {
        let twice = std::mem::replace(&mut self.over[done.index], true);
        assert!(!twice, "an I/O ends once");
        let outcome = &mut self.outcome;
        outcome.retried += u64::from(done.retries);
        if self.wanted.outage.is_some_and(|(from, until)| (from..until).contains(&done.arrived)) {
            outcome.outage.0 += 1;
            outcome.outage.1 += u64::from(done.path.is_none() && done.ended == done.arrived);
        }
        let Some(path) = done.path else {
            outcome.failed += 1;
            return;
        };
        let response = done.ended - done.arrived;
        self.responses.push(response);
        outcome.end_ns = outcome.end_ns.max(done.ended);
        outcome.paths[path].0 += self.links[path].service(done.bytes);
        outcome.paths[path].1 += 1;
        // A sum, since I/Os end in another order than they were given to paths.
        let choice = mix(((done.index as u64) << 8) + path as u64 + 1);
        outcome.choices = outcome.choices.wrapping_add(choice);
        outcome.long += u64::from(response > LONG);
        if self.wanted.after.is_some_and(|after| done.arrived >= after) {
            outcome.after.0 += 1;
            outcome.after.2[path] += 1;
            self.after_sum += u128::from(response);
        }
        if let Some(length) = self.wanted.course {
            let piece = u128::from(done.arrived) * PIECES as u128 / u128::from(length.max(1));
            let (count, sum, longest) = &mut self.pieces[(piece as usize).min(PIECES - 1)];
            *count += 1;
            *sum += u128::from(response);
            *longest = response.max(*longest);
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        let Self { wanted, mut outcome, mut responses, after_sum, pieces, .. } = self;
        responses.sort_unstable();
        let rank = |thousandths: usize| {
            let rank = (responses.len() * thousandths).div_ceil(1_000);
            rank.checked_sub(1).map_or(0, |place| responses[place])
        };
        outcome.p99_ns = rank(990);
        outcome.p999_ns = rank(999);
        outcome.longest_ns = rank(1_000);
        let sum: u128 = responses.iter().copied().map(u128::from).sum();
        outcome.mean_ns = sum as f64 / responses.len().max(1) as f64;
        outcome.after.1 = after_sum as f64 / outcome.after.0.max(1) as f64;
        let piece = wanted.course.unwrap_or_default() as f64 / PIECES as f64;
        let samples = pieces.iter().enumerate().filter(|(_, piece)| piece.0 > 0);
        outcome.samples = samples
            .map(|(place, &(count, sum, longest))| Sample {
                seconds: (place as f64 + 0.5) * piece / 1e9,
                mean_ms: sum as f64 / count as f64 / 1e6,
                longest_ms: longest as f64 / 1e6,
            })
            .collect();
        outcome
    }
}

/// A response that a host notices.
const LONG: u64 = 100_000_000;

/// Pieces of a course.
const PIECES: usize = 150;

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentiles are by nearest rank, and what comes later or takes long is counted apart.
    #[test]
    fn figures_are_those_of_the_ios() {
        let link = Link { fixed: 5, rate: 1_000_000_000 };
        let wanted = Wanted { after: Some(901), outage: Some((0, 3)), course: Some(1_000) };
        let mut score = Score::new(vec![link; 2], 1_002, wanted);
        for n in 1..=1_000_u64 {
            let (index, arrived, path) = (n as usize, n, Some((n % 2) as usize));
            let ended = n + if n == 1_000 { LONG + 1 } else { n };
            score.add(Done { index, arrived, ended, path, bytes: 10, retries: 0 });
        }
        score.add(Done { index: 0, arrived: 0, ended: 9, path: None, bytes: 10, retries: 2 });
        score.add(Done { index: 1_001, arrived: 0, ended: 0, path: None, bytes: 10, retries: 0 });
        let outcome = score.outcome();
        assert_eq!((outcome.p99_ns, outcome.p999_ns), (990, 999));
        assert_eq!((outcome.longest_ns, outcome.long), (LONG + 1, 1));
        assert_eq!((outcome.failed, outcome.retried), (2, 2));
        assert_eq!(
            outcome.outage,
            (4, 1),
            "of those that came at 0, 0, 1 and 2 one failed at once"
        );
        assert_eq!(outcome.paths, [(7_500, 500), (7_500, 500)]);
        assert_eq!((outcome.after.0, &outcome.after.2), (100, &vec![50, 50]));
        assert_eq!(outcome.samples.len(), PIECES);
        assert!((outcome.samples[0].longest_ms - 6e-6).abs() < 1e-12, "{:?}", outcome.samples[0]);
    }
}
