//! One connection's socket: TCP or a Unix socket, in the clear or under TLS.
//!
//! A [`Socket`] never blocks. It is made for an event loop that gets one event when a socket becomes
//! readable or writable, and then reads or writes until [`WouldBlock`](io::ErrorKind::WouldBlock). With TLS
//! three things are different for the loop:
//!
//! * A read may leave bytes in memory, for which no event comes. While
//!   [`has_buffered`](Socket::has_buffered) says so, the socket has to be read from again, whether the
//!   last read ended with fewer bytes than there was room for, or with `WouldBlock`.
//! * Written bytes may wait encrypted in memory. While [`wants_write`](Socket::wants_write) says so,
//!   [`flush`](Socket::flush) is to be called each time the socket is writable, and the connection has
//!   not sent everything yet.
//! * Until the handshake is over, data is taken up to the same bound and nothing of it leaves. A write
//!   that is refused for that reason is tried again after the next read.

use crate::source::Source;
use mio::event::Source as EventSource;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;
use weir_flow::clock::{self, Instant};

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A host on the network; IPv4 as such, also where the listener serves both kinds.
    Tcp(SocketAddr),
    /// A process on this machine.
    Unix {
        /// The socket that it came to.
        path: PathBuf,
    },
}

impl Peer {
    /// The origin by which it is counted.
    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Tcp(address) => Source::of(address.ip()),
            Self::Unix { .. } => Source::Local,
        }
    }
}

/// As logs name it: `192.0.2.7:51234`, `unix:/run/weir/nbd.sock`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection of the operating system whose calls never block: they fail with `WouldBlock` instead.
pub(crate) trait Stream: Read + Write {
    /// Has the kernel ask a silent peer for signs of life: a host that lost its power says nothing.
    fn keep_alive(&self) -> io::Result<()>;

    /// Has the kernel take no more while this number of bytes waits to be sent for the first time, and report
    /// when half of them have been sent.
    fn limit_unsent(&self, bytes: u32) -> io::Result<()>;
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket<S: Stream = HostStream> {
    stream: S,
    tls: Option<Box<Tls>>,
    peer: Peer,
    local: Option<SocketAddr>,
}

/// A connection that the kernel has accepted.
#[derive(Debug)]
pub(crate) enum HostStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
struct Tls {
    session: ServerConnection,
    /// The kernel had nothing more at the last read, and neither has the session.
    drained: bool,
    /// Why the connection is over, to be reported when the bytes before it have been.
    failure: Option<io::Error>,
}

impl Socket {
    /// A TCP connection that has been accepted from `peer`. It sends without delay: what is written is
    /// whole, and waiting to fill a segment would only hold it up.
    pub(crate) fn tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let local = Some(canonical(stream.local_addr()?));
        Ok(Self::new(HostStream::Tcp(stream), Peer::Tcp(canonical(peer)), local))
    }

    /// A connection that has been accepted on a Unix socket.
    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        let address = stream.local_addr()?;
        let path = address.as_pathname().map(PathBuf::from).unwrap_or_default();
        Ok(Self::new(HostStream::Unix(stream), Peer::Unix { path }, None))
    }
}

impl<S: Stream> Socket<S> {
    /// A connection from `peer` to the address `local`, which a Unix socket does not have.
    pub(crate) const fn new(stream: S, peer: Peer, local: Option<SocketAddr>) -> Self {
        Self { stream, tls: None, peer, local }
    }

    /// The other end.
    pub(crate) const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The address on this side; `None` on a Unix socket, whose path [`peer`](Self::peer) has.
    pub(crate) const fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// From here on everything is TLS, and the next bytes from the peer are its handshake.
    ///
    /// What was written in the clear must have left, and nothing that was read may be left over: it
    /// came unprotected from a sender that did not wait for the answer, and must not be taken for a part
    /// of the protected conversation. [`has_buffered`](Self::has_buffered) holds afterwards.
    pub(crate) fn start_tls(&mut self, config: Arc<ServerConfig>) -> io::Result<()> {
        self.tls = Some(Box::new(Tls::new(config)?));
        Ok(())
    }

    /// The certificate that the peer has shown under TLS, which the authorities of the configuration have signed.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.as_ref()?.session.peer_certificates()?.first()
    }

    /// [`Stream::keep_alive`].
    pub(crate) fn keep_alive(&self) -> io::Result<()> {
        self.stream.keep_alive()
    }

    /// Whether there may be bytes to read for which no event comes.
    pub(crate) fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.drained)
    }

    /// Whether written bytes wait in memory.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.wants_write())
    }

    /// Reads what is there into `buffer`, which is not empty. 0: the peer has closed in order.
    ///
    /// One call does a bounded amount of work, however little of what comes is data. Under TLS an error
    /// of kind `InvalidData` says that the peer broke the protocol or showed no valid certificate; a
    /// connection that was cut off ends in `UnexpectedEof`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(buffer),
            Some(tls) => tls.read(&mut self.stream, buffer),
        }
    }

    /// Writes what it can of `slices`, and says how much that was.
    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.write_vectored(slices),
            Some(tls) => tls.write(&mut self.stream, slices),
        }
    }

    /// Sends the bytes that wait in memory. True: all are sent; false: the socket takes no more now.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&mut self.stream),
        }
    }
}

/// Limits how many bytes wait in the kernel to be sent, since it sends them in order, whatever comes after. Half
/// of them are sent in one to four milliseconds, the time in which the event loop must bring more.
#[derive(Debug)]
pub(crate) struct Unsent {
    most: u32,
    /// Since when the kernel takes nothing.
    blocked: Option<Instant>,
}

