use super::exchange::BLOCK;
use super::play::play;
use super::study::{Study, run};
use super::*;
use std::sync::OnceLock;
use weir_flow::clock::Instant;

/// 1000 bytes per millisecond, 1 ms to the intermediate target, 4 ms from there.
fn case(kind: Kind, route: Route) -> Case {
    Case {
        route,
        exchange: Exchange::Lockstep,
        bandwidth: Bandwidth::per_second(1_000_000).unwrap(),
        far_bandwidth: None,
        near: Duration::from_millis(1),
        far: Duration::from_millis(4),
        kind,
        follows: 100,
        depth: 1,
        count: 4,
        seed: 1,
    }
}

const fn through(buffer: Buffer) -> Route {
    Route::Through(buffer, Forward::AtOnce)
}

/// What each command took, in microseconds.
fn took(case: &Case) -> Vec<u64> {
    let took = |done: &Done| done.ended.since(done.begun).as_nanos() / 1_000;
    play(case).done.iter().map(took).collect()
}

/// A command alone takes its bytes over the bandwidth and a delay for each trip: three for a read in lock
/// step, two with its status next to its data, four for a write; the near delay alone where the
/// intermediate target answers, and exactly the direct time where it does not.
#[test]
fn a_command_takes_what_the_model_says() {
    let direct = case(Kind::Read, Route::Direct);
    assert_eq!(took(&direct), [15_608; 4]);
    assert_eq!(took(&Case { exchange: Exchange::Together, ..direct }), [10_608; 4]);
    assert_eq!(took(&case(Kind::Write, Route::Direct)), [20_656; 4]);
    let assumed = case(Kind::Read, through(Buffer::Assumed(50)));
    assert_eq!(took(&assumed), [15_608, 3_608, 15_608, 3_608]);
    let together = Case { exchange: Exchange::Together, ..assumed };
    assert_eq!(took(&together), [10_608, 2_608, 10_608, 2_608]);
    assert_eq!(took(&case(Kind::Write, through(Buffer::Machines))), [4_656; 4]);
    assert_eq!(Exchange::default(), Exchange::Together);
}

/// The first read finds nothing; every one that follows the one before it finds its block, if fetches are
/// fast. One that is anywhere finds nothing.
#[test]
fn next_block_is_ready() {
    let far = Duration::from_millis(1);
    let near = Case { far, count: 200, ..case(Kind::Read, through(Buffer::Machines)) };
    let outcome = play(&near);
    assert_eq!(outcome.done[0].met, Met::Missing);
    assert!(outcome.done[1..].iter().all(|done| done.met == Met::Ready));
    assert_eq!(outcome.followed, 200);
    let spread = play(&Case { follows: 0, ..near });
    assert!(spread.done.iter().all(|done| done.met == Met::Missing));
}

/// A read whose block is on its way waits for it and no longer: the second of two that are asked for at once
/// is answered when the fetch that the first began has brought its block, which is not fetched again.
#[test]
fn a_block_on_its_way_is_waited_for() {
    let case = Case { depth: 2, count: 2, ..case(Kind::Read, through(Buffer::Machines)) };
    let outcome = play(&case);
    assert_eq!(
        outcome.done.iter().map(|done| done.met).collect::<Vec<_>>(),
        [Met::Missing, Met::InFlight]
    );
    // The request at 1.048 ms behind the first's begins a fetch, which is back 8 ms later. Both blocks then
    // go down the near link, 0.512 ms each, and the statuses after them.
    assert_eq!(took(&case), [15_608, 9_048 + 512 + 512 + 1_000 + 48 + 1_000]);
}

/// A forward ends four far delays after the data came; one by one the next begins when the one before
/// is home.
#[test]
fn writes_go_home() {
    let home = |forward| {
        let case = case(Kind::Write, Route::Through(Buffer::Machines, forward));
        let outcome = play(&case);
        let after = |done: &Done| done.home.unwrap().since(done.begun).as_nanos() / 1_000;
        outcome.done.iter().map(after).collect::<Vec<_>>()
    };
    assert_eq!(home(Forward::AtOnce), [19_608; 4]);
    assert_eq!(home(Forward::OneByOne), [19_608, 30_952, 42_296, 53_640]);
}

