//! # Dispatch policy: flash operation groups (FOG)
//!
//! All backends together are one virtual server, whose time streams share by their weights; each is
//! charged what its operations really took.
//!
//! | | |
//! |---|---|
//! | Model    | `VST = v(stream)`, the smallest goes next; then `v += nominal / w`; at its end `v += (actual - nominal) / w`. A stream that comes back from idleness starts at `SVT`, the smallest `v` of those that have something waiting. At most `depth` are outstanding at a backend |
//! | Units    | virtual time in nanoseconds at weight 1, times 1024, as integers |
//! | Ties     | the operation that came first |
//! | Cost     | O(streams) per operation |
//! | Source   | Journal of KIISE 42(12), 2015, formulas 1 to 3; `docs/reference/dispatch.md` section 5 |
//! | Not when | a stream cannot use all backends: its share is then taken from backends that others need, while the rest idles. Streams with few operations outstanding wait in the backends' queues and lose; see `fair-time` |

use crate::clock::{Duration, Instant};
use crate::dispatch::clocks::{Clocks, Epoch, Reading};
use crate::dispatch::estimate::Estimation;
use crate::dispatch::lanes::{Lanes, Slots};
use crate::dispatch::{Build, DispatchPolicy, Substream, Weight, Work, estimate, lanes};
use crate::policy::{Policy, Property, Rule};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use slotmap::SecondaryMap;

pub(in crate::dispatch) const POLICY: Policy<Build> = Policy {
    name: "fog",
    summary: "streams share the time of all backends together by their weights (FOG)",
    properties: &[Property::SharesTime],
    parameters: &[lanes::DEPTH, estimate::SERVERS],
    build: |values, setup| {
        Box::new(Fog {
            clocks: Clocks::new(setup.streams),
            lanes: Lanes::new(setup.backends),
            slots: Slots::new(values.get("depth"), setup.backends),
            sent: SecondaryMap::new(),
            estimation: Estimation::from_servers(values.get("servers")),
        })
    },
};

struct Fog {
    clocks: Clocks,
    lanes: Lanes<()>,
    slots: Slots,
    sent: SecondaryMap<RequestKey, Sent>,
    estimation: Estimation,
}

/// An operation at its backend.
struct Sent {
    work: Work,
    epoch: Epoch,
}

impl DispatchPolicy for Fog {
    fn arrive(&mut self, _: Instant, work: &Work) {
        // The paper gives no credit.
        self.clocks.enter(work.stream, Duration::ZERO);
        self.lanes.push(*work, ());
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.slots.free(backend) {
            return None;
        }
        let heads = self.lanes.heads(backend);
        let first = heads.min_by_key(|head| (self.clocks.v(head.work.stream), head.arrival))?;
        let work = self.lanes.pop(first.work.stream, backend).work;
        self.clocks.leave(work.stream);
        let epoch = self.clocks.charge(work.stream, work.nominal);
        self.slots.take(now, backend, &self.lanes);
        self.sent.insert(work.key, Sent { work, epoch });
        Some((work.key, lanes::RULE_SHARE))
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        let Sent { work, epoch } = self.sent.remove(key).expect("only what was sent can end");
        self.slots.leave(now, work.backend, service, &self.lanes);
        self.lanes.settle(key, service);
        self.clocks.settle(work.stream, epoch, work.nominal, service);
    }

    fn set_backends(&mut self, backends: usize) {
        self.lanes.set_backends(backends);
        self.slots.set_backends(backends);
    }

    fn repriced(&mut self, backend: BackendId) {
        self.slots.repriced(backend);
    }

    fn depth(&self, backend: BackendId) -> u32 {
        self.slots.depth(backend)
    }

    fn set_weight(&mut self, stream: TenantId, weight: Weight) {
        self.clocks.set_weight(stream, weight);
    }

    fn set_substream(&mut self, stream: Substream, weight: Option<Weight>) {
        self.lanes.set_substream(stream, weight);
    }

    fn estimation(&self) -> Option<Estimation> {
        Some(self.estimation)
    }

    fn reading(&self, stream: TenantId) -> Option<Reading> {
        Some(self.clocks.reading(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::{Setup, Stream};
    use crate::testing;
    use crate::testing::choice;
    use alloc::vec::Vec;

    /// Two streams of weights 2 and 1 believe that an operation costs 1 ms; those of the first turn out to
    /// cost 4 ms. By time the second is then due two operations for each of the first.
    #[test]
    fn shares_are_of_actual_time() {
        let weight =
            |parts| Stream { weight: Weight::from_1024ths(parts).unwrap(), background: false };
        let streams = [weight(2_048), weight(1_024)];
        let mut fog = (POLICY.build)(
            choice(&POLICY, &[("depth", 1), ("servers", 1)]).values(),
            &Setup { backends: 1, streams: &streams },
        );
        let (keys, backend) = (testing::keys(600), BackendId::new(0));
        for (index, &key) in keys.iter().enumerate() {
            let mut work = testing::work(key, (index % 2) as u32);
            work.nominal = Duration::from_millis(1);
            fog.arrive(Instant::ZERO, &work);
        }
        let mut done = [0_u32; 2];
        for _ in 0..300 {
            let (key, _) = fog.next(Instant::ZERO, backend).unwrap();
            assert_eq!(fog.next(Instant::ZERO, backend), None, "depth is one");
            let stream = keys.iter().position(|&other| other == key).unwrap() % 2;
            done[stream] += 1;
            fog.complete(Instant::ZERO, key, Duration::from_millis([4, 1][stream]));
        }
        assert!(done[0].abs_diff(100) <= 1, "{done:?}");
        let ids: Vec<_> = (0..2).map(TenantId::new).collect();
        let v = |stream: usize| fog.reading(ids[stream]).unwrap().stream;
        assert!(v(0).abs_diff(v(1)) <= (2 * 4_000_000) << 10);
    }
}
