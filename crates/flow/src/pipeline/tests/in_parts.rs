//! Replies in parts.

use super::*;
use crate::transfer::{Link, RULE_LINK, RULE_ORDER};

/// A pipeline whose link sends one chunk of 4 KiB at a time, the shortest reply first.
fn pipeline(window: u64) -> Pipeline<Seen> {
    let mut config = Config { backends: vec![Backend::alike(1)], ..config() };
    config.limits.link_window = window;
    config.policies.transfer = Choice::named(transfer::POLICIES, "srpt").unwrap();
    config.policies.transfer.set("chunk", 4_096).unwrap();
    Pipeline::new(&config, Seen::default())
}

/// Storage answers a read at once.
fn read(pipeline: &mut Pipeline<Seen>, now: u64, tag: u64, length: u64) -> Vec<Action> {
    let arrive = Input::Arrive(request(tag, Op::Read, tag << 14, length));
    let io = ios(&step(pipeline, now, arrive))[0];
    step(pipeline, now, Input::Stored { key: io.key, outcome: Ok(()) })
}

/// What is noted of each action: tag, first byte, bytes, and whether it is the last.
fn told(actions: &[Action]) -> Vec<(u64, u64, u64, bool)> {
    let told = |(_, tag, _, part): (_, Tag, _, Part)| (tag.0, part.offset, part.length, part.last);
    parts(actions).into_iter().map(told).collect()
}

/// A small reply comes between the parts of a large one; each byte is sent once and in order, the request
/// ends with its last, and the rules say who waited for the link and who was overtaken.
#[test]
fn a_small_reply_interrupts_a_large_one() {
    let mut pipeline = pipeline(1);
    let first = read(&mut pipeline, 0, 1, 10_000);
    assert_eq!(told(&first), [(1, 0, 4_096, false)]);
    assert!(read(&mut pipeline, 1, 2, 9_000).is_empty());
    assert!(read(&mut pipeline, 2, 3, 512).is_empty());
    let mut actions = first;
    let mut all = Vec::new();
    for now in 3.. {
        actions = step(&mut pipeline, now, sent(&actions));
        if actions.is_empty() {
            break;
        }
        all.extend(told(&actions));
    }
    let rest = [
        (3, 0, 512, true),
        (1, 4_096, 4_096, false),
        (1, 8_192, 1_808, true),
        (2, 0, 4_096, false),
        (2, 4_096, 4_096, false),
        (2, 8_192, 808, true),
    ];
    assert_eq!(all, rest);
    let done = &pipeline.observer().completed;
    let rules: Vec<_> =
        done.iter().map(|(tag, _, times)| (tag.0, times.rule(StageName::Transfer))).collect();
    assert_eq!(rules, [(3, Some(RULE_LINK)), (1, Some(RULE_ORDER)), (2, Some(RULE_ORDER))]);
    assert_eq!(pipeline.outstanding(), 0);
}

/// A reply for which the link has room goes whole, with one action, whatever the chunk is.
#[test]
fn without_contention_a_reply_is_one_action() {
    let mut pipeline = pipeline(1 << 20);
    let reply = read(&mut pipeline, 0, 1, 16_000);
    assert_eq!(told(&reply), [(1, 0, 16_000, true)]);
    assert!(step(&mut pipeline, 1, sent(&reply)).is_empty());
    assert_eq!(pipeline.observer().completed.len(), 1);
}

/// The steps of a job end in the gateway: they wait for no link, be its host one that takes nothing.
#[test]
fn a_job_waits_for_no_link() {
    let mut pipeline = pipeline(1);
    assert_eq!(told(&read(&mut pipeline, 0, 1, 4_096)), [(1, 0, 4_096, true)]);
    assert!(read(&mut pipeline, 1, 2, 4_096).is_empty(), "the link is full");
    let step_of_job = Request { job: true, ..request(3, Op::Write, 3 << 16, 4_096) };
    let io = ios(&step(&mut pipeline, 2, Input::Arrive(step_of_job)))[0];
    let ended = step(&mut pipeline, 3, Input::Stored { key: io.key, outcome: Ok(()) });
    assert_eq!(told(&ended), [(3, 0, 0, true)]);
}

/// On a link that does not interleave every reply is whole.
#[test]
fn a_link_may_ask_for_whole_replies() {
    let mut pipeline = pipeline(1);
    let whole = Link { interleaves: false, ..Link::default() };
    step(&mut pipeline, 0, Input::Link(LinkId::new(0), whole));
    assert_eq!(told(&read(&mut pipeline, 0, 1, 16_000)), [(1, 0, 16_000, true)]);
}

/// What has failed has no data, and ends with one part of nothing.
#[test]
fn an_error_takes_no_data_along() {
    let mut pipeline = pipeline(1);
    let io = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 16_000))))[0];
    let stored = Input::Stored { key: io.key, outcome: Err(IoError::Medium) };
    let actions = step(&mut pipeline, 1, stored);
    assert_eq!(told(&actions), [(1, 0, 0, true)]);
    step(&mut pipeline, 2, sent(&actions));
    assert_eq!(pipeline.outstanding(), 0);
}
