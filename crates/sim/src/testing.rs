//! Plans and workloads that the unit tests of several modules share.

use crate::plan::{
    Access, Arrivals, Backend, End, HostLink, Model, Plan, SizeWeight, Volume, Workload,
};
use weir_flow::accept::Cap;
use weir_flow::clock::Duration;
use weir_flow::control::Promises;
use weir_flow::path::Settings;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::request::{BackendId, LinkId, TenantId, VolumeId};
use weir_flow::units::Extent;
use weir_model::fixed;

const SIZE: u64 = 1 << 30;

/// Aligned random 4 KiB reads of the whole volume of [`plan`].
pub(crate) fn workload(arrivals: Arrivals) -> Workload {
    Workload {
        name: "load".to_owned(),
        tenant: TenantId::new(0),
        volume: VolumeId::new(0),
        link: LinkId::new(0),
        arrivals,
        sizes: vec![SizeWeight { bytes: 4_096, weight: 1 }],
        read_permille: 1_000,
        access: Access::Random,
        alignment: 4_096,
        region: Extent::new(0, SIZE),
        start: Duration::ZERO,
        stop: None,
    }
}

/// One second of a closed loop of depth 8 on a device of 100 us and 4 servers.
pub(crate) fn plan() -> Plan {
    let model = Model::Fixed(fixed::Config { service: Duration::from_micros(100), servers: 4 });
    let arrivals = Arrivals::Closed { depth: 8, think: Duration::ZERO };
    Plan {
        seed: 1,
        end: End { duration: Some(Duration::from_secs(1)), ..End::default() },
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
        workloads: vec![workload(arrivals)],
        traces: Vec::new(),
        path_faults: Vec::new(),
        policies: Policies::default(),
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
    }
}
