//! The thread that keeps the registrations, and the event loop's end of it.

use super::caller::{Caller, Then};
use super::lines::SUM;
use super::server::Server;
use super::{Registration, ServerState};
use crate::clock::{Clock, unix_nanos};
use crate::config::Config;
use crate::identity::host_name;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tracing::{debug, warn};
use weir_wire::isns::{Failure, Phase};

/// The event loop's end. When it is dropped the portals are deregistered, which takes 2 s, and never more than 3 s.
pub(crate) struct Isns {
    /// Where the gateway listens for iSCSI.
    listening: Vec<SocketAddr>,
    /// The gateway's own name, unless it has another at the servers.
    name: String,
    callback: u16,
    to_thread: Option<Sender<News>>,
    waker: Waker,
    states: Arc<Mutex<Vec<ServerState>>>,
    thread: Option<JoinHandle<()>>,
    /// Its other end goes with the thread.
    ended: Receiver<()>,
}

enum News {
    Change(Box<Registration>),
    Leave,
}

impl Isns {
    /// Starts the thread, if the configuration has servers. It connects to none of them.
    pub(crate) fn start(
        config: &Config,
        listening: Vec<SocketAddr>,
        name: String,
        clock: Clock,
    ) -> io::Result<Option<Self>> {
        let Some(mut registration) = Registration::new(config, &listening, &name) else {
            return Ok(None);
        };
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let mut listener = listen(registration.isns.port as u16)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let callback = listener.local_addr()?.port();
        registration.callback = callback;
        let states = Arc::new(Mutex::new(Vec::new()));
        let (to_thread, news) = channel();
        let (running, ended) = channel();
        let keeper = Keeper {
            poll,
            news,
            clock,
            listener,
            next: Some(registration.clone()),
            registration,
            host: host_name(),
            servers: Vec::new(),
            going: Vec::new(),
            callers: Vec::new(),
            leaving: false,
            more: false,
            cannot_accept: None,
            states: states.clone(),
        };
        let run = move || {
            let _running = running;
            keeper.run();
        };
        let thread = Builder::new().name("weir-isns".to_owned()).spawn(run)?;
        let (to_thread, thread) = (Some(to_thread), Some(thread));
        Ok(Some(Self { listening, name, callback, to_thread, waker, states, thread, ended }))
    }

    /// Registers what another configuration has.
    pub(crate) fn change(&self, config: &Config) {
        if let Some(mut registration) = Registration::new(config, &self.listening, &self.name) {
            registration.callback = self.callback;
            self.tell(News::Change(Box::new(registration)));
        }
    }

    /// Begins to deregister the portals: hosts that look for them now shall not find them here.
    pub(crate) fn leave(&self) {
        self.tell(News::Leave);
    }

    /// The state at each server.
    pub(crate) fn states(&self) -> Vec<ServerState> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, news: News) {
        if let Some(thread) = &self.to_thread {
            // The thread has ended only if it has left or failed.
            let _ = thread.send(news);
            let _ = self.waker.wake();
        }
    }
}

impl Drop for Isns {
    fn drop(&mut self) {
        self.to_thread = None;
        // Without it the thread ends later, and is not waited for.
        let _ = self.waker.wake();
        if self.ended.recv_timeout(END_LIMIT) == Err(RecvTimeoutError::Timeout) {
            warn!(
                "the thread of iSNS has not ended: hosts may find this gateway until its registration expires"
            );
        } else if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of iSNS has failed");
        }
    }
}

/// Listens on this port of all addresses; where there is no IPv6, on those of IPv4.
fn listen(port: u16) -> io::Result<TcpListener> {
    let any = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port).into());
    any.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port).into()))
}

/// The thread.
struct Keeper {
    poll: Poll,
    news: Receiver<News>,
    clock: Clock,
    listener: TcpListener,
    registration: Registration,
    /// What takes its place when the servers of `going` have been left.
    next: Option<Registration>,
    host: String,
    servers: Vec<Server>,
    /// Servers that are being left.
    going: Vec<Server>,
    callers: Vec<Caller>,
    leaving: bool,
    /// Whether a connection may have more to read, of which no event tells.
    more: bool,
    /// When the log has that no connection can be accepted.
    cannot_accept: Option<Duration>,
    states: Arc<Mutex<Vec<ServerState>>>,
}

impl Keeper {
    /// Runs until all servers have been left after the end of the event loop, or after it said so.
    fn run(mut self) {
        let mut events = Events::with_capacity(32);
        loop {
            let now = self.now();
            self.take_news(now);
            self.apply(now);
            self.answer_callers(now);
            let registry = self.poll.registry();
            for (index, server) in self.servers.iter_mut().chain(&mut self.going).enumerate() {
                let place = (registry, Token(FIRST_CONNECTION + index));
                self.more |= server.drive(now, place, &self.registration);
            }
            self.publish(now);
            let gone = self.going.iter().all(Server::has_left);
            if self.leaving && gone && self.servers.iter().all(Server::has_left) {
                return;
            }
            if !self.leaving && gone && self.next.is_some() {
                continue;
            }
            let timeout = if self.more {
                Some(Duration::ZERO)
            } else {
                self.deadline().map(|at| at.saturating_sub(now))
            };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                warn!(%error, "iSNS: cannot wait for events: registrations are not refreshed any more");
                return self.give_up(now, &error);
            }
            if events.iter().any(|event| event.token() == LISTENER) {
                self.accept();
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now().as_nanos())
    }

