//! # Estimator: sample
//!
//! | | |
//! |---|---|
//! | Model    | for 4 ms of every 100 at most two operations are at the backend; the time that those took which met at most one other is a sample of their class. `service` is the median of the class's last 15 samples, and never more than the operation was away |
//! | Cost     | O(15 log 15) per sample, O(1) otherwise; 2 to 3 % of the backend's throughput |
//! | Source   | spec/dispatch.md 8.1, number 3 |
//! | Not when | single operations of a class differ much, or the backend's speed changes within a second or so. Ends have to be noticed at once: 50 us late are 19 % where an operation takes 70 us |

use super::{Class, Costs, Estimator, SIZES};
use crate::clock::{Duration, Instant};
use crate::request::RequestKey;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

/// For a backend of which nothing is known.
#[derive(Debug)]
pub struct Sample {
    /// Where its windows lie in the period.
    shift: u64,
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
            shift: index as u64 % (PERIOD / WINDOW) * WINDOW,
            costs: Costs::new(),
            classes: alloc::vec![Seen::default(); 2 * SIZES],
            sent: SecondaryMap::new(),
            submitted: 0,
            crowded: 0,
        }
    }
}

impl Estimator for Sample {
    fn nominal(&self, class: Class) -> Duration {
        self.costs.get(class)
    }

    fn submit(&mut self, now: Instant, key: RequestKey, class: Class) {
        self.submitted += 1;
        self.sent.insert(key, Sent { at: now, class, number: self.submitted });
        if self.sent.len() > FEW as usize {
            self.crowded = self.submitted;
        }
    }

    fn complete(&mut self, now: Instant, key: RequestKey) -> Duration {
        let Sent { at, class, number } = self.sent.remove(key).expect("only what was sent can end");
        let away = now.saturating_since(at);
        if number > self.crowded {
            let seen = &mut self.classes[class.index()];
            seen.times[seen.count % SAMPLES] = away.as_nanos();
            seen.count += 1;
            let mut times = seen.times;
            let times = &mut times[..seen.count.min(SAMPLES)];
            times.sort_unstable();
            self.costs.set(class, Duration::from_nanos(times[(times.len() - 1) / 2]));
        }
        self.costs.get(class).min(away)
    }

    fn limit(&self, now: Instant) -> Option<(u32, Instant)> {
        let place = (now.as_nanos() + self.shift) % PERIOD;
        (place < WINDOW).then(|| (FEW, now + Duration::from_nanos(WINDOW - place)))
    }
}

/// How often, and how long, few operations are at the backend, in nanoseconds.
const PERIOD: u64 = 100_000_000;
const WINDOW: u64 = 4_000_000;

/// How many are few.
const FEW: u32 = 2;

/// Samples of which the median is taken.
const SAMPLES: usize = 15;
