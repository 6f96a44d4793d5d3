//! Where connections come in.

use crate::ServeError;
use crate::config::Config;
use crate::frontend::socket::Socket;
use crate::frontend::unix_socket::{Access, UnixPlace};
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_flow::transfer::Port;

/// One address on which connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) protocol: Protocol,
    /// Where the replies of its connections leave, if they share that.
    pub(crate) port: Option<Port>,
    socket: Bound,
    /// The kernel may have connections that were not accepted yet: it tells of them once.
    pub(crate) ready: bool,
}

/// What is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// iSCSI.
    Iscsi,
    /// NBD.
    Nbd,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix(UnixPlace),
}

/// The link by which what is sent from this address leaves.
fn port(config: &Config, address: SocketAddr) -> Option<Port> {
    let id = config.links.iter().position(|link| link.listen.contains(&address))?;
    Some(Port { id: id as u32, rate: config.links[id].bandwidth })
}

impl Listener {
    /// Binds everything that the configuration names.
    pub(crate) fn all(config: &Config) -> Result<Vec<Self>, ServeError> {
        let tcp = |protocol| {
            move |&address: &SocketAddr| {
                let bound = TcpListener::bind(address);
                let socket = bound.map_err(|source| ServeError::Listen { address, source })?;
                let port = port(config, address);
                Ok(Self { protocol, port, socket: Bound::Tcp(socket), ready: true })
            }
        };
        let unix = |path: &PathBuf| {
            let taken = UnixPlace::take(path, Access::ByUmask);
            let place =
                taken.map_err(|source| ServeError::ListenUnix { path: path.clone(), source })?;
            let socket = Bound::Unix(place);
            Ok(Self { protocol: Protocol::Nbd, port: None, socket, ready: true })
        };
        let iscsi = config.listen.iter().map(tcp(Protocol::Iscsi));
        let nbd = config.nbd.listen.iter().map(tcp(Protocol::Nbd));
        iscsi.chain(nbd).chain(config.nbd.unix.iter().map(unix)).collect()
    }

    /// Has the event loop told of connections.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Bound::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            Bound::Unix(place) => registry.register(&mut place.listener, token, Interest::READABLE),
        }
    }

    /// The next connection. `WouldBlock`: there is none.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match &self.socket {
            Bound::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                Socket::tcp(stream, peer)
            }
            Bound::Unix(place) => Socket::unix(place.listener.accept()?.0),
        }
    }

    /// Its TCP address, with the port that was taken.
    pub(crate) fn address(&self) -> Option<io::Result<SocketAddr>> {
        match &self.socket {
            Bound::Tcp(socket) => Some(socket.local_addr()),
            Bound::Unix(_) => None,
        }
    }

    /// Its Unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.socket {
            Bound::Tcp(_) => None,
            Bound::Unix(place) => Some(place.path()),
        }
    }
}
