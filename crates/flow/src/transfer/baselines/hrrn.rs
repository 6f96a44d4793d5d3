//! # Transfer policy: highest response ratio next
//!
//! The reply that has waited longest for its length goes next, whole.
//!
//! | | |
//! |---|---|
//! | Model    | `pop` = the largest `wait / length` |
//! | Ties     | order of becoming ready |
//! | Cost     | O(n): the order changes while replies wait |
//! | Source   | `docs/reference/transfer.md` section 6, `hrrn` |
//! | Not when | very many replies wait, or the longest must not pay: it is let go when it has waited as many times its length as the shortest |

use crate::policy::{Policy, Property};
use crate::transfer::{Build, Grant, LinkTime, Reply, TransferPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "hrrn",
    summary: "the reply that has waited longest for its length goes next, whole",
    properties: &[Property::StarvationFree],
    parameters: &[],
    build: |_| Box::new(Hrrn { ready: Vec::new() }),
};

#[derive(Debug)]
struct Hrrn {
    /// With the work at which they became ready, in that order.
    ready: Vec<(u64, Grant)>,
}

/// A ratio of two whole numbers, compared without rounding.
#[derive(Debug)]
struct Ratio(u64, u64);

impl Ratio {
    fn exceeds(&self, other: &Self) -> bool {
        u128::from(self.0) * u128::from(other.1) > u128::from(other.0) * u128::from(self.1)
    }
}

impl TransferPolicy for Hrrn {
    fn push(&mut self, LinkTime { work, .. }: LinkTime, &Reply { key, bytes, .. }: &Reply) {
        self.ready.push((work, Grant { key, bytes }));
    }

    fn pop(&mut self, LinkTime { work, .. }: LinkTime) -> Option<Grant> {
        let ratio = |&(since, grant): &(u64, Grant)| Ratio(work - since, grant.bytes);
        let mut best: Option<(usize, Ratio)> = None;
        for (index, entry) in self.ready.iter().enumerate() {
            let ratio = ratio(entry);
            if best.as_ref().is_none_or(|(_, best)| ratio.exceeds(best)) {
                best = Some((index, ratio));
            }
        }
        best.map(|(index, _)| self.ready.remove(index).1)
    }
}
