//! TA1 to TA3 against independent answers: every dispatch and every switch, to the nanosecond.
//!
//! The answers are not part of the project. `WEIR_VECTORS` names the folder that has them: in `control/`,
//! `*.jsonl.zst` are long vectors, one a line, and `*-digests.json` are lists of short ones.

mod folder;

use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Contract, ControlPolicy, Notice, POLICIES, Promises};
use weir_flow::policy::Choice;
use weir_flow::request::{LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::mix;
use weir_flow::units::Extent;

/// A device that completes what is sent to it a delay later: the delay in force since each time.
const DEVICE: [(u64, u64); 3] =
    [(0, 5_000_000), (400_000_000, 38_000_000), (700_000_000, 20_000_000)];

/// When each arrival was let go, -1 for those that still waited at the end, and every switch as time,
/// tenant and position.
type Answer = (Vec<i64>, Vec<[i64; 3]>);

/// A time as the vectors have it.
fn signed(at: u64) -> i64 {
    i64::try_from(at).expect("a script is short")
}

/// One scripted run.
struct Script<'a> {
    policy: Box<dyn ControlPolicy>,
    device: &'a [(u64, u64)],
    keys: slotmap::SlotMap<RequestKey, usize>,
    requests: BTreeMap<RequestKey, (Request, Instant)>,
    /// What is at the device: end, order of being sent.
    ends: BinaryHeap<Reverse<(Instant, u64, RequestKey)>>,
    sent: u64,
    dispatched: Vec<i64>,
    switches: Vec<[i64; 3]>,
}

impl Script<'_> {
    fn drain(&mut self, now: Instant) {
        while let Some((key, _)) = self.policy.poll(now) {
            self.dispatched[self.keys[key]] = signed(now.as_nanos());
            self.requests.get_mut(&key).expect("it has arrived").1 = now;
            let delay = self.device.iter().rev().find(|(from, _)| *from <= now.as_nanos());
            let end = now + Duration::from_nanos(delay.expect("one is in force").1);
            self.sent += 1;
            self.ends.push(Reverse((end, self.sent, key)));
        }
        while let Some(Notice::Gate(tenant, on)) = self.policy.notice() {
            let index = signed(tenant.index() as u64);
            self.switches.push([signed(now.as_nanos()), index, i64::from(on)]);
        }
    }

    /// Everything before `until`, and what is at `until` except arrivals.
    fn advance(&mut self, until: Instant) {
        loop {
            let tick = self.policy.next_deadline().unwrap_or(FAR);
            let end = self.ends.peek().map_or(FAR, |Reverse(end)| end.0);
            let now = tick.min(end);
            if now > until {
                return;
            }
            if tick <= end {
                self.policy.handle_deadline(now);
            } else {
                let Reverse((_, _, key)) = self.ends.pop().expect("it was peeked at");
                let (request, sent) = self.requests[&key];
                self.policy.complete(now, key, &request, now.since(sent));
            }
            self.drain(now);
        }
    }
}

const FAR: Instant = Instant::from_nanos(u64::MAX);

fn run(
    choice: &Choice<weir_flow::control::Build>,
    contracts: &[Option<Contract>],
    device: &[(u64, u64)],
    arrivals: &[[u64; 3]],
    end: u64,
) -> Answer {
    let promises = Promises { contracts: contracts.to_vec(), groups: Vec::new() };
    let policy = (choice.policy().build)(choice.values(), &promises);
    let mut script = Script {
        policy,
        device,
        keys: slotmap::SlotMap::with_key(),
        requests: BTreeMap::new(),
        ends: BinaryHeap::new(),
        sent: 0,
        dispatched: vec![-1; arrivals.len()],
        switches: Vec::new(),
    };
    script.drain(Instant::ZERO);
    for (index, &[at, tenant, bytes]) in arrivals.iter().enumerate() {
        let now = Instant::from_nanos(at);
        script.advance(now);
        let request = Request {
            tag: Tag(index as u64),
            tenant: TenantId::new(tenant as u32),
            volume: VolumeId::new(0),
            link: LinkId::new(0),
            op: Op::Read,
            extent: Extent::new(0, bytes),
            fua: false,
            ordered: false,
            job: false,
        };
        let key = script.keys.insert(index);
        script.requests.insert(key, (request, now));
        script.policy.arrive(now, key, &request, Some(0));
        script.drain(now);
    }
    script.advance(Instant::from_nanos(end));
    (script.dispatched, script.switches)
}

