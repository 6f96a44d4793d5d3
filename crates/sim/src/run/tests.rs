use super::*;
use crate::plan::{
    Access, Arrivals, Backend, End, HostLink, Model, PathChange, PathFault, SizeWeight, TraceDevice,
};
use crate::results::{TenantResults, Totals};
use crate::testing;
use weir_flow::clock::Duration;
use weir_flow::control::{Contract, Promises};
use weir_flow::request::{BackendId, LinkId, TenantId, VolumeId};
use weir_flow::units::Bandwidth;
use weir_model::{array, fixed, link, mech};

fn measured(plan: &Plan) -> Results {
    let results = run(plan, |_| ()).unwrap();
    let Totals { arrived, completed, refused, outstanding } = results.totals;
    assert_eq!(arrived, completed + refused + outstanding, "{:?}", results.totals);
    results
}

fn fixed(micros: u64, servers: u32) -> Model {
    Model::Fixed(fixed::Config { service: Duration::from_micros(micros), servers })
}

fn close(measured: f64, expected: f64, tolerance: f64) {
    let error = (measured / expected - 1.0).abs();
    assert!(error <= tolerance, "expected {expected}, measured {measured}");
}

/// A busy plan of two tenants with everything that draws random numbers, cuts, waits or fails.
fn busy() -> Plan {
    let mut plan = testing::plan();
    plan.tenants.push("other".to_owned());
    plan.backends[0].paths = 2;
    let model = Model::Array(array::Config::default());
    plan.backends.push(Backend { name: "array".to_owned(), model, paths: 1 });
    let mut volume = plan.volumes[0].clone();
    (volume.name, volume.backend) = ("second".to_owned(), BackendId::new(1));
    volume.max_transfer = 16_384;
    plan.volumes.push(volume);
    plan.links[0].config =
        link::Config { bandwidth: Bandwidth::per_second(1 << 30), delay: Duration::from_micros(9) };
    let mut other = testing::workload(Arrivals::Poisson { rate: 4_000.0 });
    (other.name, other.tenant, other.volume) =
        ("other".to_owned(), TenantId::new(1), VolumeId::new(1));
    other.access = Access::Zipf { skew: 1.1 };
    other.read_permille = 600;
    other.sizes.push(SizeWeight { bytes: 65_536, weight: 2 });
    plan.workloads.push(other);
    // What is left behind meets the bound of all, not that of its tenant.
    plan.limits.max_tenant_bytes = plan.limits.max_bytes;
    for (millis, change) in
        [(200, PathChange::Down { detect: Duration::from_millis(5) }), (400, PathChange::Up)]
    {
        let at = Duration::from_millis(millis);
        plan.path_faults.push(PathFault { at, backend: BackendId::new(0), path: 1, change });
    }
    plan
}

/// A plan is a run: the same plan gives the same results to the last bit, another seed does not.
/// The digest itself is part of what a seed in a report means, in every build.
#[test]
fn a_seed_is_a_run() {
    let plan = busy();
    let results = measured(&plan);
    assert_eq!(measured(&plan), results);
    assert_eq!(results.digest, "78e4b99dc1964ce1");
    let other = measured(&Plan { seed: 2, ..plan });
    assert_ne!(other.digest, results.digest);
}

/// Array M2 is a device of a plan: alone, over the whole stroke, it does the 120 requests per second that a
/// disk of its kind does in order of arrival.
#[test]
fn the_mechanical_array_seeks() {
    let mut plan = testing::plan();
    let config = mech::Config { stroke_ppm: 1_000_000, window: 1, ..mech::Config::default() };
    plan.backends[0].model = Model::Mech(config);
    plan.workloads[0].arrivals = Arrivals::Closed { depth: 1, think: Duration::ZERO };
    plan.end.duration = Some(Duration::from_secs(20));
    let one = measured(&plan).all.requests_per_second;
    close(one, 120.0, 0.1);
}

