//! Log lines that hosts can cause: the first ones are written, the rest are counted and summed.
//!
//! Each kind of line is counted by its origin, which is an address or a volume. Within a window the first
//! [`LINES_OF_ORIGIN`] lines of an origin are written, and at most [`LINES_OF_KIND`] of all origins. The others are
//! counted, and at the end of the window one line for each of the [`SUMS`] busiest origins, and one for all others, says
//! how many there were. The first window is [`WINDOW_MIN`] long. While lines repeat, windows double up to
//! [`WINDOW_MAX`], and an origin that repeats writes nothing but sums; a window without repeated lines ends all that.
//!
//! So a host writes at most a few lines per minute and kind in the long run, whatever it does, and memory is bounded:
//! there are as many kinds as places in the source that log, and [`ORIGINS_MAX`] origins of each.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::rc::Rc;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};

/// The counts of all kinds. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerLog(Rc<RefCell<BTreeMap<&'static str, Kind>>>);

/// A kind of line.
#[derive(Debug)]
struct Kind {
    began: Instant,
    window: Duration,
    /// Lines written in this window.
    written: u32,
    origins: BTreeMap<String, Origin>,
    /// Origins past [`ORIGINS_MAX`].
    others: Origin,
    /// The name of the origin of the last line: its memory is used again.
    name: String,
}

/// The lines of an origin.
#[derive(Debug, Default)]
struct Origin {
    written: u32,
    repeated: u64,
}

/// The lines of a kind that were counted in a window.
#[derive(Debug, PartialEq, Eq)]
struct Sum {
    repeated: u64,
    origin: String,
}

impl PeerLog {
    /// A line of this kind, caused by `origin`: calls `write` with its text, or counts it.
    pub(crate) fn line(
        &self,
        now: Instant,
        origin: impl Display,
        kind: &'static str,
        write: impl FnOnce(&'static str),
    ) {
        // Not held while the line is written.
        let writes =
            self.0.borrow_mut().entry(kind).or_insert_with(|| Kind::new(now)).admits(origin);
        if writes {
            write(kind);
        }
    }

    /// Once a second: writes the sums of the windows that are over.
    pub(crate) fn tick(&self, now: Instant) {
        self.write_sums(now, |kind| now.saturating_since(kind.began) >= kind.window);
    }

    /// Writes all sums: the gateway stops.
    pub(crate) fn finish(&self, now: Instant) {
        self.write_sums(now, |_| true);
    }

    fn write_sums(&self, now: Instant, is_over: impl Fn(&Kind) -> bool) {
        self.0.borrow_mut().retain(|text, kind| {
            if !is_over(kind) {
                return true;
            }
            let lasted = now.saturating_since(kind.began);
            let sums = kind.end_window(now);
            for Sum { repeated, origin } in &sums {
                warn!("{text}: repeated {repeated} times in {lasted} from {origin}");
            }
            !sums.is_empty()
        });
    }
}

impl Kind {
    fn new(now: Instant) -> Self {
        let (origins, others, name) = (BTreeMap::new(), Origin::default(), String::new());
        Self { began: now, window: WINDOW_MIN, written: 0, origins, others, name }
    }

    /// Whether a line of this origin is written. Counts it. Repeated lines allocate nothing.
    fn admits(&mut self, origin: impl Display) -> bool {
        self.name.clear();
        let _ = write!(self.name, "{origin}");
        if self.origins.len() < ORIGINS_MAX && !self.origins.contains_key(&self.name) {
            self.origins.insert(self.name.clone(), Origin::default());
        }
        let origin = self.origins.get_mut(&self.name).unwrap_or(&mut self.others);
        let writes = origin.written < LINES_OF_ORIGIN && self.written < LINES_OF_KIND;
        origin.written += u32::from(writes);
        origin.repeated += u64::from(!writes);
        self.written += u32::from(writes);
        writes
    }

