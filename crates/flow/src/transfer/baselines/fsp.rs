//! # Transfer policy: fair sojourn protocol (FSP)
//!
//! Replies go in the order in which they would end if the link were shared equally by all that wait.
//!
//! | | |
//! |---|---|
//! | Model    | a virtual link of the same rate serves all its replies at once; `V` is what each has got of it, and grows by 1/(number of them) per byte of work. `pop` = the smallest tag `V(a) + l` |
//! | Units    | `V` and tags in 2^-32 bytes, rounded down |
//! | Ties     | order of becoming ready |
//! | Cost     | O(log n) |
//! | Source   | `docs/reference/transfer.md` section 6, `fsp` and with chunks `fsp-c`; Friedman and Henderson, Fairness and efficiency in web server protocols, SIGMETRICS 2003 |
//! | Not when | lateness against first in, first out needs a bound in bytes; see `slack` |

use crate::policy::{Policy, Property};
use crate::transfer::waiting::{Ranked, Waiting};
use crate::transfer::{Build, Grant, LinkTime, NO_CHUNK, Reply, TransferPolicy};
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "fsp",
    summary: "replies go in the order in which they would end if the link were shared equally",
    properties: &[Property::StarvationFree],
    parameters: &[NO_CHUNK],
    build: |values| {
        Box::new(Fsp {
            chunk: values.get("chunk"),
            ready: Ranked::default(),
            shared: BinaryHeap::new(),
            level: 0,
            work: 0,
        })
    },
};

/// A byte in the units of tags.
const BYTE: u128 = 1 << 32;

#[derive(Debug)]
struct Fsp {
    chunk: u64,
    ready: Ranked,
    /// Tags of what the virtual link still serves.
    shared: BinaryHeap<Reverse<u128>>,
    /// `V`.
    level: u128,
    /// The work up to which it was served.
    work: u64,
}

impl Fsp {
    /// Lets the virtual link serve up to `work`.
    fn share(&mut self, work: u64) {
        let mut bytes = u128::from(work - self.work) * BYTE;
        self.work = work;
        while let Some(&Reverse(first)) = self.shared.peek() {
            let count = self.shared.len() as u128;
            let needed = (first - self.level) * count;
            if needed > bytes {
                self.level += bytes / count;
                return;
            }
            bytes -= needed;
            self.level = first;
            self.shared.pop();
        }
    }
}

impl TransferPolicy for Fsp {
    fn forgets(&self) -> bool {
        false
    }

    fn push(&mut self, LinkTime { work, .. }: LinkTime, reply: &Reply) {
        self.share(work);
        let tag = self.level + u128::from(reply.bytes) * BYTE;
        self.shared.push(Reverse(tag));
        self.ready.push(tag, Waiting::new(reply));
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        self.ready.take(self.chunk, |tag, _| tag)
    }
}
