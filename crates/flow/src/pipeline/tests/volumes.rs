//! Volumes that come and go while others are served.

use super::*;
use crate::cache::{Done, Work, writeback};

/// A volume at this place, on this backend, which it brings along if `brings`.
fn added(id: u32, backend: u32, brings: bool) -> Input {
    let volume = Volume {
        capacity: 1 << 16,
        layout: Layout::One(BackendId::new(backend)),
        max_transfer: 4 << 10,
        cap: Cap::default(),
    };
    let backends = vec![Backend::alike(1); usize::from(brings)];
    let id = VolumeId::new(id);
    let (owner, log) = (TenantId::new(0), None);
    Input::VolumeAdded(Arc::new(VolumeAdded { id, volume, backends, owner, log }))
}

fn arrive(tag: u64, volume: u32, op: Op, offset: u64) -> Input {
    let volume = VolumeId::new(volume);
    let length = if op == Op::Flush { 0 } else { 512 };
    Input::Arrive(Request { volume, ..request(tag, op, offset, length) })
}

fn stored(io: StoreIo) -> Input {
    Input::Stored { key: io.key, outcome: Ok(()) }
}

/// Ends an I/O of one request, and sends its reply.
fn end(pipeline: &mut Pipeline<Seen>, now: u64, io: StoreIo) -> Outcome {
    let told = step(pipeline, now, stored(io));
    let [Action::Transfer { key, outcome, part, .. }] = told[..] else { panic!("{told:?}") };
    assert_eq!(step(pipeline, now, Input::Sent { key, bytes: part.length }), []);
    outcome
}

/// A volume that comes is served on the backend that it brings along, while the I/O of another continues; when it has
/// gone nothing of it is done any more, and it can come back. Whatever the dispatch policy.
#[test]
fn a_volume_comes_and_goes_beside_another() {
    for policy in dispatch::POLICIES {
        let mut config = config();
        config.policies.dispatch = Choice::named(dispatch::POLICIES, policy.name).unwrap();
        let mut pipeline = Pipeline::new(&config, Seen::default());
        let [other] = ios(&step(&mut pipeline, 0, arrive(1, 0, Op::Write, 0)))[..] else {
            panic!()
        };
        assert_eq!(step(&mut pipeline, 1, added(1, 1, true)), []);
        let [io] = ios(&step(&mut pipeline, 2, arrive(2, 1, Op::Write, 4_096)))[..] else {
            panic!()
        };
        assert_eq!((io.volume, io.backend), (VolumeId::new(1), BackendId::new(1)));
        // It has a request, and then a reply that has not left: it stays until it is asked again.
        let one = VolumeId::new(1);
        assert_eq!(step(&mut pipeline, 3, Input::VolumeRemoved(one)), []);
        let told = step(&mut pipeline, 4, stored(io));
        let [Action::Transfer { key, part, .. }] = told[..] else { panic!("{told:?}") };
        assert_eq!(step(&mut pipeline, 4, Input::VolumeRemoved(one)), []);
        let sent = Input::Sent { key, bytes: part.length };
        assert_eq!(step(&mut pipeline, 5, sent), []);
        assert_eq!((pipeline.observer().strays, pipeline.observer().volumes.1.len()), (0, 0));
        assert_eq!(step(&mut pipeline, 5, Input::VolumeRemoved(one)), []);
        assert_eq!(pipeline.observer().volumes.1, [one]);
        for (tag, op) in [(3, Op::Write), (4, Op::Flush)] {
            let told = step(&mut pipeline, 6, arrive(tag, 1, op, 0));
            assert_eq!(replies(&told)[0].2, Err(IoError::OutOfRange), "{op:?}");
        }
        assert_eq!(step(&mut pipeline, 7, added(1, 1, false)), []);
        let [io] = ios(&step(&mut pipeline, 8, arrive(5, 1, Op::Read, 0)))[..] else { panic!() };
        assert_eq!(end(&mut pipeline, 9, io), Ok(()));
        // A place that has a volume takes no other.
        assert_eq!(step(&mut pipeline, 10, added(1, 2, true)), []);
        assert_eq!(pipeline.observer().strays, 1);
        assert_eq!(end(&mut pipeline, 11, other), Ok(()));
        assert_eq!(pipeline.observer().volumes, (vec![one, one], vec![one]));
    }
}