impl Unsent {
    /// For a new socket.
    pub(crate) fn new(socket: &Socket<impl Stream>) -> Self {
        let mut unsent = Self { most: 0, blocked: None };
        unsent.set(socket, UNSENT_FIRST);
        unsent
    }

    /// The kernel takes nothing.
    pub(crate) fn blocked(&mut self, now: Instant) {
        self.blocked.get_or_insert(now);
    }

    /// The kernel has taken something.
    pub(crate) fn took(&mut self, now: Instant, socket: &Socket<impl Stream>) {
        let Some(since) = self.blocked.take() else { return };
        let waited = now.saturating_since(since);
        if waited < UNSENT_SHORT && self.most < UNSENT_MAX {
            self.set(socket, self.most * 2);
        } else if waited > UNSENT_LONG && self.most > UNSENT_MIN {
            self.set(socket, self.most / 2);
        }
    }

    fn set(&mut self, socket: &Socket<impl Stream>, bytes: u32) {
        self.most = bytes;
        if let Err(error) = socket.stream.limit_unsent(bytes) {
            // The connection is slower then, not wrong.
            debug!(peer = %socket.peer, %error, "cannot set TCP_NOTSENT_LOWAT");
        }
    }
}

impl Tls {
    fn new(config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(TLS_BUFFER));
        Ok(Self { session, drained: false, failure: None })
    }

    fn read(&mut self, stream: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<usize> {
        self.drained = false;
        let mut count = 0;
        let mut fetches = 0;
        let end = loop {
            match self.session.reader().read(&mut buffer[count..]) {
                // The end, in order.
                Ok(0) => return Ok(count),
                Ok(more) => {
                    count += more;
                    if count == buffer.len() {
                        return Ok(count);
                    }
                    continue;
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
                Err(_) => {}
            }
            if let Some(failure) = self.failure.take() {
                break failure;
            }
            if fetches == FETCHES {
                break io::ErrorKind::WouldBlock.into();
            }
            fetches += 1;
            if let Err(error) = self.fetch(stream) {
                if error.kind() == io::ErrorKind::WouldBlock {
                    self.drained = true;
                    break error;
                }
                self.failure = Some(error);
            }
        };
        if count == 0 {
            return Err(end);
        }
        if end.kind() != io::ErrorKind::WouldBlock {
            self.failure = Some(end);
        }
        Ok(count)
    }

    /// Takes some bytes from the socket and decrypts what is whole.
    fn fetch(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        // At the end of the stream it takes nothing and the reader says so.
        self.session.read_tls(stream)?;
        let processed = self.session.process_new_packets();
        // Its part of the handshake, or the alert that tells the peer what was wrong.
        let flushed = self.flush(stream);
        processed.map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem))?;
        flushed.map(drop)
    }

    fn write(&mut self, stream: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // A full buffer may have room again once it has been flushed.
        for _ in 0..2 {
            let taken = self.session.writer().write_vectored(slices)?;
            self.flush(stream)?;
            if taken > 0 || slices.iter().all(|slice| slice.is_empty()) {
                return Ok(taken);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self, stream: &mut impl Write) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }
}

/// Sends a peer under TLS the alert that ends the session, as far as the socket takes it.
impl<S: Stream> Drop for Socket<S> {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
            // A peer that is gone needs no farewell.
            drop(tls.flush(&mut self.stream));
        }
    }
}

/// IPv4 as such, also where it came to an IPv6 socket.
const fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(inner) if inner.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(inner.ip().to_canonical(), inner.port())
        }
        address => address,
    }
}

impl Stream for HostStream {
    fn keep_alive(&self) -> io::Result<()> {
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY)
            .with_retries(KEEPALIVE_TRIES);
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_tcp_keepalive(&keepalive),
            // The kernel knows when a process has ended.
            Self::Unix(_) => Ok(()),
        }
    }

    fn limit_unsent(&self, bytes: u32) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_tcp_notsent_lowat(bytes),
            // Bytes that another process has not read yet are all that waits there.
            Self::Unix(_) => Ok(()),
        }
    }
}

impl Read for HostStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for HostStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl HostStream {
    fn source(&mut self) -> &mut dyn EventSource {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}

impl EventSource for Socket {
    fn register(&mut self, registry: &Registry, token: Token, to: Interest) -> io::Result<()> {
        self.stream.source().register(registry, token, to)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, to: Interest) -> io::Result<()> {
        self.stream.source().reregister(registry, token, to)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.source().deregister(registry)
    }
}

/// Encrypted bytes that wait for a socket, and data that waits for the end of a handshake: more is not
/// taken. In bytes.
const TLS_BUFFER: usize = 256 << 10;

/// How often one read takes bytes from the socket, mostly 4 KiB at a time. Then others have their turn,
/// even if what came held no data.
const FETCHES: usize = 64;

/// The limit of unsent bytes in the kernel: at first, at least, and at most.
const UNSENT_FIRST: u32 = 128 << 10;
const UNSENT_MIN: u32 = 16 << 10;
const UNSENT_MAX: u32 = 4 << 20;

/// Half of that should be sent in no less and no more than this.
const UNSENT_SHORT: clock::Duration = clock::Duration::from_millis(1);
const UNSENT_LONG: clock::Duration = clock::Duration::from_millis(4);

/// TCP keep-alive: the silence before the first probe, the interval of probes, and the number of probes
/// without an answer after which the connection is closed.
const KEEPALIVE_AFTER: Duration = Duration::from_mins(1);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 3;

#[cfg(test)]
mod tests;
