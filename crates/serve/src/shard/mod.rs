//! The event loop: one thread with everything that it owns.
//!
//! [`Gateway`] is the [`World`] in which `serve` runs the pipeline. [`wait`](World::wait) returns
//! inputs that have come; only when there is none does it submit, write and sleep, so that a burst
//! costs one system call for its disk I/O and one per connection for its replies. What it needs of the
//! operating system is behind [`Kernel`].

mod accept;
mod connections;
pub(crate) mod core_dumps;
pub(crate) mod descriptors;
mod hosts;
mod kernel;
mod linux;
pub(crate) mod live;
mod load;
mod moves;
pub(crate) mod open;
mod operators;
pub(crate) mod plan;
mod read_queue;
pub(crate) mod recorder;
mod signals;
mod stop;
#[cfg(test)]
mod tests;
mod timer;
mod upstreams;

use crate::config::{Config, HttpListen, Reader};
use crate::frontend::connection::Protocol;
use crate::frontend::listener::Listener;
use crate::isns::Isns;
use crate::operator::answer::Reaction;
use crate::operator::backends::Backends;
use crate::operator::http::server::Http;
use crate::operator::metrics::Metrics;
use crate::operator::metrics::scraper::Scrape;
use crate::operator::socket::Socket as ControlSocket;
use crate::operator::view::View;
use crate::operator::{Answer, Question};
use crate::service::Service;
use crate::storage::Storage;
use crate::storage::io::{StorageDone, StorageSubmit, Submit};
use crate::storage::random::Random;
use crate::tasks::{CallDone, CommandEngine, SavedFor};
use crate::volume::credits;
use crate::volume::tenants::TenantNames;
use crate::{NbdListener, ServeError};
use accept::{Acceptor, Around};
use connections::Connections;
pub(crate) use connections::TURNED_AWAY_MAX;
use kernel::{Event, Kernel, Sleep};
use linux::Linux;
use live::Preparing;
use load::Load;
use moves::Moves;
use operators::Operators;
use rustls::ServerConfig;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use stop::Stop;
use tracing::{info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::PolicyHandover;
use weir_flow::event::Observer;
use weir_flow::pipeline::{Action, Input, Pipeline};
use weir_flow::request::VolumeId;
use weir_flow::stage::{Wake, World};

/// Everything that serves, on one thread.
pub(crate) struct Gateway<'a, K: Kernel = Linux> {
    kernel: K,
    /// The time of the last events.
    now: Instant,
    /// The time of the last input: that of a modelled device may be a little before `now`.
    handed: Instant,
    /// The last events; its memory is used again.
    events: Vec<Event>,
    config: Config,
    reader: &'a mut dyn Reader,
    acceptor: Acceptor<K::Listener>,
    connections: Connections<K::Stream>,
    operators: Operators,
    metrics: Arc<Metrics>,
    /// The names of backends, for operators.
    backends: Rc<RefCell<Backends>>,
    engine: CommandEngine,
    storage: Storage<K::Network>,
    /// Ends of operations and calls; their memory is used again.
    done: Vec<StorageDone>,
    finished: Vec<CallDone>,
    stop: Stop,
    /// A reload that waits for logs.
    preparing: Option<Preparing>,
    service: Service,
    load: Load,
    /// The volumes that can be moved to other gateways.
    moves: Moves,
    due: Due,
}

/// When the event loop does what it does at intervals.
struct Due {
    /// Checks connections and listeners.
    tick: Instant,
    /// Saves what control needs after a restart.
    save: Instant,
}

/// What a gateway is made of.
pub(crate) struct Parts<K: Kernel> {
    pub(crate) kernel: K,
    pub(crate) listeners: Vec<Listener<K::Listener>>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) control: Option<ControlSocket>,
    pub(crate) http: Option<Http>,
    pub(crate) isns: Option<Isns>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) engine: CommandEngine,
    pub(crate) storage: Storage<K::Network>,
    pub(crate) random: Box<dyn Random>,
    pub(crate) service: Service,
}

