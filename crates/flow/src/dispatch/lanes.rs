//! Queues of operations, one for each stream and backend, and the count outstanding at each backend.
//!
//! One FIFO for a whole stream would either block all backends behind a full one or lose the shares
//! (`docs/reference/dispatch.md` section 6.2). Operations of a stream for different backends have no order among them.

use super::knee::Knee;
use super::substreams::{Substreams, Waiting, widen};
use super::{Substream, Weight, Work};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Rule, Unit};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

/// The rule of operations that wait for their turn or a place at the backend.
pub(super) const RULE_SHARE: Rule = Rule(&"dispatch/share");

/// The depth of policies that order by time.
pub(super) const DEPTH: Parameter = Parameter {
    min: 0,
    effect: "operations outstanding at a backend; more keeps a parallel device busy, fewer keep \
             shares and response times; 0 finds out the fewest that keep it busy, up to 128",
    ..FIXED_DEPTH
};

/// The depth of policies that order by turns.
pub(super) const FIXED_DEPTH: Parameter = Parameter {
    name: "depth",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 4,
    effect: "operations outstanding at a backend; more keeps a parallel device busy, fewer keep \
             shares and response times",
};
/// The FIFOs. Grows with the stream ids that come.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    backends: usize,
    arrivals: u64,
    /// By stream, then by backend.
    queues: Vec<VecDeque<Waiting<T>>>,
    /// The operations of tenants with streams within them.
    own: Substreams<T>,
    /// By backend, the operations in all queues.
    waiting: Vec<u32>,
}

impl<T: Copy> Lanes<T> {
    pub(super) fn new(backends: usize) -> Self {
        let waiting = alloc::vec![0; backends];
        let own = Substreams::new(backends);
        Self { backends, arrivals: 0, queues: Vec::new(), own, waiting }
    }

    /// There are this many backends from now on.
    pub(super) fn set_backends(&mut self, backends: usize) {
        widen(&mut self.queues, self.backends, backends);
        self.waiting.resize(backends, 0);
        self.own.set_backends(backends);
        self.backends = backends;
    }

    /// The operations that wait for this backend.
    pub(super) fn waiting(&self, backend: BackendId) -> u32 {
        self.waiting[backend.index()]
    }

    /// Streams that have come so far, at most: ids are below this.
    pub(super) const fn streams(&self) -> usize {
        match self.queues.len().checked_div(self.backends) {
            Some(streams) => streams,
            None => 0,
        }
    }

    pub(super) fn push(&mut self, work: Work, note: T) {
        let wanted = (work.stream.index() + 1) * self.backends;
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, VecDeque::new);
        }
        let waiting = Waiting { arrival: self.arrivals, work, note };
        self.arrivals += 1;
        let lane = work.stream.index() * self.backends + work.backend.index();
        self.waiting[work.backend.index()] += 1;
        if self.own.are_of(work.stream, work.substream) {
            // Operations that came before the tenant had such streams wait among them from here on.
            let first = work.stream.index() * self.backends;
            for lane in &mut self.queues[first..first + self.backends] {
                lane.drain(..).for_each(|waiting| self.own.push(waiting));
            }
            self.own.push(waiting);
        } else {
            self.queues[lane].push_back(waiting);
        }
    }

    /// A stream within its tenant has this weight from now on, or there is no such stream any more.
    pub(super) fn set_substream(&mut self, stream: Substream, weight: Option<Weight>) {
        self.own.set(stream, weight);
    }

    /// The first of each stream that waits for this backend.
    pub(super) fn heads(&self, backend: BackendId) -> impl Iterator<Item = Waiting<T>> {
        let lanes = self.queues.iter().skip(backend.index()).step_by(self.backends.max(1));
        lanes.filter_map(VecDeque::front).copied().chain(self.own.heads(backend))
    }

    pub(super) fn head(&self, stream: TenantId, backend: BackendId) -> Option<Waiting<T>> {
        let lane = self.queues.get(stream.index() * self.backends + backend.index())?;
        lane.front().copied().or_else(|| self.own.head(stream, backend))
    }

    /// Takes the first of a stream. Panics if there is none.
    pub(super) fn pop(&mut self, stream: TenantId, backend: BackendId) -> Waiting<T> {
        let lane = &mut self.queues[stream.index() * self.backends + backend.index()];
        let first = lane.pop_front().or_else(|| self.own.pop(stream, backend));
        self.waiting[backend.index()] -= 1;
        first.expect("a head is in its lane or its stream")
    }

    /// A sent operation has ended, which kept its backend busy for `service`.
    pub(super) fn settle(&mut self, key: RequestKey, service: Duration) {
        self.own.settle(key, service);
    }
}

