//! Small exhaustive runs: orders of operations, with a crash at every step.

use super::rig::{Rig, Running};
use super::small;
use crate::cache::writeback::format::batch_most;
use crate::cache::writeback::{Kind, Mode, Order, Phase, Settings, Sync, Why};
use crate::clock::Duration;
use crate::settings::Settings as _;

const KINDS: [Kind; 3] = [Kind::Write, Kind::Zero, Kind::Unmap];

/// Unmaps and zeroes keep their place among writes: every order of three operations on overlapping
/// blocks, with a flush at every place, and a crash at every step.
#[test]
fn unmaps_are_ordered_with_writes() {
    for order in 0..27_usize {
        let kinds = [order % 3, order / 3 % 3, order / 9].map(|i| KINDS[i]);
        for flush in 0..4 {
            for crash in 0..40 {
                let seed = (order * 1000 + flush * 100 + crash) as u64;
                let mut rig = Rig::new(seed, small(), 16);
                let mut steps = 0;
                for (i, kind) in kinds.into_iter().enumerate() {
                    rig.ask(Some(kind), 2 * i, 6, false);
                    if flush == i + 1 {
                        rig.ask(None, 0, 0, false);
                    }
                    // One after the other, as overlapping requests come.
                    while rig.outstanding() > 0 && steps < crash {
                        advance(&mut rig);
                        steps += 1;
                    }
                    if rig.outstanding() > 0 {
                        break;
                    }
                }
                while steps < crash {
                    advance(&mut rig);
                    steps += 1;
                }
                rig.crash(true);
                rig.settle();
            }
        }
    }
}

/// One step: the end of anything that runs, or the next deadline.
fn advance(rig: &mut Rig) {
    if rig.running.is_empty() {
        let until = rig.now + Duration::from_millis(300);
        rig.sleep(until);
    } else {
        let i = rig.rng.below(rig.running.len() as u64) as usize;
        rig.end(i);
    }
}

/// Writers of single sectors of one line do not disturb each other, whatever crashes.
#[test]
fn neighbours_keep_their_sectors() {
    for seed in 0..60 {
        let mut rig = Rig::new(seed, small(), 8);
        for _ in 0..400 {
            let sector = rig.rng.below(8) as usize;
            if rig.rng.below(3) == 0 && !rig.in_flight(sector, 1) {
                let fua = rig.rng.below(8) == 0;
                rig.ask(Some(Kind::Write), sector, 1, fua);
            } else if rig.rng.below(100) == 0 {
                rig.crash(true);
                rig.check_reads();
            } else {
                advance(&mut rig);
            }
        }
        rig.settle();
    }
}

/// A log of three batches, writes larger than the log, and storms of flushes: everything ends, nothing
/// is refused, and no flush waits for a write that waits for room.
#[test]
fn nothing_waits_for_itself() {
    let segment = 4096 + batch_most(4096, 4);
    for mode in [Mode::Log, Mode::Ram] {
        for sync in [Sync::Local, Sync::Upstream] {
            let settings = Settings {
                mode,
                sync,
                batch_bytes: 4096,
                batch_records: 4,
                segment,
                capacity: 8192 + 3 * segment,
                ..small()
            };
            assert_eq!(settings.validate(), Ok(()));
            for seed in 0..20 {
                let mut rig = Rig::new(seed, settings, 256);
                for _ in 0..60 {
                    if rig.rng.below(3) > 0 {
                        rig.ask(None, 0, 0, false);
                    } else {
                        let (from, fua) = (rig.rng.below(128) as usize, rig.rng.below(2) == 0);
                        let count = 1 + rig.rng.below(128) as usize;
                        let kind = KINDS[(rig.rng.below(5) as usize).saturating_sub(2)];
                        if !rig.in_flight(from, count) {
                            rig.ask(Some(kind), from, count, fua);
                        }
                    }
                    for _ in 0..rig.rng.below(10) {
                        advance(&mut rig);
                    }
                }
                rig.settle();
                assert!(rig.asked.iter().all(|one| one.acked.is_some()));
                assert_eq!(rig.log.status(rig.now).busy, 0);
            }
        }
    }
}

/// While writes wait for room because the upstream is away, a flush is answered from the log.
#[test]
fn a_flush_does_not_wait_for_room() {
    let segment = 4096 + batch_most(4096, 4);
    let settings = Settings {
        batch_bytes: 4096,
        batch_records: 4,
        segment,
        capacity: 8192 + 3 * segment,
        ..small()
    };
    let mut rig = Rig::new(1, settings, 256);
    assert!(rig.pays_debt());
    rig.refusal = Some((None, crate::error::IoError::NoPath));
    for i in 0..8 {
        rig.ask(Some(Kind::Write), i * 16, 8, false);
    }
    let waits = |rig: &Rig| rig.log.status(rig.now).waiting.count > 0 && rig.running.is_empty();
    assert!(rig.until(200, waits), "the log is too small for all of them");
    let before = rig.outstanding();
    let flush = rig.ask(None, 0, 0, false);
    assert!(rig.asked[flush as usize - 1].acked.is_some(), "{:?}", rig.log.status(rig.now));
    assert_eq!(rig.outstanding(), before);
}

