use super::*;
use crate::clock::Duration;
use crate::request::LinkId;
use alloc::vec::Vec;

const LINE: u64 = 4_096;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const VOLUME: VolumeId = VolumeId::new(0);
const FROM: Reader = Reader { volume: VOLUME, link: LinkId::new(0) };

/// A policy with a buffer of 1 GiB, that has been right often enough to have all its credit.
fn trusted() -> Adaptive {
    let mut policy = Adaptive::new(8 * MIB, 16 * MIB, Room { line: LINE as u32, lines: 1 << 18 });
    read(&mut policy, 0, 1 << 39, LINE);
    policy.judge(VOLUME, 16_384, 0);
    policy
}

/// A read that finds nothing, at a time in milliseconds, of a volume of 1 TiB.
fn read(policy: &mut Adaptive, millis: u64, offset: u64, length: u64) {
    let now = Instant::ZERO + Duration::from_millis(millis);
    policy.read(now, FROM, Extent::new(offset, length), 1 << 40, Found::Missing);
}

/// What is wished for now, none of which ends.
fn polled(policy: &mut Adaptive) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| policy.poll())
        .map(|wish| (wish.extent.offset, wish.extent.length))
        .collect()
}

/// Ends all fetches in flight, each after this number of milliseconds.
fn end(policy: &mut Adaptive, millis: u64) {
    let under_way: Vec<WishId> = policy.under_way.keys().copied().collect();
    for id in under_way {
        policy.ended(Instant::ZERO, id, Ended::Fetched(Duration::from_millis(millis)));
    }
}

/// The second read in order opens a stream with a window of four or two times the read, and no smaller than
/// the read; when the reader enters it, the next window follows it, up to the cap. Nothing is wished twice
/// and nothing left out.
#[test]
fn windows_grow_to_the_cap() {
    for (length, expected) in [
        (4 * KIB, &[16, 32, 64, 128, 128, 128][..]),
        (16 * KIB, &[32, 64, 128, 128]),
        (32 * KIB, &[64, 128, 128]),
        (64 * KIB, &[128, 128]),
        (256 * KIB, &[256, 256, 256]),
    ] {
        let mut policy = trusted();
        read(&mut policy, 0, 0, length);
        assert_eq!(policy.poll(), None, "one read is no order");
        let (mut windows, mut edge) = (Vec::new(), 2 * length);
        for n in 1..200 {
            read(&mut policy, n, n * length, length);
            let wishes = polled(&mut policy);
            if wishes.is_empty() {
                continue;
            }
            assert!(n == 1 || (n + 1) * length <= edge, "read {n} of {length} came too late");
            let begin = edge;
            for (offset, length) in wishes {
                assert_eq!(offset, edge);
                edge += length;
            }
            windows.push((edge - begin) / KIB);
        }
        assert_eq!(windows[..expected.len()], *expected, "reads of {length}");
    }
}

/// The cap is twice what the reader reads in a round trip, and never more than the parameter.
#[test]
fn the_cap_is_the_length_of_the_link() {
    for (millis_per_read, expected) in [(1, 2 * 20 * 64 * KIB), (8, 320 * KIB), (100, 128 * KIB)] {
        let mut policy = trusted();
        let mut largest = 0;
        for n in 0..2_000 {
            read(&mut policy, n * millis_per_read, n * 64 * KIB, 64 * KIB);
            largest = largest.max(polled(&mut policy).iter().map(|(_, length)| length).sum());
            end(&mut policy, 20);
            policy.judge(VOLUME, 16, 0);
        }
        assert_eq!(largest, expected, "{millis_per_read} ms for each read");
    }
    let mut policy = trusted();
    for n in 0..2_000 {
        read(&mut policy, n / 100, n * 64 * KIB, 64 * KIB);
        let wished: u64 = polled(&mut policy).iter().map(|(_, length)| length).sum();
        assert!(wished <= 8 * MIB, "{wished}");
        end(&mut policy, 20);
        policy.judge(VOLUME, 16, 0);
    }
}

