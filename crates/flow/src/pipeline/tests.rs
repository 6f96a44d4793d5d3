//! The pipeline against small worlds.

use super::*;
use crate::accept::{self, Layout};
use crate::clock::Instant;
use crate::control::{Contract, Notice};
use crate::error::IoError;
use crate::event::{Event, Observer, Service, StageTimes};
use crate::policy::{Policy, Rule};
use crate::request::{LinkId, RequestKey, TenantId};
use crate::rng::Rng;
use crate::stage::Stage;
use crate::testing;
use crate::transfer::Part;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use core::cell::RefCell;
use std::thread_local;

mod in_parts;
mod layout;
mod losses;
mod paths;
mod ports;
mod services;
mod shares;
mod volumes;

/// Remembers what it saw.
#[derive(Default)]
struct Seen {
    completed: Vec<(Tag, Outcome, StageTimes)>,
    arrived: u32,
    refused: u32,
    strays: u32,
    notices: Vec<Notice>,
    control_set: u32,
    paths: Vec<(bool, PathId)>,
    overdue: Vec<(Tag, StageName, Duration)>,
    lost: Vec<VolumeId>,
    /// Volumes that came, and that went.
    volumes: (Vec<VolumeId>, Vec<VolumeId>),
    services: Vec<Service>,
}

impl Observer for Seen {
    fn event(&mut self, _: Instant, event: Event<'_>) {
        match event {
            Event::Arrived(_) => self.arrived += 1,
            Event::Refused(..) => self.refused += 1,
            Event::Completed(c) => self.completed.push((c.request.tag, c.outcome, *c.times)),
            Event::Path(change) => self.paths.push((change.state.is_usable(), change.path)),
            Event::Overdue { request, stage, age } => {
                self.overdue.push((request.tag, stage, age));
            }
            Event::Control(notice) => self.notices.push(notice),
            Event::ControlSet(_) => self.control_set += 1,
            Event::Lost(volume) => self.lost.push(volume),
            Event::VolumeAdded(volume, ..) => self.volumes.0.push(volume),
            Event::VolumeRemoved(volume) => self.volumes.1.push(volume),
            Event::Cache(..) => {}
            Event::Stray => self.strays += 1,
        }
    }

    fn service(&mut self, _: Instant, service: Service) {
        self.services.push(service);
    }
}

fn config() -> Config {
    Config {
        volumes: vec![Volume {
            capacity: 1 << 20,
            layout: Layout::One(BackendId::new(0)),
            max_transfer: 16 << 10,
            cap: Cap::default(),
        }],
        backends: vec![Backend::alike(2)],
        promises: Promises::default(),
        shares: crate::dispatch::Shares::default(),
        limits: Limits::default(),
        paths: path::Settings::default(),
        cache: crate::cache::Settings::default(),
        policies: Policies::default(),
    }
}

