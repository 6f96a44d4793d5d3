//! The thread of the HTTP interface, its listener and its clients, and the event loop's end of it.

use super::api::{Found, Known, answer, find};
use super::connection::{Connection, Progress};
use super::guard::{Caller, Guard, Guesses};
use super::problem::Fault;
use super::request::Head;
use super::routes::Here;
use super::stream::ClientStream;
use super::{FRESH, Subject, Ticket, Told};
use crate::clock::Clock;
use crate::config::HttpListen;
use crate::config::http::Role;
use crate::frontend::socket::{Peer, Socket};
use crate::frontend::unix_socket::{Access, UnixPlace};
use crate::operator::metrics::Metrics;
use crate::operator::metrics::history::History;
use crate::operator::protocol::{Answer, Request};
use mio::event::Source;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};
use std::time;
use tracing::{debug, info, warn};
use weir_flow::clock::{Duration, Instant};

/// The event loop's end: what the thread asks, and where the answers go. The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Http {
    place: HttpListen,
    questions: Receiver<(Ticket, Request)>,
    /// What was received and is not answered: at most one question of each subject, and one order of each client.
    waiting: VecDeque<(Ticket, Request)>,
    to_thread: Option<Sender<News>>,
    /// When the event loop was last seen alive, in nanoseconds of its clock.
    beat: Arc<AtomicU64>,
    next_answer: Instant,
    next_beat: Instant,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Listens, and starts the thread. `wake` wakes the event loop.
    pub(crate) fn start(
        listen: &HttpListen,
        guard: Guard,
        clock: Clock,
        metrics: Arc<Metrics>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let (mut listener, place) = Listener::open(listen)?;
        poll.registry().register(listener.source(), LISTENER, Interest::READABLE)?;
        let (ask, questions) = channel();
        let (to_thread, news) = channel();
        let beat = Arc::new(AtomicU64::new(clock.now().as_nanos()));
        let server = Server {
            poll,
            listener,
            ready: true,
            next_accept: Instant::ZERO,
            clients: (0..CLIENTS_MAX).map(|_| None).collect(),
            slots: Default::default(),
            serial: 0,
            ask,
            news,
            guard,
            guesses: Guesses::new(),
            wake: Box::new(wake),
            beat: beat.clone(),
            metrics,
            history: History::default(),
            clock,
            budget: Budget::default(),
        };
        let thread = Builder::new().name("weir-http".to_owned()).spawn(move || server.run())?;
        Ok(Self {
            place,
            questions,
            waiting: VecDeque::new(),
            to_thread: Some(to_thread),
            beat,
            next_answer: Instant::ZERO,
            next_beat: Instant::ZERO,
            waker,
            thread: Some(thread),
        })
    }

    /// Where it listens, with the port that was taken.
    pub(crate) const fn place(&self) -> &HttpListen {
        &self.place
    }

    /// Says once a second that the event loop lives, and returns what is to be answered now.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<(Ticket, Request)> {
        if self.next_beat <= now {
            self.beat.store(now.as_nanos(), Ordering::Relaxed);
            self.next_beat = now + BEAT;
        }
        self.waiting.extend(self.questions.try_iter());
        if self.next_answer > now {
            return None;
        }
        let asked = self.waiting.pop_front()?;
        self.next_answer = now + ANSWER_PAUSE;
        Some(asked)
    }

    /// When it has something to do if no event comes.
    pub(crate) fn deadline(&self) -> Instant {
        let answer = (!self.waiting.is_empty()).then_some(self.next_answer);
        answer.map_or(self.next_beat, |at| at.min(self.next_beat))
    }

    /// Gives the thread an answer.
    pub(crate) fn answer(&self, ticket: Ticket, told: Told) {
        self.tell(News::Told(ticket, told));
    }

    /// Says who may do what from now on. All clients connect anew, so that none keeps what it could do before.
    pub(crate) fn guard(&self, guard: Guard) {
        self.tell(News::Guard(Box::new(guard)));
    }

    fn tell(&self, news: News) {
        if let Some(thread) = &self.to_thread {
            // The thread has ended only if it has failed.
            let _ = thread.send(news);
            let _ = self.waker.wake();
        }
    }
}

