//! Replays the inputs that fuzzing has found worth keeping, in `fuzz/corpus/`. The function that looks at an input is
//! shared with the fuzz target, which includes its file.

mod log;

use std::fs;
use std::path::Path;

/// Whatever is on a device, reading it as a log ends, and what is found in it is in order.
#[test]
fn logs_are_read_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/log");
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{} holds {} files", folder.display(), files.len());
    for file in files {
        let input = fs::read(&file).unwrap();
        let failed = std::panic::catch_unwind(|| log::run(&input)).is_err();
        assert!(!failed, "the input in {} broke a property", file.display());
    }
}
