//! # Dispatch policy: weighted fair queueing per request (WFQ)
//!
//! Requests go in the order in which they would end if their nominal times were right and each stream
//! had its own server.
//!
//! | | |
//! |---|---|
//! | Model    | on arrival of a request `finish = max(v, last finish of the stream) + nominal / w`; of the operations that wait for a backend the one with the smallest finish goes, and v becomes it. At most `depth` are outstanding |
//! | Units    | nanoseconds at weight 1, times 1024 |
//! | Ties     | the operation that came first |
//! | Cost     | O(streams) per operation |
//! | Source   | Demers, Keshav and Shenker, SIGCOMM 1989, with the self-clocked virtual time of Golestani, INFOCOM 1994; a baseline of `docs/research/dispatch.md` |
//! | Not when | nominal times are wrong: nothing corrects them. Parts of a request share a tag, so a request of many parts goes as a block |

use crate::clock::{Duration, Instant};
use crate::dispatch::estimate::Estimation;
use crate::dispatch::lanes::{Lanes, Outstanding};
use crate::dispatch::{Build, DispatchPolicy, Substream, Weight, Work, estimate, lanes};
use crate::policy::{Policy, Rule};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::dispatch) const POLICY: Policy<Build> = Policy {
    name: "wfq",
    summary: "requests go in the order of their virtual finish by nominal times (WFQ)",
    properties: &[],
    parameters: &[lanes::DEPTH, estimate::SERVERS],
    build: |values, setup| {
        let line = |weight| Line { weight, finish: 0, request: None };
        Box::new(FairQueueing {
            v: 0,
            lines: setup.streams.iter().map(|stream| line(stream.weight)).collect(),
            lanes: Lanes::new(setup.backends),
            outstanding: Outstanding::new(values.get("depth"), setup.backends),
            estimation: Estimation::from_servers(values.get("servers")),
        })
    },
};

struct FairQueueing {
    v: u64,
    lines: Vec<Line>,
    /// Queued operations with their finish.
    lanes: Lanes<u64>,
    outstanding: Outstanding,
    estimation: Estimation,
}

/// What is remembered of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    weight: Weight,
    /// The finish of its last request, and which that was.
    finish: u64,
    request: Option<RequestKey>,
}

impl FairQueueing {
    fn line(&mut self, stream: TenantId) -> &mut Line {
        if self.lines.len() <= stream.index() {
            self.lines.resize(stream.index() + 1, Line::default());
        }
        &mut self.lines[stream.index()]
    }
}

impl DispatchPolicy for FairQueueing {
    fn arrive(&mut self, _: Instant, work: &Work) {
        let v = self.v;
        let line = self.line(work.stream);
        if line.request != Some(work.request) {
            line.request = Some(work.request);
            line.finish = line.finish.max(v).saturating_add(span(line.weight, work.whole));
        }
        let finish = line.finish;
        self.lanes.push(*work, finish);
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.outstanding.free(backend) {
            return None;
        }
        let heads = self.lanes.heads(backend);
        let first = heads.min_by_key(|head| (head.note, head.arrival))?;
        let (stream, finish) = (first.work.stream, first.note);
        let key = self.lanes.pop(stream, backend).work.key;
        self.v = self.v.max(finish);
        self.outstanding.start(now, key, backend, &self.lanes);
        Some((key, lanes::RULE_SHARE))
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        self.lanes.settle(key, service);
        self.outstanding.end(now, key, service, &self.lanes);
    }

    fn set_backends(&mut self, backends: usize) {
        self.lanes.set_backends(backends);
        self.outstanding.set_backends(backends);
    }

    fn repriced(&mut self, backend: BackendId) {
        self.outstanding.repriced(backend);
    }

    fn depth(&self, backend: BackendId) -> u32 {
        self.outstanding.depth(backend)
    }

    fn set_weight(&mut self, stream: TenantId, weight: Weight) {
        self.line(stream).weight = weight;
    }

    fn set_substream(&mut self, stream: Substream, weight: Option<Weight>) {
        self.lanes.set_substream(stream, weight);
    }

    fn estimation(&self) -> Option<Estimation> {
        Some(self.estimation)
    }
}

/// What a time is at this weight, in virtual time.
pub(super) fn span(weight: Weight, time: Duration) -> u64 {
    // A quarter of an hour is more than anything takes; with it nothing can overflow.
    (time.as_nanos().min(1 << 40) << 20) / u64::from(weight.as_1024ths())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Setup;
    use crate::testing;
    use crate::testing::choice;

    /// A request of three parts has one tag for all of them: it waits for what would end earlier, and then
    /// goes as a block.
    #[test]
    fn parts_share_a_tag() {
        let mut policy = (POLICY.build)(
            choice(&POLICY, &[("depth", 8), ("servers", 1)]).values(),
            &Setup { backends: 1, streams: &[] },
        );
        let keys = testing::keys(6);
        let ms = Duration::from_millis;
        for part in 0..3 {
            let whole = Work { request: keys[0], whole: ms(3), ..testing::work(keys[part], 0) };
            policy.arrive(Instant::ZERO, &whole);
        }
        for &key in &keys[3..] {
            policy.arrive(Instant::ZERO, &Work { whole: ms(2), ..testing::work(key, 1) });
        }
        let next = || policy.next(Instant::ZERO, BackendId::new(0)).map(|(key, _)| key);
        let order: Vec<_> = core::iter::from_fn(next).collect();
        assert_eq!(order, [keys[3], keys[0], keys[1], keys[2], keys[4], keys[5]]);
    }
}
