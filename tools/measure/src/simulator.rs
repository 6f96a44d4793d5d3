//! Speed and memory of a simulated run: a closed loop of depth 32, FIFO everywhere, on a device with a fixed service
//! time.
//!
//! Prints the requests per second of wall-clock
//! time of each repeat, then the best and the median, and the peak resident memory of the process,
//! which must not depend on the number of requests.

use weir_flow::accept::Cap;
use weir_flow::clock::Duration;
use weir_flow::control::Promises;
use weir_flow::path::Settings;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::request::{BackendId, LinkId, TenantId, VolumeId};
use weir_flow::units::Extent;
use weir_model::fixed;
use weir_sim::plan::{
    Access, Arrivals, Backend, End, HostLink, Model, Plan, SizeWeight, Volume, Workload,
};

const SIZE: u64 = 1 << 40;

fn plan(requests: u64) -> Plan {
    let model = Model::Fixed(fixed::Config::default());
    let workload = Workload {
        name: "load".to_owned(),
        tenant: TenantId::new(0),
        volume: VolumeId::new(0),
        link: LinkId::new(0),
        arrivals: Arrivals::Closed { depth: 32, think: Duration::ZERO },
        sizes: vec![SizeWeight { bytes: 4_096, weight: 1 }],
        read_permille: 700,
        access: Access::Random,
        alignment: 4_096,
        region: Extent::new(0, SIZE),
        start: Duration::ZERO,
        stop: None,
    };
    Plan {
        seed: 1,
        end: End { requests: Some(requests), ..End::default() },
        tenants: vec!["tenant".to_owned()],
        promises: Promises::default(),
        shares: weir_flow::dispatch::Shares::default(),
        volumes: vec![Volume {
            name: "volume".to_owned(),
            size: SIZE,
            backend: BackendId::new(0),
            max_transfer: u64::MAX,
            cap: Cap::default(),
        }],
        backends: vec![Backend { name: "disk".to_owned(), model, paths: 1 }],
        links: vec![HostLink::infinite("host")],
        workloads: vec![workload],
        traces: Vec::new(),
        path_faults: Vec::new(),
        policies: Policies::default(),
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
    }
}

#[expect(clippy::disallowed_methods, reason = "what is measured is the wall-clock time of a run")]
#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
pub(crate) fn run(requests: u64, repeats: u64) -> Result<(), String> {
    let plan = plan(requests);
    let mut speeds = Vec::new();
    for _ in 0..repeats {
        let start = std::time::Instant::now();
        let results = weir_sim::run(&plan, |_| ()).map_err(|error| error.to_string())?;
        let speed = requests as f64 / start.elapsed().as_secs_f64();
        println!("{speed:10.0} requests/s, digest {}", results.digest);
        speeds.push(speed);
    }
    speeds.sort_unstable_by(f64::total_cmp);
    let (best, median) = (speeds[speeds.len() - 1], speeds[speeds.len() / 2]);
    println!("best {best:.0}, median {median:.0} requests/s");
    println!("{}", crate::peak_memory());
    Ok(())
}
