use super::contestants::called;
use super::scenarios::scenario;
use super::script::play as play_script;
use super::*;
use crate::control::intervals::{self, Stream};
use slotmap::SlotMap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::POLICIES;
use weir_flow::control::Promises;
use weir_flow::request::{LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::units::Extent;

fn policy(name: &str, values: &[(&str, u64)]) -> Choice<Build> {
    let mut choice = Choice::named(POLICIES, name).unwrap();
    for &(parameter, value) in values {
        choice.set(parameter, value).unwrap();
    }
    choice
}

fn play(
    policy: &Choice<Build>,
    set: Set,
    arrivals: ArrivalModel,
    interval: u32,
) -> [TenantFigures; TENANTS] {
    run(&Case { policy, set, interval, arrivals, seed: 1 })
}

fn total(figures: &[TenantFigures; TENANTS]) -> f64 {
    figures.iter().map(|tenant| tenant.completed_per_second).sum()
}

/// With smooth arrivals the bucket keeps every promise, and no tenant gets more than its rate (C2, C3).
#[test]
fn the_bucket_keeps_promises_and_rates() {
    let ta1 = policy("ta1", &[]);
    for set in [Set::A, Set::B] {
        let iops = set.contracts().map(|contract| f64::from(contract.rows[0].iops));
        for interval in [3, 5, 6, 7, 8, 9] {
            let figures = play(&ta1, set, ArrivalModel::Constant, interval);
            for tenant in conforming(interval) {
                assert!(figures[tenant].satisfied >= 0.98, "{set:?} {interval}: {figures:?}");
            }
            for (tenant, iops) in figures.iter().zip(iops) {
                assert!(tenant.completed_per_second <= 1.01 * iops, "{set:?} {interval}");
                assert_eq!((tenant.switched_on as u32, tenant.on_share >= 1.0), (1, true));
            }
        }
    }
}

/// The share of satisfied requests and all requests per second in a window of a scenario.
fn stress(number: u32, label: &str, window: usize) -> (f64, f64) {
    let scenario = scenario(number, 1);
    let figures = play_script(&scenario.script, &called(label)).windows.swap_remove(window);
    let kept = figures[scenario.conforming].iter().map(|tenant| tenant.satisfied);
    let total = figures.iter().map(|tenant| tenant.completed_per_second).sum();
    (kept.fold(1.0, f64::min), total)
}

/// The slack window satisfies every conforming tenant to its quantile less 2.5 points, in every cell as
/// the mean over the number of runs of the published tables; and it gives a tenth more than TA3 in the
/// third interval, with the first tenant at 98.5 % (T7).
fn the_slack_window_keeps_promises(set: Set, arrivals: ArrivalModel, seeds: u64) {
    let mean = |label: &str, interval| {
        let policy = called(label);
        let figures = |seed| run(&Case { policy: &policy, set, interval, arrivals, seed });
        let runs: Vec<_> = (1..=seeds).map(figures).collect();
        [0, 1].map(|tenant| {
            TenantFigures::mean(&runs.iter().map(|run| run[tenant]).collect::<Vec<_>>())
        })
    };
    for interval in 1..=8 {
        let figures = mean("TA4", interval);
        for tenant in conforming(interval) {
            let share = figures[tenant].satisfied;
            assert!(share >= 0.965, "interval {interval}, tenant {tenant}: {share}");
        }
        if interval == 3 {
            let switched = mean("TA3-85", interval);
            assert!(total(&figures) >= 1.1 * total(&switched), "{figures:?} {switched:?}");
            assert!(figures[0].satisfied >= 0.985, "{figures:?}");
        }
    }
}

/// T7 on the first set with Poisson arrivals.
#[test]
fn t7_first_set_poisson() {
    the_slack_window_keeps_promises(Set::A, ArrivalModel::Poisson, 3);
}

/// T7 on the first set with constant arrivals.
#[test]
fn t7_first_set_constant() {
    the_slack_window_keeps_promises(Set::A, ArrivalModel::Constant, 2);
}

/// T7 on the second set with Poisson arrivals.
#[test]
fn t7_second_set_poisson() {
    the_slack_window_keeps_promises(Set::B, ArrivalModel::Poisson, 2);
}

/// T7 on the second set with constant arrivals.
#[test]
fn t7_second_set_constant() {
    the_slack_window_keeps_promises(Set::B, ArrivalModel::Constant, 2);
}

/// Who comes late finds no queue at the device under the slack window, and nothing but queue under TA3
/// (S8 of T7).
#[test]
fn a_late_victim_is_kept() {
    assert!(stress(8, "TA4", 0).0 > 0.98, "{:?}", stress(8, "TA4", 0));
    assert!(stress(8, "TA3-85", 0).0 < 0.01);
}

/// A promise that nothing can keep does not press the others to the floor: they get a tenth more than under
/// the bucket, at half as many misses again for the tenant with the objective (S10 of T7).
#[test]
fn an_infeasible_promise_floors_nobody() {
    let (kept, throughput) = stress(10, "TA4", 0);
    let (bucket, rate) = stress(10, "TA1", 0);
    assert!(throughput > 1.1 * rate, "{throughput} to {rate}");
    assert!(1.0 - kept < 1.5 * (1.0 - bucket), "{kept} to {bucket}");
}

/// When capacity is lost the slack window satisfies no worse than TA3 (S1 of T7).
#[test]
fn a_loss_of_capacity_is_borne() {
    let (slack, switched) = (stress(1, "TA4", 0), stress(1, "TA3-85", 0));
    assert!(slack.0 >= switched.0, "{slack:?} {switched:?}");
}

/// The scenarios are those whose results are published: the bucket and a depth of 64 give the published
/// throughput within 2 %, and the bucket satisfies as published within 3 points.
#[test]
fn scenarios_are_the_published_ones() {
    let published = [
        (1, 98.8, 4_262.0, 4_459.0),
        (2, 99.5, 4_900.0, 5_188.0),
        (3, 100.0, 3_487.0, 5_220.0),
        (4, 94.5, 3_487.0, 5_219.0),
        (6, 100.0, 3_487.0, 5_217.0),
        (7, 100.0, 3_939.0, 5_111.0),
        (8, 100.0, 3_467.0, 5_239.0),
        (11, 100.0, 2_887.0, 3_610.0),
        (12, 92.7, 3_488.0, 4_243.0),
    ];
    for (number, satisfied, bucket, depth) in published {
        let (share, rate) = stress(number, "TA1", 0);
        assert!((100.0 * share - satisfied).abs() < 3.0, "S{number}: {share}");
        assert!((rate / bucket - 1.0).abs() < 0.02, "S{number}: {rate}");
        let (_, rate) = stress(number, "SFQ(64)", 0);
        assert!((rate / depth - 1.0).abs() < 0.02, "S{number}: {rate}");
    }
}

/// Whether Façade collapses when capacity is lost is a matter of chance (S1): in some runs it
/// satisfies fewer than a fifth of the conforming tenant's requests, in others more than half.
#[test]
fn facade_collapses_by_chance() {
    let satisfied = (1..=8).map(|seed| {
        let figures = play_script(&scenario(1, seed).script, &called("Facade")).windows;
        figures[0][0].satisfied
    });
    let (collapsed, rest) = satisfied.partition::<Vec<_>, _>(|&share| share < 0.2);
    let borne = rest.iter().filter(|&&share| share > 0.5).count();
    assert!(!collapsed.is_empty() && borne > 0, "{collapsed:?} {rest:?}");
}

/// A fast device with stalls: sixteen channels of 0.2 ms do 80 000 requests per second, and 72 700 when
/// 1 % of the requests take 2 ms more (S9, S10).
#[test]
fn stalls_cost_capacity() {
    for (number, capacity) in [(9, 80_000.0), (10, 72_727.0)] {
        let mut script = scenario(number, 1).script;
        script.end = 1.5;
        script.windows = vec![Window { from: 0.5, until: 1.5 }];
        let figures = play_script(&script, &called("TA0")).windows.swap_remove(0);
        let total: f64 = figures.iter().map(|tenant| tenant.completed_per_second).sum();
        assert!((total / capacity - 1.0).abs() < 0.01, "S{number}: {total}");
    }
}

/// A case is a run: the same case gives the same figures, another seed other ones.
#[test]
fn a_case_is_a_run() {
    let slack = policy("slack", &[]);
    let case = |seed| Case {
        policy: &slack,
        set: Set::B,
        interval: 6,
        arrivals: ArrivalModel::Poisson,
        seed,
    };
    let figures = run(&case(1));
    assert_eq!(figures, run(&case(1)));
    assert_ne!(figures, run(&case(2)));
    // Part of what a seed in a report means, in every build.
    let completed = figures.map(|tenant| (tenant.completed_per_second * 10.0).round() as u32);
    assert_eq!(completed, [25_276, 10_788]);
}

/// A bucket that is refilled at exactly the mean rate of Poisson arrivals is a queue at load one: over
/// an interval of T from empty its mean wait is (2 / 3) sqrt(2 T / (pi lambda)) (T6).
#[test]
fn a_critical_bucket_waits_as_theory_says() {
    let iops = 1_500;
    let contract = weir_flow::control::Contract::new(iops, 4_096, Duration::from_millis(41));
    for (seconds, runs) in [(10.0, 60), (40.0, 30)] {
        let (mut sum, mut count) = (0.0, 0.0);
        for run in 0..runs {
            let choice = policy("ta1", &[]);
            let promises = Promises { contracts: vec![Some(contract.clone())], groups: Vec::new() };
            let mut ta1 = (choice.policy().build)(choice.values(), &promises);
            let mut keys = SlotMap::<RequestKey, Instant>::with_key();
            let gaps = Stream::new(&[6, run, seconds as u64]);
            let times = intervals::times(ArrivalModel::Poisson, f64::from(iops), seconds, gaps);
            let mut drain = |now: Instant,
                             ta1: &mut dyn weir_flow::control::ControlPolicy,
                             keys: &SlotMap<RequestKey, Instant>| {
                while let Some((key, _)) = ta1.poll(now) {
                    sum += now.since(keys[key]).as_secs_f64();
                    count += 1.0;
                }
            };
            let template = Request {
                tag: Tag(0),
                tenant: TenantId::new(0),
                volume: VolumeId::new(0),
                link: LinkId::new(0),
                op: Op::Read,
                extent: Extent::new(0, 4_096),
                fua: false,
                ordered: false,
                job: false,
            };
            let ends = times.map(|nanos| (Instant::from_nanos(nanos), true));
            let end = Instant::ZERO + Duration::from_secs(1_000);
            for (at, arrives) in ends.chain([(end, false)]) {
                while let Some(due) = ta1.next_deadline().filter(|&due| due <= at) {
                    ta1.handle_deadline(due);
                    drain(due, &mut *ta1, &keys);
                }
                if arrives {
                    let key = keys.insert(at);
                    ta1.arrive(at, key, &template, Some(0));
                    drain(at, &mut *ta1, &keys);
                }
            }
        }
        let theory =
            2.0 / 3.0 * libm::sqrt(2.0 * seconds / (std::f64::consts::PI * f64::from(iops)));
        let mean = sum / count;
        assert!((mean / theory - 1.0).abs() < 0.2, "{seconds} s: {mean}, in theory {theory}");
    }
}
