//! Pauses of machines, disks and switches, drawn from seeds.
//!
//! *Scheduler*: measured, as the delay of a thread that sleeps for 0.5 ms on a machine of two cores, in two samples of
//! a minute at a load average of 3 and two at 13; three minutes of ten are busy. *Garbage collection*: assumed; a flash
//! drive under steady writes stands still for 5 to 60 ms about eight times a second, for some seconds in a minute.
//! *Switch*: assumed; a port drops frames for some seconds every half hour, and a TCP connection then waits for 200 ms,
//! or 600 ms if the repeated segment is lost as well.

use std::collections::VecDeque;
use weir_flow::rng::Rng;

/// What pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The gateway's machine: its thread.
    Gateway,
    /// A path: the process, the drive and the switch behind it.
    Path(u32),
}

/// The pauses of one source, in order of time and without an overlap, drawn second by second.
#[derive(Debug)]
pub(super) struct Pauses {
    source: Source,
    rng: Rng,
    /// From when to when, in nanoseconds.
    drawn: VecDeque<(u64, u64)>,
    seconds: u64,
    collecting_until: u64,
    dropping_until: u64,
}

impl Pauses {
    pub(super) fn new(source: Source, seed: u64) -> Self {
        Self {
            source,
            rng: Rng::stream(seed, &format!("path/pauses/{source:?}")),
            drawn: VecDeque::new(),
            seconds: 0,
            collecting_until: 0,
            dropping_until: 0,
        }
    }

    /// Forgets pauses that were over before `now`, which never falls.
    pub(super) fn forget(&mut self, now: u64) {
        while self.drawn.front().is_some_and(|&(_, until)| until <= now) {
            self.drawn.pop_front();
        }
    }

    /// When work ends that begins at `from` and takes `needed` nanoseconds.
    pub(super) fn end(&mut self, from: u64, needed: u64) -> u64 {
        let mut end = from + needed;
        let mut place = 0;
        loop {
            while self.seconds * SECOND <= end {
                self.draw();
            }
            let Some(&(begin, until)) = self.drawn.get(place).filter(|&&(begin, _)| begin < end)
            else {
                return end;
            };
            end += until.saturating_sub(begin.max(from));
            place += 1;
        }
    }

    fn below(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.below(high - low)
    }

    /// Draws the pauses of the next second.
    fn draw(&mut self) {
        let start = self.seconds * SECOND;
        self.seconds += 1;
        let mut found = Vec::new();
        let busy = self.seconds / 60 % 10 >= QUIET_MINUTES;
        for &(low, high, quiet_rate, busy_rate) in &SCHEDULER {
            let per_minute = if busy { busy_rate } else { quiet_rate };
            // A Poisson process, by the time to the next.
            let mut at = 0.0;
            loop {
                at -= libm::log(1.0 - self.rng.unit()) * 60.0 / per_minute;
                if at >= 1.0 {
                    break;
                }
                found.push((
                    start + (at * SECOND as f64) as u64,
                    self.below(low, high) * MICROSECOND,
                ));
            }
        }
        if self.source != Source::Gateway {
            if self.rng.below(60) == 0 {
                self.collecting_until = start + self.below(2, 9) * SECOND;
            }
            if start < self.collecting_until {
                for _ in 0..8 {
                    found.push((
                        start + self.rng.below(SECOND),
                        self.below(5_000, 60_000) * MICROSECOND,
                    ));
                }
            }
            if self.rng.below(1_800) == 0 {
                self.dropping_until = start + self.below(5, 31) * SECOND;
            }
            if start < self.dropping_until && self.rng.below(2) == 0 {
                let time = if self.rng.below(4) == 0 { 600_000 } else { 200_000 };
                found.push((start + self.rng.below(SECOND), time * MICROSECOND));
            }
        }
        found.sort_unstable();
        for (begin, time) in found {
            // Two pauses at once are one.
            match self.drawn.back_mut() {
                Some((_, until)) if begin <= *until => *until = (begin + time).max(*until),
                _ => self.drawn.push_back((begin, begin + time)),
            }
        }
    }
}

/// Pauses by the scheduler: from and to how many microseconds, and how many in a quiet and in a busy minute.
const SCHEDULER: [(u64, u64, f64, f64); 9] = [
    (500, 1_000, 461.0, 1_006.0),
    (1_000, 2_000, 66.0, 886.0),
    (2_000, 4_000, 61.0, 1_392.0),
    (4_000, 8_000, 30.0, 815.0),
    (8_000, 16_000, 4.0, 395.0),
    (16_000, 32_000, 0.1, 86.0),
    (32_000, 64_000, 0.1, 28.0),
    (64_000, 128_000, 0.1, 14.0),
    (128_000, 360_000, 0.1, 13.0),
];

/// The quiet minutes of ten, which come first.
const QUIET_MINUTES: u64 = 7;

const MICROSECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Work takes its time and the pauses that it meets, and time does not run backwards.
    #[test]
    fn work_waits_for_pauses() {
        let mut pauses = Pauses::new(Source::Path(0), 1);
        pauses.drawn = VecDeque::from([(100, 200), (250, 300), (1_000, 2_000)]);
        pauses.seconds = 100;
        assert_eq!(pauses.end(0, 50), 50);
        assert_eq!(pauses.end(90, 20), 210);
        assert_eq!(pauses.end(90, 70), 310);
        assert_eq!(pauses.end(150, 10), 210);
        assert_eq!(pauses.end(400, 100), 500);
        pauses.forget(300);
        assert_eq!(pauses.drawn.len(), 1);
    }

    /// A seed names the pauses; a busy minute has more of them than five quiet ones.
    #[test]
    fn pauses_are_those_of_a_seed() {
        let drawn = |seed| {
            let mut pauses = Pauses::new(Source::Gateway, seed);
            while pauses.seconds < 600 {
                pauses.draw();
            }
            pauses.drawn
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let busy = QUIET_MINUTES * 60 * SECOND;
        let quiet = drawn(1).iter().filter(|&&(begin, _)| begin < busy).count();
        assert!((3_500..5_000).contains(&quiet), "{quiet}");
        assert!(drawn(1).len() > 3 * quiet / 2, "{}", drawn(1).len());
    }
}
