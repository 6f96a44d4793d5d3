//! Rot: every byte of a small log in turn.

use super::rig::Rig;
use super::small;
use crate::cache::writeback::format::{
    SegmentHead, Super, batch_most, crc32c, decode_batch, encode_batch,
};
use crate::cache::writeback::inspect::inspect;
use crate::cache::writeback::reader::{Located, payload};
use crate::cache::writeback::{Kind, Log, Refusal, Settings};
use crate::clock::Duration;
use crate::error::IoError;
use alloc::vec;
use alloc::vec::Vec;

/// What became of a log with one flipped byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was opened, and everything up to this operation is there, and nothing after it.
    Prefix(u64),
    /// It was refused.
    Refused,
    /// It was opened, and a record was found to be damaged when it was read.
    Found,
}

/// A log with a few segments in use, some of them upstream, and whether its end is marked.
fn log(marked: bool) -> Rig {
    log_of(12, 6, marked)
}

/// A log after this number of operations, of which those up to number `upstream`, from 0, are upstream.
fn log_of(operations: u64, upstream: u64, marked: bool) -> Rig {
    let settings = Settings {
        batch_bytes: 4096,
        batch_records: 4,
        segment: 4096 + batch_most(4096, 4) + 8192,
        capacity: 8192 + 4 * (4096 + batch_most(4096, 4) + 8192),
        epoch_bytes: 1 << 20,
        upstream_flush: false,
        ..small()
    };
    let mut rig = Rig::new(3, settings, 16);
    let kinds = [Kind::Write, Kind::Write, Kind::Zero, Kind::Write, Kind::Unmap];
    for i in 0..operations {
        let count = 1 + (i % 3) as usize;
        let kind = kinds[i as usize % kinds.len()];
        rig.ask(Some(kind), (i as usize * 5) % 13, count, false);
        assert!(rig.until(50, |rig| rig.outstanding() == 0), "a write is acknowledged");
        if i == upstream {
            assert!(rig.drain());
            // The rest stays in the log.
            rig.refusal = Some((None, IoError::NoPath));
        }
    }
    if marked {
        let until = rig.now + Duration::from_millis(150);
        while rig.now < until {
            rig.sleep(until);
            while !rig.running.is_empty() {
                rig.end(0);
            }
        }
    }
    rig
}

/// What sectors have after the first `count` operations.
fn after(rig: &Rig, count: u64) -> Vec<u64> {
    let mut sectors = vec![0; rig.far.durable.len()];
    for (number, one) in (1..=count).zip(&rig.asked) {
        let version = if one.kind == Some(Kind::Write) { number } else { 0 };
        sectors[one.from..one.from + one.count].fill(version);
    }
    sectors
}

fn fate(rig: &mut Rig) -> Fate {
    let recovered = match rig.recover() {
        Ok(recovered) => recovered,
        Err(Refusal::Device { .. } | Refusal::Short { .. }) => panic!("the device is well"),
        Err(_) => return Fate::Refused,
    };
    rig.log = Log::new(rig.settings, &recovered);
    rig.running.clear();
    rig.pump();
    rig.end(0);
    let Some(view) = rig.try_view() else { return Fate::Found };
    let view: Vec<u64> = view.into_iter().map(|version| version.expect("all is durable")).collect();
    let count = rig.asked.len() as u64;
    let prefix = (0..=count).rev().find(|&n| after(rig, n) == view);
    Fate::Prefix(prefix.expect("what is there is a prefix"))
}

/// One flipped byte, wherever it is, loses nothing silently: the log is refused, or the damage is found
/// when the record is used, or everything that was acknowledged is there. Only the last batch may be
/// taken for torn, and only while nothing behind it says that it was durable.
#[test]
fn every_byte_is_guarded() {
    for marked in [true, false] {
        let good = log(marked);
        let (image, asked) = (good.disk.durable.clone(), good.asked.len() as u64);
        let mut fates = [0_u32; 4];
        for at in 0..image.len() {
            let mut rig = good.with_disk(image.clone());
            rig.disk.durable[at] ^= if at % 2 == 0 { 0xff } else { 1 << (at % 8) };
            match fate(&mut rig) {
                Fate::Prefix(count) if count == asked => fates[0] += 1,
                Fate::Prefix(count) => {
                    assert!(!marked && count == asked - 1, "byte {at}: {count} of {asked}");
                    fates[1] += 1;
                }
                Fate::Refused => fates[2] += 1,
                Fate::Found => fates[3] += 1,
            }
        }
        // All of these must be met, or the test shows nothing.
        assert!(fates[0] > 1_000 && fates[2] > 500 && fates[3] > 500, "{fates:?}");
        assert_eq!(fates[1] > 500, !marked, "{fates:?}");
    }
}