fn request(tag: u64, op: Op, offset: u64, length: u64) -> Request {
    Request { op, extent: Extent::new(offset, length), ..testing::request(tag) }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Gives one input and collects what it causes.
fn step<O: Observer>(pipeline: &mut Pipeline<O>, now: u64, input: Input) -> Vec<Action> {
    pipeline.handle(at(now), input);
    core::iter::from_fn(|| pipeline.poll(at(now))).collect()
}

/// Nothing is left to do: what was due for the only path finds it idle.
fn assert_rest(pipeline: &mut Pipeline<Seen>) {
    let now = pipeline.next_deadline().expect("a path was to be looked at");
    pipeline.handle_deadline(now);
    assert_eq!(pipeline.poll(now), None);
    assert_eq!(pipeline.next_deadline(), None);
}

fn ios(actions: &[Action]) -> Vec<StoreIo> {
    let io = |action: &Action| if let Action::Store(io) = action { Some(*io) } else { None };
    actions.iter().filter_map(io).collect()
}

fn replies(actions: &[Action]) -> Vec<(RequestKey, Tag, Outcome)> {
    let parts = parts(actions);
    parts.into_iter().map(|(key, tag, outcome, _)| (key, tag, outcome)).collect()
}

/// What of which reply is to be sent.
fn parts(actions: &[Action]) -> Vec<(RequestKey, Tag, Outcome, Part)> {
    let reply = |action: &Action| match *action {
        Action::Transfer { key, tag, outcome, part } => Some((key, tag, outcome, part)),
        _ => None,
    };
    actions.iter().filter_map(reply).collect()
}

/// The first of them has left.
fn sent(actions: &[Action]) -> Input {
    let (key, _, _, part) = parts(actions)[0];
    Input::Sent { key, bytes: part.length }
}

/// A read goes to the device, its reply to the link, and every nanosecond of it has a place.
#[test]
fn a_request_travels_and_its_times_add_up() {
    let config = Config { backends: vec![Backend::alike(1)], ..config() };
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let actions = step(&mut pipeline, 100, Input::Arrive(request(7, Op::Read, 0, 4096)));
    let [io] = ios(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((io.tag, io.extent), (Tag(7), Extent::new(0, 4096)));
    let actions = step(&mut pipeline, 350, Input::Stored { key: io.key, outcome: Ok(()) });
    let [(_, Tag(7), Ok(()), part)] = parts(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(part, Part { offset: 0, length: 4096, last: true });
    assert!(step(&mut pipeline, 360, sent(&actions)).is_empty());
    let [(_, Ok(()), times)] = &pipeline.observer().completed[..] else { panic!() };
    assert_eq!(times.spent(StageName::Storage), Duration::from_nanos(250));
    assert_eq!(times.spent(StageName::Transfer), Duration::from_nanos(10));
    assert_eq!(times.total(), Duration::from_nanos(260));
    assert_eq!(times.rule(StageName::Storage), Some(RULE_DEVICE));
    assert_eq!(times.rule(StageName::Control), None);
    assert_eq!(pipeline.outstanding(), 0);
    assert_rest(&mut pipeline);
}

/// A write and a later read of the same bytes: the read starts when the write has ended, and the
/// time it waited is charged to the overlap.
#[test]
fn overlapping_requests_keep_their_order() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let write = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Write, 0, 8192))));
    let blocked = step(&mut pipeline, 10, Input::Arrive(request(2, Op::Read, 4096, 4096)));
    assert!(blocked.is_empty());
    let free = ios(&step(&mut pipeline, 10, Input::Arrive(request(3, Op::Read, 8192, 4096))));
    assert_eq!(free.len(), 1, "touching is not overlapping");
    let actions = step(&mut pipeline, 50, Input::Stored { key: write[0].key, outcome: Ok(()) });
    let read = ios(&actions);
    assert_eq!(read[0].tag, Tag(2));
    let actions = step(&mut pipeline, 70, Input::Stored { key: read[0].key, outcome: Ok(()) });
    step(&mut pipeline, 70, sent(&actions));
    let (_, _, times) = pipeline.observer().completed[0];
    assert_eq!(times.spent(StageName::Accept), Duration::from_nanos(40));
    assert_eq!(times.rule(StageName::Accept), Some(crate::accept::RULE_OVERLAP));
}

/// An ordered task waits for everything before it and holds back everything after it.
#[test]
fn an_ordered_task_is_a_barrier() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let first = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 512))));
    let ordered = Request { ordered: true, ..request(2, Op::Read, 65536, 512) };
    assert!(step(&mut pipeline, 1, Input::Arrive(ordered)).is_empty());
    assert!(step(&mut pipeline, 2, Input::Arrive(request(3, Op::Read, 4096, 512))).is_empty());
    let done = Input::Stored { key: first[0].key, outcome: Ok(()) };
    let second = ios(&step(&mut pipeline, 3, done));
    assert_eq!(second.iter().map(|io| io.tag.0).collect::<Vec<_>>(), [2]);
    let done = Input::Stored { key: second[0].key, outcome: Ok(()) };
    assert_eq!(ios(&step(&mut pipeline, 4, done))[0].tag, Tag(3));
}

