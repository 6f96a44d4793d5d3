//! Recordings of a pipeline in front of four chips, with hosts that do what the paper's do.

use super::{Live, LiveError, read};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::accept::{Cap, Layout, Volume};
use weir_flow::clock::{Duration, Instant};
use weir_flow::digest::Digest;
use weir_flow::dispatch::{Member, Weight};
use weir_flow::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies, StoreIo};
use weir_flow::policy::Choice;
use weir_flow::recording::{Encoder, Entry};
use weir_flow::request::{BackendId, LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::stage::{self, Wake, World};
use weir_flow::units::Extent;
use weir_flow::{cache, control, dispatch, path};

/// A host: when it comes, when it begins to write, the chance of a write before that in per cent, and how much it
/// asks for.
#[derive(Clone, Copy)]
struct Host {
    from_ms: u64,
    writes_from_ms: u64,
    mixed: u64,
    until_ms: u64,
    requests: u64,
}

const READER: Host =
    Host { from_ms: 0, writes_from_ms: u64::MAX, mixed: 0, until_ms: u64::MAX, requests: u64::MAX };

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Stored(RequestKey),
    Sent(RequestKey, u64),
    /// A host may submit.
    Submit(usize),
    /// A read that is no part of the experiment.
    Stray(usize),
}

struct Chips {
    hosts: Vec<(Host, u64)>,
    weights: Vec<Option<Weight>>,
    events: BinaryHeap<Reverse<(Instant, u64, What)>>,
    serial: u64,
    busy: [Instant; 4],
    rng: Rng,
    out: Vec<u8>,
    encoder: Encoder,
    digest: Digest,
}

impl Chips {
    fn event(&mut self, at: Instant, what: What) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, what)));
    }

    fn submit(&mut self, now: Instant, number: usize) -> Option<Request> {
        let (host, asked) = &mut self.hosts[number];
        let ms = now.as_nanos() / 1_000_000;
        if ms >= host.until_ms || *asked == host.requests {
            return None;
        }
        *asked += 1;
        let writes = ms >= host.writes_from_ms || self.rng.below(100) < host.mixed;
        let (op, tag) = (if writes { Op::Write } else { Op::Read }, *asked << 8);
        Some(self.request(number, op, tag))
    }

    fn request(&mut self, number: usize, op: Op, tag: u64) -> Request {
        Request {
            tag: Tag(tag | number as u64),
            tenant: TenantId::new(0),
            volume: VolumeId::new(0),
            link: LinkId::new(number as u32 + 5),
            op,
            extent: Extent::new((number as u64 * 4_096 + self.rng.below(4_096)) << 14, 16 << 10),
            fua: false,
            ordered: false,
            job: false,
        }
    }

    fn record(&mut self, entry: &Entry) {
        self.encoder.entry(&mut self.out, entry);
    }
}

impl World<Pipeline<()>> for Chips {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        if let Some(number) = self.weights.iter().position(Option::is_some) {
            let member = Member::Link(LinkId::new(number as u32 + 5));
            let input = Input::Substream(member, self.weights[number].take());
            self.record(&Entry::Input(Instant::ZERO, input.clone()));
            return Wake::Input(Instant::ZERO, input);
        }
        loop {
            let Some(&Reverse((at, _, what))) = self.events.peek() else { return Wake::End };
            if let Some(deadline) = deadline.filter(|&deadline| deadline <= at) {
                self.record(&Entry::Deadline(deadline));
                return Wake::Deadline(deadline);
            }
            self.events.pop();
            let input = match what {
                What::Stored(key) => Some(Input::Stored { key, outcome: Ok(()) }),
                What::Sent(key, bytes) => Some(Input::Sent { key, bytes }),
                What::Submit(number) => self.submit(at, number).map(Input::Arrive),
                What::Stray(number) => Some(Input::Arrive(self.request(number, Op::Read, STRAY))),
            };
            if let Some(input) = input {
                self.record(&Entry::Input(at, input.clone()));
                return Wake::Input(at, input);
            }
        }
    }

    fn perform(&mut self, now: Instant, action: Action) {
        self.digest.action(now, &action);
        match action {
            Action::Store(StoreIo { key, backend, op, .. }) => {
                let busy = &mut self.busy[backend.index()];
                let cost = if op == Op::Read { 150 } else { 1_000 };
                *busy = now.max(*busy) + Duration::from_micros(cost);
                let at = *busy;
                self.event(at, What::Stored(key));
            }
            Action::Transfer { key, tag: Tag(number), part, .. } => {
                self.event(now, What::Sent(key, part.length));
                if part.last && number & STRAY == 0 {
                    self.event(now, What::Submit(number as usize & 0xff));
                }
            }
            _ => {}
        }
    }
}

/// The name of a read that is no part of the experiment.
const STRAY: u64 = 1 << 63;

