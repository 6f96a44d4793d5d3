//! Caps against the clock and against a model.

use super::*;
use crate::accept::Layout;
use crate::request::{BackendId, Op};
use crate::testing;
use crate::units::Extent;
use alloc::vec;
use proptest::prelude::*;

fn cap(iops: u32, bandwidth: u64, burst: Duration) -> Cap {
    let (iops, bandwidth) = (NonZeroU32::new(iops), Bandwidth::per_second(bandwidth));
    Cap { iops, bandwidth, burst }
}

fn caps(caps: &[Cap]) -> Caps {
    let volume = |&cap: &Cap| Volume {
        capacity: 1 << 40,
        layout: Layout::One(BackendId::new(0)),
        max_transfer: u64::MAX,
        cap,
    };
    Caps::new(&caps.iter().map(volume).collect::<Vec<_>>())
}

fn read(volume: u32, length: u64) -> Request {
    let volume = VolumeId::new(volume);
    Request { op: Op::Read, volume, extent: Extent::new(0, length), ..testing::request(0) }
}

/// When each of `count` requests goes that come at once at `start`; the caller of the deadlines is
/// late by what `late` gives for each.
fn backlog(
    cap: Cap,
    start: u64,
    count: usize,
    length: u64,
    late: impl Fn(usize) -> u64,
) -> Vec<u64> {
    let mut caps = caps(&[cap]);
    let keys = testing::keys(count);
    let mut times = Vec::new();
    for &key in &keys {
        if caps.enter(Instant::from_nanos(start), key, &read(0, length)) {
            times.push(start);
        }
    }
    while let Some(due) = caps.next_deadline() {
        let now = due.as_nanos() + late(times.len());
        while let Some(key) = caps.release(Instant::from_nanos(now)) {
            assert_eq!(key, keys[times.len()], "first in, first out");
            times.push(now);
        }
    }
    assert_eq!(times.len(), count, "all go");
    times
}

/// The fewest and the most that go in any window of this length, of those that lie within the times.
fn windows(times: &[u64], length: u64) -> (usize, usize) {
    let (mut least, mut most) = (usize::MAX, 0);
    let end = *times.last().expect("some go");
    for &at in times.iter().filter(|&&at| at + length <= end) {
        // The extremes are in windows that begin at a departure, or just behind one.
        for from in [at, at + 1] {
            let inside = times.iter().filter(|&&time| time >= from && time < from + length).count();
            (least, most) = (least.min(inside), most.max(inside));
        }
    }
    (least, most)
}

const SECOND: u64 = 1_000_000_000;

/// A backlog under a cap of n per second has exactly n in every second, from its first on and at
/// whatever time it begins, also where a request takes no whole number of nanoseconds; and 500 per
/// second is 50 in every tenth of one.
#[test]
fn a_cap_is_exact_in_every_second() {
    for start in [0, 7, SECOND - 1] {
        for iops in [1, 3, 7, 499, 500, 1_024] {
            let count = 4 * iops as usize + 1;
            let times = backlog(cap(iops, 0, Duration::ZERO), start, count, 4_096, |_| 0);
            let exact = iops as usize;
            assert_eq!(windows(&times, SECOND), (exact, exact), "{iops} from {start}");
            let end = times.last().expect("some go");
            assert_eq!(*end, start + 4 * SECOND, "no nanosecond is lost at {iops}");
        }
        let times = backlog(cap(500, 0, Duration::ZERO), start, 2_000, 4_096, |_| 0);
        assert_eq!(windows(&times, SECOND / 10), (50, 50));
    }
}

/// A late call releases what is due then; the rate stays: no second has more than one request
/// more or less, however often the look is late.
#[test]
fn late_timers_do_not_lower_the_rate() {
    let late = |index: usize| (index as u64 * 7_919) % 60_000;
    let times = backlog(cap(500, 0, Duration::ZERO), 5, 5_001, 4_096, late);
    let (least, most) = windows(&times, SECOND);
    assert!(least >= 499 && most <= 501, "{least} to {most}");
    let end = times.last().expect("some go");
    assert!(end - 5 - 10 * SECOND < 60_000, "ten seconds and the last lateness: {end}");
}