/// The policy that a vector's name and options ask for.
fn choice(name: &str, options: &Value) -> Choice<weir_flow::control::Build> {
    let policy = name.split(' ').next().expect("a name has a word").to_lowercase();
    let mut choice = Choice::named(POLICIES, &policy).expect("the project has the policy");
    for (option, value) in options.as_object().expect("options are an object") {
        let (parameter, value) = match (option.as_str(), value.as_str()) {
            ("hwm_pct", None) => ("hwm", value.as_u64().expect("per cent")),
            ("lwm_pct", None) => ("lwm", value.as_u64().expect("per cent")),
            ("est", Some("p95")) => ("estimator", 1),
            ("off", Some("flush")) => ("release", 1),
            ("off", Some("leave")) => ("release", 2),
            ("rule", Some("own")) => ("watch", 1),
            other => panic!("the option {other:?} is not known"),
        };
        if policy != "ta1" {
            choice.set(parameter, value).expect("it is in range");
        }
    }
    if policy != "ta1" {
        choice.set("oldest", 0).expect("it is a switch");
    }
    choice
}

fn numbers<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).expect("numbers in the expected shape")
}

/// Every vector is met exactly: dispatch times, switches, nothing more.
#[test]
#[ignore = "needs WEIR_VECTORS"]
fn every_vector_is_met() {
    folder::read_all(
        "control",
        &[(".jsonl.zst", &long_vectors), ("-digests.json", &short_vectors)],
    );
}

/// The vectors of a file, one a line.
fn long_vectors(file: &str, text: &str) {
    for line in text.lines() {
        let vector: Value = serde_json::from_str(line).expect("it is JSON");
        let name = format!("{file}: {} seed {}", vector["name"], vector["seed"]);
        let tenants = vector["tenants"].as_array().expect("tenants are a list");
        let contract = |tenant: &Value| {
            let number = |field: &str| tenant[field].as_u64().expect("a number");
            Some(Contract::new(
                number("iops") as u32,
                number("size") as u32,
                Duration::from_nanos(number("rt_ns")),
            ))
        };
        let contracts: Vec<_> = tenants.iter().map(contract).collect();
        let longest = contracts.iter().flatten().map(|contract| contract.rows[0].response()).max();
        let end = 1_200_000_000 + longest.expect("a tenant").as_nanos();
        let choice = choice(vector["name"].as_str().expect("a name"), &vector["options"]);
        let device: Vec<(u64, u64)> = numbers(&vector["device_delay_ns"]);
        let arrivals: Vec<[u64; 3]> = numbers(&vector["arrivals"]);
        let (dispatched, switches) = run(&choice, &contracts, &device, &arrivals, end);
        let expected: Vec<[i64; 3]> = numbers(&vector["switches"]);
        let first = expected.iter().zip(&switches).position(|(a, b)| a != b);
        assert_eq!(switches, expected, "{name}: switches, first difference at {first:?}");
        let expected: Vec<i64> = numbers(&vector["dispatch_ns"]);
        assert_eq!(expected.len(), arrivals.len(), "{name}: an answer for each arrival");
        let first = expected.iter().zip(&dispatched).position(|(a, b)| a != b);
        assert_eq!(first.map(|i| (i, arrivals[i], expected[i], dispatched[i])), None, "{name}");
    }
}