/// What the event loop says.
enum News {
    Told(Ticket, Told),
    Guard(Box<Guard>),
}

impl Drop for Http {
    fn drop(&mut self) {
        self.to_thread = None;
        let woken = self.waker.wake();
        if let Some(thread) = self.thread.take().filter(|_| woken.is_ok())
            && thread.join().is_err()
        {
            warn!("the thread of the HTTP interface has failed");
        }
    }
}

/// A socket that is listened on.
#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixPlace),
}

impl Listener {
    /// Listens; also where, with the port that was taken.
    fn open(listen: &HttpListen) -> io::Result<(Self, HttpListen)> {
        match listen {
            HttpListen::Tcp(address) => {
                let listener = TcpListener::bind(*address)?;
                let place: SocketAddr = listener.local_addr()?;
                Ok((Self::Tcp(listener), HttpListen::Tcp(place)))
            }
            HttpListen::Unix(path) => {
                Ok((Self::Unix(UnixPlace::take(path, Access::Owner)?), listen.clone()))
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(place) => &mut place.listener,
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Socket::tcp(stream, peer)
            }
            Self::Unix(place) => Socket::unix(place.listener.accept()?.0),
        }
    }
}

type Client = Connection<ClientStream>;

/// What is known of a subject.
#[derive(Debug, Default)]
struct Slot {
    /// The event loop was asked and has not answered.
    asked: bool,
    /// Its last answer, and when it came.
    known: Option<(Instant, Known)>,
}

/// The thread.
struct Server {
    poll: Poll,
    listener: Listener,
    /// The kernel may have clients that were not accepted yet: their event comes once.
    ready: bool,
    /// No client is accepted before this time.
    next_accept: Instant,
    clients: Vec<Option<Client>>,
    /// By [`Subject::index`].
    slots: [Slot; Subject::ALL.len()],
    /// The serial number of the last question or order of one client.
    serial: u64,
    ask: Sender<(Ticket, Request)>,
    news: Receiver<News>,
    guard: Guard,
    guesses: Guesses,
    wake: Box<dyn Fn() + Send>,
    beat: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
    history: History,
    clock: Clock,
    budget: Budget,
}

