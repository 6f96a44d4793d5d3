//! # Estimator: sample
//!
//! | | |
//! |---|---|
//! | Model    | in an observation at most two operations are at the backend; the time that those took which met at most one other is a sample of their class. `service` is the median of the class's last 15 samples, and never more than the operation was away |
//! | Look     | until no more than two have been there for 4 ms, and 8 samples were taken, among them one of each class that was sent meanwhile, but for 100 ms at most, and for a second with what had to end before; the next begins after 24 times as long as that took, and after up to 96 times while observations find the costs that were known. Where operations take less than half a millisecond that is 4 ms of every 100, as in the source; a slower backend would be nearly empty only when such a time was over |
//! | Cost     | O(15 log 15) per sample, O(1) otherwise; 2 to 3 % of the backend's throughput, 1 % while costs do not change |
//! | Source   | `docs/reference/dispatch.md` section 8.1, number 3 |
//! | Not when | single operations of a class differ much, or the backend's speed changes within a second or so. Ends have to be noticed at once: 50 us late are 19 % where an operation takes 70 us |

use super::{Class, Costs, Estimator, SIZES};
use crate::clock::{Duration, Instant};
use crate::request::RequestKey;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

/// For a backend of which nothing is known.
#[derive(Debug)]
pub struct Sample {
    /// How much later than others it looks, so that not all backends are nearly empty at once.
    shift: Duration,
    /// When the look begins that is next, or now.
    next: Instant,
    /// No more than [`FEW`] have been there since then, in this observation, and this number of samples was taken.
    few: Option<Instant>,
    taken: u32,
    /// By a bit for each class: sent since then and not sampled yet, and sampled.
    lacks: u64,
    has: u64,
    /// A class had another cost in this observation than before.
    changed: bool,
    /// That was a class with few samples, and it was not asked about since.
    repriced: bool,
    /// The next observation begins after this many times as long as this one took.
    rest: u64,
    costs: Costs,
    classes: Vec<Seen>,
    sent: SecondaryMap<RequestKey, Sent>,
    submitted: u64,
    /// What was sent before this one has met more than one other.
    crowded: u64,
}

/// The last samples of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: usize,
    times: [u64; SAMPLES],
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    class: Class,
    number: u64,
}

impl Sample {
    /// One that has seen nothing, for the backend with this index.
    pub fn new(index: usize) -> Self {
        Self {
            shift: WINDOW * (index as u64 % REST),
            next: Instant::ZERO,
            few: None,
            taken: 0,
            lacks: 0,
            has: 0,
            changed: true,
            repriced: false,
            rest: REST,
            costs: Costs::new(),
            classes: alloc::vec![Seen::default(); 2 * SIZES],
            sent: SecondaryMap::new(),
            submitted: 0,
            crowded: 0,
        }
    }

    /// A class without samples costs what the nearest class with samples does, of its direction if there is one, and
    /// the difference of their bytes: what is believed at the start may be wrong by orders of magnitude.
    fn guess(&mut self) {
        for index in 0..self.classes.len() {
            let seen = |other: &usize| self.classes[*other].count > 0;
            if seen(&index) {
                continue;
            }
            let distance =
                |other: &usize| (other % 2 != index % 2, (other / 2).abs_diff(index / 2));
            let nearest = (0..self.classes.len()).filter(seen).min_by_key(distance);
            if let Some(nearest) = nearest {
                self.costs.derive(index, nearest);
            }
        }
    }

    /// When the observation that is next or in progress ends at the latest.
    fn end(&self) -> Instant {
        let end = self.next + LONGEST;
        self.few.map_or(end, |few| end.min(few + FEW_LONGEST))
    }

    /// Notices when few are there, and when an observation is over.
    fn look(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        if self.sent.len() <= FEW as usize {
            self.few.get_or_insert(now);
        }
        let long = self.few.is_some_and(|few| now >= few + WINDOW)
            && self.taken >= ENOUGH
            && self.lacks == 0;
        if long || now >= self.end() {
            let took = now.since(self.next).min(LONGEST).max(WINDOW);
            self.rest = if self.changed { REST } else { (self.rest * 2).min(REST_MAX) };
            (self.next, self.few, self.taken) = (now + took * self.rest, None, 0);
            (self.lacks, self.has, self.changed) = (0, 0, false);
        }
    }
}

impl Estimator for Sample {
    fn nominal(&self, class: Class) -> Duration {
        self.costs.get(class)
    }

    fn submit(&mut self, now: Instant, key: RequestKey, class: Class) {
        self.submitted += 1;
        // An observation without operations is put off; one that is just due begins now.
        if self.sent.is_empty() && self.few.is_none() && now >= self.next {
            let over = now >= self.next + LONGEST || self.next == Instant::ZERO;
            self.next = if over { now + self.shift } else { now };
        }
        if self.few.is_some() {
            self.lacks |= bit(class) & !self.has;
        }
        self.sent.insert(key, Sent { at: now, class, number: self.submitted });
        if self.sent.len() > FEW as usize {
            self.crowded = self.submitted;
        }
        self.look(now);
    }

    fn complete(&mut self, now: Instant, key: RequestKey) -> Duration {
        let Sent { at, class, number } = self.sent.remove(key).expect("only what was sent can end");
        let away = now.saturating_since(at);
        if number > self.crowded {
            let seen = &mut self.classes[class.index()];
            seen.times[seen.count % SAMPLES] = away.as_nanos();
            seen.count += 1;
            self.taken += 1;
            self.has |= bit(class);
            self.lacks &= !bit(class);
            let mut times = seen.times;
            let times = &mut times[..seen.count.min(SAMPLES)];
            times.sort_unstable();
            let (old, new) = (self.costs.get(class).as_nanos(), times[(times.len() - 1) / 2]);
            let far = old.abs_diff(new) > old / CHANGE;
            self.changed |= far;
            self.repriced |= far && seen.count <= SAMPLES;
            self.costs.set(class, Duration::from_nanos(new));
            if self.classes[class.index()].count == 1 {
                self.guess();
            }
        }
        self.look(now);
        self.costs.get(class).min(away)
    }

    fn repriced(&mut self) -> bool {
        core::mem::take(&mut self.repriced)
    }

    fn limit(&self, now: Instant) -> Option<(u32, Instant)> {
        let end = self.end();
        (now >= self.next && now < end).then(|| (FEW, end.min(now + WINDOW)))
    }
}

const fn bit(class: Class) -> u64 {
    const { assert!(2 * SIZES <= 64, "there is a bit for each class") };
    1 << class.index()
}

/// How long few operations are at the backend in an observation, at least and at most; the longest observation; how
/// many times as long there is none, at least and at most.
const WINDOW: Duration = Duration::from_millis(4);
const FEW_LONGEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);
const REST: u64 = 24;
const REST_MAX: u64 = 96;

/// A cost that is off by more than this part of it has changed.
const CHANGE: u64 = 2;

/// Samples of an observation.
const ENOUGH: u32 = 8;

/// How many are few.
const FEW: u32 = 2;

/// Samples of which the median is taken.
const SAMPLES: usize = 15;
