//! Laws of [`CachePolicy`](weir_flow::cache::CachePolicy).

use crate::{SEEDS, STEPS, Source};
use weir_flow::cache::{Lookup, POLICIES};
use weir_flow::policy::Choice;
use weir_flow::request::Op;

fn storm(name: &str, seed: u64) -> Vec<Lookup> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let mut cache = (choice.policy().build)(choice.values());
    let mut source = Source::new(seed, "cache");
    let mut log = Vec::new();
    for _ in 0..STEPS {
        let now = source.tick();
        let (key, request) = source.request();
        let answer = cache.look_up(now, key, &request);
        let first = log.is_empty();
        assert!(!(first && request.op == Op::Read && answer == Lookup::Hit), "{name}: cold hit");
        if answer == Lookup::Pass {
            cache.complete(now, key, &request, Ok(()));
        }
        log.push(answer);
    }
    log
}

/// A cold cache has no hit, and the same inputs give the same answers.
#[test]
fn starts_cold_and_is_deterministic() {
    for policy in POLICIES {
        for seed in 0..SEEDS {
            assert_eq!(storm(policy.name, seed), storm(policy.name, seed), "{}", policy.name);
        }
    }
}
