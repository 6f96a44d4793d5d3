//! The stage around its policy: which backends have to be asked, and what operations have cost.

use super::estimate::{Class, Estimator};
use super::{Build, DispatchPolicy, Setup, Work};
use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Rule};
use crate::request::{BackendId, Request, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

/// Stage 4.
pub(crate) struct Dispatch {
    policy: Box<dyn DispatchPolicy>,
    backends: Vec<Backend>,
    /// Backends below this have nothing new.
    first: usize,
    outstanding: SecondaryMap<RequestKey, BackendId>,
    /// Of what waits, where somebody wants to know.
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

impl Dispatch {
    pub(crate) fn new(choice: &Choice<Build>, setup: &Setup<'_>) -> Self {
        let policy = (choice.policy().build)(choice.values(), setup);
        let estimation = policy.estimation();
        let backend = |index| Backend {
            ask: false,
            outstanding: 0,
            estimator: estimation.map(|estimation| estimation.build(index)),
            held: None,
        };
        Self {
            backends: (0..setup.backends).map(backend).collect(),
            first: setup.backends,
            policy,
            outstanding: SecondaryMap::new(),
            classes: SecondaryMap::new(),
            estimates: estimation.is_some(),
        }
    }

    /// A request, or a part of one, is ready to go. `whole` is the request that it is a part of, if it is.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        key: RequestKey,
        request: &Request,
        whole: Option<(RequestKey, &Request)>,
        backend: BackendId,
    ) {
        let class = Class::of(request);
        let place = &mut self.backends[backend.index()];
        let nominal = |class| place.estimator.as_ref().map_or(Duration::ZERO, |e| e.nominal(class));
        let work = Work {
            key,
            stream: request.tenant,
            backend,
            bytes: request.payload(),
            nominal: nominal(class),
            request: whole.map_or(key, |(key, _)| key),
            whole: nominal(whole.map_or(class, |(_, whole)| Class::of(whole))),
        };
        if place.estimator.is_some() {
            self.classes.insert(key, class);
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

    /// A sent request has ended.
    pub(crate) fn complete(&mut self, now: Instant, key: RequestKey, away: Duration) {
        let backend = self.outstanding.remove(key).expect("only what was sent can end");
        let place = &mut self.backends[backend.index()];
        place.outstanding -= 1;
        place.held = None;
        let service = match &mut place.estimator {
            Some(estimator) => estimator.complete(now, key),
            None => away,
        };
        self.policy.complete(now, key, service);
        self.ask(backend);
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
        let mut stage = Dispatch::new(&choice, &Setup { backends: 1, streams: &[] });
        let (keys, request) = (testing::keys(7), testing::request(0));
        let sent = |stage: &mut Dispatch, now| {
            core::iter::from_fn(|| stage.poll(now)).map(|(key, _)| key).collect::<Vec<_>>()
        };
        for &key in &keys {
            stage.push(Instant::ZERO, key, &request, None, BackendId::new(0));
        }
        assert_eq!(sent(&mut stage, Instant::ZERO), keys[..2]);
        let soon = Instant::ZERO + Duration::from_micros(100);
        stage.complete(soon, keys[0], Duration::from_micros(100));
        assert_eq!(sent(&mut stage, soon), keys[2..3]);
        let until = stage.next_deadline().unwrap();
        assert_eq!(until, Instant::ZERO + Duration::from_millis(4));
        stage.handle_deadline(until);
        assert_eq!(sent(&mut stage, until), keys[3..5]);
        assert_eq!(stage.next_deadline(), None, "the policy's depth holds the rest");
    }
}