/// A constant rate with jitter of 10 %, from a counter-mode `SplitMix64` stream.
fn constant(key: [u64; 5], rate: f64, segment: (f64, f64), out: &mut Vec<u64>) {
    let golden = 0x9e37_79b9_7f4a_7c15_u64;
    let seed = key.iter().fold(0, |seed, &part| mix(seed ^ mix((part + 1).wrapping_mul(golden))));
    for i in 1_u64.. {
        let bits = mix(seed.wrapping_add(i.wrapping_mul(golden)));
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let at = i as f64 / rate + (unit - 0.5) * 0.2 / rate;
        if at >= segment.1 {
            return;
        }
        out.push(((segment.0 + at) * 1e9).round_ties_even() as u64);
    }
}

/// The vectors of a list: digests of arrivals and dispatches, the first of each and of switches.
fn short_vectors(file: &str, text: &str) {
    let vectors: Vec<Value> = serde_json::from_str(text).expect("it is JSON");
    assert!(!vectors.is_empty(), "{file}: there is no vector in it");
    let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(41)));
    let mut arrivals = [Vec::new(), Vec::new()];
    constant([7, 1, 0, 0, 0], 3_000.0, (0.0, 1.2), &mut arrivals[0]);
    constant([7, 1, 1, 0, 0], 1_200.0, (0.0, 0.3), &mut arrivals[1]);
    constant([7, 1, 1, 1, 0], 3_000.0, (0.3, 0.9), &mut arrivals[1]);
    let mut all: Vec<[u64; 3]> = (0..)
        .zip(&arrivals)
        .flat_map(|(tenant, times)| times.iter().map(move |&at| [at, tenant, 4_096]))
        .collect();
    all.sort_unstable();
    let digest = |times: &[VecDeque<i64>]| {
        let fold = (0..).zip(times).flat_map(|(k, times)| times.iter().map(move |&t| t + 2 + k));
        format!("{:016x}", fold.fold(0, |h, word| mix(h ^ mix(word as u64))))
    };
    for vector in &vectors {
        let name = vector["name"].as_str().expect("a name");
        let mut options = serde_json::json!({ "hwm_pct": 85, "lwm_pct": 80 });
        for word in name.split(' ').skip(1) {
            match word {
                "leave" | "flush" => options["off"] = word.into(),
                "own" => options["rule"] = word.into(),
                "rule" => {}
                "p95/50ms" => options["est"] = "p95".into(),
                other => panic!("{other:?} is not known"),
            }
        }
        let contracts = [contract(3_500), contract(1_500)];
        let choice = choice(name, &options);
        let (dispatched, switches) = run(&choice, &contracts, &DEVICE, &all, 1_241_000_000);
        let mut times = [(); 2].map(|()| [VecDeque::new(), VecDeque::new()]);
        for (&[at, tenant, _], &sent) in all.iter().zip(&dispatched) {
            times[0][tenant as usize].push_back(signed(at));
            times[1][tenant as usize].push_back(sent);
        }
        for (kind, times) in ["first_arrival_ns", "first_dispatch_ns"].into_iter().zip(&times) {
            let firsts: Vec<Vec<i64>> = numbers(&vector[kind]);
            assert_eq!(firsts.len(), times.len(), "{file}: {name}: {kind}");
            for (firsts, times) in firsts.iter().zip(times) {
                assert!(times.iter().take(firsts.len()).eq(firsts), "{file}: {name}: {kind}");
            }
        }
        let counts: Vec<usize> = numbers(&vector["arrivals"]);
        assert_eq!(counts, times[0].each_ref().map(VecDeque::len), "{name}: arrivals");
        assert_eq!(vector["arrivals_digest"], digest(&times[0]), "{name}: arrivals");
        let expected: Vec<[i64; 3]> = numbers(&vector["switch_log_ns"]);
        assert_eq!(switches[..expected.len()], expected, "{name}: switches");
        assert_eq!(vector["n_switch"], switches.len(), "{name}: switches");
        let sent: Vec<usize> = numbers(&vector["dispatched"]);
        let count = |times: &VecDeque<i64>| times.iter().filter(|&&t| t >= 0).count();
        assert_eq!(sent, times[1].each_ref().map(count), "{name}: dispatched");
        assert_eq!(vector["digest"], digest(&times[1]), "{name}: dispatch times");
    }
}
