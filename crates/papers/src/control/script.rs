//! One run of a control policy: tenants with contracts, their arrivals, and the array that serves them.
//!
//! It drives the control policy, the one of `weir serve`, behind its trait and not the whole pipeline: the other stages
//! have no part in what is measured, and take most of the time. Events at one time happen in this order: deadlines,
//! device, arrivals.

use super::score::{Course, Sample, Scores, TenantFigures, Window};
use crate::control::intervals::{self, ArrivalModel, Draws};
use slotmap::SlotMap;
use std::collections::VecDeque;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Build, Contract, ControlPolicy, Promises};
use weir_flow::policy::Choice;
use weir_flow::request::{LinkId, Op, Outcome, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::stage::{self, Stage, Wake, World};
use weir_flow::units::Extent;
use weir_model::array::{self, Array};
use weir_model::device::{Device, DeviceIo};
use weir_model::mech::{self, Mech};

/// All of a run but its policy. Times are seconds from its start.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Names the random streams: the seed, the set or scenario, the interval.
    pub(super) name: [u64; 3],
    pub(super) tenants: Vec<Tenant>,
    /// How open loops come.
    pub(super) arrivals: ArrivalModel,
    pub(super) machine: Machine,
    /// When arrivals end. The run continues for the longest response time of a contract.
    pub(super) end: f64,
    /// What is measured.
    pub(super) windows: Vec<Window>,
    /// Whether the run's course is wanted too.
    pub(super) course: bool,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) contract: Contract,
    pub(super) comes: Comes,
}

/// How a tenant asks, for reads of its contract's size.
#[derive(Clone, Debug)]
pub(super) enum Comes {
    /// Whatever becomes of the requests.
    Open(Vec<Segment>),
    /// This many outstanding from the start, and another whenever one has ended.
    Closed(u32),
}

/// A part of an open loop: a rate per second from one time to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) from: f64,
    pub(super) until: f64,
    pub(super) rate: f64,
}

impl Tenant {
    /// An open loop at one rate from the start to `end`.
    pub(super) fn steady(contract: Contract, rate: f64, end: f64) -> Self {
        let comes = Comes::Open(vec![Segment { from: 0.0, until: end, rate }]);
        Self { contract, comes }
    }
}

/// The array behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) model: Model,
    /// Capacity that is left from one time to another, as a share; M1 alone knows this and stalls.
    pub(super) left: Option<(f64, f64, f64)>,
    /// The share of requests for which a disk takes so much longer.
    pub(super) stalls: Option<(f64, Duration)>,
}

/// Which array.
#[derive(Clone, Copy, Debug)]
pub(super) enum Model {
    Array(array::Config),
    Mech(mech::Config),
}

impl Machine {
    /// An array that stays well.
    pub(super) const fn well(model: Model) -> Self {
        Self { model, left: None, stalls: None }
    }
}

/// What a run measured: by window, then by tenant.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) windows: Vec<Vec<TenantFigures>>,
    pub(super) course: Course,
}

/// Seconds since the start, as a time.
pub(super) fn at(seconds: f64) -> Instant {
    Instant::from_nanos(libm::rint(seconds * 1e9) as u64)
}

/// Plays a script under a policy.
pub(super) fn play(script: &Script, policy: &Choice<Build>) -> Measured {
    let contracts: Vec<_> = script.tenants.iter().map(|tenant| &tenant.contract).collect();
    let promises = Promises {
        contracts: contracts.iter().map(|&contract| Some(contract.clone())).collect(),
        groups: Vec::new(),
    };
    let targets: Vec<_> = contracts.iter().map(|contract| contract.rows[0].response()).collect();
    let mut gate = Controlled {
        policy: (policy.policy().build)(policy.values(), &promises),
        requests: SlotMap::with_key(),
        scores: Scores::new(&targets, &script.windows, script.course),
    };
    let mut world = Scripted::new(script);
    stage::run(&mut gate, &mut world);
    let (windows, gates) = gate.scores.figures();
    Measured { windows, course: Course { samples: world.samples, gates } }
}

