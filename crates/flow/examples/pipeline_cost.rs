//! Drives a whole pipeline in which nobody is promised anything, to count the instructions of a request
//! under one control policy, and one transfer policy.
//!
//! ```text
//! cargo run --release -p weir-flow --example pipeline_cost -- POLICY REQUESTS [TRANSFER-POLICY]
//! ```
//!
//! Four tenants with a volume and a link each keep 32 requests of 4 KiB outstanding, at a device that ends
//! them one by one every 4 us in the order in which they came. Ends when REQUESTS have been answered; the
//! set-up is in the count.

use std::collections::VecDeque;
use std::process::ExitCode;
use weir_flow::accept::{Cap, Layout, Volume};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{POLICIES, Promises};
use weir_flow::path::Settings;
use weir_flow::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies};
use weir_flow::policy::Choice;
use weir_flow::request::{BackendId, LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::stage::{Wake, World, run};
use weir_flow::transfer;
use weir_flow::units::Extent;

const TENANTS: u32 = 4;
const DEPTH: u32 = 32;
const CAPACITY: u64 = 1 << 40;
const SERVICE: Duration = Duration::from_micros(4);

/// Hosts that send the next request when one has been answered, and a device.
struct Loop {
    rng: Rng,
    now: Instant,
    inputs: VecDeque<Input>,
    device: VecDeque<RequestKey>,
    left: u64,
}

impl Loop {
    fn send(&mut self, tenant: u64) {
        let offset = self.rng.below(CAPACITY >> 12) << 12;
        self.inputs.push_back(Input::Arrive(Request {
            tag: Tag(tenant),
            tenant: TenantId::new(tenant as u32),
            volume: VolumeId::new(tenant as u32),
            link: LinkId::new(tenant as u32),
            op: if self.rng.below(2) == 0 { Op::Read } else { Op::Write },
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
        if let Some(at) = deadline.filter(|&at| at <= end) {
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
                self.left -= 1;
                self.send(tag.0);
            }
            Action::Refuse { .. } => unreachable!("so few are never too many"),
            Action::Cache(work) => unreachable!("nothing is cached: {work:?}"),
            Action::Check { .. }
            | Action::Abandon { .. }
            | Action::Recall { .. }
            | Action::Reset { .. } => {
                unreachable!("the device is never silent")
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let choice = arguments.first().map(|policy| Choice::named(POLICIES, policy));
    let requests = arguments.get(1).and_then(|requests| requests.parse::<u64>().ok());
    let (Some(choice), Some(requests)) = (choice, requests) else {
        println!("usage: pipeline_cost POLICY REQUESTS [TRANSFER-POLICY]");
        return ExitCode::from(2);
    };
    let usual = Choice::default_of(transfer::POLICIES);
    let transfer =
        arguments.get(2).map_or(Ok(usual), |policy| Choice::named(transfer::POLICIES, policy));
    let (control, transfer) = match (choice, transfer) {
        (Ok(control), Ok(transfer)) => (control, transfer),
        (Err(error), _) | (_, Err(error)) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    let volume = Volume {
        capacity: CAPACITY,
        layout: Layout::One(BackendId::new(0)),
        max_transfer: 1 << 20,
        cap: Cap::default(),
    };
    let config = Config {
        volumes: vec![volume; TENANTS as usize],
        backends: vec![Backend::alike(1)],
        promises: Promises::default(),
        shares: weir_flow::dispatch::Shares::default(),
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
        policies: Policies { control, transfer, ..Policies::default() },
    };
    let mut world = Loop {
        rng: Rng::stream(1, "pipeline_cost"),
        now: Instant::ZERO,
        inputs: VecDeque::new(),
        device: VecDeque::new(),
        left: requests,
    };
    for number in 0..TENANTS * DEPTH {
        world.send(u64::from(number % TENANTS));
    }
    let mut pipeline = Pipeline::new(&config, ());
    run(&mut pipeline, &mut world);
    println!("{requests} answered by {:?}; {pipeline:?}", world.now);
    ExitCode::SUCCESS
}
