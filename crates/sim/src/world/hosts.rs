//! The hosts: which requests they send when, from the sources of a plan.
//!
//! Each open source has one request that will arrive, each closed one its depth.

use crate::plan::{Plan, REFUSED_BACKOFF};
use crate::slots::Slots;
use crate::source::Source;
use crate::trace;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::{Request, Tag};

/// All hosts.
pub(super) struct Hosts {
    sources: Vec<Source>,
    /// Requests that will arrive or have arrived, until their reply leaves. The index is the tag.
    requests: Slots<Asked>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Numbers arrivals, to keep the order among equal times.
    scheduled: u64,
    /// Requests that have arrived.
    arrived: u64,
    /// Arrivals after which nothing arrives.
    max_requests: Option<u64>,
    /// Nothing arrives from this time on.
    until: Instant,
    /// Nothing arrives any more.
    closed: bool,
    /// The delay of each link in one direction.
    delays: Vec<Duration>,
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

impl Hosts {
    /// The hosts of a checked plan, with their first requests on the way. Nothing arrives from `until` on.
    pub(super) fn new(
        plan: &Plan,
        sources: Vec<Source>,
        until: Instant,
    ) -> Result<Self, trace::Error> {
        let mut hosts = Self {
            sources,
            requests: Slots::new(),
            arrivals: BinaryHeap::new(),
            scheduled: 0,
            arrived: 0,
            max_requests: plan.end.requests,
            until,
            closed: false,
            delays: plan.links.iter().map(|link| link.config.delay).collect(),
        };
        for source in 0..hosts.sources.len() {
            hosts.begin(source)?;
        }
        Ok(hosts)
    }

    /// How many requests have arrived.
    pub(super) const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Whether no request will arrive and none is without a reply.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// The time of the next arrival.
    pub(super) fn next(&self) -> Option<Instant> {
        self.arrivals.peek().map(|Reverse(arrival)| arrival.at)
    }

    /// The link of a request.
    pub(super) fn link(&mut self, tag: Tag) -> usize {
        self.requests.get_mut(tag.0 as u32).request.link.index()
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
        let tag = self.requests.insert(asked);
        self.schedule_arrival(at, tag);
    }

    /// Lets a request come at `at`, unless the run is over by then.
    fn schedule_arrival(&mut self, at: Instant, asked: u32) {
        if at >= self.until || self.closed {
            self.requests.remove(asked);
            return;
        }
        self.scheduled += 1;
        self.arrivals.push(Reverse(Arrival { at, scheduled: self.scheduled, asked }));
    }

    /// The next request arrives.
    pub(super) fn arrive(&mut self) -> Result<Option<Request>, trace::Error> {
        let Some(Reverse(Arrival { at, asked: tag, .. })) = self.arrivals.pop() else {
            return Ok(None);
        };
        self.arrived += 1;
        let asked = self.requests.get_mut(tag);
        asked.came = at;
        let Asked { request, source, .. } = *asked;
        if self.max_requests == Some(self.arrived) {
            self.closed = true;
            for Reverse(Arrival { asked, .. }) in self.arrivals.drain() {
                self.requests.remove(asked);
            }
        } else if self.think_time(source).is_none() {
            self.ask_next(source)?;
        }
        Ok(Some(Request { tag: Tag(u64::from(tag)), ..request }))
    }

    /// The think time of a closed loop; `None` for an open one.
    fn think_time(&self, source: u32) -> Option<Duration> {
        match &self.sources[source as usize] {
            Source::Generated(generator) => generator.closed().map(|(_, think)| think),
            Source::Recorded(_) => None,
        }
    }

    /// The last part of a reply reaches its host at `received`: a closed loop sends its next request.
    pub(super) fn replied(&mut self, tag: Tag, received: Instant) {
        let Asked { request, source, came } = *self.requests.get_mut(tag.0 as u32);
        let think = self.think_time(source);
        let (Some(think), Source::Generated(generator)) =
            (think, &mut self.sources[source as usize])
        else {
            self.requests.remove(tag.0 as u32);
            return;
        };
        let at = received + think + self.delays[request.link.index()];
        // A loop in which nothing takes time would never leave the instant.
        let at = at.max(came + Duration::from_nanos(1));
        if generator.open_at(at) {
            self.requests.get_mut(tag.0 as u32).request = generator.draw();
            self.schedule_arrival(at, tag.0 as u32);
        } else {
            self.requests.remove(tag.0 as u32);
        }
    }

    /// A request was refused: a closed loop sends it again, an open one has lost it.
    pub(super) fn refused(&mut self, now: Instant, tag: Tag) {
        let Asked { request, source, .. } = *self.requests.get_mut(tag.0 as u32);
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
        self.requests.remove(tag.0 as u32);
    }
}
