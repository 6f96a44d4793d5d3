//! # Dispatch policy: first in, first out
//!
//! Each backend serves its requests in order of arrival, with at most `depth` outstanding.
//!
//! | | |
//! |---|---|
//! | Model    | `send(head(b))` while `outstanding(b) < depth` |
//! | Ties     | order of arrival |
//! | Cost     | O(1) per operation |
//! | Source   | the baseline of every fair-sharing scheduler |
//! | Not when | tenants share a backend: one that keeps the queue full makes all others wait behind it |

use super::{Build, DispatchPolicy, Work};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Rule, Unit};
use crate::request::{BackendId, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fifo",
    summary: "each backend serves its requests in order of arrival",
    properties: &[],
    parameters: &[Parameter {
        name: "depth",
        unit: Unit::Count,
        min: 1,
        max: 65_536,
        default: 128,
        effect: "requests outstanding at a backend; more keeps a parallel device busy, fewer leave \
                 more for the policy to order",
    }],
    build: |values, setup| {
        let depth = values.get_u32("depth");
        let backends = (0..setup.backends).map(|_| Backend::default()).collect();
        Box::new(Fifo { depth, backends, sent: SecondaryMap::new() })
    },
};

const RULE: Rule = Rule(&"dispatch/depth");

#[derive(Debug)]
struct Fifo {
    depth: u32,
    backends: Vec<Backend>,
    sent: SecondaryMap<RequestKey, BackendId>,
}

#[derive(Debug, Default)]
struct Backend {
    waiting: VecDeque<RequestKey>,
    outstanding: u32,
}

impl DispatchPolicy for Fifo {
    fn arrive(&mut self, _: Instant, work: &Work) {
        self.backends[work.backend.index()].waiting.push_back(work.key);
    }

    fn next(&mut self, _: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        let place = &mut self.backends[backend.index()];
        if place.outstanding >= self.depth {
            return None;
        }
        let key = place.waiting.pop_front()?;
        place.outstanding += 1;
        self.sent.insert(key, backend);
        Some((key, RULE))
    }

    fn complete(&mut self, _: Instant, key: RequestKey, _: Duration) {
        let backend = self.sent.remove(key).expect("only what was sent can end");
        self.backends[backend.index()].outstanding -= 1;
    }

    fn set_backends(&mut self, backends: usize) {
        self.backends.resize_with(backends, Backend::default);
    }

    fn depth(&self, _: BackendId) -> u32 {
        self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Setup;
    use crate::testing;
    use crate::testing::choice;

    /// With a depth of two the third request leaves only when one of the first two has ended.
    #[test]
    fn depth_bounds_what_is_outstanding() {
        let (keys, backend) = (testing::keys(3), BackendId::new(0));
        let mut fifo = (POLICY.build)(
            choice(&POLICY, &[("depth", 2)]).values(),
            &Setup { backends: 1, streams: &[] },
        );
        for &key in &keys {
            fifo.arrive(Instant::ZERO, &testing::work(key, 0));
        }
        assert_eq!(fifo.next(Instant::ZERO, backend), Some((keys[0], RULE)));
        assert_eq!(fifo.next(Instant::ZERO, backend), Some((keys[1], RULE)));
        assert_eq!(fifo.next(Instant::ZERO, backend), None);
        fifo.complete(Instant::ZERO, keys[1], Duration::ZERO);
        assert_eq!(fifo.next(Instant::ZERO, backend), Some((keys[2], RULE)));
    }
}
