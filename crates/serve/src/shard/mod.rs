//! The live world: one thread, one event loop, everything that it owns.
//!
//! [`Gateway`] is the [`World`] in which `serve` runs the pipeline. [`wait`](World::wait) hands out
//! what has happened; only when nothing is left does it submit, write and sleep, so that a burst
//! costs one system call for its disk I/O and one per connection for its replies.

mod accept;
mod connections;
pub(crate) mod descriptors;
pub(crate) mod plan;
pub(crate) mod recorder;
mod signalled;
mod signals;
mod timer;
mod upstreams;

use crate::clock::Clock;
use crate::config::Config;
use crate::frontend;
use crate::frontend::connection::Connection;
use crate::frontend::listener::{Listener, Protocol};
use crate::frontend::login_throttle::LoginThrottle;
use crate::frontend::tls;
use crate::ids::ConnectionId;
use crate::limits::Tally;
use crate::operator::answer::Reaction;
use crate::operator::socket::{ClientId, Socket as ControlSocket};
use crate::operator::view::View;
use crate::operator::{Answer, Line, Question};
use crate::shard::signals::Signals;
use crate::shard::timer::Timer;
use crate::storage::Storage;
use crate::storage::blocking::{Blocking, BlockingPool};
use crate::storage::file::Driver;
use crate::storage::file::threads::Threads;
use crate::storage::file::uring::Uring;
use crate::storage::io::{StorageDone, StorageSubmit, Submit};
use crate::storage::store::Store;
use crate::storage::upstream::network::{Readiness, Tcp};
use crate::storage::upstream::{FIRST_TOKEN, Upstreams};
use crate::tasks::{CacheMemory, CallDone, CommandEngine, SavedFor};
use crate::volume::PersistedState;
use crate::volume::credits;
use crate::volume::tenants::TenantNames;
use crate::{NbdListener, ServeError};
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rustls::ServerConfig;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time;
use tracing::{error, info, warn};
use weir_flow::cache;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::PolicyHandover;
use weir_flow::event::Observer;
use weir_flow::pipeline::{Action, Input, Pipeline};
use weir_flow::stage::{Wake, World};
use weir_wire::iscsi::target_role::Limits;
use weir_wire::nbd;

/// Reads the configuration again; `None` if it is wrong, which has been said then.
pub(crate) type Reload<'a> = &'a mut dyn FnMut() -> Option<Config>;

/// Everything that serves, on one thread.
pub(crate) struct Gateway<'a> {
    clock: Clock,
    /// The time of what is being handed out.
    now: Instant,
    /// The time of what was handed out last: that of a modelled device may be a little before `now`.
    handed: Instant,
    /// Wakes for what a millisecond is too coarse for.
    timer: Timer,
    poll: Poll,
    events: Events,
    config: Config,
    reload: Reload<'a>,
    listeners: Vec<Listener>,
    /// No connection is accepted before that.
    next_accept: Instant,
    door: LoginThrottle<ConnectionId>,
    /// Connections that were refused.
    turned_away: Tally,
    tls: Option<Arc<ServerConfig>>,
    /// By index; the first place is the gateway's own, for what no host has asked for.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Connections of each protocol.
    counts: [u32; 2],
    serial: u64,
    /// Connections that had more to read when their turn ended.
    readable: VecDeque<usize>,
    /// Connections with something to write.
    dirty: Vec<usize>,
    /// The other of the two lists that take turns being `dirty`.
    spare_dirty: Vec<usize>,
    storage: Storage,
    done: Vec<StorageDone>,
    finished: Vec<CallDone>,
    engine: CommandEngine,
    /// How iSCSI connections begin.
    limits: Limits,
    nbd_limits: nbd::Limits,
    stop_signals: Signals,
    reload_signals: Signals,
    summary_signals: Signals,
    /// Where operators ask.
    control: Option<ControlSocket>,
    /// What is to be answered at once.
    questions: VecDeque<Question>,
    /// What operators have ordered.
    orders: VecDeque<Input>,
    stop: Stop,
    /// Hosts have been told that the gateway leaves.
    announced: bool,
    /// Why the event loop stopped by itself.
    failure: Option<ServeError>,
    next_tick: Instant,
    /// When to keep what control would need after a restart.
    next_keep: Instant,
    sent: Vec<u32>,
}

