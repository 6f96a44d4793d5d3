//! Lost ranges: reads fail there, and what overwrites them is answered when that is kept.

use super::{LogSettings, Rig};
use crate::cache::lines::SECTOR;
use crate::cache::quarantine::LostRange;
use crate::cache::stage::{Done, Work};
use crate::cache::writeback::{Found, Mode, recover};
use crate::error::IoError;
use crate::pipeline::Input;
use crate::request::{Op, Request, Tag, VolumeId};
use crate::testing;
use crate::units::Extent;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A request of 512-byte sectors, with payload that depends on its tag.
fn sectors(tag: u64, op: Op, first: u64, count: u64) -> (Request, Vec<u8>) {
    let extent = Extent::new(first * SECTOR, count * SECTOR);
    (
        Request { op, extent, ..testing::request(tag) },
        alloc::vec![tag as u8; extent.length as usize],
    )
}

/// Data that the log cannot give any more blocks write-back; an operator's order gives it up, once that is kept: then
/// write-back continues, reads of it fail, and everything else is served. What a host overwrites is not lost any more,
/// and the host has its answer when that is kept, too.
#[test]
fn lost_data_fails_until_it_is_overwritten() {
    let volume = VolumeId::new(0);
    let mut rig = Rig::logged(3, 0, "off", |_| ());
    let ask = |rig: &mut Rig, tag, op, first, count| {
        let (request, payload) = sectors(tag, op, first, count);
        rig.arrive(request, payload);
    };
    // The cache's own requests have other tags.
    rig.next = 1_000;
    ask(&mut rig, 101, Op::Write, 16, 8);
    while rig.ended == 0 {
        rig.answer();
    }
    let mut dirty = Vec::new();
    rig.pipeline.cache().log(volume).unwrap().look_up(Extent::new(8192, 4096), &mut dirty);
    let Found::Log(span) = dirty[0].found else { panic!("{dirty:?}") };
    rig.log[span.at as usize + 700] ^= 1;
    ask(&mut rig, 102, Op::Write, 40, 4);
    rig.settle();
    let lost = |rig: &Rig| rig.pipeline.cache().lost(volume).to_vec();
    let unreadable = |rig: &Rig| rig.pipeline.cache().log(volume).unwrap().unreadable();
    let Some((extent, seq)) = unreadable(&rig) else { panic!("it is blocked") };
    assert_eq!(extent, Extent::new(8192, 4096));

    rig.full = true;
    rig.give(Input::Cache(Done::Quarantine(volume, 5)));
    rig.settle();
    assert_eq!((unreadable(&rig), &rig.kept), (Some((extent, seq)), &Vec::new()));
    assert!(!rig.pipeline.cache().gives_up(volume), "it cannot be kept: the order has ended");
    rig.full = false;
    rig.give(Input::Cache(Done::Quarantine(volume, 5)));
    ask(&mut rig, 103, Op::Read, 0, 128);
    assert_eq!(rig.errors, [(Tag(103), IoError::Medium)]);
    assert!(unreadable(&rig).is_some(), "it is not kept yet");
    assert!(rig.pipeline.cache().gives_up(volume));
    rig.settle();
    assert!(!rig.pipeline.cache().gives_up(volume));
    assert_eq!(rig.kept, [LostRange { extent, seq, since: 5 }]);
    assert_eq!((unreadable(&rig), &rig.storage[8192..12288]), (None, &[0; 4096][..]));
    assert_eq!(rig.storage[40 * 512..44 * 512], [102; 2048]);

    for (tag, op, first, count, fails) in [
        (104, Op::Read, 16, 8, true),
        (105, Op::Read, 23, 2, true),
        (106, Op::Verify, 10, 7, true),
        (107, Op::Read, 24, 8, false),
        (108, Op::Read, 8, 8, false),
    ] {
        ask(&mut rig, tag, op, first, count);
        rig.settle();
        assert_eq!(rig.errors.last() == Some(&(Tag(tag), IoError::Medium)), fails, "{tag}");
    }

    // What cannot be kept is an error, and stays lost: the same request again must be kept, too.
    rig.full = true;
    ask(&mut rig, 109, Op::Write, 18, 2);
    rig.settle();
    assert_eq!(rig.errors.last(), Some(&(Tag(109), IoError::Medium)));
    rig.full = false;
    ask(&mut rig, 110, Op::Write, 18, 2);
    for _ in 0..1_000 {
        if rig.works.iter().any(|work| matches!(work, Work::KeepLost(..))) {
            break;
        }
        rig.answer();
    }
    assert!(rig.outstanding.contains_key(&Tag(110)), "the host has its answer when it is kept");
    rig.settle();
    assert!(rig.outstanding.is_empty() && rig.kept.len() == 2, "{:?}", rig.kept);
    ask(&mut rig, 111, Op::Read, 18, 2);
    ask(&mut rig, 112, Op::Read, 17, 2);
    rig.settle();
    assert_eq!(rig.errors.last(), Some(&(Tag(112), IoError::Medium)));
    assert!(!rig.errors.iter().any(|error| error.0 == Tag(111)));

    ask(&mut rig, 113, Op::WriteZeroes, 8, 32);
    rig.settle();
    ask(&mut rig, 114, Op::Read, 0, 128);
    rig.settle();
    assert_eq!((lost(&rig), &rig.kept), (Vec::new(), &Vec::new()));
    assert_eq!(rig.errors.last(), Some(&(Tag(112), IoError::Medium)));
    assert_eq!(rig.written.bytes, rig.storage);
}