/// A large write is cut; one failed piece fails the whole; the whole is answered once, after its
/// last piece, whose times it takes.
#[test]
fn a_large_request_is_cut_and_joined() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let actions = step(&mut pipeline, 0, Input::Arrive(request(1, Op::Write, 4096, 40 << 10)));
    let pieces = ios(&actions);
    let cuts: Vec<_> = pieces.iter().map(|p| (p.offset_in_request, p.extent.length)).collect();
    assert_eq!(cuts, [(0, 16 << 10), (16 << 10, 16 << 10), (32 << 10, 8 << 10)]);
    assert_eq!(pipeline.outstanding(), 1);
    let end = |key, outcome| Input::Stored { key, outcome };
    assert!(step(&mut pipeline, 5, end(pieces[1].key, Err(IoError::Medium))).is_empty());
    assert!(step(&mut pipeline, 6, end(pieces[0].key, Ok(()))).is_empty());
    let actions = step(&mut pipeline, 9, end(pieces[2].key, Ok(())));
    let [(_, Tag(1), Err(IoError::Medium))] = replies(&actions)[..] else { panic!() };
    step(&mut pipeline, 9, sent(&actions));
    assert_eq!(pipeline.observer().completed[0].2.total(), Duration::from_nanos(9));
}

/// An update goes to the device whole, whatever its size, and what overlaps it waits for its end.
#[test]
fn an_update_is_one_step() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let length = config().volumes[0].max_transfer * 3;
    let update = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Update, 0, length))));
    let [update] = update[..] else { panic!("cut: {update:?}") };
    assert_eq!(update.extent, Extent::new(0, length));
    assert!(step(&mut pipeline, 1, Input::Arrive(request(2, Op::Read, 0, 512))).is_empty());
    let done = Input::Stored { key: update.key, outcome: Ok(()) };
    assert_eq!(ios(&step(&mut pipeline, 2, done))[0].tag, Tag(2));
}

/// A volume that has grown takes requests for its new end, and one that has shrunk refuses them.
#[test]
fn a_volume_changes_its_size() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let volume = VolumeId::new(0);
    let old = config().volumes[0].capacity;
    let read = |tag| Input::Arrive(request(tag, Op::Read, old, 512));
    let refused = replies(&step(&mut pipeline, 0, read(1)));
    assert_eq!(refused[0].2, Err(IoError::OutOfRange));
    step(&mut pipeline, 1, Input::Resized(volume, old + 512));
    assert_eq!(ios(&step(&mut pipeline, 2, read(2))).len(), 1);
    step(&mut pipeline, 3, Input::Resized(volume, old));
    assert_eq!(replies(&step(&mut pipeline, 4, read(3)))[0].2, Err(IoError::OutOfRange));
}

/// Past the end of the volume nothing reaches the device.
#[test]
fn a_range_outside_the_volume_is_refused() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let actions = step(&mut pipeline, 0, Input::Arrive(request(1, Op::Write, 1 << 20, 512)));
    assert!(ios(&actions).is_empty());
    assert_eq!(replies(&actions)[0].2, Err(IoError::OutOfRange));
}

/// One request more than the limit, in number or in bytes, is refused and forgotten.
#[test]
fn limits_refuse_and_forget() {
    let mut config = config();
    config.limits.max_requests = 2;
    config.limits.max_bytes = 8192;
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let first = step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 8192)));
    let refused = step(&mut pipeline, 0, Input::Arrive(request(2, Op::Read, 8192, 512)));
    assert_eq!(refused, [Action::Refuse { tag: Tag(2) }]);
    step(&mut pipeline, 0, Input::Arrive(request(3, Op::Flush, 0, 0)));
    let refused = step(&mut pipeline, 0, Input::Arrive(request(4, Op::Flush, 0, 0)));
    assert_eq!(refused, [Action::Refuse { tag: Tag(4) }]);
    assert_eq!((pipeline.outstanding(), pipeline.observer().refused), (2, 2));
    // What has ended makes room again, for as many requests and bytes as before.
    let io = ios(&first)[0];
    let actions = step(&mut pipeline, 1, Input::Stored { key: io.key, outcome: Ok(()) });
    step(&mut pipeline, 1, sent(&actions));
    let again = step(&mut pipeline, 2, Input::Arrive(request(5, Op::Read, 0, 8192)));
    assert_eq!(ios(&again).len(), 1);
}

