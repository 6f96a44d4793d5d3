use super::*;
use crate::rng::Rng;
use crate::testing;
use alloc::collections::BTreeMap;

const READ: Class = Class::new(false, 4_096);
const WRITE: Class = Class::new(true, 16_384);

/// A backend of `servers` servers that take operations in order, kept full with `depth` of them, a quarter
/// of which are writes. Reads take about 70 us, writes about 300, or `slower` times as long. By class, the relative error
/// of the sum of estimates of the second half of that many times two seconds.
fn error(estimation: Estimation, servers: usize, depth: u32, slower: u64) -> BTreeMap<Class, f64> {
    let mut estimator = estimation.build(0);
    let mut rng = Rng::stream(7, "estimate");
    let keys = testing::keys(200_000);
    let mut free = alloc::vec![0_u64; servers];
    // End, key, class, true service time.
    let mut sent: Vec<(u64, RequestKey, Class, u64)> = Vec::new();
    let mut sums: BTreeMap<Class, (u64, u64)> = BTreeMap::new();
    let (mut now, mut next) = (0_u64, keys.into_iter());
    while now < slower * 2_000_000_000 {
        let at = Instant::from_nanos(now);
        let limit = estimator.limit(at).map_or(depth, |(limit, _)| limit.min(depth));
        while (sent.len() as u32) < limit {
            let class = if rng.below(4) == 0 { WRITE } else { READ };
            let mean = slower * if class == READ { 70_000 } else { 300_000 };
            let service = mean * 9 / 10 + rng.below(mean / 5);
            let server = free.iter_mut().min().unwrap();
            *server = (*server).max(now) + service;
            let key = next.next().unwrap();
            sent.push((*server, key, class, service));
            estimator.submit(at, key, class);
        }
        let first = sent.iter().enumerate().min_by_key(|(_, op)| op.0).unwrap().0;
        let (end, key, class, service) = sent.remove(first);
        now = end;
        let estimate = estimator.complete(Instant::from_nanos(now), key);
        if now > slower * 1_000_000_000 {
            let sum = sums.entry(class).or_default();
            *sum = (sum.0 + estimate.as_nanos(), sum.1 + service);
        }
    }
    sums.into_iter().map(|(class, (est, real))| (class, est as f64 / real as f64 - 1.0)).collect()
}

/// On a backend that takes operations in order the two that know its servers are exact at any depth, and
/// the one that knows nothing is within 5 %.
#[test]
fn estimates_are_right_where_they_should_be() {
    for depth in [1, 2, 8, 64] {
        for (estimation, servers, bound) in [
            (Estimation::Serial, 1, 1e-9),
            (Estimation::Replay(1), 1, 1e-9),
            (Estimation::Replay(8), 8, 1e-9),
            (Estimation::Sample, 8, 0.05),
        ] {
            for (class, error) in error(estimation, servers, depth, 1) {
                assert!(error.abs() <= bound, "{estimation:?} {depth} {class:?}: {error}");
            }
        }
    }
    let worst =
        error(Estimation::Serial, 8, 64, 1).into_values().fold(0.0, |a: f64, b| a.max(b.abs()));
    assert!(worst > 0.5, "of eight servers the serial one knows nothing: {worst}");
}

/// A backend that is slow is looked at for longer, until what is in it has gone; a full one shows nothing.
#[test]
fn slow_backends_are_known() {
    for slower in [5, 20, 50] {
        for depth in [8, 32] {
            for (class, error) in error(Estimation::Sample, 8, depth, slower) {
                assert!(error.abs() <= 0.06, "{slower} {depth} {class:?}: {error}");
            }
        }
    }
}

/// An observation that begins while nothing is there waits for the first operation.
#[test]
fn an_idle_backend_is_looked_at_later() {
    let mut estimator = Estimation::Sample.build(0);
    let at = |micros| Instant::ZERO + Duration::from_secs(100) + Duration::from_micros(micros);
    let keys = testing::keys(20);
    for (turn, &key) in (0..).zip(&keys) {
        estimator.submit(at(turn * 3_000), key, WRITE);
        assert_eq!(estimator.limit(at(turn * 3_000)).is_some(), turn < 8, "{turn}");
        estimator.complete(at(turn * 3_000 + 2_500), key);
    }
    assert_eq!(estimator.nominal(WRITE), Duration::from_micros(2_500));
}

