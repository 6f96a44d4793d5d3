//! Laws of [`DispatchPolicy`](weir_flow::dispatch::DispatchPolicy).

use crate::{SEEDS, STEPS, Source};
use std::collections::{BTreeMap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::dispatch::{
    DispatchPolicy, HostNumber, POLICIES, Setup, Stream, Substream, Weight, Work,
};
use weir_flow::policy::{Choice, Property};
use weir_flow::request::{BackendId, LinkId, RequestKey, TenantId, VolumeId};
use weir_flow::rng::Rng;

const BACKENDS: usize = 3;
const LINKS: u64 = 4;

/// A stream within a tenant.
const fn substream(number: u64) -> Substream {
    let id = number as u32;
    match number {
        0 | 1 => Substream::Link(LinkId::new(id)),
        2 => Substream::Host(HostNumber(id)),
        _ => Substream::Volume(VolumeId::new(id)),
    }
}

type Line = (BackendId, TenantId, Option<Substream>);

#[derive(Default)]
struct Model {
    waiting: BTreeMap<Line, VecDeque<RequestKey>>,
    works: BTreeMap<RequestKey, Work>,
    outstanding: Vec<Work>,
    log: Vec<(Instant, RequestKey)>,
}

impl Model {
    /// Asks for one backend, as the driver of a policy does after something has come for it or ended at
    /// it, and then makes sure that the others have nothing.
    fn drain(&mut self, now: Instant, asked: BackendId, policy: &mut dyn DispatchPolicy) {
        while let Some((key, rule)) = policy.next(now, asked) {
            assert!(rule.0.starts_with("dispatch/"), "{rule:?} names another stage");
            let work = self.works.remove(&key).expect("sent once, after it came");
            assert_eq!(work.backend, asked, "sent where it belongs");
            let line = self.waiting.get_mut(&(asked, work.stream, work.substream));
            assert_eq!(
                line.and_then(VecDeque::pop_front),
                Some(key),
                "order within a stream, or a link"
            );
            self.outstanding.push(work);
            self.log.push((now, key));
        }
        for backend in (0..BACKENDS as u32).map(BackendId::new) {
            let idle = self.outstanding.iter().all(|work| work.backend != backend);
            let waits = self.works.values().any(|work| work.backend == backend);
            assert!(!(idle && waits), "work waits before an idle backend");
        }
    }

    fn complete(
        &mut self,
        now: Instant,
        index: usize,
        rng: &mut Rng,
        policy: &mut dyn DispatchPolicy,
    ) {
        let work = self.outstanding.swap_remove(index);
        policy.complete(now, work.key, Duration::from_nanos(rng.below(3_000_000)));
        self.drain(now, work.backend, policy);
    }
}

fn storm(name: &str, seed: u64) -> Vec<(Instant, RequestKey)> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let weight = |parts| Weight::from_1024ths(parts).unwrap();
    let streams = [
        Stream { weight: weight(2_048), background: false },
        Stream { weight: weight(1), background: false },
        Stream { weight: Weight::ONE, background: true },
    ];
    // The others come later.
    let mut backends = BACKENDS - 1;
    let setup = Setup { backends, streams: &streams };
    let mut policy = (choice.policy().build)(choice.values(), &setup);
    let (mut source, mut model) = (Source::new(seed, "dispatch"), Model::default());
    let mut rng = Rng::stream(seed, "works");
    let has_links = seed % 2 == 1;
    for step in 0..STEPS {
        let now = source.tick();
        if step == STEPS / 3 {
            backends = BACKENDS;
            policy.set_backends(backends);
        }
        match rng.below(50) {
            0 => policy.set_weight(
                TenantId::new(rng.below(6) as u32),
                weight(1 + rng.below(1 << 20) as u32),
            ),
            1 => policy.owe(TenantId::new(rng.below(6) as u32), Duration::from_millis(2)),
            2..5 if has_links => policy.set_substream(
                substream(rng.below(LINKS)),
                (rng.below(3) > 0).then(|| weight(1 + rng.below(1 << 12) as u32)),
            ),
            _ => {}
        }
        if source.rng.below(100) < 55 || model.outstanding.is_empty() {
            let (key, request) = source.request();
            let backend = BackendId::new(source.rng.below(backends as u64) as u32);
            let nominal = Duration::from_nanos(rng.below(3_000_000));
            let (stream, bytes) = (request.tenant, request.payload());
            let within = has_links.then(|| substream(rng.below(LINKS)));
            let work = Work {
                key,
                stream,
                substream: within,
                backend,
                bytes,
                nominal,
                request: key,
                whole: nominal,
            };
            model.works.insert(key, work);
            model.waiting.entry((backend, stream, within)).or_default().push_back(key);
            policy.arrive(now, &work);
            model.drain(now, backend, &mut *policy);
        } else {
            let index = source.rng.below(model.outstanding.len() as u64) as usize;
            model.complete(now, index, &mut rng, &mut *policy);
        }
    }
    while !model.works.is_empty() {
        model.complete(source.now, 0, &mut rng, &mut *policy);
    }
    model.log
}

