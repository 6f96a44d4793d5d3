//! # Transfer policy: shortest first, with aging
//!
//! The shortest reply goes next, where waiting counts as being shorter.
//!
//! | | |
//! |---|---|
//! | Model    | `pop` = the smallest `left + w a`, where `a` is the link's work when the reply became ready, and `w` = `weight`/100. No reply is overtaken by a reply that became ready more than (difference of lengths)/w of work later |
//! | Ties     | order of becoming ready |
//! | Cost     | O(log n); the order of two replies does not change while they wait |
//! | Source   | `docs/reference/transfer.md` section 6, `aged:w` and with chunks `srpt-aged:C:w`; the same as the earliest deadline first with deadline `a + l/w` |
//! | Not when | one longest reply beside many short ones must have its own bound: the bound grows with the difference of the lengths; see `slack` |

use crate::policy::{Parameter, Policy, Property};
use crate::transfer::waiting::{Ranked, Waiting};
use crate::transfer::{Build, Grant, LinkTime, NO_CHUNK, Reply, TransferPolicy, WEIGHT};
use alloc::boxed::Box;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "aged",
    summary: "the shortest reply goes next, where waiting counts as being shorter",
    properties: &[Property::StarvationFree],
    parameters: &[Parameter { default: 10, ..WEIGHT }, NO_CHUNK],
    build: |values| {
        Box::new(Aged {
            weight: values.get("weight").into(),
            chunk: values.get("chunk"),
            ready: Ranked::default(),
        })
    },
};

#[derive(Debug)]
struct Aged {
    weight: u128,
    chunk: u64,
    ready: Ranked,
}

impl TransferPolicy for Aged {
    fn push(&mut self, LinkTime { work, .. }: LinkTime, reply: &Reply) {
        let rank = u128::from(reply.bytes) * 100 + u128::from(work) * self.weight;
        self.ready.push(rank, Waiting::new(reply));
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        self.ready.take(self.chunk, |rank, granted| rank - u128::from(granted) * 100)
    }
}
