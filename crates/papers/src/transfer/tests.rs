use super::engine::{Done, Job, play};
use super::study::{Study, run};
use super::*;
use std::sync::OnceLock;
use weir_flow::policy::Choice;
use weir_flow::transfer::POLICIES;

fn study() -> &'static Study {
    static STUDY: OnceLock<Study> = OnceLock::new();
    STUDY.get_or_init(|| run(Settings { seed: 1, seeds: None }, &[], &|_| ()))
}

/// A long reply, and a short one while its second chunk is sent: the short one goes at the next boundary.
#[test]
fn the_link_sends_chunk_by_chunk() {
    let mut choice = Choice::named(POLICIES, "srpt").unwrap();
    choice.set("chunk", 10).unwrap();
    let jobs = [Job { at: 5, bytes: 35 }, Job { at: 16, bytes: 3 }];
    let done = play(&choice, &jobs);
    assert_eq!(done, [Done { start: 5, end: 43 }, Done { start: 25, end: 28 }]);
}

/// Every claim that must hold does.
#[test]
fn required_claims_hold() {
    let claims = claims::judge(study());
    assert_eq!(claims.iter().filter(|claim| claim.required).count(), 4);
    for claim in claims.iter().filter(|claim| claim.required) {
        assert!(claim.holds, "{claim:?}");
    }
}

/// Of the paper's own, none holds but the one that is about right.
#[test]
fn the_papers_claims_do_not_hold() {
    let claims = claims::judge(study());
    let claims = claims.iter().filter(|claim| !claim.required);
    let holding: Vec<_> = claims.filter(|claim| claim.holds).map(|claim| claim.id).collect();
    assert_eq!(holding, ["E-ratio"]);
}

/// The paper's figures follow from other times of arrival, see docs/reference/transfer.md, section 4.
#[test]
fn misprints_come_from_other_arrivals() {
    let waited = |fifth: u64, rule: usize| {
        let mut jobs = example::JOBS;
        jobs[4].at = fifth;
        example::rows(&jobs)[rule].waited
    };
    assert_eq!((waited(9, 0), waited(10, 0)), (53, 52));
    assert_eq!((waited(8, 1), waited(9, 1), waited(10, 1)), (36, 35, 34));
    assert_eq!((waited(8, 7), waited(9, 7), waited(10, 7)), (50, 53, 56));
}

/// FIFO on each link delays as in the paper: the loop that plays policies agrees with the recursion of the rate search.
#[test]
fn fifo_delays_as_in_the_paper() {
    for point in &study().points {
        assert!((point.delay - DELAY).abs() < 0.001, "{point:?}");
    }
}

/// A policy that is half a point off on one trace is noticed, and so is a reading of DQBS that beats slack.
#[test]
fn one_policy_can_fail() {
    let judged = |change: &dyn Fn(&mut Study), id| {
        let mut other = study().clone();
        change(&mut other);
        claims::judge(&other).into_iter().find(|claim| claim.id == id).unwrap().holds
    };
    let off = |study: &mut Study| {
        let row = study.known.iter_mut().find(|row| row.policy == "srpt 4 KiB").unwrap();
        (row.delay_change, row.response_change) =
            (row.delay_change + 0.5, row.response_change + 0.5);
    };
    assert!(judged(&|_| (), "T-known") && !judged(&off, "T-known"));
    let better = |study: &mut Study| {
        let row = study.traces.iter_mut().find(|row| row.policy == "dqbs literal, len").unwrap();
        row.response_change = -9.0;
    };
    assert!(!judged(&|_| (), "T-balance") && judged(&better, "T-balance"));
}

/// Every claim that must hold fails when the rows say otherwise.
#[test]
fn claims_can_fail() {
    let mut other = study().clone();
    other.example[1].waited += 1;
    for row in other.traces.iter_mut().chain(&mut other.known) {
        row.response_change += 1.0;
        row.figures.late_most += 11.0;
    }
    for claim in claims::judge(&other).iter().filter(|claim| claim.required) {
        assert!(!claim.holds, "{claim:?}");
    }
}
