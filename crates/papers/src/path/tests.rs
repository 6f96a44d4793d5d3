use super::study::{Study, run as run_study};
use super::*;
use run::Done;
use std::sync::OnceLock;
use weir_flow::policy::Choice;

/// A nanosecond for a byte.
const PLAIN: Link = Link { fixed: 0, rate: 1_000_000_000 };

fn machine(groups: &[u32], changes: &[(u64, usize, bool)], holds: bool) -> Machine {
    let change = |&(at, path, works): &(u64, usize, bool)| Change { at, path, works };
    Machine {
        paths: groups.iter().map(|&group| (PLAIN, group)).collect(),
        trouble: None,
        changes: changes.iter().map(change).collect(),
        holds,
    }
}

/// What ends, in order: which, when, where, and how often it was retried.
fn play(
    machine: &Machine,
    ios: &[(u64, u64)],
    outstanding: Option<usize>,
) -> Vec<(usize, u64, Option<usize>, u32)> {
    let choice = Choice::named(POLICIES, "round-robin").unwrap();
    let paths = machine.paths.len() as u32;
    let build = || (choice.policy().build)(choice.values(), paths);
    let ios: Vec<Io> = ios.iter().map(|&(at, bytes)| Io { at, bytes }).collect();
    let mut ends = Vec::new();
    let mut over = |done: Done| ends.push((done.index, done.ended, done.path, done.retries));
    run::play(machine, &ios, outstanding, &build, &mut over);
    ends
}

/// Two files are outstanding on two paths in turn: the third starts when the first ends, and waits behind
/// no other; the fourth goes to the other path and waits for the large one.
#[test]
fn a_closed_loop_is_as_by_hand() {
    let ends = play(&machine(&[0, 0], &[], true), &[(0, 10), (0, 30), (0, 10), (0, 10)], Some(2));
    let expected = [(0, 10, Some(0), 0), (2, 20, Some(0), 0), (1, 30, Some(1), 0)];
    assert_eq!(ends[..3], expected);
    assert_eq!(ends[3..], [(3, 40, Some(1), 0)]);
}

/// Open arrivals start when they come, or when what is before them on the path ends.
#[test]
fn an_open_run_is_as_by_hand() {
    let ends = play(&machine(&[0], &[], true), &[(0, 10), (5, 10), (20, 10), (45, 5)], None);
    let expected = [(0, 10), (1, 20), (2, 30), (3, 50)];
    assert_eq!(ends, expected.map(|(index, end)| (index, end, Some(0), 0)));
}

/// What is on a path that fails goes another way before what comes later, in the order in which it had
/// been started; the second group is used when the first has nothing left, and stays in use.
#[test]
fn what_fails_is_retried_in_order() {
    let changes = [(15, 0, false), (20, 1, false), (100, 1, true)];
    let ios = [(0, 10), (0, 10), (0, 10), (0, 10), (0, 10), (0, 10), (30, 10), (110, 10)];
    let ends = play(&machine(&[0, 0, 1], &changes, true), &ios, None);
    // At 15 path 0 fails with the third and the fifth, which go behind the fourth and the sixth on path 1.
    // The fourth ends at 20, as that path fails: an end comes first.
    let expected = [
        (0, 10, Some(0), 0),
        (1, 10, Some(1), 0),
        (3, 20, Some(1), 0),
        (5, 30, Some(2), 1),
        (2, 40, Some(2), 2),
        (4, 50, Some(2), 2),
        (6, 60, Some(2), 0),
        (7, 120, Some(2), 0),
    ];
    assert_eq!(ends, expected);
}

/// Without any path what comes waits for one, in order, or fails at once where it may not wait.
#[test]
fn without_a_path_they_wait_or_fail() {
    let (changes, ios) = ([(5, 0, false), (50, 0, true)], [(0, 10), (20, 10), (60, 10)]);
    assert_eq!(machine(&[0], &changes, true).outage(), Some((5, 50)));
    assert_eq!(machine(&[0, 1], &changes, true).outage(), None, "the other path works");
    let waits = play(&machine(&[0], &changes, true), &ios, None);
    assert_eq!(waits, [(0, 60, Some(0), 1), (1, 70, Some(0), 0), (2, 80, Some(0), 0)]);
    let fails = play(&machine(&[0], &changes, false), &ios, None);
    assert_eq!(fails, [(0, 5, None, 1), (1, 20, None, 0), (2, 70, Some(0), 0)]);
}

