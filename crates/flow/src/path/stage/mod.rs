//! The stage itself: which requests are on which path, and what has to be done about it.
//!
//! Everything that happens ends in [`Ways::settle`], which decides from what is known which paths
//! are usable, which group is in use and which of its paths take I/O, tells the selectors and the
//! observers, and lets go who waits.

mod group;
mod health;
mod hold;
mod pace;
mod slow;
#[cfg(test)]
mod tests;
mod way;

use super::{
    Access, Build, Change, PathIo, PathOrder, PathPolicy, RULE_NONE_LEFT, Settings, Speed, View,
    Why,
};
use crate::clock::{Duration, Instant};
use crate::pipeline::{Action, Backend};
use crate::policy::{Choice, Rule};
use crate::request::{BackendId, PathId, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hold::Hold;
use pace::Shape;
use slotmap::SecondaryMap;
use way::{Finding, Way};

/// Stage 5.
pub(crate) struct Paths {
    backends: Vec<Ways>,
    core: Core,
}

/// What all backends share.
struct Core {
    settings: Settings,
    /// How long a request waits for a path.
    patience: Duration,
    ios: SecondaryMap<RequestKey, Io>,
    /// I/Os that have come to this stage.
    entered: u64,
    steps: VecDeque<Step>,
    /// Nothing is due before then.
    wake: Instant,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The I/O starts on this path; the rule had held it until now.
    Go(RequestKey, PathId, Rule),
    /// The I/O on this path is to be forgotten. It waits for another path.
    Abandon(RequestKey, BackendId, PathId),
    /// No path was there for too long.
    NoPath(RequestKey),
    /// Ask the world: whether anybody is there, to recall an I/O, to give the path up.
    Ask(Action),
    /// Tell observers.
    Tell(Change),
}

/// An I/O that is in this stage or on a path.
#[derive(Clone, Copy, Debug)]
struct Io {
    /// Its place in the order of arrival.
    order: u64,
    backend: usize,
    /// What selectors are told of it.
    told: PathIo,
    /// How often it has been sent another way because it was overdue.
    retries: u32,
    /// Since when it waits, or has been on its path.
    since: Instant,
    /// Its path; `None` while it waits.
    path: Option<usize>,
    /// It was sent to an ejected path, to see how that fares.
    probe: bool,
    /// Its neighbours on the path.
    before: Option<RequestKey>,
    behind: Option<RequestKey>,
}

/// A backend with its paths.
struct Ways {
    id: BackendId,
    /// The numbers of the groups, best first.
    groups: Vec<u32>,
    /// A selector for each of them, over all paths of the backend.
    selectors: Vec<Box<dyn PathPolicy>>,
    /// The group in use.
    current: usize,
    /// Since when a better group could be used.
    better_since: Option<Instant>,
    paths: Vec<Way>,
    shape: Shape,
    /// Paths that may be probed.
    ejected: u32,
    hold: Hold,
    /// Nothing is due here before then.
    wake: Instant,
}

impl Paths {
    /// `patience` is how long a request waits for a path before it ends with
    /// [`NoPath`](crate::error::IoError::NoPath).
    pub(crate) fn new(
        choice: &Choice<Build>,
        backends: &[Backend],
        settings: &Settings,
        patience: Duration,
    ) -> Self {
        let ways = |(index, backend)| Ways::new(index, backend, choice, settings);
        let mut paths = Self {
            backends: (0..).zip(backends).map(ways).collect(),
            core: Core {
                settings: *settings,
                patience,
                ios: SecondaryMap::new(),
                entered: 0,
                steps: VecDeque::new(),
                wake: FAR,
            },
        };
        for ways in &mut paths.backends {
            ways.plan(&mut paths.core, Instant::ZERO);
        }
        paths
    }

    /// What is to be done next, at once.
    pub(crate) fn poll(&mut self) -> Option<Step> {
        self.core.steps.pop_front()
    }

    /// An I/O comes from dispatch.
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        key: RequestKey,
        backend: BackendId,
        told: PathIo,
    ) {
        let core = &mut self.core;
        core.entered += 1;
        let io = Io {
            order: core.entered,
            backend: backend.index(),
            told,
            retries: 0,
            since: now,
            path: None,
            probe: false,
            before: None,
            behind: None,
        };
        core.ios.insert(key, io);
        let ways = &mut self.backends[backend.index()];
        ways.hold.push(key);
        ways.release(core, now);
        if !ways.hold.is_empty() {
            ways.arm(core, now + core.patience);
        }
    }

    /// An I/O has ended on its path, and was answered.
    pub(crate) fn answered(&mut self, now: Instant, key: RequestKey) {
        let io = self.core.ios[key];
        self.backends[io.backend].answered(&mut self.core, now, key);
    }

    /// An I/O is dead because of its path; it goes another way.
    pub(crate) fn lost(&mut self, now: Instant, key: RequestKey) {
        let io = self.core.ios[key];
        self.backends[io.backend].lost(&mut self.core, now, key);
    }

    /// An I/O leaves this stage for good.
    pub(crate) fn leave(&mut self, key: RequestKey) {
        self.core.ios.remove(key);
    }

    /// The world says that a path does not work.
    pub(crate) fn down(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let ways = &mut self.backends[backend.index()];
        ways.take_down(path.index(), Why::LinkLost);
        ways.settle(&mut self.core, now);
    }

    /// The world says that a path works.
    pub(crate) fn up(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let ways = &mut self.backends[backend.index()];
        let way = &mut ways.paths[path.index()];
        if way.down.take().is_some() {
            (way.up_since, way.heard, way.back) = (now, now, Why::Repaired);
        }
        ways.settle(&mut self.core, now);
    }

    /// The target says what a path is good for.
    pub(crate) fn access(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: PathId,
        access: Access,
    ) {
        let ways = &mut self.backends[backend.index()];
        let way = &mut ways.paths[path.index()];
        if access.is_accessible() && !way.access.is_accessible() {
            way.back = Why::ByTarget;
        }
        way.access = access;
        ways.settle(&mut self.core, now);
    }

    /// A check was answered.
    pub(crate) fn checked(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let ways = &mut self.backends[backend.index()];
        if ways.hear(now, path.index()) {
            ways.settle(&mut self.core, now);
        }
    }

    /// The operator asks for something.
    pub(crate) fn order(&mut self, now: Instant, backend: BackendId, order: PathOrder) {
        let ways = &mut self.backends[backend.index()];
        match order {
            PathOrder::Disable(path) => ways.paths[path.index()].disabled = true,
            PathOrder::Enable(path) => {
                let way = &mut ways.paths[path.index()];
                if core::mem::replace(&mut way.disabled, false) {
                    (way.heard, way.back) = (now, Why::ByOperator);
                    way.forgive();
                }
            }
            PathOrder::Failback => ways.fail_back(),
        }
        ways.settle(&mut self.core, now);
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (self.core.wake < FAR).then_some(self.core.wake)
    }

    /// Does what is due.
    pub(crate) fn handle_deadline(&mut self, now: Instant) {
        if self.core.wake > now {
            return;
        }
        self.core.wake = FAR;
        for ways in &mut self.backends {
            if ways.wake <= now {
                ways.look(&mut self.core, now);
            }
            self.core.wake = self.core.wake.min(ways.wake);
        }
    }

    /// Every path as it is now.
    pub(crate) fn views(&self, now: Instant) -> impl Iterator<Item = View> {
        self.backends.iter().flat_map(move |ways| {
            (0..ways.paths.len()).map(move |path| ways.view(&self.core, now, path))
        })
    }
}

