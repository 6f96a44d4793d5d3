//! The control socket: accepts clients, reads their requests and writes the answers.
//!
//! Only the user of the process and root can connect. Clients still cost hosts nothing: there are at most
//! [`CLIENTS_MAX`] clients, each with one line of at most [`LINE_MAX`] bytes and one answer; a client's next line
//! is read when it has taken the last answer; one question of all clients is answered each [`ANSWER_PAUSE`]. A
//! client that sends no request, or does not take its answer, is closed after [`PATIENCE`], and after [`GRACE`]
//! if others wait for a place.

use crate::folder::folder;
use crate::frontend::unix_socket::{Access, UnixPlace};
use crate::operator::protocol::{LINE_MAX, Refusal, Request};
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};

/// The request of a client, or why it is none.
pub(crate) type Asked = Result<Request, Refusal>;

/// A client, told apart from later ones in the same place by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    index: usize,
    serial: u64,
}

/// The socket and its clients.
#[derive(Debug)]
pub(crate) struct Socket {
    place: UnixPlace,
    registry: Registry,
    /// The kernel may have clients that were not accepted yet: their event comes once.
    ready: bool,
    /// A client that was accepted and waits for a place.
    waiting: Option<UnixStream>,
    /// No client gets a place before this time.
    next_accept: Instant,
    clients: Vec<Option<Client>>,
    serial: u64,
    /// Requests in order; at most one of each client.
    questions: VecDeque<(ClientId, Asked)>,
    next_answer: Instant,
}

#[derive(Debug)]
struct Client {
    id: ClientId,
    stream: UnixStream,
    received: Vec<u8>,
    /// How much of it has no end of line.
    searched: usize,
    /// The answer, as far as it is not written.
    answer: Vec<u8>,
    written: usize,
    /// Its request is being answered.
    asks: bool,
    /// It is closed when its answer is written.
    last: bool,
    /// When it connected, or had taken the last answer.
    since: Instant,
}

/// What a client needs next.
enum Progress {
    /// An event of its socket, or an answer.
    Waits,
    /// An answer to this request.
    Asks(Asked),
    /// Nothing: it is closed.
    Over,
}

impl Socket {
    /// Listens at `path`, and has its events delivered by `registry`. The last folder of the path is made if
    /// it is missing.
    pub(crate) fn open(path: &Path, registry: Registry) -> io::Result<Self> {
        let folder = folder(path);
        if !folder.exists() {
            DirBuilder::new().mode(0o700).create(folder)?;
        }
        let mut place = UnixPlace::take(path, Access::Owner)?;
        registry.register(&mut place.listener, Token(FIRST_TOKEN), Interest::READABLE)?;
        Ok(Self {
            place,
            registry,
            ready: true,
            waiting: None,
            next_accept: Instant::ZERO,
            clients: (0..CLIENTS_MAX).map(|_| None).collect(),
            serial: 0,
            questions: VecDeque::new(),
            next_answer: Instant::ZERO,
        })
    }

    /// Whether a token belongs here.
    pub(crate) fn owns(token: usize) -> bool {
        (FIRST_TOKEN..=FIRST_TOKEN + CLIENTS_MAX).contains(&token)
    }

    /// Handles an event.
    pub(crate) fn event(&mut self, now: Instant, token: usize) {
        match token.checked_sub(FIRST_TOKEN + 1) {
            None => self.ready = true,
            Some(index) => self.serve(now, index),
        }
    }

    /// Accepts clients, and closes those that have been idle for too long.
    pub(crate) fn tick(&mut self, now: Instant) {
        for place in &mut self.clients {
            let late = |client: &mut Client| client.leaves_by(PATIENCE).is_some_and(|at| at <= now);
            place.take_if(late);
        }
        while now >= self.next_accept {
            // A client is closed only if another waits.
            self.waiting = self.waiting.take().or_else(|| self.accept(now));
            let Some(index) = self.waiting.is_some().then(|| self.room(now)).flatten() else {
                break;
            };
            let Some(stream) = self.waiting.take() else { break };
            self.serial += 1;
            let id = ClientId { index, serial: self.serial };
            let mut client = Client::new(id, stream, now);
            let token = Token(FIRST_TOKEN + 1 + index);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = self.registry.register(&mut client.stream, token, interest) {
                warn!(%error, "cannot watch a client of the control socket: closed");
                continue;
            }
            self.clients[index] = Some(client);
            self.serve(now, index);
        }
    }

