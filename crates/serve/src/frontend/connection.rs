//! One connection: its socket, its buffers and the state machine of its protocol.

use crate::buffer::{Payload, Received};
use crate::frontend::listener::Protocol;
use crate::frontend::session_view::SessionView;
use crate::frontend::socket::{Peer, Socket, Unsent};
use crate::ids::{ConnectionId, TaskKey};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use tracing::{debug, info};
use weir_flow::clock::Instant;
use weir_flow::request::LinkId;
use weir_flow::transfer::{Link, Port};
use weir_wire::iscsi::target_role;
use weir_wire::nbd;
use weir_wire::outbox::Outbox;

/// The state machine of an iSCSI connection, sending pooled buffers.
pub(crate) type Wire = target_role::Connection<Payload>;

/// The state machine of an NBD connection, sending pooled buffers.
pub(crate) type NbdWire = nbd::Connection<Payload>;

/// What is spoken on a connection.
pub(crate) enum Speech {
    /// iSCSI.
    Iscsi(Box<Wire>),
    /// NBD.
    Nbd(Box<NbdWire>),
}

impl Speech {
    /// Bytes that the next message takes, as far as is known.
    fn needed(&self) -> usize {
        match self {
            Self::Iscsi(wire) => wire.needed(),
            Self::Nbd(wire) => wire.needed(),
        }
    }

    /// What waits to be written.
    pub(crate) fn outbox(&mut self) -> &mut Outbox<Payload> {
        match self {
            Self::Iscsi(wire) => wire.outbox(),
            Self::Nbd(wire) => wire.outbox(),
        }
    }

    /// Whether the login, or the handshake, is over.
    pub(crate) fn is_established(&self) -> bool {
        match self {
            Self::Iscsi(wire) => wire.is_full_feature(),
            Self::Nbd(wire) => wire.is_transmission(),
        }
    }

    /// Whether the connection is to be closed and everything is written.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Self::Iscsi(wire) => wire.is_finished(),
            Self::Nbd(wire) => wire.is_finished(),
        }
    }

    /// Says in the log that a connection has ended.
    pub(crate) fn said_goodbye(&self, peer: &Peer, reason: &str) {
        match self {
            Self::Iscsi(wire) if wire.tsih() != 0 => {
                let (initiator, tsih) = (wire.initiator(), wire.tsih());
                let ignored_total = wire.ignored();
                info!(%peer, initiator, tsih, reason, ignored_total, "session ended");
            }
            Self::Nbd(wire) if wire.is_transmission() => {
                info!(%peer, reason, "NBD client has left");
            }
            _ => debug!(%peer, reason, "connection closed before login"),
        }
    }
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    pub(crate) speech: Speech,
    pub(crate) received: Received,
    /// The tasks that have no complete reply yet, by the connection's name for them.
    pub(crate) tasks: BTreeMap<u32, TaskKey>,
    /// What an iSCSI session with a target sees.
    pub(crate) seat: Option<SessionView>,
    /// A request of an NBD client that waits for payload memory.
    pub(crate) waiting: Option<nbd::Request>,
    pub(crate) opened: Instant,
    pub(crate) last_heard: Instant,
    pub(crate) pinged: Option<Instant>,
    /// Its login, or its handshake, has ended well once.
    pub(crate) entered: bool,
    /// Its login was refused.
    pub(crate) login_failed: bool,
    /// Must be gone by then: a logout was requested.
    pub(crate) leave_by: Option<Instant>,
    /// Serves a session: its receive buffer may hold many messages.
    pub(crate) widen: bool,
    /// On the list of connections with something to write.
    pub(crate) dirty: bool,
    /// On the list of connections that have more to read.
    pub(crate) queued: bool,
    /// Not read from because too much waits to be written.
    pub(crate) paused: bool,
    /// Goes over to TLS when what was said in the clear has left.
    pub(crate) starts_tls: bool,
    /// The host will send nothing more: what has come is read up to the end.
    pub(crate) ends: bool,
    /// Where its replies leave, if others leave there as well.
    pub(crate) port: Option<Port>,
    /// What waits unsent in the kernel.
    unsent: Unsent,
    pub(crate) socket: Socket,
}

