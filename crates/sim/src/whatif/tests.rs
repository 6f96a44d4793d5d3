use super::*;
use crate::plan::{Arrivals as PlanArrivals, Model as PlanModel, Plan};
use crate::testing;
use weir_flow::clock::Duration;
use weir_flow::control::{self, POLICIES};
use weir_model::{array, fixed};

fn question() -> Question {
    Question { seeds: 2, ..Question::default() }
}

fn recorded(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::run::record(plan, &mut bytes, |_| ()).unwrap();
    bytes
}

fn asked(plan: &Plan, question: &Question) -> Answer {
    ask(&recorded(plan)[..], question, |_| ()).unwrap()
}

fn control(name: &str) -> Choice<control::Build> {
    Choice::named(POLICIES, name).unwrap()
}

/// A closed loop of depth 8 on an array.
fn array_plan() -> Plan {
    let mut plan = testing::plan();
    plan.backends[0].model = PlanModel::Array(array::Config::default());
    plan.end.duration = Some(Duration::from_secs(20));
    plan.workloads[0].arrivals =
        PlanArrivals::Closed { depth: 8, think: Duration::from_micros(50) };
    plan
}

fn off(would: u64, was: u64) -> f64 {
    (would as f64 / was as f64 - 1.0).abs()
}

/// The same policy with recorded times gives the recorded figures exactly, with arrivals as recorded and as found.
#[test]
fn the_recorded_configuration_gives_the_recorded_figures() {
    for arrivals in [Arrivals::Open, Arrivals::Auto] {
        let answer = asked(&array_plan(), &Question { arrivals, ..question() });
        assert_eq!((&answer.refused[..], answer.device), (&[][..], "recorded"));
        let [row] = &answer.rows[..] else { panic!("one row: {:?}", answer.rows) };
        let would = row.would.unwrap();
        assert_eq!((would.p50_ns, would.p99_ns), (row.was.p50_ns, row.was.p99_ns));
        // The recording ends with eight outstanding, which end here.
        assert_eq!(would.requests, row.was.requests + 8);
    }
}

/// A loop is found, and with it the fitted model gives the recorded figures.
#[test]
fn a_fitted_model_gives_the_recorded_figures() {
    let mut plan = array_plan();
    plan.workloads[0].arrivals = PlanArrivals::Poisson { rate: 60.0 };
    plan.end.duration = Some(Duration::from_secs(400));
    let answer = asked(&plan, &Question { device: Device::Fitted, ..question() });
    assert_eq!((&answer.refused[..], answer.device), (&[][..], "fitted"));
    assert_eq!(answer.requests[0], answer.recorded.arrived as usize, "all open");
    assert!(answer.checks.iter().all(|check| check.passed), "{:?}", answer.checks);
    let row = &answer.rows[0];
    let would = row.would.unwrap();
    assert!(off(would.p50_ns, row.was.p50_ns) <= MODELLED, "{row:?}");
}

/// Another control policy is predicted as the simulator has it with the true device.
#[test]
fn another_policy_is_predicted() {
    let mut plan = testing::plan();
    let service = Duration::from_micros(400);
    plan.backends[0].model = PlanModel::Fixed(fixed::Config { service, servers: 4 });
    plan.end.duration = Some(Duration::from_secs(10));
    plan.workloads[0].arrivals = PlanArrivals::Poisson { rate: 7_000.0 };
    plan.policies.control = control("open");
    let mut other = plan.clone();
    other.policies.control = control("ta1");
    let truth = crate::run(&other, |_| ()).unwrap();
    let question = Question { control: Some(control("ta1")), ..question() };
    let answer = asked(&plan, &question);
    assert!(answer.refused.is_empty(), "{:?}", answer.refused);
    let would = answer.rows[0].would.unwrap();
    let (p50, p99) = (truth.all.response.p50_ns, truth.all.response.p99_ns);
    assert!(off(would.p50_ns, p50) <= 0.05, "{would:?}, truth {p50}");
    assert!(off(would.p99_ns, p99) <= 0.10, "{would:?}, truth {p99}");
}

/// What the recording cannot say is refused, with the reason.
#[test]
fn what_is_missing_is_named() {
    let refused = |answer: &Answer| answer.refused.join("; ");
    let mut short = testing::plan();
    short.end.requests = Some(500);
    let answer = asked(&short, &question());
    assert!(refused(&answer).contains("500 requests"), "{}", refused(&answer));

    let mut bytes = recorded(&testing::plan());
    bytes.truncate(bytes.len() - 20);
    let answer = ask(&bytes[..], &question(), |_| ()).unwrap();
    assert!(refused(&answer).contains("no end"), "{}", refused(&answer));

    let deep = Question { depth: Some(1), device: Device::Recorded, ..question() };
    let answer = asked(&array_plan(), &deep);
    assert!(refused(&answer).contains("recorded times do not fit"), "{}", refused(&answer));
}

/// A loop of constant depth says nothing of another depth.
#[test]
fn another_depth_is_refused() {
    let question = Question { depth: Some(2), ..question() };
    let answer = asked(&array_plan(), &question);
    assert!(answer.rows.iter().all(|row| row.would.is_none()), "{answer:?}");
    let reasons = answer.refused.join("; ");
    assert!(reasons.contains("is poor") || reasons.contains("no row"), "{reasons}");
}

/// Runs agree: the same question gives the same answer.
#[test]
fn the_same_question_has_the_same_answer() {
    let question = Question { device: Device::Fitted, ..question() };
    let bytes = recorded(&array_plan());
    let ask = || ask(&bytes[..], &question, |_| ()).unwrap();
    assert_eq!(ask(), ask());
}