/// Bytes are counted as exactly: 4 KiB at 50 MiB a second is 12 800 a second. A request that is larger
/// than any burst waits for its own bytes and goes.
#[test]
fn bytes_are_counted() {
    let times = backlog(cap(0, 50 << 20, Duration::ZERO), 3, 25_601, 4_096, |_| 0);
    assert_eq!(windows(&times, SECOND), (12_800, 12_800));
    let times = backlog(cap(0, 1 << 20, Duration::from_millis(1)), 0, 4, 8 << 20, |_| 0);
    assert_eq!(times, [0, 8 * SECOND, 16 * SECOND, 24 * SECOND]);
    // A small one behind a large one has its own cost to wait for, not that of the large one again.
    let mut caps = caps(&[cap(0, 1 << 20, Duration::ZERO)]);
    let keys = testing::keys(2);
    assert!(caps.enter(Instant::ZERO, keys[0], &read(0, 1 << 20)));
    assert!(!caps.enter(Instant::ZERO, keys[1], &read(0, 1 << 10)));
    assert_eq!(caps.next_deadline(), Some(Instant::from_nanos(976_562)));
}

/// A burst goes at once, once: after it the rate holds, and idling saves up no more than the burst.
#[test]
fn a_burst_is_spent_once() {
    let burst = Duration::from_millis(100);
    let times = backlog(cap(500, 0, burst), 5 * SECOND, 1_000, 4_096, |_| 0);
    let at_once = times.iter().filter(|&&at| at == 5 * SECOND).count();
    assert_eq!(at_once, 50);
    assert_eq!(windows(&times[at_once..], SECOND), (500, 500));
}

/// A volume without a cap holds nothing, beside one with a cap of 1; flushes and discards count as
/// requests and not as bytes.
#[test]
fn caps_are_of_their_volume() {
    let mut caps = caps(&[cap(1, 0, Duration::ZERO), Cap::default(), cap(0, 1, Duration::ZERO)]);
    let keys = testing::keys(3);
    for _ in 0..100 {
        assert!(caps.enter(Instant::ZERO, keys[0], &read(1, 1 << 20)));
        let discard = Request { op: Op::Discard, ..read(2, 1 << 20) };
        assert!(caps.enter(Instant::ZERO, keys[0], &discard));
    }
    let flush = Request { op: Op::Flush, ..read(0, 0) };
    assert!(caps.enter(Instant::ZERO, keys[0], &flush));
    assert!(!caps.enter(Instant::ZERO, keys[1], &flush));
    assert_eq!(caps.next_deadline(), Some(Instant::from_nanos(SECOND)));
}

/// A cap that is changed while requests wait holds for them from that moment; one that is taken away
/// lets all go, in order.
#[test]
fn a_cap_changes_live() {
    let mut caps = caps(&[cap(1, 0, Duration::ZERO)]);
    let keys = testing::keys(10);
    let at = Instant::from_nanos;
    for &key in &keys {
        caps.enter(Instant::ZERO, key, &read(0, 4_096));
    }
    let volume = VolumeId::new(0);
    caps.change(at(SECOND / 2), volume, cap(10, 0, Duration::ZERO));
    // Half a second has been saved up, which is more than the tenth that a request takes now.
    assert_eq!(caps.next_deadline(), Some(at(SECOND / 2)));
    let mut gone = Vec::new();
    while gone.len() < 4 {
        let due = caps.next_deadline().expect("they wait");
        while let Some(key) = caps.release(due) {
            gone.push((due.as_nanos() / 1_000_000, key));
        }
    }
    assert_eq!(gone, [(500, keys[1]), (600, keys[2]), (700, keys[3]), (800, keys[4])]);
    caps.change(at(SECOND), volume, Cap::default());
    let rest: Vec<_> = core::iter::from_fn(|| caps.release(at(SECOND))).collect();
    assert_eq!(rest, keys[5..]);
    assert_eq!(caps.next_deadline(), None);
    assert!(caps.enter(at(SECOND), keys[0], &read(0, 4_096)));
}

