//! Data that the log cannot read any more: write-back finds the record, and goes past it on an order.

use super::rig::Rig;
use super::small;
use crate::cache::writeback::{Found, Kind, Settings};
use crate::error::IoError;
use crate::units::Extent;
use alloc::vec;
use alloc::vec::Vec;

const fn sectors(first: u64, count: u64) -> Extent {
    Extent::new(first * 512, count * 512)
}

/// A log of three neighbours in one epoch, 4 sectors each from 8 on, of which the one in the middle is damaged, and
/// write-back as far as it comes. Gives the damaged record.
fn damaged() -> (Rig, u64) {
    let mut rig = Rig::new(1, Settings { merge: 16384, ..small() }, 64);
    assert!(rig.pays_debt());
    rig.judges = false;
    rig.rotten = true;
    rig.ask(None, 0, 0, false);
    rig.refusal = Some((None, IoError::NoPath));
    for from in [8, 12, 16] {
        rig.ask(Some(Kind::Write), from, 4, false);
    }
    assert!(rig.until(50, |rig| rig.outstanding() == 0));
    rig.disk.sync();
    let mut dirty = Vec::new();
    rig.log.look_up(sectors(12, 4), &mut dirty);
    let Found::Log(span) = dirty[0].found else { panic!("{dirty:?}") };
    rig.disk.durable[span.at as usize + 600] ^= 4;
    rig.refusal = None;
    assert!(rig.until(5_000, Rig::blocked), "{:?}", rig.log.status(rig.now));
    let (extent, seq) = rig.log.unreadable().expect("the log cannot be read");
    assert_eq!(extent, sectors(12, 4), "one record, not its neighbours");
    (rig, seq)
}

/// Of neighbours that are one write only the damaged record is given up: the others go upstream, and everything after.
#[test]
fn only_the_damaged_record_is_given_up() {
    let (mut rig, seq) = damaged();
    assert_eq!(rig.log.newest_up_to(sectors(12, 4), seq), Some(vec![sectors(12, 4)]));
    rig.log.retry();
    rig.pump();
    assert!(rig.until(5_000, Rig::blocked), "it is damaged still");
    let later = rig.ask(Some(Kind::Write), 30, 2, true);
    rig.log.skip(rig.now, sectors(12, 4), seq);
    rig.log.retry();
    rig.pump();
    assert!(rig.drain(), "{:?}", rig.log.status(rig.now));
    let had = |from: usize, count| rig.far.durable[from..from + count].to_vec();
    assert_eq!([had(8, 4), had(12, 4), had(16, 4)], [[2; 4], [0; 4], [4; 4]]);
    assert_eq!(had(30, 2), [later; 2]);
    assert_eq!(rig.log.status(rig.now).dirty_bytes, 0);
    assert_eq!(rig.recover().expect("it is in use").dirty(), (0, 0));
}

/// What the log has newer of the range is not lost, and is written back.
#[test]
fn newer_data_is_not_given_up() {
    let (mut rig, seq) = damaged();
    let newer = rig.ask(Some(Kind::Write), 13, 2, true);
    let found = rig.log.newest_up_to(sectors(12, 4), seq);
    assert_eq!(found, None, "a crash may take what is newer, and then the range is lost");
    assert!(rig.until(50, |rig| rig.outstanding() == 0));
    let found = rig.log.newest_up_to(sectors(12, 4), seq);
    assert_eq!(found, Some(vec![sectors(12, 1), sectors(15, 1)]));
    rig.log.skip(rig.now, sectors(12, 4), seq);
    rig.log.retry();
    rig.pump();
    let mut dirty = Vec::new();
    rig.log.look_up(sectors(12, 4), &mut dirty);
    assert_eq!(dirty.iter().map(|part| part.extent).collect::<Vec<_>>(), [sectors(13, 2)]);
    assert!(rig.drain());
    assert_eq!(rig.far.durable[12..16], [0, newer, newer, 0]);
}

/// A restart finds the record again; told what is lost, the log goes past it.
#[test]
fn a_restart_goes_past_it_too() {
    let (mut rig, seq) = damaged();
    rig.crash(false);
    rig.log.skip(rig.now, sectors(12, 4), seq);
    rig.pump();
    assert!(rig.drain(), "{:?}", rig.log.status(rig.now));
    assert_eq!(rig.far.durable[12..16], [0; 4]);
}