/// One tenant's requests and bytes are bounded apart from everybody's: past its own bound it is refused,
/// and the others are not. Its first request fits, however large; what has ended makes room again.
#[test]
fn a_tenant_is_refused_alone() {
    let mut config = config();
    config.limits.max_tenant_requests = 2;
    config.limits.max_tenant_bytes = 8192;
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let of = |tenant, tag, length| {
        let tenant = TenantId::new(tenant);
        Input::Arrive(Request { tenant, ..request(tag, Op::Read, tag * 16_384, length) })
    };
    let first = ios(&step(&mut pipeline, 0, of(0, 1, 16_384)));
    let refused = |tag| vec![Action::Refuse { tag: Tag(tag) }];
    assert_eq!(step(&mut pipeline, 0, of(0, 2, 512)), refused(2));
    assert_eq!(ios(&step(&mut pipeline, 0, of(1, 3, 4_096))).len(), 1);
    assert_eq!(ios(&step(&mut pipeline, 0, of(1, 4, 4_096))).len(), 1);
    assert_eq!(step(&mut pipeline, 0, of(1, 5, 512)), refused(5));
    let actions = step(&mut pipeline, 1, Input::Stored { key: first[0].key, outcome: Ok(()) });
    step(&mut pipeline, 1, sent(&actions));
    assert_eq!(ios(&step(&mut pipeline, 2, of(0, 6, 512))).len(), 1);
    assert_eq!(ios(&step(&mut pipeline, 2, of(0, 7, 512))).len(), 1);
    assert_eq!(step(&mut pipeline, 2, of(0, 8, 0)), refused(8));
    assert_eq!(pipeline.observer().refused, 3);
}

/// A cap holds at accept, in order of arrival and by its own name; what it holds counts against the
/// limits, and meets what touches the same bytes afterwards. Taking the cap away lets it go.
#[test]
fn a_cap_holds_by_name() {
    let mut config = Config { backends: vec![Backend::alike(1)], ..config() };
    config.limits.max_requests = 3;
    config.volumes[0].cap.iops = core::num::NonZeroU32::new(1_000);
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let write = |tag| Input::Arrive(request(tag, Op::Write, 0, 4_096));
    let first = ios(&step(&mut pipeline, 5, write(1)))[0];
    assert!(step(&mut pipeline, 6, write(2)).is_empty());
    assert!(step(&mut pipeline, 7, write(3)).is_empty());
    assert_eq!(step(&mut pipeline, 8, write(4)), [Action::Refuse { tag: Tag(4) }]);
    assert_eq!(pipeline.next_deadline(), Some(at(1_000_005)));
    pipeline.handle_deadline(at(1_000_005));
    assert_eq!(pipeline.poll(at(1_000_005)), None, "the first write is still in flight");
    let mut io = first;
    for (now, next) in [(1_000_100, Some(2)), (1_000_200, None)] {
        let actions = step(&mut pipeline, now, Input::Stored { key: io.key, outcome: Ok(()) });
        step(&mut pipeline, now, sent(&actions));
        let started = ios(&actions);
        assert_eq!(started.first().map(|io| io.tag), next.map(Tag));
        io = started.first().copied().unwrap_or(io);
    }
    let (_, _, times) = pipeline.observer().completed[1];
    assert_eq!(times.spent(StageName::Accept), Duration::from_nanos(1_000_094));
    assert_eq!(times.rule(StageName::Accept), Some(accept::RULE_OVERLAP));
    let gone = step(&mut pipeline, 1_500_000, Input::Capped(VolumeId::new(0), Cap::default()));
    let [io] = ios(&gone)[..] else { panic!("{gone:?}") };
    let actions = step(&mut pipeline, 1_500_010, Input::Stored { key: io.key, outcome: Ok(()) });
    step(&mut pipeline, 1_500_010, sent(&actions));
    let (_, _, times) = pipeline.observer().completed[2];
    assert_eq!(times.rule(StageName::Accept), Some(accept::RULE_CAP));
    assert_eq!(times.spent(StageName::Accept), Duration::from_nanos(1_499_993));
    assert_rest(&mut pipeline);
}