/// A control policy in front of a device that takes what is released.
struct Controlled {
    policy: Box<dyn ControlPolicy>,
    requests: SlotMap<RequestKey, Controllable>,
    scores: Scores,
}

/// A request, when it came and when it was released.
struct Controllable {
    request: Request,
    arrived: Instant,
    released: Instant,
}

/// What happens to the policy.
enum Event {
    Arrives(Request),
    Ends(RequestKey),
}

/// A request goes to the device.
struct Release {
    key: RequestKey,
    request: Request,
}

impl Stage for Controlled {
    type Input = Event;
    type Output = Release;

    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Arrives(request) => {
                self.scores.arrived(now, request.tenant.index());
                let entry = Controllable { request, arrived: now, released: now };
                let key = self.requests.insert(entry);
                // The only row of its contract.
                self.policy.arrive(now, key, &request, Some(0));
            }
            Event::Ends(key) => {
                let entry = self.requests.remove(key).expect("only what was released can end");
                let device = now.since(entry.released);
                self.policy.complete(now, key, &entry.request, device);
                let tenant = entry.request.tenant.index();
                self.scores.completed(now, tenant, entry.arrived, device);
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Release> {
        if let Some((key, _)) = self.policy.poll(now) {
            let entry = &mut self.requests[key];
            entry.released = now;
            return Some(Release { key, request: entry.request });
        }
        while let Some(notice) = self.policy.notice() {
            self.scores.notice(now, notice);
        }
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.policy.next_deadline()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.policy.handle_deadline(now);
    }
}

/// Bytes from one request's place on the volume to the next, more than any request has.
const APART: u64 = 1 << 20;

/// Time between two samples of a course.
const SAMPLE: Duration = Duration::from_millis(10);

enum Behind {
    Array(Array),
    Mech(Mech),
}

impl Behind {
    fn next(&self) -> Option<Instant> {
        match self {
            Self::Array(array) => array.next(),
            Self::Mech(mech) => mech.next(),
        }
    }

    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)> {
        match self {
            Self::Array(array) => array.finished(now),
            Self::Mech(mech) => mech.finished(now),
        }
    }
}

/// A request that has come.
#[derive(Clone, Copy, Debug)]
struct Come {
    tenant: u32,
    draws: [f64; 4],
    key: RequestKey,
    sent: Instant,
}

/// The world of a script.
struct Scripted<'a> {
    script: &'a Script,
    planned: Vec<(Instant, u32)>,
    next: usize,
    /// Tenants with a closed loop whose next request is due.
    again: VecDeque<u32>,
    draws: Vec<Draws>,
    come: Vec<Come>,
    behind: Behind,
    now: Instant,
    end: Instant,
    last_arrival: Instant,
    inflight: u32,
    /// The first tenant's last time at the device.
    response: Duration,
    samples: Vec<Sample>,
}

impl<'a> Scripted<'a> {
    fn new(script: &'a Script) -> Self {
        let (mut planned, mut again) = (Vec::new(), VecDeque::new());
        for (id, tenant) in (0_u32..).zip(&script.tenants) {
            match &tenant.comes {
                Comes::Closed(depth) => again.extend((0..*depth).map(|_| id)),
                Comes::Open(segments) => {
                    for (number, segment) in (0_u64..).zip(segments) {
                        let gaps = intervals::gaps(script.name, u64::from(id), number);
                        let length = segment.until - segment.from;
                        let times = intervals::times(script.arrivals, segment.rate, length, gaps);
                        let from = at(segment.from);
                        planned.extend(times.map(|nanos| (from + Duration::from_nanos(nanos), id)));
                    }
                }
            }
        }
        planned.sort();
        let longest = script.tenants.iter().map(|tenant| tenant.contract.rows[0].response()).max();
        Self {
            planned,
            next: 0,
            again,
            draws: (0_u64..)
                .zip(&script.tenants)
                .map(|(id, _)| Draws::new(script.name, id))
                .collect(),
            come: Vec::new(),
            behind: match script.machine.model {
                Model::Array(config) => Behind::Array(Array::new(config, script.name[0], "array")),
                Model::Mech(config) => Behind::Mech(Mech::new(config, script.name[0], "array")),
            },
            now: Instant::ZERO,
            end: at(script.end) + longest.unwrap_or_default(),
            last_arrival: at(script.end),
            inflight: 0,
            response: Duration::ZERO,
            samples: Vec::new(),
            script,
        }
    }

