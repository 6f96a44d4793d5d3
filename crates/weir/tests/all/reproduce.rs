//! `weir reproduce` as a person or a script uses it.

use crate::support::{code, err, folder, out, run};

/// What is not known is refused, and what there is is named.
#[test]
fn unknown_experiments_are_refused() {
    let folder = folder("reproduce-unknown");
    let output = run(&folder, &["reproduce", "everything"]);
    assert_eq!((code(&output), out(&output)), (2, ""));
    assert!(
        err(&output).contains("possible values: control, dispatch, path, intermediate, transfer"),
        "{}",
        err(&output)
    );
}

/// `--list` has a line for each experiment with its paper, runs nothing, and goes with no other choice.
#[test]
fn experiments_are_listed() {
    let folder = folder("reproduce-list");
    let output = run(&folder, &["reproduce", "--list"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    let lines: Vec<_> = out(&output).lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines[1].starts_with("control ") && lines[1].ends_with(", 2005"), "{lines:?}");
    let object = run(&folder, &["reproduce", "--list", "--json"]);
    let object: serde_json::Value = serde_json::from_str(out(&object)).unwrap();
    assert_eq!(object["experiments"][4]["name"], "transfer");
    assert_eq!(code(&run(&folder, &["reproduce", "--list", "path"])), 2);
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
    let writes = "time_ns,op,dev,offset,size\n0,W,0,0,512\n9,W,0,0,512\n";
    std::fs::create_dir(folder.join("writes")).unwrap();
    std::fs::write(folder.join("writes/one.csv"), writes).unwrap();
    for (name, traces, exit, told) in [
        ("transfer", "writes", 3, "`writes/one.csv` is skipped: it has no two reads"),
        ("transfer", "writes", 3, "no trace of the folder has two reads"),
        ("control", "bad", 2, "is for the experiments `path` and `transfer`"),
        ("transfer", "bad", 3, "bad/one.csv:2:3: "),
        ("path", "missing", 3, "cannot read the folder `missing`"),
        ("path", "none", 3, "has no file `*.csv` or `*.csv.zst`"),
        ("path", "bad", 3, "bad/one.csv:2:3: "),
    ] {
        let output = run(&folder, &["reproduce", name, "--traces", traces]);
        assert_eq!((code(&output), out(&output)), (exit, ""), "{traces}");
        assert!(err(&output).contains(told), "{}", err(&output));
    }
}

/// A recording that cannot be had or shows no figure, and one for another experiment, is refused before anything runs.
#[test]
fn recordings_without_a_figure_are_refused() {
    let folder = folder("reproduce-live");
    std::fs::write(folder.join("text"), "not a recording").unwrap();
    for (name, file, exit, told) in [
        ("transfer", "text", 2, "`--live` is for the experiment `dispatch`"),
        ("dispatch", "none", 3, "cannot read `none`"),
        ("dispatch", "text", 3, "`text`: at byte 0"),
    ] {
        let output = run(&folder, &["reproduce", name, "--live", file]);
        assert_eq!((code(&output), out(&output)), (exit, ""), "{file}");
        assert!(err(&output).contains(told), "{}", err(&output));
    }
}

/// The study of the intermediate target succeeds, and its JSON object has the published gains of writes.
#[test]
fn the_intermediate_target_is_reproduced() {
    let folder = folder("reproduce-intermediate");
    let report = ["--report", "page.html"];
    let output = run(&folder, &[&["reproduce", "intermediate", "--json"], &report[..]].concat());
    assert_eq!((code(&output), err(&output)), (0, ""));
    let found: serde_json::Value = serde_json::from_str(out(&output)).unwrap();
    let claims = found["experiments"][0]["claims"].as_array().unwrap();
    let writes = claims.iter().filter(|claim| claim["id"] == "W");
    let writes: Vec<_> = writes.map(|claim| claim["measured"].as_f64().unwrap()).collect();
    assert_eq!(writes.len(), 3);
    for (measured, published) in writes.into_iter().zip([25.993, 40.612, 59.070]) {
        assert!((measured - published).abs() < 0.01, "{measured} {published}");
    }
    assert!(std::fs::read_to_string(folder.join("page.html")).unwrap().ends_with("</html>\n"));
}

/// The study of the transfer policies succeeds, with the traces that the program brings along; its worked
/// example is exact, and a misprint is said to be one.
#[test]
fn the_order_of_replies_is_reproduced() {
    let folder = folder("reproduce-transfer");
    let output = run(&folder, &["reproduce", "transfer", "--json"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    let found: serde_json::Value = serde_json::from_str(out(&output)).unwrap();
    let found = &found["experiments"][0];
    let traces: Vec<_> = found["points"].as_array().unwrap().iter().collect();
    assert_eq!(
        traces.iter().map(|row| &row["trace"]).collect::<Vec<_>>(),
        ["linux-mysql", "windows-mssql"]
    );
    let text = run(&folder, &["reproduce", "transfer"]);
    for part in [
        "fifo               1 2 3 4 5  0 3 12 19 19   53  4 13 20 25 23   85   32",
        "E-total     figures 3 and 4   worked            does not hold  31 ms of transfers",
        "E-exact     figures 3 and 4   worked            holds",
    ] {
        assert!(out(&text).contains(part), "{part}: {}", out(&text));
    }
}
