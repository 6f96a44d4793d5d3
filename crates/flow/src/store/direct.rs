//! # Store policy: direct
//!
//! What the device says is what the host is told.
//!
//! | | |
//! |---|---|
//! | Model    | `deliver(o) = o` |
//! | Order    | a flush covers what was acknowledged before it arrived, so it needs to wait for nothing: the device gets it at once |
//! | Cost     | none |
//! | Source   | SBC-3, 4.15: what SYNCHRONIZE CACHE covers |
//! | Not when | the device fails now and then and works the second time |
//!
//! It has no time-out on purpose. A write that is reported as failed and lands later could
//! overwrite the host's next write to the same bytes. An I/O that does not end stays visible, with
//! its age, as overdue.

use super::{Build, StorePolicy, Verdict};
use crate::clock::Instant;
use crate::policy::Policy;
use crate::request::{Outcome, Request, RequestKey};
use alloc::boxed::Box;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "direct",
    summary: "what the device says is what the host is told",
    properties: &[],
    parameters: &[],
    build: |_| Box::new(Direct),
};

#[derive(Debug)]
struct Direct;

impl StorePolicy for Direct {
    fn start(&mut self, _: Instant, _: RequestKey, _: &Request) {}

    fn finish(&mut self, _: Instant, _: RequestKey, _: &Request, outcome: Outcome) -> Verdict {
        Verdict::Deliver(outcome)
    }
}
