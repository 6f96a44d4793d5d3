//! The judge of one path beside another.

use super::*;
use crate::testing::keys;

const GROUNDS: Grounds =
    Grounds { response: Duration::ZERO, expected: Duration::ZERO, events: 1, over: Duration::ZERO };

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A path that takes twenty times as long as its peer is ejected; it returns after as many
/// good probes in a row as the settings ask for. Each step is a change that the judge reports.
#[test]
fn a_slow_path_goes_and_returns() {
    let settings = Settings::default();
    let mut judge = Judge::new(&settings, 2);
    let answer = |judge: &mut Judge, now: Instant, path: usize, millis: u64, probe: bool| {
        let started = Instant::from_nanos(now.as_nanos() - millis * 1_000_000);
        let (usable, returning, alone) = (!probe, false, true);
        let answered = Answered { path, bytes: 4_096, started, alone, probe, usable, returning };
        judge.answered(now, answered, |_| true)
    };
    let mut changes = Vec::new();
    for n in 0..40 {
        answer(&mut judge, at(1_000 + n * 20), 0, 1, false);
        let slow = at(1_010 + n * 20);
        if !judge.is_ejected(1) {
            changes.extend(answer(&mut judge, slow, 1, 20, false));
        }
    }
    assert_eq!(changes.last(), Some(&Change::Ejected));
    let Verdict::Ejected { retry_at } = judge.verdict(1) else { panic!("it is ejected") };
    let ejection = judge.ejection(1).unwrap();
    assert_eq!(ejection.grounds.response, Duration::from_millis(20));
    let expected = ejection.grounds.expected.as_nanos();
    assert!(expected.abs_diff(1_000_000) < 20_000, "{expected}");
    assert!(ejection.grounds.over >= settings.slow_after, "{:?}", ejection.grounds);
    assert!(retry_at > ejection.next_probe);
    let (key, mut good) = (keys(1)[0], 0);
    for n in 0..20 {
        let now = at(2_000 + n * 200);
        answer(&mut judge, now, 0, 1, false);
        if judge.probe_due(now, 4_096, |_| true).is_some() {
            judge.probe_sent(now, 1, key, 4_096);
            judge.probe_ended(1);
            let end = now + Duration::from_millis(1);
            if let Some(change) = answer(&mut judge, end, 1, 1, true) {
                assert_eq!((change, good + 1), (Change::Returned(Why::Probed), 4));
                assert_eq!(judge.verdict(1), Verdict::Good);
                return;
            }
            good += 1;
        }
    }
    panic!("the path did not return");
}

/// A path where every fourth event is as fast as on its peer pauses often, but it is not slow: it stays, however long
/// the others take and however long this lasts.
#[test]
fn a_path_that_pauses_often_stays() {
    let mut judge = Judge::new(&Settings::default(), 2);
    let mut now = at(1_000);
    for n in 0..4_000 {
        for (path, millis) in [(0, 1), (1, if n % 4 == 0 { 1 } else { 40 })] {
            let started = now;
            now += Duration::from_millis(millis);
            let (probe, usable, returning, alone) = (false, true, false, true);
            let answered =
                Answered { path, bytes: 4_096, started, alone, probe, usable, returning };
            let change = judge.answered(now, answered, |_| true);
            assert!(!matches!(change, Some(Change::Ejected)), "after {n} events");
        }
        // Four events of the path are a stretch, and three of them are slow.
        now += Duration::from_millis(25);
    }
}

/// A path that does one I/O at a time and takes three times as long as its peer stays, though its service times are
/// twelve times as long as those of the peer, which does four beside each other.
#[test]
fn a_path_below_the_factor_stays_beside_a_parallel_one() {
    let answer = |judge: &mut Judge, path: usize, started: u64, ended: u64, alone: bool| {
        let (probe, usable, returning) = (false, true, false);
        let (started, now) = (at(started), at(ended));
        let answered = Answered { path, bytes: 4_096, started, alone, probe, usable, returning };
        judge.answered(now, answered, |_| true)
    };
    for factor in [3, 8] {
        let mut judge = Judge::new(&Settings::default(), 2);
        let mut ejected = false;
        for n in 0..100 {
            let begun = 1_000 + n * 50;
            // Four at a time on the good path, and sometimes one alone.
            for end in [1, 2, 3, 4, 5, 6] {
                for _ in 0..4 {
                    answer(&mut judge, 0, begun + 4 * (end - 1), begun + 4 * end, end == 1);
                }
            }
            let took = 4 * factor;
            ejected |=
                answer(&mut judge, 1, begun + 50 - took, begun + 50, true) == Some(Change::Ejected);
            if ejected {
                break;
            }
        }
        assert_eq!(ejected, factor == 8, "{factor} times slower");
    }
}

/// What an I/O costs that is much larger than all before is not known, and shows nothing: the path that does it is not
/// slow beside one that has nothing to do.
#[test]
fn larger_ios_do_not_eject_the_only_path_in_use() {
    let mut judge = Judge::new(&Settings::default(), 2);
    let answer = |judge: &mut Judge, path: usize, bytes: u64, started: Instant, now: Instant| {
        let (probe, usable, returning, alone) = (false, true, false, true);
        let answered = Answered { path, bytes, started, alone, probe, usable, returning };
        judge.answered(now, answered, |_| true)
    };
    let micros = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1_000);
    let mut now = 0;
    // It is three times slower with what both do, so it teaches no costs.
    for n in 0..400 {
        let (path, time) = [(0, 300), (1, 900), (1, 900), (1, 900)][n % 4];
        let ended = now + time;
        answer(&mut judge, path, [4_096, 65_536][n / 4 % 2], micros(now), micros(ended));
        now = ended;
    }
    for n in 0..400 {
        let ended = now + 40_000;
        // The other path answers a small one now and then, so that it is a measure.
        let (path, bytes) = if n % 8 == 0 { (0, 4_096) } else { (1, 1 << 20) };
        let began = if path == 0 { ended - 300 } else { now };
        let change = answer(&mut judge, path, bytes, micros(began), micros(ended));
        assert!(!matches!(change, Some(Change::Ejected)), "after {n}");
        now = ended;
    }
}

/// A path that is ejected is not ejected again.
#[test]
#[should_panic(expected = "ejected twice")]
fn a_path_is_ejected_once() {
    let mut judge = Judge::new(&Settings::default(), 2);
    judge.eject(at(1), 0, GROUNDS);
    judge.eject(at(1), 0, GROUNDS);
}

/// A return that was not counted would hide ejected paths from probes.
#[test]
#[should_panic(expected = "not counted as ejected")]
fn ejected_paths_are_counted() {
    let mut judge = Judge::new(&Settings::default(), 2);
    judge.eject(at(1), 0, GROUNDS);
    judge.ejected = 0;
    judge.reinstate(0);
}

/// One probe at a time.
#[test]
#[should_panic(expected = "one probe at a time")]
fn probes_do_not_overlap() {
    let mut judge = Judge::new(&Settings::default(), 2);
    judge.eject(at(1), 0, GROUNDS);
    let key = keys(1)[0];
    judge.probe_sent(at(2), 0, key, 512);
    judge.probe_sent(at(2), 0, key, 512);
}
