//! # Control policy: open (TA0)
//!
//! No control: every request goes to shared storage at once.
//!
//! | | |
//! |---|---|
//! | Model    | `release(r) = arrival(r)` |
//! | Ties     | order of arrival |
//! | Cost     | O(1) |
//! | Source   | scheme TA0 of the token-bucket paper, its baseline |
//! | Not when | tenants share storage and one of them can overload it |

use super::{Build, ControlPolicy};
use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Property, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "open",
    summary: "every request goes to shared storage at once (TA0)",
    properties: &[Property::KeepsOrder, Property::WorkConserving],
    parameters: &[],
    build: |_, _| Box::new(Open { arrived: VecDeque::new() }),
};

const RULE: Rule = Rule(&"control/open");

/// Holds a request only between `arrive` and the `poll` that follows it.
#[derive(Debug)]
struct Open {
    arrived: VecDeque<RequestKey>,
}

impl ControlPolicy for Open {
    fn arrive(&mut self, _: Instant, key: RequestKey, _: &Request, _: Option<u8>) {
        self.arrived.push_back(key);
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        self.arrived.pop_front().map(|key| (key, RULE))
    }

    fn complete(&mut self, _: Instant, _: RequestKey, _: &Request, _: Duration) {}

    fn adopt(&mut self, _: RequestKey, _: &Request, _: Instant) {}

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant) {}
}
