//! The transfer policies against independent answers: when each reply begins, and in which order they end.
//!
//! The answers are not part of the project. `WEIR_VECTORS` names the folder that has them: in `transfer/`,
//! `*.json` are lists of instances.

mod folder;

use serde::Deserialize;
use std::collections::BTreeMap;
use weir_flow::policy::Choice;
use weir_flow::transfer::{Build, POLICIES};
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

/// The policies of the vectors that Weir does not offer.
const NOT_OFFERED: [&str; 3] = ["look", "srpt-cap", "srpt-slow"];

/// The policy that a name of the vectors asks for, such as `aged:1/10`, `slack:2:20` (chunk and budget) or
/// `dqbs:guard=none,key=len`; `None` if Weir does not offer it.
fn choice(theirs: &str) -> Option<Choice<Build>> {
    let mut parts = theirs.split(':');
    let name = parts.next().expect("a name has a first part");
    if NOT_OFFERED.contains(&name) {
        return None;
    }
    let (name, parameters): (_, &[&str]) = match name {
        "aged" => (name, &["weight"]),
        "rr" => ("round-robin", &["chunk"]),
        "srpt" => (name, &["chunk"]),
        "srpt-aged" => ("aged", &["chunk", "weight"]),
        "slack" => (name, &["chunk", "budget"]),
        "dqbs" => (name, &["words"]),
        plain => (plain, &[]),
    };
    let mut choice = Choice::named(POLICIES, name)
        .unwrap_or_else(|_| panic!("{theirs}: the project has no policy of this name"));
    let values: Vec<&str> = parts.collect();
    assert_eq!(values.len(), parameters.len(), "{theirs}: {parameters:?} are expected");
    for (&parameter, value) in parameters.iter().zip(values) {
        if parameter == "words" {
            for pair in value.split(',') {
                let (parameter, word) = pair.split_once('=').expect("a parameter and its word");
                choice.set_word(parameter, word).expect("a word of the parameter");
            }
            continue;
        }
        // A weight is a fraction of which the parameter counts hundredths.
        let (number, divisor) = value.split_once('/').unwrap_or((value, "1"));
        let [number, divisor]: [u64; 2] = [number, divisor].map(|n| n.parse().expect("a number"));
        let scale = if parameter == "weight" { 100 } else { 1 };
        assert_eq!(
            number * scale % divisor,
            0,
            "{theirs}: a whole number of the parameter's units"
        );
        choice.set(parameter, number * scale / divisor).expect("it is in range");
    }
    Some(choice)
}

/// Every policy begins every reply when the vectors say, and ends them in their order.
#[test]
#[ignore = "needs WEIR_VECTORS"]
fn every_start_is_met() {
    folder::read_all("transfer", &[(".json", &instances)]);
}

/// The instances of a file.
fn instances(file: &str, text: &str) {
    let instances: Vec<Instance> = serde_json::from_str(text).expect("as described");
    assert!(!instances.is_empty(), "{file}: there is no instance in it");
    for (number, instance) in instances.iter().enumerate() {
        let pairs = instance.arrival.iter().zip(&instance.length);
        let jobs: Vec<Job> = pairs.map(|(&at, &bytes)| Job { at, bytes }).collect();
        let mut played = 0;
        for (theirs, expected) in &instance.order {
            let Some(choice) = choice(theirs) else { continue };
            let done = play(&choice, &jobs);
            let starts: Vec<u64> = done.iter().map(|done| done.start).collect();
            assert_eq!(starts, instance.start[theirs], "{file}: instance {number}, {theirs}");
            let mut order: Vec<usize> = (0..jobs.len()).collect();
            order.sort_by_key(|&index| done[index].end);
            assert_eq!(order, *expected, "{file}: instance {number}, {theirs}");
            played += 1;
        }
        assert!(played > 0, "{file}: instance {number} has no policy that Weir offers");
    }
}
