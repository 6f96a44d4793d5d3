//! How a log lives: fills, drains, loses its upstream, is switched off and on, is closed and refused.

use super::clocked::{Clocked, Costs};
use super::rig::{Rig, Running};
use super::small;
use crate::cache::writeback::format::{PAGE, Super, VERSION, crc32c};
use crate::cache::writeback::{
    Cause, Damage, FULL, Fua, Kind, Log, Mode, Notice, PACE, Phase, Refusal, Settings, Sync,
    Upstream, Why,
};
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use alloc::string::ToString;
use alloc::vec::Vec;

const MS: Duration = Duration::from_millis(1);

/// 1 MiB of log in 16 segments.
fn larger() -> Settings {
    Settings {
        capacity: 8192 + 16 * 65536,
        segment: 65536,
        batch_bytes: 16384,
        batch_records: 32,
        epoch_bytes: 32768,
        depth: 4,
        merge: 16384,
        ..small()
    }
}

/// An upstream at a tenth of the speed that hosts would like: no error, no lost acknowledgement, and
/// the time of a write grows with the fill without a cliff, until as much is let in as is written back.
#[test]
fn a_full_log_is_a_slope() {
    let costs = Costs { local: MS, upstream: MS, sector: Duration::from_micros(200) };
    let mut clocked = Clocked::new(larger(), 4096, costs);
    let mut buckets: [Vec<u64>; 10] = Default::default();
    let (mut waiting, mut next) = (Vec::<(u64, u32)>::new(), 0);
    let end = Instant::ZERO + Duration::from_secs(60);
    while clocked.rig.now < end {
        // Eight outstanding writes of 4 KiB each.
        while waiting.len() < 8 {
            let fill = clocked.rig.log.status(clocked.rig.now).fill;
            next = (next + 1) % 512;
            waiting.push((clocked.write(next * 8, 8), fill));
            if next % 64 == 0 {
                clocked.flush();
            }
        }
        clocked.next(end);
        waiting.retain(|&(number, fill)| {
            let one = &clocked.rig.asked[number as usize - 1];
            if one.over {
                let bucket = (fill.saturating_sub(700) / 30).min(9) as usize;
                buckets[bucket].push(one.took.as_nanos());
            }
            !one.over
        });
    }
    let status = clocked.rig.log.status(clocked.rig.now);
    assert_eq!((status.busy, clocked.rig.asked.iter().filter(|one| one.busy).count()), (0, 0));
    let rules = |rule| clocked.rig.asked.iter().filter(|one| one.rule == Some(rule)).count();
    assert!(rules(PACE) > 100 && rules(PACE) > 10 * rules(FULL), "pacing comes before holding");
    let means: Vec<(usize, u64)> = buckets
        .iter()
        .enumerate()
        .filter(|(_, took)| took.len() >= 20)
        .map(|(i, took)| (i, took.iter().sum::<u64>() / took.len() as u64))
        .collect();
    assert!(means.len() >= 3, "the log must fill step by step: {means:?}");
    for pair in means.windows(2) {
        assert!(pair[1].1 * 2 > pair[0].1, "it must not become faster: {means:?}");
        assert!(pair[1].1 < pair[0].1 * 10, "no cliff: {means:?}");
    }
    // What comes in is what goes out: 4 KiB take 1.6 ms there, so eight of them 12.8 ms.
    let last = means[means.len() - 1].1;
    assert!((8_000_000..40_000_000).contains(&last), "{means:?}");
    clocked.rig.settle();
}

/// While more comes than the upstream takes, what is dirty becomes older, up to what the log holds; when
/// the upstream keeps up again it becomes young again: no block is left behind, however often it is
/// written again.
#[test]
fn nothing_dirty_is_forgotten() {
    let costs = Costs { local: MS, upstream: MS * 5, sector: Duration::from_micros(120) };
    let mut clocked = Clocked::new(larger(), 1024, costs);
    let mut ages = Vec::new();
    for pause in [1, 20] {
        let mut oldest = Duration::ZERO;
        for i in 0..1_500 {
            clocked.write(i * 7 % 100 * 8, 8);
            if i % 10 == 0 {
                clocked.flush();
            }
            let until = clocked.rig.now + MS * pause;
            clocked.run_until(until);
            if i >= 500 {
                let age = clocked.rig.log.status(clocked.rig.now).oldest_dirty;
                oldest = oldest.max(age.unwrap_or_default());
            }
        }
        ages.push(oldest);
    }
    assert!(ages[0] > MS * 200 && ages[0] < MS * 2_000, "{ages:?}");
    assert!(ages[1] < MS * 200, "{ages:?}");
}

