//! FOG against independent answers: every arrival, dispatch and end, with the virtual clocks.
//!
//! The answers are not part of the project. `WEIR_VECTORS` names the folder that has them: in `dispatch/`,
//! `*.jsonl` are runs, each with its parameters first and its end last.

mod folder;

use serde::Deserialize;
use slotmap::{Key, KeyData};
use std::collections::BTreeMap;
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
    file: String,
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
            assert_eq!(
                next, None,
                "{}, line {line}: {chip:?} gets an operation too early",
                self.file
            );
        }
    }

    fn play(&mut self, line: usize, event: &Event) {
        match *event {
            Event::Arr { t, id, s, ref op, chip, v, svt } => {
                assert!(
                    ["R", "P", "E"].contains(&op.as_str()),
                    "{}, line {line}: {event:?}",
                    self.file
                );
                let (now, stream) = (self.at(t), TenantId::new(s));
                let work = Work {
                    key: key(id),
                    stream,
                    substream: None,
                    backend: BackendId::new(chip),
                    bytes: 4_096,
                    nominal: self.nominal,
                    request: key(id),
                    whole: self.nominal,
                };
                self.policy.arrive(now, &work);
                self.works.insert(id, work);
                assert_eq!(self.reading(stream), (v, svt), "{}, line {line}: {event:?}", self.file);
            }
            Event::Disp { t, id: expected, chip, vst, nst } => {
                let now = self.at(t);
                let work = self.works[&expected];
                assert_eq!(self.nominal, Duration::from_nanos(nst));
                let before = self.reading(work.stream).0;
                let next = self.policy.next(now, BackendId::new(chip)).map(|(key, _)| id(key));
                let answer = (Some(expected), vst);
                assert_eq!((next, before), answer, "{}, line {line}: {event:?}", self.file);
            }
            Event::Done { t, id, ast, v } => {
                self.nothing_left(line);
                let now = self.at(t);
                self.policy.complete(now, key(id), Duration::from_nanos(ast));
                let work = self.works.remove(&id).expect("it has come");
                let after = self.reading(work.stream).0;
                assert_eq!(after, v, "{}, line {line}: {event:?}", self.file);
            }
            Event::End { ref finish, ref v, svt } => {
                assert_eq!(finish.len() + 1, v.len(), "every host's stream ends");
                self.nothing_left(line);
                for (stream, &v) in v.iter().enumerate() {
                    let reading = self.reading(TenantId::new(stream as u32));
                    assert_eq!(reading, (v, svt), "{}, line {line}: stream {stream}", self.file);
                }
                assert!(
                    self.works.is_empty(),
                    "{}, line {line}: something has not ended",
                    self.file
                );
            }
            Event::Params { .. } => panic!("{}, line {line}: a run in a run", self.file),
        }
    }
}

/// FOG answers as the vectors do, event for event, and its clocks show the same throughout.
#[test]
#[ignore = "needs WEIR_VECTORS"]
fn every_event_is_met() {
    folder::read_all("dispatch", &[(".jsonl", &runs)]);
}

/// The runs of a file.
fn runs(file: &str, text: &str) {
    let mut player = None;
    for (line, text) in (1..).zip(text.lines()) {
        let event: Event = serde_json::from_str(text).expect("as described");
        match (&mut player, &event) {
            (None, Event::Params { .. }) => player = Some(begin(file, &event)),
            (None, _) => panic!("{file}, line {line}: a run begins with its parameters"),
            (Some(running), _) => {
                running.play(line, &event);
                if matches!(event, Event::End { .. }) {
                    player = None;
                }
            }
        }
    }
    assert!(player.is_none(), "{file}: a run has no end");
}

/// The policy of a run, before its first event.
fn begin(file: &str, event: &Event) -> Player {
    let Event::Params { chips, depth, vshift, wscale, weights_fixed, reentry, nst } = event else {
        unreachable!("the caller has matched it")
    };
    assert_eq!(
        (*vshift, *wscale, reentry.as_str()),
        (10, 1_024, "queue"),
        "as the policy has them"
    );
    let stream = |&parts: &u32| Stream {
        weight: Weight::from_1024ths(parts).expect("a stream has a weight"),
        background: false,
    };
    let streams: Vec<_> = weights_fixed.iter().map(stream).collect();
    let mut choice = Choice::named(POLICIES, "fog").expect("the project has it");
    choice.set("depth", *depth).expect("it is in range");
    let setup = Setup { backends: *chips, streams: &streams };
    Player {
        policy: (choice.policy().build)(choice.values(), &setup),
        file: file.to_owned(),
        chips: *chips as u32,
        nominal: Duration::from_nanos(*nst),
        works: BTreeMap::new(),
        now: 0,
    }
}
