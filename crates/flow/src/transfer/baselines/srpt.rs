//! # Transfer policy: shortest remaining first, in chunks
//!
//! The reply with the fewest bytes left goes next, chunk by chunk.
//!
//! | | |
//! |---|---|
//! | Model    | `pop` = `min(chunk, left)` bytes of the reply with the smallest `left` |
//! | Ties     | order of becoming ready |
//! | Cost     | O(log n) for each chunk |
//! | Source   | `docs/reference/transfer.md` section 6, `srpt:C` |
//! | Not when | long replies must be sent at all; see `slack` |

use crate::policy::Policy;
use crate::transfer::waiting::{Ranked, Waiting};
use crate::transfer::{Build, CHUNK, Grant, LinkTime, Reply, TransferPolicy};
use alloc::boxed::Box;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "srpt",
    summary: "the reply with the fewest bytes left goes next, chunk by chunk; long ones may starve",
    properties: &[],
    parameters: &[CHUNK],
    build: |values| Box::new(Srpt { chunk: values.get("chunk"), ready: Ranked::default() }),
};

#[derive(Debug)]
struct Srpt {
    chunk: u64,
    ready: Ranked,
}

impl TransferPolicy for Srpt {
    fn push(&mut self, _: LinkTime, reply: &Reply) {
        self.ready.push(reply.bytes.into(), Waiting::new(reply));
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        self.ready.take(self.chunk, |rank, granted| rank - u128::from(granted))
    }
}
