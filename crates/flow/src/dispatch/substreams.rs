//! The streams within a tenant: which of them goes when it is the tenant's turn.
//!
//! Between tenants a policy decides as without them. Inside a tenant the stream with the smallest virtual time goes
//! first, by the formulas of the flash operation group paper ([`Clocks`]): the charge is what an operation really
//! took, divided by the weight of its stream. So the streams of a tenant get no more than its share, and with one tenant
//! this is the paper's scheduler over them.
//!
//! What the policy has noted on the tenant's operations keeps its order, whichever stream goes: a note says when the
//! tenant's turn is.

use super::clocks::{Clocks, Epoch};
use super::{Substream, Weight, Work};
use crate::clock::Duration;
use crate::request::{BackendId, LinkId, RequestKey, TenantId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use slotmap::SecondaryMap;

/// An operation that waits, with what its policy notes on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    /// How many came before it, whatever their stream.
    pub(super) arrival: u64,
    pub(super) work: Work,
    pub(super) note: T,
}

/// The tenants that have such streams.
#[derive(Debug)]
pub(super) struct Substreams<T> {
    backends: usize,
    /// The streams with a weight of their own.
    weights: BTreeMap<Substream, Weight>,
    groups: BTreeMap<TenantId, Group<T>>,
    /// What was sent, and has not ended.
    sent: SecondaryMap<RequestKey, Sent>,
}

/// The streams of one tenant. A link that is none with a weight has weight 1 beside them.
#[derive(Debug)]
struct Group<T> {
    /// Clocks and operations of a stream are at its place. It keeps its place: one that is used again starts where
    /// its last user was, which is as far ahead of the others as one operation has cost.
    places: BTreeMap<Substream, usize>,
    clocks: Clocks,
    /// By place, then by backend: how many came before each, and what it is.
    waiting: Vec<VecDeque<(u64, Work)>>,
    /// By backend, what the policy has noted on the operations of all of them, in order of arrival.
    notes: Vec<VecDeque<(u64, T)>>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    tenant: TenantId,
    place: usize,
    nominal: Duration,
    epoch: Epoch,
}

impl<T: Copy> Substreams<T> {
    pub(super) fn new(backends: usize) -> Self {
        let (weights, groups) = (BTreeMap::new(), BTreeMap::new());
        Self { backends, weights, groups, sent: SecondaryMap::new() }
    }

    /// There are this many backends from now on.
    pub(super) fn set_backends(&mut self, backends: usize) {
        for group in self.groups.values_mut() {
            widen(&mut group.waiting, self.backends, backends);
            group.notes.resize_with(backends, VecDeque::new);
        }
        self.backends = backends;
    }

    /// A stream has this weight from now on, or there is no such stream any more.
    pub(super) fn set(&mut self, stream: Substream, weight: Option<Weight>) {
        match weight {
            Some(weight) => self.weights.insert(stream, weight),
            None => self.weights.remove(&stream),
        };
        for group in self.groups.values_mut() {
            if let Some(&place) = group.places.get(&stream) {
                group.clocks.set_weight(clock(place), weight.unwrap_or_default());
            }
        }
        self.forget();
    }

    /// Forgets the tenants without such streams of which nothing waits any more.
    fn forget(&mut self) {
        self.groups.retain(|_, group| group.is_needed(&self.weights));
        self.sent.retain(|_, sent| self.groups.contains_key(&sent.tenant));
    }

    /// Whether operations of this tenant wait here. `stream` is that of one that arrives.
    pub(super) fn are_of(&self, tenant: TenantId, stream: Option<Substream>) -> bool {
        self.groups.contains_key(&tenant)
            || stream.is_some_and(|stream| self.weights.contains_key(&stream))
    }

    pub(super) fn push(&mut self, Waiting { arrival, work, note }: Waiting<T>) {
        let backends = self.backends;
        let group = self.groups.entry(work.stream).or_insert_with(|| Group {
            places: BTreeMap::new(),
            clocks: Clocks::new(&[]),
            waiting: Vec::new(),
            notes: (0..backends).map(|_| VecDeque::new()).collect(),
        });
        let stream = work.substream.unwrap_or(Substream::Link(LinkId::new(0)));
        let next = group.places.len();
        let place = *group.places.entry(stream).or_insert(next);
        if place == next {
            group.waiting.resize_with((place + 1) * backends, VecDeque::new);
            let weight = self.weights.get(&stream).copied().unwrap_or_default();
            group.clocks.set_weight(clock(place), weight);
        }
        group.clocks.enter(clock(place), Duration::ZERO);
        group.waiting[place * backends + work.backend.index()].push_back((arrival, work));
        group.notes[work.backend.index()].push_back((arrival, note));
    }

