//! How often healthy paths are ejected, and how soon slow ones: the gateway's path stage over two equal paths whose
//! machines, drives and switches pause now and then.
//!
//! Unlike the other experiments on paths this one drives `weir_flow::Pipeline`, since ejection is the stage's work,
//! not that of a selector. Its event loop is not that of `weir sim`, which has slow and silent paths, but no pauses by
//! the thousand, and none of the gateway's own thread.

use super::noise::{Pauses, Source};
use crate::Settings;
use serde::Serialize;
use slotmap::SecondaryMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::accept::{Cap, Layout, Volume};
use weir_flow::clock::Instant;
use weir_flow::control::Promises;
use weir_flow::error::IoError;
use weir_flow::event::{Event, Observer};
use weir_flow::path::{self, POLICIES, State};
use weir_flow::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies, StoreIo};
use weir_flow::policy::Choice;
use weir_flow::request::{
    BackendId, LinkId, Op, PathId, Request, RequestKey, Tag, TenantId, VolumeId,
};
use weir_flow::rng::Rng;
use weir_flow::stage::Stage;
use weir_flow::units::Extent;
use weir_sim::cores;

/// Healthy paths under one selector.
#[derive(Clone, Debug, Serialize)]
pub struct CalmRow {
    /// The selector.
    pub selector: &'static str,
    /// Simulated hours; there are two paths.
    pub hours: f64,
    /// I/Os that were done.
    pub ios: u64,
    /// How often a path was ejected as slow.
    pub ejections: u64,
    /// How often a path was left for a moment because it was silent, or one I/O hung: the pauses of 0.2 s and more.
    pub silent: u64,
}

/// A path that is slow for ten seconds, under one selector.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRow {
    /// The selector.
    pub selector: &'static str,
    /// How many times slower.
    pub factor: u64,
    /// How many runs.
    pub runs: u32,
    /// Runs in which it was ejected.
    pub ejected: u32,
    /// Seconds until it got a tenth of the I/Os or less, for good: the median and the longest. 10 is never.
    pub left_s: (f64, f64),
    /// Seconds from its repair until it was in use again, 0 if it was never out: the median and the longest. 20 is
    /// never.
    pub back_s: (f64, f64),
}

/// Runs both experiments: the healthy paths in runs of ten minutes, of which `seeds` says how many.
pub(super) fn run(
    settings: Settings,
    progress: &(dyn Fn(f64) + Sync),
) -> (Vec<CalmRow>, Vec<SlowRow>) {
    let mut jobs = Vec::new();
    for selector in POLICIES.iter().map(|policy| policy.name) {
        jobs.extend(settings.seeds(CALM_RUNS).map(|seed| (selector, 1, seed)));
        for factor in FACTORS {
            jobs.extend(settings.seeds(SLOW_RUNS).map(|seed| (selector, factor, seed)));
        }
    }
    let found = cores::run(&jobs, progress, |&(selector, factor, seed)| {
        let mut world = World::new(selector, seed, factor == 1);
        if factor == 1 {
            world.rest();
        } else {
            world.slow_down(factor);
        }
        world.found()
    });
    let runs = |selector, factor| {
        let pairs = jobs.iter().zip(&found);
        pairs
            .filter(move |((name, slower, _), _)| (*name, *slower) == (selector, factor))
            .map(|(_, found)| found)
    };
    let mut calm = Vec::new();
    let mut slow = Vec::new();
    for selector in POLICIES.iter().map(|policy| policy.name) {
        let sum = |figure: fn(&Found) -> u64| runs(selector, 1).map(figure).sum::<u64>();
        let hours = runs(selector, 1).count() as f64 * CALM_S as f64 / 3_600.0;
        calm.push(CalmRow {
            selector,
            hours,
            ios: sum(|run| run.ios),
            ejections: sum(|run| run.ejections),
            silent: sum(|run| run.silent),
        });
        for factor in FACTORS {
            slow.push(SlowRow {
                selector,
                factor,
                runs: runs(selector, factor).count() as u32,
                ejected: runs(selector, factor).filter(|run| run.ejections > 0).count() as u32,
                left_s: spread(runs(selector, factor).map(|run| run.left_s)),
                back_s: spread(runs(selector, factor).map(|run| run.back_s)),
            });
        }
    }
    (calm, slow)
}

