use super::contestants::{ALL, FAIR_TIME_4, FIFO, FOG};
use super::hosts::Kind;
use super::*;
use std::sync::OnceLock;
use study::Study;

fn case(rival: Rival, hosts: Vec<Host>, garbage: Garbage) -> Case {
    Case { rival, hosts, garbage, until: Some(2_000_000_000) }
}

/// A reader alone keeps all four chips busy with reads of 150 us, a writer with programs of 1000.
#[test]
fn one_stream_is_as_by_hand() {
    for (kind, mib) in [(Kind::Read, 104.17), (Kind::Write, 15.625)] {
        for rival in [FOG, FIFO, FAIR_TIME_4] {
            let outcome = case(rival, vec![Host::of(kind)], Garbage::None).play(1);
            let rate = outcome.rate(0, 500_000_000, 2_000_000_000);
            assert!((rate / mib - 1.0).abs() < 0.002, "{} {kind:?}: {rate}", rival.policy.label);
            assert!(outcome.used(0, 2_000_000_000) > 0.999);
        }
    }
}

/// Blocks of 64 reads, 64 programs and an erasure come every 200 ms, the first at once: 75.6 ms of a chip
/// for each.
#[test]
fn the_papers_collection_is_as_by_hand() {
    let garbage = Garbage::Periodic { period: 200_000_000, pages: 64 };
    let host = Host { count: Some(100_000), ..Host::of(Kind::Read) };
    let outcome = case(FOG, vec![host], garbage).play(1);
    let collected = outcome.time(0, 2_000_000_000)[1];
    assert!((collected / (10.0 * 75.6e6) - 1.0).abs() < 1e-9, "{collected}");
    assert_eq!(outcome.lulls.len(), 10);
}

/// A seed names a run to the nanosecond; another seed is another run.
#[test]
fn a_seed_is_a_run() {
    let play = |seed| {
        let hosts = vec![Host::of(Kind::Read), Host::of(Kind::Mixed), Host::of(Kind::Write)];
        let outcome = case(FAIR_TIME_4, hosts, Garbage::Real).play(seed);
        (outcome.responses, outcome.erased)
    };
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}

/// Every rival answers every request of a run with real collection, although blocks run out.
#[test]
fn nothing_is_lost_under_any_rival() {
    for &rival in ALL {
        let hosts: Vec<_> = [Kind::Read, Kind::Write, Kind::Mixed]
            .map(|kind| Host { count: Some(1_500), ..Host::of(kind) })
            .to_vec();
        let case = Case { rival, hosts, garbage: Garbage::Real, until: None };
        let outcome = case.play(3);
        let answered: Vec<_> = outcome.responses.iter().map(Vec::len).collect();
        assert_eq!(answered[..3], [1_500; 3], "{}", rival.policy.label);
        assert!(outcome.erased > 10, "{}", rival.policy.label);
    }
}

/// The whole study, each cell once.
fn study() -> &'static Study {
    static STUDY: OnceLock<Study> = OnceLock::new();
    STUDY.get_or_init(|| study::run(Settings { seed: 1, seeds: Some(1) }, &[], &|_| ()))
}

/// In a single run of each cell every claim holds that must, and figure 4's printed order does not.
#[test]
fn required_claims_hold() {
    let claims = claims::judge(study());
    assert!(claims.iter().filter(|claim| claim.required).count() > 15);
    for claim in claims.iter().filter(|claim| claim.required) {
        assert!(claim.holds, "{claim:?}");
    }
    let printed = claims.iter().find(|claim| claim.id == "F4-printed").unwrap();
    assert!(!printed.holds && !printed.required, "{printed:?}");
}

/// FOG's figures are those of an independent implementation, as far as chance allows
/// (docs/research/dispatch.md, section 1).
#[test]
fn figures_are_the_published_ones() {
    let row = |figure, policy| {
        let is = |row: &&study::ShareRow| (row.figure, row.policy) == (figure, policy);
        study().shares.iter().find(is).unwrap()
    };
    for (figure, stream, end) in [(4, 0, 2.396), (4, 7, 9.209), (5, 0, 1.247)] {
        let measured = row(figure, "fog").ends[stream];
        assert!((measured / end - 1.0).abs() < 0.003, "figure {figure}: {measured}, not {end}");
    }
    for (policy, figure, all) in [
        ("rr", 4, 73.9),
        ("drr", 4, 73.9),
        ("fifo", 5, 331.0),
        ("rr", 5, 331.0),
        ("drr", 5, 145.0),
        ("wfq, flat", 5, 145.0),
        ("fog, flat, uncorrected", 5, 145.0),
    ] {
        let measured = row(figure, policy).all;
        assert!((measured / all - 1.0).abs() < 0.03, "{policy}: {measured} %, not {all}");
    }
    let turn = |policy| study().turns.iter().find(|row| row.policy == policy).unwrap();
    assert!((turn("fifo").change + 74.7).abs() < 2.0, "{:?}", turn("fifo"));
    assert!((turn("rr").change + 73.9).abs() < 1.0, "{:?}", turn("rr"));
}

/// Every claim that must hold fails when the rows say otherwise.
#[test]
fn claims_can_fail() {
    let mut other = study().clone();
    for row in &mut other.turns {
        (row.alone, row.both_read, row.time, row.change) = (90.0, [60.0, 50.0], [0.6, 0.4], -20.0);
    }
    for row in &mut other.shares {
        (row.all, row.any, row.used) = (10.0, 10.0, 50.0);
        (row.garbage, row.ratio) = (9.5, 1.2);
        row.ends.reverse();
        row.order.reverse();
    }
    for row in &mut other.hot {
        (row.used, row.spread) = (60.0, 1.5);
    }
    for row in &mut other.probes {
        row.p99_ms = 5.0;
    }
    for row in &mut other.debts {
        (row.reader, row.stalled) = (0.8, 20.0);
    }
    for claim in claims::judge(&other).iter().filter(|claim| claim.required) {
        assert!(!claim.holds, "{claim:?}");
    }
}

/// Without a row every claim is still there, and the ones that need it fail: the command exits with 4.
#[test]
fn a_missing_row_fails() {
    let all: Vec<_> = claims::judge(study()).iter().map(|claim| claim.id).collect();
    let judged = |change: &dyn Fn(&mut Study)| {
        let mut other = study().clone();
        change(&mut other);
        let claims = claims::judge(&other);
        assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), all);
        let failed = claims.into_iter().filter(|claim| claim.required && !claim.holds);
        failed.map(|claim| claim.id).collect::<Vec<_>>()
    };
    assert_eq!(judged(&|_| ()), [""; 0]);
    assert_eq!(judged(&|study| study.turns.retain(|row| row.policy != "drr")), ["F3-others"]);
    let fog = judged(&|study| study.shares.retain(|row| (row.figure, row.policy) != (4, "fog")));
    assert_eq!(fog, ["F4-shares", "F4-derived"]);
    let blind = judged(&|study| study.shares.retain(|row| row.policy != "rr"));
    assert_eq!(blind, ["F5-others"]);
    let ours = judged(&|study| study.shares.retain(|row| row.policy != "fair-time, depth 4"));
    assert_eq!(ours, ["F5-fair-time"]);
    assert_eq!(judged(&|study| study.hot.clear()), ["W-hot", "W-even"]);
    assert_eq!(judged(&|study| study.probes.clear()), ["W-probe"]);
}
