//! The release loop of policies with a fixed number of requests at the device.

use crate::clock::{Duration, Instant};
use crate::control::ControlPolicy;
use crate::policy::{Parameter, Rule, Unit};
use crate::request::{Request, RequestKey};

/// The D of the depth-bounded policies.
pub(super) const DEPTH: Parameter = Parameter {
    name: "depth",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 64,
    effect: "requests at the device at once; more gives throughput, fewer give shorter response times",
};

/// The rule of requests that wait until fewer are at the device.
pub(super) const RULE: Rule = Rule(&"control/depth");

/// The order in which queued requests go.
pub(super) trait Order {
    fn push(&mut self, now: Instant, key: RequestKey, request: &Request);

    /// Takes the next request.
    fn pop(&mut self, now: Instant) -> Option<RequestKey>;

    /// A released request has ended.
    fn ended(&mut self, _key: RequestKey) {}
}

/// An order with at most `depth` requests at the device.
pub(super) struct DepthBound<O> {
    pub(super) order: O,
    pub(super) depth: u32,
    inflight: u32,
}

impl<O> DepthBound<O> {
    pub(super) const fn new(order: O, depth: u32) -> Self {
        Self { order, depth, inflight: 0 }
    }
}

impl<O: Order> ControlPolicy for DepthBound<O> {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, _: Option<u8>) {
        self.order.push(now, key, request);
    }

    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        if self.inflight >= self.depth {
            return None;
        }
        let key = self.order.pop(now)?;
        self.inflight += 1;
        Some((key, RULE))
    }

    fn complete(&mut self, _: Instant, key: RequestKey, _: &Request, _: Duration) {
        self.inflight = self.inflight.checked_sub(1).expect("only a released request can end");
        self.order.ended(key);
    }

    fn adopt(&mut self, _: RequestKey, _: &Request, _: Instant) {
        self.inflight += 1;
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::super::sfq::POLICY;
    use crate::clock::{Duration, Instant};
    use crate::testing;

    /// A request that was never released does not end.
    #[test]
    #[should_panic(expected = "only a released request can end")]
    fn endings_follow_releases() {
        let (policy, promises) = (testing::choice(&POLICY, &[]), testing::promises(&[]));
        let mut sfq = (POLICY.build)(policy.values(), &promises);
        let (key, request) = (testing::keys(1)[0], testing::request(0));
        sfq.complete(Instant::ZERO, key, &request, Duration::ZERO);
    }
}