/// A volume that has lost acknowledged data has not when it has come back: it was flushed and opened anew.
#[test]
fn a_volume_that_comes_back_is_not_lost() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    step(&mut pipeline, 0, added(1, 1, true));
    let [io] = ios(&step(&mut pipeline, 1, arrive(1, 1, Op::Write, 0)))[..] else { panic!() };
    assert_eq!(end(&mut pipeline, 2, io), Ok(()));
    step(&mut pipeline, 3, Input::UnitReset(BackendId::new(1)));
    assert!(pipeline.is_lost(VolumeId::new(1)));
    step(&mut pipeline, 4, Input::VolumeRemoved(VolumeId::new(1)));
    step(&mut pipeline, 5, added(1, 1, false));
    assert!(!pipeline.is_lost(VolumeId::new(1)) && !pipeline.is_lost(VolumeId::new(0)));
}

/// Gives it an input, and ends all that it asks for then; whether a log has closed.
fn settle(pipeline: &mut Pipeline<Seen>, now: u64, input: Input) -> bool {
    let (mut told, mut closed) = (VecDeque::from(step(pipeline, now, input)), false);
    while let Some(action) = told.pop_front() {
        let input = match action {
            Action::Cache(Work::Sync { volume, io }) => {
                Input::Cache(Done::Logged { volume, io, outcome: Ok(()) })
            }
            Action::Cache(Work::Log { volume, write }) => {
                Input::Cache(Done::Logged { volume, io: write.write.io, outcome: Ok(()) })
            }
            Action::Cache(Work::Reserve { job, .. }) => {
                Input::Cache(Done::Reserved { job, tag: Tag(1_000) })
            }
            Action::Store(io) => stored(io),
            other => {
                closed |= matches!(other, Action::Cache(Work::Closed(_)));
                continue;
            }
        };
        told.extend(step(pipeline, now, input));
    }
    closed
}

/// A volume with a log goes when that has closed, and not before it was opened. When it has come back it has the log that it
/// comes with; when it has come back without one, none.
#[test]
fn a_volume_goes_when_its_log_has_closed() {
    let (mut pipeline, one) = (Pipeline::new(&config(), Seen::default()), VolumeId::new(1));
    let settings = writeback::Settings::default();
    let logged = |backend, brings| {
        let Input::VolumeAdded(added) = added(1, backend, brings) else { unreachable!() };
        let log = Some(settings);
        Input::VolumeAdded(Arc::new(VolumeAdded { log, ..(*added).clone() }))
    };
    let opened = || {
        let empty = writeback::Recovered::empty(&settings, [1; 16], 1, 1);
        Input::Cache(Done::Recovered(one, Arc::new(empty)))
    };
    for round in 0..2_u32 {
        let now = 10 * u64::from(round);
        let gone = |pipeline: &Pipeline<Seen>| pipeline.observer().volumes.1.len() as u32 - round;
        assert_eq!(step(&mut pipeline, now, logged(1, round == 0)), []);
        assert_eq!(step(&mut pipeline, now + 1, Input::VolumeRemoved(one)), []);
        assert_eq!(gone(&pipeline), 0, "its log was not opened");
        assert!(!settle(&mut pipeline, now + 2, opened()));
        assert_eq!(step(&mut pipeline, now + 3, Input::VolumeRemoved(one)), []);
        assert_eq!(gone(&pipeline), 0, "its log is open");
        assert!(settle(&mut pipeline, now + 4, Input::Cache(Done::Close(one))));
        assert_eq!(step(&mut pipeline, now + 5, Input::VolumeRemoved(one)), []);
        assert_eq!(gone(&pipeline), 1);
        assert!(pipeline.cache().log(one).is_none());
    }
    step(&mut pipeline, 20, added(1, 1, false));
    assert_eq!(ios(&step(&mut pipeline, 21, arrive(1, 1, Op::Write, 0))).len(), 1);
    assert_eq!(pipeline.observer().strays, 0);
}
