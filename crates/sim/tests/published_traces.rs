//! Published traces in their own formats against the same traces as Weir's CSV.
//!
//! The traces are not part of the project. `WEIR_TRACES` names the folder that has them: `orig/` as they were
//! published, `norm/` the same requests as Weir's CSV.

use std::env;
use std::path::{Path, PathBuf};
use weir_sim::trace::{self, Error, Event, Info, Options, Reader, TimeUnit};

/// The published file, its name as CSV, and what has to be said to read it.
fn pairs() -> Vec<(&'static str, &'static str, Options)> {
    let plain = Options::default();
    let micros = Options { time_unit: Some(TimeUnit::Microseconds), ..plain };
    let queued = Options { event: Some(Event::Queued), ..plain };
    vec![
        ("blkreplay-linux-mysql.load", "blkreplay-linux-mysql", plain),
        ("blkreplay-windows-mssql.load", "blkreplay-windows-mssql", plain),
        ("blktrace-hadoop-9s.blkparse", "blktrace-hadoop-9s", queued),
        ("cloudphysics-sample.vscsi", "cloudphysics-sample", plain),
        ("financial1-head.spc", "financial1-head", plain),
        ("iozone-100k.disksim", "iozone-100k", plain),
        ("msps-dtrs-5min.ssdsim", "msps-dtrs-5min", micros),
        ("websearch-60s.mqsim", "websearch-60s", plain),
    ]
}

fn info(path: &Path, options: Options) -> Result<Info, Error> {
    trace::info(Reader::open(path, options)?, |_| ())
}

fn folder() -> PathBuf {
    PathBuf::from(env::var_os("WEIR_TRACES").expect("WEIR_TRACES names the folder of traces"))
}

/// Count, bytes, times, places and responses are the same in both.
#[test]
#[ignore = "needs traces that are not part of the project: WEIR_TRACES"]
fn originals_and_their_csv_are_the_same() {
    let folder = folder();
    let mut wrong = Vec::new();
    for (original, csv, options) in pairs() {
        let original = folder.join("orig").join(format!("{original}.zst"));
        let csv = folder.join("norm").join(format!("{csv}.csv.zst"));
        let csv = info(&csv, Options::default()).unwrap();
        match info(&original, options) {
            Err(error) => wrong.push(error.to_string()),
            Ok(original_info) => {
                let facts = |info: &Info| {
                    (
                        [info.requests, info.bytes_read, info.bytes_written, info.with_response],
                        info.duration_ns,
                        info.digest.clone(),
                    )
                };
                let (a, b) = (facts(&original_info), facts(&csv));
                if a != b {
                    wrong.push(format!("{}: {a:?}, not {b:?}", original.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Of blktrace's files in a tar, all are read; a file without times is refused.
#[test]
#[ignore = "needs traces that are not part of the project: WEIR_TRACES"]
fn others_are_read_or_refused() {
    let folder = folder().join("orig");
    let tar = info(&folder.join("blktrace-binary-8cpu.tar.zst"), Options::default());
    let tar = tar.unwrap();
    assert_eq!(tar.format, "blktrace");
    assert!(tar.requests > 100 && tar.with_response > tar.requests / 2, "{tar:?}");
    let error = info(&folder.join("msr-hm1-head-NOTIME.ssdsim.zst"), Options::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("--time-unit"), "{error}");
}