/// What is outstanding at each backend, up to a depth.
#[derive(Debug)]
pub(super) struct Slots {
    depth: u32,
    /// By backend, the depth that is found out, if it is.
    knees: Vec<Knee>,
    taken: Vec<u32>,
}

impl Slots {
    /// With this depth; 0 finds one out for each backend.
    pub(super) fn new(depth: u64, backends: usize) -> Self {
        let knees = if depth == 0 { backends } else { 0 };
        let knees = (0..knees).map(|_| Knee::new()).collect();
        Self { depth: depth as u32, knees, taken: alloc::vec![0; backends] }
    }

    /// There are this many backends from now on.
    pub(super) fn set_backends(&mut self, backends: usize) {
        self.taken.resize(backends, 0);
        if self.depth == 0 {
            self.knees.resize_with(backends, Knee::new);
        }
    }

    pub(super) const fn backends(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn depth(&self, backend: BackendId) -> u32 {
        self.knees.get(backend.index()).map_or(self.depth, Knee::depth)
    }

    pub(super) fn free(&self, backend: BackendId) -> bool {
        self.taken[backend.index()] < self.depth(backend)
    }

    pub(super) fn idle(&self, backend: BackendId) -> bool {
        self.taken[backend.index()] == 0
    }

    /// An operation is sent; those in `lanes` still wait.
    pub(super) fn take<T: Copy>(&mut self, now: Instant, backend: BackendId, lanes: &Lanes<T>) {
        assert!(self.free(backend), "more operations were sent than the depth allows");
        let taken = &mut self.taken[backend.index()];
        *taken += 1;
        if let Some(knee) = self.knees.get_mut(backend.index()) {
            knee.sent(now, *taken, lanes.waiting(backend));
        }
    }

    /// Operations at the backend do not cost what was believed.
    pub(super) fn repriced(&mut self, backend: BackendId) {
        if let Some(knee) = self.knees.get_mut(backend.index()) {
            knee.begin();
        }
    }

    /// An operation has ended, which kept the backend busy for `service`.
    pub(super) fn leave<T: Copy>(
        &mut self,
        now: Instant,
        backend: BackendId,
        service: Duration,
        lanes: &Lanes<T>,
    ) {
        let taken = &mut self.taken[backend.index()];
        if let Some(knee) = self.knees.get_mut(backend.index()) {
            knee.ended(now, *taken, lanes.waiting(backend), service);
        }
        *taken = taken.checked_sub(1).expect("only what was sent can end");
    }
}

/// The slots of each backend, and the backend of each operation that holds one.
#[derive(Debug)]
pub(super) struct Outstanding {
    slots: Slots,
    backends: SecondaryMap<RequestKey, BackendId>,
}

impl Outstanding {
    /// With this depth; 0 finds one out for each backend.
    pub(super) fn new(depth: u64, backends: usize) -> Self {
        Self { slots: Slots::new(depth, backends), backends: SecondaryMap::new() }
    }

    /// There are this many backends from now on.
    pub(super) fn set_backends(&mut self, backends: usize) {
        self.slots.set_backends(backends);
    }

    pub(super) fn free(&self, backend: BackendId) -> bool {
        self.slots.free(backend)
    }

    pub(super) fn depth(&self, backend: BackendId) -> u32 {
        self.slots.depth(backend)
    }

    pub(super) fn repriced(&mut self, backend: BackendId) {
        self.slots.repriced(backend);
    }

    /// An operation is sent.
    pub(super) fn start<T: Copy>(
        &mut self,
        now: Instant,
        key: RequestKey,
        backend: BackendId,
        lanes: &Lanes<T>,
    ) {
        self.slots.take(now, backend, lanes);
        self.backends.insert(key, backend);
    }

    /// A sent operation has ended, which kept its backend busy for `service`. Returns the backend.
    pub(super) fn end<T: Copy>(
        &mut self,
        now: Instant,
        key: RequestKey,
        service: Duration,
        lanes: &Lanes<T>,
    ) -> BackendId {
        let backend = self.backends.remove(key).expect("only what was sent can end");
        self.slots.leave(now, backend, service, lanes);
        backend
    }

    pub(super) fn idle(&self, backend: BackendId) -> bool {
        self.slots.idle(backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No more operations are outstanding than the depth allows.
    #[test]
    #[should_panic(expected = "than the depth allows")]
    fn the_depth_is_kept() {
        let (mut slots, backend) = (Slots::new(1, 1), BackendId::new(0));
        let lanes = Lanes::<()>::new(1);
        slots.take(Instant::ZERO, backend, &lanes);
        slots.take(Instant::ZERO, backend, &lanes);
    }
}