/// A control policy learns how long each request was away: from its release, however long dispatch
/// held it, to its end.
#[test]
fn control_learns_the_time_since_release() {
    thread_local! {
        static DEVICE: RefCell<Vec<Duration>> = const { RefCell::new(Vec::new()) };
    }
    struct Probe(VecDeque<RequestKey>);
    impl control::ControlPolicy for Probe {
        fn arrive(&mut self, _: Instant, key: RequestKey, _: &Request, _: Option<u8>) {
            self.0.push_back(key);
        }
        fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
            let due = now >= at(10);
            due.then(|| self.0.pop_front()).flatten().map(|key| (key, Rule(&"control/probe")))
        }
        fn complete(&mut self, _: Instant, _: RequestKey, _: &Request, device: Duration) {
            DEVICE.with_borrow_mut(|seen| seen.push(device));
        }
        fn adopt(&mut self, _: RequestKey, _: &Request, _: Instant) {}

        fn next_deadline(&self) -> Option<Instant> {
            (!self.0.is_empty()).then_some(at(10))
        }
        fn handle_deadline(&mut self, _: Instant) {}
    }
    static PROBE: [Policy<control::Build>; 1] = [Policy {
        name: "probe",
        summary: "lets everything go at 10 ns",
        properties: &[],
        parameters: &[],
        build: |_, _| Box::new(Probe(VecDeque::new())),
    }];

    let mut config = config();
    config.policies.control = Choice::default_of(&PROBE);
    config.policies.dispatch.set("depth", 1).unwrap();
    let mut pipeline = Pipeline::new(&config, Seen::default());
    for tag in 1..=2 {
        let actions = step(&mut pipeline, 3, Input::Arrive(request(tag, Op::Read, tag * 512, 512)));
        assert!(actions.is_empty());
    }
    assert_eq!(pipeline.next_deadline(), Some(at(10)));
    pipeline.handle_deadline(at(10));
    let mut actions: Vec<_> = core::iter::from_fn(|| pipeline.poll(at(10))).collect();
    for end in [30, 45] {
        let io = ios(&actions)[0];
        actions = step(&mut pipeline, end, Input::Stored { key: io.key, outcome: Ok(()) });
        step(&mut pipeline, end, sent(&actions));
    }
    let device = DEVICE.with_borrow(Clone::clone);
    assert_eq!(device, [Duration::from_nanos(20), Duration::from_nanos(35)]);
    let (_, _, times) = pipeline.observer().completed[1];
    assert_eq!(times.spent(StageName::Control), Duration::from_nanos(7));
    assert_eq!(times.rule(StageName::Control), Some(Rule(&"control/probe")));
    assert_eq!(times.spent(StageName::Dispatch), Duration::from_nanos(20));
}

/// A policy is built with the contracts, and what it notices reaches the observer.
#[test]
fn contracts_reach_the_control_policy() {
    let mut config = config();
    config.policies.control = Choice::named(control::POLICIES, "ta1").unwrap();
    let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(1)));
    config.promises.contracts = vec![contract(1)];
    assert_eq!(config.validate(), Ok(()));
    let mut pipeline = Pipeline::new(&config, Seen::default());
    for tag in 1..=2 {
        let actions =
            step(&mut pipeline, 0, Input::Arrive(request(tag, Op::Read, tag * 4096, 4096)));
        assert_eq!(actions.len(), usize::from(tag == 1), "one token is there, a second is not");
    }
    assert_eq!(pipeline.observer().notices, [Notice::Gate(TenantId::new(0), true)]);
    config.promises.contracts = vec![contract(0)];
    assert!(config.validate().is_err());
}

