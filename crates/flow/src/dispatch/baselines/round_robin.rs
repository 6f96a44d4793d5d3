//! # Dispatch policy: round robin
//!
//! Streams with something waiting for a backend take turns there, one operation each.
//!
//! | | |
//! |---|---|
//! | Model    | after stream `s` the next one by id that waits, in a circle, while fewer than `depth` are outstanding |
//! | Ties     | none: the circle decides; each backend has its own |
//! | Cost     | O(streams) per operation |
//! | Source   | the arbitration that an NVMe controller uses by default |
//! | Not when | operations differ in cost: a stream of programs gets as many turns as one of reads, and most of the time. It has no weights |

use crate::clock::{Duration, Instant};
use crate::dispatch::lanes::{Lanes, Outstanding};
use crate::dispatch::{Build, DispatchPolicy, Work, lanes};
use crate::policy::{Policy, Rule};
use crate::request::{BackendId, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::dispatch) const POLICY: Policy<Build> = Policy {
    name: "round-robin",
    summary: "streams take turns at each backend, one operation each",
    properties: &[],
    parameters: &[lanes::FIXED_DEPTH],
    build: |values, setup| {
        Box::new(RoundRobin {
            lanes: Lanes::new(setup.backends),
            outstanding: Outstanding::new(values.get("depth"), setup.backends),
            turn: alloc::vec![0; setup.backends],
        })
    },
};

const RULE: Rule = Rule(&"dispatch/order");

struct RoundRobin {
    lanes: Lanes<()>,
    outstanding: Outstanding,
    /// By backend, the lowest stream that has its turn next.
    turn: Vec<usize>,
}

impl DispatchPolicy for RoundRobin {
    fn arrive(&mut self, _: Instant, work: &Work) {
        self.lanes.push(*work, ());
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.outstanding.free(backend) {
            return None;
        }
        let turn = self.turn[backend.index()];
        let streams = self.lanes.heads(backend).map(|head| head.work.stream);
        let stream = streams.min_by_key(|stream| (stream.index() < turn, *stream))?;
        let key = self.lanes.pop(stream, backend).work.key;
        self.turn[backend.index()] = stream.index() + 1;
        self.outstanding.start(now, key, backend, &self.lanes);
        Some((key, RULE))
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        self.outstanding.end(now, key, service, &self.lanes);
    }

    fn set_backends(&mut self, backends: usize) {
        self.lanes.set_backends(backends);
        self.outstanding.set_backends(backends);
        self.turn.resize(backends, 0);
    }

    fn depth(&self, backend: BackendId) -> u32 {
        self.outstanding.depth(backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Setup;
    use crate::testing;
    use crate::testing::choice;

    /// Three of stream 0 and one each of 1 and 2 leave as 0, 1, 2, 0, 0.
    #[test]
    fn turns_go_round() {
        let mut policy = (POLICY.build)(
            choice(&POLICY, &[("depth", 8)]).values(),
            &Setup { backends: 1, streams: &[] },
        );
        let keys = testing::keys(5);
        for (&key, stream) in keys.iter().zip([0, 0, 0, 1, 2]) {
            policy.arrive(Instant::ZERO, &testing::work(key, stream));
        }
        let next = || policy.next(Instant::ZERO, BackendId::new(0)).map(|(key, _)| key);
        let order: Vec<_> = core::iter::from_fn(next).collect();
        assert_eq!(order, [keys[0], keys[3], keys[4], keys[1], keys[2]]);
    }
}
