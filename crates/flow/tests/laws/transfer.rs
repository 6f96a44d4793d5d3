//! Laws of [`TransferPolicy`](weir_flow::transfer::TransferPolicy).

use crate::{SEEDS, STEPS, Source, in_all_words};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_flow::clock::Instant;
use weir_flow::policy::{Choice, Property};
use weir_flow::request::RequestKey;
use weir_flow::rng::Rng;
use weir_flow::transfer::{Build, Grant, LinkTime, POLICIES, Reply, TransferPolicy};

/// When a link that sends a byte in a nanosecond has sent so much.
fn at(work: u64) -> LinkTime {
    LinkTime { now: Instant::from_nanos(work), work }
}

fn built(choice: &Choice<Build>) -> Box<dyn TransferPolicy> {
    (choice.policy().build)(choice.values())
}

fn named(name: &str, settings: &[(&str, u64)]) -> Box<dyn TransferPolicy> {
    let mut choice = Choice::named(POLICIES, name).expect("it is in the list");
    for &(name, value) in settings {
        choice.set(name, value).expect("it is in range");
    }
    built(&choice)
}

/// Random replies, some of them whole, on a link that has up to four parts on their way.
fn storm(choice: &Choice<Build>, seed: u64) -> Vec<Grant> {
    let (mut link, name) = (built(choice), choice.policy().name);
    let mut source = Source::new(seed, "transfer");
    // Bytes that were not granted, and whether they are to come at once.
    let mut waiting: BTreeMap<RequestKey, (u64, bool)> = BTreeMap::new();
    let mut on_the_way: Vec<Grant> = Vec::new();
    let (mut work, mut log) = (0, Vec::new());
    for step in 0.. {
        if step < STEPS && source.rng.below(3) == 0 {
            let (key, request) = source.request();
            let (bytes, whole) = (request.reply_bytes().max(1), source.rng.below(4) == 0);
            waiting.insert(key, (bytes, whole));
            link.push(at(work), &Reply::sized(key, bytes, whole));
        } else if on_the_way.len() < 4 {
            if let Some(grant) = link.pop(at(work)) {
                let (left, whole) = waiting.get_mut(&grant.key).expect("it waits");
                assert!((1..=*left).contains(&grant.bytes), "{name} grants {grant:?} of {left}");
                assert!(!*whole || grant.bytes == *left, "{name} cuts what is to be whole");
                *left -= grant.bytes;
                if *left == 0 {
                    waiting.remove(&grant.key);
                }
                log.push(grant);
                on_the_way.push(grant);
            } else {
                assert!(waiting.is_empty(), "{name} idles with replies waiting");
                if step >= STEPS && on_the_way.is_empty() {
                    break;
                }
            }
        }
        // The link tells of what has left as it likes, in order.
        if source.rng.below(2) == 0
            && let Some(first) = on_the_way.first_mut()
        {
            let most = first.bytes;
            let bytes = (1 + source.rng.below(2 * most)).min(most);
            let key = first.key;
            first.bytes -= bytes;
            if first.bytes == 0 {
                on_the_way.remove(0);
            }
            work += bytes;
            link.sent(at(work), key, bytes);
        }
    }
    log
}

/// Each byte is granted exactly once, what is to be whole is, a link never idles while a reply waits, and
/// the same inputs give the same grants; with every word and flag, and with small chunks.
#[test]
fn every_byte_is_granted_once() {
    let check = |choice: &Choice<Build>| {
        for seed in 0..SEEDS {
            let once = storm(choice, seed);
            let named = (choice.policy().name, choice.values());
            assert_eq!(once, storm(choice, seed), "{named:?}");
        }
    };
    for policy in POLICIES {
        for mut choice in in_all_words(POLICIES, policy.name) {
            check(&choice);
            if choice.set("chunk", 3_000).is_ok() {
                check(&choice);
            }
        }
    }
}

/// A page, the unit in which budgets are tried.
const PAGE: u64 = 512;

/// When each reply ends, in bytes of time, on a link that sends one part at a time.
fn ends(policy: Box<dyn TransferPolicy>, replies: &[(u64, u64)]) -> Vec<u64> {
    ends_with(policy, replies, 0)
}

