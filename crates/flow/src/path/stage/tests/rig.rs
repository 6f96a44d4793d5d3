//! A small world: paths with a speed of their own, that can fail, be slow or be silent, and hosts that
//! ask. It watches over what must hold whatever happens.

use crate::accept::{Cap, Layout, Volume};
use crate::clock::{Duration, Instant};
use crate::control::Promises;
use crate::error::IoError;
use crate::event::{Event, Observer};
use crate::path::{Access, Change, POLICIES, PathOrder, Settings, State};
use crate::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies, StoreIo};
use crate::policy::Choice;
use crate::request::{BackendId, Op, Outcome, PathId, Request, RequestKey, Tag, VolumeId};
use crate::rng::Rng;
use crate::stage::Stage;
use crate::testing;
use crate::units::Extent;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

pub(super) const BACKEND: BackendId = BackendId::new(0);

/// Remembers what became of requests and paths.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) ended: Vec<(Tag, Outcome)>,
    pub(super) changes: Vec<(Instant, Change)>,
    pub(super) strays: u32,
}

impl Observer for Seen {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Completed(c) => self.ended.push((c.request.tag, c.outcome)),
            Event::Path(change) => self.changes.push((now, change)),
            Event::Stray => self.strays += 1,
            _ => {}
        }
    }
}

/// How a path fares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    /// Its session works.
    pub(super) up: bool,
    /// Nothing is answered.
    pub(super) silent: bool,
    /// Checks are answered and I/Os are not.
    pub(super) hung: bool,
    /// What hangs was not begun.
    pub(super) busy: bool,
    /// The factor by which I/Os take longer.
    pub(super) factor: u64,
    /// It does this many I/Os at once.
    pub(super) servers: usize,
    /// It does nothing before then.
    pub(super) resumes: Instant,
}

impl Fate {
    pub(super) const WELL: Self = Self {
        up: true,
        silent: false,
        hung: false,
        busy: false,
        factor: 1,
        servers: 1,
        resumes: Instant::ZERO,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    Ends(RequestKey, u64),
    Dead(RequestKey, u64),
    Answers(usize),
    Works(usize),
    Sent(RequestKey, u64),
    Arrives,
}

/// An I/O that the world has been given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) io: StoreIo,
    pub(super) at: Instant,
    pub(super) serial: u64,
}

pub(super) struct Rig {
    pub(super) pipeline: Pipeline<Seen>,
    pub(super) now: Instant,
    events: BTreeMap<(Instant, u64), Happens>,
    serial: u64,
    pub(super) rng: Rng,
    pub(super) fates: Vec<Fate>,
    /// When the servers of each path are free.
    free: Vec<Vec<Instant>>,
    /// Time of an I/O of no bytes, and of each KiB; random with that mean if asked for.
    pub(super) fixed: Duration,
    pub(super) per_kib: Duration,
    pub(super) random: bool,
    pub(super) given: BTreeMap<RequestKey, Given>,
    /// Tags of requests that change something and are on a path, or were and may have been done.
    unsure: BTreeMap<Tag, PathId>,
    /// When requests came.
    pub(super) came: BTreeMap<Tag, Instant>,
    /// Requests that have ended: when they came and when they ended.
    pub(super) done: Vec<(Instant, Instant, Op)>,
    pub(super) tags: u64,
    pub(super) read_percent: u64,
    /// The sizes that requests have, in KiB.
    pub(super) sizes: Vec<u64>,
    /// A host that waits for the end of one request asks for the next.
    pub(super) loops: bool,
    /// When I/Os started on paths.
    pub(super) starts: Vec<(Instant, usize, u32)>,
    pub(super) resets: u32,
    pub(super) recalls: u32,
    pub(super) abandoned: u32,
}

impl Rig {
    pub(super) fn new(groups: &[u32], settings: Settings) -> Self {
        Self::with("round-robin", groups, settings)
    }

