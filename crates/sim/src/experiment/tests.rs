use super::claims::conforming;
use super::*;
use crate::workload::intervals::{self, Stream};
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

/// The switched policies as their paper has them: only finished requests are looked at.
fn paper(name: &str) -> Choice<Build> {
    policy(name, &[("oldest", 0)])
}

fn play(
    policy: &Choice<Build>,
    set: Set,
    arrivals: ArrivalModel,
    interval: u32,
) -> [TenantFigures; TENANTS] {
    control(&Case { policy, set, interval, arrivals, seed: 1 })
}

fn total(figures: &[TenantFigures; TENANTS]) -> f64 {
    figures.iter().map(|tenant| tenant.completed_per_second).sum()
}

/// Without control the tenants that keep their contract lose their promise exactly where the sum of
/// what is asked for is more than the array can do: the first in 3 and 6, the second in 7 and 8 (C1).
#[test]
fn without_control_overload_breaks_promises() {
    let open = policy("open", &[]);
    for interval in 1..=9 {
        let figures = play(&open, Set::A, ArrivalModel::Poisson, interval);
        for tenant in conforming(interval) {
            let share = figures[tenant].satisfied;
            let breaks = [3, 6, 7, 8].contains(&interval);
            assert!(if breaks { share < 0.5 } else { share >= 0.98 }, "{interval}: {share}");
            assert!(figures[tenant].switched_on == 0.0);
        }
    }
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
                assert!(tenant.switched_on == 1.0 && tenant.on_share == 1.0);
            }
        }
    }
}

/// Switched buckets give at least a tenth more than the bucket where one tenant leaves room for the
/// other; TA2 switches all, TA3 only who breaks its contract (C4, C11, C12).
#[test]
fn switched_buckets_use_what_is_left() {
    let (ta1, ta2, ta3) = (policy("ta1", &[]), paper("ta2"), paper("ta3"));
    for (interval, violator) in [(3, 1), (7, 0)] {
        let play = |policy| play(policy, Set::A, ArrivalModel::Poisson, interval);
        let (bucket, together, victim) = (play(&ta1), play(&ta2), play(&ta3));
        for figures in [&together, &victim] {
            assert!(total(figures) > 1.1 * total(&bucket), "{interval}: {figures:?}");
            assert!(figures[1 - violator].satisfied > 0.95, "{interval}: {figures:?}");
        }
        assert!(together[0].switched_on == together[1].switched_on);
        assert!(together[0].switched_on > 100.0);
        assert!(victim[violator].switched_on > 50.0 && victim[violator].on_share > 0.0);
        assert!(victim[1 - violator].switched_on == 0.0);
    }
}

/// The slack window keeps every conforming tenant within 2.5 points of its quantile in both sets, and
/// gives more than the switched buckets where there is room (T7).
#[test]
fn the_slack_window_keeps_promises() {
    let (slack, ta3) = (policy("slack", &[]), paper("ta3"));
    for set in [Set::A, Set::B] {
        for interval in [3, 6, 7, 8] {
            let figures = play(&slack, set, ArrivalModel::Poisson, interval);
            // Ten seconds of an array that is nearly full are a small sample: the mean of two runs.
            let case =
                Case { policy: &slack, set, interval, arrivals: ArrivalModel::Poisson, seed: 2 };
            let second = control(&case);
            for tenant in conforming(interval) {
                let share = f64::midpoint(figures[tenant].satisfied, second[tenant].satisfied);
                assert!(share >= 0.965, "{set:?} {interval}: {share}");
            }
            if interval == 3 {
                let switched = play(&ta3, set, ArrivalModel::Poisson, interval);
                assert!(total(&figures) > 1.1 * total(&switched), "{set:?}: {figures:?}");
                assert!(figures[0].satisfied >= 0.985, "{set:?}: {figures:?}");
            }
        }
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
    let figures = control(&case(1));
    assert_eq!(figures, control(&case(1)));
    assert_ne!(figures, control(&case(2)));
    // Part of what a seed in a report means, in every build.
    let completed = figures.map(|tenant| (tenant.completed_per_second * 10.0).round() as u32);
    assert_eq!(completed, [25_279, 10_843]);
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
                    ta1.arrive(at, key, &template);
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
