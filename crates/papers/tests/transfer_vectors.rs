//! The transfer policies against independent answers: when each reply begins, and in which order they end.
//!
//! The answers are not part of the project. `WEIR_VECTORS` names the folder that has them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use weir_flow::policy::Choice;
use weir_flow::transfer::POLICIES;
use weir_papers::transfer::engine::{Job, play};

/// An instance; times in ticks, lengths in ticks of sending.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Instance {
    arrival: Vec<u64>,
    length: Vec<u64>,
    /// Under each policy: replies in the order in which they end.
    order: BTreeMap<String, Vec<usize>>,
    /// When each begins.
    start: BTreeMap<String, Vec<u64>>,
}

/// A policy and its settings.
type Known = (&'static str, &'static str, &'static [(&'static str, u64)]);

/// As the vectors call them, and what they are here. A budget and a chunk of 1000 are whole replies.
const KNOWN: [Known; 16] = [
    ("fifo", "fifo", &[]),
    ("sjf", "sjf", &[]),
    ("aged:1", "aged", &[("weight", 100)]),
    ("aged:1/10", "aged", &[("weight", 10)]),
    ("hrrn", "hrrn", &[]),
    ("fsp", "fsp", &[]),
    ("rr:2", "round-robin", &[("chunk", 2)]),
    ("srpt:2", "srpt", &[("chunk", 2)]),
    ("srpt-aged:2:1/10", "aged", &[("weight", 10), ("chunk", 2)]),
    ("slack:2:20", "slack", &[("budget", 20), ("chunk", 2)]),
    ("slack:1000:20", "slack", &[("budget", 20), ("chunk", 1_000)]),
    ("dqbs:guard=none,key=len", "dqbs", &[("guard", 4), ("key", 1)]),
    ("dqbs:guard=literal,key=len", "dqbs", &[("guard", 0), ("key", 1)]),
    ("dqbs:guard=literal,key=ins", "dqbs", &[]),
    ("dqbs:guard=literal,key=dyn", "dqbs", &[("guard", 0), ("key", 2)]),
    ("dqbs:guard=gate,key=len", "dqbs", &[("guard", 2), ("key", 1)]),
];

/// Policies of the golden file that Weir does not offer.
const NOT_OFFERED: [&str; 3] = ["look:4", "srpt-cap:2:60", "srpt-slow:2:8"];

/// Every policy begins every reply when the vectors say, and ends them in their order.
#[test]
#[ignore = "needs WEIR_VECTORS"]
fn every_start_is_met() {
    let folder = PathBuf::from(env::var_os("WEIR_VECTORS").expect("WEIR_VECTORS names the folder"));
    let text = std::fs::read_to_string(folder.join("transfer/golden.json")).expect("it is there");
    let instances: Vec<Instance> = serde_json::from_str(&text).expect("as described");
    assert_eq!(instances.len(), 6);
    for (number, instance) in instances.iter().enumerate() {
        let pairs = instance.arrival.iter().zip(&instance.length);
        let jobs: Vec<Job> = pairs.map(|(&at, &bytes)| Job { at, bytes }).collect();
        assert_eq!(jobs.len(), 40);
        assert_eq!(instance.order.len(), KNOWN.len() + NOT_OFFERED.len(), "all are known");
        for (theirs, name, settings) in KNOWN {
            let mut choice = Choice::named(POLICIES, name).expect("the project has it");
            for &(name, value) in settings {
                choice.set(name, value).expect("it is in range");
            }
            let done = play(&choice, &jobs);
            let starts: Vec<u64> = done.iter().map(|done| done.start).collect();
            assert_eq!(starts, instance.start[theirs], "instance {number}, {theirs}");
            let mut order: Vec<usize> = (0..jobs.len()).collect();
            order.sort_by_key(|&index| done[index].end);
            assert_eq!(order, instance.order[theirs], "instance {number}, {theirs}");
        }
    }
}