impl<'a, K: Kernel> Gateway<'a, K> {
    pub(crate) fn new(config: &Config, parts: Parts<K>, reader: &'a mut dyn Reader) -> Self {
        let Parts { kernel, listeners, tls, control, http, isns, engine, storage, .. } = parts;
        let Parts { metrics, random, service, .. } = parts;
        let now = kernel.now();
        let moves = Moves::new(config, now, |upstream| storage.upstreams.is_away(upstream));
        let mut gateway = Self {
            now,
            kernel,
            handed: Instant::ZERO,
            events: Vec::new(),
            config: config.clone(),
            reader,
            acceptor: Acceptor::new(config, (listeners, isns), random),
            connections: Connections::new(config, tls),
            operators: Operators::new(control, http),
            metrics,
            backends: Rc::default(),
            engine,
            storage,
            done: Vec::new(),
            finished: Vec::new(),
            stop: Stop::default(),
            preparing: None,
            service,
            load: Load::default(),
            moves,
            due: Due { tick: Instant::ZERO, save: Instant::ZERO + SAVE_INTERVAL },
        };
        gateway.place_targets();
        gateway
    }

    /// The addresses that iSCSI hosts can connect to now.
    pub(crate) fn portals(&self) -> io::Result<Vec<SocketAddr>> {
        self.acceptor.addresses(Protocol::Iscsi)
    }

    /// The addresses that NBD clients can connect to now.
    pub(crate) fn nbd(&self) -> io::Result<Vec<NbdListener>> {
        let listeners = self.acceptor.listeners(Protocol::Nbd);
        let place = |one: &Listener<K::Listener>| match (one.address(), one.path()) {
            (Some(address), _) => address.map(NbdListener::Tcp),
            (None, path) => Ok(NbdListener::Unix(path.unwrap_or("".as_ref()).to_path_buf())),
        };
        listeners.map(place).collect()
    }

    /// Where the HTTP interface listens, with the port that was taken.
    pub(crate) fn http(&self) -> Option<HttpListen> {
        self.operators.http().cloned()
    }

    /// The addresses that NVMe hosts can connect to now.
    pub(crate) fn nvme(&self) -> io::Result<Vec<SocketAddr>> {
        self.acceptor.addresses(Protocol::Nvme)
    }

    /// Tells the service manager that hosts can connect.
    pub(crate) fn is_ready(&mut self) {
        self.service.ready(&self.connections.summary());
    }

    /// The names of the tenants, as they are now.
    pub(crate) fn tenant_names(&self) -> TenantNames {
        self.engine.catalog.tenant_names.clone()
    }