impl Core {
    /// The first I/O on a path.
    fn head(&self, way: &Way) -> Option<&Io> {
        way.ends.map(|(first, _)| &self.ios[first])
    }

    /// Puts an I/O on a path, behind those that are there.
    fn attach(&mut self, now: Instant, way: &mut Way, path: usize, key: RequestKey) {
        let last = way.ends.map(|(_, last)| last);
        if let Some(last) = last {
            self.ios[last].behind = Some(key);
        }
        way.ends = Some((way.ends.map_or(key, |(first, _)| first), key));
        let io = &mut self.ios[key];
        (io.path, io.since, io.before, io.behind) = (Some(path), now, last, None);
        way.in_flight += 1;
        way.bytes += io.told.bytes;
    }

    /// Takes an I/O off its path; true if it was the first there.
    fn detach(&mut self, way: &mut Way, key: RequestKey) -> bool {
        let io = self.ios[key];
        if let Some(before) = io.before {
            self.ios[before].behind = io.behind;
        }
        if let Some(behind) = io.behind {
            self.ios[behind].before = io.before;
        }
        way.ends = way.ends.and_then(|(first, last)| {
            let first = if first == key { io.behind? } else { first };
            let last = if last == key { io.before? } else { last };
            Some((first, last))
        });
        self.ios[key].path = None;
        way.in_flight -= 1;
        way.bytes -= io.told.bytes;
        io.before.is_none()
    }
}

impl Ways {
    fn new(index: u32, backend: &Backend, choice: &Choice<Build>, settings: &Settings) -> Self {
        let mut groups = backend.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        let count = backend.groups.len() as u32;
        let place = |group: &u32| groups.binary_search(group).expect("every group is in the list");
        let selector = |group: usize| {
            let mut selector = (choice.policy().build)(choice.values(), count);
            for path in (0..count).filter(|&path| place(&backend.groups[path as usize]) != group) {
                selector.fail(Instant::ZERO, PathId::new(path));
            }
            selector
        };
        let selectors = (0..groups.len()).map(selector).collect();
        let way = |group: &u32| {
            let group = place(group);
            let state = if group == 0 { super::State::Active } else { super::State::Waiting };
            Way::new(group, state, settings.probe_interval)
        };
        Self {
            id: BackendId::new(index),
            paths: backend.groups.iter().map(way).collect(),
            selectors,
            current: 0,
            better_since: None,
            shape: Shape::default(),
            ejected: 0,
            hold: Hold::default(),
            wake: FAR,
            groups,
        }
    }

