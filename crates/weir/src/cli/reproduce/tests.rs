use super::*;
use weir_sim::experiment::claim::Claim;
use weir_sim::experiment::control::study::{IdleRow, Row, ScenarioRow, StatedRow, Study, Table};
use weir_sim::experiment::control::{Course, Gate, Sample, TenantFigures};

fn claim(holds: bool, required: bool) -> Claim {
    Claim {
        id: "C1",
        set: "A",
        arrivals: "poisson",
        published: "less < more",
        measured: 12.5,
        unit: "%",
        tolerance: ">= 12",
        holds,
        required,
        note: "a & b".to_owned(),
    }
}

fn chapter(claims: Vec<Claim>) -> Chapter {
    let tenant = TenantFigures { completed_per_second: 1_000.0, ..TenantFigures::default() };
    let row = |interval| Row { policy: "TA0", interval, tenants: [tenant; 2] };
    let gate = |seconds, on| Gate { seconds, tenant: 1, on };
    let sample = |seconds| Sample { seconds, inflight: 7, response_ms: 3.0 };
    let course = Course {
        samples: [0.0, 0.01].map(sample).to_vec(),
        gates: vec![gate(0.001, true), gate(0.009, false)],
    };
    let study = Study {
        seed: 3,
        claims,
        tables: vec![Table {
            set: "A",
            arrivals: "poisson",
            seeds: 2,
            rows: (1..=9).map(row).collect(),
        }],
        scenarios: vec![ScenarioRow {
            scenario: 1,
            title: "a drop",
            policy: "TA0",
            worst: 0.5,
            completed_per_second: 2_000.0,
            later: Some((0.25, 10.0)),
        }],
        idle: vec![IdleRow { set: "A", arrivals: "poisson", policy: "TA1", tenant }],
        stated: vec![StatedRow {
            set: "A",
            policy: "TA4",
            stated: 0.5,
            worst: 0.97,
            mean: 0.98,
            third: 5_000.0,
        }],
        courses: vec![("TA4", course)],
    };
    control::chapter("control", study).unwrap()
}

/// Only a claim that must hold and does not is a failure; its exit code is that of an expectation.
#[test]
fn only_required_claims_decide() {
    let code = |claims: &[(bool, bool)]| {
        let claims = claims.iter().map(|&(holds, required)| claim(holds, required)).collect();
        exit(&[chapter(claims)])
    };
    assert_eq!(code(&[(true, true), (false, false), (true, false)]), Exit::Success);
    assert_eq!(code(&[(true, true), (false, true)]), Exit::Expectation);
}

/// The JSON object has a version, and for each experiment its name, its seed and its claims with every
/// field that scripts read.
#[test]
fn the_object_is_the_promised_one() {
    let value = object(vec![chapter(vec![claim(true, true)])]);
    assert_eq!(value["version"], 1);
    let experiment = &value["experiments"][0];
    assert_eq!((&experiment["name"], &experiment["seed"]), (&json!("control"), &json!(3)));
    assert!(experiment.get("courses").is_none());
    let claim = &experiment["claims"][0];
    for (field, is) in [
        ("id", json!("C1")),
        ("published", json!("less < more")),
        ("measured", json!(12.5)),
        ("unit", json!("%")),
        ("tolerance", json!(">= 12")),
        ("holds", json!(true)),
        ("note", json!("a & b")),
        ("set", json!("A")),
        ("arrivals", json!("poisson")),
    ] {
        assert_eq!(claim[field], is, "{field}");
    }
}

/// The text has every claim with its verdict, and every table.
#[test]
fn the_text_says_all() {
    let text = text::text(&[chapter(vec![claim(true, true), claim(false, true)])]);
    for part in [
        "12.500",
        "poisson   holds                less < more",
        "poisson   MUST HOLD, does not  less < more",
        "C1 A poisson: a & b\n",
        "Set A, poisson arrivals, means of 2 runs",
        "S1: a drop",
        "1000/1000  2000",
        "x0.5",
        "1 of 2 claims hold, 1 that must hold do not; seed 3\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The page is whole by itself: it names nothing outside, and what is text stays text.
#[test]
fn the_page_stands_alone() {
    let page = page::page(&[chapter(vec![claim(false, false)])]);
    for outside in ["http", "src=", "href", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for part in ["less &lt; more", "a &amp; b", "<polyline", "class=on", "Interval 7: requests/s"] {
        assert!(page.contains(part), "{part}");
    }
    for (open, close) in [("<table", "</table>"), ("<svg", "</svg>"), ("<details", "</details>")] {
        assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
    }
}
