//! How well one row of a contract is kept for reads, or for writes.

use super::burn::{MINUTES, MissCount, Ring};
use super::histogram::Histogram;
use crate::clock::{Duration, Instant};
use crate::control::{Row, Target};
use alloc::vec::Vec;
use core::mem::swap;

/// What became of the requests of one row and direction: over the last second, minute and hour, and since
/// it began.
///
/// Times run from arrival to the last byte of the reply, and count when that has left. Windows tumble: they
/// begin at whole seconds, minutes and hours of the run. A request is counted in the current second; a
/// second that ends goes into its minute, a minute into its hour. Memory does not grow with time: at most
/// seven histograms.
#[derive(Clone, Debug)]
pub struct Attainment {
    targets: Vec<Target>,
    /// By [`Window`].
    spans: [Span; 3],
    /// The hours that have ended.
    ended: Period,
    ring: Ring,
}

/// A length of time that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    /// One second.
    Second,
    /// One minute.
    Minute,
    /// One hour.
    Hour,
}

/// The requests of some time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Period {
    /// How long they took. One that failed or was refused took for ever.
    pub times: Histogram,
    /// How many met their targets, exactly.
    pub counts: MissCount,
}

/// A window: the current one and the last whole one.
#[derive(Clone, Debug)]
struct Span {
    /// The number of the current one, counted from the beginning of the run.
    number: u64,
    /// The one in which counting began.
    first: u64,
    current: Period,
    last: Period,
}

impl Window {
    /// All, shortest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// How long it is.
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
        })
    }

    /// Its number at `now`.
    const fn number(self, now: Instant) -> u64 {
        now.as_nanos() / self.length().as_nanos()
    }
}

impl Period {
    /// Counts everything that the other has counted.
    pub fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.counts.add(&other.counts);
    }

    fn record(&mut self, time: Duration, missed: u8) {
        self.times.record(time);
        self.counts.count += 1;
        let mut left = missed;
        while left > 0 {
            self.counts.missed[left.trailing_zeros() as usize] += 1;
            left &= left - 1;
        }
    }

    fn clear(&mut self) {
        self.times.clear();
        self.counts = MissCount::default();
    }
}

impl Attainment {
    /// Begins to count at `now`.
    pub fn new(row: &Row, now: Instant) -> Self {
        let span = |window: Window| {
            let number = window.number(now);
            Span { number, first: number, current: Period::default(), last: Period::default() }
        };
        Self {
            targets: row.targets.clone(),
            spans: Window::ALL.map(span),
            ended: Period::default(),
            ring: Ring::new(row.targets.len(), Window::Minute.number(now)),
        }
    }

    /// The targets of the row, whose indices [`MissCount`] has.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The last target of the row: the one with the largest share of requests.
    pub fn last_target(&self) -> Target {
        *self.targets.last().expect("a row has a target")
    }

    /// Counts a request that has ended at `now`, or was refused. `None` is one that got nothing. Returns
    /// whether it missed the last target.
    pub fn record(&mut self, now: Instant, response: Option<Duration>) -> bool {
        self.advance(now);
        let time = response.unwrap_or(Duration::MAX);
        let late = self.targets.iter().map(|target| u8::from(time > target.response));
        let missed = late.enumerate().fold(0, |bits, (index, late)| bits | late << index);
        self.spans[0].current.record(time, missed);
        self.ring.record(missed);
        missed >> (self.targets.len() - 1) & 1 == 1
    }

    /// The last whole window before `now`. During the first one, what it has so far.
    pub fn window(&mut self, now: Instant, window: Window) -> Period {
        self.advance(now);
        let span = &self.spans[window as usize];
        if span.number > span.first { span.last.clone() } else { self.so_far(window) }
    }

    /// Everything since it began.
    pub fn whole(&mut self, now: Instant) -> Period {
        self.advance(now);
        let mut whole = self.so_far(Window::Hour);
        whole.merge(&self.ended);
        whole
    }

    /// The requests of the last 5 minutes: the current minute and the four before it.
    pub fn five_minutes(&mut self, now: Instant) -> MissCount {
        self.advance(now);
        self.ring.over(5)
    }

    /// The requests of the last hour: the current minute and the 59 before it.
    pub fn hour(&mut self, now: Instant) -> MissCount {
        self.advance(now);
        self.ring.over(MINUTES)
    }

    /// Bytes of memory that its histograms take now.
    pub fn bytes(&self) -> usize {
        let periods = self.spans.iter().flat_map(|span| [&span.current, &span.last]);
        periods.chain([&self.ended]).map(|period| period.times.bytes()).sum()
    }

    /// The current window: what it has by itself, and what the shorter ones have not given it yet.
    fn so_far(&self, window: Window) -> Period {
        let mut period = Period::default();
        for span in &self.spans[..=window as usize] {
            period.merge(&span.current);
        }
        period
    }