    /// What each tenant would send to this backend.
    pub(super) fn heads(&self, backend: BackendId) -> impl Iterator<Item = Waiting<T>> {
        self.groups.values().filter_map(move |group| group.head(backend, self.backends))
    }

    /// What a tenant would send to this backend.
    pub(super) fn head(&self, tenant: TenantId, backend: BackendId) -> Option<Waiting<T>> {
        self.groups.get(&tenant)?.head(backend, self.backends)
    }

    /// Takes what a tenant sends to this backend, if it has such streams.
    pub(super) fn pop(&mut self, tenant: TenantId, backend: BackendId) -> Option<Waiting<T>> {
        let group = self.groups.get_mut(&tenant)?;
        let place = group.turn(backend, self.backends)?;
        let (_, work) = group.waiting[place * self.backends + backend.index()].pop_front()?;
        let noted = group.notes[backend.index()].pop_front();
        let (arrival, note) = noted.expect("each operation that waits has a note");
        group.clocks.leave(clock(place));
        let nominal = work.nominal;
        let epoch = group.clocks.charge(clock(place), nominal);
        self.sent.insert(work.key, Sent { tenant, place, nominal, epoch });
        if !group.is_needed(&self.weights) {
            self.forget();
        }
        Some(Waiting { arrival, work, note })
    }

    /// An operation has ended, which kept its backend busy for `service`.
    pub(super) fn settle(&mut self, key: RequestKey, service: Duration) {
        if let Some(Sent { tenant, place, nominal, epoch }) = self.sent.remove(key)
            && let Some(group) = self.groups.get_mut(&tenant)
        {
            group.clocks.settle(clock(place), epoch, nominal, service);
        }
    }
}

impl<T: Copy> Group<T> {
    /// Whether something waits, or one of its streams has a weight.
    fn is_needed(&self, weights: &BTreeMap<Substream, Weight>) -> bool {
        self.notes.iter().any(|notes| !notes.is_empty())
            || self.places.keys().any(|stream| weights.contains_key(stream))
    }

    /// Whose turn it is at this backend.
    fn turn(&self, backend: BackendId, backends: usize) -> Option<usize> {
        let fronts = self.waiting.iter().skip(backend.index()).step_by(backends.max(1));
        let fronts = fronts.enumerate().filter_map(|(place, queue)| Some((place, queue.front()?)));
        let first =
            fronts.min_by_key(|&(place, (arrival, _))| (self.clocks.v(clock(place)), *arrival));
        first.map(|(place, _)| place)
    }

    fn head(&self, backend: BackendId, backends: usize) -> Option<Waiting<T>> {
        let place = self.turn(backend, backends)?;
        let &(_, work) = self.waiting[place * backends + backend.index()].front()?;
        let &(arrival, note) = self.notes[backend.index()].front()?;
        Some(Waiting { arrival, work, note })
    }
}

/// Makes rows of `from` queues, one behind the other, rows of `to`, which is more.
pub(super) fn widen<Q>(queues: &mut Vec<VecDeque<Q>>, from: usize, to: usize) {
    let rows = queues.len().checked_div(from).unwrap_or(0);
    let mut old = core::mem::take(queues).into_iter();
    for row in 1..=rows {
        queues.extend(old.by_ref().take(from));
        queues.resize_with(row * to, VecDeque::new);
    }
}

/// The name of a place among the clocks.
const fn clock(place: usize) -> TenantId {
    TenantId::new(place as u32)
}

#[cfg(test)]
mod tests {
    use crate::clock::{Duration, Instant};
    use crate::dispatch::{POLICIES, Setup, Substream, Weight, Work};
    use crate::policy::Choice;
    use crate::request::{BackendId, LinkId};
    use crate::testing;
    use alloc::vec::Vec;

    const BACKEND: BackendId = BackendId::new(0);

