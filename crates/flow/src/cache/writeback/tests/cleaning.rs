//! The cleaning of a log in corners: faults, little room, much to look at, and promises that are stricter.

use super::rig::{Rig, Running};
use super::small;
use crate::cache::writeback::clean::{AGAIN, LOOK, PAUSE};
use crate::cache::writeback::format::Descriptor;
use crate::cache::writeback::inspect::inspect;
use crate::cache::writeback::{Kind, Mode, Order, Settings, Sync};
use crate::clock::Duration;
use crate::error::IoError;
use alloc::vec::Vec;

/// Hosts that flush, and wait for room, beside an upstream that is away.
fn away(seed: u64, settings: Settings, sectors: u64) -> Rig {
    let settings = Settings { order: Order::Flush, hold: HOUR, ..settings };
    let mut rig = Rig::new(seed, settings, sectors);
    assert!(rig.pays_debt());
    rig.refusal = Some((None, IoError::PathFailed));
    rig
}

const HOUR: Duration = Duration::from_secs(3600);

fn twelve() -> Settings {
    Settings { capacity: 8192 + 12 * 32768, epoch_age: HOUR, ..small() }
}

fn copied(rig: &Rig) -> u64 {
    rig.log.status(rig.now).copied
}

/// A failed sync takes back the record that begins an epoch, and copies that name it. Written again they may be in one batch,
/// and the log is opened as ever.
#[test]
fn copies_may_stand_behind_the_beginning_of_their_epoch() {
    let age = Duration::from_millis(200);
    let settings = Settings { mode: Mode::Ram, epoch_bytes: 65536, epoch_age: age, ..twelve() };
    let mut together = 0;
    for seed in 0..20 {
        let mut rig = away(seed, settings, 64);
        let reads = |running: &Running| matches!(running, Running::Gather(..));
        let mut before = 0;
        let mut ends = |rig: &mut Rig| {
            while let Some(i) = rig.running.iter().position(|running| !reads(running)) {
                let is_sync = matches!(rig.running[i], Running::Sync(_));
                let fails = is_sync && copied(rig) > before;
                before = if is_sync { copied(rig) } else { before };
                rig.luck.local = if fails { 1000 } else { 0 };
                rig.end(i);
                rig.luck.local = 0;
                if !fails {
                    continue;
                }
                assert!(rig.until(20, |rig| rig.running.is_empty()), "it is written again");
                let mut device = |at: u64, into: &mut [u8]| {
                    rig.disk.read(at, into);
                    Ok::<_, IoError>(())
                };
                let seen = inspect(&mut device, settings.capacity).expect("it was opened");
                assert!(seen.flaws.iter().all(|flaw| !flaw.kind.is_damage()), "{:?}", seen.flaws);
                for located in &seen.batches {
                    let begin = located.batch.first;
                    let epochs = located.records.iter().filter_map(Descriptor::copied);
                    together += epochs.filter(|&epoch| epoch >= begin).count();
                }
                rig.recover().expect("a fault does no damage");
            }
        };
        // The second epoch has what the next ones overwrite, and what they do not.
        for (from, count) in [(56, 8), (0, 12)] {
            rig.ask(Some(Kind::Write), from, count, false);
            ends(&mut rig);
            rig.now += age;
        }
        for _ in 0..120 {
            if rig.rng.below(3) == 0 {
                // The next write begins an epoch, and nothing is due that makes it durable.
                rig.now += age;
                rig.pump();
                ends(&mut rig);
            }
            let (from, count) = (rig.rng.below(5), 1 + rig.rng.below(4));
            rig.ask(Some(Kind::Write), from as usize, count as usize, false);
            ends(&mut rig);
            // The epoch closes by its age in the step in which copies are ready to be written.
            if let Some(i) = rig.running.iter().position(reads)
                && rig.rng.below(2) == 0
            {
                rig.now += age;
                rig.end(i);
                ends(&mut rig);
            }
        }
        rig.running.clear();
        rig.crash(true);
        rig.check_reads();
        rig.refusal = None;
        rig.settle();
    }
    assert!(together > 10, "{together} copies of epochs that begin in their batch");
}

/// What a host was told is upstream stays there while a log that is opened again repeats what is not marked: epochs are not
/// joined then, because they would be several again, and the older ones would go back over it.
#[test]
fn what_is_told_to_be_upstream_stays() {
    let settings = Settings { sync: Sync::Upstream, epoch_bytes: 4096, ..twelve() };
    let mut rig = away(1, settings, 64);
    for from in [32, 0, 0] {
        rig.ask(Some(Kind::Write), from, 8, false);
        while !rig.running.is_empty() {
            rig.end(0);
        }
    }
    rig.refusal = None;
    rig.ask(None, 0, 0, false);
    assert!(rig.until(500, |rig| rig.outstanding() == 0), "{:?}", rig.log.status(rig.now));
    rig.crash(false);
    rig.settle();
}

