//! Laws of [`DispatchPolicy`](weir_flow::dispatch::DispatchPolicy).

use crate::{SEEDS, STEPS, Source};
use std::collections::{BTreeMap, VecDeque};
use weir_flow::clock::Instant;
use weir_flow::dispatch::{DispatchPolicy, POLICIES};
use weir_flow::policy::Choice;
use weir_flow::request::{BackendId, Request, RequestKey, TenantId};

const BACKENDS: usize = 3;

type Line = (BackendId, TenantId);

#[derive(Default)]
struct Model {
    waiting: BTreeMap<Line, VecDeque<RequestKey>>,
    requests: BTreeMap<RequestKey, (Request, BackendId)>,
    outstanding: Vec<(RequestKey, Request, BackendId, Instant)>,
    log: Vec<(Instant, RequestKey)>,
}

impl Model {
    fn drain(&mut self, now: Instant, policy: &mut dyn DispatchPolicy) {
        while let Some((key, rule)) = policy.poll(now) {
            assert!(rule.0.starts_with("dispatch/"), "{rule:?} names another stage");
            let (request, backend) = self.requests.remove(&key).expect("sent once, after its push");
            let line = self.waiting.get_mut(&(backend, request.tenant));
            assert_eq!(line.and_then(VecDeque::pop_front), Some(key), "order within a tenant");
            self.outstanding.push((key, request, backend, now));
            self.log.push((now, key));
        }
        let idle = self.outstanding.is_empty() && !self.requests.is_empty();
        assert!(!idle || policy.next_deadline().is_some(), "work waits before idle backends");
    }

    fn complete(&mut self, now: Instant, index: usize, policy: &mut dyn DispatchPolicy) {
        let (key, request, backend, sent) = self.outstanding.swap_remove(index);
        policy.complete(now, key, &request, backend, now.since(sent));
        self.drain(now, policy);
    }
}

fn storm(name: &str, seed: u64) -> Vec<(Instant, RequestKey)> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let mut policy = (choice.policy().build)(choice.values(), BACKENDS);
    let (mut source, mut model) = (Source::new(seed, "dispatch"), Model::default());
    for _ in 0..STEPS {
        let now = source.tick();
        if policy.next_deadline().is_some_and(|at| at <= now) {
            policy.handle_deadline(now);
            model.drain(now, &mut *policy);
        }
        if source.rng.below(100) < 55 || model.outstanding.is_empty() {
            let (key, request) = source.request();
            let backend = BackendId::new(source.rng.below(BACKENDS as u64) as u32);
            model.requests.insert(key, (request, backend));
            model.waiting.entry((backend, request.tenant)).or_default().push_back(key);
            policy.push(now, key, &request, backend);
            model.drain(now, &mut *policy);
        } else {
            let index = source.rng.below(model.outstanding.len() as u64) as usize;
            model.complete(now, index, &mut *policy);
        }
    }
    let mut now = source.now;
    while !model.requests.is_empty() {
        if model.outstanding.is_empty() {
            now = now.max(policy.next_deadline().expect("asserted by drain"));
            policy.handle_deadline(now);
            model.drain(now, &mut *policy);
        } else {
            model.complete(now, 0, &mut *policy);
        }
    }
    model.log
}

/// Each request is sent exactly once, in order within its tenant and backend; no backend idles while
/// work waits; the same inputs give the same order.
#[test]
fn sends_once_in_order_and_never_idles() {
    for policy in POLICIES {
        for seed in 0..SEEDS {
            let log = storm(policy.name, seed);
            assert!(log.len() > STEPS as usize / 3);
            assert_eq!(log, storm(policy.name, seed), "{} is not deterministic", policy.name);
        }
    }
}
