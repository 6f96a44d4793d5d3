//! # Estimator: serial
//!
//! | | |
//! |---|---|
//! | Model    | `service = end - max(start, previous end)` |
//! | Cost     | O(1) |
//! | Source   | `docs/reference/dispatch.md` section 8.1, number 1 |
//! | Not when | the backend does more than one operation at once: with eight it is wrong by 60 to 67 % |

use super::{Class, Costs, Estimator};
use crate::clock::{Duration, Instant};
use crate::request::RequestKey;
use slotmap::SecondaryMap;

/// For a backend that does one operation after the other: a disk, or an ordered session.
#[derive(Debug)]
pub struct Serial {
    costs: Costs,
    previous: Instant,
    sent: SecondaryMap<RequestKey, (Instant, Class)>,
}

impl Serial {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self { costs: Costs::new(), previous: Instant::ZERO, sent: SecondaryMap::new() }
    }
}

impl Default for Serial {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator for Serial {
    fn nominal(&self, class: Class) -> Duration {
        self.costs.get(class)
    }

    fn submit(&mut self, now: Instant, key: RequestKey, class: Class) {
        self.sent.insert(key, (now, class));
    }

    fn complete(&mut self, now: Instant, key: RequestKey) -> Duration {
        let (started, class) = self.sent.remove(key).expect("only what was sent can end");
        let service = now.saturating_since(started.max(self.previous));
        self.previous = now;
        self.costs.follow(class, service);
        service
    }
}
