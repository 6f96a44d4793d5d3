//! The live world: one thread, one event loop, everything that it owns.
//!
//! [`Gateway`] is the [`World`] in which `serve` runs the pipeline. [`wait`](World::wait) hands out
//! what has happened; only when nothing is left does it submit, write and sleep, so that a burst
//! costs one system call for its disk I/O and one per connection for its replies.

use crate::ServeError;
use crate::clock::Clock;
use crate::config::Config;
use crate::desk::{Desk, Errand};
use crate::disk::backing::Backing;
use crate::disk::threads::Threads;
use crate::disk::uring::Uring;
use crate::disk::{Done, Driver};
use crate::listen::connection::{Connection, ConnectionId, Progress};
use crate::listen::iscsi::Verdict;
use crate::signals::Signals;
use mio::event::Source;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time;
use tracing::{debug, error, info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::event::Observer;
use weir_flow::pipeline::{Action, Input, Pipeline};
use weir_flow::stage::{Wake, World};
use weir_wire::iscsi::target::{Itt, TmfResponse};

/// Everything that serves, on one thread.
pub(crate) struct Gateway {
    clock: Clock,
    /// The time of what is being handed out.
    now: Instant,
    poll: Poll,
    events: Events,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    max_connections: usize,
    serial: u64,
    /// Connections that had more to read when their turn ended.
    readable: VecDeque<usize>,
    /// Connections with something to write.
    dirty: Vec<usize>,
    /// The other of the two lists that take turns being `dirty`.
    spare_dirty: Vec<usize>,
    driver: Box<dyn Driver>,
    done: Vec<Done>,
    /// Operations wait because the kernel had no room for them.
    unsubmitted: bool,
    desk: Desk,
    signals: Signals,
    stop: Stop,
    /// Why the event loop stopped by itself.
    failure: Option<ServeError>,
    stop_within: Duration,
    next_tick: Instant,
    sent: Vec<Itt>,
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

impl Gateway {
    /// Binds the listeners and starts the disk driver.
    pub(crate) fn new(config: &Config, backings: Rc<[Backing]>) -> Result<Self, ServeError> {
        let failed = |action| move |source| ServeError::Setup { action, source };
        let poll = Poll::new().map_err(failed("make an event queue"))?;
        let registry = poll.registry();
        let mut listeners = Vec::new();
        for (index, &address) in config.listen.iter().enumerate() {
            let unavailable = |source| ServeError::Listen { address, source };
            let mut listener = TcpListener::bind(address).map_err(unavailable)?;
            registry
                .register(&mut listener, Token(LISTENERS + index), Interest::READABLE)
                .map_err(failed("watch a listener"))?;
            listeners.push(listener);
        }
        let driver: Box<dyn Driver> = match Uring::new(RING_ENTRIES) {
            Ok(ring) => {
                SourceFd(&ring.as_raw_fd())
                    .register(registry, DISK, Interest::READABLE)
                    .map_err(failed("watch the ring"))?;
                Box::new(ring)
            }
            Err(reason) => {
                info!(%reason, "no io_uring; disk I/O goes through a thread pool");
                let waker = Waker::new(registry, DISK).map_err(failed("make a waker"))?;
                let waker = Arc::new(waker);
                // A lost wake-up would need a lost eventfd; the next tick would find the result.
                let wake = move || drop(waker.wake());
                Box::new(Threads::new(DISK_THREADS, wake).map_err(failed("start disk threads"))?)
            }
        };
        let mut signals = Signals::new().map_err(failed("watch for signals"))?;
        registry
            .register(&mut signals, SIGNALS, Interest::READABLE)
            .map_err(failed("watch for signals"))?;
        let clock = Clock::start();
        Ok(Self {
            clock,
            now: clock.now(),
            poll,
            events: Events::with_capacity(EVENTS),
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            max_connections: config.iscsi.max_connections as usize,
            serial: 0,
            readable: VecDeque::new(),
            dirty: Vec::new(),
            spare_dirty: Vec::new(),
            driver,
            done: Vec::new(),
            unsubmitted: false,
            desk: Desk::new(config, backings),
            signals,
            stop: Stop::No,
            failure: None,
            stop_within: config.stop_within,
            next_tick: Instant::ZERO,
            sent: Vec::new(),
        })
    }

    /// The addresses that hosts can connect to now.
    pub(crate) fn portals(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// What operators call the disk driver.
    pub(crate) fn driver_name(&self) -> &'static str {
        self.driver.name()
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Hands everything to the kernel and takes what is there, without sleeping. True if that made
    /// something to hand out.
    fn exchange(&mut self) -> bool {
        // Operations that go on in steps are handed over again; what still waits then is waiting
        // for the kernel to make room.
        for _ in 0..DISK_STEPS {
            if let Err(source) = self.driver.flush() {
                self.fail("use the disk driver", source);
                return true;
            }
            self.unsubmitted = self.driver.reap(&mut self.done);
            if !self.unsubmitted {
                break;
            }
        }
        for done in self.done.drain(..) {
            self.desk.stored(done, &mut *self.driver);
        }
        if !self.desk.inbox.is_empty() {
            return true;
        }
        let mut dirty = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare_dirty));
        for index in dirty.drain(..) {
            self.write(index);
        }
        self.spare_dirty = dirty;
        !self.desk.inbox.is_empty() || !self.desk.errands.is_empty()
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
        let lost = self.desk.volumes.iter().filter(|volume| volume.lost);
        lost.map(|volume| volume.name.clone()).collect()
    }

    /// Sleeps until something happens or `deadline`, and takes it in.
    fn sleep(&mut self, deadline: Option<Instant>) {
        let stop = match self.stop {
            Stop::Draining(until) => Some(until),
            Stop::No | Stop::Now => None,
        };
        let waits = self.connections.len() > self.free.len() || !self.listeners.is_empty();
        let tick = waits.then_some(self.next_tick);
        let room = self.unsubmitted.then(|| self.now + DISK_PAUSE);
        let wake = [deadline, stop, tick, room].into_iter().flatten().min();
        let timeout = if self.readable.is_empty() {
            wake.map(|at| at.saturating_since(self.clock.now()).as_nanos())
        } else {
            Some(0)
        };
        let result = self.poll.poll(&mut self.events, timeout.map(time::Duration::from_nanos));
        self.now = self.clock.now();
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
                SIGNALS => self.signalled(),
                DISK => {}
                Token(token) if token >= CONNECTIONS => {
                    let index = token - CONNECTIONS;
                    if event.is_writable() {
                        self.write(index);
                    }
                    if event.is_readable() || event.is_read_closed() {
                        self.read(index, event.is_read_closed());
                    }
                }
                Token(token) => self.accept(token - LISTENERS),
            }
        }
        self.events = events;
        for _ in 0..self.readable.len() {
            let index = self.readable.pop_front().expect("counted");
            if let Some(connection) = &mut self.connections[index] {
                connection.queued = false;
            }
            self.read(index, false);
        }
        if tick.is_some_and(|at| at <= self.now) {
            self.tick();
        }
    }

    fn signalled(&mut self) {
        let count = self.signals.take();
        if count == 0 {
            return;
        }
        match self.stop {
            Stop::No if count == 1 => {
                info!(
                    outstanding = self.desk.outstanding(),
                    "stopping: no new work; what is in flight is finished first"
                );
                self.stop = Stop::Draining(self.now + self.stop_within);
                self.listeners.clear();
                self.desk.drop_gathering();
            }
            _ => {
                warn!("second signal: leaving at once");
                self.stop = Stop::Now;
            }
        }
    }

    /// Whether everything in flight has ended and been told.
    fn is_drained(&mut self) -> bool {
        let written = |connection: &mut Box<Connection>| connection.wire.outbox().is_empty();
        self.desk.outstanding() == 0 && self.connections.iter_mut().flatten().all(written)
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let Some(listener) = self.listeners.get(listener) else { return };
            let (mut socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => {
                        warn!(%error, "cannot accept a connection");
                        return;
                    }
                },
            };
            if self.connections.len() - self.free.len() >= self.max_connections {
                warn!(%peer, limit = self.max_connections, "connection refused: limit reached");
                continue;
            }
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            let local = socket.local_addr();
            let registered =
                self.poll.registry().register(&mut socket, Token(CONNECTIONS + index), interest);
            // Replies are whole when they are written; waiting to fill a segment only delays them.
            if let (Ok(local), Ok(()), Ok(())) = (local, registered, socket.set_nodelay(true)) {
                self.serial += 1;
                let id = ConnectionId { index, serial: self.serial };
                let wire = self.desk.new_wire(local);
                let connection = Connection::new(id, socket, peer, wire, self.now);
                self.connections[index] = Some(Box::new(connection));
                debug!(%peer, "connected");
            } else {
                self.free.push(index);
            }
        }
    }

    /// Reads from a connection once and deals with what has come.
    fn read(&mut self, index: usize, ends: bool) {
        if self.stop != Stop::No {
            return;
        }
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        connection.ends |= ends;
        if connection.is_behind() {
            connection.paused = true;
            self.connections[index] = Some(connection);
            return;
        }
        let progress = connection.read();
        if progress == Progress::Closed {
            self.close(connection, "closed by the host");
            return;
        }
        connection.last_heard = self.now;
        connection.pinged = None;
        self.desk.now = self.now;
        let verdict = self.desk.receive(&mut connection);
        if !connection.wire.outbox().is_empty() && !connection.dirty {
            connection.dirty = true;
            self.dirty.push(index);
        }
        if progress == Progress::More && !std::mem::replace(&mut connection.queued, true) {
            self.readable.push_back(index);
        }
        let finished = connection.wire.is_finished();
        match verdict {
            Verdict::Keep if finished => {
                let reason = connection.farewell();
                self.close(connection, reason);
            }
            Verdict::Keep => self.connections[index] = Some(connection),
            Verdict::Close => {
                // Whatever still tells the host why.
                self.sent.clear();
                connection.write(&mut self.sent);
                self.close(connection, "the host broke the protocol");
            }
        }
        self.run_errands();
    }

    /// Does what the desk wants done with connections.
    fn run_errands(&mut self) {
        while let Some(errand) = self.desk.errands.pop_front() {
            match errand {
                Errand::Write(id) => self.mark_dirty(id),
                Errand::Close(id) => {
                    self.write(id.index);
                    let place = self.connections.get_mut(id.index);
                    if let Some(old) = place.and_then(|place| place.take_if(|old| old.id == id)) {
                        self.close(old, "the session was reinstated or reset");
                    }
                }
                Errand::Abandon(id, itt) => {
                    let window = self.desk.window();
                    if let Some(connection) = self.connection(id) {
                        connection.wire.abandon(itt);
                        connection.tasks.remove(&itt);
                        // Opens the window again if that was its last command.
                        connection.wire.set_window(window);
                        self.mark_dirty(id);
                    }
                }
                Errand::Managed(id, itt) => {
                    if let Some(connection) = self.connection(id) {
                        connection.wire.task_management_response(itt, TmfResponse::Complete);
                        self.mark_dirty(id);
                    }
                }
                Errand::Attention(from, volume, attention) => {
                    let others = self.connections.iter_mut().flatten();
                    for connection in others.filter(|connection| connection.id != from) {
                        self.desk.attend(connection, &[volume], attention);
                    }
                }
                Errand::Share => self.share_window(),
            }
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.index)?.as_deref_mut().filter(|found| found.id == id)
    }

    /// Puts a connection on the list of those with something to write.
    fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection(id)
            && !std::mem::replace(&mut connection.dirty, true)
        {
            self.dirty.push(id.index);
        }
    }

    fn share_window(&mut self) {
        let window = self.desk.window();
        for connection in self.connections.iter_mut().flatten() {
            connection.wire.set_window(window);
            if !connection.wire.outbox().is_empty() {
                self.desk.errands.push_back(Errand::Write(connection.id));
            }
        }
    }

    /// Writes what waits on a connection.
    fn write(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        connection.dirty = false;
        self.sent.clear();
        let waiting = connection.wire.outbox().len();
        let progress = connection.write(&mut self.sent);
        if connection.wire.outbox().len() < waiting {
            // A host that takes replies is there, even if its answer to a ping waits behind them.
            connection.last_heard = self.now;
            connection.pinged = None;
        }
        for itt in self.sent.drain(..) {
            self.desk.sent(&mut connection, itt);
        }
        if connection.paused && !connection.is_behind() {
            connection.paused = false;
            if !std::mem::replace(&mut connection.queued, true) {
                self.readable.push_back(index);
            }
        }
        if progress == Progress::Closed {
            self.close(connection, "closed by the host");
        } else if connection.wire.is_finished() {
            let reason = connection.farewell();
            self.close(connection, reason);
        } else {
            self.connections[index] = Some(connection);
        }
    }

    /// Ends a connection that has been taken out of its place. What it has in flight goes on and is
    /// told to nobody.
    fn close(&mut self, mut connection: Box<Connection>, reason: &str) {
        // Deregistering a socket that is about to be closed can only fail if it is gone already.
        drop(self.poll.registry().deregister(connection.socket()));
        self.free.push(connection.id.index);
        self.desk.disconnected(*connection, reason);
    }

    /// Once a second: connections that do not log in or do not answer are given up.
    fn tick(&mut self) {
        self.next_tick = self.now + TICK;
        self.desk.now = self.now;
        // Listeners tell of new connections once; those that no descriptor was free for wait still.
        for listener in 0..self.listeners.len() {
            self.accept(listener);
        }
        for index in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[index] else { continue };
            if self.stop != Stop::No {
                // Nothing is read any more, so nobody can answer.
                continue;
            }
            let silent = self.now.saturating_since(connection.last_heard);
            let reason = if !connection.wire.is_full_feature() {
                let age = self.now.saturating_since(connection.opened);
                (age >= LOGIN_WITHIN).then_some("no login in time")
            } else if let Some(pinged) = connection.pinged {
                let waited = self.now.saturating_since(pinged);
                (waited >= PING_ANSWER_WITHIN).then_some("no answer to a ping")
            } else if self.desk.waits_in_vain(connection, DATA_WITHIN) {
                Some("write data did not come in time")
            } else {
                match connection.wire.target() {
                    _ if silent < PING_AFTER => None,
                    None => Some("an idle discovery session"),
                    Some(_) => {
                        connection.wire.ping();
                        connection.pinged = Some(self.now);
                        self.desk.errands.push_back(Errand::Write(connection.id));
                        None
                    }
                }
            };
            if let Some(reason) = reason {
                let connection = self.connections[index].take().expect("seen above");
                self.close(connection, reason);
            }
        }
        self.run_errands();
    }
}

