//! # Estimator: replay
//!
//! | | |
//! |---|---|
//! | Model    | P servers take operations in the order in which they were sent: one starts when it is sent if fewer than P are in service, else when one of those ends; `service = end - start`. What ends before its start by this account is taken to have started when the one before it ended |
//! | Cost     | O(operations outstanding) |
//! | Source   | `docs/reference/dispatch.md` section 8.1, number 2 |
//! | Not when | P is not known (half or twice the right one: 16 to 40 % wrong), or operations belong to certain servers inside, as in a flash device |

use super::{Class, Costs, Estimator};
use crate::clock::{Duration, Instant};
use crate::request::RequestKey;
use alloc::vec::Vec;

/// For a backend that does a known number of operations at once, whichever come first.
#[derive(Debug)]
pub struct Replay {
    servers: usize,
    costs: Costs,
    previous: Instant,
    /// In the order in which they were sent; the first `servers` of them are in service.
    sent: Vec<(RequestKey, Instant, Class)>,
}

impl Replay {
    /// For a backend with `servers` servers, at least 1.
    pub fn new(servers: u32) -> Self {
        assert!(servers > 0, "a backend has a server");
        let costs = Costs::new();
        Self { servers: servers as usize, costs, previous: Instant::ZERO, sent: Vec::new() }
    }
}

impl Estimator for Replay {
    fn nominal(&self, class: Class) -> Duration {
        self.costs.get(class)
    }

    fn submit(&mut self, now: Instant, key: RequestKey, class: Class) {
        self.sent.push((key, now, class));
    }

    fn complete(&mut self, now: Instant, key: RequestKey) -> Duration {
        let place = self.sent.iter().position(|&(sent, ..)| sent == key);
        let place = place.expect("only what was sent can end");
        let (_, mut started, class) = self.sent.remove(place);
        if place >= self.servers {
            started = started.max(self.previous);
        } else if let Some((_, start, _)) = self.sent.get_mut(self.servers - 1) {
            // The first that waited takes the server.
            *start = now;
        }
        self.previous = now;
        let service = now.saturating_since(started);
        self.costs.follow(class, service);
        service
    }
}
