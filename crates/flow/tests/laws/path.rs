//! Laws of [`PathPolicy`](weir_flow::path::PathPolicy).

use crate::{SEEDS, STEPS, Source};
use weir_flow::clock::Instant;
use weir_flow::path::POLICIES;
use weir_flow::policy::Choice;
use weir_flow::request::PathId;

fn storm(name: &str, paths: u32, seed: u64) -> Vec<Option<PathId>> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let mut policy = (choice.policy().build)(choice.values(), paths);
    let mut source = Source::new(seed, "path");
    let mut usable = vec![true; paths as usize];
    let mut on_way: Vec<(PathId, u64, Instant)> = Vec::new();
    let mut log = Vec::new();
    for _ in 0..STEPS {
        let now = source.tick();
        let path = PathId::new(source.rng.below(u64::from(paths)) as u32);
        match source.rng.below(20) {
            0 => {
                policy.fail(now, path);
                usable[path.index()] = false;
            }
            1 | 2 => {
                policy.reinstate(now, path);
                usable[path.index()] = true;
            }
            3..10 if !on_way.is_empty() => {
                let index = source.rng.below(on_way.len() as u64) as usize;
                let (path, bytes, started) = on_way.swap_remove(index);
                policy.end(now, path, bytes, started);
            }
            _ => {
                let bytes = 512 * (1 + source.rng.below(512));
                let chosen = policy.select(now, bytes);
                match chosen {
                    Some(path) => {
                        assert!(usable[path.index()], "{name} chose a failed path");
                        on_way.push((path, bytes, now));
                    }
                    None => assert!(!usable.contains(&true), "{name} overlooked a usable path"),
                }
                log.push(chosen);
            }
        }
    }
    log
}

/// A failed path is never chosen and a usable one never overlooked, however often paths fail and
/// return; the same inputs give the same choices.
#[test]
fn chooses_among_the_usable() {
    for policy in POLICIES {
        for paths in [1, 2, 3, 8, 16] {
            for seed in 0..SEEDS {
                let log = storm(policy.name, paths, seed);
                assert_eq!(log, storm(policy.name, paths, seed), "{}", policy.name);
            }
        }
    }
}

/// No usable path is starved: equal requests, one at a time, reach every path.
#[test]
fn every_path_gets_work() {
    for policy in POLICIES {
        let choice = Choice::named(POLICIES, policy.name).expect("it is in the list");
        let mut selector = (choice.policy().build)(choice.values(), 4);
        let mut used = [0_u32; 4];
        for n in 0..400 {
            let now = Instant::from_nanos(n * 1_000_000);
            let path = selector.select(now, 4096).expect("all paths work");
            used[path.index()] += 1;
            selector.end(now, path, 4096, now);
        }
        assert!(used.iter().all(|&n| n > 0), "{}: {used:?}", policy.name);
    }
}

/// News that is no news changes nothing: failing what has failed and reinstating what works leaves
/// every later choice as it would have been.
#[test]
fn redundant_news_changes_nothing() {
    for policy in POLICIES {
        let choice = Choice::named(POLICIES, policy.name).expect("it is in the list");
        for seed in 0..SEEDS {
            let mut told_once = (choice.policy().build)(choice.values(), 4);
            let mut told_twice = (choice.policy().build)(choice.values(), 4);
            let mut source = Source::new(seed, "path/twice");
            for _ in 0..STEPS {
                let now = source.tick();
                let path = PathId::new(source.rng.below(4) as u32);
                match source.rng.below(8) {
                    0 => {
                        told_once.fail(now, path);
                        told_twice.fail(now, path);
                        told_twice.fail(now, path);
                    }
                    1 | 2 => {
                        told_once.reinstate(now, path);
                        told_twice.reinstate(now, path);
                        told_twice.reinstate(now, path);
                    }
                    _ => {
                        let chosen = told_once.select(now, 4096);
                        assert_eq!(chosen, told_twice.select(now, 4096), "{}", policy.name);
                        if let Some(path) = chosen {
                            told_once.end(now, path, 4096, now);
                            told_twice.end(now, path, 4096, now);
                        }
                    }
                }
            }
        }
    }
}
