//! # Transfer policy: first in, first out
//!
//! Replies leave a link in the order in which they became ready.
//!
//! | | |
//! |---|---|
//! | Model    | `pop = head`, whole |
//! | Ties     | order of becoming ready |
//! | Cost     | O(1) |
//! | Source   | the baseline of `docs/reference/transfer.md` |
//! | Not when | large and small replies share a slow link: the small ones wait for the large |

use super::{Build, Grant, LinkTime, Reply, TransferPolicy};
use crate::policy::{Policy, Property};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fifo",
    summary: "replies leave in the order in which they became ready",
    properties: &[Property::StarvationFree],
    parameters: &[],
    build: |_| Box::new(Fifo { ready: VecDeque::new() }),
};

#[derive(Debug)]
struct Fifo {
    ready: VecDeque<Grant>,
}

impl TransferPolicy for Fifo {
    fn push(&mut self, _: LinkTime, &Reply { key, bytes, .. }: &Reply) {
        self.ready.push_back(Grant { key, bytes });
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        self.ready.pop_front()
    }
}
