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
//! The world holds the requests that will arrive and those that the pipeline has outstanding. Nothing grows with
//! time.

mod backends;
mod cache;
mod hosts;
mod journal;
mod replies;

pub(crate) use cache::CacheWork;
pub(crate) use journal::Journal;

use crate::error::RunError;
use crate::plan::{End, PathFault, Plan};
use crate::progress::Progress;
use crate::source::Source;
use crate::trace;
use backends::Backends;
use hosts::Hosts;
use replies::Replies;
use weir_flow::clock::Instant;
use weir_flow::digest::Digest;
use weir_flow::pipeline::{Action, Input};
use weir_flow::request::PathId;
use weir_flow::stage::{Stage, Wake, World as StageWorld};

/// Events between two calls of `progress`; a power of two.
const PROGRESS: u64 = 1 << 16;

/// This number of deadlines in a row at which nothing else happens means a pipeline that holds a request
/// for ever: at one a millisecond, 18 hours.
const STUCK: u64 = 1 << 26;

/// Later than everything.
const FAR: Instant = Instant::from_nanos(u64::MAX);

/// Everything outside the pipeline.
pub(crate) struct World<'a> {
    end: End,
    /// The run stops here, whatever is outstanding.
    cut: Instant,
    progress: &'a mut dyn FnMut(Progress),
    journal: Option<Journal<'a>>,
    now: Instant,
    hosts: Hosts,
    replies: Replies,
    backends: Backends,
    cache: CacheWork,
    /// Sorted by time, latest first.
    faults: Vec<PathFault>,
    events: u64,
    idle_deadlines: u64,
    digest: Digest,
    error: Option<trace::Error>,
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
        Ok(Self {
            end: plan.end,
            cut: if plan.end.drain { FAR } else { until },
            progress,
            journal,
            now: Instant::ZERO,
            hosts: Hosts::new(plan, sources, until)?,
            replies: Replies::new(plan),
            backends: Backends::new(plan),
            cache: CacheWork::default(),
            faults,
            events: 0,
            idle_deadlines: 0,
            digest: Digest::default(),
            error: None,
        })
    }

    /// The end of a run, or what kept it from ending well.
    pub(crate) fn finish(mut self) -> Result<Ended, RunError> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        if let Some(journal) = self.journal.take() {
            journal.end(self.digest)?;
        }
        self.tell_progress();
        Ok(Ended {
            at: self.now,
            events: self.events,
            ios_lost: self.backends.lost(),
            digest: self.digest,
        })
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
        offer(self.replies.next().unwrap_or(FAR), Kind::Reply);
        offer(self.hosts.next().unwrap_or(FAR), Kind::Arrival);
        first
    }

    /// The next wake, without counting it.
    fn advance(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        loop {
            if self.error.is_some() || self.hosts.is_idle() && self.replies.is_empty() {
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
            Kind::Reply => self.replies.left(),
            Kind::Arrival => match self.hosts.arrive() {
                Ok(request) => request.map(Input::Arrive),
                Err(error) => {
                    self.error = Some(error);
                    None
                }
            },
        }
    }

    fn tell_progress(&mut self) {
        let arrived = self.hosts.arrived();
        (self.progress)(Progress { now: self.now, arrived, end: self.end });
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
            self.tell_progress();
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
            Action::Transfer { key, tag, part, .. } => {
                let link = self.hosts.link(tag);
                let received = self.replies.send(now, link, key, part.length);
                if part.last {
                    self.hosts.replied(tag, received);
                }
            }
            Action::Refuse { tag } => self.hosts.refused(now, tag),
            Action::Check { backend, path } => self.backends.check(now, backend, path),
            Action::Abandon { key, .. } => self.backends.abandon(key),
            // Modelled devices begin what they are given.
            Action::Recall { .. } => {}
            Action::Reset { backend, path } => self.backends.reset(now, backend, path),
        }
    }
}