/// What was kept as lost before a restart is lost after it, and write-back goes past the record that is still in the log.
#[test]
fn lost_data_stays_lost_over_a_restart() {
    let volume = VolumeId::new(0);
    let mut settings = LogSettings::default();
    let mut rig = Rig::logged(3, 0, "off", |log| settings = *log);
    rig.next = 1_000;
    // The second says that the first was durable: it is not taken for the torn end of the log.
    for (ended, first) in [(1, 16), (2, 40)] {
        let (request, payload) = sectors(100 + ended, Op::Write, first, 8);
        rig.arrive(request, payload);
        while rig.ended < ended {
            rig.answer();
        }
    }
    let mut dirty = Vec::new();
    rig.pipeline.cache().log(volume).unwrap().look_up(Extent::new(8192, 4096), &mut dirty);
    let Found::Log(span) = dirty[0].found else { panic!("{dirty:?}") };
    rig.log[span.at as usize] ^= 1;
    let mut again = Rig::with(4, 0, "off", Some(settings));
    let mut device = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&rig.log[at as usize..][..into.len()]);
        Ok::<_, ()>(())
    };
    let found = recover(&mut device, rig.log.len() as u64, &settings).expect("it opens");
    assert_eq!(found.dirty().1, 2);
    let range = LostRange { extent: Extent::new(8192, 4096), seq: found.last(), since: 1 };
    again.log.clone_from(&rig.log);
    again.give(Input::Cache(Done::Lost(volume, alloc::vec![range])));
    again.give(Input::Cache(Done::Recovered(volume, Arc::new(found))));
    again.settle();
    let log = again.pipeline.cache().log(volume).unwrap();
    assert_eq!((log.unreadable(), log.status(again.now).dirty_records), (None, 0));
    let (request, payload) = sectors(90, Op::Read, 20, 1);
    again.arrive(request, payload);
    again.settle();
    assert_eq!(again.errors, [(Tag(90), IoError::Medium)]);
}

/// What overwrites a lost range is durable before the range is not lost any more, although the log answers from memory: a
/// crash would uncover what is older than the data that was lost. The host is not one that flushes by that.
#[test]
fn a_range_heals_when_the_overwrite_is_durable() {
    let volume = VolumeId::new(0);
    let range = LostRange { extent: Extent::new(8192, 4096), seq: 1, since: 1 };
    for (op, first, heals) in
        [(Op::Write, 18, true), (Op::WriteZeroes, 18, true), (Op::Write, 64, false)]
    {
        let mut rig = Rig::logged(3, 0, "off", |log| log.mode = Mode::Ram);
        rig.next = 1_000;
        rig.give(Input::Cache(Done::Lost(volume, alloc::vec![range])));
        let (request, payload) = sectors(101, op, first, 2);
        rig.arrive(request, payload);
        let status = |rig: &Rig| rig.pipeline.cache().log(volume).unwrap().status(rig.now);
        let keeps = |rig: &Rig| rig.works.iter().any(|work| matches!(work, Work::KeepLost(..)));
        while rig.ended == 0 && !keeps(&rig) {
            rig.answer();
        }
        assert_eq!((keeps(&rig), rig.ended), (heals, u64::from(!heals)), "{op:?}");
        assert_eq!(status(&rig).durable >= status(&rig).last, heals, "{op:?}");
        assert!(status(&rig).strict, "{op:?}");
        rig.settle();
        let left = rig.pipeline.cache().lost(volume).len();
        assert_eq!((rig.ended, left), (1, if heals { 2 } else { 1 }), "{op:?}");
    }
}

/// The same without a log, where storage may have a volatile cache: it gets the write with FUA.
#[test]
fn a_range_without_a_log_heals_by_fua() {
    let volume = VolumeId::new(0);
    let range = LostRange { extent: Extent::new(8192, 4096), seq: 1, since: 1 };
    for (op, first, heals) in [
        (Op::Write, 18, true),
        (Op::Discard, 18, true),
        (Op::WriteZeroes, 18, true),
        (Op::Write, 64, false),
    ] {
        let mut rig = Rig::new(3, 0, "off");
        rig.next = 1_000;
        rig.give(Input::Cache(Done::Lost(volume, alloc::vec![range])));
        let (request, payload) = sectors(101, op, first, 2);
        rig.arrive(request, payload);
        assert_eq!(rig.ios.iter().map(|io| io.fua).collect::<Vec<_>>(), [heals], "{op:?}");
        rig.settle();
        assert_eq!((rig.ended, rig.kept.len()), (1, if heals { 2 } else { 0 }), "{op:?}");
    }
}

/// A request that reads storage and waits for the log to be there fails if its range is given up meanwhile: storage has older
/// data.
#[test]
fn a_request_that_waits_for_lost_data_fails() {
    let volume = VolumeId::new(0);
    for op in [Op::Verify, Op::Update] {
        let mut rig = Rig::logged(3, 0, "off", |_| ());
        rig.next = 1_000;
        let (request, payload) = sectors(101, Op::Write, 16, 8);
        rig.arrive(request, payload);
        while rig.ended == 0 {
            rig.answer();
        }
        let mut dirty = Vec::new();
        rig.pipeline.cache().log(volume).unwrap().look_up(Extent::new(8192, 4096), &mut dirty);
        let Found::Log(span) = dirty[0].found else { panic!("{dirty:?}") };
        rig.log[span.at as usize + 700] ^= 1;
        let (request, payload) = sectors(102, op, 16, 8);
        rig.arrive(request, payload);
        while rig.pipeline.cache().log(volume).unwrap().unreadable().is_none() {
            rig.answer();
        }
        assert!(rig.outstanding.contains_key(&Tag(102)), "write-back is blocked");
        rig.give(Input::Cache(Done::Quarantine(volume, 5)));
        rig.settle();
        assert_eq!(rig.errors, [(Tag(102), IoError::Medium)], "{op:?}");
    }
}