/// Another policy takes over the queued requests, in their order, and those at the device: the first may continue
/// at once, the second is counted until it ends.
#[test]
fn a_new_policy_takes_over() {
    let mut config = config();
    config.policies.control = Choice::named(control::POLICIES, "ta1").unwrap();
    config.promises = testing::promises(&[Some(Contract::new(1, 4_096, Duration::from_millis(1)))]);
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let io = |tag| Input::Arrive(request(tag, Op::Read, tag * 4096, 4096));
    let first = ios(&step(&mut pipeline, 0, io(1)))[0];
    for tag in 2..=4 {
        assert_eq!(step(&mut pipeline, 0, io(tag)), [], "the bucket is empty");
    }
    let mut control = Choice::named(control::POLICIES, "sfq").unwrap();
    control.set("depth", 2).unwrap();
    let set_control = SetControl { control, promises: Promises::default() };
    let second = ios(&step(&mut pipeline, 5, Input::SetControl(Arc::new(set_control))));
    assert_eq!(pipeline.observer().control_set, 1, "observers learn of it");
    assert_eq!(second.iter().map(|io| io.tag).collect::<Vec<_>>(), [Tag(2)], "one place is taken");
    let third = step(&mut pipeline, 9, Input::Stored { key: first.key, outcome: Ok(()) });
    assert_eq!(ios(&third).iter().map(|io| io.tag).collect::<Vec<_>>(), [Tag(3)]);
    let ended = step(&mut pipeline, 20, Input::Stored { key: second[0].key, outcome: Ok(()) });
    assert_eq!(ios(&ended).len(), 1, "the last one has the place of the second");
    let [(_, Tag(2), Ok(()))] = replies(&ended)[..] else { panic!("{ended:?}") };
    step(&mut pipeline, 20, sent(&ended));
    let (_, _, times) = pipeline.observer().completed[0];
    assert_eq!(times.spent(StageName::Control), Duration::from_nanos(5));
}

/// With a window of one byte a link sends one reply at a time; another link is not held up.
#[test]
fn a_link_sends_within_its_window() {
    let mut config = config();
    config.limits.link_window = 1;
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let mut on_link = Vec::new();
    for (tag, link) in [(1, 0), (2, 0), (3, 1)] {
        let request =
            Request { link: LinkId::new(link), ..request(tag, Op::Read, tag * 8192, 4096) };
        let io = ios(&step(&mut pipeline, 0, Input::Arrive(request)))[0];
        let stored = Input::Stored { key: io.key, outcome: Ok(()) };
        on_link.extend(step(&mut pipeline, 1, stored));
    }
    assert_eq!(replies(&on_link).iter().map(|r| r.1.0).collect::<Vec<_>>(), [1, 3]);
    let next = replies(&step(&mut pipeline, 4, sent(&on_link)));
    assert_eq!(next[0].1, Tag(2));
}

/// A completion that comes twice, or for nothing, is counted and changes nothing.
#[test]
fn late_completions_are_strays() {
    let mut pipeline = Pipeline::new(&config(), Seen::default());
    let io = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 512))))[0];
    let done = Input::Stored { key: io.key, outcome: Ok(()) };
    let actions = step(&mut pipeline, 1, done.clone());
    let key = replies(&actions)[0].0;
    assert!(step(&mut pipeline, 2, done).is_empty());
    // Less or more has left than was to leave.
    step(&mut pipeline, 3, Input::Sent { key, bytes: 0 });
    step(&mut pipeline, 3, Input::Sent { key, bytes: 513 });
    step(&mut pipeline, 3, sent(&actions));
    step(&mut pipeline, 4, sent(&actions));
    step(&mut pipeline, 5, Input::Sent { key: RequestKey::default(), bytes: 512 });
    assert_eq!(pipeline.observer().strays, 5);
    assert_eq!(pipeline.observer().completed.len(), 1);
}

/// What stays in one stage is reported again and again, with its age.
#[test]
fn overdue_requests_are_reported() {
    let config = Config { backends: vec![Backend::alike(1)], ..config() };
    let mut pipeline = Pipeline::new(&config, Seen::default());
    step(&mut pipeline, 0, Input::Arrive(request(1, Op::Read, 0, 512)));
    let overdue = Limits::default().report_after;
    while pipeline.observer().overdue.len() < 3 {
        let now = pipeline.next_deadline().expect("a request is outstanding");
        pipeline.handle_deadline(now);
        if let Some(Action::Check { backend, path }) = pipeline.poll(now) {
            pipeline.handle(now, Input::Checked(backend, path));
        }
    }
    let told = &pipeline.observer().overdue;
    assert_eq!(told.len(), 3);
    assert_eq!(told[2], (Tag(1), StageName::Storage, overdue * 3));
    let census = pipeline.census(Instant::ZERO + overdue * 3);
    assert_eq!(census[StageName::Storage.index()].count, 1);
    assert_eq!(census[StageName::Storage.index()].oldest, overdue * 3);
}

