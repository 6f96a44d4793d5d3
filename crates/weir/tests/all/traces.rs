//! What `weir trace` says of traces that it reads in part, or not at all.

use crate::support::{code, err, folder, out, run};
use std::fmt::Write as _;

/// Notices that are not listed or not kept are counted.
#[test]
fn notices_that_are_left_out_are_counted() {
    let folder = folder("trace-notices");
    let notice = format!("# {}\n", "x".repeat(97));
    let trace = |notices: usize| {
        let text = format!("{}0,0,512,R,0.1\n0,8,512,R,0.2\n", notice.repeat(notices));
        std::fs::write(folder.join("t.spc"), text).unwrap();
    };
    for (notices, more) in [(65, "and 1 more line of notices"), (66, "and 2 more lines of notices")]
    {
        trace(notices);
        let info = run(&folder, &["trace", "info", "t.spc"]);
        assert!(out(&info).contains(more), "{}", out(&info));
    }
    trace(20_000);
    let refused = run(&folder, &["trace", "info", "t.spc"]);
    assert_eq!(code(&refused), 3);
    assert!(
        err(&refused).contains("t.spc:655: the first 64 KiB have no request"),
        "{}",
        err(&refused)
    );
    assert!(err(&refused).contains("help: name the format with --format"), "{}", err(&refused));
    let converted = run(&folder, &["trace", "convert", "t.spc", "t.csv", "--format", "spc"]);
    let lost = "  lost: 11996 lines of notices, which may be the trace's licence\n";
    assert_eq!(out(&converted), format!("2 requests written as weir\n{lost}"));
    let info = run(&folder, &["trace", "info", "t.csv"]);
    assert!(out(&info).contains("and 7940 more lines of notices"), "{}", err(&info));
}

/// Completions that were not waited for are counted by `info` and `convert`.
#[test]
fn completions_that_are_missed_are_counted() {
    let folder = folder("trace-missed");
    let mut text = String::new();
    for at in 0..=65_536 {
        writeln!(text, "8,0 0 1 0.{at:06} 1 D R {} + 8 [a]", at * 8).unwrap();
    }
    text += "8,0 0 1 0.9 1 C R 0 + 8 [0]\n";
    std::fs::write(folder.join("t.txt"), text).unwrap();
    let missed = "  1 request had no completion within the 65536 requests after it; later ones were not looked for\n";
    let info = run(&folder, &["trace", "info", "t.txt"]);
    assert!(out(&info).contains(missed), "{}{}", out(&info), err(&info));
    let converted = run(&folder, &["trace", "convert", "t.txt", "t.csv"]);
    assert_eq!(out(&converted), format!("65537 requests written as weir\n{missed}"));
}

/// The help of a refusal says what to do about that refusal.
#[test]
fn refusals_of_traces_have_their_help() {
    let folder = folder("trace-help");
    std::fs::write(folder.join("t.csv"), "time_ns,op,dev,offset,size\n5,R,0,0,512\n4,R,0,0,512\n")
        .unwrap();
    let event = run(&folder, &["trace", "info", "t.csv", "--event", "Q"]);
    assert_eq!(code(&event), 3);
    assert!(err(&event).contains("help: leave --event out\n"), "{}", err(&event));
    let late = run(&folder, &["trace", "info", "t.csv"]);
    assert!(
        err(&late).contains("t.csv:3:1: the time is 1 ns before that of line 2\n"),
        "{}",
        err(&late)
    );
    assert!(err(&late).contains("help: sort the file by time\n"), "{}", err(&late));
}
