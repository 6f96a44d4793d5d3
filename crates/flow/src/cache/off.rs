//! # Cache policy: off
//!
//! Nothing is near; every request goes to shared storage.
//!
//! | | |
//! |---|---|
//! | Model    | `look_up(r) = pass` |
//! | Cost     | none |
//! | Source   | the baseline that every cache is measured against |
//! | Not when | the same blocks are read again and the storage is slower than memory |

use super::{Build, CachePolicy, Lookup};
use crate::clock::Instant;
use crate::policy::Policy;
use crate::request::{Outcome, Request, RequestKey};
use alloc::boxed::Box;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "off",
    summary: "every request goes to shared storage",
    parameters: &[],
    build: |_| Box::new(Off),
};

#[derive(Debug)]
struct Off;

impl CachePolicy for Off {
    fn look_up(&mut self, _: Instant, _: RequestKey, _: &Request) -> Lookup {
        Lookup::Pass
    }

    fn complete(&mut self, _: Instant, _: RequestKey, _: &Request, _: Outcome) {}
}
