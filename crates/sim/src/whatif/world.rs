//! The world of a what-if: recorded arrivals, devices of a source, and links as they were.
//!
//! Events at one time happen in the order of [`crate::world`]: deadlines, the cache, recorded events, devices,
//! replies, arrivals.

use super::arrivals::{Schedule, children};
use super::device::{Devices, Source, Support};
use super::evidence::{Evidence, Times};
use super::scores::Scores;
use crate::world::CacheWork;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::{Action, Config, Input, Pipeline};
use weir_flow::request::{BackendId, PathId, Request, RequestKey, Tag};
use weir_flow::stage::{self, Stage, Wake, World as StageWorld};

/// What a run gave.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) scores: Scores,
    pub(super) support: Support,
    /// Time for which hosts held requests back at their depth, in all.
    pub(super) host_wait: Duration,
    /// The pipeline gave up a path, which cannot be answered.
    pub(super) path_lost: bool,
}

/// Runs a configuration on recorded arrivals. `depth` limits each issuer, instead of the recorded depth.
pub(super) fn run(
    config: &Config,
    evidence: &Evidence,
    times: &Times<'_>,
    schedule: &Schedule,
    source: Source<'_>,
    depth: Option<u32>,
    seed: u64,
) -> Run {
    let mut pipeline = Pipeline::new(config, Scores::new(&config.promises));
    let limit = |issuer: &super::arrivals::Issuer| depth.unwrap_or(issuer.depth).max(1);
    let mut world = World {
        evidence,
        schedule,
        now: Instant::ZERO,
        arrivals: BinaryHeap::new(),
        children: children(&schedule.parents),
        limits: schedule.issuers.iter().map(limit).collect(),
        outstanding: vec![0; schedule.issuers.len()],
        held: vec![VecDeque::new(); schedule.issuers.len()],
        open: 0,
        event: 0,
        cache: CacheWork::default(),
        devices: Devices::new(evidence, times, source, seed),
        free: Vec::new(),
        replies: BinaryHeap::new(),
        last: BTreeMap::new(),
        checks: VecDeque::new(),
        scheduled: 0,
        host_wait: Duration::ZERO,
        path_lost: false,
        idle_deadlines: 0,
    };
    for (index, arrival) in (0..).zip(&evidence.arrivals) {
        if schedule.parents[index as usize].is_none() {
            world.arrivals.push(Reverse((arrival.at, index)));
        }
    }
    stage::run(&mut pipeline, &mut world);
    Run {
        support: world.devices.support,
        host_wait: world.host_wait,
        path_lost: world.path_lost,
        scores: pipeline.into_observer(),
    }
}

struct World<'a> {
    evidence: &'a Evidence,
    schedule: &'a Schedule,
    now: Instant,
    /// Requests on the way, by time.
    arrivals: BinaryHeap<Reverse<(Instant, u32)>>,
    children: BTreeMap<u32, VecDeque<(u32, u64)>>,
    limits: Vec<u32>,
    outstanding: Vec<u32>,
    /// Requests that an issuer holds back at its depth, and since when.
    held: Vec<VecDeque<(Instant, u32)>>,
    /// Requests outstanding.
    open: u64,
    /// The next recorded event.
    event: usize,
    cache: CacheWork,
    devices: Devices<'a>,
    /// When each link is free.
    free: Vec<Instant>,
    /// Parts of replies, by the time at which they have left.
    replies: BinaryHeap<Reverse<(Instant, u64, RequestKey, u64)>>,
    /// The requests whose last part is on its way, by the number of that.
    last: BTreeMap<u64, u32>,
    checks: VecDeque<(Instant, BackendId, PathId)>,
    scheduled: u64,
    host_wait: Duration,
    path_lost: bool,
    idle_deadlines: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Cache,
    Event,
    Device,
    Check,
    Reply,
    Arrival,
}

