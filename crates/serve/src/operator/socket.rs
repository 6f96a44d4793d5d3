//! The control socket: who may ask, how much and how long.
//!
//! It is for the user of the process and for root alone. Still, nobody on it costs hosts anything: there
//! are at most [`CLIENTS_MAX`] clients, each with one line of at most [`LINE_MAX`] bytes and one answer;
//! a client's next line is read when it has taken the answer to the last one; one question is answered each
//! [`ANSWER_PAUSE`], whoever asks. Who has not asked, or has not taken what was answered, after
//! [`PATIENCE`] is closed, and after [`GRACE`] if others wait for a place.

use crate::ServeError;
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

/// What a client has asked for, if it can be.
pub(crate) type Asked = Result<Request, Refusal>;

/// A client, told apart from later ones in the same place by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    index: usize,
    serial: u64,
}

/// The socket and those who are connected.
#[derive(Debug)]
pub(crate) struct Socket {
    place: UnixPlace,
    /// The kernel may have clients that were not accepted yet: it tells of them once.
    ready: bool,
    /// Has been accepted, and waits for a place.
    waiting: Option<UnixStream>,
    /// Nobody gets a place before that.
    next_accept: Instant,
    clients: Vec<Option<Client>>,
    serial: u64,
    /// What was asked, in order; at most one question of each client.
    questions: VecDeque<(ClientId, Asked)>,
    next_answer: Instant,
}

#[derive(Debug)]
struct Client {
    id: ClientId,
    stream: UnixStream,
    received: Vec<u8>,
    /// What waits to be written.
    answer: Vec<u8>,
    written: usize,
    /// Its question waits for an answer.
    asks: bool,
    /// It is closed when its answer is written.
    last: bool,
    /// When it came, or had taken the last answer.
    since: Instant,
}

/// How a client goes on.
enum Progress {
    /// It waits for the other side.
    Waits,
    /// It has asked for something.
    Asks(Asked),
    /// It is over.
    Over,
}

impl Socket {
    /// Takes the place. A folder that is missing at its end is made.
    pub(crate) fn open(path: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Control { path: path.to_path_buf(), source };
        let folder = folder(path);
        if !folder.exists() {
            // Others may look in, as in `/run`; the socket has a mode of its own.
            DirBuilder::new().mode(0o755).create(folder).map_err(failed)?;
        }
        Ok(Self {
            place: UnixPlace::take(path, Access::Owner).map_err(failed)?,
            ready: true,
            waiting: None,
            next_accept: Instant::ZERO,
            clients: (0..CLIENTS_MAX).map(|_| None).collect(),
            serial: 0,
            questions: VecDeque::new(),
            next_answer: Instant::ZERO,
        })
    }

    /// Has the event loop told of clients.
    pub(crate) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        registry.register(&mut self.place.listener, Token(FIRST_TOKEN), Interest::READABLE)
    }

    /// Whether a token belongs here.
    pub(crate) fn owns(token: usize) -> bool {
        (FIRST_TOKEN..=FIRST_TOKEN + CLIENTS_MAX).contains(&token)
    }

    /// The event loop tells of something.
    pub(crate) fn event(&mut self, now: Instant, token: usize) {
        match token.checked_sub(FIRST_TOKEN + 1) {
            None => self.ready = true,
            Some(index) => self.go_on(now, index),
        }
    }

    /// Looks who has come, and who has been here for too long.
    pub(crate) fn look(&mut self, now: Instant, registry: &Registry) {
        for place in &mut self.clients {
            let late = |client: &mut Client| client.leaves_by(PATIENCE).is_some_and(|at| at <= now);
            place.take_if(late);
        }
        while now >= self.next_accept {
            // Only when somebody waits does anybody make room.
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
            if let Err(error) = registry.register(&mut client.stream, token, interest) {
                warn!(%error, "cannot watch a client of the control socket: closed");
                continue;
            }
            self.clients[index] = Some(client);
            self.go_on(now, index);
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
            // Everybody waits for an answer.
            None => {
                self.next_accept = now + ANSWER_PAUSE;
                None
            }
        }
    }

    /// When something is to be done, if nothing happens.
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
            self.go_on(now, id.index);
        }
    }

    /// Writes and reads what can be.
    fn go_on(&mut self, now: Instant, index: usize) {
        let Some(client) = &mut self.clients[index] else { return };
        match client.go_on(now) {
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
            answer: Vec::new(),
            written: 0,
            asks: false,
            last: false,
            since: now,
        }
    }

    /// When it is closed, if nothing happens and it may be idle for so long. Not while it is we who are
    /// waited for.
    fn leaves_by(&self, patience: Duration) -> Option<Instant> {
        (!self.asks).then_some(self.since + patience)
    }

    fn go_on(&mut self, now: Instant) -> Progress {
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
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                self.asks = true;
                return Progress::Asks(Request::parse(&line));
            }
            if self.received.len() > LINE_MAX {
                return self.ask_last(Refusal::TooLong);
            }
            let mut bytes = [0; LINE_MAX + 1];
            let room = bytes.len() - self.received.len();
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

    /// It is told what it did wrong, and heard no more.
    fn ask_last(&mut self, refusal: Refusal) -> Progress {
        (self.asks, self.last) = (true, true);
        self.received = Vec::new();
        Progress::Asks(Err(refusal))
    }
}

/// The first token of the socket: its own; those of its clients come behind.
pub(crate) const FIRST_TOKEN: usize = 512;

/// Clients at once. One more waits until one has left; further ones do so in the kernel.
const CLIENTS_MAX: usize = 32;

/// A client must ask within this time, and take the answer within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same while others wait for its place.
const GRACE: Duration = Duration::from_millis(250);

/// Between two answers. What one takes is in the order of 100 µs, which hosts wait for.
const ANSWER_PAUSE: Duration = Duration::from_millis(2);

/// When accepting is tried again after it has failed.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