    fn arrive(&mut self, tenant: u32) -> Event {
        let index = self.come.len() as u64;
        let draws = self.draws[tenant as usize].next();
        let key = RequestKey::default();
        self.come.push(Come { tenant, draws, key, sent: Instant::ZERO });
        let size = self.script.tenants[tenant as usize].contract.rows[0].size;
        Event::Arrives(Request {
            tag: Tag(index),
            tenant: TenantId::new(tenant),
            volume: VolumeId::new(0),
            link: LinkId::new(0),
            op: Op::Read,
            extent: Extent::new(index * APART, u64::from(size)),
            fua: false,
            ordered: false,
            job: false,
        })
    }

    fn start(&mut self, now: Instant, io: DeviceIo) {
        let [disk, service, angle, chance] = self.come[io.id as usize].draws;
        match &mut self.behind {
            Behind::Array(array) => {
                let Machine { model, left, stalls } = self.script.machine;
                let Model::Array(config) = model else { unreachable!("one array per script") };
                let mut draw = array::Draw::new((disk * f64::from(config.disks)) as u32, service);
                let begins = array.begins(now, draw.disk);
                if let Some((from, until, share)) = left
                    && begins >= at(from)
                    && begins < at(until)
                {
                    draw.slower = 1.0 / share;
                }
                if let Some((share, stall)) = stalls
                    && chance < share
                {
                    draw.stall = stall;
                }
                array.start_drawn(now, io, draw);
            }
            Behind::Mech(mech) => {
                let Model::Mech(config) = self.script.machine.model else {
                    unreachable!("one array per script")
                };
                let draw = mech::Draw::from_units(&config, disk, service, angle);
                mech.start_drawn(now, io, draw);
            }
        }
    }

    fn sample(&mut self, until: Instant) {
        if !self.script.course {
            return;
        }
        loop {
            let next = Instant::ZERO + SAMPLE * self.samples.len() as u64;
            if next > until {
                return;
            }
            let (inflight, response_ms) = (self.inflight, self.response.as_secs_f64() * 1e3);
            self.samples.push(Sample {
                seconds: next.since(Instant::ZERO).as_secs_f64(),
                inflight,
                response_ms,
            });
        }
    }
}

impl World<Controlled> for Scripted<'_> {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Event> {
        loop {
            let again = (!self.again.is_empty()).then_some(self.now);
            let arrival = self.planned.get(self.next).map(|&(at, _)| at);
            let device = self.behind.next();
            let at = [deadline, device, again, arrival].into_iter().flatten().min();
            let Some(at) = at.filter(|&at| at <= self.end) else { return Wake::End };
            self.sample(at);
            self.now = self.now.max(at);
            if deadline == Some(at) {
                return Wake::Deadline(self.now);
            }
            if device == Some(at) {
                if let Some((id, _)) = self.behind.finished(at) {
                    let come = self.come[id as usize];
                    self.inflight -= 1;
                    if come.tenant == 0 {
                        self.response = self.now.since(come.sent);
                    }
                    let comes = &self.script.tenants[come.tenant as usize].comes;
                    if matches!(comes, Comes::Closed(_)) && self.now < self.last_arrival {
                        self.again.push_back(come.tenant);
                    }
                    return Wake::Input(self.now, Event::Ends(come.key));
                }
                continue;
            }
            let tenant = if let Some(tenant) = self.again.pop_front() {
                tenant
            } else {
                self.next += 1;
                self.planned[self.next - 1].1
            };
            return Wake::Input(self.now, self.arrive(tenant));
        }
    }

    fn perform(&mut self, now: Instant, Release { key, request }: Release) {
        let come = &mut self.come[request.tag.0 as usize];
        (come.key, come.sent) = (key, now);
        self.inflight += 1;
        let Request { tag, op, extent, fua, .. } = request;
        self.start(now, DeviceIo { id: tag.0, op, extent, fua });
    }
}
