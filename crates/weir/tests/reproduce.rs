//! `weir reproduce` as a person or a script uses it.

mod support;

use support::{code, err, folder, out, run};

/// What is not known is refused, and what there is is named.
#[test]
fn unknown_experiments_are_refused() {
    let folder = folder("reproduce-unknown");
    let output = run(&folder, &["reproduce", "everything"]);
    assert_eq!((code(&output), out(&output)), (2, ""));
    assert!(err(&output).contains("possible values: control"), "{}", err(&output));
}