/// How far a graceful stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Nobody has asked.
    No,
    /// No new work is taken; what is in flight may end until then.
    Draining(Instant),
    /// A second signal came, or the time was up, or the event loop failed.
    Now,
}

impl<'a> Gateway<'a> {
    /// Binds the listeners and starts the disk driver.
    pub(crate) fn new(
        config: &Config,
        (poll, clock): (Poll, Clock),
        (upstreams, stores): (Upstreams<Tcp>, Rc<[Store]>),
        (kept, saved, near, found): (
            Vec<PersistedState>,
            Option<PolicyHandover>,
            CacheMemory,
            Vec<cache::Done>,
        ),
        reload: Reload<'a>,
    ) -> Result<Self, ServeError> {
        let failed = |action| move |source| ServeError::Setup { action, source };
        let registry = poll.registry();
        let tls = config.nbd.tls.as_ref().map(tls::server_config).transpose()?;
        let mut listeners = Listener::all(config)?;
        for (index, listener) in listeners.iter_mut().enumerate() {
            let token = Token(LISTENERS + index);
            listener.register(registry, token).map_err(failed("watch a listener"))?;
        }
        let waker = Arc::new(Waker::new(registry, WAKE).map_err(failed("make a waker"))?);
        // A lost wake-up would need a lost eventfd; the next tick would find the result.
        let wake = || {
            let waker = waker.clone();
            move || drop(waker.wake())
        };
        let driver: Box<dyn Driver> = match Uring::new(RING_ENTRIES) {
            Ok(ring) => {
                SourceFd(&ring.as_raw_fd())
                    .register(registry, DISK, Interest::READABLE)
                    .map_err(failed("watch the ring"))?;
                Box::new(ring)
            }
            Err(reason) => {
                info!(%reason, "no io_uring; disk I/O goes through a thread pool");
                Box::new(Threads::new(DISK_THREADS, wake()).map_err(failed("start disk threads"))?)
            }
        };
        let helper = || -> Result<Box<dyn Blocking>, ServeError> {
            let helper = BlockingPool::new(wake()).map_err(failed("start a helper thread"))?;
            Ok(Box::new(helper))
        };
        let helpers = [helper()?, helper()?];
        let mut stop_signals = Signals::stop().map_err(failed("watch for signals"))?;
        let mut reload_signals = Signals::reload().map_err(failed("watch for signals"))?;
        let mut summary_signals = Signals::summary().map_err(failed("watch for signals"))?;
        for (signals, token) in [
            (&mut stop_signals, STOP),
            (&mut reload_signals, RELOAD),
            (&mut summary_signals, SUMMARY),
        ] {
            registry
                .register(signals, token, Interest::READABLE)
                .map_err(failed("watch for signals"))?;
        }
        let timer = Timer::new().map_err(failed("make a timer"))?;
        SourceFd(&timer.as_raw_fd())
            .register(registry, TIMER, Interest::READABLE)
            .map_err(failed("watch a timer"))?;
        let mut control = config.control.as_deref().map(ControlSocket::open).transpose()?;
        if let Some(control) = &mut control {
            control.register(registry).map_err(failed("watch the control socket"))?;
        }
        let mut engine = CommandEngine::new(config, stores, kept, near, helpers);
        engine.set.inputs.extend(saved.map(|saved| Input::TakeOver(Arc::new(saved))));
        engine.set.inputs.extend(found.into_iter().map(Input::Cache));
        engine.resume();
        Ok(Self {
            clock,
            now: clock.now(),
            handed: Instant::ZERO,
            timer,
            poll,
            events: Events::with_capacity(EVENTS),
            config: config.clone(),
            reload,
            listeners,
            next_accept: Instant::ZERO,
            door: LoginThrottle::new(config.iscsi.max_logins),
            turned_away: Tally::default(),
            tls,
            connections: vec![None],
            free: Vec::new(),
            counts: [0; 2],
            serial: 0,
            readable: VecDeque::new(),
            dirty: Vec::new(),
            spare_dirty: Vec::new(),
            storage: Storage::new(driver, upstreams),
            done: Vec::new(),
            finished: Vec::new(),
            engine,
            limits: Limits {
                command_window: config.iscsi.commands,
                header_digest: config.iscsi.header_digest,
                data_digest: config.iscsi.data_digest,
                ..Limits::default()
            },
            nbd_limits: frontend::nbd::limits(config),
            stop_signals,
            reload_signals,
            summary_signals,
            control,
            questions: VecDeque::new(),
            orders: VecDeque::new(),
            stop: Stop::No,
            announced: false,
            failure: None,
            next_tick: Instant::ZERO,
            next_keep: Instant::ZERO + KEEP_EVERY,
            sent: Vec::new(),
        })
    }

