//! The sockets of sessions with upstreams and their events, behind traits, so that a test can replace the kernel.

use crate::clock::Clock;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time;
use weir_flow::clock::{Duration, Instant};

/// Makes connections to the portals of upstreams.
pub(crate) trait Network {
    /// A connection.
    type Stream: Stream;

    /// Starts a connection, whose events name this socket.
    fn connect(&mut self, address: SocketAddr, socket: usize) -> io::Result<Self::Stream>;

    /// Ends the events of a connection that is about to be closed.
    fn forget(&mut self, stream: &mut Self::Stream);
}

/// A connection whose calls never block: they fail with `WouldBlock` instead.
pub(crate) trait Stream: Read + Write {
    /// Whether the connection is established, from when on small writes are sent at once. An error says why
    /// it cannot be established.
    fn is_established(&self) -> io::Result<bool>;

    /// Makes closing discard what is not sent yet and reset the connection.
    fn reset_on_close(&self);
}

/// Events of connections while no event loop runs: before the gateway serves, and when it stops.
pub(crate) trait EventSource {
    /// The time.
    fn now(&self) -> Instant;

    /// Waits for an event, at most this long, and appends the number of each socket that has one.
    fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<(usize, Readiness)>,
    ) -> io::Result<()>;
}

/// What an event says about a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// Data or the end of the stream can be read.
    pub(crate) readable: bool,
    /// Data can be written, or the connection attempt is over.
    pub(crate) writable: bool,
    /// The other end has closed its side.
    pub(crate) ended: bool,
}

impl Readiness {
    /// What this event says.
    pub(crate) fn of(event: &Event) -> Self {
        let ended = event.is_read_closed();
        Self { readable: event.is_readable() || ended, writable: event.is_writable(), ended }
    }
}

/// TCP connections of the kernel, whose events go to one event loop.
#[derive(Debug)]
pub(crate) struct Tcp {
    registry: Registry,
}

impl Tcp {
    /// Connections whose events this registry delivers.
    pub(crate) const fn new(registry: Registry) -> Self {
        Self { registry }
    }
}

/// Events of the kernel's queue that a registry of [`Tcp`] delivers to, and the time of the only clock.
pub(crate) struct KernelEvents<'a> {
    poll: &'a mut Poll,
    clock: Clock,
    events: Events,
}

impl<'a> KernelEvents<'a> {
    /// Events of this queue.
    pub(crate) fn new(poll: &'a mut Poll, clock: Clock) -> Self {
        Self { poll, clock, events: Events::with_capacity(EVENTS) }
    }
}

impl EventSource for KernelEvents<'_> {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<(usize, Readiness)>,
    ) -> io::Result<()> {
        let timeout = timeout.map(|timeout| time::Duration::from_nanos(timeout.as_nanos()));
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let of_path = |event: &Event| {
            let number = event.token().0.checked_sub(FIRST_TOKEN)?;
            Some((number, Readiness::of(event)))
        };
        events.extend(self.events.iter().filter_map(of_path));
        Ok(())
    }
}

impl Network for Tcp {
    type Stream = TcpStream;

    fn connect(&mut self, address: SocketAddr, socket: usize) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        let token = Token(FIRST_TOKEN + socket);
        self.registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(stream)
    }

    fn forget(&mut self, stream: &mut TcpStream) {
        // It is closed in any case.
        drop(self.registry.deregister(stream));
    }
}

impl Stream for TcpStream {
    fn is_established(&self) -> io::Result<bool> {
        if let Some(error) = self.take_error()? {
            return Err(error);
        }
        match self.peer_addr() {
            Ok(_) => self.set_nodelay(true).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn reset_on_close(&self) {
        // It is closed either way.
        drop(SockRef::from(self).set_linger(Some(time::Duration::ZERO)));
    }
}

/// The sockets of upstreams have the tokens from here on.
pub(crate) const FIRST_TOKEN: usize = 1 << 24;

/// The most events of one wait.
const EVENTS: usize = 256;