/// A first sample far from the guess is reported, once; so is a median that turns out wrong while samples are few. What a
/// class costs later on is no news of that kind, nor is a guess that was about right.
#[test]
fn a_wrong_guess_is_reported() {
    let mut estimator = Estimation::Sample.build(0);
    let mut now = Instant::ZERO;
    let mut reported = Vec::new();
    for (turn, key) in testing::keys(60).into_iter().enumerate() {
        // The guess is 104 us; from the fortieth on it is another device.
        let micros = match turn {
            0..4 => 5_000,
            4..40 => 120,
            _ => 9_000,
        };
        estimator.submit(now, key, READ);
        now += Duration::from_micros(micros);
        estimator.complete(now, key);
        if estimator.repriced() {
            reported.push(turn);
        }
        assert!(!estimator.repriced(), "once");
    }
    assert_eq!(reported, [0, 7], "the median of four and four is one of the smaller ones");
    let mut estimator = Estimation::Sample.build(0);
    for (turn, key) in (0..).zip(testing::keys(5)) {
        let at = Instant::ZERO + Duration::from_millis(turn);
        estimator.submit(at, key, READ);
        estimator.complete(at + Duration::from_micros(110), key);
        assert!(!estimator.repriced());
    }
}

/// Backends that begin at the same time, or after the same pause, are not looked at at the same time.
#[test]
fn backends_are_looked_at_in_turn() {
    let mut backends = [0, 1, 2].map(|index| Estimation::Sample.build(index));
    let keys = testing::keys(600);
    let mut keys = keys.iter();
    for start in [7_000_000_u64, 50_000_000] {
        let mut looked = [0; 3];
        for turn in 0..60 {
            let at = Instant::ZERO + Duration::from_micros(start + turn * 250);
            for backend in &mut backends {
                let &key = keys.next().unwrap();
                backend.submit(at, key, READ);
                backend.complete(at + Duration::from_micros(200), key);
            }
            let looks: Vec<_> =
                backends.iter().map(|backend| backend.limit(at).is_some()).collect();
            for (looked, look) in looked.iter_mut().zip(&looks) {
                *looked += u32::from(*look);
            }
            assert!(looks.iter().filter(|&&look| look).count() <= 1, "{start} {turn}: {looks:?}");
        }
        assert!(looked.iter().all(|&looked| looked > 0), "{looked:?}");
    }
}

/// Classes are powers of two of bytes, by direction; nothing is too large for one.
#[test]
fn classes_are_powers_of_two() {
    assert_eq!(Class::new(false, 4_096), Class::new(false, 2_049));
    assert_ne!(Class::new(false, 4_096), Class::new(false, 4_097));
    assert_ne!(Class::new(false, 4_096), Class::new(true, 4_096));
    assert_eq!(Class::new(true, u64::MAX), Class::new(true, 1 << 31));
    assert_eq!(Class::new(true, 0).index(), 1);
}

/// An estimate is never longer than the operation was away, nor a limit for ever, whatever ends when.
#[test]
fn estimates_are_bounded() {
    for estimation in [Estimation::Sample, Estimation::Serial, Estimation::Replay(3)] {
        let mut rng = Rng::stream(3, "bounds");
        let (mut estimator, mut now) = (estimation.build(5), 0);
        let mut sent = Vec::new();
        for key in testing::keys(3_000) {
            now += rng.below(300_000);
            let at = Instant::from_nanos(now);
            if let Some((limit, until)) = estimator.limit(at) {
                assert!(limit >= 1 && until > at && until <= at + Duration::from_millis(4));
            }
            estimator.submit(at, key, Class::new(rng.below(2) == 0, rng.below(1 << 20)));
            sent.push((key, at));
            while sent.len() as u64 > rng.below(40) {
                let (key, since) = sent.swap_remove(rng.below(sent.len() as u64) as usize);
                assert!(estimator.complete(at, key) <= at.since(since), "{estimation:?}");
            }
        }
    }
}