    /// Its counters.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// The name of the disk driver.
    pub(crate) fn driver_name(&self) -> &'static str {
        self.storage.driver_name()
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.kernel.now()
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
            connections: self.connections.all().collect(),
            turned_away: &self.connections.logins.turned_away,
            ownership: upstreams
                .clone()
                .map(|index| self.storage.upstreams.ownership(index))
                .collect(),
            next_attempts: upstreams
                .map(|index| self.storage.upstreams.next_attempts(index).collect())
                .collect(),
            isns: self.acceptor.registrations(),
            driver: self.driver_name(),
            busy: self.load.busy(),
            asleep: self.load.all_sleep(),
            stopping: self.stop.is_requested(),
        }
    }

    /// The question for which the run of the pipeline has ended; `None` at the end of the gateway.
    pub(crate) fn take_question(&mut self) -> Option<Question> {
        self.operators.take_question(self.now)
    }

    /// Does what the answer to a question asks for.
    pub(crate) fn react(&mut self, reaction: Reaction) {
        match reaction {
            Reaction::Nothing => {}
            Reaction::Answer(client, answer) => self.operators.answer(self.now, client, answer),
            Reaction::Count(client, wanted) => {
                let scrape = Scrape { metrics: self.metrics(), wanted };
                self.operators.scrape(self.now, client, scrape);
            }
            Reaction::Order(order, after) => self.operators.order(order, after),
            Reaction::Later(question) => self.operators.ask_later(self.now, question),
            Reaction::Move(client, order, passes) => self.order_move(client, order, passes),
            Reaction::Drained(volume) => self.drained(volume),
            Reaction::Stop(client, leaving) => {
                self.leave();
                self.operators.answer(self.now, client, Answer::Stopping(leaving));
            }
            Reaction::Reload(order, in_logs) => self.reload(order, &in_logs),
            Reaction::Resume(in_logs) => self.resume_reload(&in_logs),
            Reaction::Save(handover) => {
                if let Some((path, bytes)) = self.kept(&handover) {
                    self.engine.blocking.save(SavedFor::Credits, path, bytes);
                }
            }
        }
    }

    /// The file for what control needs after a restart, and its contents; `None` if none is wanted.
    pub(crate) fn kept(&self, handover: &PolicyHandover) -> Option<(PathBuf, Vec<u8>)> {
        let names = self.engine.catalog.tenant_names.borrow();
        self.config.savings.clone().map(|path| (path, credits::encode(handover, &names)))
    }

    /// Why the event loop has failed, if it has.
    pub(crate) const fn take_failure(&mut self) -> Option<ServeError> {
        self.stop.take_failure()
    }

    /// The names of the volumes whose acknowledged data may be lost, those that have gone as well, and those of which the
    /// pipeline says so.
    pub(crate) fn lost_volumes(&self, pipeline_says: impl Fn(VolumeId) -> bool) -> Vec<String> {
        let volumes = (0..).map(VolumeId::new).zip(&self.engine.catalog.volumes);
        let unknown = |id: VolumeId| self.engine.is_flushed_last(id.index());
        let lost = volumes.filter(|(id, volume)| volume.lost || pipeline_says(*id) || unknown(*id));
        lost.map(|(_, volume)| volume.name.clone()).collect()
    }

    /// Submits and collects what is there, and writes replies, without sleeping. True if there is something
    /// for the pipeline now.
    fn exchange(&mut self) -> bool {
        if let Err(source) = self.storage.exchange_files(&mut self.done) {
            self.stop.fail("use the disk driver", source);
            return true;
        }
        if !self.done.is_empty() {
            self.engine.set.now = self.kernel.now();
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
        if submitted || self.engine.has_messages() {
            return true;
        }
        self.connections.write_dirty(&mut self.engine, self.now) && self.engine.has_messages()
    }

    /// Sleeps until an event or a deadline, and handles what is due. `deadline`: that of the pipeline.
    fn sleep(&mut self, deadline: Option<Instant>) {
        let sleep = self.until(deadline);
        let mut events = std::mem::take(&mut self.events);
        let before = if sleep == Sleep::No { None } else { Some(self.kernel.now()) };
        let result = self.kernel.wait(sleep, &mut events);
        self.now = self.kernel.now();
        if let Some(before) = before {
            self.load.slept(self.now.saturating_since(before));
        }
        self.storage.next_turn();
        self.storage.upstreams.set_now(self.now);
        if let Err(problem) = result {
            self.stop.fail("wait for events", problem);
        }
        // A host that was silent for too long has lost what it sent, also if this thread did not run meanwhile.
        self.connections.expire(&mut self.engine, self.now);
        for event in events.drain(..) {
            self.event(event);
        }
        self.events = events;
        self.storage.upstreams.read_on();
        self.storage.upstreams.tick();
        self.connections.read_on(&mut self.engine, self.now);
        self.acceptor.accept(&mut Around {
            kernel: &mut self.kernel,
            connections: &mut self.connections,
            engine: &mut self.engine,
            config: &self.config,
            now: self.now,
        });
        self.operators.tick(self.now);
        self.tick_moves();
        self.engine.set.send_delayed(self.now);
        if self.tick_at().is_some_and(|at| at <= self.now) {
            self.tick();
        }
    }

    /// How long to sleep: until the first deadline of all that have one.
    fn until(&mut self, deadline: Option<Instant>) -> Sleep {
        // A modelled device that is late is late for a host: the last of the wait is spent awake.
        let (lead, modelled) = (self.kernel.lead(), self.engine.storage.emulated.next());
        let early =
            |at: Instant| Instant::from_nanos(at.as_nanos().saturating_sub(lead.as_nanos()));
        let modelled = modelled.map(early);
        // What a host waits for, to the microsecond.
        let exact = [deadline, modelled, self.storage.upstreams.next()];
        if let Some(at) = exact.into_iter().flatten().min()
            && let Err(source) = self.kernel.wake_by(at)
        {
            self.stop.fail("set a timer", source);
        }
        let due = modelled.is_some_and(|at| at <= self.kernel.now());
        let has_more = self.storage.has_more() || self.storage.upstreams.has_more();
        if due || self.connections.has_more() || has_more {
            return Sleep::No;
        }
        // The rest, to the millisecond.
        let coarse = [
            self.stop.draining_until(),
            self.tick_at(),
            self.storage.is_waiting().then(|| self.now + DISK_PAUSE),
            self.acceptor.deadline(),
            self.operators.deadline(),
            self.engine.set.next_answer(),
            self.engine.next_leaving(),
            self.preparing.is_some().then(|| self.now + LOGS_LOOK),
            self.moves.deadline(),
        ];
        Sleep::Until(coarse.into_iter().flatten().min())
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Stop(signals) => self.signalled(signals),
            Event::Reload => self.operators.ask(Question::Reload),
            Event::Summary => self.operators.ask(Question::Summary),
            Event::Upstream(number, readiness) => {
                self.storage.upstreams.event(number, readiness);
            }
            Event::Connection(index, readiness) => {
                if readiness.writable {
                    self.connections.write(&mut self.engine, self.now, index);
                }
                if readiness.readable {
                    self.connections.readable(index, readiness.ended);
                }
            }
            Event::Control(token) => self.operators.event(self.now, token),
            Event::Listener(index) => self.acceptor.event(index),
        }
    }

    /// When connections and listeners are checked next, if there are any.
    fn tick_at(&self) -> Option<Instant> {
        let any = !self.connections.is_empty() || self.acceptor.is_open();
        any.then_some(self.due.tick)
    }

    /// Once a second: checks connections and listeners, and saves what control needs after a restart.
    fn tick(&mut self) {
        self.due.tick = self.now + TICK;
        self.load.tick(self.now);
        self.engine.set.log.tick(self.now);
        self.engine.set.ended = true;
        if self.config.savings.is_some() && self.due.save <= self.now {
            self.due.save = self.now + SAVE_INTERVAL;
            self.operators.ask(Question::Keep);
        }
        self.acceptor.retry();
        let connections = &self.connections;
        self.service.turned(self.now, || connections.summary());
        self.connections.tick(&mut self.engine, self.now);
    }

    /// Stops gracefully at the first signal, and at once at the second.
    fn signalled(&mut self, signals: usize) {
        match signals {
            0 => {}
            1 if !self.stop.is_requested() => self.leave(),
            _ => {
                warn!("second signal: leaving at once");
                self.stop.now();
            }
        }
    }

    /// Takes no new work; requests in flight end.
    fn leave(&mut self) {
        if self.stop.is_requested() {
            return;
        }
        info!(
            outstanding = self.engine.outstanding(),
            "stopping: no new requests; requests in flight end first"
        );
        self.drop_reload();
        self.service.stopping(self.config.stop.timeout);
        self.stop.drain(self.now + self.config.stop.timeout);
        self.acceptor.close();
        self.connections.drain();
        self.engine.set.drop_gathering();
        self.engine.drop_jobs();
    }

    /// Whether everything in flight has ended and every reply has left.
    fn is_drained(&mut self) -> bool {
        if self.engine.outstanding() > 0 || self.engine.has_leaving() || !self.engine.close_logs() {
            return false;
        }
        if self.stop.announce() {
            let kept = self.service.keeps_listeners();
            self.connections.take_leave(&mut self.engine, self.now, kept);
        }
        self.connections.have_sent_all()
    }
}

