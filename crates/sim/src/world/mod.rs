//! The simulated world: a virtual clock that jumps to the next event of links, devices and workloads.
//!
//! Events at one time happen in this order, and those of one kind in the order in which they were
//! scheduled:
//!
//! 1. deadlines of the pipeline;
//! 2. the work of the cache, which takes no time;
//! 3. changes of paths;
//! 4. I/Os given up on dead paths, then completions of devices (devices that complete several at
//!    one time take turns);
//! 5. replies, or parts of them, that have left;
//! 6. arrivals.
//!
//! Each open source has one request waiting to come, each closed one its depth; the rest of what
//! is held here is what the pipeline has outstanding. Nothing grows with time.

mod backends;
mod cache;
mod journal;

pub(crate) use journal::Journal;

use crate::plan::{End, HostLink, PathFault, Plan, REFUSED_BACKOFF};
use crate::run::{Progress, RunError};
use crate::slots::Slots;
use crate::source::Source;
use crate::trace;
use backends::Backends;
use cache::CacheWork;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::digest::Digest;
use weir_flow::pipeline::{Action, Input};
use weir_flow::request::{PathId, Request, RequestKey, Tag};
use weir_flow::stage::{Stage, Wake, World as StageWorld};
use weir_flow::transfer::Part;
use weir_model::link::Link;

/// How often progress is told, in events; a power of two.
const PROGRESS: u64 = 1 << 16;

/// So many deadlines in a row at which nothing else happens mean a pipeline that holds a request
/// for ever: at one a millisecond, 18 hours.
const STUCK: u64 = 1 << 26;

/// Later than everything.
const FAR: Instant = Instant::from_nanos(u64::MAX);

/// Everything outside the pipeline.
pub(crate) struct World<'a> {
    end: End,
    /// Nothing comes from here on.
    until: Instant,
    /// The run stops here, whatever is outstanding.
    cut: Instant,
    progress: &'a mut dyn FnMut(Progress),
    journal: Option<Journal<'a>>,
    now: Instant,
    sources: Vec<Source>,
    /// Requests that will come or have come, until their reply leaves. The index is the tag.
    asked: Slots<Asked>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Nothing comes any more.
    closed: bool,
    links: Vec<Link>,
    delays: Vec<Duration>,
    replies: BinaryHeap<Reverse<(Instant, u64, RequestKey, u64)>>,
    backends: Backends,
    cache: CacheWork,
    /// Sorted by time, latest first.
    faults: Vec<PathFault>,
    /// Numbers what is scheduled, to keep the order among equal times.
    scheduled: u64,
    arrived: u64,
    events: u64,
    idle_deadlines: u64,
    digest: Digest,
    error: Option<trace::Error>,
}

/// A request that a source has asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: Request,
    source: u32,
    /// When it came last.
    came: Instant,
}

/// A request on its way to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Instant,
    scheduled: u64,
    asked: u32,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Cache,
    Fault,
    Backend,
    Reply,
    Arrival,
}

/// How a run ended.
pub(crate) struct Ended {
    /// When.
    pub(crate) at: Instant,
    pub(crate) events: u64,
    pub(crate) ios_lost: u64,
    pub(crate) digest: Digest,
}

impl<'a> World<'a> {
    /// The world of a checked plan at time zero.
    pub(crate) fn new(
        plan: &Plan,
        sources: Vec<Source>,
        journal: Option<Journal<'a>>,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, RunError> {
        let mut faults = plan.path_faults.clone();
        faults.sort_by_key(|fault| fault.at);
        faults.reverse();
        let until = plan.end.duration.map_or(FAR, |duration| Instant::ZERO + duration);
        let mut world = Self {
            end: plan.end,
            until,
            cut: if plan.end.drain { FAR } else { until },
            progress,
            journal,
            now: Instant::ZERO,
            sources,
            asked: Slots::new(),
            arrivals: BinaryHeap::new(),
            closed: false,
            links: plan.links.iter().map(|link| Link::new(link.config)).collect(),
            delays: plan.links.iter().map(|HostLink { config, .. }| config.delay).collect(),
            replies: BinaryHeap::new(),
            backends: Backends::new(plan),
            cache: CacheWork::default(),
            faults,
            scheduled: 0,
            arrived: 0,
            events: 0,
            idle_deadlines: 0,
            digest: Digest::default(),
            error: None,
        };
        for source in 0..world.sources.len() {
            world.begin(source)?;
        }
        Ok(world)
    }