/// D/D/1 by hand: 1000 requests per second, 0.6 ms each. No request waits; the device takes all of the
/// time.
#[test]
fn nobody_waits_below_saturation() {
    let mut plan = testing::plan();
    plan.workloads[0].arrivals = Arrivals::Constant { rate: 1e3, jitter_permille: 0 };
    plan.backends[0].model = fixed(600, 1);
    plan.end.drain = true;
    let results = measured(&plan);
    // The last one comes at 0.999 s: nothing comes when the second is over.
    assert_eq!(results.totals, Totals { arrived: 999, completed: 999, ..Totals::default() });
    assert_eq!(results.virtual_ns, 999_600_000);
    let times = results.all.response;
    assert_eq!(
        (times.count, times.p50_ns, times.p999_ns, times.max_ns),
        (999, 600_000, 600_000, 600_000)
    );
    close(times.mean_ns, 600_000.0, 0.0);
    let store = &results.all.stages[5];
    assert_eq!((store.stage, store.times), ("storage", times));
    assert_eq!(results.all.bytes, 999 * 4_096);
}

/// M/D/1 through the whole pipeline: the time at the device agrees with Pollaczek-Khinchine.
#[test]
fn the_pipeline_adds_nothing_to_a_queue() {
    let mut plan = testing::plan();
    plan.workloads[0].arrivals = Arrivals::Poisson { rate: 7_000.0 };
    plan.backends[0].model = fixed(100, 1);
    plan.end.duration = Some(Duration::from_secs(60));
    plan.end.warm_up = Duration::from_secs(1);
    let results = measured(&plan);
    let rho = 0.7;
    let predicted = 100_000.0 * (1.0 + rho / (2.0 * (1.0 - rho)));
    // 413 000 values with a deviation of about 1.4 services, of which about one in twenty is
    // independent: a standard error of 1 %; and the rate has one of 0.16 %.
    close(results.all.response.mean_ns, predicted, 0.03);
}

/// Little's law: a closed loop of depth N has a throughput of N / (response + think), with the
/// device saturated or not, links that take their time included.
#[test]
fn littles_law_holds() {
    for (depth, think, servers, delay) in [(8, 0, 4, 0), (3, 250, 4, 0), (16, 50, 2, 30)] {
        let mut plan = testing::plan();
        plan.workloads[0].arrivals =
            Arrivals::Closed { depth, think: Duration::from_micros(think) };
        plan.backends[0].model = fixed(100, servers);
        plan.links[0].config.delay = Duration::from_micros(delay);
        plan.end.duration = Some(Duration::from_secs(3));
        plan.end.warm_up = Duration::from_millis(100);
        let results = measured(&plan);
        let all = &results.all;
        let away = think as f64 * 1e3 + delay as f64 * 2e3;
        close(
            all.requests_per_second,
            f64::from(depth) * 1e9 / (all.response.mean_ns + away),
            0.001,
        );
        let limit = f64::from(servers) * 1e4;
        assert!(all.requests_per_second <= limit * 1.001, "{}", all.requests_per_second);
    }
}

/// The stages' mean times add up to the mean response time; every stage counts every request.
#[test]
fn times_add_up() {
    let results = measured(&busy());
    for tenant in results.tenants.iter().chain([&results.all]) {
        let parts: f64 = tenant.stages.iter().map(|stage| stage.times.mean_ns).sum();
        close(parts, tenant.response.mean_ns, 1e-12);
        assert!(tenant.stages.iter().all(|stage| stage.times.count == tenant.count));
        assert_eq!(tenant.reads.count + tenant.writes.count, tenant.count);
    }
    let sum = |field: fn(&TenantResults) -> u64| results.tenants.iter().map(field).sum::<u64>();
    assert_eq!(sum(|tenant| tenant.count), results.all.count);
    assert_eq!(sum(|tenant| tenant.bytes), results.all.bytes);
}

/// Replies share a link: at 64 KiB and 100 MB/s a closed loop gets the link's rate, and the reply
/// that waits for it is charged to the transfer stage.
#[test]
fn a_link_is_a_bottleneck() {
    let mut plan = testing::plan();
    plan.workloads[0].sizes[0].bytes = 65_536;
    plan.links[0].config.bandwidth = Bandwidth::per_second(100_000_000);
    let results = measured(&plan);
    close(results.all.megabytes_per_second, 100.0, 0.01);
    assert!(results.all.stages[6].times.mean_ns > 4e6, "{:?}", results.all.stages[6]);
}

