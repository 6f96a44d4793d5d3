//! The path stage: keeps the I/Os of each path, starts, retries and abandons them.
//!
//! Everything that happens ends in [`BackendPaths::update`], which decides from what is known which paths
//! are usable, which group is in use and which of its paths take I/O, tells the selectors and the
//! observers, and starts held I/Os.

mod group;
mod health;
mod hold;
mod pace;
mod path_state;
mod slow;
#[cfg(test)]
mod tests;

use super::{
    Access, Backend, Build, Change, PathIo, PathOrder, PathPolicy, RULE_NO_PATH, Settings, Speed,
    View, Why,
};
use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Rule};
use crate::request::{BackendId, PathId, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hold::Hold;
use pace::Shape;
use path_state::{Finding, PathState};
use slotmap::SecondaryMap;

/// Stage 5.
pub(crate) struct Paths {
    backends: Vec<BackendPaths>,
    core: Core,
}

/// What all backends share.
struct Core {
    settings: Settings,
    /// How long a request waits for a path.
    no_path_timeout: Duration,
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
    /// Find out whether the target answers on this path.
    Check(BackendId, PathId),
    /// Give this path up if the target has put the I/O off.
    Recall(RequestKey, BackendId, PathId),
    /// End the session of this path, so that what is on it is known to be dead.
    Reset(BackendId, PathId),
    /// Report this to observers.
    Report(Change),
}

/// An I/O that is in this stage or on a path.
#[derive(Clone, Copy, Debug)]
struct Io {
    /// Its place in the order of arrival.
    order: u64,
    backend: usize,
    /// What selectors are told of it.
    context: PathIo,
    /// How often it has been sent to another path because it was overdue.
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
struct BackendPaths {
    id: BackendId,
    /// The numbers of the groups, best first.
    groups: Vec<u32>,
    /// A selector for each of them, over all paths of the backend.
    selectors: Vec<Box<dyn PathPolicy>>,
    /// The group in use.
    current: usize,
    /// Since when a better group could be used.
    better_since: Option<Instant>,
    paths: Vec<PathState>,
    shape: Shape,
    /// Paths that may be probed.
    ejected: u32,
    hold: Hold,
    /// Nothing is due here before then.
    wake: Instant,
}

impl Paths {
    /// `no_path_timeout` is how long a request waits for a path before it ends with
    /// [`NoPath`](crate::error::IoError::NoPath).
    pub(crate) fn new(
        choice: &Choice<Build>,
        backends: &[Backend],
        settings: &Settings,
        no_path_timeout: Duration,
    ) -> Self {
        let backend_paths = |(index, backend)| BackendPaths::new(index, backend, choice, settings);
        let mut paths = Self {
            backends: (0..).zip(backends).map(backend_paths).collect(),
            core: Core {
                settings: *settings,
                no_path_timeout,
                ios: SecondaryMap::new(),
                entered: 0,
                steps: VecDeque::new(),
                wake: NEVER,
            },
        };
        for backend_paths in &mut paths.backends {
            backend_paths.plan(&mut paths.core, Instant::ZERO);
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
        context: PathIo,
    ) {
        let core = &mut self.core;
        core.entered += 1;
        let io = Io {
            order: core.entered,
            backend: backend.index(),
            context,
            retries: 0,
            since: now,
            path: None,
            probe: false,
            before: None,
            behind: None,
        };
        core.ios.insert(key, io);
        let backend_paths = &mut self.backends[backend.index()];
        backend_paths.hold.push(key);
        backend_paths.release(core, now);
        if !backend_paths.hold.is_empty() {
            backend_paths.arm(core, now + core.no_path_timeout);
        }
    }

    /// An I/O has ended on its path, and was answered.
    pub(crate) fn answered(&mut self, now: Instant, key: RequestKey) {
        let io = self.core.ios[key];
        self.backends[io.backend].answered(&mut self.core, now, key);
    }

    /// An I/O is dead because of its path; it goes to another path.
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
        let backend_paths = &mut self.backends[backend.index()];
        backend_paths.take_down(path.index(), Why::LinkLost);
        backend_paths.update(&mut self.core, now);
    }

    /// The world says that a path works.
    pub(crate) fn up(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let backend_paths = &mut self.backends[backend.index()];
        let path_state = &mut backend_paths.paths[path.index()];
        if path_state.down.take().is_some() {
            (path_state.up_since, path_state.heard, path_state.back) = (now, now, Why::Repaired);
        }
        backend_paths.update(&mut self.core, now);
    }

    /// The target says what a path is good for.
    pub(crate) fn access(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: PathId,
        access: Access,
    ) {
        let backend_paths = &mut self.backends[backend.index()];
        let path_state = &mut backend_paths.paths[path.index()];
        if access.is_accessible() && !path_state.access.is_accessible() {
            path_state.back = Why::ByTarget;
        }
        path_state.access = access;
        backend_paths.update(&mut self.core, now);
    }

    /// A check was answered.
    pub(crate) fn checked(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let backend_paths = &mut self.backends[backend.index()];
        if backend_paths.note_heard(now, path.index()) {
            backend_paths.update(&mut self.core, now);
        }
    }

    /// The operator asks for something.
    pub(crate) fn order(&mut self, now: Instant, backend: BackendId, order: PathOrder) {
        let backend_paths = &mut self.backends[backend.index()];
        match order {
            PathOrder::Disable(path) => backend_paths.paths[path.index()].disabled = true,
            PathOrder::Enable(path) => {
                let path_state = &mut backend_paths.paths[path.index()];
                if core::mem::replace(&mut path_state.disabled, false) {
                    (path_state.heard, path_state.back) = (now, Why::ByOperator);
                    path_state.forgive();
                }
            }
            PathOrder::Failback => backend_paths.fail_back(),
        }
        backend_paths.update(&mut self.core, now);
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (self.core.wake < NEVER).then_some(self.core.wake)
    }

    /// Does what is due.
    pub(crate) fn handle_deadline(&mut self, now: Instant) {
        if self.core.wake > now {
            return;
        }
        self.core.wake = NEVER;
        for backend_paths in &mut self.backends {
            if backend_paths.wake <= now {
                backend_paths.handle_due(&mut self.core, now);
            }
            self.core.wake = self.core.wake.min(backend_paths.wake);
        }
    }

    /// Every path as it is now.
    pub(crate) fn views(&self, now: Instant) -> impl Iterator<Item = View> {
        self.backends.iter().flat_map(move |backend_paths| {
            (0..backend_paths.paths.len())
                .map(move |path| backend_paths.view(&self.core, now, path))
        })
    }
}

impl Core {
    /// The first I/O on a path.
    fn head(&self, path_state: &PathState) -> Option<&Io> {
        path_state.ends.map(|(first, _)| &self.ios[first])
    }

    /// Puts an I/O on a path, behind those that are there.
    fn attach(&mut self, now: Instant, path_state: &mut PathState, path: usize, key: RequestKey) {
        let last = path_state.ends.map(|(_, last)| last);
        if let Some(last) = last {
            self.ios[last].behind = Some(key);
        }
        path_state.ends = Some((path_state.ends.map_or(key, |(first, _)| first), key));
        let io = &mut self.ios[key];
        (io.path, io.since, io.before, io.behind) = (Some(path), now, last, None);
        path_state.in_flight += 1;
        path_state.bytes += io.context.bytes;
    }

    /// Takes an I/O off its path; true if it was the first there.
    fn detach(&mut self, path_state: &mut PathState, key: RequestKey) -> bool {
        let io = self.ios[key];
        if let Some(before) = io.before {
            self.ios[before].behind = io.behind;
        }
        if let Some(behind) = io.behind {
            self.ios[behind].before = io.before;
        }
        path_state.ends = path_state.ends.and_then(|(first, last)| {
            let first = if first == key { io.behind? } else { first };
            let last = if last == key { io.before? } else { last };
            Some((first, last))
        });
        self.ios[key].path = None;
        assert!(
            path_state.in_flight > 0 && path_state.bytes >= io.context.bytes,
            "a path has what was put on it"
        );
        path_state.in_flight -= 1;
        path_state.bytes -= io.context.bytes;
        assert!(
            (path_state.in_flight == 0) == path_state.ends.is_none(),
            "the list of a path is what it counts"
        );
        io.before.is_none()
    }
}

impl BackendPaths {
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
        let path_state = |group: &u32| {
            let group = place(group);
            let state = if group == 0 { super::State::Active } else { super::State::Waiting };
            PathState::new(group, state, settings.probe_interval)
        };
        Self {
            id: BackendId::new(index),
            paths: backend.groups.iter().map(path_state).collect(),
            selectors,
            current: 0,
            better_since: None,
            shape: Shape::default(),
            ejected: 0,
            hold: Hold::default(),
            wake: NEVER,
            groups,
        }
    }

    /// Something will be due then.
    fn arm(&mut self, core: &mut Core, at: Instant) {
        self.wake = self.wake.min(at);
        core.wake = core.wake.min(at);
    }

    /// Starts held I/Os while a path takes them.
    fn release(&mut self, core: &mut Core, now: Instant) {
        while let Some(key) = self.hold.first() {
            if let Some(path) = self.probe(core, now, key) {
                self.hold.pop();
                self.start(core, now, key, path);
                continue;
            }
            let Some(path) = self.selectors[self.current].select(now, &core.ios[key].context)
            else {
                return;
            };
            self.hold.pop();
            self.start(core, now, key, path.index());
            let path_state = &self.paths[path.index()];
            if path_state.is_full() || path_state.is_narrow() {
                self.admit(now);
            }
        }
    }

    fn start(&mut self, core: &mut Core, now: Instant, key: RequestKey, path: usize) {
        let path_state = &mut self.paths[path];
        assert!(path_state.usable || core.ios[key].probe, "a failed path is never chosen");
        core.attach(now, path_state, path, key);
        core.steps.push_back(Step::Go(key, PathId::new(path as u32), RULE_NO_PATH));
        if path_state.in_flight == 1 || core.ios[key].probe {
            let at = now + self.overdue_after(&core.settings, path, core.ios[key].context.bytes);
            self.arm(core, at);
        }
    }

    /// Takes an I/O off its path, and tells the selector.
    fn end(&mut self, core: &mut Core, now: Instant, key: RequestKey) -> (usize, Io) {
        let io = core.ios[key];
        let path = io.path.expect("it is on a path");
        let path_state = &mut self.paths[path];
        let was_held = path_state.is_full() || path_state.is_narrow() || path_state.stuck;
        if core.detach(path_state, key) {
            path_state.stuck = false;
        }
        if io.probe {
            core.ios[key].probe = false;
            path_state.probing.out = None;
        } else {
            self.selectors[path_state.group].end(
                now,
                PathId::new(path as u32),
                &io.context,
                io.since,
            );
        }
        if was_held {
            self.admit(now);
        }
        (path, io)
    }

    fn answered(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let (path, io) = self.end(core, now, key);
        let mut news = self.note_heard(now, path);
        if self.paths.len() > 1 {
            news |= self.learn(&core.settings, now, path, &io);
        }
        if news {
            self.update(core, now);
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
        self.requeue(core, now, key);
        self.update(core, now);
    }

    /// Puts an I/O that was on a path back into the hold queue.
    fn requeue(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let io = &mut core.ios[key];
        io.since = now;
        self.hold.push_returned(io.order, key);
        self.arm(core, now + core.no_path_timeout);
    }

    /// Ends I/Os that have waited too long for a path.
    fn expire_held(&mut self, core: &mut Core, now: Instant) {
        let late = |key: &RequestKey| core.ios[*key].since + core.no_path_timeout <= now;
        loop {
            let next = self.hold.iter().find(late);
            let Some(key) = next else { return };
            self.hold.remove(key);
            core.steps.push_back(Step::NoPath(key));
        }
    }

    fn view(&self, core: &Core, now: Instant, path: usize) -> View {
        let path_state = &self.paths[path];
        let id = PathId::new(path as u32);
        let learned = || {
            let factor = path_state.pace.usual_service();
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
            group: self.groups[path_state.group],
            access: path_state.access,
            state: path_state.state,
            since: path_state.since,
            why: path_state.why,
            in_flight: path_state.in_flight,
            bytes: path_state.bytes,
            oldest: core
                .head(path_state)
                .map_or(Duration::ZERO, |io| now.saturating_since(io.since)),
            learned: self.selectors[path_state.group].learned(id).or_else(learned),
            changes: path_state.changes,
        }
    }
}

/// Later than everything.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl core::fmt::Debug for Paths {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Paths({} backends, {} I/Os)", self.backends.len(), self.core.ios.len())
    }
}
