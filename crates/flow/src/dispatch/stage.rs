//! The dispatch stage around its policy: asks it per backend, counts operations and estimates their costs.

use super::estimate::{Class, Estimation, Estimator};
use super::members::{Member, Members, SubstreamView};
use super::service_times::ServiceTimes;
use super::{Build, DispatchPolicy, Owner, Setup, Shares, Weight, Work};
use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Rule};
use crate::request::{BackendId, Request, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

/// Stage 4.
pub(crate) struct Dispatch {
    policy: Box<dyn DispatchPolicy>,
    shares: Shares,
    service_times: ServiceTimes,
    /// The streams within tenants.
    members: Members,
    backends: Vec<Backend>,
    /// Backends below this have nothing new.
    first: usize,
    outstanding: SecondaryMap<RequestKey, BackendId>,
    /// The classes of queued operations, where an estimator needs them.
    classes: SecondaryMap<RequestKey, Class>,
    estimates: bool,
}

struct Backend {
    /// The policy may have something for it.
    ask: bool,
    outstanding: u32,
    estimator: Option<Box<dyn Estimator>>,
    /// It is not asked until then.
    held: Option<Instant>,
}

impl Backend {
    /// An idle one.
    fn new(estimation: Option<Estimation>, index: usize) -> Self {
        Self {
            ask: false,
            outstanding: 0,
            estimator: estimation.map(|estimation| estimation.build(index)),
            held: None,
        }
    }
}

/// How a stream fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// Whose it is.
    pub owner: Owner,
    /// Its weight.
    pub weight: Weight,
    /// The service time that its operations have had since the start, and in the last 5 to 10 s. Without an
    /// estimator, which policies that go by arrival do not have, the time that they were away.
    pub service: Duration,
    /// The part of it in the last 5 to 10 s.
    pub recent: Duration,
}

/// How full a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendView {
    /// Which one.
    pub backend: BackendId,
    /// Operations that it has been sent and has not ended.
    pub outstanding: u32,
    /// How many the policy lets it have at most.
    pub depth: u32,
}

impl Dispatch {
    pub(crate) fn new(choice: &Choice<Build>, backends: usize, shares: &Shares) -> Self {
        let setup = Setup { backends, streams: &shares.streams() };
        let policy = (choice.policy().build)(choice.values(), &setup);
        let estimation = policy.estimation();
        Self {
            backends: (0..backends).map(|index| Backend::new(estimation, index)).collect(),
            first: backends,
            policy,
            shares: shares.clone(),
            service_times: ServiceTimes::default(),
            members: Members::default(),
            outstanding: SecondaryMap::new(),
            classes: SecondaryMap::new(),
            estimates: estimation.is_some(),
        }
    }

    /// `more` backends come. Their ids follow those that there are.
    pub(crate) fn add_backends(&mut self, more: usize) {
        let (count, estimation) = (self.backends.len() + more, self.policy.estimation());
        self.policy.set_backends(count);
        let new = (self.backends.len()..count).map(|index| Backend::new(estimation, index));
        self.backends.extend(new);
    }

    /// Streams have other weights from now on. What was charged stays charged.
    pub(crate) fn set_weights(&mut self, shares: &Shares) {
        let count = self.shares.count().max(shares.count()) as u32;
        for owner in (0..count).map(|id| Owner::of(TenantId::new(id))) {
            let weight = shares.weight(owner);
            if weight != self.shares.weight(owner) {
                self.policy.set_weight(owner.stream(), weight);
            }
        }
        self.shares = shares.clone();
    }

    /// How each stream fares.
    pub(crate) fn streams(&self, now: Instant) -> impl Iterator<Item = StreamView> {
        let known = self.shares.count().max(self.service_times.streams());
        let sums = self.service_times.sums(now).chain(core::iter::repeat(Default::default()));
        (0..known as u32).zip(sums).map(|(id, (service, recent))| {
            let owner = Owner::of(TenantId::new(id));
            StreamView { owner, weight: self.shares.weight(owner), service, recent }
        })
    }

    /// These requests are a stream of this weight within their tenant from now on, or not any more.
    pub(crate) fn set_substream(&mut self, member: Member, weight: Option<Weight>) {
        for (stream, weight) in self.members.set(member, weight) {
            self.policy.set_substream(stream, weight);
        }
    }

    /// How each stream within a tenant fares.
    pub(crate) fn substreams(&self, now: Instant) -> impl Iterator<Item = SubstreamView> {
        self.members.views(now)
    }

    /// How full each backend is.
    pub(crate) fn backends(&self) -> impl Iterator<Item = BackendView> {
        (0..).map(BackendId::new).zip(&self.backends).map(|(backend, place)| BackendView {
            backend,
            outstanding: place.outstanding,
            depth: self.policy.depth(backend),
        })
    }

