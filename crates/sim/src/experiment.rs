//! The control policies on the nine intervals of the token-bucket paper.
//!
//! [`control`] runs one policy through one interval: a second of warm-up from an idle array M1, ten
//! seconds that are measured. The pipeline is the one of `weir serve`, with everything but control out
//! of the way: no limit at the device, links that take no time.
//!
//! Events at one time happen in the order of [`run()`](crate::run()): deadlines, device, arrivals.

use crate::workload::intervals::{self, Streams, TENANTS};
pub use crate::workload::intervals::{ArrivalModel, Set};
use std::collections::VecDeque;
use weir_flow::accept::Volume;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Build, Notice, Promises};
use weir_flow::event::{Event, Observer, StageName};
use weir_flow::pipeline::{Action, Config, Input, Limits, Pipeline, Policies};
use weir_flow::policy::Choice;
use weir_flow::request::{BackendId, LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::stage::{self, Stage, Wake, World};
use weir_flow::units::Extent;
use weir_model::array::{self, Array};
use weir_model::device::{Device, DeviceIo};

/// One run of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Case<'a> {
    /// The control policy.
    pub policy: &'a Choice<Build>,
    /// The tenants and their contracts.
    pub set: Set,
    /// Who asks for how much: 1 to 9, see [`Set::rates`].
    pub interval: u32,
    /// When requests come.
    pub arrivals: ArrivalModel,
    /// Names the random streams.
    pub seed: u64,
}

/// What an interval measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// By tenant.
    pub tenants: [TenantFigures; TENANTS],
}

/// One tenant's part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantFigures {
    /// Requests that came in the interval, per second.
    pub offered_per_second: f64,
    /// Requests that ended in the interval, per second.
    pub completed_per_second: f64,
    /// Share of the requests that came in the interval and ended within the promised time, counted
    /// from arrival.
    pub satisfied: f64,
    /// 99th percentile, by nearest rank, of the time at the device, of the same requests. Those that
    /// had not ended a response time after the interval are left out.
    pub device_p99: Duration,
    /// How often the tenant's bucket was put into its path, warm-up included.
    pub switched_on: u32,
    /// Share of the interval that it was there.
    pub on_share: f64,
}

/// Time before the interval.
const WARM_UP: Duration = Duration::from_secs(1);

/// Length of the interval.
const LENGTH: Duration = Duration::from_secs(10);

/// Requests and bytes that fit into the pipeline: more than any interval leaves behind.
const ROOM_REQUESTS: u32 = 1 << 17;
const ROOM_BYTES: u64 = 1 << 40;

/// Runs one policy through one interval.
pub fn control(case: &Case<'_>) -> Figures {
    let contracts = case.set.contracts();
    let mut policies = Policies { control: case.policy.clone(), ..Policies::default() };
    policies.dispatch.set("depth", 65_536).expect("fifo has a depth");
    let config = Config {
        volumes: vec![Volume {
            capacity: ROOM_BYTES,
            backend: BackendId::new(0),
            max_transfer: u64::MAX,
        }],
        backends: vec![1],
        promises: Promises { contracts: contracts.clone().map(Some).to_vec(), groups: Vec::new() },
        limits: Limits {
            max_requests: ROOM_REQUESTS,
            max_bytes: ROOM_BYTES,
            link_window: ROOM_BYTES,
            ..Limits::default()
        },
        policies,
    };
    let promised = contracts.map(|contract| contract.rows[0].response());
    let mut pipeline = Pipeline::new(&config, Scores::new(promised));
    let mut world = Scripted::new(case);
    stage::run(&mut pipeline, &mut world);
    pipeline.observer_mut().figures()
}

/// A request that will come.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Instant,
    tenant: u32,
    disk: u32,
    spread: f64,
}

/// The world of one interval.
struct Scripted {
    planned: Vec<Planned>,
    bytes: [u64; TENANTS],
    next: usize,
    array: Array,
    /// What is at the array, by the number of the request.
    keys: Vec<RequestKey>,
    sent: VecDeque<RequestKey>,
    now: Instant,
    end: Instant,
}

impl Scripted {
    fn new(case: &Case<'_>) -> Self {
        let config = array::Config::default();
        let length = (WARM_UP + LENGTH).as_secs_f64();
        let mut planned = Vec::new();
        for (tenant, rate) in (0_u32..).zip(case.set.rates(case.interval)) {
            let Streams { gaps, mut disk, mut service } =
                Streams::new(case.seed, case.set, case.interval, u64::from(tenant));
            let times = intervals::times(case.arrivals, f64::from(rate), length, gaps);
            planned.extend(times.map(|nanos| Planned {
                at: Instant::from_nanos(nanos),
                tenant,
                disk: (disk.unit() * f64::from(config.disks)) as u32,
                spread: service.unit(),
            }));
        }
        planned.sort_by_key(|planned| (planned.at, planned.tenant));
        let contracts = case.set.contracts();
        let longest = contracts.iter().map(|contract| contract.rows[0].response()).max();
        Self {
            keys: vec![RequestKey::default(); planned.len()],
            planned,
            bytes: contracts.map(|contract| u64::from(contract.rows[0].size)),
            next: 0,
            array: Array::new(config, case.seed, "array"),
            sent: VecDeque::new(),
            now: Instant::ZERO,
            end: Instant::ZERO + WARM_UP + LENGTH + longest.unwrap_or_default(),
        }
    }

