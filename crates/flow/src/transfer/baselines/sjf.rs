//! # Transfer policy: shortest first
//!
//! The shortest reply that waits goes next, and goes whole.
//!
//! | | |
//! |---|---|
//! | Model    | `pop` = the smallest length |
//! | Ties     | order of becoming ready |
//! | Cost     | O(log n) |
//! | Source   | `docs/reference/transfer.md` section 6; the best mean delay that is possible without interrupting replies and without knowing what comes |
//! | Not when | long replies must be sent at all: short ones that keep coming hold them up for ever |

use crate::policy::Policy;
use crate::transfer::waiting::{Ranked, Waiting};
use crate::transfer::{Build, Grant, LinkTime, Reply, TransferPolicy, WHOLE};
use alloc::boxed::Box;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "sjf",
    summary: "the shortest reply goes next, whole; long ones may starve",
    properties: &[],
    parameters: &[],
    build: |_| Box::new(Sjf { ready: Ranked::default() }),
};

#[derive(Debug)]
struct Sjf {
    ready: Ranked,
}

impl TransferPolicy for Sjf {
    fn push(&mut self, _: LinkTime, reply: &Reply) {
        self.ready.push(reply.bytes.into(), Waiting::new(reply));
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        self.ready.take(WHOLE, |rank, _| rank)
    }
}