    /// Something will be due then.
    fn arm(&mut self, core: &mut Core, at: Instant) {
        self.wake = self.wake.min(at);
        core.wake = core.wake.min(at);
    }

    /// Lets go who waits, as far as there are paths.
    fn release(&mut self, core: &mut Core, now: Instant) {
        while let Some(key) = self.hold.first() {
            if let Some(path) = self.probe(core, now, key) {
                self.hold.pop();
                self.start(core, now, key, path);
                continue;
            }
            let Some(path) = self.selectors[self.current].select(now, &core.ios[key].told) else {
                return;
            };
            self.hold.pop();
            self.start(core, now, key, path.index());
            let way = &self.paths[path.index()];
            if way.is_full() || way.is_narrow() {
                self.admit(now);
            }
        }
    }

    fn start(&mut self, core: &mut Core, now: Instant, key: RequestKey, path: usize) {
        let way = &mut self.paths[path];
        assert!(way.usable || core.ios[key].probe, "a failed path is never chosen");
        core.attach(now, way, path, key);
        core.steps.push_back(Step::Go(key, PathId::new(path as u32), RULE_NONE_LEFT));
        if way.in_flight == 1 || core.ios[key].probe {
            let at = now + self.quiet(&core.settings, path, core.ios[key].told.bytes);
            self.arm(core, at);
        }
    }

    /// Takes an I/O off its path, and tells the selector.
    fn end(&mut self, core: &mut Core, now: Instant, key: RequestKey) -> (usize, Io) {
        let io = core.ios[key];
        let path = io.path.expect("it is on a path");
        let way = &mut self.paths[path];
        let was_held = way.is_full() || way.is_narrow() || way.stuck;
        if core.detach(way, key) {
            way.stuck = false;
        }
        if io.probe {
            core.ios[key].probe = false;
            way.probing.out = None;
        } else {
            self.selectors[way.group].end(now, PathId::new(path as u32), &io.told, io.since);
        }
        if was_held {
            self.admit(now);
        }
        (path, io)
    }

    fn answered(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let (path, io) = self.end(core, now, key);
        let mut news = self.hear(now, path);
        if self.paths.len() > 1 {
            news |= self.learn(&core.settings, now, path, &io);
        }
        if news {
            self.settle(core, now);
        } else if !self.hold.is_empty() {
            self.release(core, now);
        }
    }

    fn lost(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let (path, io) = self.end(core, now, key);
        if io.probe {
            self.probed(&core.settings, now, path, Finding::Slow);
        }
        if io.since >= self.paths[path].up_since {
            self.take_down(path, Why::LinkLost);
        }
        self.wait_again(core, now, key);
        self.settle(core, now);
    }

    /// Puts an I/O that was on a path back to those who wait.
    fn wait_again(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let io = &mut core.ios[key];
        io.since = now;
        self.hold.push_again(io.order, key);
        self.arm(core, now + core.patience);
    }

    /// Gives up waiting for who has waited too long.
    fn lose_patience(&mut self, core: &mut Core, now: Instant) {
        let late = |key: &RequestKey| core.ios[*key].since + core.patience <= now;
        loop {
            let next = self.hold.iter().find(late);
            let Some(key) = next else { return };
            self.hold.remove(key);
            core.steps.push_back(Step::NoPath(key));
        }
    }

    fn view(&self, core: &Core, now: Instant, path: usize) -> View {
        let way = &self.paths[path];
        let id = PathId::new(path as u32);
        let learned = || {
            let factor = way.pace.usual_service();
            let (fixed, per_mib) = self.shape.line();
            let time = |nanos: u64| {
                let nanos = u128::from(nanos) * u128::from(factor) / u128::from(pace::ONE);
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            };
            let speed = Speed { fixed: time(fixed), per_mib: time(per_mib) };
            (factor > 0).then_some(speed)
        };
        View {
            backend: self.id,
            path: id,
            group: self.groups[way.group],
            access: way.access,
            state: way.state,
            since: way.since,
            why: way.why,
            in_flight: way.in_flight,
            bytes: way.bytes,
            oldest: core.head(way).map_or(Duration::ZERO, |io| now.saturating_since(io.since)),
            learned: self.selectors[way.group].learned(id).or_else(learned),
            changes: way.changes,
        }
    }
}

/// Later than everything.
const FAR: Instant = Instant::from_nanos(u64::MAX);

impl core::fmt::Debug for Paths {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Paths({} backends, {} I/Os)", self.backends.len(), self.core.ios.len())
    }
}
