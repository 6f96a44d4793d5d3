//! # Transfer policy: first in, first out
//!
//! Replies leave a link in the order in which they became ready.
//!
//! | | |
//! |---|---|
//! | Model    | `pop = head` |
//! | Ties     | order of becoming ready |
//! | Cost     | O(1) |
//! | Source   | the baseline of spec/transfer.md |
//! | Not when | large and small replies share a slow link: the small ones wait for the large |

use super::{Build, TransferPolicy};
use crate::clock::Instant;
use crate::policy::{Policy, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fifo",
    summary: "replies leave in the order in which they became ready",
    parameters: &[],
    build: |_| Box::new(Fifo { ready: VecDeque::new() }),
};

const RULE: Rule = Rule("transfer/link");

#[derive(Debug)]
struct Fifo {
    ready: VecDeque<RequestKey>,
}

impl TransferPolicy for Fifo {
    fn push(&mut self, _: Instant, key: RequestKey, _: &Request) {
        self.ready.push_back(key);
    }

    fn pop(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        self.ready.pop_front().map(|key| (key, RULE))
    }

    fn sent(&mut self, _: Instant, _: RequestKey) {}
}