    /// The addresses that iSCSI hosts can connect to now.
    pub(crate) fn portals(&self) -> io::Result<Vec<SocketAddr>> {
        let iscsi = self.listeners.iter().filter(|one| one.protocol == Protocol::Iscsi);
        iscsi.filter_map(Listener::address).collect()
    }

    /// The addresses that NBD clients can connect to now.
    pub(crate) fn nbd(&self) -> io::Result<Vec<NbdListener>> {
        let nbd = self.listeners.iter().filter(|one| one.protocol == Protocol::Nbd);
        nbd.map(|one| match (one.address(), one.path()) {
            (Some(address), _) => address.map(NbdListener::Tcp),
            (None, path) => Ok(NbdListener::Unix(path.unwrap_or("".as_ref()).to_path_buf())),
        })
        .collect()
    }

    /// The names of the tenants, as they are now.
    pub(crate) fn tenant_names(&self) -> TenantNames {
        self.engine.catalog.tenant_names.clone()
    }

    /// What operators call the disk driver.
    pub(crate) fn driver_name(&self) -> &'static str {
        self.storage.driver_name()
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The command engine.
    pub(crate) const fn engine(&self) -> &CommandEngine {
        &self.engine
    }

    /// What operators can see of it now.
    pub(crate) fn view(&self) -> View<'_> {
        let upstreams = 0..self.config.upstreams.len();
        View {
            now: self.now(),
            config: &self.config,
            engine: &self.engine,
            connections: self.connections.iter().flatten().map(|one| &**one).collect(),
            ownership: upstreams.map(|index| self.storage.upstreams.ownership(index)).collect(),
            driver: self.driver_name(),
            stopping: self.stop != Stop::No,
        }
    }

    /// Does what the answer to a question asks for.
    pub(crate) fn react(&mut self, reaction: Reaction) {
        match reaction {
            Reaction::Nothing => {}
            Reaction::Answer(client, answer) => self.answer(client, answer),
            Reaction::Order(order, after) => {
                self.orders.push_back(order);
                self.questions.push_back(after);
            }
            Reaction::Stop(client, leaving) => {
                self.leave();
                self.answer(client, Answer::Stopping(leaving));
            }
            Reaction::Save(handover) => {
                if let Some((path, bytes)) = self.kept(&handover) {
                    self.engine.blocking.save(SavedFor::Credits, path, bytes);
                }
            }
        }
    }

    fn answer(&mut self, client: ClientId, answer: Answer) {
        if let Some(control) = &mut self.control {
            control.answer(self.now, client, Line::of(answer));
        }
    }

    /// What the run has ended for, if only for a look at the pipeline.
    pub(crate) fn take_question(&mut self) -> Option<Question> {
        let asked = || {
            let (client, asked) = self.control.as_mut()?.question(self.now)?;
            Some(Question::Asked(client, asked))
        };
        self.questions.pop_front().or_else(asked)
    }

    /// Where to keep what control would need after a restart, and as what; `None` if it is not wanted.
    pub(crate) fn kept(&self, handover: &PolicyHandover) -> Option<(PathBuf, Vec<u8>)> {
        let names = self.engine.catalog.tenant_names.borrow();
        self.config.savings.clone().map(|path| (path, credits::encode(handover, &names)))
    }

    /// Whether the run is to end for a look at the pipeline.
    fn has_question(&self) -> bool {
        let asked = |control: &ControlSocket| control.has_question(self.now);
        !self.questions.is_empty() || self.control.as_ref().is_some_and(asked)
    }

    /// Hands everything to the kernel and takes what is there, without sleeping. True if that made
    /// something to hand out.
    fn exchange(&mut self) -> bool {
        if let Err(source) = self.storage.exchange_files(&mut self.done) {
            self.fail("use the disk driver", source);
            return true;
        }
        if !self.done.is_empty() {
            self.engine.set.now = self.clock.now();
        }
        self.take_in_storage();
        self.storage.exchange_upstreams(&mut self.done);
        self.take_in_storage();
        self.engine.blocking.reap(&mut self.finished);
        if !self.finished.is_empty() {
            for done in self.finished.drain(..) {
                self.engine.call_done(done);
            }
        }
        let submitted = std::mem::take(&mut self.engine.set.submitted);
        if submitted || !self.engine.set.inputs.is_empty() || !self.engine.set.actions.is_empty() {
            return true;
        }
        if self.dirty.is_empty() {
            return false;
        }
        let mut dirty = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare_dirty));
        for index in dirty.drain(..) {
            self.write(index);
        }
        self.spare_dirty = dirty;
        !self.engine.set.inputs.is_empty() || !self.engine.set.actions.is_empty()
    }

    /// The event loop cannot go on.
    fn fail(&mut self, action: &'static str, source: io::Error) {
        error!(%source, "cannot {action}: stopping");
        self.failure = Some(ServeError::Setup { action, source });
        self.stop = Stop::Now;
    }

    /// Why the event loop ended, if nobody asked it to.
    pub(crate) const fn take_failure(&mut self) -> Option<ServeError> {
        self.failure.take()
    }

    /// The names of the volumes whose acknowledged data may be lost.
    pub(crate) fn lost_volumes(&self) -> Vec<String> {
        let lost = self.engine.catalog.volumes.iter().filter(|volume| volume.lost);
        lost.map(|volume| volume.name.clone()).collect()
    }

    /// Sleeps until something happens or `deadline`, and takes it in.
    fn sleep(&mut self, deadline: Option<Instant>) {
        let stop = match self.stop {
            Stop::Draining(until) => Some(until),
            Stop::No | Stop::Now => None,
        };
        let waits = self.counts != [0; 2] || !self.listeners.is_empty();
        let tick = waits.then_some(self.next_tick);
        let room = self.storage.is_waiting().then(|| self.now + DISK_PAUSE);
        let accept =
            self.listeners.iter().any(|listener| listener.ready).then_some(self.next_accept);
        // What is late there is late for a host: the last of the wait is spent awake.
        let (lead, modelled) = (self.timer.lead(), self.engine.storage.emulated.next());
        let early =
            |at: Instant| Instant::from_nanos(at.as_nanos().saturating_sub(lead.as_nanos()));
        let due = [deadline, modelled.map(early), self.storage.upstreams.next()];
        if let Some(at) = due.into_iter().flatten().min()
            && let Err(source) = self.timer.wake_by(self.clock.now(), at)
        {
            self.fail("set a timer", source);
        }
        let control = self.control.as_ref().and_then(ControlSocket::deadline);
        let wake = [stop, tick, room, accept, control].into_iter().flatten().min();
        let awake = modelled.is_some_and(|at| early(at) <= self.clock.now());
        let asleep = !awake && self.readable.is_empty() && !self.storage.upstreams.has_more();
        let timeout = if asleep {
            wake.map(|at| at.saturating_since(self.clock.now()).as_nanos())
        } else {
            Some(0)
        };
        let result = self.poll.poll(&mut self.events, timeout.map(time::Duration::from_nanos));
        self.now = self.clock.now();
        self.storage.upstreams.now = self.now;
        if let Err(problem) = result {
            // The ring interrupts the wait when it has something; so do signals.
            if problem.kind() != io::ErrorKind::Interrupted {
                self.fail("wait for events", problem);
            }
            self.events.clear();
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                STOP => self.signalled(),
                RELOAD => self.reload(),
                SUMMARY if self.summary_signals.take() > 0 => {
                    self.questions.push_back(Question::Summary);
                }
                TIMER if asleep => self.timer.woke(self.now),
                SUMMARY | DISK | WAKE | TIMER => {}
                Token(token) if token >= FIRST_TOKEN => {
                    self.storage.upstreams.event(token - FIRST_TOKEN, Readiness::of(event));
                }
                Token(token) if token >= CONNECTIONS => {
                    let index = token - CONNECTIONS;
                    if event.is_writable() {
                        self.write(index);
                    }
                    if event.is_readable() || event.is_read_closed() {
                        self.read(index, event.is_read_closed());
                    }
                }
                Token(token) if ControlSocket::owns(token) => {
                    if let Some(control) = &mut self.control {
                        control.event(self.now, token);
                    }
                }
                Token(token) => {
                    if let Some(listener) = self.listeners.get_mut(token - LISTENERS) {
                        listener.ready = true;
                    }
                }
            }
        }
        self.events = events;
        self.storage.upstreams.read_on();
        self.storage.upstreams.tick();
        for _ in 0..self.readable.len() {
            let index = self.readable.pop_front().expect("counted");
            if let Some(connection) = &mut self.connections[index] {
                connection.queued = false;
            }
            self.read(index, false);
        }
        self.accept();
        if let Some(control) = &mut self.control {
            control.look(self.now, self.poll.registry());
        }
        if tick.is_some_and(|at| at <= self.now) {
            self.tick();
        }
    }
}