/// The median and the largest.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

/// What a run found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    ios: u64,
    ejections: u64,
    silent: u64,
    left_s: f64,
    back_s: f64,
}

/// Counts what becomes of paths.
#[derive(Debug)]
struct Counter {
    ejections: u64,
    silent: u64,
    /// When the second path came into use last; `None` while it is out of use.
    in_use: Option<Instant>,
}

impl Observer for Counter {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        if let Event::Path(change) = event {
            // A single I/O that hangs is no judgement on the speed.
            let judged = change.grounds.is_some_and(|grounds| grounds.events > 1);
            self.ejections += u64::from(judged);
            let silent = change.state == State::Ejected || change.state == State::Failed;
            self.silent += u64::from(silent && !judged && change.from.is_usable());
            if change.path == SECOND_PATH && change.from.is_usable() != change.state.is_usable() {
                self.in_use = change.state.is_usable().then_some(now);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Arrives(u32),
    Ends(RequestKey, u64),
    Dead(RequestKey, u64),
    Answers(u32),
    Works(u32),
}

/// A path to the storage: [`SERVERS`] servers, each of which does one I/O at a time.
#[derive(Debug)]
struct Line {
    pauses: Pauses,
    free: [u64; SERVERS],
    factor: u64,
}

/// The gateway with its paths, hosts and storage. Times are nanoseconds.
struct World {
    pipeline: Pipeline<Counter>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    serial: u64,
    rng: Rng,
    gateway: Pauses,
    lines: [Line; 2],
    /// I/Os that the storage has, with their path and number.
    given: SecondaryMap<RequestKey, (u32, u64)>,
    /// Whether hosts mostly think between two requests.
    rests: bool,
    /// I/Os that started, by tenth of a second and path.
    starts: Vec<[u64; 2]>,
    ios: u64,
    left_s: f64,
    back_s: f64,
}

impl CalmRow {
    /// Days of a path.
    pub(super) fn days(&self) -> f64 {
        self.hours / 24.0 * 2.0
    }

    /// How often a path is ejected in a day.
    pub(super) fn ejections_in_a_day(&self) -> f64 {
        self.ejections as f64 / self.days()
    }
}

impl World {
    fn new(selector: &str, seed: u64, rests: bool) -> Self {
        let path = Choice::named(POLICIES, selector).expect("a policy of the list");
        let config = Config {
            volumes: vec![Volume {
                capacity: 1 << 40,
                layout: Layout::One(BackendId::new(0)),
                max_transfer: u64::MAX,
                cap: Cap::default(),
            }],
            backends: vec![Backend::alike(2)],
            promises: Promises::default(),
            shares: weir_flow::dispatch::Shares::default(),
            limits: Limits::default(),
            paths: path::Settings::default(),
            cache: weir_flow::cache::Settings::default(),
            policies: Policies { path, ..Policies::default() },
        };
        let line = |path| Line {
            pauses: Pauses::new(Source::Path(path), seed),
            free: [0; SERVERS],
            factor: 1,
        };
        let mut world = Self {
            pipeline: Pipeline::new(
                &config,
                Counter { ejections: 0, silent: 0, in_use: Some(Instant::ZERO) },
            ),
            now: 0,
            events: BinaryHeap::new(),
            serial: 0,
            rng: Rng::stream(seed, "path/ejection"),
            gateway: Pauses::new(Source::Gateway, seed),
            lines: [line(0), line(1)],
            given: SecondaryMap::new(),
            rests,
            starts: Vec::new(),
            ios: 0,
            left_s: 0.0,
            back_s: 0.0,
        };
        for host in 0..HOSTS {
            world.happens(0, Happens::Arrives(host));
        }
        world
    }