/// One of two paths dies with I/Os on it and comes back: each failure is reported once, everything
/// that was on the path goes the other way, nothing is lost and nothing ends with an error.
#[test]
fn failover_loses_nothing() {
    let mut plan = testing::plan();
    plan.backends[0].paths = 2;
    plan.end.drain = true;
    let detect = Duration::from_millis(20);
    let mut change = |millis, change| {
        let at = Duration::from_millis(millis);
        plan.path_faults.push(PathFault { at, backend: BackendId::new(0), path: 0, change });
    };
    change(600, PathChange::Up);
    change(300, PathChange::Down { detect });
    let results = measured(&plan);
    assert_eq!((results.paths_failed, results.paths_reinstated), (1, 1));
    assert!(results.ios_lost > 0 && results.ios_lost <= 8, "{}", results.ios_lost);
    let totals = results.totals;
    assert_eq!((totals.arrived, results.all.errors), (totals.completed, 0));
    // Who was on the path waited for the time-out.
    let max = results.all.response.max_ns;
    assert!((20_000_000..20_500_000).contains(&max), "{max}");
}

/// A path that is up again before its failure was noticed is found to work and used again.
#[test]
fn a_short_outage_heals() {
    let mut plan = testing::plan();
    plan.end.drain = true;
    let down = PathChange::Down { detect: Duration::from_millis(20) };
    for (millis, change) in [(300, down), (301, PathChange::Up)] {
        let at = Duration::from_millis(millis);
        plan.path_faults.push(PathFault { at, backend: BackendId::new(0), path: 0, change });
    }
    let results = measured(&plan);
    assert_eq!((results.paths_failed, results.paths_reinstated), (1, 1));
    assert_eq!((results.totals.outstanding, results.all.errors), (0, 0));
    assert!(results.totals.completed > 37_000, "{:?}", results.totals);
}

/// With no path left, requests wait as long as the limit says and then end with an error.
#[test]
fn no_path_left_is_an_error_in_the_end() {
    let mut plan = testing::plan();
    plan.limits.no_path_timeout = Duration::from_millis(100);
    let change = PathChange::Down { detect: Duration::ZERO };
    let at = Duration::from_millis(300);
    plan.path_faults.push(PathFault { at, backend: BackendId::new(0), path: 0, change });
    let results = measured(&plan);
    // Eight hosts, each of which gets its answer after 0.1 s, for 0.7 s.
    assert_eq!(results.all.errors, 8 * 6);
    assert_eq!(results.totals.outstanding, 8);
}

/// An open loop at twice the device's rate: the limit refuses what does not fit, each arrival is
/// accounted for, and the device is never idle.
#[test]
fn overload_is_refused_and_conserved() {
    let mut plan = testing::plan();
    plan.workloads[0].arrivals = Arrivals::Poisson { rate: 20_000.0 };
    plan.backends[0].model = fixed(100, 1);
    plan.limits.max_requests = 100;
    let results = measured(&plan);
    let totals = results.totals;
    assert_eq!(totals.outstanding, 100);
    assert!((9_990..=10_000).contains(&totals.completed), "{totals:?}");
    close(totals.arrived as f64, 20_000.0, 0.03);
    assert_eq!(results.all.refused, totals.refused);
}

/// A closed loop that is refused asks again after its back-off, as often as it takes.
#[test]
fn a_refused_host_comes_again() {
    let mut plan = testing::plan();
    plan.limits.max_requests = 4;
    plan.end.drain = true;
    let results = measured(&plan);
    let totals = results.totals;
    // Four hosts are in; the other four ask once a millisecond, 999 times after the first.
    assert_eq!(totals.refused, 4 * 1_000);
    assert_eq!(totals.completed, 4 * 10_000);
    assert_eq!(totals.outstanding, 0);
}

/// The warm-up is in the totals and in nothing else.
#[test]
fn the_warm_up_is_not_measured() {
    let mut plan = testing::plan();
    plan.end.warm_up = Duration::from_millis(250);
    let results = measured(&plan);
    assert_eq!(results.measured_ns, 750_000_000);
    let (measured, total) = (results.all.count, results.totals.completed);
    assert!(measured.abs_diff(30_000) <= 8 && total.abs_diff(40_000) <= 8, "{measured} {total}");
    close(results.all.requests_per_second, 40_000.0, 0.001);
}

/// A number of requests ends the run after exactly that number, all of them answered.
#[test]
fn a_run_of_so_many_requests() {
    let mut plan = testing::plan();
    plan.end = End { requests: Some(12_345), ..End::default() };
    let results = measured(&plan);
    let expected = Totals { arrived: 12_345, completed: 12_345, ..Totals::default() };
    assert_eq!(results.totals, expected);
}