/// Random requests, random order of endings, failing and returning paths: every request is answered
/// exactly once, no two conflicting I/Os are ever at the device together, and at the end nothing is
/// left. The pipeline itself asserts that the times of each add up.
#[test]
fn nothing_is_lost_in_a_storm() {
    for seed in 0..20 {
        let mut rng = Rng::stream(seed, "storm");
        let mut config = config();
        config.limits.max_requests = 64;
        config.limits.link_window = 1 + rng.below(20_000);
        config.limits.max_tenant_requests = 1 + rng.below(64) as u32;
        if rng.below(2) == 0 {
            config.volumes[0].cap.iops = core::num::NonZeroU32::new(1_000_000);
        }
        config.policies.dispatch.set("depth", 1 + rng.below(16)).unwrap();
        let policy = &transfer::POLICIES[seed as usize % transfer::POLICIES.len()];
        config.policies.transfer = Choice::named(transfer::POLICIES, policy.name).unwrap();
        let _ = config.policies.transfer.set("chunk", 1 + rng.below(20_000));
        let mut pipeline = Pipeline::new(&config, Seen::default());
        let (mut now, mut tag) = (0, 0);
        let mut at_device: BTreeMap<RequestKey, StoreIo> = BTreeMap::new();
        let mut on_link: Vec<(RequestKey, u64)> = Vec::new();
        let mut replied: BTreeMap<Tag, u64> = BTreeMap::new();
        loop {
            now += rng.below(1_000);
            let done = tag >= 2_000;
            let input = match rng.below(10) {
                0..4 if !done => {
                    tag += 1;
                    let ops = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Update];
                    let op = ops[rng.below(5) as usize];
                    let length = if op == Op::Flush { 0 } else { 1 + rng.below(48 << 10) };
                    let offset = if op == Op::Flush { 0 } else { rng.below((1 << 20) - length) };
                    let ordered = rng.below(40) == 0;
                    Input::Arrive(Request { ordered, ..request(tag, op, offset, length) })
                }
                0..8 if !at_device.is_empty() => {
                    let index = rng.below(at_device.len() as u64) as usize;
                    let key = *at_device.keys().nth(index).unwrap();
                    at_device.remove(&key);
                    let outcome = match rng.below(30) {
                        0 => Err(IoError::Medium),
                        1 => Err(IoError::PathFailed),
                        _ => Ok(()),
                    };
                    Input::Stored { key, outcome }
                }
                8 => Input::PathUp(BackendId::new(0), PathId::new(rng.below(2) as u32)),
                _ if !on_link.is_empty() => {
                    let index = rng.below(on_link.len() as u64) as usize;
                    let (key, bytes) = on_link.swap_remove(index);
                    Input::Sent { key, bytes }
                }
                _ if done && pipeline.outstanding() == 0 => break,
                _ => continue,
            };
            for action in step(&mut pipeline, now, input) {
                match action {
                    Action::Store(io) => {
                        for other in at_device.values().filter(|other| other.tag != io.tag) {
                            let conflict = (io.op.writes() || other.op.writes())
                                && io.extent.overlaps(other.extent);
                            assert!(!conflict, "{io:?} beside {other:?}");
                        }
                        assert!(at_device.insert(io.key, io).is_none());
                    }
                    Action::Transfer { key, tag, part, .. } => {
                        let begun = replied.remove(&tag).unwrap_or(0);
                        assert_eq!(begun, part.offset, "parts come in order");
                        if !part.last {
                            replied.insert(tag, part.offset + part.length);
                        }
                        on_link.push((key, part.length));
                    }
                    Action::Refuse { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        let seen = pipeline.observer();
        assert_eq!(seen.arrived + seen.refused, 2_000);
        let mut answered: Vec<Tag> = seen.completed.iter().map(|c| c.0).collect();
        answered.sort_unstable();
        answered.dedup();
        assert_eq!(answered.len(), seen.arrived as usize);
        assert_eq!(seen.completed.len(), seen.arrived as usize);
        assert!(replied.is_empty(), "every reply ends with its last part");
        assert!(pipeline.census(at(now)).iter().all(|census| census.count == 0));
    }
}
