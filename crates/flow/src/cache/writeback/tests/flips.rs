//! Rot: every byte of a small log in turn.

use super::rig::Rig;
use super::small;
use crate::cache::writeback::format::{Super, batch_most, crc32c, decode_batch, encode_batch};
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
    for i in 0..12_u64 {
        let count = 1 + (i % 3) as usize;
        let kind = kinds[i as usize % kinds.len()];
        rig.ask(Some(kind), (i as usize * 5) % 13, count, false);
        assert!(rig.until(50, |rig| rig.outstanding() == 0), "a write is acknowledged");
        if i == 6 {
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
            let bytes = &rig.disk.durable;
            let mut device = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok::<_, ()>(())
            };
            let seen = inspect(&mut device, bytes.len() as u64);
            match (rig.recover(), seen) {
                (Ok(recovered), Ok(seen)) => {
                    assert_eq!(seen.gaps, [], "byte {at}");
                    assert!(
                        seen.flaws.iter().all(|flaw| !flaw.kind.is_damage()),
                        "byte {at}: {:?}",
                        seen.flaws
                    );
                    let records = seen.batches.iter().flat_map(Located::numbered);
                    let dirty = records
                        .filter(|(seq, record)| *seq > seen.applied && record.kind.is_data());
                    let dirty: Vec<u64> = dirty.map(|(_, record)| record.payload.into()).collect();
                    assert_eq!(
                        recovered.dirty(),
                        (dirty.iter().sum(), dirty.len() as u64),
                        "byte {at}"
                    );
                    met[0] += 1;
                }
                (Err(Refusal::Damaged { .. }), Ok(seen)) => {
                    let damage = seen.flaws.iter().any(|flaw| flaw.kind.is_damage());
                    assert!(damage || !seen.gaps.is_empty(), "byte {at}: {:?}", seen.flaws);
                    met[1] += 1;
                }
                (found, seen) => panic!("byte {at}: {found:?}, {seen:?}"),
            }
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
