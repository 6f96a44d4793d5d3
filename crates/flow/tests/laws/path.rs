//! Laws of [`PathPolicy`](weir_flow::path::PathPolicy).

use crate::{SEEDS, STEPS, Source};
use weir_flow::clock::{Duration, Instant};
use weir_flow::path::{POLICIES, PathIo, PathPolicy};
use weir_flow::policy::{Choice, Property};
use weir_flow::request::PathId;

/// A policy of the list with its defaults.
fn selector(name: &str, paths: u32) -> Box<dyn PathPolicy> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    (choice.policy().build)(choice.values(), paths)
}

fn storm(name: &str, paths: u32, seed: u64) -> Vec<Option<PathId>> {
    let mut policy = selector(name, paths);
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
                policy.end(now, path, &PathIo::sized(bytes), started);
            }
            _ => {
                let bytes = 512 * (1 + source.rng.below(512));
                let chosen = policy.select(now, &PathIo::sized(bytes));
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

/// Equal requests, one at a time, reach every path under the policies that claim to use every path, and do
/// not under the others.
#[test]
fn every_path_gets_work() {
    for policy in POLICIES {
        let mut selector = selector(policy.name, 4);
        let mut used = [0_u32; 4];
        for n in 0..400 {
            let now = Instant::from_nanos(n * 1_000_000);
            let path = selector.select(now, &PathIo::sized(4096)).expect("all paths work");
            used[path.index()] += 1;
            selector.end(now, path, &PathIo::sized(4096), now);
        }
        let all = used.iter().all(|&n| n > 0);
        assert_eq!(all, policy.has(Property::UsesEveryPath), "{}: {used:?}", policy.name);
    }
}

/// News that is no news changes nothing: failing what has failed and reinstating what works leaves
/// every later choice as it would have been.
#[test]
fn redundant_news_changes_nothing() {
    for policy in POLICIES {
        for seed in 0..SEEDS {
            let mut told_once = selector(policy.name, 4);
            let mut told_twice = selector(policy.name, 4);
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
                        let chosen = told_once.select(now, &PathIo::sized(4096));
                        assert_eq!(
                            chosen,
                            told_twice.select(now, &PathIo::sized(4096)),
                            "{}",
                            policy.name
                        );
                        if let Some(path) = chosen {
                            told_once.end(now, path, &PathIo::sized(4096), now);
                            told_twice.end(now, path, &PathIo::sized(4096), now);
                        }
                    }
                }
            }
        }
    }
}

/// I/Os per path after which every idle path must have been chosen.
const PATIENCE: usize = 100;

/// A selector that has seen every path at work, each a little slower than the one before, and then one
/// of them fail under load and return; nothing is outstanding.
fn seasoned(
    name: &str,
    paths: u32,
    failed: PathId,
    ends_first: bool,
) -> (Box<dyn PathPolicy>, Instant) {
    let mut policy = selector(name, paths);
    let mut now = Instant::ZERO;
    let mut on_way = Vec::new();
    for _ in 0..50 {
        for _ in 0..2 * paths {
            on_way.push((policy.select(now, &PathIo::sized(16_384)).expect("all paths work"), now));
        }
        on_way.sort_by_key(|&(path, _)| path);
        for (path, started) in on_way.drain(..) {
            now += Duration::from_micros(100 * (path.index() as u64 + 1));
            policy.end(now, path, &PathIo::sized(16_384), started);
        }
    }
    for _ in 0..4 * paths {
        on_way.push((policy.select(now, &PathIo::sized(16_384)).expect("all paths work"), now));
    }
    policy.fail(now, failed);
    if !ends_first {
        policy.reinstate(now, failed);
    }
    for (path, started) in on_way {
        now += Duration::from_micros(100);
        policy.end(now, path, &PathIo::sized(16_384), started);
    }
    policy.reinstate(now, failed);
    (policy, now)
}

/// Under a policy that claims to use every path, one that has nothing to do is chosen sooner or later while
/// others only get more, whatever it was like, and also when it has failed under load and its I/Os ended only after it was back.
#[test]
fn no_idle_path_is_locked_out() {
    for policy in POLICIES.iter().filter(|policy| policy.has(Property::UsesEveryPath)) {
        for paths in [2, 3, 6, 8] {
            for failed in (0..paths).map(PathId::new) {
                for ends_first in [false, true] {
                    let (mut selector, now) = seasoned(policy.name, paths, failed, ends_first);
                    let mut used = vec![0_u32; paths as usize];
                    for _ in 0..PATIENCE * paths as usize {
                        let path =
                            selector.select(now, &PathIo::sized(16_384)).expect("all paths work");
                        used[path.index()] += 1;
                    }
                    let name = policy.name;
                    assert!(!used.contains(&0), "{name}: {used:?} after {failed:?} had failed");
                }
            }
        }
    }
}

/// Without a path there is no choice, and the first that returns is chosen at once.
#[test]
fn the_first_to_return_is_chosen() {
    for policy in POLICIES {
        let (mut selector, now) = seasoned(policy.name, 3, PathId::new(1), true);
        for path in 0..3 {
            selector.fail(now, PathId::new(path));
        }
        assert_eq!(selector.select(now, &PathIo::sized(4_096)), None, "{}", policy.name);
        selector.reinstate(now, PathId::new(2));
        assert_eq!(
            selector.select(now, &PathIo::sized(4_096)),
            Some(PathId::new(2)),
            "{}",
            policy.name
        );
    }
}
