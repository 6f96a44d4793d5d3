//! # Transfer policy: shortest remaining first, with bounded lateness
//!
//! The reply with the fewest bytes left goes next, as long as the oldest can still end in time: at most a
//! budget later than first in, first out would have sent it.
//!
//! | | |
//! |---|---|
//! | Model    | `F` of a reply = bytes of all that became ready up to and with it: first in, first out ends it when so much is handed out. With `D` handed out, `c` the reply with the fewest bytes left and `o` the oldest: `pop` = a chunk of `o` if `D + min(chunk, left of c) + left of o > F(o) + budget`, else of `c` |
//! | Bound    | no reply ends more than `budget` bytes of work later than under first in, first out. To look at the oldest is enough: what was handed out for younger replies is the most for it |
//! | Units    | bytes. A budget of `b` is `b / r` seconds on a link that sends `r` bytes per second: 8 MiB are 67 ms at 1 Gbit/s and 6.7 ms at 10 Gbit/s |
//! | Ties     | order of becoming ready |
//! | Cost     | O(log n) for each chunk |
//! | Source   | `docs/reference/transfer.md` section 7, our own |
//! | Extremes | budget 0 is first in, first out; a budget beyond everything is `srpt` |
//! | Busy     | on a link that is never idle short replies use up what long ones can spare; once they have, none passes until those long ones have left. A budget of more than the short ones send while a long one waits avoids that |
//! | Not when | tenants must not pay for each other's replies: the budget is one for all |

use super::waiting::Waiting;
use super::{Build, CHUNK, Grant, LinkTime, Reply, TransferPolicy, WHOLE};
use crate::policy::{Parameter, Policy, Property, Unit};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

pub(super) const POLICY: Policy<Build> = Policy {
    name: "slack",
    summary: "the reply with the fewest bytes left goes next, unless the oldest would be late by more than a budget",
    properties: &[Property::StarvationFree],
    parameters: &[BUDGET, CHUNK],
    build: |values| {
        Box::new(Slack {
            budget: values.get("budget"),
            chunk: values.get("chunk"),
            granted: 0,
            came: 0,
            numbered: 0,
            ready: BTreeMap::new(),
            shortest: BTreeSet::new(),
        })
    },
};

const BUDGET: Parameter = Parameter {
    name: "budget",
    unit: Unit::Bytes,
    min: 0,
    max: WHOLE,
    default: 8 << 20,
    effect: "bytes that a link may send for others after the moment at which first in, first out would have \
             ended a reply; more shortens the mean, 0 is first in, first out",
};

#[derive(Debug)]
struct Slack {
    budget: u64,
    chunk: u64,
    /// Bytes that were handed out.
    granted: u64,
    /// Bytes of all that became ready.
    came: u64,
    /// How many were.
    numbered: u64,
    /// Waiting replies by number, with the work at which first in, first out ends it.
    ready: BTreeMap<u64, (u64, Waiting)>,
    /// The same, as bytes left and number.
    shortest: BTreeSet<(u64, u64)>,
}

impl TransferPolicy for Slack {
    fn push(&mut self, _: LinkTime, reply: &Reply) {
        self.came += reply.bytes;
        self.numbered += 1;
        self.shortest.insert((reply.bytes, self.numbered));
        self.ready.insert(self.numbered, (self.came, Waiting::new(reply)));
    }

    fn pop(&mut self, _: LinkTime) -> Option<Grant> {
        let &(_, shortest) = self.shortest.first()?;
        let (&oldest, (due, old)) = self.ready.first_key_value()?;
        let (_, candidate) = &self.ready[&shortest];
        let ends = self.granted + candidate.next(self.chunk) + old.left;
        let number = if ends > due + self.budget { oldest } else { shortest };
        let (_, chosen) = self.ready.get_mut(&number)?;
        self.shortest.remove(&(chosen.left, number));
        let grant = chosen.take(self.chunk);
        if chosen.left > 0 {
            self.shortest.insert((chosen.left, number));
        } else {
            self.ready.remove(&number);
        }
        self.granted += grant.bytes;
        assert!(
            if self.ready.is_empty() {
                self.granted == self.came
            } else {
                self.granted < self.came
            },
            "the bytes granted and those that wait are not those that came"
        );
        Some(grant)
    }
}