/// However many pieces an epoch has, and however often a record of the segment was superseded by them, one poll looks at a
/// few: here each of many unmaps has the range of thousands of writes.
#[test]
fn a_poll_looks_at_few_pieces() {
    let (unmaps, writes) = (200, 2000);
    let records = 64;
    let settings = Settings {
        capacity: 8192 + 48 * (128 << 10),
        segment: 128 << 10,
        batch_bytes: 64 << 10,
        batch_records: records,
        epoch_bytes: 1 << 30,
        epoch_age: HOUR,
        ..small()
    };
    let mut rig = away(1, settings, 2 * writes);
    rig.judges = false;
    let ends = |rig: &mut Rig| {
        while !rig.running.is_empty() {
            rig.end(0);
        }
    };
    for i in 0..unmaps {
        rig.ask(Some(Kind::Unmap), 0, 2 * writes as usize, false);
        if i % 64 == 63 {
            ends(&mut rig);
        }
    }
    ends(&mut rig);
    for i in 0..2 * writes as usize {
        rig.ask(Some(Kind::Write), i % writes as usize * 2, 1, false);
        if i % 64 == 63 {
            ends(&mut rig);
        }
    }
    // Polls that come more often than its pauses end do not keep it from going on.
    let before = rig.log.visited();
    for _ in 0..100 {
        rig.now += Duration::from_micros(10);
        rig.pump();
        ends(&mut rig);
    }
    let seen = rig.log.visited() - before;
    assert!(PAUSE == Duration::from_micros(100) && seen > u64::from(5 * LOOK), "{seen} pieces");
    let is_clean = |rig: &Rig| {
        let status = rig.log.status(rig.now);
        status.held * 2 <= status.dirty_bytes * 3
    };
    assert!(rig.until(20_000, is_clean), "{:?}", rig.log.status(rig.now));
    // A batch of copies is composed in the same poll at most.
    let most = u64::from(LOOK + 2 * records);
    assert!(rig.looked <= most, "{} pieces in one poll", rig.looked);
    assert!(rig.looked >= u64::from(LOOK / 2), "there was more to look at: {}", rig.looked);
    assert!(rig.log.visited() > unmaps * writes, "{}", rig.log.visited());
    rig.judges = true;
    rig.crash(true);
    rig.check_reads();
    rig.refusal = None;
    rig.settle();
}

/// A segment of which nothing is needed is given up in a log that has no room for copies.
#[test]
fn garbage_leaves_a_log_without_room() {
    // A batch is one write of 31 sectors, and a segment has seven.
    let settings = Settings {
        capacity: 8192 + 12 * (128 << 10),
        segment: 128 << 10,
        epoch_bytes: 1 << 30,
        epoch_age: HOUR,
        ..small()
    };
    let mut rig = away(1, settings, 2048);
    let write = |rig: &mut Rig, block: usize| {
        rig.ask(Some(Kind::Write), block * 31, 31, false);
        assert!(rig.until(200, |rig| rig.outstanding() == 0), "{:?}", rig.log.status(rig.now));
        let status = rig.log.status(rig.now);
        (status.segments.1, status.held == status.logged)
    };
    // What the first segment has is overwritten before there is much to clean.
    for block in (0..40).chain(0..7) {
        write(&mut rig, block);
    }
    let seen: Vec<_> = (0..20).map(|_| write(&mut rig, 50)).collect();
    let given_up = seen.iter().position(|&(_, whole)| !whole);
    let Some(i) = given_up else { panic!("{seen:?}: free places, and whether all is held") };
    assert!(seen[i].0 < 3 && copied(&rig) == 0, "{seen:?}, {} copied", copied(&rig));
    rig.crash(true);
    rig.check_reads();
    rig.refusal = None;
    rig.settle();
}

/// A segment that could not be read is read again after a while by itself, and at once when an operator says so.
#[test]
fn what_cannot_be_read_is_read_again() {
    for retried in [false, true] {
        read_again(retried);
    }
}

fn read_again(retried: bool) {
    let mut rig = away(1, Settings { epoch_bytes: 1 << 30, ..twelve() }, 64);
    rig.rotten = true;
    rig.ask(Some(Kind::Write), 40, 16, false);
    let mut failed = 0;
    let overwrite = |rig: &mut Rig, failed: &mut u64, rotten: bool| {
        rig.ask(Some(Kind::Write), 0, 8, false);
        while let Some(running) = rig.running.first() {
            let at = match running {
                Running::Gather(_, spans) if rotten => Some(spans[0].1.at as usize),
                _ => None,
            };
            let Some(at) = at else {
                rig.end(0);
                continue;
            };
            *failed += 1;
            rig.disk.durable[at] ^= 1;
            rig.end(0);
            rig.disk.durable[at] ^= 1;
        }
    };
    for _ in 0..20 {
        overwrite(&mut rig, &mut failed, true);
    }
    assert_eq!((failed, copied(&rig)), (1, 0), "it is not read again at once");
    if retried {
        rig.log.retry();
    } else {
        let until = rig.now + AGAIN;
        while rig.now < until {
            rig.sleep(until);
        }
    }
    for _ in 0..4 {
        overwrite(&mut rig, &mut failed, false);
    }
    assert!(copied(&rig) > 0);
    rig.check_reads();
    rig.refusal = None;
    rig.settle();
}

/// In mode `ram` copies are durable, and their segment is given up, as soon as the log device allows: no host and no age of an
/// epoch is waited for.
#[test]
fn cleaning_asks_for_its_syncs() {
    let settings = Settings { mode: Mode::Ram, epoch_bytes: 1 << 30, ..twelve() };
    let mut rig = away(1, settings, 64);
    rig.ask(Some(Kind::Write), 40, 16, false);
    for _ in 0..20 {
        rig.ask(Some(Kind::Write), 0, 8, false);
        while !rig.running.is_empty() {
            rig.end(0);
        }
        if copied(&rig) > 0 {
            break;
        }
    }
    let status = rig.log.status(rig.now);
    assert!(status.copied > 0 && status.durable == status.last, "{status:?}");
    assert!(status.held < status.logged + status.copied, "nothing is given up: {status:?}");
    rig.refusal = None;
    rig.settle();
}
