//! One client: reads heads of requests and writes answers, as far as its socket allows.

use super::Ticket;
use super::problem::{Fault, HEAD_MAX};
use super::request::{Head, Method, Site, parse};
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
    Waits(Head, Ticket),
    /// Takes its answer.
    Writes { head: Vec<u8>, body: Arc<[u8]>, written: usize, last: bool },
}

/// What a client needs next.
#[derive(Debug)]
pub(super) enum Progress {
    /// An event of its socket, or an answer.
    Waits,
    /// An answer to this request with this body.
    Asks(Head, Vec<u8>),
    /// Nothing: it is closed.
    Over,
}

impl<S: Read + Write> Connection<S> {
    /// A client that has just connected.
    pub(super) const fn new(stream: S, now: Instant) -> Self {
        Self { stream, received: Vec::new(), state: State::Reads, since: now }
    }

    /// Writes and reads as far as the socket allows.
    pub(super) fn progress(&mut self, now: Instant, site: &Site<'_>) -> Progress {
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
                State::Reads => match self.read(now, site) {
                    Ok(Some((head, body))) => return Progress::Asks(head, body),
                    Ok(None) => return Progress::Waits,
                    Err(Some(fault)) => self.answer(&fault.response(), None, now),
                    Err(None) => return Progress::Over,
                },
            }
        }
    }

    /// The next request and its body; `None` if the socket has no more bytes now. An error without a fault: the client
    /// has left.
    fn read(
        &mut self,
        now: Instant,
        site: &Site<'_>,
    ) -> Result<Option<(Head, Vec<u8>)>, Option<Fault>> {
        loop {
            let wanted = match parse(&self.received, site)? {
                Some((head, length)) => {
                    let end = length + head.body;
                    if self.received.len() >= end {
                        let mut request: Vec<u8> = self.received.drain(..end).collect();
                        return Ok(Some((head, request.split_off(length))));
                    }
                    end
                }
                None if self.received.len() >= HEAD_MAX => return Err(Some(Fault::HeadTooLarge)),
                None => HEAD_MAX,
            };
            let mut bytes = [0; HEAD_MAX];
            let room = (wanted - self.received.len()).min(HEAD_MAX);
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
    pub(super) fn wait(&mut self, head: Head, ticket: Ticket, now: Instant) {
        (self.state, self.since) = (State::Waits(head, ticket), now);
    }

    /// What it waits for.
    pub(super) const fn waits_for(&self) -> Option<(&Head, Ticket)> {
        match &self.state {
            State::Waits(head, ticket) => Some((head, *ticket)),
            State::Reads | State::Writes { .. } => None,
        }
    }

    /// Gives it an answer; without the head of its request the answer is the last one.
    pub(super) fn answer(&mut self, response: &Response, asked: Option<&Head>, now: Instant) {
        let last = asked.is_none_or(|head| !head.keep_alive);
        let no_body = asked.is_some_and(|head| head.method == Method::Head);
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
            State::Waits(_, Ticket::Shared(_) | Ticket::Look(_)) => super::ANSWER_LIMIT,
            State::Waits(_, Ticket::Order(_)) => super::ORDER_LIMIT,
            State::Writes { .. } => WRITE_LIMIT,
        };
        self.since + patience
    }

    /// Since when it has sent no complete request; `None` if it has sent one that is not answered.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        matches!(self.state, State::Reads).then_some(self.since)
    }

    /// Ends it when its answer has left, if it has one to come: true if it has none and is closed at once.
    pub(super) fn retire(&mut self) -> bool {
        match &mut self.state {
            State::Reads => return true,
            State::Waits(head, _) => head.keep_alive = false,
            State::Writes { last, .. } => *last = true,
        }
        false
    }

    /// Its time is over: true if it is closed at once, otherwise it gets an answer.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let fault = match self.state {
            State::Reads if !self.received.is_empty() => Fault::HeadTimeout,
            State::Waits(_, Ticket::Shared(_) | Ticket::Look(_)) => Fault::NoAnswer,
            State::Waits(_, Ticket::Order(_)) => Fault::NoVerdict,
            State::Reads | State::Writes { .. } => return true,
        };
        self.answer(&fault.response(), None, now);
        false
    }
}

/// Writes head and body; whether all of both has left this process.
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
    // Under TLS some of it may wait in memory.
    match stream.flush() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        flushed => flushed.map(|()| true),
    }
}

/// A client must send a head and its body within this time of its first byte.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// A client must take an answer within this time.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// A connection without a request is closed after this time.
const IDLE_LIMIT: Duration = Duration::from_secs(75);
