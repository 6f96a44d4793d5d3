//! Where connections come in.

use crate::ServeError;
use crate::config::Config;
use crate::listen::socket::Socket;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// One address on which connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) protocol: Protocol,
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
    /// Its file goes with it.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds everything that the configuration names.
    pub(crate) fn all(config: &Config) -> Result<Vec<Self>, ServeError> {
        let tcp = |protocol| {
            move |&address: &SocketAddr| {
                let bound = TcpListener::bind(address);
                let socket = bound.map_err(|source| ServeError::Listen { address, source })?;
                Ok(Self { protocol, socket: Bound::Tcp(socket), ready: true })
            }
        };
        let unix = |path: &PathBuf| {
            let failed = |source| ServeError::ListenUnix { path: path.clone(), source };
            clear(path).map_err(failed)?;
            let socket = UnixListener::bind(path).map_err(failed)?;
            Ok(Self {
                protocol: Protocol::Nbd,
                socket: Bound::Unix(socket, path.clone()),
                ready: true,
            })
        };
        let iscsi = config.listen.iter().map(tcp(Protocol::Iscsi));
        let nbd = config.nbd.listen.iter().map(tcp(Protocol::Nbd));
        iscsi.chain(nbd).chain(config.nbd.unix.iter().map(unix)).collect()
    }

    /// Has the event loop told of connections.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Bound::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            Bound::Unix(socket, _) => registry.register(socket, token, Interest::READABLE),
        }
    }

    /// The next connection. `WouldBlock`: there is none.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match &self.socket {
            Bound::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                Socket::tcp(stream, peer)
            }
            Bound::Unix(socket, _) => Socket::unix(socket.accept()?.0),
        }
    }

    /// Its TCP address, with the port that was taken.
    pub(crate) fn address(&self) -> Option<io::Result<SocketAddr>> {
        match &self.socket {
            Bound::Tcp(socket) => Some(socket.local_addr()),
            Bound::Unix(..) => None,
        }
    }

    /// Its Unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.socket {
            Bound::Tcp(_) => None,
            Bound::Unix(_, path) => Some(path),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Bound::Unix(_, path) = &self.socket {
            // Whoever removed it before has done this for us.
            drop(fs::remove_file(path));
        }
    }
}

/// Removes a socket file that nobody listens on any more.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is no socket"));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}