/// Progress is reported at the end, and its fraction never goes back.
#[test]
fn progress_goes_forward() {
    let mut fractions = Vec::new();
    run(&testing::plan(), |progress| fractions.push(progress.fraction().unwrap())).unwrap();
    assert!(fractions.len() >= 2 && fractions.is_sorted(), "{fractions:?}");
    close(fractions[fractions.len() - 1], 1.0, 0.0);
}

/// A plan that plays this trace, and nothing else.
fn playing(name: &str, text: &str) -> Plan {
    let path = std::env::temp_dir().join(format!("weir-sim-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let mut plan = testing::plan();
    plan.workloads.clear();
    plan.end = End::default();
    let device =
        |device| TraceDevice { device, tenant: TenantId::new(0), volume: VolumeId::new(0) };
    plan.traces.push(crate::plan::Trace {
        path,
        format: None,
        link: LinkId::new(0),
        devices: vec![device(7)],
        others: None,
        speed_permille: 2_000,
        start: Duration::from_millis(1),
    });
    plan
}

/// A trace is played at its speed and from its start, and the run ends with its last answer. What
/// lies outside the volume is an error of the tenant, not of the run.
#[test]
fn a_trace_is_played() {
    let plan = playing(
        "good.csv",
        "time_ns,op,dev,offset,size\n0,R,7,0,512\n4000000,W,7,512,512\n\
         9000000,R,7,1073741824,512\n",
    );
    let results = measured(&plan);
    std::fs::remove_file(&plan.traces[0].path).unwrap();
    assert_eq!(results.totals, Totals { arrived: 3, completed: 3, ..Totals::default() });
    assert_eq!((results.all.errors, results.all.bytes), (1, 1_024));
    assert_eq!(results.virtual_ns, 5_500_000);
    assert_eq!((results.all.reads.count, results.all.writes.count), (2, 1));
}

/// A trace that turns out to be bad in the middle ends the run with the place; so does a device
/// that the plan does not know.
#[test]
fn a_bad_trace_ends_the_run() {
    for (name, line, expected) in [
        ("bad.csv", "5,R,7,0,x", ":3:9: `size` is `x`; expected a whole number"),
        (
            "device.csv",
            "5,R,8,0,1",
            ":3: the plan has no volume for device 8; add it to `devices`, or name a `volume` for all others",
        ),
    ] {
        let plan = playing(name, &format!("time_ns,op,dev,offset,size\n0,R,7,0,512\n{line}\n"));
        let error = run(&plan, |_| ()).unwrap_err();
        std::fs::remove_file(&plan.traces[0].path).unwrap();
        let expected = format!("{}{expected}", plan.traces[0].path.display());
        assert_eq!(error.to_string(), expected);
    }
}

/// Adding a workload with another tenant, volume and device leaves what another one draws alone.
#[test]
fn a_workload_does_not_shift_others() {
    let alone = measured(&testing::plan());
    let mut plan = testing::plan();
    plan.tenants.push("other".to_owned());
    plan.backends.push(Backend { name: "second".to_owned(), model: fixed(70, 3), paths: 1 });
    let mut volume = plan.volumes[0].clone();
    volume.backend = BackendId::new(1);
    plan.volumes.push(volume);
    plan.links.push(HostLink::infinite("second"));
    let mut other = testing::workload(Arrivals::Poisson { rate: 900.0 });
    other.name = "first by name and place".to_owned();
    (other.tenant, other.volume, other.link) = (TenantId::new(1), VolumeId::new(1), LinkId::new(1));
    plan.workloads.insert(0, other);
    let both = measured(&plan);
    assert_eq!(both.tenants[0], alone.tenants[0]);
    assert!(both.tenants[1].count > 800);
}

/// A plan's contracts reach the control policy: a bucket lets a tenant have its rate and no more.
#[test]
fn a_contract_is_a_rate() {
    let mut plan = testing::plan();
    let response = Duration::from_millis(10);
    plan.promises.contracts = vec![Some(Contract::new(500, 4_096, response))];
    plan.policies.control =
        weir_flow::policy::Choice::named(weir_flow::control::POLICIES, "ta1").unwrap();
    plan.end.duration = Some(Duration::from_secs(10));
    let results = measured(&plan);
    close(results.all.requests_per_second, 500.0, 0.002);
    let unpromised = measured(&Plan { promises: Promises::default(), ..plan });
    assert!(unpromised.all.requests_per_second > 10_000.0);
}
