//! The path selectors against independent answers: every choice of every script.
//!
//! The answers are not part of the project. `WEIR_VECTORS` names the folder that has them: in `path/`, `*.json`
//! are scripts by the name of their selector and their number of paths.

mod folder;

use serde::Deserialize;
use std::collections::BTreeMap;
use weir_flow::clock::Instant;
use weir_flow::path::{Build, POLICIES, PathIo};
use weir_flow::policy::Choice;
use weir_flow::request::PathId;

/// One call, with its times in nanoseconds. The script file names its kind in the first place.
#[derive(Debug, Deserialize)]
#[serde(from = "Raw")]
enum Call {
    /// At a time, an I/O of this size, and its path, if any is left.
    Select(u64, u64, Option<u32>),
    /// At a time, on a path, of this size, started at a time.
    End(u64, u32, u64, u64),
    Fail(u64, u32),
    Reinstate(u64, u32),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Five(Kind, u64, u32, u64, u64),
    Four(Kind, u64, u64, Option<u32>),
    Three(Kind, u64, u32),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Select,
    End,
    Fail,
    Reinstate,
}

impl From<Raw> for Call {
    fn from(raw: Raw) -> Self {
        match raw {
            Raw::Five(Kind::End, now, path, bytes, started) => Self::End(now, path, bytes, started),
            Raw::Four(Kind::Select, now, bytes, path) => Self::Select(now, bytes, path),
            Raw::Three(Kind::Fail, now, path) => Self::Fail(now, path),
            Raw::Three(Kind::Reinstate, now, path) => Self::Reinstate(now, path),
            _ => panic!("a call has its arguments"),
        }
    }
}

/// The policy that a script's name asks for.
fn choice(name: &str) -> Choice<Build> {
    let (policy, parameter) = match name {
        "rr" => ("round-robin", None),
        "ql" => ("queue-length", None),
        // All throughputs are equal in both.
        "st" | "lob" => ("service-time", None),
        "hst" => ("historical-service-time", None),
        "roung-sel" => ("roung-job", Some("starts")),
        "roung-literal" => ("roung", Some("literal")),
        own => (own, None),
    };
    let mut choice = Choice::named(POLICIES, policy).expect("the project has the policy");
    if let Some(parameter) = parameter {
        choice.set(parameter, 1).expect("it is a switch");
    }
    choice
}

/// Each selector answers each script exactly, through failures and returns.
#[test]
#[ignore = "needs WEIR_VECTORS"]
fn every_choice_is_met() {
    folder::read_all("path", &[(".json", &scripts)]);
}

/// The scripts of a file.
fn scripts(file: &str, text: &str) {
    let scripts: BTreeMap<String, Vec<Call>> = serde_json::from_str(text).expect("as described");
    assert!(!scripts.is_empty(), "{file}: there is no script in it");
    for (script, calls) in &scripts {
        let (name, paths) = script.split_once('/').expect("a name and a number of paths");
        let choice = choice(name);
        let paths = paths.parse().expect("a number of paths");
        let mut selector = (choice.policy().build)(choice.values(), paths);
        let mut choices = 0;
        for (index, call) in calls.iter().enumerate() {
            let at = Instant::from_nanos;
            match *call {
                Call::Select(now, bytes, expected) => {
                    let path = selector.select(at(now), &PathIo::sized(bytes));
                    let expected = expected.map(PathId::new);
                    assert_eq!(path, expected, "{file}: {script}, call {index}: {call:?}");
                    choices += 1;
                }
                Call::End(now, path, bytes, started) => {
                    selector.end(at(now), PathId::new(path), &PathIo::sized(bytes), at(started));
                }
                Call::Fail(now, path) => selector.fail(at(now), PathId::new(path)),
                Call::Reinstate(now, path) => selector.reinstate(at(now), PathId::new(path)),
            }
        }
        assert!(choices > 0, "{file}: {script} asks for no choice");
    }
}