/// Each operation is sent exactly once, in order within its stream and backend, also when a backend comes while others
/// have work; no backend idles while work waits for it, although it is asked only after its own events; the same
/// inputs give the same order.
#[test]
fn sends_once_in_order_and_never_idles() {
    for policy in POLICIES {
        for seed in 0..SEEDS {
            let log = storm(policy.name, seed);
            assert!(log.len() > STEPS as usize / 3);
            assert_eq!(log, storm(policy.name, seed), "{} is not deterministic", policy.name);
        }
    }
}

/// Two streams of weights 3 and 1 ask for one backend without end, with operations that take one and ten
/// milliseconds. Those that claim to share time share it three to one; those that believe in a nominal
/// time which is the same for both do not, and neither do those that count operations or bytes.
#[test]
fn time_is_shared_by_those_that_charge_it() {
    let weight = |parts| Stream { weight: Weight::from_1024ths(parts).unwrap(), background: false };
    for policy in POLICIES {
        let choice = Choice::named(POLICIES, policy.name).expect("it is in the list");
        let streams = [weight(3_072), weight(1_024)];
        let mut dispatch =
            (policy.build)(choice.values(), &Setup { backends: 1, streams: &streams });
        let (mut source, backend) = (Source::new(1, "time"), BackendId::new(0));
        let mut busy = [0_u64; 2];
        let mut outstanding = VecDeque::new();
        let mut owner = BTreeMap::new();
        let mut arrive = |dispatch: &mut dyn DispatchPolicy, owner: &mut BTreeMap<_, _>, stream| {
            let (key, _) = source.request();
            let nominal = Duration::from_millis(2);
            let stream_id = TenantId::new(stream);
            owner.insert(key, stream);
            dispatch.arrive(
                Instant::ZERO,
                &Work {
                    key,
                    stream: stream_id,
                    substream: None,
                    backend,
                    bytes: 4_096,
                    nominal,
                    request: key,
                    whole: nominal,
                },
            );
        };
        for _ in 0..256 {
            arrive(&mut *dispatch, &mut owner, 0);
            arrive(&mut *dispatch, &mut owner, 1);
        }
        for number in 0..10_000 {
            while let Some((key, _)) = dispatch.next(Instant::ZERO, backend) {
                outstanding.push_back(key);
            }
            let key = outstanding.pop_front().expect("something is always outstanding");
            let stream = owner[&key];
            let millis = [1, 10][stream as usize];
            // A policy may begin with a deep queue, whose order is that of arrival.
            if number >= 2_000 {
                busy[stream as usize] += millis;
            }
            dispatch.complete(Instant::ZERO, key, Duration::from_millis(millis));
            arrive(&mut *dispatch, &mut owner, stream);
        }
        let share = busy[0] as f64 / (busy[0] + busy[1]) as f64;
        let shares = (share - 0.75).abs() < 0.01;
        assert_eq!(shares, policy.has(Property::SharesTime), "{}: {share}", policy.name);
    }
}
