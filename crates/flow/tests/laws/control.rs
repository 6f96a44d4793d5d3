//! Laws of [`ControlPolicy`](weir_flow::control::ControlPolicy).

use crate::{SEEDS, STEPS, Source, in_each_word};
use std::collections::{BTreeMap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{
    Build, Contract, ControlPolicy, Group, Ops, POLICIES, Promises, Row, Target, Tier,
};
use weir_flow::policy::{Choice, Property};
use weir_flow::request::{Request, RequestKey, TenantId};

/// Values that the laws are checked for besides the defaults and the words.
const VARIANTS: &[(&str, &[(&str, u64)])] = &[
    ("ta1", &[("tau", 30)]),
    ("ta2", &[("hwm", 1), ("lwm", 1), ("tau", 7)]),
    ("ta3", &[("release", 1), ("hwm", 10), ("lwm", 5)]),
    ("ta3", &[("watch", 1), ("estimator", 1), ("window", 7_000_000), ("ramp", 10_000)]),
    ("sfq", &[("depth", 1)]),
    ("mclock", &[("depth", 2)]),
    ("slack", &[("min", 1), ("first", 1), ("max", 2), ("kappa", 1_000)]),
    ("ta2", &[("release", 2), ("hwm", 10), ("lwm", 5)]),
];

/// Two tenants with contracts, the last one tight, one without; the fourth is past the list.
fn plain() -> Promises {
    let contract =
        |iops, size, millis| Some(Contract::new(iops, size, Duration::from_millis(millis)));
    let contracts = vec![contract(400, 16_384, 20), None, contract(30, 4_096, 2)];
    Promises { contracts, groups: Vec::new() }
}

/// The same tenants with all that contracts can say: rows by operation and size, several targets, burst credits,
/// tiers, a group in a group, and limits for the first, by its group, and the third.
fn rich() -> Promises {
    let target =
        |quantile_ppm, millis| Target { quantile_ppm, response: Duration::from_millis(millis) };
    let row = |ops, size, iops, targets: &[Target]| Row {
        ops,
        size,
        iops,
        load_permille: None,
        targets: targets.into(),
    };
    let rows = vec![
        row(Ops::Read, 4_096, 800, &[target(500_000, 5), target(990_000, 20)]),
        row(Ops::Write, 16_384, 400, &[target(990_000, 30)]),
        row(Ops::Read, 65_536, 200, &[target(999_000, 80)]),
    ];
    let mut promises = plain();
    let [Some(first), None, Some(third)] = &mut promises.contracts[..] else {
        panic!("the first and the third have contracts")
    };
    (first.rows, first.credit, first.group) = (rows, Duration::from_secs(1), Some(1));
    (third.limit, third.tier, third.weight) = (Some(60), Tier::Bronze, 7);
    let group = Group { parent: None, iops: 2_000, size: 4_096, limit: None, weight: 10 };
    let inner = Group { parent: Some(0), iops: 900, limit: Some(1_000), ..group };
    promises.groups = vec![group, inner];
    assert_eq!(promises.validate(), Ok(()));
    promises
}

/// Whether a tenant, or a group that it is in, has a limit.
fn limited(promises: &Promises, tenant: TenantId) -> bool {
    let Some(Some(contract)) = promises.contracts.get(tenant.index()) else { return false };
    let mut above = contract.group;
    let mut limited = contract.limit.is_some();
    while let Some(group) = above.map(|index| &promises.groups[index as usize]) {
        limited |= group.limit.is_some();
        above = group.parent;
    }
    limited
}

/// What the model knows.
struct Model {
    policy: Box<dyn ControlPolicy>,
    promises: Promises,
    name: &'static str,
    /// Whether the policy claims to keep the order of a tenant's requests, with these values.
    ordered: bool,
    /// Whether it claims never to idle the device.
    conserves: bool,
    /// Whether it did either.
    reordered: bool,
    idled: bool,
    waiting: BTreeMap<TenantId, VecDeque<RequestKey>>,
    outstanding: Vec<(RequestKey, Request, Instant)>,
    requests: BTreeMap<RequestKey, Request>,
    log: Vec<(Instant, RequestKey)>,
}

impl Model {
    fn new(choice: &Choice<Build>, promises: Promises) -> Self {
        let name = choice.policy().name;
        let ordered = |property: &Property| match *property {
            Property::KeepsOrder => true,
            Property::KeepsOrderUnless { parameter, word } => {
                choice.values().word(parameter) != word
            }
            _ => false,
        };
        Self {
            policy: (choice.policy().build)(choice.values(), &promises),
            promises,
            name,
            ordered: choice.policy().properties.iter().any(ordered),
            conserves: choice.policy().has(Property::WorkConserving),
            reordered: false,
            idled: false,
            waiting: BTreeMap::new(),
            outstanding: Vec::new(),
            requests: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn arrive(&mut self, now: Instant, key: RequestKey, request: Request) {
        self.requests.insert(key, request);
        self.waiting.entry(request.tenant).or_default().push_back(key);
        let contract = self.promises.contracts.get(request.tenant.index()).and_then(Option::as_ref);
        let row = contract.and_then(|contract| contract.row(&request, 0)).map(|row| row as u8);
        self.policy.arrive(now, key, &request, row);
        self.drain(now);
    }

    fn drain(&mut self, now: Instant) {
        while let Some((key, rule)) = self.policy.poll(now) {
            assert!(rule.0.starts_with("control/"), "{rule:?} names another stage");
            let request = self.requests.remove(&key).expect("released once, after it arrived");
            let line = self.waiting.get_mut(&request.tenant).expect("it has arrived");
            self.reordered |= line.front() != Some(&key);
            assert!(!(self.ordered && self.reordered), "{}: order within a tenant", self.name);
            line.retain(|&waiting| waiting != key);
            self.outstanding.push((key, request, now));
            self.log.push((now, key));
        }
        while self.policy.notice().is_some() {}
        if self.outstanding.is_empty() && !self.requests.is_empty() {
            let free = |request: &Request| !limited(&self.promises, request.tenant);
            self.idled |= self.requests.values().any(free);
            assert!(!(self.conserves && self.idled), "{} idles the device", self.name);
            assert!(self.policy.next_deadline().is_some(), "{} waits for nothing", self.name);
        }
    }

    fn deadlines(&mut self, now: Instant) {
        while let Some(at) = self.policy.next_deadline().filter(|&at| at <= now) {
            self.policy.handle_deadline(at);
            self.drain(at);
            assert!(
                self.policy.next_deadline() != Some(at),
                "{}: a handled deadline is over",
                self.name
            );
        }
    }

    fn complete(&mut self, now: Instant, index: usize) {
        let (key, request, released) = self.outstanding.swap_remove(index);
        self.policy.complete(now, key, &request, now.since(released));
        self.drain(now);
    }
}

/// What is different between storms.
#[derive(Clone, Copy)]
struct Weather {
    promises: fn() -> Promises,
    /// The policy is asked to do what is due although nothing is.
    early: bool,
    /// How many requests of another policy are out when this one takes over, after a while.
    adopted: usize,
}

fn storm(choice: &Choice<Build>, seed: u64, weather: Weather) -> Vec<(Instant, RequestKey)> {
    watched(choice, seed, weather).log
}

fn watched(choice: &Choice<Build>, seed: u64, weather: Weather) -> Model {
    let mut source = Source::new(seed, "control");
    let mut model = Model::new(choice, (weather.promises)());
    if weather.adopted > 0 {
        source.now += Duration::from_secs(100);
    }
    let taken = source.now;
    for _ in 0..weather.adopted {
        // They are reported in order of arrival, whenever they were released.
        let released = source.now + Duration::from_micros(source.rng.below(50_000));
        let (key, request) = source.request();
        model.policy.adopt(key, &request, released);
        model.outstanding.push((key, request, released));
    }
    let deadline = model.policy.next_deadline();
    assert!(deadline.is_none_or(|at| at >= taken), "{}: what was before is over", model.name);
    source.now += Duration::from_millis(50);
    for step in 0..STEPS {
        let now = source.tick();
        model.deadlines(now);
        if weather.early {
            model.policy.handle_deadline(now);
            model.drain(now);
        }
        // Crowded times and quiet ones take turns.
        let crowd = if step / 200 % 2 == 0 { 8 } else { 4 };
        if source.rng.below(10) < crowd || model.outstanding.is_empty() {
            let (key, request) = source.request();
            model.arrive(now, key, request);
        } else {
            let index = source.rng.below(model.outstanding.len() as u64) as usize;
            model.complete(now, index);
        }
    }
    // Nothing new comes: queued requests must leave, by endings and deadlines alone.
    let mut now = source.now;
    while !model.requests.is_empty() {
        if model.outstanding.is_empty() {
            now = now.max(model.policy.next_deadline().expect("asserted by drain"));
            model.deadlines(now);
        } else {
            model.complete(now, 0);
        }
    }
    // And then there is peace: whatever still wants to be asked, in the end nothing does.
    while !model.outstanding.is_empty() {
        model.complete(now, 0);
    }
    let mut asked = 0;
    while let Some(at) = model.policy.next_deadline() {
        now = now.max(at);
        model.deadlines(now);
        asked += 1;
        assert!(asked < 1_000, "{} never sleeps", model.name);
    }
    model
}

/// The policies with their defaults and with each of their words and flags, and the variants.
fn choices() -> impl Iterator<Item = Choice<Build>> {
    let variants = VARIANTS.iter().map(|&(name, values)| {
        let mut choice = Choice::named(POLICIES, name).expect("it is in the list");
        for &(parameter, value) in values {
            choice.set(parameter, value).expect("it is in range");
        }
        choice
    });
    POLICIES.iter().flat_map(|policy| in_each_word(POLICIES, policy.name)).chain(variants)
}

/// A policy that does not claim to keep the order of a tenant's requests overtakes, and one that does not
/// claim to conserve work idles the device: what a policy keeps it claims.
#[test]
fn nothing_is_kept_without_a_claim() {
    let weather = Weather { promises: plain, early: false, adopted: 0 };
    for choice in choices() {
        let models = || (0..SEEDS).map(|seed| watched(&choice, seed, weather));
        let model = Model::new(&choice, plain());
        let named = (model.name, choice.values());
        assert!(model.ordered || models().any(|model| model.reordered), "{named:?}");
        assert!(model.conserves || models().any(|model| model.idled), "{named:?}");
    }
}

/// Each request is released exactly once, a tenant's in order of arrival unless the policy says
/// otherwise; nothing waits without a deadline or an outstanding request that can release it, nor
/// before an idle device where that is promised; when all is over the policy sleeps; the same inputs
/// give the same releases, and being asked before anything is due changes none.
#[test]
fn releases_once_in_order_and_never_forgets() {
    for choice in choices() {
        let named = (choice.policy().name, choice.values());
        for promises in [plain, rich] {
            for seed in 0..SEEDS {
                let weather = Weather { promises, early: false, adopted: 0 };
                let log = storm(&choice, seed, weather);
                assert!(log.len() > STEPS as usize / 4);
                let again = storm(&choice, seed, weather);
                assert_eq!(log, again, "{named:?} is not deterministic");
                let early = storm(&choice, seed, Weather { early: true, ..weather });
                assert_eq!(log, early, "{named:?} does what is not due");
            }
        }
    }
}

/// A policy that takes the place of another, long after the run began, gets the ends of what that
/// one has released, and keeps all the laws meanwhile.
#[test]
fn takes_over_what_is_outstanding() {
    for choice in choices() {
        for seed in 0..SEEDS {
            let adopted = 1 + seed as usize * 5;
            let log = storm(&choice, seed, Weather { promises: rich, early: false, adopted });
            assert!(log.len() > STEPS as usize / 4);
        }
    }
}

/// An odd clock is no reason to forget: a deadline that is handled long after it was due, or twice,
/// releases what it should, in order.
#[test]
fn late_deadlines_release_everything() {
    for choice in choices() {
        let mut source = Source::new(1, "control/late");
        let mut model = Model::new(&choice, rich());
        for _ in 0..200 {
            let (key, request) = source.request();
            model.arrive(source.now, key, request);
        }
        let mut now = source.now;
        while !model.requests.is_empty() {
            now += Duration::from_secs(7);
            model.policy.handle_deadline(now);
            model.policy.handle_deadline(now);
            model.drain(now);
            while !model.outstanding.is_empty() {
                model.complete(now, 0);
            }
            assert!(now < Instant::ZERO + Duration::from_secs(7_000), "{}", model.name);
        }
    }
}
