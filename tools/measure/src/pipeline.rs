//! Drives a whole pipeline, to count the instructions of a request.
//!
//! CASE is a control policy, with tenants that have no contract, or one of
//!
//! * `contract`: `slack`, and every tenant has a contract
//! * `fair-time`: the dispatch policy `fair-time`, and the tenants have different weights
//! * `two-paths`: two paths to the device
//! * `cache-hit`: every request is a read that the cache has
//!
//! Four tenants with a volume and a link each keep 32 requests of 4 KiB outstanding, at a device that ends
//! them one by one every 4 us in the order of their arrival. Ends when REQUESTS have been answered; the
//! set-up is in the count.

use std::collections::VecDeque;
use weir_flow::accept::{Cap, Layout, Volume};
use weir_flow::cache::{Work, prefetch};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Contract, POLICIES, Promises};
use weir_flow::dispatch::{self, Shares, Weight};
use weir_flow::path::Settings;
use weir_flow::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies};
use weir_flow::policy::{Choice, ChoiceError};
use weir_flow::request::{BackendId, LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::stage::{self, Wake, World};
use weir_flow::units::Extent;

const TENANTS: u32 = 4;
const DEPTH: u32 = 32;
const CAPACITY: u64 = 1 << 40;
const SERVICE: Duration = Duration::from_micros(4);

/// Bytes of each volume that the reads of `cache-hit` use.
const CACHED: u64 = 1 << 20;

/// Requests per second that the contracts of all tenants allow together: a fifth less than the device serves.
const SOLD: u32 = 200_000;

/// Hosts that send the next request when one has been answered, and a device.
struct Loop {
    rng: Rng,
    now: Instant,
    inputs: VecDeque<Input>,
    device: VecDeque<RequestKey>,
    left: u64,
    /// Bytes of each volume that are used, from its beginning.
    region: u64,
    /// Requests are reads and writes, not reads alone.
    writes: bool,
}

impl Loop {
    fn send(&mut self, tenant: u64) {
        let offset = self.rng.below(self.region >> 12) << 12;
        self.inputs.push_back(Input::Arrive(Request {
            tag: Tag(tenant),
            tenant: TenantId::new(tenant as u32),
            volume: VolumeId::new(tenant as u32),
            link: LinkId::new(tenant as u32),
            op: if !self.writes || self.rng.below(2) == 0 { Op::Read } else { Op::Write },
            extent: Extent::new(offset, 4_096),
            fua: false,
            ordered: false,
            job: false,
        }));
    }
}

impl World<Pipeline> for Loop {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        if self.left == 0 {
            return Wake::End;
        }
        if let Some(input) = self.inputs.pop_front() {
            return Wake::Input(self.now, input);
        }
        let end = self.now + SERVICE;
        // With every request at the link, only a deadline comes next.
        if let Some(at) = deadline.filter(|&at| at <= end || self.device.is_empty()) {
            self.now = self.now.max(at);
            return Wake::Deadline(at);
        }
        self.now = end;
        let key = self.device.pop_front().expect("the loop is closed");
        Wake::Input(end, Input::Stored { key, outcome: Ok(()) })
    }

    fn perform(&mut self, _: Instant, action: Action) {
        match action {
            Action::Store(io) => self.device.push_back(io.key),
            Action::Transfer { key, tag, part, .. } => {
                self.inputs.push_back(Input::Sent { key, bytes: part.length });
                self.left = self.left.saturating_sub(1);
                self.send(tag.0);
            }
            Action::Refuse { .. } => unreachable!("so few are never too many"),
            Action::Cache(Work::Copy(_)) => {}
            Action::Cache(work) => unreachable!("no volume has a log: {work:?}"),
            Action::Check { .. }
            | Action::Abandon { .. }
            | Action::Recall { .. }
            | Action::Reset { .. } => {
                unreachable!("the device is never silent")
            }
        }
    }
}

/// The pipeline of a case.
fn configuration(case: &str, transfer: Option<&str>) -> Result<Config, ChoiceError> {
    let volume = Volume {
        capacity: CAPACITY,
        layout: Layout::One(BackendId::new(0)),
        max_transfer: 1 << 20,
        cap: Cap::default(),
    };
    let mut config = Config {
        volumes: vec![volume; TENANTS as usize],
        backends: vec![Backend::alike(1)],
        promises: Promises::default(),
        shares: Shares::default(),
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
        policies: Policies::default(),
    };
    match case {
        "contract" => {
            let contract = Contract::new(SOLD / TENANTS, 4_096, Duration::from_millis(5));
            config.promises.contracts = vec![Some(contract); TENANTS as usize];
        }
        "fair-time" => {
            config.policies.dispatch = Choice::named(dispatch::POLICIES, case)?;
            let weight = |number| Weight::from_1024ths(1_024 * (1 + number)).expect("in range");
            config.shares.tenants = (0..TENANTS).map(weight).collect();
        }
        "two-paths" => config.backends = vec![Backend::alike(2)],
        "cache-hit" => {
            config.cache.size = 8 * CACHED * u64::from(TENANTS);
            config.policies.prefetch = Choice::named(prefetch::POLICIES, "off")?;
        }
        policy => config.policies.control = Choice::named(POLICIES, policy)?,
    }
    if let Some(policy) = transfer {
        config.policies.transfer = Choice::named(weir_flow::transfer::POLICIES, policy)?;
    }
    Ok(config)
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
/// Until `requests` have been answered. Fails if there is no such case or transfer policy.
pub(crate) fn run(case: &str, requests: u64, transfer: Option<&str>) -> Result<(), String> {
    let config = configuration(case, transfer).map_err(|error| error.to_string())?;
    let cached = config.cache.size > 0;
    let mut world = Loop {
        rng: Rng::stream(1, "pipeline_cost"),
        now: Instant::ZERO,
        inputs: VecDeque::new(),
        device: VecDeque::new(),
        left: requests,
        region: if cached { CACHED } else { CAPACITY },
        writes: !cached,
    };
    for number in 0..TENANTS * DEPTH {
        world.send(u64::from(number % TENANTS));
    }
    let mut pipeline = Pipeline::new(&config, ());
    stage::run(&mut pipeline, &mut world);
    println!("{requests} answered by {:?}; {pipeline:?}", world.now);
    Ok(())
}