/// The two metrics, by hand: two blocks of which one took a second and the other three.
#[test]
fn metrics_are_as_by_hand() {
    let at = |secs| Instant::ZERO + Duration::from_secs(secs);
    let done =
        |begun, ended, met| Done { block: 0, begun: at(begun), ended: at(ended), met, home: None };
    let outcome =
        Outcome { done: vec![done(0, 1, Met::Ready), done(1, 4, Met::Missing)], followed: 1 };
    let block = BLOCK as f64;
    assert!((outcome.bytes_over_time() - block / 2.0).abs() < 1e-9);
    assert!((outcome.mean_of_rates() - block * 2.0 / 3.0).abs() < 1e-9);
    assert!((outcome.share(Met::Ready) - 0.5).abs() < 1e-12);
    assert!((gain(3.0, 2.0) - 50.0).abs() < 1e-12);
}

/// The whole study.
fn study() -> &'static Study {
    static STUDY: OnceLock<Study> = OnceLock::new();
    STUDY.get_or_init(|| run(Settings { seed: 1, seeds: None }, &|_| ()))
}

/// Every claim that must hold does, and those that do not are the three that the printed parameters
/// cannot give.
#[test]
fn required_claims_hold() {
    let claims = claims::judge(study());
    assert_eq!(claims.iter().filter(|claim| claim.required).count(), 38);
    for claim in &claims {
        assert_eq!(claim.holds, claim.required, "{claim:?}");
        assert_eq!(claim.required, claim.id != "R-printed", "{claim:?}");
    }
}

/// Throughput without the intermediate target is what docs/reference/intermediate.md, section 6.4, has, in whole bits per
/// second; gains at 1 ms too.
#[test]
fn absolute_figures_are_those_of_the_specification() {
    let writes = |split, ms| {
        let row = study().writes.iter().find(|row| (row.split, row.delay_ms) == (split, ms));
        row.map(|row| (row.direct_bits.round() as u64, (100.0 * row.gain).round() as u64)).unwrap()
    };
    assert_eq!(writes("5:5", 1), (11_117, 55));
    assert_eq!(writes("3:7", 1), (11_117, 77));
    assert_eq!(writes("1:9", 1), (11_117, 99));
    assert_eq!(writes("1:9", 64).0, 6_602);
    let reads = |reading, data, ms| {
        let is =
            |row: &&study::ReadRow| (row.reading, row.data, row.delay_ms) == (reading, data, ms);
        let row = study().reads.iter().find(is).unwrap();
        (row.direct_bits.round() as u64, (10.0 * row.mean_of_rates).round() as u64)
    };
    assert_eq!(reads("R1", "video", 1), (111_372, 23));
    assert_eq!(reads("R1", "application", 1), (111_372, 13));
    assert_eq!(reads("R1", "video", 64).0, 18_142);
    assert_eq!(reads("R2", "video", 1), (12_020, 6));
    assert_eq!(reads("R2", "text", 64).0, 7_732);
    assert_eq!(study().writes.len() + study().reads.len(), 3 * 64 + 9 * 64);
}

/// Another seed draws other streams, and the same one the same.
#[test]
fn streams_depend_on_the_seed() {
    let run =
        |seed| play(&Case { follows: 50, seed, ..case(Kind::Read, through(Buffer::Machines)) });
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Every claim that must hold fails when the rows say otherwise.
#[test]
fn claims_can_fail() {
    let mut other = study().clone();
    for row in &mut other.writes {
        row.gain = 5.0;
    }
    for row in &mut other.reads {
        (row.mean_of_rates, row.bytes_over_time) = (5.0, 5.0);
    }
    for row in &mut other.hits {
        (row.ready, row.followed) = (0.7, 0.69);
    }
    for row in &mut other.together {
        row.bytes_over_time += 0.1;
    }
    for row in &mut other.depths {
        row.gain += 1.0;
        row.through_bits *= 0.9;
    }
    for row in &mut other.exposure {
        row.exposed_ms += 1.0;
    }
    for row in &mut other.backlog {
        row.home -= 3;
    }
    for row in &mut other.ahead {
        row.through /= 2.0;
    }
    for claim in claims::judge(&other).iter().filter(|claim| claim.required) {
        assert!(!claim.holds, "{claim:?}");
    }
}
