//! One client: reads heads of requests and writes answers, as far as its socket allows.

use super::Subject;
use super::problem::{Fault, HEAD_MAX};
use super::request::{Head, parse};
use super::response::Response;
use std::io::{self, Read, Write};
use std::sync::Arc;
use weir_flow::clock::{Duration, Instant};

/// A client.
#[derive(Debug)]
pub(super) struct Connection<S> {
    pub(super) stream: S,
    received: Vec<u8>,
    state: State,
    /// Since when it has been in this state.
    since: Instant,
}

/// What a client is doing.
#[derive(Debug)]
enum State {
    /// Sends a request, or has sent none yet.
    Reads,
    /// Waits for an answer of the event loop.
    Waits(Head, Subject),
    /// Takes its answer.
    Writes { head: Vec<u8>, body: Arc<[u8]>, written: usize, last: bool },
}

/// What a client needs next.
#[derive(Debug)]
pub(super) enum Progress {
    /// An event of its socket, or an answer.
    Waits,
    /// An answer to this request.
    Asks(Head),
    /// Nothing: it is closed.
    Over,
}

impl<S: Read + Write> Connection<S> {
    /// A client that has just connected.
    pub(super) const fn new(stream: S, now: Instant) -> Self {
        Self { stream, received: Vec::new(), state: State::Reads, since: now }
    }

    /// Writes and reads as far as the socket allows.
    pub(super) fn progress(&mut self, now: Instant) -> Progress {
        loop {
            match &mut self.state {
                State::Waits(..) => return Progress::Waits,
                State::Writes { head, body, written, last } => {
                    match write(&mut self.stream, head, body, written) {
                        Ok(true) if *last => return Progress::Over,
                        Ok(true) => (self.state, self.since) = (State::Reads, now),
                        Ok(false) => return Progress::Waits,
                        Err(_) => return Progress::Over,
                    }
                }
                State::Reads => match self.read(now) {
                    Ok(Some(head)) => return Progress::Asks(head),
                    Ok(None) => return Progress::Waits,
                    Err(Some(fault)) => self.answer(&fault.response(), None, now),
                    Err(None) => return Progress::Over,
                },
            }
        }
    }

    /// The next request; `None` if the socket has no more bytes now. An error without a fault: the client has left.
    fn read(&mut self, now: Instant) -> Result<Option<Head>, Option<Fault>> {
        loop {
            if let Some((head, length)) = parse(&self.received)? {
                self.received.drain(..length);
                return Ok(Some(head));
            }
            if self.received.len() >= HEAD_MAX {
                return Err(Some(Fault::HeadTooLarge));
            }
            let mut bytes = [0; HEAD_MAX];
            let room = HEAD_MAX - self.received.len();
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return Err(None),
                Ok(read) => {
                    if self.received.is_empty() {
                        self.since = now;
                    }
                    self.received.extend_from_slice(&bytes[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(None),
            }
        }
    }

    /// Has it wait for an answer of the event loop.
    pub(super) fn wait(&mut self, head: Head, subject: Subject, now: Instant) {
        (self.state, self.since) = (State::Waits(head, subject), now);
    }

    /// What it waits for.
    pub(super) const fn waits_for(&self) -> Option<(&Head, Subject)> {
        match &self.state {
            State::Waits(head, subject) => Some((head, *subject)),
            State::Reads | State::Writes { .. } => None,
        }
    }

    /// Gives it an answer; without the head of its request the answer is the last one.
    pub(super) fn answer(&mut self, response: &Response, asked: Option<&Head>, now: Instant) {
        let last = asked.is_none_or(|head| !head.keep_alive);
        let no_body = asked.is_some_and(|head| head.no_body);
        let body = if no_body { Arc::default() } else { response.body.clone() };
        let head = response.head(!last);
        (self.state, self.since) = (State::Writes { head, body, written: 0, last }, now);
    }

    /// Gives it an error.
    pub(super) fn refuse(&mut self, fault: &Fault, asked: &Head, now: Instant) {
        self.answer(&fault.response(), Some(asked).filter(|_| !fault.is_last()), now);
    }

    /// When it is closed, or gets an error, if nothing happens.
    pub(super) fn deadline(&self) -> Instant {
        let patience = match self.state {
            State::Reads if self.received.is_empty() => IDLE_LIMIT,
            State::Reads => HEAD_LIMIT,
            State::Waits(..) => super::ANSWER_LIMIT,
            State::Writes { .. } => WRITE_LIMIT,
        };
        self.since + patience
    }

    /// Since when it has sent no complete request; `None` if it has sent one that is not answered.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        matches!(self.state, State::Reads).then_some(self.since)
    }

    /// Its time is over: true if it is closed at once, otherwise it gets an answer.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let fault = match self.state {
            State::Reads if !self.received.is_empty() => Fault::HeadTimeout,
            State::Waits(..) => Fault::NoAnswer,
            State::Reads | State::Writes { .. } => return true,
        };
        self.answer(&fault.response(), None, now);
        false
    }
}

/// Writes head and body; whether all of both has left.
fn write(
    stream: &mut impl Write,
    head: &[u8],
    body: &[u8],
    written: &mut usize,
) -> io::Result<bool> {
    while *written < head.len() + body.len() {
        let rest = match written.checked_sub(head.len()) {
            None => &head[*written..],
            Some(sent) => &body[sent..],
        };
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// A client must send a head within this time of its first byte.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// A client must take an answer within this time.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// A connection without a request is closed after this time.
const IDLE_LIMIT: Duration = Duration::from_secs(75);
