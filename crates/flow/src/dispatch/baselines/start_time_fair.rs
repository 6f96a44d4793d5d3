//! # Dispatch policy: start-time fair queueing with a depth (SFQ(D))
//!
//! At most D operations are at a backend; streams share each backend for itself, by nominal times.
//!
//! | | |
//! |---|---|
//! | Model    | per backend: on arrival `start = max(v, last finish of the stream)`, `finish = start + nominal / w`; while fewer than `depth` are outstanding the smallest start goes and v becomes it. When a backend has nothing left v becomes the largest finish |
//! | Units    | nanoseconds at weight 1, times 1024 |
//! | Ties     | the operation that came first |
//! | Cost     | O(streams) per operation |
//! | Source   | Jin, Chase and Kaur, "Interposed proportional sharing for a storage service utility", SIGMETRICS 2004 |
//! | Not when | nominal times are wrong: nothing corrects them |

use super::fair_queueing::span;
use crate::clock::{Duration, Instant};
use crate::dispatch::estimate::Estimation;
use crate::dispatch::lanes::{Lanes, Outstanding};
use crate::dispatch::{Build, DispatchPolicy, Substream, Weight, Work, estimate, lanes};
use crate::policy::{Policy, Rule};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::dispatch) const POLICY: Policy<Build> = Policy {
    name: "sfq",
    summary: "streams share each backend by their weights and nominal times (SFQ(D))",
    properties: &[],
    parameters: &[lanes::DEPTH, estimate::SERVERS],
    build: |values, setup| {
        Box::new(StartTimeFair {
            weights: setup.streams.iter().map(|stream| stream.weight).collect(),
            servers: (0..setup.backends).map(|_| Server::default()).collect(),
            lanes: Lanes::new(setup.backends),
            outstanding: Outstanding::new(values.get("depth"), setup.backends),
            estimation: Estimation::from_servers(values.get("servers")),
        })
    },
};

struct StartTimeFair {
    weights: Vec<Weight>,
    servers: Vec<Server>,
    /// Queued operations with their start.
    lanes: Lanes<u64>,
    outstanding: Outstanding,
    estimation: Estimation,
}

/// A backend's clocks.
#[derive(Debug, Default)]
struct Server {
    v: u64,
    /// By stream.
    finishes: Vec<u64>,
}

impl DispatchPolicy for StartTimeFair {
    fn arrive(&mut self, _: Instant, work: &Work) {
        let (stream, server) = (work.stream.index(), &mut self.servers[work.backend.index()]);
        if server.finishes.len() <= stream {
            server.finishes.resize(stream + 1, 0);
        }
        let weight = self.weights.get(stream).copied().unwrap_or_default();
        let start = server.v.max(server.finishes[stream]);
        server.finishes[stream] = start.saturating_add(span(weight, work.nominal));
        self.lanes.push(*work, start);
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.outstanding.free(backend) {
            return None;
        }
        let heads = self.lanes.heads(backend);
        let first = heads.min_by_key(|head| (head.note, head.arrival))?;
        let (stream, start) = (first.work.stream, first.note);
        let key = self.lanes.pop(stream, backend).work.key;
        self.servers[backend.index()].v = start;
        self.outstanding.start(now, key, backend, &self.lanes);
        Some((key, lanes::RULE_SHARE))
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        self.lanes.settle(key, service);
        let backend = self.outstanding.end(now, key, service, &self.lanes);
        if self.outstanding.idle(backend) && self.lanes.heads(backend).next().is_none() {
            let server = &mut self.servers[backend.index()];
            server.v = server.finishes.iter().copied().max().unwrap_or(0).max(server.v);
        }
    }

    fn set_backends(&mut self, backends: usize) {
        self.lanes.set_backends(backends);
        self.outstanding.set_backends(backends);
        self.servers.resize_with(backends, Server::default);
    }

    fn repriced(&mut self, backend: BackendId) {
        self.outstanding.repriced(backend);
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

    fn set_substream(&mut self, stream: Substream, weight: Option<Weight>) {
        self.lanes.set_substream(stream, weight);
    }

    fn estimation(&self) -> Option<Estimation> {
        Some(self.estimation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::{Setup, Stream};
    use crate::testing;
    use crate::testing::choice;

    /// Streams of weights 3 and 1 leave three to one; what happens at one backend is nothing to another.
    #[test]
    fn each_backend_is_shared_for_itself() {
        let weight =
            |parts| Stream { weight: Weight::from_1024ths(parts).unwrap(), background: false };
        let streams = [weight(3_072), weight(1_024)];
        let mut policy = (POLICY.build)(
            choice(&POLICY, &[("depth", 64), ("servers", 1)]).values(),
            &Setup { backends: 2, streams: &streams },
        );
        let keys = testing::keys(80);
        for (index, &key) in keys.iter().enumerate() {
            let backend = BackendId::new((index / 2 % 2) as u32);
            // What stream 0 has had of the other backend does not count here.
            let other = index % 4 == 0 && index < 40;
            let backend = if other { BackendId::new(1) } else { backend };
            let work = Work { backend, ..testing::work(key, (index % 2) as u32) };
            policy.arrive(Instant::ZERO, &work);
        }
        let next = || policy.next(Instant::ZERO, BackendId::new(0)).map(|(key, _)| key);
        let order: Vec<_> = core::iter::from_fn(next).collect();
        let stream = |key| keys.iter().position(|&other| other == key).unwrap() % 2;
        let first: Vec<_> = order.iter().take(8).map(|&key| stream(key)).collect();
        assert_eq!(first.iter().filter(|&&stream| stream == 0).count(), 6, "{first:?}");
    }
}
