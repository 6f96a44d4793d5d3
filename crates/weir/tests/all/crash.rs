//! `weir crash` as a person or a script uses it.

use crate::support::{code, err, folder, out, run};
use serde_json::Value;

/// A short run finds nothing wrong, and says how much it has looked at, as text and as one object.
#[test]
fn nothing_is_wrong() {
    let folder = folder("crash");
    let output = run(&folder, &["crash", "--states", "1000"]);
    assert_eq!((code(&output), err(&output)), (0, ""), "{}", out(&output));
    assert!(out(&output).ends_with("no law is broken\n"), "{}", out(&output));
    let output = run(&folder, &["crash", "--states", "1000", "--json"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    let found: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!((&found["version"], &found["seed"]), (&1.into(), &1.into()));
    assert!(found["states"].as_u64() >= Some(1000) && found["violation"].is_null(), "{found}");
    assert_eq!(found["kinds"].as_array().unwrap().len(), 7);
    let events = found["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["count"].as_u64() > Some(0)), "{found}");
}

/// A planted bug is reported: which law, which seed, what happened and what was lost.
#[test]
fn a_mistake_is_told() {
    let folder = folder("crash-bug");
    let output = run(&folder, &["crash", "--bug", "ack-before-commit"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    for part in
        ["a law is broken", "workload of seed ", "request 1 of host ", "crash here: log device: "]
    {
        assert!(out(&output).contains(part), "{part}: {}", out(&output));
    }
    let output = run(&folder, &["crash", "--bug", "no-such-mistake"]);
    assert_eq!((code(&output), out(&output)), (2, ""));
    assert!(err(&output).contains("ack-before-commit"), "{}", err(&output));
}

/// A mistake that is not noticed is a failure: in a handful of states hardly any is.
#[test]
fn what_is_not_noticed_fails() {
    let folder = folder("crash-bugs");
    let output = run(&folder, &["crash", "--bugs", "--states", "1", "--json"]);
    assert_eq!((code(&output), err(&output)), (4, ""));
    let found: Value = serde_json::from_str(out(&output)).unwrap();
    let bugs = found["bugs"].as_array().unwrap();
    assert!(bugs.len() >= 15);
    let noticed = bugs.iter().filter(|bug| !bug["noticed_by"].is_null()).count();
    assert!(noticed > 0 && noticed < bugs.len(), "{found}");
}