    /// When something is due.
    fn deadline(&self) -> Option<Duration> {
        let servers = self.servers.iter().chain(&self.going).filter_map(Server::deadline);
        servers.chain(self.callers.iter().map(|caller| caller.until)).min()
    }

    fn take_news(&mut self, now: Duration) {
        loop {
            match self.news.try_recv() {
                Ok(News::Change(registration)) => self.next = Some(*registration),
                Ok(News::Leave) | Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => return,
            }
        }
        self.leaving = true;
        self.servers.iter_mut().chain(&mut self.going).for_each(|server| server.leave(now));
    }

    /// Puts the next registration into force, after the servers that it does not have were left: a portal that moves
    /// from one entity to another must have gone.
    fn apply(&mut self, now: Duration) {
        self.going.retain(|server| !server.has_left());
        if self.leaving || !self.going.is_empty() {
            return;
        }
        let Some(next) = self.next.take() else { return };
        let same = next.is_same_gateway(&self.registration);
        let stays = |server: &Server| same && next.isns.servers.contains(&server.address);
        let (stay, mut go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.servers).into_iter().partition(stays);
        self.servers = stay;
        for server in &mut go {
            server.leave(now);
        }
        self.going = go.into_iter().filter(|server| !server.has_left()).collect();
        if !self.going.is_empty() {
            self.next = Some(next);
            return;
        }
        self.registration = next;
        self.servers.iter_mut().for_each(|server| server.change(now, &self.registration));
        for (index, &address) in self.registration.isns.servers.iter().enumerate() {
            if self.servers.iter().all(|server| server.address != address) {
                let settings = self.registration.settings(&self.host, unix_nanos() + index as u64);
                self.servers.push(Server::new(address, settings, now));
            }
        }
    }

    fn publish(&mut self, now: Duration) {
        let all = self.servers.iter_mut().chain(&mut self.going);
        let states = all.map(|server| server.state(now)).collect();
        *self.states.lock().unwrap_or_else(PoisonError::into_inner) = states;
    }

    /// Nothing is done any more: what was registered expires, and operators shall know why.
    fn give_up(&self, now: Duration, error: &io::Error) {
        for state in &mut *self.states.lock().unwrap_or_else(PoisonError::into_inner) {
            give_up(state, now, error);
        }
    }

    /// Accepts connections of servers, and of no other.
    fn accept(&mut self) {
        let now = self.now();
        loop {
            let (mut stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // The next connection tries again.
                    if self.cannot_accept.is_none_or(|at| at + SUM <= now) {
                        self.cannot_accept = Some(now);
                        warn!(%error, "iSNS: cannot accept a connection of a server");
                    }
                    return;
                }
            };
            let from = from.ip().to_canonical();
            let servers = &self.registration.isns.servers;
            let known = servers.iter().any(|server| server.ip().to_canonical() == from);
            if !known || self.callers.len() >= CALLERS_MAX {
                debug!(%from, known, "iSNS: a connection was closed");
                continue;
            }
            let token = Token(FIRST_CONNECTION);
            let watched = self.poll.registry().register(&mut stream, token, Interest::READABLE);
            if let (Ok(()), Ok(local)) = (watched, stream.local_addr()) {
                let ends = (from, local.ip().to_canonical());
                self.callers.push(Caller::new(stream, ends, now));
            }
        }
    }

    /// Answers servers that have called, and closes connections on which nothing comes.
    fn answer_callers(&mut self, now: Duration) {
        let Self { registration, servers, callers, more, .. } = self;
        *more = false;
        callers.retain_mut(|caller| {
            let heard = caller.drive(now, &registration.own(caller.local));
            *more |= heard.then == Then::Read;
            for notice in heard.notices() {
                let of =
                    servers.iter_mut().filter(|one| one.address.ip().to_canonical() == caller.from);
                of.for_each(|server| server.notice(now, notice));
            }
            heard.then != Then::Close && now < caller.until
        });
    }
}

/// The state at a server that is not asked any more.
pub(super) fn give_up(state: &mut ServerState, now: Duration, error: &io::Error) {
    if state.view.phase != Phase::Left {
        let failure = Failure::Connect(format!("cannot wait for events: {error}"));
        (state.view.phase, state.view.since) = (Phase::Waiting, now);
        (state.view.failure, state.view.next) = (Some((now, failure)), None);
    }
}

/// How long the end of the thread is waited for: more than leaving takes.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Connections of servers at once; one more is closed.
const CALLERS_MAX: usize = 8;

const WAKE: Token = Token(0);
const LISTENER: Token = Token(1);
/// All connections are looked at after each event: there are at most 16.
const FIRST_CONNECTION: usize = 2;