/// While hosts' reads keep the link busy, write-back has a tenth of it at least and less than a quarter (what a page
/// takes counts as the way there, and writes here are of two), more when its data is old; without them, or when the log
/// is nearly full, all that it needs.
#[test]
fn reads_come_first() {
    let costs = Costs { local: MS, upstream: MS, sector: Duration::from_micros(100) };
    let link = 5_120;
    // Bytes written back in a millisecond.
    let rate = |reads: u32, age: Duration, fill: usize, window: u64| {
        let capacity = larger().capacity * if fill > 100 { 2 } else { 4 };
        let settings = Settings { dirty_age: age, depth: 1, capacity, ..larger() };
        let mut clocked = Clocked::new(settings, 4096, costs);
        clocked.run_until(Instant::ZERO + MS * 50);
        clocked.rig.refusal = Some((None, IoError::NoPath));
        for i in 0..fill {
            clocked.write(i * 16, 16);
            let until = clocked.rig.now + MS * 5;
            clocked.run_until(until);
        }
        clocked.rig.refusal = None;
        clocked.rig.log.set_reads(reads, 0);
        let until = clocked.rig.now + Duration::from_secs(12);
        while clocked.rig.log.status(clocked.rig.now).upstream != Upstream::Up {
            assert!(clocked.next(until), "the upstream is tried again");
        }
        // More than the link carries in a second.
        clocked.rig.log.set_reads(reads, u64::from(reads) * link * 1_000);
        // First it finds out how far the upstream is.
        let until = clocked.rig.now + MS * 40;
        clocked.run_until(until);
        let before = (clocked.rig.now, clocked.rig.log.status(clocked.rig.now).written);
        let until = clocked.rig.now + MS * window;
        clocked.run_until(until);
        let written = clocked.rig.log.status(clocked.rig.now).written - before.1;
        written / window
    };
    let young = Duration::from_secs(60);
    let free = rate(0, young, 50, 40);
    let yielding = rate(3, young, 50, 200);
    let old = rate(3, MS, 50, 80);
    assert!(yielding * 10 >= link && yielding * 4 < link, "{yielding} of {link}");
    assert!(yielding * 2 < free, "{yielding} of {free}");
    assert!(old * 2 > yielding * 3 && old <= free, "{old}, {yielding} of {free}");
    let (full, urgent) = (rate(0, young, 185, 40), rate(3, young, 185, 40));
    assert!(urgent * 2 > full, "{urgent} of {full}");
}

/// Ten minutes without the upstream: hosts notice nothing, it is tried again for ever with longer and
/// longer waits, a restart in the middle changes nothing, and afterwards everything is there.
#[test]
fn an_outage_is_nobodys_error() {
    let mut rig = Rig::new(1, larger(), 2048);
    assert!(rig.pays_debt());
    rig.refusal = Some((None, IoError::PathFailed));
    let start = rig.now;
    let mut tries = 0;
    for second in 0..600_u64 {
        if second % 10 == 0 {
            rig.ask(Some(Kind::Write), (second * 3) as usize, 8, second % 20 == 0);
            rig.ask(None, 0, 0, false);
        }
        let until = start + Duration::from_secs(second);
        while rig.now < until || !rig.running.is_empty() {
            if rig.running.is_empty() {
                rig.sleep(until);
            } else {
                tries += u32::from(matches!(rig.running[0], super::rig::Running::Upstream(..)));
                rig.end(0);
            }
        }
        if second == 300 {
            rig.crash(false);
        }
        assert_eq!(rig.outstanding(), 0, "hosts continue: {:?}", rig.log.status(rig.now));
    }
    let Upstream::Away { age, error, .. } = rig.upstream_state() else { panic!("it is away") };
    assert!(age > Duration::from_secs(250) && error == IoError::PathFailed);
    assert!((60..160).contains(&tries), "about every ten seconds: {tries}");
    rig.refusal = None;
    rig.settle();
    assert!(rig.notices.iter().any(|notice| matches!(notice, Notice::Back(_))));
}