/// Wishes are whole lines of at most 256 KiB, and end where the volume does, in both directions.
#[test]
fn wishes_end_with_the_volume() {
    let capacity = MIB + 512;
    let mut policy = trusted();
    let go = |policy: &mut Adaptive, offset| {
        let extent = Extent::new(offset, 512);
        policy.read(Instant::ZERO, FROM, extent, capacity, Found::Missing);
        polled(policy)
    };
    assert_eq!(go(&mut policy, MIB - 1024), []);
    assert_eq!(go(&mut policy, MIB - 512), [(MIB, 512)]);
    assert_eq!(go(&mut policy, MIB), []);
    assert_eq!(go(&mut policy, 10 * LINE + 512), []);
    assert_eq!(go(&mut policy, 10 * LINE), [(6 * LINE, 4 * LINE)]);
    assert_eq!(go(&mut policy, 10 * LINE - 512), [(0, 6 * LINE)]);
    assert_eq!(go(&mut policy, 0), []);
    // From the very end downwards: the last line is as long as the volume.
    assert_eq!(go(&mut policy, MIB), []);
    let mut policy = trusted();
    assert_eq!(go(&mut policy, MIB), []);
    assert_eq!(go(&mut policy, MIB - 512), [(MIB - 4 * LINE, 4 * LINE)]);
}

/// A read that finds all it wants here opens a stream, but only the first that does not wishes for anything.
#[test]
fn nothing_is_foreseen_that_is_here() {
    let mut policy = trusted();
    for n in 0..10 {
        let extent = Extent::new(n * LINE, LINE);
        policy.read(Instant::ZERO, FROM, extent, 1 << 40, Found::Ready);
        assert_eq!(policy.poll(), None);
    }
    read(&mut policy, 0, 10 * LINE, LINE);
    assert_eq!(polled(&mut policy), [(11 * LINE, 4 * LINE)]);
}

/// Sixty-four streams of a session are followed at once, each with its own window; sessions and volumes
/// have their own. Of the streams that have opened, newcomers push out the least used only down to 48.
#[test]
fn many_streams_are_followed() {
    let mut policy = trusted();
    policy.readers.clear();
    // At no equal steps.
    let at = |stream: u64, n: u64| stream * stream * (1 << 27) + n * LINE;
    for n in 0..2 {
        for stream in 0..64 {
            read(&mut policy, 0, at(stream, n), LINE);
        }
    }
    let wishes = polled(&mut policy);
    let expected: Vec<(u64, u64)> = (0..64).map(|stream| (at(stream, 2), 4 * LINE)).collect();
    assert_eq!(wishes, expected);
    for n in 0..1_000 {
        read(&mut policy, 0, (1 << 39) + n * n * 128 * KIB, LINE);
    }
    for stream in 0..64 {
        read(&mut policy, 0, at(stream, 2), LINE);
    }
    let expected: Vec<(u64, u64)> = (16..64).map(|stream| (at(stream, 6), 8 * LINE)).collect();
    assert_eq!(polled(&mut policy), expected);
    // Another session does not continue what this one reads.
    let other = Reader { volume: VOLUME, link: LinkId::new(1) };
    let next = Extent::new(at(63, 3), LINE);
    policy.read(Instant::ZERO, other, next, 1 << 40, Found::Missing);
    assert_eq!(policy.poll(), None);
}

/// The session that has read nothing for longest is forgotten when there are more than 1024.
#[test]
fn sessions_are_bounded() {
    let mut policy = trusted();
    for link in 0..3_000 {
        let from = Reader { volume: VOLUME, link: LinkId::new(link) };
        policy.read(Instant::ZERO, from, Extent::new(0, LINE), 1 << 40, Found::Missing);
    }
    assert_eq!(policy.readers.len(), MOST_READERS);
    assert!(policy.readers.keys().all(|reader| reader.link.index() >= 3_000 - MOST_READERS));
}

/// What was wished for a stream that is followed no more, or that its reader has passed, is not fetched.
#[test]
fn what_nobody_wants_is_not_fetched() {
    let mut policy = trusted();
    read(&mut policy, 0, 0, 64 * KIB);
    read(&mut policy, 0, 64 * KIB, 64 * KIB);
    let extent = Extent::new(192 * KIB, 8 * KIB);
    policy.read(Instant::ZERO, FROM, extent, 1 << 40, Found::Ready);
    // The reader is in the newest window, so the next one is due too.
    assert_eq!(polled(&mut policy), [(200 * KIB, 184 * KIB)]);
    let mut policy = trusted();
    read(&mut policy, 0, 0, 64 * KIB);
    read(&mut policy, 0, 64 * KIB, 64 * KIB);
    policy.readers.remove(&FROM);
    assert_eq!(policy.poll(), None);
    assert!(policy.volumes[&VOLUME].credit > 16 * MIB, "it has cost nothing");
    let mut policy = trusted();
    let steps = [(0..6, MIB), (100..106, 2 * MIB)];
    for (reads, step) in steps {
        reads.for_each(|n| read(&mut policy, 0, n * step, LINE));
    }
    assert_eq!(polled(&mut policy), [(212 * MIB, LINE), (214 * MIB, LINE)]);
}