    fn found(self) -> Found {
        let &Counter { ejections, silent, .. } = self.pipeline.observer();
        Found { ios: self.ios, ejections, silent, left_s: self.left_s, back_s: self.back_s }
    }

    /// Ten minutes in which nothing is wrong but pauses.
    fn rest(&mut self) {
        self.run_until(CALM_S * SECOND);
    }

    /// The second path is `factor` times slower from [`HEALTHY_S`] on, for [`SLOW_S`].
    fn slow_down(&mut self, factor: u64) {
        self.run_until(HEALTHY_S * SECOND);
        self.lines[1].factor = factor;
        self.run_until((HEALTHY_S + SLOW_S) * SECOND);
        self.lines[1].factor = 1;
        self.run_until((HEALTHY_S + 3 * SLOW_S) * SECOND);
        let share = |&[first, second]: &[u64; 2]| second as f64 / (first + second).max(1) as f64;
        let (fault, repair) = (HEALTHY_S as usize * 10, (HEALTHY_S + SLOW_S) as usize * 10);
        let during = &self.starts[fault..repair];
        self.left_s = during
            .iter()
            .rposition(|tenth| share(tenth) > LEFT)
            .map_or(0.0, |at| (at + 1) as f64 / 10.0);
        let repaired = Instant::from_nanos((HEALTHY_S + SLOW_S) * SECOND);
        let in_use = self.pipeline.observer().in_use;
        self.back_s =
            in_use.map_or(2.0 * SLOW_S as f64, |at| at.since(at.min(repaired)).as_secs_f64());
    }

    fn happens(&mut self, at: u64, what: Happens) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, what)));
    }

    fn run_until(&mut self, until: u64) {
        loop {
            let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let deadline = self.pipeline.next_deadline().map_or(u64::MAX, Instant::as_nanos);
            let next = event.min(deadline).max(self.now);
            // The gateway's thread sees nothing before its pause is over.
            self.gateway.forget(self.now);
            let seen = self.gateway.end(next, 0);
            if seen >= until {
                return;
            }
            self.now = seen;
            if deadline <= event {
                self.pipeline.handle_deadline(Instant::from_nanos(self.now));
                self.act();
            } else if let Some(Reverse((_, _, what))) = self.events.pop() {
                self.happen(what);
            }
        }
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Arrives(host) => self.arrive(host),
            Happens::Answers(path) => self.input(Input::Checked(BACKEND, PathId::new(path))),
            Happens::Works(path) => self.input(Input::PathUp(BACKEND, PathId::new(path))),
            Happens::Ends(key, serial) | Happens::Dead(key, serial) => {
                if self.given.get(key).is_none_or(|&(_, given)| given != serial) {
                    return;
                }
                self.given.remove(key);
                let dead = matches!(what, Happens::Dead(..));
                self.input(Input::Stored {
                    key,
                    outcome: if dead { Err(IoError::PathFailed) } else { Ok(()) },
                });
            }
        }
    }

    fn arrive(&mut self, host: u32) {
        self.ios += 1;
        let sizes = SIZES[(self.now / SIZES_CHANGE) as usize % SIZES.len()];
        let length = sizes[self.rng.below(sizes.len() as u64) as usize];
        let extent = Extent::new((self.ios << 20) & ((1 << 40) - 1), length);
        let op = if self.rng.below(2) == 0 { Op::Read } else { Op::Write };
        self.input(Input::Arrive(Request {
            tag: Tag(u64::from(host)),
            tenant: TenantId::new(0),
            volume: VolumeId::new(0),
            link: LinkId::new(0),
            op,
            extent,
            fua: false,
            ordered: false,
            job: false,
        }));
    }

    fn input(&mut self, input: Input) {
        self.pipeline.handle(Instant::from_nanos(self.now), input);
        self.act();
    }

    fn act(&mut self) {
        let now = Instant::from_nanos(self.now);
        while let Some(action) = self.pipeline.poll(now) {
            match action {
                Action::Store(io) => self.store(io),
                Action::Transfer { key, tag, part, .. } => {
                    self.pipeline.handle(now, Input::Sent { key, bytes: part.length });
                    if part.last {
                        let think = self.think();
                        self.happens(self.now + think, Happens::Arrives(tag.0 as u32));
                    }
                }
                Action::Check { path, .. } => {
                    let path = path.index();
                    let answer = self.lines[path].pauses.end(self.now, CHECK);
                    self.happens(answer, Happens::Answers(path as u32));
                }
                Action::Abandon { key, .. } => {
                    self.given.remove(key);
                }
                Action::Reset { path, .. } => {
                    let path = path.index() as u32;
                    let on_path = self.given.iter().filter(|(_, given)| given.0 == path);
                    let dead: Vec<_> = on_path.map(|(key, &(_, serial))| (key, serial)).collect();
                    for (key, serial) in dead {
                        self.happens(self.now + CHECK, Happens::Dead(key, serial));
                    }
                    self.happens(self.now + RECONNECT, Happens::Works(path));
                }
                Action::Recall { .. } => {}
                Action::Refuse { .. } | Action::Cache(_) => {
                    unreachable!("so few are never too many, nor cached")
                }
            }
        }
    }

    /// How long a host waits before its next request.
    fn think(&mut self) -> u64 {
        let mean = match self.rests {
            true if self.now % LOAD_EVERY < LOAD => 0.0,
            true => 80e6,
            false => 1e6,
        };
        (-libm::log(1.0 - self.rng.unit()) * mean) as u64
    }

    fn store(&mut self, io: StoreIo) {
        self.serial += 1;
        let (path, serial) = (io.path.index(), self.serial);
        self.given.insert(io.key, (path as u32, serial));
        let tenth = (self.now / (SECOND / 10)) as usize;
        if !self.rests {
            if self.starts.len() <= tenth {
                self.starts.resize(tenth + 1, [0; 2]);
            }
            self.starts[tenth][path] += 1;
        }
        let line = &mut self.lines[path];
        line.pauses.forget(self.now);
        let chance = 0.6 - 0.4 * libm::log(1.0 - self.rng.unit());
        let service = ((FIXED as f64 * chance) as u64 + io.extent.length * PER_BYTE) * line.factor;
        let free = line.free.iter_mut().min().expect("there are servers");
        *free = line.pauses.end(self.now.max(*free), service);
        let end = *free;
        self.events.push(Reverse((end, serial, Happens::Ends(io.key, serial))));
    }
}