    pub(super) fn with(policy: &str, groups: &[u32], settings: Settings) -> Self {
        let path = Choice::named(POLICIES, policy).unwrap();
        let mut policies = Policies { path, ..Policies::default() };
        policies.dispatch.set("depth", 4_096).unwrap();
        let capacity = 1 << 40;
        let config = Config {
            volumes: vec![Volume {
                capacity,
                layout: Layout::One(BACKEND),
                max_transfer: u64::MAX,
                cap: Cap::default(),
            }],
            backends: vec![Backend { groups: groups.to_vec() }],
            promises: Promises::default(),
            shares: crate::dispatch::Shares::default(),
            limits: Limits { max_bytes: 1 << 40, max_tenant_bytes: 1 << 40, ..Limits::default() },
            paths: settings,
            cache: crate::cache::Settings::default(),
            policies,
        };
        Self {
            pipeline: Pipeline::new(&config, Seen::default()),
            now: Instant::ZERO,
            events: BTreeMap::new(),
            serial: 0,
            rng: Rng::stream(7, "rig"),
            fates: vec![Fate::WELL; groups.len()],
            free: vec![Vec::new(); groups.len()],
            fixed: Duration::from_micros(200),
            per_kib: Duration::from_micros(1),
            random: false,
            given: BTreeMap::new(),
            unsure: BTreeMap::new(),
            came: BTreeMap::new(),
            done: Vec::new(),
            tags: 0,
            read_percent: 50,
            sizes: vec![4, 4, 4, 64],
            loops: false,
            starts: Vec::new(),
            resets: 0,
            recalls: 0,
            abandoned: 0,
        }
    }

    /// Starts `count` hosts, each of which asks as soon as it has its answer.
    pub(super) fn hosts(&mut self, count: u32) {
        self.loops = true;
        for _ in 0..count {
            self.happens(Duration::ZERO, Happens::Arrives);
        }
    }

    /// A request comes after this time.
    pub(super) fn arrives_in(&mut self, after: Duration) {
        self.happens(after, Happens::Arrives);
    }

    fn happens(&mut self, after: Duration, what: Happens) {
        self.serial += 1;
        self.events.insert((self.now + after, self.serial), what);
    }

