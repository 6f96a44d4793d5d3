//! # Transfer policy: round robin in chunks
//!
//! Each reply that waits sends a chunk in turn.
//!
//! | | |
//! |---|---|
//! | Model    | `pop` = `min(chunk, left)` bytes of the head, which then goes to the tail |
//! | Ties     | order of becoming ready; the rest of a reply is in front of what becomes ready while its chunk is sent |
//! | Cost     | O(1) for each chunk |
//! | Source   | `docs/reference/transfer.md` section 6, `rr:C`, the split transfer that the paper of DQBS criticises |
//! | Not when | responses count: everything begins early and ends late |

use crate::policy::{Policy, Property};
use crate::transfer::waiting::Waiting;
use crate::transfer::{Build, CHUNK, Grant, LinkTime, Reply, TransferPolicy};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "round-robin",
    summary: "each reply sends a chunk in turn",
    properties: &[Property::StarvationFree],
    parameters: &[CHUNK],
    build: |values| Box::new(RoundRobin { chunk: values.get("chunk"), ready: VecDeque::new() }),
};

#[derive(Debug)]
struct RoundRobin {
    chunk: u64,
    ready: VecDeque<Waiting>,
}

impl TransferPolicy for RoundRobin {
    fn push(&mut self, _: LinkTime, reply: &Reply) {
        self.ready.push_back(Waiting::new(reply));
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        let mut first = self.ready.pop_front()?;
        let grant = first.take(self.chunk);
        if first.left > 0 {
            self.ready.push_back(first);
        }
        Some(grant)
    }
}
