//! What hosts hear of data that storage has lost.

use super::*;

const UNIT: BackendId = BackendId::new(0);

/// A pipeline over one unit, or a volume striped over two.
fn over(units: usize) -> Pipeline<Seen> {
    let mut config = Config { backends: vec![Backend::alike(1); units], ..config() };
    if units > 1 {
        let backends = (0..units as u32).map(BackendId::new).collect();
        config.volumes[0].layout = Layout::Stripe { backends, chunk: 4 << 10 };
    }
    Pipeline::new(&config, Seen::default())
}

/// Storage ends these, and hosts hear of it.
fn end(pipeline: &mut Pipeline<Seen>, ios: &[StoreIo], outcome: Outcome) -> Option<Outcome> {
    let mut told = None;
    for io in ios {
        let actions = step(pipeline, 0, Input::Stored { key: io.key, outcome });
        for (_, _, outcome, part) in parts(&actions) {
            told = Some(outcome);
            step(pipeline, 0, Input::Sent { key: io.key, bytes: part.length });
        }
    }
    told
}

fn begin(pipeline: &mut Pipeline<Seen>, op: Op, fua: bool) -> Vec<StoreIo> {
    let extent = if op == Op::Flush { (0, 0) } else { (0, 4096) };
    let request = Request { fua, ..request(1, op, extent.0, extent.1) };
    ios(&step(pipeline, 0, Input::Arrive(request)))
}

fn write(pipeline: &mut Pipeline<Seen>, fua: bool, outcome: Outcome) {
    let ios = begin(pipeline, Op::Write, fua);
    assert_eq!(end(pipeline, &ios, outcome), Some(outcome));
}

fn flush(pipeline: &mut Pipeline<Seen>) -> Outcome {
    let ios = begin(pipeline, Op::Flush, false);
    end(pipeline, &ios, Ok(())).expect("a flush is answered")
}

/// After a reset of the unit every flush fails if a write had ended that no flush covers, and none if nothing was there to
/// lose.
#[test]
fn flushes_fail_after_a_loss_and_only_then() {
    type Life = fn(&mut Pipeline<Seen>);
    let lives: [(&str, Life, bool); 6] = [
        ("a write", |unit| write(unit, false, Ok(())), true),
        ("nothing", |_| (), false),
        ("a write with FUA", |unit| write(unit, true, Ok(())), false),
        ("a write that has failed", |unit| write(unit, false, Err(IoError::NoSpace)), false),
        (
            "a write and its flush",
            |unit| {
                write(unit, false, Ok(()));
                flush(unit).unwrap();
            },
            false,
        ),
        (
            "a write that ended after the flush had begun",
            |unit| {
                let flush = begin(unit, Op::Flush, false);
                write(unit, false, Ok(()));
                assert_eq!(end(unit, &flush, Ok(())), Some(Ok(())));
            },
            true,
        ),
    ];
    for (name, life, lost) in lives {
        let mut unit = over(1);
        life(&mut unit);
        step(&mut unit, 0, Input::UnitReset(UNIT));
        let wanted = if lost { Err(IoError::Medium) } else { Ok(()) };
        assert_eq!([flush(&mut unit), flush(&mut unit)], [wanted; 2], "{name}");
        step(&mut unit, 0, Input::UnitReset(UNIT));
        assert_eq!(unit.observer().lost.len(), usize::from(lost), "{name}: one event");
        assert_eq!(unit.is_lost(VolumeId::new(0)), lost, "{name}");
        write(&mut unit, true, Ok(()));
    }
}

/// A flush that is at storage during the reset fails as well: what it covers may be gone.
#[test]
fn a_flush_under_way_fails() {
    let mut unit = over(1);
    write(&mut unit, false, Ok(()));
    let flush = begin(&mut unit, Op::Flush, false);
    step(&mut unit, 0, Input::UnitReset(UNIT));
    assert_eq!(end(&mut unit, &flush, Ok(())), Some(Err(IoError::Medium)));
}

/// A write that is at storage during the reset is sent again when it is answered well: the unit may have done it before, and
/// lost it while the answer was on its way. One with FUA is durable, and a failure is final.
#[test]
fn a_write_under_way_is_sent_again() {
    let mut unit = over(1);
    let first = begin(&mut unit, Op::Write, false);
    step(&mut unit, 0, Input::UnitReset(UNIT));
    let again = ios(&step(&mut unit, 0, Input::Stored { key: first[0].key, outcome: Ok(()) }));
    assert_eq!(again, first);
    assert_eq!(end(&mut unit, &again, Ok(())), Some(Ok(())));
    assert_eq!(flush(&mut unit), Ok(()));
    for (fua, outcome) in [(true, Ok(())), (false, Err(IoError::NoSpace))] {
        let write = begin(&mut unit, Op::Write, fua);
        step(&mut unit, 0, Input::UnitReset(UNIT));
        assert_eq!(end(&mut unit, &write, outcome), Some(outcome));
    }
    assert_eq!(flush(&mut unit), Ok(()));
}

/// A path that is lost and works again is no sign of a loss.
#[test]
fn a_lost_path_loses_nothing() {
    let mut unit = over(1);
    write(&mut unit, false, Ok(()));
    step(&mut unit, 0, Input::PathDown(UNIT, PathId::new(0)));
    step(&mut unit, 0, Input::PathUp(UNIT, PathId::new(0)));
    assert_eq!(flush(&mut unit), Ok(()));
}

/// A unit that says that it has lost a write is believed, whatever was flushed: without a log nothing has that write.
#[test]
fn a_lost_write_is_a_loss_in_any_case() {
    let mut unit = over(1);
    step(&mut unit, 0, Input::WriteLost(UNIT));
    assert_eq!(flush(&mut unit), Err(IoError::Medium));
}

/// A unit that was reset loses nothing of the other parts of a volume.
#[test]
fn another_part_loses_nothing() {
    let mut unit = over(2);
    write(&mut unit, false, Ok(()));
    step(&mut unit, 0, Input::UnitReset(BackendId::new(1)));
    assert_eq!(flush(&mut unit), Ok(()));
    write(&mut unit, false, Ok(()));
    step(&mut unit, 0, Input::UnitReset(UNIT));
    assert_eq!(flush(&mut unit), Err(IoError::Medium));
}