    /// Tenant 0 has queues 0 and 1, tenant 1 has link 2 alone; all believe that an operation costs 1 ms, and those of
    /// queue 1 turn out to cost 4 ms. What each of the three has had of 240, in operations.
    fn served(policy: &str, weights: [Option<u32>; 2]) -> [u32; 3] {
        let mut choice = Choice::named(POLICIES, policy).unwrap();
        choice.set("depth", 1).unwrap();
        let setup = Setup { backends: 1, streams: &[] };
        let mut policy = (choice.policy().build)(choice.values(), &setup);
        for (link, weight) in (0..).map(LinkId::new).zip(weights) {
            let weight = weight.map(|parts| Weight::from_1024ths(parts * 1_024).unwrap());
            policy.set_substream(Substream::Link(link), weight);
        }
        let keys = testing::keys(1_200);
        let link_of = |index: usize| index % 3;
        for (index, &key) in keys.iter().enumerate() {
            let link = link_of(index);
            let work = testing::work(key, (link / 2) as u32);
            let substream = Some(Substream::Link(LinkId::new(link as u32)));
            policy.arrive(Instant::ZERO, &Work { substream, ..work });
        }
        let mut served = [0; 3];
        for _ in 0..240 {
            let (key, _) = policy.next(Instant::ZERO, BACKEND).unwrap();
            let link = link_of(keys.iter().position(|&other| other == key).unwrap());
            served[link] += 1;
            policy.complete(Instant::ZERO, key, Duration::from_millis([1, 4, 1][link]));
        }
        served
    }

    fn near(served: [u32; 3], due: [u32; 3]) -> bool {
        served.iter().zip(due).all(|(&got, due)| got.abs_diff(due) <= 3)
    }

    /// Queues share what their tenant has by the time that their operations took and by their weights; together they
    /// have no more than the tenant is due. `fog` and `fair-time` give both tenants as much time, the others as many
    /// operations.
    #[test]
    fn queues_share_what_their_tenant_has() {
        for (policy, weights, due) in [
            ("fog", [1, 1], [74, 18, 148]),
            ("sfq", [1, 1], [96, 24, 120]),
            ("wfq", [1, 1], [96, 24, 120]),
            ("sfq", [1, 4], [60, 60, 120]),
        ] {
            let served = served(policy, weights.map(Some));
            assert!(near(served, due), "{policy} {weights:?}: {served:?}");
        }
        for weights in [[1, 1], [2, 1]] {
            for policy in ["fog", "fair-time"] {
                let [one, two, other] = served(policy, weights.map(Some));
                assert!(other.abs_diff(one + 4 * two) <= 12, "{policy}: {one} {two} {other}");
                assert!(one.abs_diff(4 * two * weights[0]) <= 8, "{policy}: {one} {two} {other}");
            }
        }
    }

    /// A link without a weight has weight 1 beside the queues of its tenant; a tenant without queues goes in order of
    /// arrival, and so do all policies that go by arrival.
    #[test]
    fn others_go_by_arrival() {
        assert!(near(served("sfq", [Some(4), None]), [113, 7, 120]));
        assert!(near(served("sfq", [None, None]), [60, 60, 120]));
        for policy in ["fifo", "round-robin", "deficit-round-robin"] {
            let by_arrival = served(policy, [None, None]);
            assert_eq!(served(policy, [Some(1), Some(1)]), by_arrival, "{policy}");
        }
    }

    /// Operations that wait when a queue begins or ends are sent all the same, each link in order.
    #[test]
    fn a_queue_that_ends_loses_nothing() {
        let mut choice = Choice::named(POLICIES, "fog").unwrap();
        choice.set("depth", 1).unwrap();
        let setup = Setup { backends: 1, streams: &[] };
        let mut policy = (choice.policy().build)(choice.values(), &setup);
        let keys = testing::keys(60);
        let mut sent = Vec::new();
        for (index, &key) in keys.iter().enumerate() {
            let substream = Some(Substream::Link(LinkId::new((index % 2) as u32)));
            policy.arrive(Instant::ZERO, &Work { substream, ..testing::work(key, 0) });
            let one = Substream::Link(LinkId::new(1));
            match index {
                10 | 50 => policy.set_substream(one, Some(Weight::ONE)),
                30 => policy.set_substream(one, None),
                _ => {}
            }
            if index % 3 == 0 {
                let (key, _) = policy.next(Instant::ZERO, BACKEND).unwrap();
                policy.complete(Instant::ZERO, key, Duration::from_millis(1));
                sent.push(key);
            }
        }
        while let Some((key, _)) = policy.next(Instant::ZERO, BACKEND) {
            policy.complete(Instant::ZERO, key, Duration::from_millis(1));
            sent.push(key);
        }
        assert_eq!(sent.len(), keys.len());
        for parity in 0..2 {
            let of = |all: &[_]| -> Vec<_> {
                let at = |key| keys.iter().position(|other| other == key).unwrap();
                all.iter().map(at).filter(|index| index % 2 == parity).collect()
            };
            assert_eq!(of(&sent), of(&keys), "order within a link");
        }
    }
}