    /// The end of a run, or what kept it from ending well.
    pub(crate) fn finish(mut self) -> Result<Ended, RunError> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        if let Some(journal) = self.journal.take() {
            journal.end(self.digest)?;
        }
        (self.progress)(Progress { now: self.now, arrived: self.arrived, end: self.end });
        Ok(Ended {
            at: self.now,
            events: self.events,
            ios_lost: self.backends.lost(),
            digest: self.digest,
        })
    }

    /// Schedules the first requests of a source.
    fn begin(&mut self, source: usize) -> Result<(), trace::Error> {
        let index = source as u32;
        if let Source::Generated(generator) = &mut self.sources[source]
            && let Some((depth, _)) = generator.closed()
        {
            let Some(at) = generator.first() else { return Ok(()) };
            for _ in 0..depth {
                let Source::Generated(generator) = &mut self.sources[source] else { break };
                let request = generator.draw();
                self.ask(at, Asked { request, source: index, came: at });
            }
            return Ok(());
        }
        self.ask_next(index)
    }

    /// Schedules the next request of an open loop, if there is one.
    fn ask_next(&mut self, source: u32) -> Result<(), trace::Error> {
        if let Some((at, request)) = self.sources[source as usize].next()? {
            self.ask(at, Asked { request, source, came: at });
        }
        Ok(())
    }

    fn ask(&mut self, at: Instant, asked: Asked) {
        let tag = self.asked.insert(asked);
        self.schedule_arrival(at, tag);
    }

    /// Lets a request come at `at`, unless the run is over by then.
    fn schedule_arrival(&mut self, at: Instant, asked: u32) {
        if at >= self.until || self.closed {
            self.asked.remove(asked);
            return;
        }
        self.scheduled += 1;
        self.arrivals.push(Reverse(Arrival { at, scheduled: self.scheduled, asked }));
    }

    /// What happens next, and when; [`FAR`] if nothing does.
    fn next(&self) -> (Instant, Kind) {
        let mut first = (FAR, Kind::Arrival);
        let mut offer = |at: Instant, kind| {
            if at < first.0 {
                first = (at, kind);
            }
        };
        offer(if self.cache.is_idle() { FAR } else { self.now }, Kind::Cache);
        offer(self.faults.last().map_or(FAR, |fault| Instant::ZERO + fault.at), Kind::Fault);
        offer(self.backends.next(), Kind::Backend);
        offer(self.replies.peek().map_or(FAR, |Reverse(reply)| reply.0), Kind::Reply);
        offer(self.arrivals.peek().map_or(FAR, |Reverse(arrival)| arrival.at), Kind::Arrival);
        first
    }

    /// The next wake, without counting it.
    fn advance(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        loop {
            if self.error.is_some() || self.asked.is_empty() && self.replies.is_empty() {
                return Wake::End;
            }
            let (next, kind) = self.next();
            let due = deadline.is_some_and(|deadline| deadline <= next);
            let at = deadline.filter(|_| due).unwrap_or(next);
            if at == FAR {
                return Wake::End;
            }
            if at >= self.cut {
                self.now = self.cut;
                return Wake::End;
            }
            self.now = self.now.max(at);
            if due {
                self.idle_deadlines += 1;
                assert!(self.idle_deadlines < STUCK, "the pipeline holds a request for ever");
                return Wake::Deadline(self.now);
            }
            self.idle_deadlines = 0;
            if let Some(input) = self.happen(kind) {
                return Wake::Input(self.now, input);
            }
        }
    }

    /// Lets the next event of a kind happen; some are none of the pipeline's business.
    fn happen(&mut self, kind: Kind) -> Option<Input> {
        match kind {
            Kind::Cache => self.cache.happen(),
            Kind::Fault => {
                let PathFault { backend, path, change, .. } = self.faults.pop()?;
                let up = self.backends.change(self.now, backend, path, change);
                up.then_some(Input::PathUp(backend, PathId::new(path)))
            }
            Kind::Backend => self.backends.happen(self.now),
            Kind::Reply => {
                let Reverse((_, _, key, bytes)) = self.replies.pop()?;
                Some(Input::Sent { key, bytes })
            }
            Kind::Arrival => self.arrive(),
        }
    }

    fn arrive(&mut self) -> Option<Input> {
        let Reverse(Arrival { at, asked: tag, .. }) = self.arrivals.pop()?;
        self.arrived += 1;
        let asked = self.asked.get_mut(tag);
        asked.came = at;
        let Asked { request, source, .. } = *asked;
        if self.end.requests == Some(self.arrived) {
            self.closed = true;
            for Reverse(Arrival { asked, .. }) in self.arrivals.drain() {
                self.asked.remove(asked);
            }
        } else if self.think_time(source).is_none()
            && let Err(error) = self.ask_next(source)
        {
            self.error = Some(error);
            return None;
        }
        Some(Input::Arrive(Request { tag: Tag(u64::from(tag)), ..request }))
    }

    /// The think time of a closed loop; `None` for an open one.
    fn think_time(&self, source: u32) -> Option<Duration> {
        match &self.sources[source as usize] {
            Source::Generated(generator) => generator.closed().map(|(_, think)| think),
            Source::Recorded(_) => None,
        }
    }

    /// A part of a reply leaves; behind the last one a closed loop sends its next request.
    fn reply(&mut self, now: Instant, key: RequestKey, tag: Tag, part: Part) {
        let Asked { request, source, came } = *self.asked.get_mut(tag.0 as u32);
        let link = request.link.index();
        let sent = self.links[link].send(now, part.length);
        self.scheduled += 1;
        self.replies.push(Reverse((sent.left, self.scheduled, key, part.length)));
        if !part.last {
            return;
        }
        let think = self.think_time(source);
        let (Some(think), Source::Generated(generator)) =
            (think, &mut self.sources[source as usize])
        else {
            self.asked.remove(tag.0 as u32);
            return;
        };
        let at = sent.arrived + think + self.delays[link];
        // A loop in which nothing takes time would never leave the instant.
        let at = at.max(came + Duration::from_nanos(1));
        if generator.open_at(at) {
            self.asked.get_mut(tag.0 as u32).request = generator.draw();
            self.schedule_arrival(at, tag.0 as u32);
        } else {
            self.asked.remove(tag.0 as u32);
        }
    }

    /// A request was turned away: a closed loop asks again, an open one has lost it.
    fn refused(&mut self, now: Instant, tag: Tag) {
        let Asked { request, source, .. } = *self.asked.get_mut(tag.0 as u32);
        if let Some(think) = self.think_time(source)
            && let Source::Generated(generator) = &self.sources[source as usize]
        {
            let travel = self.delays[request.link.index()] * 2;
            let at = now + travel + think.max(REFUSED_BACKOFF);
            if generator.open_at(at) {
                self.schedule_arrival(at, tag.0 as u32);
                return;
            }
        }
        self.asked.remove(tag.0 as u32);
    }
}

impl<S: Stage<Input = Input, Output = Action>> StageWorld<S> for World<'_> {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        let wake = self.advance(deadline);
        if matches!(wake, Wake::End) {
            return wake;
        }
        self.events += 1;
        if self.events.is_multiple_of(PROGRESS) {
            (self.progress)(Progress { now: self.now, arrived: self.arrived, end: self.end });
        }
        if let Some(journal) = &mut self.journal {
            journal.wake(&wake);
        }
        wake
    }

    fn perform(&mut self, now: Instant, action: Action) {
        self.digest.action(now, &action);
        match action {
            Action::Store(io) => self.backends.start(now, &io),
            Action::Cache(work) => self.cache.perform(work),
            Action::Transfer { key, tag, part, .. } => self.reply(now, key, tag, part),
            Action::Refuse { tag } => self.refused(now, tag),
            Action::Check { backend, path } => self.backends.check(now, backend, path),
            Action::Abandon { key, .. } => self.backends.abandon(key),
            // Modelled devices begin what they are given.
            Action::Recall { .. } => {}
            Action::Reset { backend, path } => self.backends.reset(now, backend, path),
        }
    }
}