    /// The next client, if the kernel has one.
    fn accept(&mut self, now: Instant) -> Option<UnixStream> {
        while self.ready {
            match self.place.listener.accept() {
                Ok((stream, _)) => return Some(stream),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => self.ready = false,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        warn!(%error, "cannot accept on the control socket; trying again in a second");
                        self.next_accept = now + ACCEPT_AGAIN;
                        return None;
                    }
                },
            }
        }
        None
    }

    /// A free place, if need be that of the client that has been idle for longest.
    fn room(&mut self, now: Instant) -> Option<usize> {
        if let Some(free) = self.clients.iter().position(Option::is_none) {
            return Some(free);
        }
        let clients = self.clients.iter().flatten();
        let idle = clients.filter_map(|one| Some((one.leaves_by(GRACE)?, one.id.index))).min();
        match idle {
            Some((at, index)) if at <= now => {
                self.clients[index] = None;
                Some(index)
            }
            Some((at, _)) => {
                self.next_accept = at;
                None
            }
            // Every client waits for an answer.
            None => {
                self.next_accept = now + ANSWER_PAUSE;
                None
            }
        }
    }

    /// When it has something to do if no event comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let late = self.clients.iter().flatten().filter_map(|one| one.leaves_by(PATIENCE));
        let answer = (!self.questions.is_empty()).then_some(self.next_answer);
        let accept = (self.ready || self.waiting.is_some()).then_some(self.next_accept);
        late.chain(answer).chain(accept).min()
    }

    /// Whether a question is to be answered now.
    pub(crate) fn has_question(&self, now: Instant) -> bool {
        !self.questions.is_empty() && self.next_answer <= now
    }

    /// The question that is to be answered now.
    pub(crate) fn question(&mut self, now: Instant) -> Option<(ClientId, Asked)> {
        if !self.has_question(now) {
            return None;
        }
        self.next_answer = now + ANSWER_PAUSE;
        self.questions.pop_front()
    }

    /// Answers a client, which may have left.
    pub(crate) fn answer(&mut self, now: Instant, id: ClientId, line: String) {
        let place = self.clients[id.index].as_mut();
        if let Some(client) = place.filter(|client| client.id == id) {
            client.asks = false;
            client.answer = line.into_bytes();
            client.since = now;
            self.serve(now, id.index);
        }
    }

    /// Gives up a client that waits for an answer, which its caller writes; `None` if it has left.
    pub(crate) fn take(&mut self, now: Instant, id: ClientId) -> Option<UnixStream> {
        let mut client = self.clients[id.index].take_if(|client| client.id == id)?;
        self.next_accept = now;
        self.registry.deregister(&mut client.stream).ok()?;
        Some(client.stream)
    }

    /// Writes and reads as far as the socket allows.
    fn serve(&mut self, now: Instant, index: usize) {
        let Some(client) = &mut self.clients[index] else { return };
        match client.serve(now) {
            Progress::Waits => {}
            Progress::Asks(asked) => {
                let id = client.id;
                self.questions.push_back((id, asked));
            }
            Progress::Over => {
                self.clients[index] = None;
                self.next_accept = now;
            }
        }
    }
}

impl Client {
    fn new(id: ClientId, stream: UnixStream, now: Instant) -> Self {
        Self {
            id,
            stream,
            received: Vec::new(),
            searched: 0,
            answer: Vec::new(),
            written: 0,
            asks: false,
            last: false,
            since: now,
        }
    }

    /// When it is closed if nothing happens, with this patience. Not while it waits for an answer.
    fn leaves_by(&self, patience: Duration) -> Option<Instant> {
        (!self.asks).then_some(self.since + patience)
    }

    fn serve(&mut self, now: Instant) -> Progress {
        if self.asks {
            return Progress::Waits;
        }
        match self.write(now) {
            Ok(true) => self.read(),
            Ok(false) => Progress::Waits,
            Err(_) => Progress::Over,
        }
    }

    /// Writes the answer; whether all of it has left.
    fn write(&mut self, now: Instant) -> io::Result<bool> {
        while self.written < self.answer.len() {
            match self.stream.write(&self.answer[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !self.answer.is_empty() {
            self.since = now;
        }
        (self.answer, self.written) = (Vec::new(), 0);
        if self.last { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(true) }
    }

    /// Reads up to the end of a line.
    fn read(&mut self) -> Progress {
        loop {
            let rest = &self.received[self.searched..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=self.searched + end).collect();
                self.searched = 0;
                self.received.shrink_to(PIECE);
                self.asks = true;
                return Progress::Asks(Request::parse(&line));
            }
            if self.received.len() > LINE_MAX {
                return self.ask_last(Refusal::TooLong);
            }
            self.searched = self.received.len();
            let mut bytes = [0; PIECE];
            let room = (LINE_MAX + 1 - self.received.len()).min(PIECE);
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) if self.received.is_empty() => return Progress::Over,
                Ok(0) => return self.ask_last(Refusal::Unfinished),
                Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Waits,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::Over,
            }
        }
    }

    /// Answers with the error, and closes the client after that.
    fn ask_last(&mut self, refusal: Refusal) -> Progress {
        (self.asks, self.last) = (true, true);
        (self.received, self.searched) = (Vec::new(), 0);
        Progress::Asks(Err(refusal))
    }
}

/// The first token of the socket: its own; those of its clients come behind.
pub(crate) const FIRST_TOKEN: usize = 512;

/// Clients at once. One more waits until one has left; further ones do so in the kernel.
const CLIENTS_MAX: usize = 32;

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// A client must send a request within this time, and take the answer within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same while others wait for its place.
const GRACE: Duration = Duration::from_millis(250);

/// Between two answers. Each takes in the order of 100 µs, for which hosts wait.
const ANSWER_PAUSE: Duration = Duration::from_millis(2);

/// When accepting is tried again after it has failed.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