/// The same; replies up to a size that come while the link is idle are sent without the policy.
fn ends_with(mut policy: Box<dyn TransferPolicy>, replies: &[(u64, u64)], untold: u64) -> Vec<u64> {
    let keys: Vec<RequestKey> = {
        let mut keys = slotmap::SlotMap::with_key();
        replies.iter().map(|_| keys.insert(())).collect()
    };
    let mut left: Vec<u64> = replies.iter().map(|&(_, bytes)| bytes).collect();
    let mut ends = vec![0; replies.len()];
    let (mut now, mut idle, mut next) = (0, 0, 0);
    let arrive = |policy: &mut Box<dyn TransferPolicy>, next: &mut usize, now: u64, idle: u64| {
        while let Some(&(came, bytes)) = replies.get(*next).filter(|reply| reply.0 <= now) {
            policy.push(at(came - idle), &Reply::sized(keys[*next], bytes, false));
            *next += 1;
        }
        replies.get(*next).map(|reply| reply.0)
    };
    loop {
        let coming = arrive(&mut policy, &mut next, now, idle);
        let Some(Grant { key, bytes }) = policy.pop(at(now - idle)) else {
            let Some(came) = coming else { return ends };
            idle += came - now;
            now = came;
            if replies[next].1 <= untold {
                now += replies[next].1;
                ends[next] = now;
                next += 1;
                arrive(&mut policy, &mut next, now, idle);
                policy.sent(at(now - idle), keys[next - 1], replies[next - 1].1);
            }
            continue;
        };
        now += bytes;
        arrive(&mut policy, &mut next, now, idle);
        policy.sent(at(now - idle), key, bytes);
        let index = keys.iter().position(|&one| one == key).expect("it is one of them");
        left[index] -= bytes;
        if left[index] == 0 {
            ends[index] = now;
        }
    }
}

fn instance() -> impl Strategy<Value = Vec<(u64, u64)>> {
    // Gaps and lengths in pages; a few are long.
    let length = prop_oneof![4 => 1_u64..16, 1 => 1_u64..400];
    prop::collection::vec((0_u64..12, length), 1..120).prop_map(|list| {
        let mut at = 0;
        let reply = |(gap, pages): (u64, u64)| {
            at += gap * PAGE;
            (at, pages * PAGE)
        };
        list.into_iter().map(reply).collect()
    })
}

proptest! {
    /// A policy that forgets what comes while nothing waits gives the same order whether or not it was told.
    #[test]
    fn what_is_forgotten_need_not_be_told(replies in instance()) {
        // Never two at once: the link takes the first before it hears of the second.
        let apart = |(index, &(at, bytes)): (usize, &(u64, u64))| (at + index as u64, bytes);
        let replies: Vec<_> = replies.iter().enumerate().map(apart).collect();
        for policy in POLICIES {
            for choice in in_all_words(POLICIES, policy.name) {
                let told = || ends(built(&choice), &replies);
                let same = !built(&choice).forgets()
                    || ends_with(built(&choice), &replies, 8 * PAGE) == told();
                prop_assert!(same, "{} {:?}", policy.name, choice.values());
            }
        }
    }

    /// No reply ends later than under first in, first out by more than the budget, whatever the chunk is;
    /// without a budget all end as there, and with one beyond everything as under shortest remaining first.
    #[test]
    fn slack_bounds_lateness(replies in instance(), chunk in 1_u64..64) {
        let fifo = ends(named("fifo", &[]), &replies);
        for chunk in [("chunk", chunk * PAGE), ("chunk", 1 << 40)] {
            for budget in [0, 5, 50, 500] {
                let budget = budget * PAGE;
                let slack = ends(named("slack", &[("budget", budget), chunk]), &replies);
                let late = slack.iter().zip(&fifo).map(|(slack, fifo)| slack.saturating_sub(*fifo));
                prop_assert!(late.max() <= Some(budget));
                prop_assert!(budget > 0 || slack == fifo);
            }
            let slack = ends(named("slack", &[("budget", 1 << 40), chunk]), &replies);
            prop_assert_eq!(slack, ends(named("srpt", &[chunk]), &replies));
        }
        let one = ("chunk", 1 << 40);
        let (srpt, sjf) = (named("srpt", &[one]), named("sjf", &[]));
        prop_assert_eq!(ends(srpt, &replies), ends(sjf, &replies));
    }
}

/// A reply that is 64 times as long as those that keep coming, one for each that is sent, is sent under the
/// policies that claim to be free of starvation, and is not under the others.
#[test]
fn the_claim_of_no_starvation_holds() {
    for policy in POLICIES {
        let replies: Vec<_> = (0..20_000)
            .map(|index: u64| {
                let bytes = if index == 1 { 64 * 4_096 } else { 4_096 };
                (index.saturating_sub(2) * 4_096, bytes)
            })
            .collect();
        let end = ends(named(policy.name, &[]), &replies)[1];
        let starves = end > 19_000 * 4_096;
        assert_eq!(starves, !policy.has(Property::StarvationFree), "{}: {end}", policy.name);
    }
}

/// The lateness that a budget allows is used: the bound is no accident of loads that are too light.
#[test]
fn a_budget_is_used() {
    let mut rng = Rng::stream(1, "transfer/budget");
    let mut at = 0;
    let mut reply = || {
        at += rng.below(8) * PAGE;
        (at, if rng.below(10) == 0 { 200 * PAGE } else { PAGE })
    };
    let replies: Vec<_> = (0..500).map(|_| reply()).collect();
    let fifo = ends(named("fifo", &[]), &replies);
    let late = |budget| {
        let slack = ends(named("slack", &[("budget", budget), ("chunk", PAGE)]), &replies);
        slack.iter().zip(&fifo).map(|(slack, fifo)| slack.saturating_sub(*fifo)).max().unwrap()
    };
    assert_eq!(late(50 * PAGE), 50 * PAGE);
    assert!(late(1 << 40) > 100 * PAGE);
}