impl Server {
    /// Serves until the event loop's end is dropped.
    fn run(mut self) {
        let mut events = Events::with_capacity(CLIENTS_MAX + 2);
        loop {
            let now = self.clock.now();
            let until =
                |at: Instant| time::Duration::from_nanos(at.saturating_since(now).as_nanos());
            if let Err(error) = self.poll.poll(&mut events, Some(until(self.deadline())))
                && error.kind() != io::ErrorKind::Interrupted
            {
                warn!(%error, "the HTTP interface cannot wait for events: it ends");
                return;
            }
            let now = self.clock.now();
            loop {
                match self.news.try_recv() {
                    Ok(News::Told(ticket, told)) => self.learn(ticket, told, now),
                    Ok(News::Guard(guard)) => self.replace_guard(*guard),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            for event in &events {
                match event.token() {
                    WAKE => {}
                    LISTENER => self.ready = true,
                    Token(token) => self.drive(token - FIRST_CLIENT, now),
                }
            }
            self.history.sample(now, &self.metrics);
            self.expire(now);
            self.accept(now);
        }
    }

    /// When it has something to do if no event comes.
    fn deadline(&self) -> Instant {
        let accept = self.ready.then_some(self.next_accept);
        let clients = self.clients.iter().flatten().map(Connection::deadline);
        clients.chain(accept).fold(self.history.deadline(), Instant::min)
    }

    /// Closes clients whose time is over, or gives them an error.
    fn expire(&mut self, now: Instant) {
        for index in 0..CLIENTS_MAX {
            let late = self.clients[index].as_mut().filter(|client| client.deadline() <= now);
            match late.map(|client| client.expire(now)) {
                Some(true) => self.clients[index] = None,
                Some(false) => self.drive(index, now),
                None => {}
            }
        }
    }

    /// Accepts clients. One more than [`CLIENTS_MAX`] takes the place of the one that has been idle for longest; if all
    /// wait for answers, it is closed.
    fn accept(&mut self, now: Instant) {
        while self.ready && now >= self.next_accept {
            let mut socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(error) => {
                    match error.kind() {
                        io::ErrorKind::WouldBlock => self.ready = false,
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                        _ => {
                            warn!(%error, "cannot accept over HTTP; trying again in a second");
                            self.next_accept = now + ACCEPT_AGAIN;
                        }
                    }
                    continue;
                }
            };
            if self.is_crowd(socket.peer()) {
                debug!(peer = %socket.peer(), "a client over HTTP was closed: it has enough connections");
                continue;
            }
            if let Some(tls) = &self.guard.tls
                && let Err(error) = socket.start_tls(tls.clone())
            {
                warn!(%error, "cannot start TLS over HTTP: closed");
                continue;
            }
            let idle = |(index, client): (usize, &Option<Client>)| match client {
                None => Some((Instant::ZERO, index)),
                Some(client) => client.idle_since().map(|since| (since, index)),
            };
            let Some((_, index)) = self.clients.iter().enumerate().filter_map(idle).min() else {
                debug!("a client over HTTP was closed: all places wait for answers");
                continue;
            };
            self.clients[index] = None;
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(FIRST_CLIENT + index);
            if let Err(error) = self.poll.registry().register(&mut socket, token, interest) {
                warn!(%error, "cannot watch a client over HTTP: closed");
                continue;
            }
            self.clients[index] = Some(Connection::new(ClientStream(socket), now));
            self.drive(index, now);
        }
    }

    /// Whether a peer on another machine has as many connections as one may have.
    fn is_crowd(&self, peer: &Peer) -> bool {
        let Peer::Tcp(address) = peer else { return false };
        let source = peer.source();
        let same = |client: &&Client| client.stream.0.peer().source() == source;
        !address.ip().is_loopback()
            && self.clients.iter().flatten().filter(same).count() >= PEER_CLIENTS_MAX
    }

    /// Puts a new guard into force, and has all clients connect anew.
    fn replace_guard(&mut self, guard: Guard) {
        self.guard = guard;
        for client in &mut self.clients {
            client.take_if(Connection::retire);
        }
    }

    /// Serves a client as far as its socket allows.
    fn drive(&mut self, index: usize, now: Instant) {
        while let Some(client) = &mut self.clients[index] {
            let site = self.guard.site(&client.stream.0);
            match client.progress(now, &site) {
                Progress::Waits => return,
                Progress::Over => self.clients[index] = None,
                Progress::Asks(head, body) => self.asked(index, head, &body, now),
            }
        }
    }

    /// Answers a request, or has its client wait for the event loop.
    fn asked(&mut self, index: usize, head: Head, body: &[u8], now: Instant) {
        let Some(client) = &mut self.clients[index] else { return };
        // Who asks whether the gateway lives must not be refused for the requests of others.
        if head.path != "/healthz" && !self.budget.take(now) {
            client.refuse(&Fault::TooMany, &head, now);
            return;
        }
        let beat = Instant::from_nanos(self.beat.load(Ordering::Relaxed));
        let (metrics, history) = (&*self.metrics, &self.history);
        let here = Here { beat_age: now.saturating_since(beat), metrics, history, now };
        let caller = self.guard.admit(&client.stream.0, &head.bearer, &mut self.guesses, now);
        let found = caller.and_then(|caller| Ok((find(&head, body, &caller, &here)?, caller)));
        match found {
            Err(fault) => client.refuse(&fault, &head, now),
            Ok((Found::Now(response), _)) => client.answer(&response, Some(&head), now),
            Ok((Found::Ask(subject), _)) => self.ask(index, head, subject, now),
            Ok((Found::Look(request), _)) => {
                self.serial += 1;
                self.send(index, head, Ticket::Look(self.serial), request, now);
            }
            Ok((Found::Order(order), caller)) => self.order(index, head, order, &caller, now),
        }
    }

    /// Answers a client with what the event loop has said not long ago, or has it wait.
    fn ask(&mut self, index: usize, head: Head, subject: Subject, now: Instant) {
        let Some(client) = &mut self.clients[index] else { return };
        let slot = &mut self.slots[subject.index()];
        match &slot.known {
            Some((at, known)) if now.saturating_since(*at) < FRESH => {
                reply(client, &head, known, now);
            }
            _ => {
                let ticket = Ticket::Shared(subject);
                client.wait(head, ticket, now);
                if !slot.asked && self.ask.send((ticket, subject.request())).is_ok() {
                    slot.asked = true;
                    (self.wake)();
                }
            }
        }
    }

    /// Gives an order, and has its client wait for what the event loop says.
    fn order(&mut self, index: usize, head: Head, order: Request, caller: &Caller, now: Instant) {
        let Some(client) = &mut self.clients[index] else { return };
        let (name, role) = (caller.name.as_deref().unwrap_or_default(), caller.role);
        let role = role.map_or("", Role::as_str);
        info!(user = name, role, peer = %client.stream.0.peer(), ?order, "order over HTTP");
        self.serial += 1;
        self.send(index, head, Ticket::Order(self.serial), order, now);
    }

    /// Has a client wait for what the event loop says to it alone.
    fn send(&mut self, index: usize, head: Head, ticket: Ticket, request: Request, now: Instant) {
        let Some(client) = &mut self.clients[index] else { return };
        client.wait(head, ticket, now);
        if self.ask.send((ticket, request)).is_ok() {
            (self.wake)();
        }
    }

    /// The event loop has answered: gives the answer to all clients that wait for it.
    fn learn(&mut self, ticket: Ticket, told: Told, now: Instant) {
        let known = match told {
            Told::Answer(answer) => Known::Answer(Arc::new(answer)),
            Told::Scrape(scrape) => match scrape.answer() {
                Answer::Metrics(page) => Known::Metrics(page.into_bytes().into()),
                answer => Known::Answer(Arc::new(answer)),
            },
        };
        match ticket {
            Ticket::Shared(subject) => {
                self.slots[subject.index()] =
                    Slot { asked: false, known: Some((now, known.clone())) };
            }
            Ticket::Look(_) => {}
            // What was told before the order is not so any more.
            Ticket::Order(_) => self.slots.iter_mut().for_each(|slot| slot.known = None),
        }
        for index in 0..CLIENTS_MAX {
            let Some(client) = &mut self.clients[index] else { continue };
            let waits = client.waits_for().filter(|(_, wanted)| *wanted == ticket);
            if let Some(head) = waits.map(|(head, _)| head.clone()) {
                reply(client, &head, &known, now);
                self.drive(index, now);
            }
        }
    }
}

/// Gives a client its answer with what the event loop has said.
fn reply(client: &mut Client, head: &Head, known: &Known, now: Instant) {
    match answer(head, known) {
        Ok(response) => client.answer(&response, Some(head), now),
        Err(fault) => client.refuse(&fault, head, now),
    }
}

/// Requests that may be answered in this second.
#[derive(Debug, Default)]
pub(super) struct Budget {
    second: u64,
    used: u32,
}

impl Budget {
    /// Whether one more is answered.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = Self { second, used: 0 };
        }
        self.used += 1;
        self.used <= REQUESTS_MAX
    }
}

const WAKE: Token = Token(0);
const LISTENER: Token = Token(1);
/// Clients have the tokens from here on.
const FIRST_CLIENT: usize = 2;

/// Clients at once.
const CLIENTS_MAX: usize = 64;

/// Those of them at one address of another machine; one more is closed at once.
const PEER_CLIENTS_MAX: usize = 16;

/// Requests of all clients in one second; more are refused.
pub(super) const REQUESTS_MAX: u32 = 100;

/// Between two answers of the event loop. Each takes in the order of 100 µs, for which hosts wait.
const ANSWER_PAUSE: Duration = Duration::from_millis(2);

/// How often the event loop says that it lives.
const BEAT: Duration = Duration::from_secs(1);

/// When accepting is tried again after it has failed.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
