//! # Dispatch policy: deficit round robin (DRR)
//!
//! Streams take turns at each backend; a turn is worth bytes in proportion to the weight, and what is left
//! of it is kept for the next one.
//!
//! | | |
//! |---|---|
//! | Model    | at its turn `deficit += quantum * w`; operations go while `bytes <= deficit`, and are taken off; a stream with nothing waiting has no deficit. At most `depth` are outstanding |
//! | Units    | 1024ths of a byte; an operation without payload counts as 512 bytes |
//! | Ties     | the circle of ids decides; each backend has its own |
//! | Cost     | O(streams) per operation |
//! | Source   | Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", SIGCOMM 1995 |
//! | Not when | a byte of one costs more than a byte of another: a stream of programs then gets most of the time. Bursts are as long as a quantum |

use crate::clock::{Duration, Instant};
use crate::dispatch::lanes::{Lanes, Outstanding};
use crate::dispatch::{Build, DispatchPolicy, Weight, Work, lanes};
use crate::policy::{Parameter, Policy, Rule, Unit};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::dispatch) const POLICY: Policy<Build> = Policy {
    name: "deficit-round-robin",
    summary: "streams take turns at each backend, worth bytes by their weights",
    properties: &[],
    parameters: &[
        lanes::FIXED_DEPTH,
        Parameter {
            name: "quantum",
            unit: Unit::Bytes,
            min: 512,
            max: 1 << 30,
            default: 64 << 10,
            effect: "bytes of a turn at weight 1; more makes bursts longer, less makes turns cost more",
        },
    ],
    build: |values, setup| {
        Box::new(DeficitRoundRobin {
            quantum: values.get("quantum"),
            weights: setup.streams.iter().map(|stream| stream.weight).collect(),
            lanes: Lanes::new(setup.backends),
            outstanding: Outstanding::new(values.get("depth"), setup.backends),
            rings: (0..setup.backends).map(|_| Ring::default()).collect(),
        })
    },
};

const RULE: Rule = Rule(&"dispatch/order");

struct DeficitRoundRobin {
    quantum: u64,
    weights: Vec<Weight>,
    lanes: Lanes<()>,
    outstanding: Outstanding,
    rings: Vec<Ring>,
}

/// The turns at a backend.
#[derive(Default)]
struct Ring {
    /// Whose turn it is.
    turn: usize,
    /// It has been given the quantum of this turn.
    given: bool,
    /// By stream.
    deficits: Vec<u64>,
}

impl DeficitRoundRobin {
    fn quantum(&self, stream: TenantId) -> u64 {
        let weight = self.weights.get(stream.index()).copied().unwrap_or_default();
        self.quantum * u64::from(weight.as_1024ths())
    }

    /// No stream can go in this round: rounds that would change nothing are skipped.
    fn skip(&mut self, backend: BackendId) {
        let missing = |stream: TenantId, bytes| {
            let short = cost(bytes) - self.rings[backend.index()].deficits[stream.index()];
            short.div_ceil(self.quantum(stream))
        };
        let heads: Vec<_> =
            self.lanes.heads(backend).map(|head| (head.work.stream, head.work.bytes)).collect();
        let rounds = heads.iter().map(|&(stream, bytes)| missing(stream, bytes)).min();
        for (stream, _) in heads {
            let more = self.quantum(stream) * (rounds.unwrap_or(1).saturating_sub(1));
            self.rings[backend.index()].deficits[stream.index()] += more;
        }
    }
}

impl DispatchPolicy for DeficitRoundRobin {
    fn arrive(&mut self, _: Instant, work: &Work) {
        self.lanes.push(*work, ());
        for ring in &mut self.rings {
            if ring.deficits.len() < self.lanes.streams() {
                ring.deficits.resize(self.lanes.streams(), 0);
            }
        }
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.outstanding.free(backend) {
            return None;
        }
        self.lanes.heads(backend).next()?;
        let streams = self.lanes.streams();
        for step in 0.. {
            let turn = self.rings[backend.index()].turn % streams;
            let stream = TenantId::new(turn as u32);
            let quantum = self.quantum(stream);
            let ring = &mut self.rings[backend.index()];
            if let Some(head) = self.lanes.head(stream, backend) {
                let deficit = &mut ring.deficits[turn];
                if !ring.given {
                    *deficit += quantum;
                    ring.given = true;
                }
                if cost(head.work.bytes) <= *deficit {
                    *deficit -= cost(head.work.bytes);
                    let key = self.lanes.pop(stream, backend).work.key;
                    self.outstanding.start(now, key, backend, &self.lanes);
                    return Some((key, RULE));
                }
            } else {
                ring.deficits[turn] = 0;
            }
            (ring.turn, ring.given) = (turn + 1, false);
            if step > 0 && step % streams == 0 {
                self.skip(backend);
            }
        }
        unreachable!("deficits grow until a stream can go")
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        self.outstanding.end(now, key, service, &self.lanes);
    }

    fn set_backends(&mut self, backends: usize) {
        self.lanes.set_backends(backends);
        self.outstanding.set_backends(backends);
        self.rings.resize_with(backends, Ring::default);
    }

    fn depth(&self, backend: BackendId) -> u32 {
        self.outstanding.depth(backend)
    }

    fn set_weight(&mut self, stream: TenantId, weight: Weight) {
        if self.weights.len() <= stream.index() {
            self.weights.resize(stream.index() + 1, Weight::ONE);
        }
        self.weights[stream.index()] = weight;
    }
}

/// An operation in 1024ths of a byte.
const fn cost(bytes: u64) -> u64 {
    let bytes = if bytes < 512 { 512 } else { bytes };
    bytes.saturating_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::{Setup, Stream};
    use crate::testing;
    use crate::testing::choice;

    /// With weights 3 and 1 bytes leave three to one, although operations of the first are larger than its
    /// quantum many times over.
    #[test]
    fn bytes_follow_weights() {
        let weight =
            |parts| Stream { weight: Weight::from_1024ths(parts).unwrap(), background: false };
        let streams = [weight(3), weight(1)];
        let mut policy = (POLICY.build)(
            choice(&POLICY, &[("depth", 1_000), ("quantum", 512)]).values(),
            &Setup { backends: 1, streams: &streams },
        );
        let keys = testing::keys(800);
        for (index, &key) in keys.iter().enumerate() {
            let stream = (index % 2) as u32;
            let work = Work { bytes: [65_536, 16_384][index % 2], ..testing::work(key, stream) };
            policy.arrive(Instant::ZERO, &work);
        }
        let mut bytes = [0; 2];
        for _ in 0..350 {
            let (key, _) = policy.next(Instant::ZERO, BackendId::new(0)).unwrap();
            let stream = keys.iter().position(|&other| other == key).unwrap() % 2;
            bytes[stream] += [65_536_u64, 16_384][stream];
        }
        assert!(bytes[0].abs_diff(3 * bytes[1]) <= 3 * 65_536, "{bytes:?}");
    }
}