    /// Lets things happen until then.
    pub(super) fn run_until(&mut self, until: Instant) {
        loop {
            let event = self.events.first_key_value().map_or(until, |(&(at, _), _)| at);
            let deadline = self.pipeline.next_deadline().unwrap_or(until);
            let next = event.min(deadline);
            if next >= until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            if deadline <= event {
                self.pipeline.handle_deadline(self.now);
                self.act();
                continue;
            }
            let (_, what) = self.events.pop_first().expect("it was seen above");
            self.happen(what);
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn happen(&mut self, what: Happens) {
        let path = |path: usize| PathId::new(path as u32);
        match what {
            Happens::Arrives => self.arrive(),
            Happens::Sent(key, bytes) => self.input(Input::Sent { key, bytes }),
            Happens::Works(index) if self.fates[index].up && !self.fates[index].silent => {
                self.input(Input::PathUp(BACKEND, path(index)));
            }
            // It is tried again and again.
            Happens::Works(_) => self.happens(Duration::from_millis(100), what),
            Happens::Answers(index) if self.fates[index].up && !self.fates[index].silent => {
                self.input(Input::Checked(BACKEND, path(index)));
            }
            Happens::Answers(_) => {}
            Happens::Ends(key, serial) | Happens::Dead(key, serial) => {
                let Some(given) = self.given.get(&key).filter(|given| given.serial == serial)
                else {
                    return;
                };
                let fate = self.fates[given.io.path.index()];
                let dead = matches!(what, Happens::Dead(..));
                if !dead && !fate.up {
                    return;
                }
                if !dead && fate.resumes > self.now {
                    self.happens(fate.resumes.since(self.now), what);
                    return;
                }
                if !dead && (fate.silent || fate.hung) {
                    // It comes when the path speaks again.
                    self.happens(Duration::from_millis(10), what);
                    return;
                }
                let given = self.given.remove(&key).expect("it was seen above");
                self.unsure.remove(&given.io.tag);
                let outcome = if dead { Err(IoError::PathFailed) } else { Ok(()) };
                self.input(Input::Stored { key, outcome });
            }
        }
    }

    fn arrive(&mut self) {
        self.tags += 1;
        let tag = Tag(self.tags);
        let read = self.rng.below(100) < self.read_percent;
        let size = self.sizes[self.rng.below(self.sizes.len() as u64) as usize] << 10;
        let extent = Extent::new(self.tags << 20 & ((1 << 40) - 1), size);
        let op = if read { Op::Read } else { Op::Write };
        self.came.insert(tag, self.now);
        let volume = VolumeId::new(0);
        self.input(Input::Arrive(Request { volume, op, extent, ..testing::request(tag.0) }));
    }

    pub(super) fn input(&mut self, input: Input) {
        self.pipeline.handle(self.now, input);
        self.act();
    }

    pub(super) fn order(&mut self, order: PathOrder) {
        self.input(Input::PathOrder(BACKEND, order));
    }

    pub(super) fn access(&mut self, path: u32, access: Access) {
        self.input(Input::PathAccess(BACKEND, PathId::new(path), access));
    }

    /// The session of a path is lost: what is on it is dead after a moment.
    pub(super) fn cut(&mut self, path: u32) {
        self.fates[path as usize].up = false;
        self.input(Input::PathDown(BACKEND, PathId::new(path)));
        self.kill(path as usize);
    }

    pub(super) fn mend(&mut self, path: u32) {
        self.fates[path as usize].up = true;
        self.input(Input::PathUp(BACKEND, PathId::new(path)));
    }

    /// A path does nothing for this long.
    pub(super) fn pause(&mut self, path: usize, time: Duration) {
        self.fates[path].resumes = self.now + time;
    }

    /// The gateway's machine does nothing for this long: whatever happens meanwhile is seen afterwards.
    pub(super) fn pause_machine(&mut self, time: Duration) {
        self.now += time;
    }

    /// How often a path was ejected from then on.
    pub(super) fn ejections(&self, from: Instant) -> usize {
        let changes = self.pipeline.observer().changes.iter();
        changes.filter(|(at, change)| *at >= from && change.state == State::Ejected).count()
    }

    /// Reads hang on a path, so that it is ejected whatever the selector thinks of it; then it is slow.
    pub(super) fn eject(&mut self, path: usize) {
        let read_percent = core::mem::replace(&mut self.read_percent, 100);
        self.run_for(Duration::from_millis(200));
        self.fates[path].hung = true;
        self.run_for(Duration::from_secs(2));
        assert_eq!(self.state(path as u32), State::Ejected);
        (self.fates[path].hung, self.fates[path].factor) = (false, 50);
        (self.read_percent, self.abandoned) = (read_percent, 0);
    }

    fn kill(&mut self, path: usize) {
        let on_path = self.given.iter().filter(|(_, given)| given.io.path.index() == path);
        let mut dead: Vec<_> = on_path.map(|(&key, given)| (given.serial, key)).collect();
        dead.sort_unstable();
        for (_, key) in dead {
            // No other end of it counts any more.
            self.serial += 1;
            let serial = self.serial;
            self.given.get_mut(&key).expect("it is on the path").serial = serial;
            self.happens(Duration::from_millis(1), Happens::Dead(key, serial));
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.pipeline.poll(self.now) {
            match action {
                Action::Store(io) => self.store(io),
                Action::Transfer { key, tag, part, .. } => {
                    assert!(!self.unsure.contains_key(&tag), "answered while it may still run");
                    self.happens(Duration::ZERO, Happens::Sent(key, part.length));
                    if !part.last {
                        continue;
                    }
                    let came = self.came.remove(&tag).expect("a request is answered once");
                    self.done.push((came, self.now, Op::Read));
                    if self.loops {
                        self.happens(Duration::from_nanos(1), Happens::Arrives);
                    }
                }
                Action::Refuse { tag } => panic!("{tag:?} is one too many"),
                Action::Cache(work) => panic!("nothing is cached here: {work:?}"),
                Action::Check { path, .. } => {
                    self.happens(Duration::from_micros(100), Happens::Answers(path.index()));
                }
                Action::Abandon { key, path, .. } => {
                    let given = self.given.remove(&key).expect("what is abandoned is there");
                    assert_eq!((given.io.op, given.io.path), (Op::Read, path));
                    self.abandoned += 1;
                }
                Action::Recall { key, path, .. } => {
                    let given = self.given.get(&key).expect("what is recalled is there");
                    assert_eq!(given.io.path, path);
                    self.recalls += 1;
                    if self.fates[path.index()].busy {
                        self.cut(path.index() as u32);
                        self.fates[path.index()].up = true;
                        self.happens(Duration::from_millis(100), Happens::Works(path.index()));
                    }
                }
                Action::Reset { path, .. } => {
                    self.resets += 1;
                    self.kill(path.index());
                    self.happens(Duration::from_millis(100), Happens::Works(path.index()));
                }
            }
        }
    }

    fn store(&mut self, io: StoreIo) {
        if io.op.writes() {
            let before = self.unsure.insert(io.tag, io.path);
            assert_eq!(before, None, "a write is on the wire twice");
        }
        self.serial += 1;
        let (path, serial) = (io.path.index(), self.serial);
        let before = self.given.insert(io.key, Given { io, at: self.now, serial });
        assert!(before.is_none(), "an I/O is on one path");
        let on_path = self.given.values().filter(|given| given.io.path == io.path).count();
        self.starts.push((self.now, path, on_path as u32));
        let mut time = self.fixed + self.per_kib * (io.extent.length >> 10);
        if self.random {
            time = Duration::from_nanos(self.rng.below(time.as_nanos() * 2) + 1);
        }
        let (free, fate) = (&mut self.free[path], self.fates[path]);
        free.retain(|&at| at > self.now);
        free.sort_unstable();
        let begin =
            if free.len() < fate.servers { self.now } else { free[free.len() - fate.servers] };
        let end = begin.max(fate.resumes) + time * fate.factor;
        free.push(end);
        let what = if fate.up {
            (end, Happens::Ends(io.key, serial))
        } else {
            (self.now + Duration::from_millis(1), Happens::Dead(io.key, serial))
        };
        self.events.insert((what.0, serial), what.1);
    }

    pub(super) fn state(&self, path: u32) -> State {
        self.pipeline.paths(self.now).nth(path as usize).expect("there is such a path").state
    }

    /// Every path's I/Os as the pipeline counts them are those that the world has.
    pub(super) fn check_counts(&self) {
        for view in self.pipeline.paths(self.now) {
            let here = self.given.values().filter(|given| given.io.path == view.path);
            let (mut count, mut bytes, mut oldest) = (0, 0, Duration::ZERO);
            for given in here {
                count += 1;
                bytes += given.io.extent.length;
                oldest = oldest.max(self.now.since(given.at));
            }
            assert_eq!((view.in_flight, view.bytes, view.oldest), (count, bytes, oldest));
        }
    }

    /// The longest that a request took of those that ended from then on; what it waited before does
    /// not count.
    pub(super) fn longest_from(&self, from: Instant) -> Duration {
        let took = |&(came, ended, _): &(Instant, Instant, Op)| ended.since(came.max(from));
        let ended = self.done.iter().filter(|done| done.1 >= from).map(took).max();
        let open = self.came.values().map(|&came| self.now.since(came.max(from))).max();
        ended.max(open).unwrap_or(Duration::ZERO)
    }

    /// When a path came into this state for the first time from then on.
    pub(super) fn became(&self, from: Instant, path: u32, state: State) -> Option<Instant> {
        let changes = &self.pipeline.observer().changes;
        let is = |&&(at, change): &&(Instant, Change)| {
            at >= from && change.path == PathId::new(path) && change.state == state
        };
        changes.iter().find(is).map(|&(at, _)| at)
    }

    /// The share of I/Os that started on a path in a stretch of time, in percent.
    pub(super) fn share(&self, path: usize, from: Instant, until: Instant) -> u64 {
        let inside = self.starts.iter().filter(|start| start.0 >= from && start.0 < until);
        let (mut all, mut here) = (0, 0);
        for start in inside {
            all += 1;
            here += u64::from(start.1 == path);
        }
        here * 100 / u64::max(all, 1)
    }
}