/// The upstream refuses one block: write-back stops there and says where, everything can still be read
/// and written until the log is full, nothing is dropped, and it continues when an operator says so.
#[test]
fn a_refused_block_stops_write_back_and_nothing_else() {
    for error in [IoError::Medium, IoError::WriteProtected, IoError::OutOfRange] {
        let mut rig = Rig::new(1, small(), 64);
        assert!(rig.pays_debt());
        rig.refusal = Some((Some(20), error));
        rig.ask(Some(Kind::Write), 18, 4, true);
        rig.ask(Some(Kind::Write), 40, 4, false);
        assert!(rig.until(500, Rig::blocked));
        let Upstream::Blocked { at, .. } = rig.upstream_state() else { unreachable!() };
        // The first record names the owner.
        assert_eq!((at.seq, at.cause), (2, Cause::Upstream(error)));
        assert!(at.extent.offset <= 20 * 512 && at.extent.offset + at.extent.length > 20 * 512);
        for i in 0..12 {
            rig.ask(Some(Kind::Write), i * 4, 4, false);
            assert!(rig.until(20, |rig| rig.outstanding() == 0), "the log is not full");
        }
        rig.check_reads();
        let key = rig.key();
        rig.log.await_drained(rig.now, key);
        rig.pump();
        assert!(!rig.until(200, |rig| rig.drained.contains(&key)));
        rig.log.retry();
        rig.pump();
        assert!(rig.until(500, Rig::blocked), "still refused");
        rig.refusal = None;
        rig.log.retry();
        rig.settle();
    }
}

/// Another gateway owns the upstream for good: requests that wait for it, or for room in the log, are answered at once
/// with that error, before and after it is known, and the log keeps everything.
#[test]
fn nothing_waits_for_an_upstream_that_is_fenced() {
    let mut rig = Rig::new(1, Settings { sync: Sync::Upstream, ..small() }, 1024);
    assert!(rig.pays_debt());
    rig.refusal = Some((None, IoError::NoPath));
    rig.ask(Some(Kind::Write), 18, 4, true);
    rig.ask(None, 0, 0, false);
    let drain = rig.key();
    rig.log.await_drained(rig.now, drain);
    rig.pump();
    // Four writes of a quarter of the log: one finds room in part.
    for from in [0, 128, 256, 384] {
        rig.ask(Some(Kind::Write), 64 + from, 128, false);
    }
    assert!(!rig.until(15, |rig| rig.outstanding() == 0), "they wait");
    rig.refusal = Some((None, IoError::Fenced));
    assert!(rig.until(500, |rig| rig.outstanding() == 0 && rig.blocked()));
    assert!(
        rig.fenced > 3,
        "the write, the flush, the drain, and writes that wait for room: {}",
        rig.fenced
    );
    let (before, records) = (rig.fenced, rig.log.status(rig.now).dirty_records);
    rig.ask(Some(Kind::Write), 30, 2, true);
    assert!(rig.until(50, |rig| rig.outstanding() == 0));
    assert_eq!((rig.fenced, rig.log.status(rig.now).dirty_records), (before + 1, records));
}

/// What the upstream cannot do is done in another way.
#[test]
fn unmaps_become_zeroes_become_writes() {
    let mut rig = Rig::new(1, small(), 64);
    for i in 0..10 {
        rig.ask(Some(Kind::Write), i * 4, 4, false);
        rig.ask(Some(if i % 2 == 0 { Kind::Unmap } else { Kind::Zero }), 42, 2 + i, false);
        rig.until(40, |rig| rig.outstanding() == 0);
    }
    rig.unable = true;
    rig.settle();
    assert!(rig.far.durable[42..53].iter().all(|&version| version == 0));
}

/// A drain under load ends: first writes are acknowledged when they are upstream, then they go past the
/// log, and a log that is used again has nothing older than what went past.
#[test]
fn through_and_back() {
    let costs = Costs { local: MS, upstream: MS * 3, sector: Duration::from_micros(20) };
    let mut clocked = Clocked::new(larger(), 1024, costs);
    let mut next = 0;
    let mut write_for = |clocked: &mut Clocked, time: Duration| {
        let end = clocked.rig.now + time;
        while clocked.rig.now < end {
            while clocked.rig.outstanding() < 4 {
                next = (next + 5) % 128;
                if clocked.rig.in_flight(next * 8, 8) {
                    break;
                }
                clocked.write(next * 8, 8);
            }
            clocked.next(end);
        }
    };
    write_for(&mut clocked, MS * 300);
    let logged = clocked.rig.log.status(clocked.rig.now).logged;
    clocked.rig.log.drain(clocked.rig.now, true);
    write_for(&mut clocked, MS * 2);
    assert_eq!(clocked.rig.log.status(clocked.rig.now).phase, Phase::Draining(Why::Asked));
    write_for(&mut clocked, MS * 1_000);
    let status = clocked.rig.log.status(clocked.rig.now);
    assert_eq!((status.phase, status.dirty_bytes), (Phase::Through(Why::Asked), 0));
    assert!(status.logged > logged);
    write_for(&mut clocked, MS * 100);
    assert_eq!(clocked.rig.log.status(clocked.rig.now).logged, status.logged, "past the log");
    let crashed = clocked.rig.recover().unwrap();
    assert_eq!(crashed.dirty(), (0, 0), "nothing would be replayed");
    clocked.rig.log.drain(clocked.rig.now, false);
    write_for(&mut clocked, MS * 100);
    let status = clocked.rig.log.status(clocked.rig.now);
    assert_eq!(status.phase, Phase::Log);
    assert!(status.logged > logged && clocked.rig.asked.iter().all(|one| !one.busy));
    clocked.rig.settle();
}