/// A trace has a rate; one without cannot be used, and one that is too large is refused with its place.
#[test]
fn traces_are_read_and_refused() {
    let folder = std::env::temp_dir().join(format!("weir-sim-path-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let read = |text: &str| {
        let path = folder.join("trace.csv");
        std::fs::write(&path, text).unwrap();
        Trace::read("trace", &path)
    };
    let header = "time_ns,op,dev,offset,size\n";
    // Of eleven the last comes at once after the one before it: a tenth is one.
    let lines: Vec<_> = (0..10).map(|n| format!("{},R,0,0,1000\n", n * 1_000)).collect();
    let trace = read(&format!("{header}{}9500,R,0,0,500\n", lines.concat())).unwrap().unwrap();
    assert!((trace.busiest() - 2e9).abs() < 1.0, "{}", trace.busiest());
    assert!(read(&format!("{header}0,R,0,0,512\n0,R,0,0,512\n")).unwrap().is_none());
    let error = read(&format!("{header}0,R,0,0,512\n1,R,0,0,2199023255552\n")).unwrap_err();
    assert!(error.message.contains("1 TiB at most") && error.line == 3, "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A seed names a run to the nanosecond, also where the selector draws; another seed is another run.
#[test]
fn a_seed_is_a_run() {
    let selector = contestants::ALL.into_iter().find(|selector| selector.label == "p2cb").unwrap();
    let case = Case {
        selector,
        paths: vec![(PLAIN, 0); 3],
        asked: Asked::Drawn(Sizes::Pareto, Arrivals::Poisson(0.8), 2_000),
        fault: Fault::Slow,
    };
    assert_eq!(case.play(1, true), case.play(1, true));
    assert_ne!(case.play(1, true), case.play(2, true));
    assert!(!case.is_given());
}

/// The whole study, each cell once.
fn study() -> &'static Study {
    static STUDY: OnceLock<Study> = OnceLock::new();
    STUDY.get_or_init(|| run_study(Settings { seed: 1, seeds: Some(1) }, &[], &|_| ()))
}

/// Table 1 comes out as repaired in a single run: within 2 % in situation A, within 1 % of 5000 files.
#[test]
fn a_run_is_table_1() {
    let rows = &study().printed;
    assert_eq!(rows.len(), 12);
    for row in rows {
        let off = (row.measured / row.repaired - 1.0).abs();
        assert!(off < 0.02, "{row:?}");
    }
}

/// What chance has no part in is what docs/research/path.md has, as far as its tenths of
/// seconds tell files. Ends come before arrivals at the same time, or paths at load 1 would never drain.
#[test]
fn equal_sizes_are_the_published_ones() {
    for (arrivals, selector, files) in [
        ("interval, 1", "roung", [5_000.0, 5_000.0]),
        ("interval, 2", "roung", [2_620.0, 7_380.0]),
        ("interval, 5", "roung", [7_786.0, 2_214.0]),
        ("interval, 5", "roung-job", [3_000.0, 7_000.0]),
        ("interval, 20", "roung-job", [750.0, 9_250.0]),
        ("closed, 8", "roung", [4_999.0, 5_001.0]),
        ("closed, 64", "roung", [5_031.0, 4_969.0]),
        ("closed, 64", "roung-job", [4_971.0, 5_029.0]),
    ] {
        let is = |row: &&study::SpreadRow| {
            (row.situation, row.arrivals, row.selector) == ("B constant", arrivals, selector)
        };
        let row = study().spreads.iter().find(is).unwrap();
        assert_eq!(row.files.map(f64::to_bits), files.map(f64::to_bits), "{row:?}");
    }
}

/// In a single run of each cell every claim holds that must.
#[test]
fn required_claims_hold() {
    let claims = claims::judge(study());
    let required: Vec<_> = claims.iter().filter(|claim| claim.required).collect();
    assert!(required.len() > 15);
    for claim in required {
        assert!(claim.holds, "{claim:?}");
    }
}

/// Every claim that must hold fails when the rows say otherwise.
#[test]
fn claims_can_fail() {
    let mut other = study().clone();
    for row in &mut other.printed {
        row.measured *= 1.5;
        row.printed = row.repaired;
        row.means = row.means.map(|(_, repaired)| (repaired, repaired));
    }
    for row in other.spreads.iter_mut().chain(&mut other.loads) {
        row.speed_up = 1.3;
        row.imbalance = 2.0;
        row.as_round_robin = 0;
        row.files = [6_000.0, 4_000.0];
    }
    for row in &mut other.rules {
        row.used = 6;
    }
    for row in other.responses.iter_mut().chain(&mut other.speeds) {
        let worse = matches!(row.selector, "jsw" | "st" | "rr") && row.workload != "pareto";
        row.mean_ms = if worse || row.selector == "jsw" { 9.0 } else { 5.0 };
        row.p99_ms = 5.0;
    }
    for row in &mut other.faults {
        row.long_median = 6.0;
    }
    for row in &mut other.calm {
        row.ejections = 3;
    }
    for row in &mut other.slowdowns {
        (row.left_s, row.back_s) = ((2.0, 2.0), (11.0, 11.0));
    }
    for row in &mut other.outages {
        (row.lost, row.second_group) = (1, 0.9);
        row.failed_at_once = row.came_without - 1;
    }
    for claim in claims::judge(&other).iter().filter(|claim| claim.required) {
        assert!(!claim.holds, "{claim:?}");
    }
}

/// A claim about outages needs the row of each selector.
#[test]
fn a_missing_outage_fails() {
    let mut other = study().clone();
    other.outages.pop();
    let claims = claims::judge(&other);
    for id in ["F-done", "F-fail", "F-stay"] {
        let claim = claims.iter().find(|claim| claim.id == id).unwrap();
        assert!(!claim.holds, "{claim:?}");
    }
}

/// And one about the spread of files that of each arrival.
#[test]
#[should_panic(expected = "A, roung, closed, 4 was run")]
fn a_missing_spread_fails() {
    let mut other = study().clone();
    let is = |row: &study::SpreadRow| {
        (row.situation, row.selector, row.arrivals) == ("A", "roung", "closed, 4")
    };
    other.spreads.retain(|row| !is(row));
    claims::judge(&other);
}