/// What a gateway under this policy records.
fn recorded(policy: &str, hosts: &[(Host, u32)]) -> Vec<u8> {
    let mut dispatch = Choice::named(dispatch::POLICIES, policy).unwrap();
    for (name, value) in [("depth", 4), ("servers", 1)] {
        let _ = dispatch.set(name, value);
    }
    let control = Choice::named(control::POLICIES, "open").unwrap();
    let policies = Policies { control, dispatch, ..Policies::default() };
    let backends = (0..4).map(BackendId::new).collect();
    let config = Config {
        volumes: vec![Volume {
            capacity: 8 << 26,
            layout: Layout::Stripe { backends, chunk: 4_096 },
            max_transfer: 1 << 20,
            cap: Cap::default(),
        }],
        backends: vec![Backend::alike(1); 4],
        promises: control::Promises::default(),
        shares: dispatch::Shares::default(),
        limits: Limits::default(),
        paths: path::Settings::default(),
        cache: cache::Settings::default(),
        policies,
    };
    let mut out = Vec::new();
    let encoder = Encoder::begin(&mut out, &config);
    let weights = hosts.iter().map(|&(_, weight)| Weight::from_1024ths(weight)).collect();
    let mut world = Chips {
        hosts: hosts.iter().map(|&(host, _)| (host, 0)).collect(),
        weights,
        events: BinaryHeap::new(),
        serial: 0,
        busy: [Instant::ZERO; 4],
        rng: Rng::stream(1, "hosts"),
        out,
        encoder,
        digest: Digest::default(),
    };
    for (number, (host, _)) in hosts.iter().enumerate() {
        let at = Instant::ZERO + Duration::from_millis(host.from_ms);
        (0..32).for_each(|_| world.event(at, What::Submit(number)));
        // Linux looks for partitions after writes.
        world.event(Instant::ZERO + Duration::from_secs(60), What::Stray(number));
    }
    stage::run(&mut Pipeline::new(&config, ()), &mut world);
    world.record(&Entry::End(world.digest));
    world.out
}

/// Figure 3 in little.
fn turning(policy: &str) -> Vec<u8> {
    let second = Host { from_ms: 300, writes_from_ms: 600, until_ms: 1_000, ..READER };
    recorded(policy, &[(Host { until_ms: 1_000, ..READER }, 1_024), (second, 1_024)])
}

fn eight(requests: u64, weight: impl Fn(i32) -> u32) -> Vec<(Host, u32)> {
    let host = |number| {
        let (mixed, writes_from_ms) = match number {
            0..3 => (0, u64::MAX),
            3 | 4 => (50, u64::MAX),
            _ => (0, 0),
        };
        (Host { writes_from_ms, mixed, requests, ..READER }, weight(number))
    };
    (0..8).map(host).collect()
}

fn falling(number: i32) -> u32 {
    (1_024.0 * 1.25_f64.powi(7 - number)).round() as u32
}

/// The figure of a recording is that of its hosts: S1 keeps its rate under `fog` as S2 turns, and loses most of it in
/// order of arrival; the device is as fast as the paper's.
#[test]
fn figure_3_is_read() {
    let Ok(Live::Turn(fog)) = read("f3", &turning("fog")[..]) else { panic!("it is figure 3") };
    assert_eq!((&*fog.name, &*fog.policy), ("f3", "fog"));
    assert!(
        (fog.slower - 1.0).abs() < 0.005 && (fog.alone / 104.17 - 1.0).abs() < 0.005,
        "{fog:?}"
    );
    assert!(fog.change.abs() < 1.0 && (fog.time[0] - 0.5).abs() < 0.005, "{fog:?}");
    assert!((fog.one_writes[1] / fog.alone - 0.075).abs() < 0.002, "{fog:?}");
    let Ok(Live::Turn(fifo)) = read("f3", &turning("fifo")[..]) else { panic!("it is figure 3") };
    assert!((fifo.change + 74.0).abs() < 3.0, "{fifo:?}");
}

/// Figure 5 is read in the order of weights, whichever link has which; shares follow them under `fog`, and under `fifo`
/// do not.
#[test]
fn figure_5_is_read() {
    let mut hosts = eight(1_000, falling);
    hosts.rotate_left(3);
    let Ok(Live::Shares(fog)) = read("f5", &recorded("fog", &hosts)[..]) else {
        panic!("it is figure 5")
    };
    assert!(fog.worst() < 3.0, "{fog:?}");
    assert!((fog.due[0] - 24.03).abs() < 0.01 && (fog.due[7] - 5.04).abs() < 0.01, "{fog:?}");
    assert_eq!((fog.requests, &*fog.order), (8_000, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    assert!((fog.slower - 1.0).abs() < 0.01, "{fog:?}");
    let Ok(Live::Shares(fifo)) = read("f5", &recorded("fifo", &hosts)[..]) else {
        panic!("it is figure 5")
    };
    assert!(fifo.worst() > 50.0, "{fifo:?}");
}

/// What shows no figure is refused, with what is missing.
#[test]
fn other_recordings_are_refused() {
    let whole = turning("fog");
    let cut = read("cut", &whole[..whole.len() - 40]);
    assert!(matches!(cut, Err(LiveError::Unproven(_))), "{cut:?}");
    let short = Host { until_ms: 50, ..READER };
    let writer = Host { writes_from_ms: 0, ..short };
    let late = Host { from_ms: 20, ..short };
    let swapped = |number| falling(if number < 2 { number } else { 9 - number });
    for (hosts, told) in [
        (vec![(short, 1_024)], "1 streams had 16 requests"),
        (vec![(short, 1_024), (late, 1_024)], "the second does not write"),
        (vec![(writer, 1_024), (late, 1_024)], "the second does not write"),
        (vec![(writer, 1_024), (Host { writes_from_ms: 30, ..late }, 1_024)], "must read, alone"),
        (eight(40, |_| 1_024), "the same weight"),
        (eight(40, |number| if number == 0 { 0 } else { falling(number) }), "has no weight"),
        (eight(40, swapped), "S3 must read"),
    ] {
        let told_instead = read("other", &recorded("fog", &hosts)[..]).unwrap_err().to_string();
        assert!(told_instead.contains(told), "{told}: {told_instead}");
    }
}
