//! Laws of [`TransferPolicy`](weir_flow::transfer::TransferPolicy).

use crate::{SEEDS, STEPS, Source};
use std::collections::BTreeSet;
use weir_flow::policy::Choice;
use weir_flow::request::RequestKey;
use weir_flow::transfer::POLICIES;

fn storm(name: &str, seed: u64) -> Vec<RequestKey> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let mut link = (choice.policy().build)(choice.values());
    let mut source = Source::new(seed, "transfer");
    let mut waiting = BTreeSet::new();
    let mut log = Vec::new();
    for step in 0..2 * STEPS {
        let now = source.tick();
        if step < STEPS && source.rng.below(2) == 0 {
            let (key, request) = source.request();
            waiting.insert(key);
            link.push(now, key, &request);
        } else {
            match link.pop(now) {
                Some((key, rule)) => {
                    assert!(rule.0.starts_with("transfer/"), "{rule:?} names another stage");
                    assert!(waiting.remove(&key), "{name} sent {key:?} twice or unasked");
                    link.sent(now, key);
                    log.push(key);
                }
                None => assert!(waiting.is_empty(), "{name} idles with replies waiting"),
            }
        }
    }
    assert!(waiting.is_empty(), "{name} forgot {}", waiting.len());
    log
}

/// Each reply is sent exactly once, a link never idles while one waits, and the same inputs give the
/// same order.
#[test]
fn sends_once_and_never_idles() {
    for policy in POLICIES {
        for seed in 0..SEEDS {
            assert_eq!(storm(policy.name, seed), storm(policy.name, seed), "{}", policy.name);
        }
    }
}
