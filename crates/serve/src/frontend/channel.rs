//! The socket of one connection, and when the event loop reads, writes and pings it.

use crate::frontend::connection::{Connection, Encryption, Speech};
use crate::frontend::socket::{Peer, Socket, Stream, Unsent};
use crate::peer_log::PeerLog;
use rustls::ServerConfig;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tracing::{debug, warn};
use weir_flow::clock::Instant;

/// The socket of a connection.
pub(crate) struct Channel<S: Stream> {
    socket: Socket<S>,
    /// Limits the bytes that wait unsent in the kernel.
    unsent: Unsent,
    /// The host sends nothing more: bytes that have come are read up to the end.
    pub(crate) ends: bool,
    /// On the list of connections with something to write.
    pub(crate) dirty: bool,
    pub(crate) reading: Reading,
    /// The socket may have more, for which no event comes.
    pub(crate) has_more: bool,
    pub(crate) presence: Presence,
}

/// When a connection is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// When the kernel reports bytes.
    OnEvent,
    /// In this round of the event loop or the next: it is in the read queue.
    Queued,
    /// When its outbox has room or its waiting request has memory.
    Paused,
}

/// When the host was last heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It has connected and has not logged in yet.
    LoggingIn { since: Instant },
    /// It has sent bytes or taken a reply.
    Heard { at: Instant },
    /// It was silent, and has not answered this ping.
    Pinged { at: Instant },
}

/// The result of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The socket will take or give more at once.
    More,
    /// The socket has to be waited for.
    Drained,
    /// The peer has closed, or the connection broke.
    Closed,
}

impl Presence {
    /// The host has sent bytes or taken a reply.
    pub(crate) const fn heard(&mut self, now: Instant) {
        if !matches!(self, Self::LoggingIn { .. }) {
            *self = Self::Heard { at: now };
        }
    }
}

impl<S: Stream> Channel<S> {
    pub(crate) fn new(socket: Socket<S>, now: Instant) -> Self {
        Self {
            unsent: Unsent::new(&socket),
            socket,
            ends: false,
            dirty: false,
            reading: Reading::OnEvent,
            has_more: false,
            presence: Presence::LoggingIn { since: now },
        }
    }

    /// Reads once into the receive buffer.
    pub(crate) fn read(&mut self, connection: &mut Connection) -> Progress {
        let spare = connection.spare();
        let room = spare.len();
        loop {
            return match self.socket.read(spare) {
                Ok(0) => Progress::Closed,
                Ok(count) => {
                    connection.received.arrived(count);
                    // A stream socket that gave less than was asked for is empty: epoll(7). Its end
                    // behind the bytes is reported only once, so it is looked for.
                    let drained = count < room && !self.ends && !self.socket.has_buffered();
                    if drained { Progress::Drained } else { Progress::More }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock if self.socket.has_buffered() => Progress::More,
                    io::ErrorKind::WouldBlock => Progress::Drained,
                    io::ErrorKind::Interrupted => continue,
                    _ => {
                        debug!(peer = %connection.peer, %error, "cannot read");
                        Progress::Closed
                    }
                },
            };
        }
    }

    /// Writes the outbox, and appends the names of the tasks whose reply has left completely.
    pub(crate) fn write(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        sent: &mut Vec<u32>,
    ) -> Progress {
        let outbox = connection.speech.outbox();
        while !outbox.is_empty() {
            let written = {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let mut count = 0;
                for (slot, bytes) in slices.iter_mut().zip(outbox.slices()) {
                    *slot = IoSlice::new(bytes);
                    count += 1;
                }
                self.socket.write_vectored(&slices[..count])
            };
            match written {
                Ok(0) => return Progress::Closed,
                Ok(count) => {
                    self.unsent.took(now, &self.socket);
                    outbox.advance(count, |name| sent.push(name));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        self.unsent.blocked(now);
                        return Progress::Drained;
                    }
                    io::ErrorKind::Interrupted => {}
                    _ => return Progress::Closed,
                },
            }
        }
        match self.socket.flush() {
            Ok(true) => Progress::More,
            Ok(false) => Progress::Drained,
            Err(_) => Progress::Closed,
        }
    }

    /// Whether encrypted bytes wait in memory.
    pub(crate) fn wants_write(&self) -> bool {
        self.socket.wants_write()
    }

    /// Whether everything that was put into the outbox has left.
    pub(crate) fn has_sent_all(&self, connection: &mut Connection) -> bool {
        connection.speech.outbox().is_empty() && !self.socket.wants_write()
    }

    /// Has the kernel find hosts that are gone.
    pub(crate) fn keep_alive(&self, log: &PeerLog, now: Instant, peer: &Peer) {
        if let Err(error) = self.socket.keep_alive() {
            log.line(now, peer.source(), "cannot enable TCP keep-alive", |text| {
                warn!(%peer, %error, "{text}");
            });
        }
    }

    /// Begins TLS; false if the connection must be closed.
    pub(crate) fn start_tls(
        &mut self,
        log: &PeerLog,
        now: Instant,
        connection: &mut Connection,
        config: Option<&Arc<ServerConfig>>,
    ) -> bool {
        connection.encryption = Encryption::Tls;
        let (Some(config), Speech::Nbd(wire)) = (config, &mut connection.speech) else {
            return false;
        };
        if !connection.received.bytes().is_empty() {
            // Bytes in the clear behind the request for TLS may be from anybody.
            let peer = &connection.peer;
            log.line(now, peer.source(), "unencrypted data where TLS must begin", |text| {
                warn!(%peer, "{text}");
            });
            return false;
        }
        let started = self.socket.start_tls(Arc::clone(config));
        wire.tls_started();
        started.is_ok()
    }
}

/// Slices given to one vectored write.
const SLICES: usize = 64;