impl<O: Observer, K: Kernel> World<Pipeline<O>> for Gateway<'_, K> {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        loop {
            // Before all questions, and the last look at the end: those look up what a reload has brought.
            if let Some(order) = self.operators.take_order() {
                self.handed = self.handed.max(self.now);
                return Wake::Input(self.handed, order);
            }
            if self.stop.is_now() {
                return Wake::End;
            }
            if self.operators.has_question(self.now) {
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
            self.connections.run_actions(&mut self.engine, self.now);
            if self.exchange() {
                self.now = self.kernel.now();
                continue;
            }
            if let Some(until) = self.stop.draining_until() {
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
                    self.stop.now();
                    continue;
                }
            }
            self.engine.set.now = self.now;
            if self.let_go() || self.has_prepared() {
                continue;
            }
            if self.engine.retry() || self.engine.has_messages() {
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
                self.connections.send(&mut self.engine, reply);
            }
            Action::Refuse { tag } => {
                let reply = self.engine.refuse(tag);
                self.connections.send(&mut self.engine, reply);
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

/// How often connections and listeners are checked.
const TICK: Duration = Duration::from_secs(1);

/// How often what control needs after a restart is saved: a crash loses at most this much of it.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// How often it is looked whether the logs of volumes that come have been opened.
const LOGS_LOOK: Duration = Duration::from_millis(10);

/// The pause when the kernel has no room for more operations.
const DISK_PAUSE: Duration = Duration::from_millis(1);