    fn request(&self, index: usize) -> Request {
        let tenant = self.planned[index].tenant;
        let bytes = self.bytes[tenant as usize];
        Request {
            tag: Tag(index as u64),
            tenant: TenantId::new(tenant),
            volume: VolumeId::new(0),
            link: LinkId::new(0),
            op: Op::Read,
            extent: Extent::new(index as u64 * bytes, bytes),
            fua: false,
            ordered: false,
        }
    }
}

impl<S: Stage<Input = Input, Output = Action>> World<S> for Scripted {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        if let Some(key) = self.sent.pop_front() {
            return Wake::Input(self.now, Input::Sent { key });
        }
        loop {
            let arrival = self.planned.get(self.next).map(|planned| planned.at);
            let device = self.array.next();
            let at = [deadline, device, arrival].into_iter().flatten().min();
            let Some(at) = at.filter(|&at| at <= self.end) else { return Wake::End };
            self.now = self.now.max(at);
            if deadline == Some(at) {
                return Wake::Deadline(self.now);
            }
            if device == Some(at) {
                if let Some((id, outcome)) = self.array.finished(at) {
                    let key = self.keys[id as usize];
                    return Wake::Input(self.now, Input::Stored { key, outcome });
                }
                continue;
            }
            self.next += 1;
            return Wake::Input(self.now, Input::Arrive(self.request(self.next - 1)));
        }
    }

    fn perform(&mut self, now: Instant, action: Action) {
        match action {
            Action::Store(io) => {
                let index = io.tag.0 as usize;
                self.keys[index] = io.key;
                let Planned { disk, spread, .. } = self.planned[index];
                let io = DeviceIo { id: io.tag.0, op: io.op, extent: io.extent };
                self.array.start_drawn(now, io, disk, spread);
            }
            Action::Transfer { key, .. } => self.sent.push_back(key),
            Action::Refuse { .. } => panic!("the pipeline has room for all of an interval"),
        }
    }
}

/// Counts while an interval runs.
struct Scores {
    tenants: [Score; TENANTS],
}

#[derive(Default)]
struct Score {
    promised: Duration,
    offered: u32,
    completed: u32,
    satisfied: u32,
    device: Vec<Duration>,
    switched_on: u32,
    on_since: Option<Instant>,
    on: Duration,
}

impl Scores {
    fn new(promised: [Duration; TENANTS]) -> Self {
        Self { tenants: promised.map(|promised| Score { promised, ..Score::default() }) }
    }

    fn figures(&mut self) -> Figures {
        let seconds = LENGTH.as_secs_f64();
        let figures = |score: &mut Score| {
            score.gate(Instant::ZERO + WARM_UP + LENGTH, false);
            score.device.sort_unstable();
            let rank = (score.device.len() * 99).div_ceil(100);
            TenantFigures {
                offered_per_second: f64::from(score.offered) / seconds,
                completed_per_second: f64::from(score.completed) / seconds,
                satisfied: f64::from(score.satisfied) / f64::from(score.offered.max(1)),
                device_p99: rank.checked_sub(1).map_or(Duration::ZERO, |i| score.device[i]),
                switched_on: score.switched_on,
                on_share: score.on.as_secs_f64() / seconds,
            }
        };
        Figures { tenants: self.tenants.each_mut().map(figures) }
    }
}

impl Score {
    fn gate(&mut self, now: Instant, on: bool) {
        let begin = Instant::ZERO + WARM_UP;
        if let Some(since) = self.on_since.take() {
            let end = now.min(begin + LENGTH);
            self.on += end.saturating_since(since.max(begin));
        }
        if on {
            self.switched_on += u32::from(now < begin + LENGTH);
            self.on_since = Some(now);
        }
    }
}

impl Observer for Scores {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        let begin = Instant::ZERO + WARM_UP;
        let inside = |at: Instant| at >= begin && at < begin + LENGTH;
        match event {
            Event::Arrived(request) => {
                self.tenants[request.tenant.index()].offered += u32::from(inside(now));
            }
            Event::Completed(completed) => {
                let score = &mut self.tenants[completed.request.tenant.index()];
                score.completed += u32::from(inside(now));
                if inside(completed.arrived) {
                    let whole = now.since(completed.arrived);
                    score.satisfied += u32::from(whole <= score.promised);
                    score.device.push(completed.times.spent(StageName::Store));
                }
            }
            Event::Control(Notice::Gate(tenant, on)) => self.tenants[tenant.index()].gate(now, on),
            Event::Control(Notice::Infeasible(..) | Notice::Scaled(..))
            | Event::Refused(_)
            | Event::PathFailed(..)
            | Event::PathReinstated(..)
            | Event::Overdue { .. }
            | Event::Stray => {}
        }
    }
}

#[cfg(test)]
mod tests;