/// A read a little before or behind the place where its stream is belongs to it; one far away does not.
#[test]
fn order_is_not_strict() {
    let mut policy = trusted();
    for (n, windows) in
        [(0, 0), (1, 1), (4, 1), (2, 0), (3, 0), (7, 1), (10, 0), (9, 0), (46, 1), (200, 0)]
    {
        read(&mut policy, 0, n * LINE, LINE);
        assert_eq!(polled(&mut policy).len(), windows, "block {n}");
    }
}

/// Below half of the last lines read, windows are half as large; below a fifth, one in 64 is tried; both
/// pass when lines are read again.
#[test]
fn being_wrong_makes_careful() {
    let mut policy = trusted();
    // Streams one after the other, far from each other; how many bytes the first window of each has.
    let mut stream = 0;
    let mut first = |policy: &mut Adaptive| {
        stream += 1;
        policy.volumes.get_mut(&VOLUME).unwrap().asked(1 << 30);
        read(policy, 0, stream * stream * MIB, 16 * KIB);
        read(policy, 0, stream * stream * MIB + 16 * KIB, 16 * KIB);
        let wished: u64 = polled(policy).iter().map(|(_, length)| length).sum();
        end(policy, 20);
        wished / KIB
    };
    assert_eq!(first(&mut policy), 32);
    policy.judge(VOLUME, 0, 512);
    assert_eq!(first(&mut policy), 32);
    assert!(!policy.accuracy(VOLUME).unwrap().held_back);
    policy.judge(VOLUME, 0, 1);
    assert_eq!(first(&mut policy), 16);
    assert!(policy.accuracy(VOLUME).unwrap().held_back);
    policy.judge(VOLUME, 0, 1_024 - 513 - 205);
    assert_eq!(
        policy.accuracy(VOLUME).unwrap(),
        Accuracy { judged: 1_024, used: 205, held_back: true }
    );
    assert_eq!(first(&mut policy), 16);
    policy.judge(VOLUME, 0, 1);
    let tried: Vec<u64> = (0..640).map(|_| first(&mut policy)).filter(|&size| size > 0).collect();
    assert_eq!(tried, [32; 10]);
    policy.judge(VOLUME, 1, 0);
    assert_eq!(first(&mut policy), 0);
    policy.judge(VOLUME, 1_024, 0);
    assert_eq!(first(&mut policy), 32);
}

/// A stream on which nothing is granted tries again at each read, from its first window on.
#[test]
fn a_probe_is_small() {
    let mut policy = trusted();
    for n in 0..64 {
        read(&mut policy, n, n * 64 * KIB, 64 * KIB);
        polled(&mut policy);
        end(&mut policy, 100);
    }
    policy.judge(VOLUME, 0, 1_024);
    let sizes: Vec<u64> = (64..600)
        .map(|n| {
            read(&mut policy, n, n * 64 * KIB, 64 * KIB);
            let wished: u64 = polled(&mut policy).iter().map(|(_, length)| length).sum();
            end(&mut policy, 100);
            wished / KIB
        })
        .filter(|&size| size > 0)
        .collect();
    assert!((5..=8).contains(&sizes.len()), "{sizes:?}");
    assert!(sizes.iter().all(|&size| size == 128), "{sizes:?}");
}

