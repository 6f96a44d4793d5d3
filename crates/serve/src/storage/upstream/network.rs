//! The sockets of sessions with upstreams, behind two traits, so that a test can stand in for the kernel.

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Makes connections to the portals of upstreams.
pub(crate) trait Network {
    /// A connection.
    type Stream: Stream;

    /// Begins a connection. Its events carry `token`.
    fn connect(&mut self, address: SocketAddr, token: Token) -> io::Result<Self::Stream>;

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

impl Network for Tcp {
    type Stream = TcpStream;

    fn connect(&mut self, address: SocketAddr, token: Token) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
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
        drop(SockRef::from(self).set_linger(Some(Duration::ZERO)));
    }
}