/// Whether a log opens: an inspection finds as much that is dirty then, and something that is lost otherwise.
fn agrees(rig: &Rig, what: &str) -> bool {
    let bytes = &rig.disk.durable;
    let mut device = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&bytes[at as usize..][..into.len()]);
        Ok::<_, ()>(())
    };
    match (rig.recover(), inspect(&mut device, bytes.len() as u64)) {
        (Ok(recovered), Ok(seen)) => {
            assert_eq!(seen.gaps, [], "{what}");
            let damage = seen.flaws.iter().any(|flaw| flaw.kind.is_damage());
            assert!(!damage, "{what}: {:?}", seen.flaws);
            let records = seen.batches.iter().flat_map(Located::numbered);
            let dirty = records.filter(|(seq, record)| seen.is_dirty(*seq, record));
            let dirty: Vec<u64> = dirty.map(|(_, record)| record.payload.into()).collect();
            assert_eq!(recovered.dirty(), (dirty.iter().sum(), dirty.len() as u64), "{what}");
            true
        }
        (Err(Refusal::Damaged { .. }), Ok(seen)) => {
            let damage = seen.flaws.iter().any(|flaw| flaw.kind.is_damage());
            assert!(damage || !seen.gaps.is_empty(), "{what}: {:?}", seen.flaws);
            false
        }
        (found, seen) => panic!("{what}: {found:?}, {seen:?}"),
    }
}

/// A header that is also where another one belongs, as a misdirected write leaves it, hides nothing: the log is refused, or
/// everything that was acknowledged is there; and an inspection finds the same.
#[test]
fn a_header_elsewhere_hides_nothing() {
    let mut opened = 0;
    for operations in 4..20 {
        let good = log_of(operations, operations - 3, true);
        let image = good.disk.durable.clone();
        let segment = good.settings.segment as usize;
        let places: Vec<usize> = (8192..image.len() + 1 - segment).step_by(segment).collect();
        for (&from, &to) in places.iter().flat_map(|from| places.iter().map(move |to| (from, to))) {
            let mut rig = good.with_disk(image.clone());
            rig.disk.durable.copy_within(from..from + 512, to);
            let what = alloc::format!("{operations}: the header at {from} is at {to}, too");
            if agrees(&rig, &what) {
                assert_eq!(fate(&mut rig), Fate::Prefix(operations), "{what}");
                opened += u32::from(from != to);
            } else {
                assert_ne!(from, to, "{what}");
            }
        }
    }
    assert!(opened > 50, "{opened}");
}

/// A crash that keeps only later batches of the last segment leaves what they say of the one before: a flipped byte
/// there is not taken for the end of the log.
#[test]
fn batches_of_a_lost_segment_are_witnesses() {
    let mut met = [0_u32; 2];
    for operations in 4..20 {
        let mut good = log_of(operations, 0, false);
        let name = Super::decode(&good.disk.durable).unwrap().log;
        let segment = good.settings.segment as usize;
        let image = &good.disk.durable;
        let places = (8192..image.len() + 1 - segment).step_by(segment);
        let head = |at: usize| SegmentHead::decode(name, &image[at..]).ok();
        let mut heads: Vec<(u64, usize)> =
            places.filter_map(|at| Some((head(at)?.0.number, at))).collect();
        heads.sort_unstable();
        let [.., (_, before), (_, last)] = heads[..] else { continue };
        let batch = |at: usize| decode_batch(name, 512, 20480, image.get(at..)?).ok();
        let Some((first, ..)) = batch(last + 4096) else { continue };
        let at = last + 4096 + first.bytes as usize;
        let Some((mut second, _, mut records)) = batch(at) else { continue };
        if second.segment != first.segment {
            continue;
        }
        // As written before the first one was durable.
        second.durable = first.first - 1;
        let (bytes, _, table) = encode_batch(name, &mut second, &mut records);
        let image = &mut good.disk.durable;
        image[at..at + table as usize].copy_from_slice(&bytes[..table as usize]);
        image[last..at].fill(0);
        image[at + second.bytes as usize..last + segment].fill(0);
        let image = good.disk.durable.clone();
        // Something else may say that the first one was durable.
        let Fate::Prefix(there) = fate(&mut good.with_disk(image.clone())) else { continue };
        for at in before..before + segment {
            let mut rig = good.with_disk(image.clone());
            rig.disk.durable[at] ^= 1 << (at % 8);
            let fate = fate(&mut rig);
            assert!(!matches!(fate, Fate::Prefix(count) if count != there), "byte {at}: {fate:?}");
            if at % 32 == 0 {
                let mut rig = good.with_disk(image.clone());
                rig.disk.durable[at] ^= 1 << (at / 32 % 8);
                agrees(&rig, &alloc::format!("{operations}: byte {at}"));
            }
            met[usize::from(fate == Fate::Found)] += 1;
        }
    }
    assert!(met[0] > 10_000 && met[1] > 500, "{met:?}");
}

