//! Laws of the records and the files of policies, whatever their stage.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weir_flow::policy::{Policy, Property, Unit};
use weir_flow::{cache, control, dispatch, path, transfer};

/// Lines that a policy's file may have, without its tests.
const LINES_MAX: usize = 300;

/// The folders of the stages that have policies.
const STAGES: &[&str] =
    &["cache/evict", "cache/prefetch", "control", "dispatch", "path", "transfer"];

/// Checks the records of one list.
fn check<B>(stage: &str, list: &[Policy<B>]) {
    let mut names = BTreeSet::new();
    for policy in list {
        let name = policy.name;
        assert!(names.insert(name), "{stage} has two policies `{name}`");
        assert!(!policy.summary.is_empty() && !policy.summary.ends_with('.'), "{name}");
        let mut parameters = BTreeSet::from(["name"]);
        for one in policy.parameters {
            let what = (name, one.name);
            assert!(parameters.insert(one.name), "{what:?} is there twice, or `name`");
            assert!((one.min..=one.max).contains(&one.default), "{what:?}: default out of range");
            match one.unit {
                Unit::Flag => assert_eq!((one.min, one.max), (0, 1), "{what:?}"),
                Unit::Word(words) => {
                    assert_eq!((one.min, one.max + 1), (0, words.len() as u64), "{what:?}");
                }
                Unit::Counts(most) => assert!(most > 0, "{what:?}"),
                Unit::Bytes | Unit::Count | Unit::Time => {}
            }
        }
        for property in policy.properties {
            let of = match property {
                Property::KeepsOrder | Property::WorkConserving => "control",
                Property::KeepsOrderUnless { parameter, word } => {
                    let known = policy.parameters.iter().find(|one| one.name == *parameter);
                    let unit = known.map(|one| one.unit);
                    let has = matches!(unit, Some(Unit::Word(words)) if words.contains(word));
                    assert!(has, "{name} has no {parameter} = {word}");
                    "control"
                }
                Property::SharesTime => "dispatch",
                Property::UsesEveryPath => "path",
                Property::StarvationFree => "transfer",
            };
            assert_eq!(stage, of, "{name} claims {property:?}, which no law of its stage checks");
        }
    }
}

/// Names are unique; defaults lie in their ranges; flags and words have the ranges of their units; a
/// property is claimed in the stage whose laws check it.
#[test]
fn records_are_sound() {
    check("cache", cache::evict::POLICIES);
    check("prefetch", cache::prefetch::POLICIES);
    check("control", control::POLICIES);
    check("dispatch", dispatch::POLICIES);
    check("path", path::POLICIES);
    check("transfer", transfer::POLICIES);
}

/// The first entry of a list is what a stage does when nothing is configured.
#[test]
fn defaults_are_meant() {
    let defaults = [
        cache::evict::POLICIES[0].name,
        cache::prefetch::POLICIES[0].name,
        control::POLICIES[0].name,
        dispatch::POLICIES[0].name,
        path::POLICIES[0].name,
        transfer::POLICIES[0].name,
    ];
    assert_eq!(defaults, ["s3-fifo", "adaptive", "slack", "fifo", "jsw", "slack"]);
}

/// A policy's file says what it computes, what it costs, where it comes from and when not to use it; its
/// sources are in the repository or published; it is short; and its stage lists it.
#[test]
fn policies_introduce_themselves() {
    let mut seen = 0;
    for stage in STAGES {
        let folder = source().join(stage);
        let list = fs::read_to_string(folder.join("mod.rs")).unwrap();
        for file in files(&folder) {
            let text = fs::read_to_string(&file).unwrap();
            if !text.contains("const POLICY: Policy<") {
                continue;
            }
            seen += 1;
            let shown = file.display();
            for part in
                ["//! # ", "//! | Model ", "//! | Cost ", "//! | Source ", "//! | Not when "]
            {
                assert!(text.contains(part), "{shown} lacks its `{part}` line");
            }
            let head = text.lines().take_while(|line| line.starts_with("//!"));
            for word in head.flat_map(|line| line.split([' ', '`', ',', ';', '(', ')'])) {
                assert!(
                    !word.starts_with("spec/"),
                    "{shown} cites {word}, which is not in the repository"
                );
                let there = source().join("../../..").join(word).exists();
                assert!(!word.starts_with("docs/") || there, "{shown} cites {word}: not there");
            }
            // A policy in several files is a folder.
            let policy = if file.ends_with("mod.rs") { file.parent().unwrap() } else { &file };
            let name = policy.file_stem().unwrap().to_str().unwrap();
            assert!(list.contains(&format!("{name}::POLICY")), "{shown} is not listed");
            let body = text.split("#[cfg(test)]").next().unwrap().lines().count();
            assert!(body <= LINES_MAX, "{shown} is too long for a policy");
        }
    }
    assert!(seen >= 40, "the walk must find the policies, found {seen}");
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the crate").map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    all
}