impl<O: Observer> World<Pipeline<O>> for Gateway {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<Input> {
        loop {
            if self.stop == Stop::Now {
                return Wake::End;
            }
            if deadline.is_some_and(|at| at <= self.now) {
                return Wake::Deadline(self.now);
            }
            if let Some(input) = self.desk.inbox.pop_front() {
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
                if until <= self.now {
                    warn!(outstanding = self.desk.outstanding(), "stopping without the rest");
                    self.stop = Stop::Now;
                    continue;
                }
            }
            self.sleep(deadline);
        }
    }

    fn perform(&mut self, _: Instant, action: Action) {
        match action {
            Action::Store(io) => self.desk.store(&io, &mut *self.driver),
            Action::Transfer { key, tag, outcome } => {
                self.desk.reply(&mut self.connections, key, tag, outcome);
            }
            Action::Refuse { tag } => self.desk.refuse(&mut self.connections, tag),
        }
    }
}

const SIGNALS: Token = Token(0);
const DISK: Token = Token(1);
/// Listeners have the tokens from here on; there are fewer than 1000.
const LISTENERS: usize = 16;
/// Connections have the tokens from here on.
const CONNECTIONS: usize = 1024;

/// Events taken in at a time; more wait in the kernel.
const EVENTS: usize = 256;

/// Operations that the ring holds at a time; more wait in the driver.
const RING_ENTRIES: u32 = 512;

/// Threads that do disk I/O where there is no ring.
const DISK_THREADS: usize = 8;

/// How often operations that go on are handed to the kernel before its answer is waited for.
const DISK_STEPS: usize = 4;

/// How long to wait when the kernel has no room for more operations.
const DISK_PAUSE: Duration = Duration::from_millis(1);

/// Write data of a command must have come by then.
const DATA_WITHIN: Duration = Duration::from_secs(60);

/// How often connections are looked over.
const TICK: Duration = Duration::from_secs(1);

/// A connection must have logged in by then.
const LOGIN_WITHIN: Duration = Duration::from_secs(15);

/// A session that has been silent for so long is pinged; a discovery session is closed.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A session that does not answer a ping within this time is given up.
const PING_ANSWER_WITHIN: Duration = Duration::from_secs(30);
