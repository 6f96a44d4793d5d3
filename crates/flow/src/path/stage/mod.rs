//! The path stage: keeps the I/Os of each path, starts, retries and abandons them.
//!
//! Every event ends in [`BackendPaths::update`] (`group.rs`), which decides which paths are usable, which
//! group is in use and which of its paths take I/O, informs the selectors and the observers, and starts held
//! I/Os. Who owns what:
//!
//! | file | owns |
//! | --- | --- |
//! | `in_flight.rs` | the I/Os on a path, their count and bytes |
//! | `path_state.rs` | connection, answers, use, changes and last report of a path |
//! | `history.rs` | the response times of a path, and the cost of an I/O by size |
//! | `judge.rs` | which paths are too slow, their probes, and when they are tried again |
//! | `liveness.rs` | silent paths and stuck I/Os; the next deadline |
//! | `group.rs` | the group in use, and the paths that its selector may choose |
//! | `hold.rs` | requests that no path can take |

mod group;
mod history;
mod hold;
mod in_flight;
mod judge;
mod liveness;
mod path_state;
#[cfg(test)]
mod tests;

use super::{
    Access, Backend, Build, Change, PathIo, PathOrder, PathPolicy, RULE_NO_PATH, Settings, View,
    Why,
};
use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Rule};
use crate::request::{BackendId, Op, PathId, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use group::Groups;
use hold::Hold;
use judge::{Answered, Judge};
use path_state::PathState;
use slotmap::SecondaryMap;

/// Stage 5.
pub(crate) struct Paths {
    /// What makes selectors.
    choice: Choice<Build>,
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
    /// What selectors know of it.
    context: PathIo,
    /// How often it has been sent to another path because it was overdue.
    retries: u32,
    /// Since when it waits, or has been on its path.
    since: Instant,
    /// Its path; `None` while it waits.
    path: Option<usize>,
    /// It was sent to an ejected path, to see how that fares.
    probe: bool,
    /// Nothing else was on its path when it started there.
    alone: bool,
    /// Its neighbours on the path.
    before: Option<RequestKey>,
    behind: Option<RequestKey>,
}

impl Io {
    fn new(order: u64, backend: usize, context: PathIo, now: Instant) -> Self {
        Self {
            order,
            backend,
            context,
            retries: 0,
            since: now,
            path: None,
            probe: false,
            alone: false,
            before: None,
            behind: None,
        }
    }
}

/// A backend with its paths.
///
/// It is long because an answer, a loss or a deadline of one path changes several of its owners in one order: the
/// judge, the groups, the selectors, the I/Os that are held. Their state and rules are theirs; the methods here
/// are that order.
struct BackendPaths {
    id: BackendId,
    groups: Groups,
    /// A selector for each group, over all paths of the backend.
    selectors: Vec<Box<dyn PathPolicy>>,
    paths: Vec<PathState>,
    judge: Judge,
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
            choice: choice.clone(),
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

    /// Backends come. Their ids follow those that there are.
    pub(crate) fn add(&mut self, now: Instant, backends: &[Backend]) {
        for backend in backends {
            let (id, settings) = (self.backends.len() as u32, self.core.settings);
            let mut new = BackendPaths::new(id, backend, &self.choice, &settings);
            for path_state in &mut new.paths {
                path_state.begin(now);
            }
            new.plan(&mut self.core, now);
            self.backends.push(new);
        }
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
        let io = Io::new(core.entered, backend.index(), context, now);
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
        if path_state.link.down.take().is_some() {
            (path_state.link.up_since, path_state.answers.last) = (now, now);
            path_state.usable_why = Why::Repaired;
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
        if access.is_accessible() && !path_state.link.access.is_accessible() {
            path_state.usable_why = Why::ByTarget;
        }
        path_state.link.access = access;
        backend_paths.update(&mut self.core, now);
    }

    /// A check was answered.
    pub(crate) fn checked(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let backend_paths = &mut self.backends[backend.index()];
        if backend_paths.note_answer(now, path.index()) {
            backend_paths.update(&mut self.core, now);
        }
    }

    /// The operator asks for something.
    pub(crate) fn order(&mut self, now: Instant, backend: BackendId, order: PathOrder) {
        let backend_paths = &mut self.backends[backend.index()];
        match order {
            PathOrder::Disable(path) => backend_paths.paths[path.index()].link.disabled = true,
            PathOrder::Enable(path) => {
                let path_state = &mut backend_paths.paths[path.index()];
                if core::mem::replace(&mut path_state.link.disabled, false) {
                    (path_state.answers.last, path_state.usable_why) = (now, Why::ByOperator);
                    path_state.changes.forget();
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
        path_state.in_flight.first().map(|first| &self.ios[first])
    }
}

impl BackendPaths {
    fn new(index: u32, backend: &Backend, choice: &Choice<Build>, settings: &Settings) -> Self {
        let groups = Groups::new(&backend.groups);
        let count = backend.groups.len() as u32;
        let group_of = |path: u32| groups.index(backend.groups[path as usize]);
        let selector = |group: usize| {
            let mut selector = (choice.policy().build)(choice.values(), count);
            for path in (0..count).filter(|&path| group_of(path) != group) {
                selector.fail(Instant::ZERO, PathId::new(path));
            }
            selector
        };
        let selectors = (0..groups.len()).map(selector).collect();
        let path_state = |path: u32| {
            let group = group_of(path);
            let state = if group == 0 { super::State::Active } else { super::State::Waiting };
            PathState::new(group, state)
        };
        Self {
            id: BackendId::new(index),
            paths: (0..count).map(path_state).collect(),
            selectors,
            judge: Judge::new(settings, count as usize),
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
            let Some(path) =
                self.selectors[self.groups.current()].select(now, &core.ios[key].context)
            else {
                return;
            };
            self.hold.pop();
            self.start(core, now, key, path.index());
            if self.is_held_back(path.index()) {
                self.admit(now);
            }
        }
    }

    /// The ejected path that this request probes, if it is fit for that and a probe is due.
    fn probe(&mut self, core: &mut Core, now: Instant, key: RequestKey) -> Option<usize> {
        let io = &mut core.ios[key];
        if io.context.op != Op::Read || io.retries > 0 {
            return None;
        }
        let reachable = |path: usize| self.paths[path].link.is_reachable();
        let path = self.judge.probe_due(now, io.context.bytes, reachable)?;
        io.probe = true;
        self.judge.probe_sent(now, path, key, io.context.bytes);
        Some(path)
    }

    /// Whether the selector may not choose a path before an I/O on it ends.
    fn is_held_back(&self, path: usize) -> bool {
        self.paths[path].is_full() || self.judge.is_suspected(path)
    }

    fn start(&mut self, core: &mut Core, now: Instant, key: RequestKey, path: usize) {
        let path_state = &mut self.paths[path];
        assert!(path_state.usable || core.ios[key].probe, "a failed path is never chosen");
        path_state.in_flight.attach(&mut core.ios, now, path, key);
        core.steps.push_back(Step::Go(key, PathId::new(path as u32), RULE_NO_PATH));
        if path_state.in_flight.count() == 1 || core.ios[key].probe {
            let at = now + self.judge.overdue_after(path, core.ios[key].context.bytes);
            self.arm(core, at);
        }
    }

    /// Takes an I/O off its path, and tells the selector.
    fn end(&mut self, core: &mut Core, now: Instant, key: RequestKey) -> (usize, Io) {
        let io = core.ios[key];
        let path = io.path.expect("it is on a path");
        let held_back = self.is_held_back(path);
        let path_state = &mut self.paths[path];
        let was_held = held_back || path_state.answers.stuck;
        if path_state.in_flight.detach(&mut core.ios, key) {
            path_state.answers.stuck = false;
        }
        if io.probe {
            core.ios[key].probe = false;
            self.judge.probe_ended(path);
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
        let mut news = self.note_answer(now, path);
        if self.paths.len() > 1 {
            news |= self.judge_by(now, path, &io);
        }
        if news {
            self.update(core, now);
        } else if !self.hold.is_empty() {
            self.release(core, now);
        }
    }

    /// Judges the speed of a path by an I/O that was answered; true if the verdict changes.
    fn judge_by(&mut self, now: Instant, path: usize, io: &Io) -> bool {
        let PathState { group, usable, ramp, .. } = self.paths[path];
        let answered = Answered {
            path,
            bytes: io.context.bytes,
            started: io.since,
            alone: io.alone,
            probe: io.probe,
            usable,
            returning: ramp.is_some(),
        };
        let peer = |other: usize| {
            let other = &self.paths[other];
            other.group == group && other.usable && !other.answers.is_doubted()
        };
        let change = self.judge.answered(now, answered, peer);
        match change {
            Some(judge::Change::Returned(why)) => self.paths[path].usable_why = why,
            Some(judge::Change::Ejected) => self.paths[path].ramp = None,
            Some(judge::Change::Suspicion) | None => {}
        }
        change.is_some()
    }

    fn lost(&mut self, core: &mut Core, now: Instant, key: RequestKey) {
        let (path, io) = self.end(core, now, key);
        if io.probe {
            self.judge.probe_failed(now, path);
        }
        if io.since >= self.paths[path].link.up_since {
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
        View {
            backend: self.id,
            path: id,
            group: self.groups.number(path_state.group),
            access: path_state.link.access,
            state: path_state.reported.state,
            since: path_state.reported.since,
            why: path_state.reported.why,
            in_flight: path_state.in_flight.count(),
            bytes: path_state.in_flight.bytes(),
            oldest: core
                .head(path_state)
                .map_or(Duration::ZERO, |io| now.saturating_since(io.since)),
            learned: self.selectors[path_state.group]
                .learned(id)
                .or_else(|| self.judge.speed(path)),
            changes: path_state.reported.changes,
            ejection: self.judge.ejection(path),
            barred: path_state.changes.barred,
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