    /// Whether an operation that a backend was sent is the only one there.
    pub(crate) fn is_alone(&self, backend: BackendId) -> bool {
        self.backends[backend.index()].outstanding == 1
    }

    /// A request, or a part of one, is ready to go. `whole` is the request that it is a part of, if it is.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        (key, owner): (RequestKey, Owner),
        request: &Request,
        whole: Option<(RequestKey, &Request)>,
        backend: BackendId,
    ) {
        let class = Class::of(request);
        let place = &mut self.backends[backend.index()];
        let nominal = |class| place.estimator.as_ref().map_or(Duration::ZERO, |e| e.nominal(class));
        let work = Work {
            key,
            stream: owner.stream(),
            substream: matches!(owner, Owner::Tenant(_)).then(|| self.members.of(request)),
            backend,
            bytes: request.payload(),
            nominal: nominal(class),
            request: whole.map_or(key, |(key, _)| key),
            whole: nominal(whole.map_or(class, |(_, whole)| Class::of(whole))),
        };
        if place.estimator.is_some() {
            self.classes.insert(key, class);
        }
        if owner.is_owed() {
            self.policy.owe(Owner::Tenant(request.tenant).stream(), work.nominal);
        }
        self.policy.arrive(now, &work);
        self.ask(backend);
    }

    fn ask(&mut self, backend: BackendId) {
        let place = &mut self.backends[backend.index()];
        if place.held.is_none() {
            place.ask = true;
            self.first = self.first.min(backend.index());
        }
    }

    /// The next request to send, and the rule that held it until now.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        while let Some(place) = self.backends.get_mut(self.first) {
            if place.ask {
                let limit = place.estimator.as_ref().and_then(|estimator| estimator.limit(now));
                if let Some((limit, until)) = limit
                    && place.outstanding >= limit
                {
                    (place.ask, place.held) = (false, Some(until));
                    continue;
                }
                let backend = BackendId::new(self.first as u32);
                if let Some((key, rule)) = self.policy.next(now, backend) {
                    place.outstanding += 1;
                    self.outstanding.insert(key, backend);
                    if let Some(estimator) = &mut place.estimator {
                        let class = self.classes.remove(key).expect("it has come");
                        estimator.submit(now, key, class);
                    }
                    return Some((key, rule));
                }
                place.ask = false;
            }
            self.first += 1;
        }
        None
    }

    /// A sent request has ended, which was away for so long.
    pub(crate) fn complete(
        &mut self,
        now: Instant,
        (key, owner): (RequestKey, Owner),
        request: &Request,
        away: Duration,
    ) {
        let backend = self.outstanding.remove(key).expect("only what was sent can end");
        let place = &mut self.backends[backend.index()];
        assert!(place.outstanding > 0, "an operation ended at a backend that has none");
        place.outstanding -= 1;
        place.held = None;
        let service = match &mut place.estimator {
            Some(estimator) => {
                let service = estimator.complete(now, key);
                if estimator.repriced() {
                    self.policy.repriced(backend);
                }
                service
            }
            None => away,
        };
        self.service_times.add(now, owner.stream(), service);
        if matches!(owner, Owner::Tenant(_)) {
            self.members.served(now, request, service);
        }
        self.policy.complete(now, key, service);
        self.ask(backend);
        self.check();
    }

    /// The backends' counts add up to the operations that were sent and have not ended.
    fn check(&self) {
        debug_assert_eq!(
            self.backends.iter().map(|backend| backend.outstanding as usize).sum::<usize>(),
            self.outstanding.len(),
            "the backends' counts do not add up"
        );
    }

    /// When a backend that is held may have something again.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if !self.estimates {
            return None;
        }
        self.backends.iter().filter_map(|backend| backend.held).min()
    }

    /// Does what is due at `now`.
    pub(crate) fn handle_deadline(&mut self, now: Instant) {
        for index in 0..self.backends.len() {
            if self.backends[index].held.is_some_and(|until| until <= now) {
                self.backends[index].held = None;
                self.ask(BackendId::new(index as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::POLICIES;
    use super::*;
    use crate::testing;

    /// While the costs of operations are looked at closely two are at the backend, whatever the policy's
    /// depth; the deadline that is announced ends that. What has ended makes room at once.
    #[test]
    fn a_close_look_holds_and_ends() {
        let mut choice = Choice::named(POLICIES, "fog").unwrap();
        choice.set("depth", 4).unwrap();
        let mut stage = Dispatch::new(&choice, 1, &Shares::default());
        let (keys, request) = (testing::keys(7), testing::request(0));
        let sent = |stage: &mut Dispatch, now| {
            core::iter::from_fn(|| stage.poll(now)).map(|(key, _)| key).collect::<Vec<_>>()
        };
        for &key in &keys {
            let owner = Owner::Tenant(request.tenant);
            stage.push(Instant::ZERO, (key, owner), &request, None, BackendId::new(0));
        }
        assert_eq!(sent(&mut stage, Instant::ZERO), keys[..2]);
        let soon = Instant::ZERO + Duration::from_micros(100);
        let first = (keys[0], Owner::Tenant(request.tenant));
        stage.complete(soon, first, &request, Duration::from_micros(100));
        assert_eq!(sent(&mut stage, soon), keys[2..3]);
        let mut until = stage.next_deadline().unwrap();
        assert_eq!(until, soon + Duration::from_millis(4));
        let rest = loop {
            stage.handle_deadline(until);
            let rest = sent(&mut stage, until);
            if !rest.is_empty() {
                break rest;
            }
            until = stage.next_deadline().unwrap();
        };
        assert_eq!(
            until,
            Instant::ZERO + Duration::from_millis(100),
            "too little ends in this one"
        );
        assert_eq!(rest, keys[3..5]);
        assert_eq!(stage.next_deadline(), None, "the policy's depth holds the rest");
    }

    /// Tenants 0 and 1 have equal weights and always something waiting; each write of tenant 0 causes an equal
    /// one of write-back. Under a policy with debts tenant 0 pays for that, elsewhere all do. Jobs, for
    /// which no tenant owes, have their own part.
    #[test]
    fn write_back_is_its_tenants() {
        for (policy, due) in [("fair-time", [75, 150, 75, 150]), ("fog", [112, 112, 112, 112])] {
            let mut choice = Choice::named(POLICIES, policy).unwrap();
            choice.set("depth", 1).unwrap();
            choice.set("servers", 1).unwrap();
            let mut stage = Dispatch::new(&choice, 1, &Shares::default());
            let tenants = [0, 1].map(TenantId::new);
            let lines = [tenants[0], tenants[1], tenants[0], tenants[1]];
            let [a, b] = tenants.map(Owner::Tenant);
            let owners = [a, b, Owner::WriteBack, Owner::Job];
            let mut keys = testing::keys(2_000).into_iter();
            let (mut lane, mut served) = (SecondaryMap::new(), [0_u32; 4]);
            let mut push = |stage: &mut Dispatch, now, index: usize| {
                let (key, request) = (keys.next().unwrap(), testing::request(0));
                let request = Request { tenant: lines[index], ..request };
                stage.push(now, (key, owners[index]), &request, None, BackendId::new(0));
                key
            };
            let mut now = Instant::ZERO;
            for index in [0, 1, 3, 0, 1, 3] {
                lane.insert(push(&mut stage, now, index), index);
            }
            for _ in 0..450 {
                let (key, _) = stage.poll(now).unwrap();
                let index = lane[key];
                served[index] += 1;
                now += Duration::from_millis(1);
                let ended = (key, owners[index]);
                stage.complete(now, ended, &testing::request(0), Duration::from_millis(1));
                // Write-back is no closed loop: it follows the writes.
                let next =
                    if index == 0 { &[0, 2][..] } else { &[index][..usize::from(index != 2)] };
                for &index in next {
                    lane.insert(push(&mut stage, now, index), index);
                }
            }
            let near = served.iter().zip(due).all(|(&got, due)| got.abs_diff(due) <= 4);
            assert!(near, "{policy}: {served:?}");
        }
    }

    /// A backend's count that is not that of what was sent to it is found out, in a debug build: the check adds up a list.
    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "do not add up")]
    fn counts_add_up() {
        let choice = Choice::named(POLICIES, "fifo").unwrap();
        let mut stage = Dispatch::new(&choice, 2, &Shares::default());
        let (keys, request) = (testing::keys(1), testing::request(0));
        let first = (keys[0], Owner::Tenant(request.tenant));
        stage.push(Instant::ZERO, first, &request, None, BackendId::new(0));
        assert!(stage.poll(Instant::ZERO).is_some());
        stage.backends[1].outstanding += 1;
        stage.complete(Instant::ZERO, first, &request, Duration::ZERO);
    }

    /// Nothing ends at a backend that has nothing.
    #[test]
    #[should_panic(expected = "a backend that has none")]
    fn ends_follow_starts() {
        let choice = Choice::named(POLICIES, "fifo").unwrap();
        let mut stage = Dispatch::new(&choice, 1, &Shares::default());
        let (keys, request) = (testing::keys(1), testing::request(0));
        let first = (keys[0], Owner::Tenant(request.tenant));
        stage.push(Instant::ZERO, first, &request, None, BackendId::new(0));
        assert!(stage.poll(Instant::ZERO).is_some());
        stage.backends[0].outstanding = 0;
        stage.complete(Instant::ZERO, first, &request, Duration::ZERO);
    }
}
