//! FOG against independent answers: every arrival, dispatch and end, with the virtual clocks.
//!
//! The answers are not part of the project. `WEIR_VECTORS` names the folder that has them.

use serde::Deserialize;
use slotmap::{Key, KeyData};
use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use weir_flow::clock::{Duration, Instant};
use weir_flow::dispatch::{DispatchPolicy, POLICIES, Setup, Stream, Weight, Work};
use weir_flow::policy::Choice;
use weir_flow::request::{BackendId, RequestKey, TenantId};

/// A line of the vectors; times in nanoseconds, virtual times in nanoseconds times 1024.
#[derive(Debug, Deserialize)]
#[serde(tag = "ev", rename_all = "lowercase", deny_unknown_fields)]
enum Event {
    Params {
        chips: usize,
        depth: u64,
        vshift: u32,
        wscale: u32,
        weights_fixed: Vec<u32>,
        reentry: String,
        nst: u64,
    },
    /// An operation comes; the clocks as they are then.
    Arr { t: u64, id: u64, s: u32, op: String, chip: u32, v: i64, svt: i64 },
    /// It goes to its chip; the stream's clock as it was before.
    Disp { t: u64, id: u64, chip: u32, vst: i64, nst: u64 },
    /// It ends; the stream's clock as it is then.
    Done { t: u64, id: u64, ast: u64, v: i64 },
    /// The clocks at the end.
    End { finish: Vec<String>, v: Vec<i64>, svt: i64 },
}

fn key(id: u64) -> RequestKey {
    RequestKey::from(KeyData::from_ffi((1 << 32) | id))
}

fn id(key: RequestKey) -> u64 {
    key.data().as_ffi() & u64::from(u32::MAX)
}

/// What plays the vectors against a policy.
struct Player {
    policy: Box<dyn DispatchPolicy>,
    chips: u32,
    nominal: Duration,
    works: BTreeMap<u64, Work>,
    now: u64,
}

impl Player {
    fn reading(&self, stream: TenantId) -> (i64, i64) {
        let reading = self.policy.reading(stream).expect("it has clocks");
        (reading.stream, reading.system)
    }

    fn at(&mut self, t: u64) -> Instant {
        assert!(t >= self.now, "time runs forward");
        self.now = t;
        Instant::from_nanos(t)
    }

    /// Nothing more may be sent than the vectors say.
    fn nothing_left(&mut self, line: usize) {
        let now = Instant::from_nanos(self.now);
        for chip in (0..self.chips).map(BackendId::new) {
            let next = self.policy.next(now, chip).map(|(key, _)| id(key));
            assert_eq!(next, None, "line {line}: {chip:?} gets an operation too early");
        }
    }

    fn play(&mut self, line: usize, event: &Event) {
        match *event {
            Event::Arr { t, id, s, ref op, chip, v, svt } => {
                assert!(["R", "P", "E"].contains(&op.as_str()), "line {line}: {event:?}");
                let (now, stream) = (self.at(t), TenantId::new(s));
                let work = Work {
                    key: key(id),
                    stream,
                    backend: BackendId::new(chip),
                    bytes: 4_096,
                    nominal: self.nominal,
                    request: key(id),
                    whole: self.nominal,
                };
                self.policy.arrive(now, &work);
                self.works.insert(id, work);
                assert_eq!(self.reading(stream), (v, svt), "line {line}: {event:?}");
            }
            Event::Disp { t, id: expected, chip, vst, nst } => {
                let now = self.at(t);
                let work = self.works[&expected];
                assert_eq!(self.nominal, Duration::from_nanos(nst));
                let before = self.reading(work.stream).0;
                let next = self.policy.next(now, BackendId::new(chip)).map(|(key, _)| id(key));
                assert_eq!((next, before), (Some(expected), vst), "line {line}: {event:?}");
            }
            Event::Done { t, id, ast, v } => {
                self.nothing_left(line);
                let now = self.at(t);
                self.policy.complete(now, key(id), Duration::from_nanos(ast));
                let work = self.works.remove(&id).expect("it has come");
                assert_eq!(self.reading(work.stream).0, v, "line {line}: {event:?}");
            }
            Event::Params { .. } | Event::End { .. } => panic!("line {line}: {event:?}"),
        }
    }
}

/// FOG answers as the vectors do, event for event, and its clocks show the same throughout.
#[test]
#[ignore = "needs WEIR_VECTORS"]
fn every_event_is_met() {
    let folder = PathBuf::from(env::var_os("WEIR_VECTORS").expect("WEIR_VECTORS names the folder"));
    let text = std::fs::read_to_string(folder.join("dispatch/golden.jsonl")).expect("it is there");
    let mut events =
        text.lines().map(|line| serde_json::from_str::<Event>(line).expect("as described"));
    let Some(Event::Params { chips, depth, vshift, wscale, weights_fixed, reentry, nst }) =
        events.next()
    else {
        panic!("the first line has the parameters");
    };
    assert_eq!((vshift, wscale, reentry.as_str()), (10, 1_024, "queue"), "as the policy has them");
    let stream = |&parts: &u32| Stream {
        weight: Weight::from_1024ths(parts).expect("a stream has a weight"),
        background: false,
    };
    let streams: Vec<_> = weights_fixed.iter().map(stream).collect();
    let mut choice = Choice::named(POLICIES, "fog").expect("the project has it");
    choice.set("depth", depth).expect("it is in range");
    let setup = Setup { backends: chips, streams: &streams };
    let mut player = Player {
        policy: (choice.policy().build)(choice.values(), &setup),
        chips: chips as u32,
        nominal: Duration::from_nanos(nst),
        works: BTreeMap::new(),
        now: 0,
    };
    let mut counts = [0; 3];
    for (index, event) in events.enumerate() {
        if let Event::End { finish, v, svt } = &event {
            assert_eq!(finish.len() + 1, v.len(), "every host's stream ends");
            player.nothing_left(index + 2);
            for (stream, &v) in v.iter().enumerate() {
                assert_eq!(player.reading(TenantId::new(stream as u32)), (v, *svt), "{stream}");
            }
            assert!(player.works.is_empty(), "everything has ended");
            assert_eq!(counts, [194; 3], "every event was played");
            return;
        }
        player.play(index + 2, &event);
        match event {
            Event::Arr { .. } => counts[0] += 1,
            Event::Disp { .. } => counts[1] += 1,
            _ => counts[2] += 1,
        }
    }
    panic!("the vectors have no end");
}