impl<O: Observer> World<Pipeline<O>> for Gateway<'_> {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        loop {
            if self.stop == Stop::Now {
                return Wake::End;
            }
            if let Some(order) = self.orders.pop_front() {
                self.handed = self.handed.max(self.now);
                return Wake::Input(self.handed, order);
            }
            if self.has_question() {
                return Wake::End;
            }
            if let Some((at, input)) = self.engine.storage.emulated.due(self.now) {
                self.handed = self.handed.max(at);
                return Wake::Input(self.handed, input);
            }
            if deadline.is_some_and(|at| at <= self.now) {
                self.handed = self.now;
                return Wake::Deadline(self.now);
            }
            if let Some(input) = self.engine.set.inputs.pop_front() {
                self.handed = self.now;
                return Wake::Input(self.now, input);
            }
            self.run_errands();
            if self.exchange() {
                self.now = self.clock.now();
                continue;
            }
            if let Stop::Draining(until) = self.stop {
                if self.is_drained() {
                    return Wake::End;
                }
                if !self.engine.set.inputs.is_empty() {
                    continue;
                }
                if until <= self.now {
                    warn!(
                        outstanding = self.engine.outstanding(),
                        "stopping: requests in flight are left"
                    );
                    self.stop = Stop::Now;
                    continue;
                }
            }
            self.engine.set.now = self.now;
            if self.engine.retry() {
                continue;
            }
            self.sleep(deadline);
        }
    }

    fn perform(&mut self, now: Instant, action: Action) {
        match action {
            Action::Store(io) => self.engine.store(now, &io, &mut self.storage),
            Action::Cache(work) => self.engine.cache(work, &mut self.storage),
            Action::Transfer { key, tag, outcome, part } => {
                let reply = self.engine.reply(key, tag, outcome, part);
                self.send(reply);
            }
            Action::Refuse { tag } => {
                let reply = self.engine.refuse(tag);
                self.send(reply);
            }
            Action::Check { backend, path } => {
                self.storage.submit(StorageSubmit::Check(backend, path));
            }
            Action::Abandon { key, backend, path } => {
                let stored =
                    |input: &Input| matches!(input, Input::Stored { key: one, .. } if *one == key);
                self.engine.set.inputs.retain(|input| !stored(input));
                self.storage.submit(StorageSubmit::Abandon(backend, path, key));
            }
            Action::Recall { key, backend, path } => {
                self.storage.submit(StorageSubmit::Recall(backend, path, key));
            }
            Action::Reset { backend, path } => {
                self.storage.submit(StorageSubmit::Reset(backend, path));
            }
        }
    }
}

const STOP: Token = Token(0);
const RELOAD: Token = Token(1);
const DISK: Token = Token(2);
const WAKE: Token = Token(3);
const TIMER: Token = Token(4);
const SUMMARY: Token = Token(5);
/// Listeners have the tokens from here on; there are fewer than 400. The control socket has some from
/// [`FIRST_TOKEN`](crate::operator::socket::FIRST_TOKEN) on.
const LISTENERS: usize = 16;
/// Connections have the tokens from here on.
const CONNECTIONS: usize = 1024;

/// How often what control would need after a restart is kept: that much of it may be lost.
pub(crate) const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Events taken in at a time; more wait in the kernel.
const EVENTS: usize = 256;

/// Operations that the ring holds at a time; more wait in the driver.
const RING_ENTRIES: u32 = 512;

/// Threads that do disk I/O where there is no ring.
const DISK_THREADS: usize = 8;

/// How long to wait when the kernel has no room for more operations.
const DISK_PAUSE: Duration = Duration::from_millis(1);
