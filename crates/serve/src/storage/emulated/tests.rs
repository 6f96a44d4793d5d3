//! Modelled devices with a clock that is turned by hand.

use super::*;
use slotmap::SlotMap;
use weir_flow::clock::Duration;
use weir_flow::error::IoError;
use weir_flow::request::{BackendId, Op, PathId, Tag, VolumeId};
use weir_flow::units::Extent;
use weir_model::fixed;

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

/// A device of 100 us that serves one at a time, with two stores on it, and a store without one.
fn modelled() -> Modelled {
    let config = fixed::Config { service: Duration::from_micros(100), servers: 1 };
    let device = weir_model::Model::Fixed(config).build(SEED, "device");
    let region = Some(Region { device: 0, begin: 0, room: u64::MAX });
    Modelled {
        devices: vec![Emulated { device, armed: None, kept: Kept::default() }],
        stores: Regions(vec![region, region, None]),
        wakes: BTreeSet::new(),
        ios: SecondaryMap::new(),
    }
}

fn io(key: RequestKey) -> StoreIo {
    StoreIo {
        key,
        tag: Tag(0),
        volume: VolumeId::new(0),
        part: 0,
        backend: BackendId::new(0),
        path: PathId::new(0),
        op: Op::Read,
        extent: Extent::new(0, 4_096),
        offset_in_request: 0,
        fua: false,
    }
}

/// What ends by `now`: when, which and how.
fn due(modelled: &mut Modelled, now: Instant) -> Vec<(Instant, Input)> {
    std::iter::from_fn(|| modelled.due(now)).collect()
}

/// An I/O ends at the time of its model if the file was faster, to the nanosecond and however late the
/// timer is, and volumes on one device wait for each other; what the next one begins because of that end
/// begins then.
#[test]
fn the_model_says_when() {
    let mut keys = SlotMap::with_key();
    let [a, b, c] = [(); 3].map(|()| keys.insert(()));
    let mut modelled = modelled();
    modelled.start(at(7), &io(a), 0);
    modelled.start(at(8), &io(b), 1);
    assert_eq!(modelled.next(), Some(at(107)));
    for key in [a, b] {
        assert_eq!(modelled.stored(at(20), key, Ok(())), None, "the model is not done");
    }
    assert!(due(&mut modelled, at(106)).is_empty());
    assert_eq!(modelled.due(at(190)), Some((at(107), Input::Stored { key: a, outcome: Ok(()) })));
    modelled.start(at(107), &io(c), 0);
    assert_eq!(modelled.stored(at(110), c, Err(IoError::Medium)), None);
    let failed = Input::Stored { key: c, outcome: Err(IoError::Medium) };
    let ended = due(&mut modelled, at(400));
    assert_eq!(ended, [(at(207), Input::Stored { key: b, outcome: Ok(()) }), (at(307), failed)]);
    assert_eq!(modelled.next(), None);
}

/// Delays are counted apart: a file that is later than its model is late by the difference, and of the
/// others counts how long after the model's time the event loop asked.
#[test]
fn files_that_are_late_are_counted() {
    let mut keys = SlotMap::with_key();
    let mut modelled = modelled();
    for late in 0..10 {
        let key = keys.insert(());
        let begin = late * 1_000;
        modelled.start(at(begin), &io(key), 0);
        if late < 3 {
            assert!(due(&mut modelled, at(begin + 100)).is_empty());
            assert!(modelled.stored(at(begin + 400), key, Ok(())).is_some());
        } else {
            assert!(modelled.stored(at(begin + 90), key, Ok(())).is_none());
            assert_eq!(due(&mut modelled, at(begin + 120)).len(), 1);
        }
    }
    let (kept, wear) = modelled.kept().next().unwrap();
    assert_eq!((kept.ios, kept.late.count(), kept.timer.count()), (10, 3, 7));
    let within = |times: &Histogram, micros: u64| {
        let nanos = times.quantile(1_000_000).unwrap().as_nanos() as f64;
        (nanos / (micros as f64 * 1e3) - 1.0).abs() < 0.01
    };
    assert!(within(&kept.late, 300) && within(&kept.timer, 20), "{kept:?}");
    assert_eq!(wear, None, "it has no flash");
}

/// An I/O ends with its file if the model was faster, and at once on a volume without a model.
#[test]
fn the_file_says_when_it_is_slower() {
    let mut keys = SlotMap::with_key();
    let [a, b] = [(); 2].map(|()| keys.insert(()));
    let mut modelled = modelled();
    modelled.start(at(0), &io(a), 0);
    modelled.start(at(0), &io(b), 2);
    assert_eq!(modelled.stored(at(5), b, Ok(())), Some(Ok(())));
    assert!(due(&mut modelled, at(500)).is_empty());
    assert_eq!(modelled.stored(at(600), a, Err(IoError::NoSpace)), Some(Err(IoError::NoSpace)));
    assert!(modelled.ios.is_empty() && modelled.next().is_none());
}

/// A store that comes to a device with addresses gets a gap that is large enough, else the room behind the others, and
/// none where there is none; the room of those before it ends where it begins. Where one has gone there is room again.
#[test]
fn stores_get_room_on_a_device() {
    const MIB: u64 = 1 << 20;
    let model = weir_model::Model::Ssd(weir_model::ssd::Config::paper());
    let backend = Backend { name: String::from("d"), model };
    let capacity = model.capacity().unwrap();
    let mut regions = Regions(Vec::new());
    let mut sizes = vec![2 * MIB, 4 * MIB, MIB];
    let all = sizes.clone();
    for (store, &size) in all.iter().enumerate() {
        assert!(regions.put(store, (0, &backend), size, |store| all[store]));
    }
    let begin = |regions: &Regions, store: usize| regions.0[store].unwrap().begin;
    assert_eq!([0, 1, 2].map(|store| begin(&regions, store)), [0, 2 * MIB, 6 * MIB]);
    assert_eq!(regions.0[0].unwrap().room, 2 * MIB);
    assert_eq!(regions.0[2].unwrap().room, capacity - 6 * MIB);
    regions.0[1] = None;
    sizes.push(3 * MIB);
    assert!(regions.put(3, (0, &backend), 3 * MIB, |store| sizes[store]));
    assert_eq!((begin(&regions, 3), regions.0[3].unwrap().room), (2 * MIB, 4 * MIB));
    assert!(!regions.put(4, (0, &backend), capacity - 6 * MIB, |store| sizes[store]));
    assert!(regions.put(4, (0, &backend), capacity - 7 * MIB, |store| sizes[store]));
    assert_eq!(begin(&regions, 4), 7 * MIB);
}
