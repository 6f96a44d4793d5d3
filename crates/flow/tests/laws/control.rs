//! Laws of [`ControlPolicy`](weir_flow::control::ControlPolicy).

use crate::{SEEDS, STEPS, Source};
use std::collections::{BTreeMap, VecDeque};
use weir_flow::clock::Instant;
use weir_flow::control::{ControlPolicy, POLICIES};
use weir_flow::policy::Choice;
use weir_flow::request::{Request, RequestKey, TenantId};

/// What the model knows.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<TenantId, VecDeque<RequestKey>>,
    outstanding: Vec<(RequestKey, Request, Instant)>,
    requests: BTreeMap<RequestKey, Request>,
    log: Vec<(Instant, RequestKey)>,
}

impl Model {
    fn drain(&mut self, now: Instant, policy: &mut dyn ControlPolicy) {
        while let Some((key, rule)) = policy.poll(now) {
            assert!(rule.0.starts_with("control/"), "{rule:?} names another stage");
            let request = self.requests.remove(&key).expect("released once, after it arrived");
            let first = self.waiting.get_mut(&request.tenant).and_then(VecDeque::pop_front);
            assert_eq!(first, Some(key), "a tenant's requests keep their order");
            self.outstanding.push((key, request, now));
            self.log.push((now, key));
        }
    }

    fn deadlines(&mut self, now: Instant, policy: &mut dyn ControlPolicy) {
        while let Some(at) = policy.next_deadline().filter(|&at| at <= now) {
            policy.handle_deadline(at);
            self.drain(at, policy);
            assert!(policy.next_deadline() != Some(at), "a handled deadline is over");
        }
    }

    fn complete(&mut self, now: Instant, index: usize, policy: &mut dyn ControlPolicy) {
        let (key, request, released) = self.outstanding.swap_remove(index);
        policy.complete(now, key, &request, now.since(released));
        self.drain(now, policy);
    }
}

fn storm(name: &str, seed: u64) -> Vec<(Instant, RequestKey)> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let mut policy = (choice.policy().build)(choice.values());
    let (mut source, mut model) = (Source::new(seed, "control"), Model::default());
    for _ in 0..STEPS {
        let now = source.tick();
        model.deadlines(now, &mut *policy);
        if source.rng.below(2) == 0 || model.outstanding.is_empty() {
            let (key, request) = source.request();
            model.requests.insert(key, request);
            model.waiting.entry(request.tenant).or_default().push_back(key);
            policy.arrive(now, key, &request);
            model.drain(now, &mut *policy);
        } else {
            let index = source.rng.below(model.outstanding.len() as u64) as usize;
            model.complete(now, index, &mut *policy);
        }
    }
    // Nothing new comes: what waits must leave, by endings and deadlines alone.
    let mut now = source.now;
    while !model.requests.is_empty() {
        match policy.next_deadline() {
            _ if !model.outstanding.is_empty() => model.complete(now, 0, &mut *policy),
            Some(at) => {
                now = now.max(at);
                model.deadlines(now, &mut *policy);
            }
            None => panic!("{name}: {} requests wait for nothing", model.requests.len()),
        }
    }
    model.log
}

/// Each request is released exactly once, a tenant's in order of arrival, and nothing waits without
/// a deadline or an outstanding request that can release it; the same inputs give the same releases.
#[test]
fn releases_once_in_order_and_never_forgets() {
    for policy in POLICIES {
        for seed in 0..SEEDS {
            let log = storm(policy.name, seed);
            assert!(log.len() > STEPS as usize / 4);
            assert_eq!(log, storm(policy.name, seed), "{} is not deterministic", policy.name);
        }
    }
}