    /// Ends the windows that are over.
    fn advance(&mut self, now: Instant) {
        for (index, window) in Window::ALL.into_iter().enumerate() {
            let number = window.number(now);
            let (done, longer) = self.spans.split_at_mut(index + 1);
            let span = &mut done[index];
            // A query may be a little ahead of the events.
            if number <= span.number {
                return;
            }
            let into = longer.first_mut().map_or(&mut self.ended, |longer| &mut longer.current);
            into.merge(&span.current);
            if number == span.number + 1 {
                swap(&mut span.current, &mut span.last);
            } else {
                span.last.clear();
            }
            span.current.clear();
            span.number = number;
            if window == Window::Minute {
                self.ring.advance(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Contract;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A row of two targets: half within 1 ms, 99 % within 10 ms.
    fn row() -> Row {
        let mut row = Contract::new(100, 4096, Duration::from_millis(10)).rows.remove(0);
        row.targets.insert(0, Target { quantile_ppm: 500_000, response: Duration::from_millis(1) });
        row
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// A time on the target meets it, one nanosecond more does not, and what got nothing misses all.
    #[test]
    fn targets_are_inclusive() {
        let mut score = Attainment::new(&row(), Instant::ZERO);
        let on = Duration::from_millis(10);
        assert!(!score.record(at(1), Some(on)));
        assert!(score.record(at(2), Some(on + Duration::from_nanos(1))));
        assert!(!score.record(at(3), Some(Duration::from_millis(1))));
        assert!(score.record(at(4), None));
        let whole = score.whole(at(4));
        assert_eq!((whole.counts.count, &whole.counts.missed[..2]), (4, &[3, 2][..]));
        assert_eq!(whole.times.quantile(1_000_000), Some(Duration::MAX));
    }

    /// Each window holds a request until it is over and, as the last whole one, until the next one is.
    #[test]
    fn windows_forget() {
        for window in Window::ALL {
            let length = window.length();
            let start = Instant::ZERO + length * 7;
            let mut score = Attainment::new(&row(), start);
            score.record(start + Duration::from_nanos(length.as_nanos() / 2), None);
            let mut count = |now| score.window(now, window).counts.count;
            let nano = Duration::from_nanos(1);
            assert_eq!(count(start + (length - nano)), 1, "{window:?} is current");
            assert_eq!(count(start + length), 1, "{window:?} is the last whole one");
            assert_eq!(count(start + (length * 2 - nano)), 1, "{window:?}");
            assert_eq!(count(start + length * 2), 0, "{window:?} is forgotten");
            assert_eq!(score.whole(start + length * 2).counts.count, 1);
        }
    }

    /// A request whose time is a little behind that of a query is counted, and ends no window.
    #[test]
    fn a_query_ahead_loses_nothing() {
        let mut score = Attainment::new(&row(), at(500));
        score.record(at(997), None);
        score.record(at(998), None);
        assert_eq!(score.window(at(1_001), Window::Second).counts.count, 2);
        score.record(at(999), None);
        assert_eq!(score.window(at(1_002), Window::Second).counts.count, 2);
        assert_eq!(score.whole(at(1_002)).counts.count, 3);
    }

    /// After a silence of more than a window the last whole one is empty, not an old one.
    #[test]
    fn a_silence_is_empty() {
        let mut score = Attainment::new(&row(), Instant::ZERO);
        score.record(at(500), None);
        assert_eq!(score.window(at(5_500), Window::Second).counts, MissCount::default());
        assert_eq!(score.window(at(5_500), Window::Minute).counts.count, 1);
    }

    proptest! {
        /// Whatever the times, windows hold what a list of all requests says, and nothing is lost.
        #[test]
        fn windows_agree_with_a_list(steps in prop::collection::vec((0..90_000_u64, 0..20_u64), 1..200)) {
            let mut score = Attainment::new(&row(), Instant::ZERO);
            let (mut now, mut all) = (0, Vec::new());
            for (step, millis) in steps {
                now += if step % 4 == 0 { step } else { step % 400 };
                let response = (millis > 0).then(|| Duration::from_millis(millis));
                score.record(at(now), response);
                all.push((now, response));
                for window in Window::ALL {
                    let length = window.length().as_nanos() / 1_000_000;
                    let under_way = now / length;
                    let wanted = if under_way > 0 { under_way - 1 } else { 0 };
                    let mut period = Period::default();
                    for &(_, response) in all.iter().filter(|(at, _)| at / length == wanted) {
                        let time = response.unwrap_or(Duration::MAX);
                        let late = |limit| u8::from(time > Duration::from_millis(limit));
                        period.record(time, late(1) | late(10) << 1);
                    }
                    prop_assert_eq!(score.window(at(now), window), period);
                }
            }
            prop_assert_eq!(score.whole(at(now)).counts.count, all.len() as u64);
            let minute = |at: u64| at / 60_000;
            let recent = all.iter().filter(|(at, _)| minute(*at) + 5 > minute(now)).count();
            prop_assert_eq!(score.five_minutes(at(now)).count, recent as u64);
        }
    }
}