    /// Ends the window, and returns its sums, the largest first. Without one, the kind can be forgotten.
    fn end_window(&mut self, now: Instant) -> Vec<Sum> {
        let repeated = |origin: &mut Origin| std::mem::take(&mut origin.repeated);
        let mut all: Vec<Sum> = Vec::new();
        self.origins.retain(|name, origin| {
            let repeated = repeated(origin);
            if repeated > 0 {
                all.push(Sum { repeated, origin: name.clone() });
            }
            repeated > 0
        });
        all.sort_by_key(|sum| Reverse(sum.repeated));
        let rest = all.split_off(all.len().min(SUMS));
        let count = rest.iter().map(|sum| sum.repeated).sum::<u64>() + repeated(&mut self.others);
        if count > 0 {
            all.push(Sum { repeated: count, origin: "other origins".to_owned() });
        } else {
            self.others = Origin::default();
        }
        (self.began, self.written) = (now, 0);
        self.window = (self.window * 2).min(WINDOW_MAX);
        assert!(self.origins.len() <= ORIGINS_MAX, "origins are bounded");
        all
    }
}

/// Lines of an origin that are written: a line for each session of a host with many volumes and paths.
const LINES_OF_ORIGIN: u32 = 64;

/// Lines of a kind that are written in a window: a line for each host when all return at once.
const LINES_OF_KIND: u32 = 1_024;

/// Origins of a kind that are counted each for itself.
const ORIGINS_MAX: usize = 1_024;

/// Origins of a kind that a sum names.
const SUMS: usize = 8;

/// The first window, and the longest.
const WINDOW_MIN: Duration = Duration::from_secs(10);
const WINDOW_MAX: Duration = Duration::from_secs(640);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// One origin that repeats a line 1,000 times a second for ten minutes writes 64 lines, and its sums come after 10,
    /// 20, 40 and so on to 320 seconds; nothing is lost or counted twice.
    #[test]
    fn repeated_lines_are_summed() {
        let mut kind = Kind::new(at(0));
        let (mut written, mut ends, mut summed) = (0, Vec::new(), 0);
        for second in 0..=630 {
            if at(second).since(kind.began) >= kind.window {
                let sums = kind.end_window(at(second));
                assert_eq!((sums.len(), &*sums[0].origin), (1, "10.0.0.7"));
                summed += sums[0].repeated;
                ends.push(second);
            }
            if second < 630 {
                written += (0..1_000).filter(|_| kind.admits("10.0.0.7")).count() as u64;
            }
        }
        assert_eq!(ends, [10, 30, 70, 150, 310, 630]);
        assert_eq!((written, written + summed), (u64::from(LINES_OF_ORIGIN), 630_000));
    }

    /// Origins are counted each for itself, a window without repeated lines forgets them, and many origins write no
    /// more than the kind may and are summed in nine lines.
    #[test]
    fn origins_are_counted_apart() {
        let mut kind = Kind::new(at(0));
        assert!(
            (0..LINES_OF_ORIGIN).all(|_| kind.admits("a")) && !kind.admits("a") && kind.admits("b")
        );
        assert_eq!(kind.end_window(at(10)), [Sum { repeated: 1, origin: "a".to_owned() }]);
        assert!(!kind.admits("a") && kind.admits("b"), "an origin that repeats writes nothing");
        kind.end_window(at(30));
        assert_eq!(kind.end_window(at(70)), []);
        assert!(kind.admits("a"));

        let mut kind = Kind::new(at(0));
        let mut written = 0;
        for n in 0..100_000_u32 {
            written += u32::from(kind.admits(n % 10_000));
        }
        assert_eq!((written, kind.origins.len()), (LINES_OF_KIND, ORIGINS_MAX));
        let sums = kind.end_window(at(10));
        assert_eq!((sums.len(), &*sums[SUMS].origin), (SUMS + 1, "other origins"));
        assert_eq!(sums.iter().map(|sum| sum.repeated).sum::<u64>(), 100_000 - u64::from(written));
    }

    /// A line is written with its text until its origin repeats it, and clones share the counts.
    #[test]
    fn clones_share_counts() {
        let log = PeerLog::default();
        let count = RefCell::new(0);
        for n in 0..100 {
            let one = if n % 2 == 0 { log.clone() } else { log.clone().clone() };
            one.line(at(1), "a", "refused", |text| {
                assert_eq!(text, "refused");
                *count.borrow_mut() += 1;
            });
        }
        assert_eq!(count.into_inner(), LINES_OF_ORIGIN);
        log.tick(at(2));
        assert_eq!(log.0.borrow()["refused"].origins["a"].repeated, 36);
        log.tick(at(11));
        assert_eq!(log.0.borrow()["refused"].origins["a"].repeated, 0);
        log.finish(at(12));
        assert!(log.0.borrow().is_empty(), "nothing was repeated");
    }
}
