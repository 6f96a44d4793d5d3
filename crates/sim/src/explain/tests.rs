use super::*;
use crate::plan::Arrivals;
use crate::results::TenantResults;
use crate::testing;
use weir_flow::control::{Contract, POLICIES};
use weir_flow::policy::Choice;

const WITHIN: Duration = Duration::from_millis(2);

/// Twice what its contract allows, through the bucket, with a second tenant without one.
fn over_contract() -> Plan {
    let mut plan = testing::plan();
    plan.policies.control = Choice::named(POLICIES, "ta1").unwrap();
    plan.promises.contracts = vec![Some(Contract::new(2_000, 4_096, WITHIN))];
    plan.workloads[0].arrivals = Arrivals::Poisson { rate: 2_200.0 };
    plan.tenants.push("other".to_owned());
    let mut other = testing::workload(Arrivals::Poisson { rate: 20_000.0 });
    (other.name, other.tenant) = ("other".to_owned(), TenantId::new(1));
    plan.workloads.push(other);
    plan
}

fn question(requests: usize) -> Question {
    Question { requests, ..Question::default() }
}

fn sum(tenant: &TenantResults) -> (u64, u64) {
    let causes = &tenant.ledger.causes;
    let all = causes.iter().map(|cause| cause.time_ns).sum();
    (all, causes.iter().map(|cause| cause.late_ns).sum())
}

/// In a run the ledger of each tenant has all of its time, to the nanosecond, and names what held it.
#[test]
fn the_ledger_of_a_run_adds_up() {
    let results = crate::run(&over_contract(), |_| ()).unwrap();
    for tenant in results.tenants.iter().chain([&results.all]) {
        let ledger = &tenant.ledger;
        assert_eq!(sum(tenant), (ledger.time_ns, ledger.late_ns), "{}", tenant.name);
        assert_eq!(ledger.requests, tenant.count);
        let mean = ledger.time_ns as f64 / ledger.requests as f64;
        assert!((mean - tenant.response.mean_ns).abs() < 1e-6 * mean);
    }
    let held = &results.tenants[0].ledger;
    let bucket = held.causes.iter().find(|cause| cause.rule == "control/bucket").unwrap();
    assert!(bucket.late_ns * 2 > held.late_ns, "most of the late time is the bucket's: {held:?}");
    assert!(held.beyond_ns > 0 && held.beyond_ns < held.late_ns);
}

/// Attainment agrees with the histogram that measures all response times.
#[test]
fn attainment_agrees_with_the_measure() {
    let results = crate::run(&over_contract(), |_| ()).unwrap();
    let tenant = &results.tenants[0];
    let [target] = &tenant.attainment[..] else { panic!("{:?}", tenant.attainment) };
    assert_eq!((target.row, target.direction, target.size), (0, "read", 4_096));
    assert_eq!(target.count, tenant.count + tenant.refused);
    let (told, exact) = (target.measured_ns.unwrap() as f64, tenant.response.p99_ns as f64);
    assert!((told / exact - 1.0).abs() < 0.01, "{told} for {exact}");
    assert_eq!(target.missed, tenant.ledger.late_requests);
    assert!(!target.kept && target.met < 0.99 && target.burn > 1.0, "{target:?}");
    assert!((target.burn - (1.0 - target.met) / 0.01).abs() < 0.002, "{target:?}");
    assert!(results.tenants[1].attainment.is_empty(), "nothing was promised");
}

/// A recording of a run is explained as the run is; the slowest are the slowest, and each story adds up.
#[test]
fn a_recording_is_explained_as_its_run() {
    let plan = over_contract();
    let mut bytes = Vec::new();
    let results = crate::run::record(&plan, &mut bytes, |_| ()).unwrap();
    let (replay, told) = recording(&bytes[..], question(25), |_| ()).unwrap();
    assert_eq!(replay.verdict(), crate::replay::Verdict::Same);
    let (_, same) = super::plan(&plan, question(25), |_| ()).unwrap();
    assert_eq!(told.requests, same.requests);
    for (tenant, results) in told.tenants.iter().zip(&results.tenants) {
        assert_eq!((&tenant.ledger, tenant.refused), (&results.ledger, results.refused));
    }
    let times: Vec<_> = told.requests.iter().map(|story| story.response_ns).collect();
    assert!(times.len() == 25 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let slowest = results.tenants.iter().map(|tenant| tenant.response.max_ns).max();
    assert_eq!(times.first().copied(), slowest);
    for story in &told.requests {
        assert_eq!(story.held.iter().map(|held| held.time_ns).sum::<u64>(), story.response_ns);
        for held in &story.held {
            let behind = held.behind.iter().map(|behind| behind.time_ns);
            assert_eq!(behind.sum::<u64>(), held.time_ns, "{held:?}");
        }
        assert_eq!(story.target_ns, (story.tenant == 0).then_some(WITHIN.as_nanos()));
    }
    let outstanding: usize = told.outstanding.iter().map(|stage| stage.count).sum();
    assert_eq!(outstanding as u64, results.totals.outstanding);
}

/// Asked for a tenant, or a tag, there is nothing else in the answer; all that match are counted.
#[test]
fn a_question_is_answered_and_no_other() {
    let plan = over_contract();
    let all = super::plan(&plan, question(REQUESTS_MAX), |_| ()).unwrap().1;
    assert_eq!(all.requests.len() as u64, all.ended);
    let other = Some(TenantId::new(1));
    let one = super::plan(&plan, Question { tenant: other, ..question(3) }, |_| ()).unwrap().1;
    assert_eq!(one.tenants.iter().map(|told| told.tenant).collect::<Vec<_>>(), [1]);
    let wanted: Vec<_> = all.requests.iter().filter(|story| story.tenant == 1).cloned().collect();
    assert_eq!((one.ended, &one.requests[..]), (wanted.len() as u64, &wanted[..3]));
    let tag = all.requests[0].tag;
    let asked = Question { tag: Some(Tag(tag)), ..question(2) };
    let tagged = super::plan(&plan, asked, |_| ()).unwrap().1;
    let mut wanted: Vec<_> = all.requests.iter().filter(|story| story.tag == tag).collect();
    wanted.sort_by_key(|story| story.arrived_ns + story.response_ns);
    assert_eq!(tagged.ended, wanted.len() as u64);
    assert!(wanted.len() > 2, "tags come again here");
    assert_eq!(tagged.requests.iter().collect::<Vec<_>>(), wanted[..2]);
}

/// A tenant that waits at a device behind the long reads of another is explained by that tenant.
#[test]
fn a_neighbour_is_named() {
    let mut plan = testing::plan();
    plan.workloads[0].arrivals = Arrivals::Poisson { rate: 500.0 };
    plan.tenants.push("noisy".to_owned());
    let many = Arrivals::Closed { depth: 64, think: Duration::ZERO };
    let mut noisy = testing::workload(many);
    (noisy.name, noisy.tenant) = ("noisy".to_owned(), TenantId::new(1));
    plan.workloads.push(noisy);
    let asked = Question { tenant: Some(TenantId::new(0)), ..question(20) };
    let told = super::plan(&plan, asked, |_| ()).unwrap().1;
    assert_eq!(told.requests.len(), 20);
    let mut sums = [0_u64; 2];
    for held in told.requests.iter().flat_map(|story| &story.held) {
        for behind in held.behind.iter().filter(|behind| behind.who != "unknown") {
            sums[usize::from(behind.tenant == Some(1))] += behind.time_ns;
        }
    }
    assert!(sums[1] > sums[0], "{sums:?}: {:?}", told.requests[0]);
}