impl World<'_> {
    fn next(&self) -> Option<(Instant, Kind)> {
        let event = self.evidence.events.get(self.event).map(|event| event.0.max(self.now));
        let reply = self.replies.peek().map(|&Reverse((at, ..))| at);
        let arrival = self.arrivals.peek().map(|&Reverse((at, _))| at);
        let next = [
            ((!self.cache.is_idle()).then_some(self.now), Kind::Cache),
            (event, Kind::Event),
            (self.devices.next(), Kind::Device),
            (self.checks.front().map(|check| check.0), Kind::Check),
            (reply, Kind::Reply),
            (arrival, Kind::Arrival),
        ];
        let next = next.into_iter().filter_map(|(at, kind)| Some((at?, kind)));
        // The first of equal ones.
        next.reduce(|first, other| if other.0 < first.0 { other } else { first })
    }

    fn is_over(&self) -> bool {
        self.path_lost || self.open == 0 && self.arrivals.is_empty() && self.replies.is_empty()
    }

    fn happen(&mut self, kind: Kind) -> Option<Input> {
        match kind {
            Kind::Cache => self.cache.happen(),
            Kind::Event => {
                let (_, input) = &self.evidence.events[self.event];
                self.event += 1;
                Some(input.clone())
            }
            Kind::Device => {
                let (key, outcome) = self.devices.happen(self.now)?;
                Some(Input::Stored { key, outcome })
            }
            Kind::Check => {
                let (_, backend, path) = self.checks.pop_front()?;
                Some(Input::Checked(backend, path))
            }
            Kind::Reply => {
                let Reverse((_, number, key, bytes)) = self.replies.pop()?;
                if let Some(index) = self.last.remove(&number) {
                    self.ended(index);
                }
                Some(Input::Sent { key, bytes })
            }
            Kind::Arrival => {
                let Reverse((_, index)) = self.arrivals.pop()?;
                let issuer = self.schedule.issuer[index as usize] as usize;
                if self.outstanding[issuer] >= self.limits[issuer] {
                    self.held[issuer].push_back((self.now, index));
                    return None;
                }
                self.outstanding[issuer] += 1;
                self.open += 1;
                let request = self.evidence.arrivals[index as usize].request;
                Some(Input::Arrive(Request { tag: Tag(u64::from(index)), ..request }))
            }
        }
    }

    /// A request has ended: its issuer sends what it held back, and what waited for this reply.
    fn ended(&mut self, index: u32) {
        let issuer = self.schedule.issuer[index as usize] as usize;
        self.outstanding[issuer] -= 1;
        self.open -= 1;
        if let Some((since, held)) = self.held[issuer].pop_front() {
            self.host_wait += self.now.since(since);
            self.arrivals.push(Reverse((self.now, held)));
        }
        for (child, think) in self.children.remove(&index).unwrap_or_default() {
            let at = self.now + Duration::from_nanos(think);
            self.arrivals.push(Reverse((at, child)));
        }
    }

    /// A part of a reply is sent behind what is on its link.
    fn send(&mut self, now: Instant, key: RequestKey, index: u32, bytes: u64, last: bool) {
        let arrival = &self.evidence.arrivals[index as usize];
        let link = arrival.request.link.index();
        if link >= self.free.len() {
            self.free.resize(link + 1, Instant::ZERO);
        }
        let whole = arrival.request.reply_bytes();
        let time = match whole {
            0 => arrival.link_ns,
            _ => (u128::from(arrival.link_ns) * u128::from(bytes) / u128::from(whole)) as u64,
        };
        // The replies of jobs leave by no link.
        let left = if arrival.request.job {
            now
        } else {
            self.free[link] = now.max(self.free[link]) + Duration::from_nanos(time);
            self.free[link]
        };
        self.scheduled += 1;
        self.replies.push(Reverse((left, self.scheduled, key, bytes)));
        if last {
            self.last.insert(self.scheduled, index);
        }
    }
}

impl<S: Stage<Input = Input, Output = Action>> StageWorld<S> for World<'_> {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        loop {
            if self.is_over() {
                return Wake::End;
            }
            let next = self.next();
            if let Some(deadline) = deadline
                && next.is_none_or(|(at, _)| deadline <= at)
            {
                self.now = self.now.max(deadline);
                self.idle_deadlines += 1;
                assert!(self.idle_deadlines < STUCK, "the pipeline holds a request for ever");
                return Wake::Deadline(self.now);
            }
            let Some((at, kind)) = next else { return Wake::End };
            self.now = self.now.max(at);
            self.idle_deadlines = 0;
            if let Some(input) = self.happen(kind) {
                return Wake::Input(self.now, input);
            }
        }
    }

    fn perform(&mut self, now: Instant, action: Action) {
        match action {
            Action::Store(io) => self.devices.start(now, &io),
            Action::Cache(work) => self.cache.perform(work),
            Action::Transfer { key, tag, part, .. } => {
                self.send(now, key, tag.0 as u32, part.length, part.last);
            }
            Action::Refuse { tag } => self.ended(tag.0 as u32),
            Action::Check { backend, path } => self.checks.push_back((now + CHECK, backend, path)),
            Action::Abandon { key, .. } => self.devices.abandon(key),
            Action::Recall { .. } => {}
            Action::Reset { .. } => self.path_lost = true,
        }
    }
}

/// How long a check of a path takes.
const CHECK: Duration = Duration::from_micros(200);

/// This number of deadlines in a row at which nothing else happens means a pipeline that holds a request for ever.
const STUCK: u64 = 1 << 26;