/// Without anything that proved right, 256 KiB and a sixteenth of what was asked for are fetched ahead; a
/// wish that fetched nothing costs nothing.
#[test]
fn credit_is_earned() {
    let mut policy = Adaptive::new(8 * MIB, 16 * MIB, Room { line: LINE as u32, lines: 1 << 18 });
    let (mut asked, mut wished) = (0, 0);
    for n in 0..4_000 {
        read(&mut policy, n, n * 64 * KIB, 64 * KIB);
        asked += 64 * KIB;
        wished += polled(&mut policy).iter().map(|(_, length)| length).sum::<u64>();
        end(&mut policy, 20);
        assert!(wished <= 256 * KIB + asked / 16, "{wished} for {asked}");
    }
    assert!(wished > asked / 17, "{wished} for {asked}");
    let mut policy = Adaptive::new(8 * MIB, 16 * MIB, Room { line: LINE as u32, lines: 1 << 18 });
    for n in 0..4_000 {
        read(&mut policy, n, n * 64 * KIB, 64 * KIB);
        while let Some(wish) = policy.poll() {
            policy.ended(Instant::ZERO, wish.id, Ended::NotNeeded);
        }
        assert!(policy.volumes[&VOLUME].credit >= 256 * KIB);
    }
}

/// What lies unread or is in flight is at most a quarter of the buffer, and nothing without one.
#[test]
fn a_small_buffer_is_not_filled() {
    for (lines, most) in [(256, 256 * KIB), (16, 16 * KIB), (0, 0)] {
        let mut policy = Adaptive::new(8 * MIB, 16 * MIB, Room { line: LINE as u32, lines });
        for n in 0..100 {
            read(&mut policy, n, n * 64 * KIB, 64 * KIB);
            policy.judge(VOLUME, 16_384, 0);
        }
        let wished: u64 = polled(&mut policy).iter().map(|(_, length)| length).sum();
        assert!(wished <= most && wished * 2 >= most, "{wished} with {lines} lines");
    }
}

/// The fetches in flight for a volume are bounded, and the next begins when one ends; another volume has room of
/// its own.
#[test]
fn what_is_under_way_is_bounded() {
    let mut policy = trusted();
    let other = Reader { volume: VolumeId::new(1), ..FROM };
    for n in 0..3_000 {
        read(&mut policy, n / 100, n * 64 * KIB, 64 * KIB);
        polled(&mut policy);
        let flying: u64 = policy.under_way.values().map(|(_, bytes)| bytes).sum();
        assert!(flying <= 16 * MIB, "{flying}");
        if n < 1_000 {
            end(&mut policy, 20);
            policy.judge(VOLUME, 16, 0);
        }
    }
    let flying: u64 = policy.under_way.values().map(|(_, bytes)| bytes).sum();
    assert!(flying > 15 * MIB, "{flying}");
    assert_eq!(policy.poll(), None);
    for n in 0..2 {
        let extent = Extent::new(n * LINE, LINE);
        policy.read(Instant::ZERO, other, extent, 1 << 40, Found::Missing);
    }
    assert_eq!(policy.poll().unwrap().volume, VolumeId::new(1));
    end(&mut policy, 20);
    assert!(policy.poll().is_some());
}

/// Steps of equal length are foreseen from the sixth read on, two reads at first, then twice as many each
/// time half of them is used up, to 64; one read elsewhere does not end them, steps of another length do.
#[test]
fn steps_are_foreseen() {
    for step in [MIB.cast_signed(), -(MIB.cast_signed())] {
        let mut policy = trusted();
        policy.readers.clear();
        let at = |n: u64| (1_u64 << 36).checked_add_signed(step * n.cast_signed()).unwrap();
        let mut edge = 5;
        let mut counts = Vec::new();
        for n in 0..300 {
            read(&mut policy, n, at(n), 8 * KIB);
            if n == 200 {
                read(&mut policy, n, 512, 8 * KIB);
            }
            let wishes = polled(&mut policy);
            assert!(n >= 5 || wishes.is_empty(), "read {n}");
            for &wish in &wishes {
                edge += 1;
                assert_eq!(wish, (at(edge), 8 * KIB), "read {n}");
            }
            assert!(n < 5 || edge > n, "read {n} was not foreseen");
            counts.push(edge.saturating_sub(n));
            end(&mut policy, 20);
        }
        assert_eq!(counts[5..8], [2, 4, 3]);
        assert_eq!(counts.iter().max(), Some(&64));
        for n in 0..4 {
            read(&mut policy, n, at(300) + n * 999 * KIB, 8 * KIB);
            assert_eq!(policy.poll(), None);
        }
    }
}

/// Reads at random have no step.
#[test]
fn random_reads_wish_nothing() {
    let mut policy = trusted();
    let mut rng = crate::rng::Rng::stream(1, "random");
    for n in 0..20_000 {
        read(&mut policy, n, rng.below(1 << 28) * LINE, LINE);
    }
    assert_eq!(policy.poll(), None);
}