/// The n-th write or sync of the log device fails, and the next succeeds: what was in it is written
/// again elsewhere before a host is answered, whichever it was, also across a power cut at any time later.
#[test]
fn a_failed_sync_is_final() {
    let mut again = 0;
    for mode in [Mode::Log, Mode::Ram] {
        for n in 1..40 {
            for crash in [5, 10, 20, 40, 80] {
                let settings = Settings { mode, ..small() };
                let mut rig = Rig::new(n * 100 + crash, settings, 64);
                rig.failing = n..n + 1;
                for step in 0..crash {
                    let from = rig.rng.below(60) as usize;
                    match step % 6 {
                        0 if !rig.in_flight(from, 4) => {
                            rig.ask(Some(Kind::Write), from, 4, step % 4 == 0);
                        }
                        3 => {
                            rig.ask(None, 0, 0, false);
                        }
                        _ => advance(&mut rig),
                    }
                    rig.check_reads();
                }
                again += rig.log.status(rig.now).faults;
                rig.crash(true);
                rig.check_reads();
                rig.settle();
            }
        }
    }
    assert!(again > 100, "the device must fail, did so {again} times");
}

/// In mode `ram` a sync fails behind several batches of acknowledged writes, and they are written again, batch by batch.
/// A flush that comes behind the first of them waits for all of them.
#[test]
fn a_flush_waits_for_what_is_written_again() {
    // In strict order an epoch ends when a write is acknowledged, and each batch is synced for its sake.
    let (mode, order) = (Mode::Ram, Order::Strict);
    let settings = Settings { mode, order, batch_bytes: 512, epoch_bytes: 1 << 20, ..small() };
    let mut rig = Rig::new(1, settings, 64);
    assert!(rig.pays_debt());
    rig.ask(Some(Kind::Write), 32, 3, false);
    let unsynced = |rig: &Rig| rig.log.status(rig.now).last - rig.log.status(rig.now).durable;
    let is_syncing = |rig: &Rig| matches!(rig.running[..], [Running::Sync(_)]);
    assert!(rig.until(10, is_syncing) && rig.outstanding() == 0 && unsynced(&rig) > 2);
    rig.luck.local = 1_000;
    rig.end(0);
    rig.luck.local = 0;
    assert!(rig.until(10, is_syncing), "the first batch is written again");
    let flush = rig.ask(None, 0, 0, false) as usize - 1;
    assert!(rig.until(100, |rig| rig.asked[flush].acked.is_some()));
    assert_eq!(unsynced(&rig), 0, "the flush is answered when all is durable");
    rig.crash(true);
    rig.check_reads();
    rig.settle();
}

/// A write is larger than the log. One batch of it fails and takes the reserve; then another one fails, so that there is no
/// place for it, and write-back cannot free one: the log has failed. Nothing is lost, and the host has an answer.
#[test]
fn what_has_no_place_any_more_goes_upstream() {
    let segment = 4096 + 2 * batch_most(4096, 4);
    let settings = Settings {
        order: Order::Flush,
        batch_bytes: 4096,
        batch_records: 4,
        segment,
        capacity: 8192 + 3 * segment,
        epoch_bytes: 1 << 20,
        ..small()
    };
    let mut failed = alloc::vec![];
    for first in 1..8 {
        let mut rig = Rig::new(1, settings, 64);
        assert!(rig.pays_debt());
        rig.ask(Some(Kind::Write), 0, 64, false);
        for batch in 1..=first + 2 {
            let writes = |rig: &Rig| matches!(rig.running[..], [Running::Write(..)]);
            assert!(rig.until(100, writes), "{first} {batch}");
            if batch == first || batch == first + 2 {
                rig.failing = 0..u64::MAX;
            }
            rig.end(0);
            rig.failing = 0..0;
        }
        assert!(rig.until(1_000, |rig| rig.outstanding() == 0), "{first}");
        rig.check_reads();
        assert_eq!(rig.log.status(rig.now).faults, 2);
        if rig.log.status(rig.now).failed {
            failed.push(first);
        }
        rig.settle();
    }
    assert_eq!(failed, [4]);
}

/// Both a batch and its second try fail: nothing is lost, everything goes upstream from memory, and only
/// when the world has remembered that the log is void do writes go past it.
#[test]
fn a_dead_log_device_loses_nothing() {
    for mode in [Mode::Log, Mode::Ram] {
        // The first sync of a new log is of no matter: it may be passed from the start.
        for n in 2..30 {
            let mut rig = Rig::new(n, Settings { mode, ..small() }, 64);
            rig.failing = n..u64::MAX;
            rig.remembers = Err(crate::error::IoError::NoPath);
            for i in 0..20 {
                let from = i * 3;
                rig.ask(Some(Kind::Write), from, 3, i % 5 == 0);
                for _ in 0..3 {
                    advance(&mut rig);
                    rig.check_reads();
                }
            }
            assert!(rig.until(3_000, |rig| rig.abandoned), "{n}: {:?}", rig.log.status(rig.now));
            let past = |rig: &Rig| rig.log.status(rig.now).phase == Phase::Through(Why::Failed);
            assert!(!rig.until(20, past), "nothing goes past a log that could still be replayed");
            rig.remembers = Ok(());
            assert!(rig.until(3_000, past));
            let from = rig.asked.len();
            rig.ask(Some(Kind::Write), 0, 3, false);
            rig.ask(None, 0, 0, false);
            assert!(rig.until(3_000, |rig| rig.outstanding() == 0));
            assert!(rig.asked.iter().all(|one| one.acked.is_some() || one.busy), "{n}");
            assert!(rig.asked[from..].iter().all(|one| one.acked.is_some()), "{n}");
            rig.settle();
        }
    }
}
