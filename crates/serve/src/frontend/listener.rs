//! The addresses and Unix sockets on which hosts connect.

use crate::config::Config;
use crate::frontend::connection::Protocol;
use crate::frontend::socket::{HostStream, Socket, Stream};
use crate::frontend::unix_socket::{Access, UnixPlace};
use crate::service::{self, Inherited};
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_flow::transfer::Port;

/// One address on which connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener<A = Bound> {
    pub(crate) protocol: Protocol,
    /// The port by which the replies of its connections leave, if they share one.
    pub(crate) port: Option<Port>,
    socket: A,
    /// The kernel may have connections that were not accepted yet: their event comes once.
    pub(crate) ready: bool,
}

/// A listening socket.
pub(crate) trait Accept {
    /// A connection that was accepted.
    type Stream: Stream;

    /// The next connection. `WouldBlock`: there is none.
    fn accept(&self) -> io::Result<Socket<Self::Stream>>;

    /// Its TCP address, with the port that was taken; `None` for a Unix socket.
    fn address(&self) -> Option<io::Result<SocketAddr>>;

    /// The file of its Unix socket.
    fn path(&self) -> Option<&Path>;
}

/// A listening socket of the kernel.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixPlace),
}

/// Why hosts cannot connect.
#[derive(Debug, Error)]
pub(crate) enum ListenError {
    #[error("cannot listen on {address}: {source}")]
    Tcp { address: SocketAddr, source: io::Error },
    #[error("cannot listen on the Unix socket {}: {source}", .path.display())]
    Unix { path: PathBuf, source: io::Error },
}

/// A listener that another process has made.
fn adopt(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener))
}

/// The link by which what is sent from this address leaves.
fn port(config: &Config, address: SocketAddr) -> Option<Port> {
    let id = config.links.iter().position(|link| link.listen.contains(&address))?;
    Some(Port { id: id as u32, rate: config.links[id].bandwidth })
}

impl Listener {
    /// Binds everything that the configuration names and that was not inherited.
    pub(crate) fn all(
        config: &Config,
        inherited: &mut Inherited,
    ) -> Result<Vec<Self>, ListenError> {
        let mut tcp = |protocol, &address: &SocketAddr| {
            let bound = match inherited.take(address) {
                Some(listener) => adopt(listener),
                None => TcpListener::bind(address),
            };
            let socket = bound.map_err(|source| ListenError::Tcp { address, source })?;
            Ok(Self::new(protocol, port(config, address), Bound::Tcp(socket)))
        };
        let unix = |path: &PathBuf| {
            let taken = UnixPlace::take(path, Access::ByUmask);
            let place = taken.map_err(|source| ListenError::Unix { path: path.clone(), source })?;
            Ok(Self::new(Protocol::Nbd, None, Bound::Unix(place)))
        };
        let iscsi = config.listen.iter().map(|address| (Protocol::Iscsi, address));
        let nbd = config.nbd.listen.iter().map(|address| (Protocol::Nbd, address));
        let nvme = config.nvme.listen.iter().map(|address| (Protocol::Nvme, address));
        let tcp = iscsi.chain(nbd).chain(nvme).map(|(protocol, address)| tcp(protocol, address));
        tcp.chain(config.nbd.unix.iter().map(unix)).collect()
    }

    /// What a service manager keeps of it over a restart, and under which name: a TCP listener. The file of a Unix
    /// socket goes with the gateway.
    pub(crate) fn to_keep(&self) -> Option<(String, BorrowedFd<'_>)> {
        let Bound::Tcp(socket) = &self.socket else { return None };
        Some((service::name(socket.local_addr().ok()?), socket.as_fd()))
    }

    /// Has the event loop woken for connections.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Bound::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            Bound::Unix(place) => registry.register(&mut place.listener, token, Interest::READABLE),
        }
    }
}

impl<A: Accept> Listener<A> {
    /// A listener of `protocol`; `port`: where the replies of its connections leave.
    pub(crate) const fn new(protocol: Protocol, port: Option<Port>, socket: A) -> Self {
        Self { protocol, port, socket, ready: true }
    }

    /// [`Accept::accept`].
    pub(crate) fn accept(&self) -> io::Result<Socket<A::Stream>> {
        self.socket.accept()
    }

    /// [`Accept::address`].
    pub(crate) fn address(&self) -> Option<io::Result<SocketAddr>> {
        self.socket.address()
    }

    /// [`Accept::path`].
    pub(crate) fn path(&self) -> Option<&Path> {
        self.socket.path()
    }
}

impl Accept for Bound {
    type Stream = HostStream;

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                Socket::tcp(stream, peer)
            }
            Self::Unix(place) => Socket::unix(place.listener.accept()?.0),
        }
    }

    fn address(&self) -> Option<io::Result<SocketAddr>> {
        match self {
            Self::Tcp(socket) => Some(socket.local_addr()),
            Self::Unix(_) => None,
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(place) => Some(place.path()),
        }
    }
}
