//! `weir reproduce` as a person or a script uses it.

mod support;

use support::{code, err, folder, out, run};

/// What is not known is refused, and what there is is named.
#[test]
fn unknown_experiments_are_refused() {
    let folder = folder("reproduce-unknown");
    let output = run(&folder, &["reproduce", "everything"]);
    assert_eq!((code(&output), out(&output)), (2, ""));
    assert!(err(&output).contains("possible values: control, path"), "{}", err(&output));
}

/// Traces that cannot be had, and traces for an experiment that takes none, are refused before anything
/// runs, with what to do.
#[test]
fn traces_that_cannot_be_used_are_refused() {
    let folder = folder("reproduce-traces");
    std::fs::create_dir(folder.join("none")).unwrap();
    std::fs::create_dir(folder.join("bad")).unwrap();
    std::fs::write(folder.join("bad/one.csv"), "time_ns,op,dev,offset,size\n0,X,0,0,512\n")
        .unwrap();
    for (name, traces, exit, told) in [
        ("control", "bad", 2, "is for the experiment `path`"),
        ("path", "missing", 3, "cannot read the folder `missing`"),
        ("path", "none", 3, "has no file `*.csv` or `*.csv.zst`"),
        ("path", "bad", 3, "bad/one.csv:2:3: "),
    ] {
        let output = run(&folder, &["reproduce", name, "--traces", traces]);
        assert_eq!((code(&output), out(&output)), (exit, ""), "{traces}");
        assert!(err(&output).contains(told), "{}", err(&output));
    }
}