/// An inspection of a log with one flipped byte finds what recovery finds: as much that is dirty if it opens, and
/// something that is lost if it is refused for damage.
#[test]
fn looking_agrees_with_recovery() {
    let mut met = [0_u32; 3];
    for marked in [true, false] {
        let good = log(marked);
        for at in 0..good.disk.durable.len() {
            let mut rig = good.with_disk(good.disk.durable.clone());
            rig.disk.durable[at] ^= if at % 2 == 0 { 0xff } else { 1 << (at % 8) };
            met[usize::from(!agrees(&rig, &alloc::format!("byte {at}")))] += 1;
        }
        let mut gone = good.with_disk(good.disk.durable.clone());
        gone.disk.durable[..8192].fill(0);
        met[2] += u32::from(matches!(gone.recover(), Err(Refusal::NotALog)));
    }
    assert!(met[0] > 1_000 && met[1] > 500 && met[2] == 2, "{met:?}");
}

/// An inspection that checks every payload finds each flipped byte that counts: where it finds nothing, the log opens
/// with everything that was acknowledged. What it does not find is padding, which no checksum covers and nothing reads:
/// behind the structures of the super blocks and segment headers, behind the payload of a batch up to the next 4096
/// bytes, and behind the last batch of a segment. The last batch may be taken for torn, and only while nothing behind
/// it says that it was durable.
#[test]
fn verification_finds_what_counts() {
    let (mut found, mut padding) = (0, 0);
    for marked in [true, false] {
        let good = log(marked);
        let asked = good.asked.len() as u64;
        let verify = |bytes: &[u8]| {
            let mut device = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok::<_, ()>(())
            };
            let seen = inspect(&mut device, bytes.len() as u64).expect("a super block is intact");
            let records =
                seen.batches.iter().flat_map(|one| one.numbered().map(move |record| (one, record)));
            let rotten = records.filter(|(located, (_, record))| {
                payload(&mut device, located, record, crc32c).expect("it can be read").is_err()
            });
            (rotten.count(), alloc::format!("{:?} {:?}", seen.flaws, seen.gaps))
        };
        let well = verify(&good.disk.durable);
        for at in 0..good.disk.durable.len() {
            let mut rig = good.with_disk(good.disk.durable.clone());
            rig.disk.durable[at] ^= 1 << (at % 8);
            let verified = verify(&rig.disk.durable);
            let fate = fate(&mut rig);
            if verified == well {
                let torn = !marked && fate == Fate::Prefix(asked - 1);
                assert!(fate == Fate::Prefix(asked) || torn, "byte {at}: {fate:?}");
                padding += u32::from(!torn);
            } else {
                assert!(verified.0 > 0 || fate != Fate::Found, "byte {at}");
                found += 1;
            }
        }
    }
    assert!(found > 1_000 && padding > 1_000, "{found} found, {padding} not");
}

/// A batch is followed only by what was written after it, not by what was written after another one in
/// its place.
#[test]
fn batches_are_chained() {
    let good = log(true);
    let block = Super::decode(&good.disk.durable).unwrap();
    let (mut changed, applied) = (0, good.recover().unwrap().applied());
    for at in (8192..good.disk.durable.len()).step_by(4096) {
        let mut rig = good.with_disk(good.disk.durable.clone());
        let page = &mut rig.disk.durable[at..];
        let Ok((mut batch, _, mut records)) = decode_batch(block.log, 512, 20480, page) else {
            continue;
        };
        // Only what another batch with data follows in the same segment is chained to.
        let next = good.disk.durable.get(at + batch.bytes as usize..).unwrap_or_default();
        let follows = decode_batch(block.log, 512, 20480, next).is_ok_and(|(next, _, records)| {
            next.segment == batch.segment && records.iter().any(|one| one.kind.is_data())
        });
        if batch.first <= applied || !follows {
            continue;
        }
        // Nothing but the time of a record, with a checksum that is right.
        records[0].time += 1;
        let (head, _, table) = encode_batch(block.log, &mut batch, &mut records);
        page[..table as usize].copy_from_slice(&head[..table as usize]);
        assert_eq!(fate(&mut rig), Fate::Refused);
        changed += 1;
    }
    assert!(changed > 2, "{changed}");
}