/// The same by its definition, in rational numbers as they are: the earliest time at which everything
/// before has gone and both meters have saved up the cost.
fn model(cap: Cap, requests: &[(u64, u64)]) -> Vec<u64> {
    let rates = [
        cap.iops.map_or(0, |iops| u64::from(iops.get())),
        cap.bandwidth.map_or(0, Bandwidth::bytes_per_second),
    ];
    let burst = i128::from(cap.burst.as_nanos());
    // What has been saved up, in nanoseconds times the rate, at the time of the last departure.
    let mut saved: [Option<i128>; 2] = [None; 2];
    let mut last = 0;
    let mut times = Vec::new();
    for &(arrived, length) in requests {
        let costs = [1_000_000_000, i128::from(length) * 1_000_000_000];
        let mut go = last.max(arrived);
        for (meter, &rate) in rates.iter().enumerate().filter(|&(_, &rate)| rate > 0) {
            if let Some(have) = saved[meter] {
                let lacks = u128::try_from(costs[meter] - have).unwrap_or(0);
                go = go.max(last + u64::try_from(lacks.div_ceil(rate.into())).unwrap());
            }
        }
        for (meter, &rate) in rates.iter().enumerate() {
            let rate = i128::from(rate);
            let most = costs[meter].max(burst * rate) + rate - 1;
            let have = saved[meter].map_or(most, |have| have + i128::from(go - last) * rate);
            saved[meter] = Some(have.min(most) - costs[meter]);
        }
        last = go;
        times.push(go);
    }
    times
}

proptest! {
    /// Whatever comes and whenever, each request goes when the model lets it go, and in order.
    #[test]
    fn agrees_with_the_model(
        iops in 0_u32..2_000, bandwidth in prop_oneof![Just(0_u64), 1_000..100_000_000_u64],
        burst in prop_oneof![Just(0_u64), 0..100_000_000_u64],
        requests in prop::collection::vec((0_u64..5_000_000, 0_u64..200_000), 1..60),
    ) {
        let cap = cap(iops, bandwidth, Duration::from_nanos(burst));
        let mut at = 0;
        let requests: Vec<(u64, u64)> = requests
            .iter()
            .map(|&(gap, length)| { at += gap; (at, length) })
            .collect();
        let keys = testing::keys(requests.len());
        let mut caps = caps(&[cap]);
        let mut times = vec![0; requests.len()];
        let mut next = 0;
        for (index, &(arrived, length)) in requests.iter().enumerate() {
            while let Some(due) = caps.next_deadline().filter(|due| due.as_nanos() <= arrived) {
                prop_assert_eq!(caps.release(due), Some(keys[next]));
                times[next] = due.as_nanos();
                next += 1;
            }
            if caps.enter(Instant::from_nanos(arrived), keys[index], &read(0, length)) {
                prop_assert_eq!(next, index);
                times[next] = arrived;
                next += 1;
            }
        }
        while let Some(due) = caps.next_deadline() {
            prop_assert_eq!(caps.release(due), Some(keys[next]));
            times[next] = due.as_nanos();
            next += 1;
        }
        prop_assert_eq!(times, model(cap, &requests));
    }
}

/// A volume whose turn moved without its entry in the order of turns is noticed.
#[test]
#[should_panic(expected = "a volume is due when its first request is")]
fn the_order_of_volumes_is_that_of_their_requests() {
    let mut keys = slotmap::SlotMap::<RequestKey, ()>::with_key();
    let mut caps = caps(&[cap(1, 0, Duration::ZERO)]);
    let now = Instant::from_nanos(5_000_000_000);
    while caps.enter(now, keys.insert(()), &read(0, 512)) {}
    caps.lines[0].due = now;
    caps.release(caps.next_deadline().unwrap());
}

/// A request that passes a cap before one that came earlier is noticed.
#[test]
#[should_panic(expected = "requests of a volume pass its cap in order")]
fn requests_pass_a_cap_in_order() {
    let mut caps = caps(&[cap(1, 0, Duration::ZERO)]);
    caps.lines[0].charge(Instant::from_nanos(2), 512);
    caps.lines[0].charge(Instant::from_nanos(1), 512);
}
