//! Requests whose paths are lost.

use super::*;

/// A failing path is left for the other one; when both are gone the request waits, and continues when
/// one comes back. Nothing is lost and each change of a path is reported once.
#[test]
fn requests_survive_their_paths() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let io = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 512))))[0];
    let lost = Input::Stored { key: io.key, outcome: Err(IoError::PathFailed) };
    let again = ios(&step(&mut pipeline, 5, lost))[0];
    assert_ne!(again.path, io.path);
    let lost = Input::Stored { key: again.key, outcome: Err(IoError::PathFailed) };
    assert!(step(&mut pipeline, 9, lost).is_empty());
    step(&mut pipeline, 10, Input::PathDown(BackendId::new(0), io.path));
    let back = ios(&step(&mut pipeline, 20, Input::PathUp(BackendId::new(0), io.path)))[0];
    assert_eq!(back.path, io.path);
    let actions = step(&mut pipeline, 30, Input::Stored { key: back.key, outcome: Ok(()) });
    step(&mut pipeline, 30, sent(&actions));
    let seen = pipeline.observer();
    assert_eq!(seen.paths.iter().map(|p| p.0).collect::<Vec<_>>(), [false, false, true]);
    let times = seen.completed[0].2;
    assert_eq!(times.spent(StageName::Path), Duration::from_nanos(20));
    assert_eq!(times.spent(StageName::Storage), Duration::from_nanos(10));
    assert_eq!(times.rule(StageName::Path), Some(crate::path::RULE_NO_PATH));
}

fn without_a_path() -> Pipeline<Seen> {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    for path in [0, 1].map(PathId::new) {
        step(&mut pipeline, 0, Input::PathDown(BackendId::new(0), path));
    }
    pipeline
}

/// Storage may be away for a minute with the default settings: a request that waits for a path continues then.
#[test]
fn a_minute_without_a_path_ends_well() {
    let mut pipeline = without_a_path();
    assert!(step(&mut pipeline, 0, Input::Arrive(request(1, Op::Write, 0, 512))).is_empty());
    let minute = Duration::from_secs(60).as_nanos();
    assert!(step(&mut pipeline, minute, Input::Arrive(request(2, Op::Read, 512, 512))).is_empty());
    while let Some(now) = pipeline.next_deadline().filter(|at| at.as_nanos() <= minute) {
        pipeline.handle_deadline(now);
        assert_eq!(pipeline.poll(now), None);
    }
    assert_eq!(pipeline.observer().overdue[0].1, StageName::Path);
    let back = Input::PathUp(BackendId::new(0), PathId::new(1));
    assert_eq!(ios(&step(&mut pipeline, minute, back))[0].path, PathId::new(1));
}

/// Waiting for a path has an end.
#[test]
fn patience_for_a_path_ends() {
    let mut pipeline = without_a_path();
    assert!(step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 512))).is_empty());
    let limits = Limits::default();
    let mut now = Instant::ZERO;
    while now < Instant::ZERO + limits.no_path_timeout {
        now = pipeline.next_deadline().expect("a request waits");
        pipeline.handle_deadline(now);
    }
    let actions: Vec<_> = core::iter::from_fn(|| pipeline.poll(now)).collect();
    assert_eq!(replies(&actions)[0].2, Err(IoError::NoPath));
    assert_eq!(now, Instant::ZERO + limits.no_path_timeout);
    assert_eq!(pipeline.observer().overdue[0].1, StageName::Path);
}