const BACKEND: BackendId = BackendId::new(0);
const SECOND: u64 = 1_000_000_000;

/// Hosts, each of which has one request outstanding.
const HOSTS: u32 = 8;

/// I/Os that a path does at once.
const SERVERS: usize = 4;

/// The mean time of an I/O of no bytes, and the time for each byte.
const FIXED: u64 = 300_000;
const PER_BYTE: u64 = 1;

/// How long a check, or the end of a session, takes.
const CHECK: u64 = 100_000;

/// How long it takes to connect again.
const RECONNECT: u64 = 100_000_000;

/// A second of every minute the hosts do not think.
const LOAD: u64 = SECOND;
const LOAD_EVERY: u64 = 60 * SECOND;

/// The sizes of requests, and how long they stay the same.
const SIZES: [&[u64]; 5] = [&[4_096], &[65_536], &[4_096, 65_536], &[1 << 20], &[4_096, 1 << 20]];
const SIZES_CHANGE: u64 = 700_000_000;

/// Seconds of a run with healthy paths, and how many there are for each selector: 24 hours.
const CALM_S: u64 = 600;
const CALM_RUNS: u32 = 144;

/// How many times slower a path becomes, after how many seconds, for how many.
pub(super) const FACTORS: [u64; 3] = [20, 5, 3];
const HEALTHY_S: u64 = 5;
const SLOW_S: u64 = 10;
const SLOW_RUNS: u32 = 10;

/// The share of the I/Os below which a path has been left.
const LEFT: f64 = 0.1;

/// The path that becomes slow.
const SECOND_PATH: PathId = PathId::new(1);
