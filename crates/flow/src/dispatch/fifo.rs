//! # Dispatch policy: first in, first out
//!
//! Each backend serves its requests in order of arrival, with at most `depth` outstanding.
//!
//! | | |
//! |---|---|
//! | Model    | `send(head(b))` while `outstanding(b) < depth` |
//! | Ties     | lower backend first; within one, order of arrival |
//! | Cost     | O(1) per push and end, O(backends) per poll that finds nothing |
//! | Source   | the baseline of every fair-sharing scheduler |
//! | Not when | tenants share a backend: one that keeps the queue full makes all others wait behind it |

use super::{Build, DispatchPolicy};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Rule, Unit};
use crate::request::{BackendId, Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fifo",
    summary: "each backend serves its requests in order of arrival",
    parameters: &[Parameter {
        name: "depth",
        unit: Unit::Count,
        min: 1,
        max: 65_536,
        default: 128,
        effect: "requests outstanding at a backend; more keeps a parallel device busy, fewer leave \
                 more for the policy to order",
    }],
    build: |values, backends| {
        let depth = values[0] as u32;
        Box::new(Fifo { depth, backends: (0..backends).map(|_| Backend::default()).collect() })
    },
};

const RULE: Rule = Rule("dispatch/depth");

#[derive(Debug)]
struct Fifo {
    depth: u32,
    backends: Vec<Backend>,
}

#[derive(Debug, Default)]
struct Backend {
    waiting: VecDeque<RequestKey>,
    outstanding: u32,
}

impl DispatchPolicy for Fifo {
    fn push(&mut self, _: Instant, key: RequestKey, _: &Request, backend: BackendId) {
        self.backends[backend.index()].waiting.push_back(key);
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        let depth = self.depth;
        let free = |b: &&mut Backend| b.outstanding < depth && !b.waiting.is_empty();
        let backend = self.backends.iter_mut().find(free)?;
        backend.outstanding += 1;
        backend.waiting.pop_front().map(|key| (key, RULE))
    }

    fn complete(
        &mut self,
        _: Instant,
        _: RequestKey,
        _: &Request,
        backend: BackendId,
        _: Duration,
    ) {
        let outstanding = &mut self.backends[backend.index()].outstanding;
        *outstanding = outstanding.checked_sub(1).expect("only what was sent can end");
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// With a depth of two the third request leaves only when one of the first two has ended.
    #[test]
    fn depth_bounds_what_is_outstanding() {
        let (keys, request) = (testing::keys(3), testing::request(0));
        let backend = BackendId::new(0);
        let mut fifo = (POLICY.build)(&[2], 1);
        for &key in &keys {
            fifo.push(Instant::ZERO, key, &request, backend);
        }
        assert_eq!(fifo.poll(Instant::ZERO), Some((keys[0], RULE)));
        assert_eq!(fifo.poll(Instant::ZERO), Some((keys[1], RULE)));
        assert_eq!(fifo.poll(Instant::ZERO), None);
        fifo.complete(Instant::ZERO, keys[1], &request, backend, Duration::ZERO);
        assert_eq!(fifo.poll(Instant::ZERO), Some((keys[2], RULE)));
    }
}