/// A log that is slower than the upstream turns itself off and says why; one that is not, does not.
#[test]
fn a_log_earns_its_place() {
    for (upstream, earns) in [(1, false), (20, true)] {
        let costs = Costs { local: MS * 3, upstream: MS * upstream, sector: Duration::ZERO };
        let mut clocked = Clocked::new(Settings { earn: true, ..larger() }, 1024, costs);
        for i in 0..300 {
            clocked.write(i * 9 % 1000, 1);
            let until = clocked.rig.now + MS * 30;
            clocked.run_until(until);
            if i % 2 == 0 {
                clocked.flush();
            }
        }
        let phase = clocked.rig.log.status(clocked.rig.now).phase;
        match phase {
            Phase::Log => assert!(earns),
            Phase::Through(Why::Slower { local, upstream }) => {
                assert!(!earns && local == MS * 6 && upstream == MS, "{local} {upstream}");
                assert!(clocked.rig.notices.iter().any(|one| matches!(one, Notice::Through(_))));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Closing makes everything durable and marks it, and leaves dirty data in the log; opened again, the
/// same is dirty.
#[test]
fn a_closed_log_is_marked() {
    for mode in [Mode::Log, Mode::Ram] {
        let mut rig = Rig::new(1, Settings { mode, ..small() }, 64);
        assert!(rig.pays_debt());
        for i in 0..5 {
            rig.ask(Some(Kind::Write), i * 4, 4, false);
        }
        rig.log.close();
        rig.pump();
        assert!(rig.until(100, |rig| rig.closed));
        assert_eq!((rig.outstanding(), rig.log.next_deadline()), (0, None));
        rig.disk.lose(&mut crate::rng::Rng::stream(1, "power"));
        let recovered = rig.recover().unwrap();
        assert_eq!(recovered.dirty(), (5 * 2048, 5));
        assert!(recovered.witnessed >= rig.log.last_durable_data(), "the last batch has a witness");
        rig.log = Log::new(rig.settings, &recovered);
        rig.pump();
        rig.settle();
    }
}

/// A crash in the first write of a log may keep a batch and lose the segment header before it. Recovery takes that for a log
/// with nothing in it, and so does the next one, whatever super blocks say meanwhile.
#[test]
fn a_log_whose_first_segment_was_lost_opens_twice() {
    for mode in [Mode::Log, Mode::Ram] {
        let mut rig = Rig::new(1, Settings { mode, ..small() }, 64);
        assert!(rig.pays_debt());
        rig.ask(Some(Kind::Write), 0, 4, false);
        rig.pump();
        let first = rig.running.iter().find_map(|running| match running {
            Running::Write(write, bytes) => Some((write.at as usize, bytes.clone())),
            _ => None,
        });
        let (at, bytes) = first.expect("the first segment is being written");
        assert!(at > 4096 && bytes.len() > 4096);
        let mut durable = rig.disk.durable.clone();
        durable[at + 4096..at + bytes.len()].copy_from_slice(&bytes[4096..]);
        let mut rig = rig.with_disk(durable);
        let lost = rig.recover().expect("nothing was durable");
        assert_eq!(lost.last(), 0);
        rig.log = Log::new(rig.settings, &lost);
        rig.pump();
        let (until, supers) = (rig.now + MS * 200, rig.disk.durable[..8192].to_vec());
        assert!(rig.until(50, |rig| rig.now >= until && rig.running.is_empty()));
        assert_ne!(rig.disk.durable[..8192], supers, "a super block was written");
        let again = rig.recover().expect("nothing was written but a super block");
        assert_eq!(again.last(), 0);
        rig.log.close();
        rig.pump();
        assert!(rig.until(50, |rig| rig.closed));
        let closed = rig.recover().expect("a stop writes no more than that");
        rig.log = Log::new(rig.settings, &closed);
        rig.asked.clear();
        rig.closed = false;
        rig.pump();
        rig.ask(Some(Kind::Write), 8, 4, true);
        rig.settle();
    }
}

/// A kill makes nothing dirty that was not: what is upstream is known to within an epoch.
#[test]
fn a_kill_does_not_make_everything_dirty() {
    let costs = Costs { local: MS, upstream: MS, sector: Duration::ZERO };
    let mut clocked = Clocked::new(larger(), 1024, costs);
    for i in 0..100 {
        clocked.write(i * 8, 8);
        let until = clocked.rig.now + MS * 2;
        clocked.run_until(until);
    }
    let until = clocked.rig.now + MS * 500;
    clocked.run_until(until);
    assert_eq!(clocked.rig.log.status(clocked.rig.now).dirty_bytes, 0);
    assert_eq!(clocked.rig.recover().unwrap().dirty(), (0, 0));
}

/// A volume is strict until each initiator that writes has flushed, and again when a silent one writes.
#[test]
fn strict_until_everybody_has_flushed() {
    use crate::cache::writeback::Origin;
    use crate::units::Extent;
    let mut rig = Rig::new(1, small(), 64);
    let now = rig.now;
    let who = |initiator| Origin { initiator, ..Origin::default() };
    let strict = |rig: &Rig| rig.log.status(rig.now).strict;
    assert!(!strict(&rig));
    for (initiator, flush, expected) in
        [(1, false, true), (2, false, true), (1, true, true), (2, true, false), (3, false, true)]
    {
        let key = rig.key();
        if flush {
            rig.log.flush(now, key, who(initiator));
        } else {
            let extent = Extent::new(initiator * 512, 512);
            rig.log.write(now, key, Kind::Zero, extent, Fua::No, who(initiator));
        }
        assert_eq!(strict(&rig), expected, "{initiator}");
    }
    rig.log.initiator_left(3);
    assert!(!strict(&rig));
}

/// A log that is not this volume's, of another version, of other sizes, cut short or no log at all is refused with a
/// text that says what it is and what to do.
#[test]
fn what_is_not_ours_is_refused() {
    let rig = Rig::new(1, small(), 64);
    let refusal = |rig: &Rig| rig.recover().unwrap_err();
    let text = |rig: &Rig| refusal(rig).to_string();
    let mut other = rig.with_disk(rig.disk.durable.clone());
    other.settings.volume = [0xab; 16];
    assert_eq!(refusal(&other), Refusal::WrongVolume { found: [0; 16] });
    other.settings = Settings { segment: 65536, capacity: 8192 + 4 * 65536, ..small() };
    assert!(matches!(refusal(&other), Refusal::Sizes { .. }));
    let mut short = rig.with_disk(rig.disk.durable[..100_000].to_vec());
    assert_eq!(refusal(&short), Refusal::Short { needed: small().capacity, size: 100_000 });
    short.disk.durable.truncate(100);
    assert_eq!(refusal(&short), Refusal::NotALog);
    let blank = rig.with_disk(alloc::vec![0; rig.disk.durable.len()]);
    assert_eq!(refusal(&blank), Refusal::NotALog);
    let versioned = |version: u8| {
        let mut other = rig.with_disk(rig.disk.durable.clone());
        other.disk.durable[PAGE as usize + 8] = version;
        let sum = crc32c(&other.disk.durable[PAGE as usize..][..508]).to_le_bytes();
        other.disk.durable[PAGE as usize + 508..][..4].copy_from_slice(&sum);
        assert_eq!(refusal(&other), Refusal::Version { version: version.into() });
        other
    };
    let [oldest, older, newer] = [1, VERSION as u8 - 1, VERSION as u8 + 1].map(versioned);
    for older in [oldest, older] {
        assert!(text(&older).contains("drain the volume with that program"), "{}", text(&older));
    }
    assert!(text(&newer).contains("or a newer one"), "{}", text(&newer));
    let mut both = rig.with_disk(rig.disk.durable.clone());
    (both.disk.durable[20], both.disk.durable[PAGE as usize + 20]) = (9, 9);
    assert_eq!(refusal(&both), Refusal::Damaged { at: 0, seq: 0, why: Damage::Supers });
    for one in [&other, &blank, &newer, &both] {
        assert!(text(one).contains("log"), "{}", text(one));
    }
    assert!(Super::decode(&rig.disk.durable).is_ok());
}
