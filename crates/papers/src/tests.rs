use super::*;
use crate::chapter::Chapter;
use crate::claim::Claim;
use crate::control::study::{IdleRow, Row, ScenarioRow, Study, Table};
use crate::control::{Course, Gate, Sample, TenantFigures};
use serde_json::json;

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
        courses: vec![("TA4", course)],
    };
    Chapter::new("control", 3, claims, &study, control::page::parts(&study))
}

/// A study of the path selectors with a row or two of everything.
fn paths() -> Chapter {
    use crate::path::Sample;
    use crate::path::study::{
        CalmRow, Course, FaultRow, OutageRow, PrintedRow, ResponseRow, RuleRow, SlowRow, SpreadRow,
        Study, ThresholdRow,
    };
    let spread = |selector, imbalance| SpreadRow {
        situation: "A",
        arrivals: "closed, 16",
        selector,
        runs: 4,
        served_s: [125.25, 375.0],
        files: [5_000.0, 5_000.0],
        end_s: 250.0,
        speed_up: 1.5,
        imbalance,
        as_round_robin: 0,
    };
    let rule =
        |rule, used| RuleRow { paths: 8, rule, runs: 4, closed_s: 2.77, mean_ms: 53.2, used };
    let response = |workload: &str, selector, paths| ResponseRow {
        workload: workload.to_owned(),
        paths,
        load: 0.8,
        selector,
        runs: 4,
        mean_ms: 0.42,
        mean_from_to_ms: (0.4, 0.5),
        p99_ms: 123.4,
    };
    let study = Study {
        seed: 3,
        printed: vec![PrintedRow {
            block: "RR, A",
            figure: "mean, s",
            printed: 251.01,
            repaired: 251.01,
            measured: 250.18,
            means: Some((151.0, 251.0)),
        }],
        spreads: vec![spread("rr", 3.0), spread("roung", 1.002), spread("roung-job", 9_999.0)],
        loads: vec![spread("rr", 3.0), spread("roung-job", 1.046)],
        rules: vec![rule("literal", 4), rule("roung", 8)],
        thresholds: vec![ThresholdRow { threshold: 6, runs: 4, end_s: [277.0, 257.0, 253.0] }],
        responses: vec![response("fixed", "jsw", "2"), response("pareto", "jsw", "4")],
        speeds: vec![response("fixed", "rr", "10:1")],
        faults: vec![FaultRow {
            fault: "stall",
            sizes: "fixed",
            selector: "jsw",
            runs: 4,
            mean_ms: 0.28,
            p99_ms: 1.3,
            p999_ms: 2.7,
            long: 1.25,
            long_median: 1.0,
            long_most: 2,
            after_ms: 0.19,
            after_share: 0.37,
        }],
        outages: vec![OutageRow {
            selector: "jsw",
            holds: true,
            runs: 4,
            done: 80_000,
            failed: 0,
            came_without: 3_200,
            failed_at_once: 0,
            lost: 0,
            retried: 17,
            longest_ms: 201.7,
            second_group: 1.0,
        }],
        calm: vec![CalmRow {
            selector: "jsw",
            hours: 24.0,
            ios: 20_000_000,
            ejections: 1,
            silent: 0,
        }],
        slowdowns: vec![SlowRow {
            selector: "jsw",
            factor: 20,
            runs: 10,
            ejected: 10,
            left_s: (0.6, 0.8),
            back_s: (1.2, 2.4),
        }],
        traces: vec![response("a<b", "rr", "1:1")],
        courses: vec![Course {
            fault: "stall",
            sizes: "fixed",
            selector: "jsw",
            trouble: (1.0, 3.0),
            samples: [0.5, 3.5]
                .map(|seconds| Sample { seconds, mean_ms: 0.2, longest_ms: 2_000.0 })
                .to_vec(),
        }],
    };
    Chapter::new("path", 3, vec![claim(true, true)], &study, path::page::parts(&study))
}

/// The study of the intermediate target, whole: it takes less than a second.
fn middle() -> Chapter {
    let settings = Settings { seed: 3, seeds: Some(10) };
    intermediate::chapter(settings, &Traces::default(), &|_| ())
}

/// The study of the intermediate target says what was published and what came out, and shows both figures.
#[test]
fn the_intermediate_study_says_all() {
    let chapter = middle();
    assert!(met(std::slice::from_ref(&chapter)));
    let text = text::text(std::slice::from_ref(&chapter));
    for part in [
        "W            1:9          one by one     holds          +59 %",
        "R-printed    video        one by one     does not hold  +30 %",
        "     64          6602  8318 +25.99   9283 +40.61  10501 +59.07",
        "     64         18142  30.82/29.80  27.40/25.64  17.12/14.62",
        "1:9         197.3                     9229  6051",
        "    1         12.8          25.5     50.0         50.0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = html::page(&[chapter]);
    assert_eq!(page.matches("<polyline").count(), 3 * (4 + 3 + 3) + 4 + 3);
    assert_eq!(page.matches("</svg>").count(), 3 * 3 + 2);
}

/// Every table of the path study is there with its figures, and a table that is empty is not.
#[test]
fn the_path_study_says_all() {
    let text = text::text(&[paths()]);
    for part in [
        "RR, A  mean, s   251.01    251.01    250.18                   151.000   251.000",
        "Situation A, 10,000 files, means of 4 runs",
        "closed, 16  125.2/375.0  250.0  125.2/375.0  250.0    1.50      1.002  125.2/375.0  250.0    1.50      total",
        "A          closed, 16   375.0",
        "8      2.77; 53.200 (4)  2.77; 53.200",
        "6          277.0  257.0  253.0",
        "selector  fixed, 0.8  pareto 4 paths, 0.8",
        "jsw         0.42/123             0.42/123",
        "fixed 10:1, 0.8",
        "a<b 1:1, 0.8",
        "jsw          0.28     1.3       2.7          1.2              2           0.19         0.37",
        "jsw       wait            80000",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("A path is 20 times slower"), "{text}");
}

/// Only a claim that must hold and does not is a failure.
#[test]
fn only_required_claims_decide() {
    let code = |claims: &[(bool, bool)]| {
        let claims = claims.iter().map(|&(holds, required)| claim(holds, required)).collect();
        met(&[chapter(claims)])
    };
    assert!(code(&[(true, true), (false, false), (true, false)]));
    assert!(!code(&[(true, true), (false, true)]));
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
        "1 of 2 claims hold, 1 that must hold do not; seed 3\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The page is whole by itself: it names nothing outside, and what is text stays text.
#[test]
fn the_page_stands_alone() {
    let page = html::page(&[chapter(vec![claim(false, false)]), paths(), middle()]);
    for outside in ["http", "src=", "href", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for part in
        ["less &lt; more", "a &amp; b", "<polyline", "class=on", "a&lt;b", "Interval 7: requests/s"]
    {
        assert!(page.contains(part), "{part}");
    }
    for (open, close) in [("<table", "</table>"), ("<svg", "</svg>"), ("<details", "</details>")] {
        assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
    }
}