/// What became of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The socket will take or give more at once.
    More,
    /// The socket has to be waited for.
    Drained,
    /// The peer has closed, or the connection broke.
    Closed,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        socket: Socket,
        port: Option<Port>,
        speech: Speech,
        now: Instant,
    ) -> Self {
        Self {
            id,
            peer: socket.peer().clone(),
            speech,
            received: Received::default(),
            tasks: BTreeMap::new(),
            seat: None,
            waiting: None,
            opened: now,
            last_heard: now,
            pinged: None,
            entered: false,
            login_failed: false,
            leave_by: None,
            widen: false,
            dirty: false,
            queued: false,
            paused: false,
            starts_tls: false,
            ends: false,
            port,
            unsent: Unsent::new(&socket),
            socket,
        }
    }

    /// The pipeline's name for the way back to the host.
    pub(crate) const fn link(&self) -> LinkId {
        LinkId::new(self.id.index as u32)
    }

    /// What is spoken on it.
    pub(crate) const fn protocol(&self) -> Protocol {
        match self.speech {
            Speech::Iscsi(_) => Protocol::Iscsi,
            Speech::Nbd(_) => Protocol::Nbd,
        }
    }

    /// Its iSCSI state machine, if it speaks iSCSI.
    pub(crate) fn iscsi(&mut self) -> Option<&mut Wire> {
        match &mut self.speech {
            Speech::Iscsi(wire) => Some(wire),
            Speech::Nbd(_) => None,
        }
    }

    /// Reads once into the receive buffer, which always has room for the next message.
    pub(crate) fn read(&mut self) -> Progress {
        let smallest = if self.widen { RECEIVE_SESSION } else { RECEIVE_SMALLEST };
        let spare = self.received.spare(self.speech.needed(), smallest);
        let room = spare.len();
        loop {
            return match self.socket.read(spare) {
                Ok(0) => Progress::Closed,
                Ok(count) => {
                    self.received.arrived(count);
                    // A stream socket that gave less than was asked for is empty: epoll(7). Its end
                    // behind the bytes is told only once, so it is looked for.
                    let drained = count < room && !self.ends && !self.socket.has_buffered();
                    if drained { Progress::Drained } else { Progress::More }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock if self.socket.has_buffered() => Progress::More,
                    io::ErrorKind::WouldBlock => Progress::Drained,
                    io::ErrorKind::Interrupted => continue,
                    _ => {
                        debug!(peer = %self.peer, %error, "cannot read");
                        Progress::Closed
                    }
                },
            };
        }
    }

    /// How its replies leave: `interleaves` as the protocol has it.
    pub(crate) const fn way(&self, interleaves: bool) -> Link {
        Link { interleaves, port: self.port }
    }

    /// Writes what waits, and names the tasks whose reply has left completely.
    pub(crate) fn write(&mut self, now: Instant, sent: &mut Vec<u32>) -> Progress {
        while !self.speech.outbox().is_empty() {
            let outbox = match &mut self.speech {
                Speech::Iscsi(wire) => wire.outbox(),
                Speech::Nbd(wire) => wire.outbox(),
            };
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

    /// Whether everything that was to be said has left.
    pub(crate) fn has_told_all(&mut self) -> bool {
        self.speech.outbox().is_empty() && !self.socket.wants_write()
    }

    /// Why a connection ends that the state machine has brought to its end.
    pub(crate) fn farewell(&self) -> &'static str {
        match &self.speech {
            Speech::Iscsi(wire) if wire.tsih() == 0 => "login refused",
            Speech::Iscsi(_) => "logged out",
            Speech::Nbd(_) => "disconnected by the client",
        }
    }

    /// Whether what has come cannot be dealt with before something else has happened.
    pub(crate) fn is_stuck(&self) -> bool {
        let wire_waits = matches!(&self.speech, Speech::Nbd(wire) if wire.is_waiting());
        wire_waits || self.waiting.is_some()
    }

    /// Whether so much waits to be written that nothing more is to be read.
    pub(crate) fn is_behind(&mut self) -> bool {
        let outbox = self.speech.outbox();
        outbox.len() > OUTBOX_MAX || outbox.owned() > OUTBOX_OWNED_MAX
    }
}

/// Slices given to one vectored write.
const SLICES: usize = 64;

/// A connection with more than this waiting to be written is not read from, in bytes.
const OUTBOX_MAX: usize = 16 << 20;

/// The same for what waits apart from payload, which no other limit covers: responses, and the
/// answers to pings and questions.
const OUTBOX_OWNED_MAX: usize = 1 << 20;

/// Receive buffer of a connection that has not logged in, in bytes.
const RECEIVE_SMALLEST: usize = 4 << 10;

/// Receive buffer of a session, in bytes: the largest message and a good deal more.
const RECEIVE_SESSION: usize = 256 << 10;
