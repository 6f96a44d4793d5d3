//! One connection: its receive buffer, its tasks and the state machine of its protocol.

use crate::buffer::{Payload, Received};
use crate::frontend::brake::Brake;
use crate::frontend::login_throttle::Login;
use crate::frontend::nvme_queue::Queue;
use crate::frontend::session_view::SessionView;
use crate::frontend::socket::Peer;
use crate::ids::{ConnectionId, TaskKey};
use crate::peer_log::PeerLog;
use std::collections::BTreeMap;
use tracing::{debug, info};
use weir_flow::accept::intake::command_cost;
use weir_flow::clock::Instant;
use weir_flow::request::{LinkId, TenantId};
use weir_flow::transfer::{Link, Port};
use weir_wire::iscsi::target_role;
use weir_wire::nbd;
use weir_wire::outbox::Outbox;

/// The state machine of an iSCSI connection, sending pooled buffers.
pub(crate) type Wire = target_role::Connection<Payload>;

/// The state machine of an NBD connection, sending pooled buffers.
pub(crate) type NbdWire = nbd::Connection<Payload>;

/// The protocol of a listener and of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// iSCSI.
    Iscsi,
    /// NBD.
    Nbd,
    /// NVMe over TCP.
    Nvme,
}

impl Protocol {
    /// How many there are.
    pub(crate) const COUNT: usize = 3;
}

/// The state machine of a connection, by its protocol.
pub(crate) enum Speech {
    /// iSCSI.
    Iscsi(Box<Wire>),
    /// NBD.
    Nbd(Box<NbdWire>),
    /// NVMe over TCP.
    Nvme(Box<Queue>),
}

impl Speech {
    /// Bytes that the next message takes, as far as is known.
    fn needed(&self) -> usize {
        match self {
            Self::Iscsi(wire) => wire.needed(),
            Self::Nbd(wire) => wire.needed(),
            Self::Nvme(queue) => queue.wire.needed(),
        }
    }

    /// What is to be written.
    pub(crate) fn outbox(&mut self) -> &mut Outbox<Payload> {
        match self {
            Self::Iscsi(wire) => wire.outbox(),
            Self::Nbd(wire) => wire.outbox(),
            Self::Nvme(queue) => queue.wire.outbox(),
        }
    }

    /// Whether the login, or the handshake, is over.
    pub(crate) fn is_established(&self) -> bool {
        match self {
            Self::Iscsi(wire) => wire.is_full_feature(),
            Self::Nbd(wire) => wire.is_transmission(),
            Self::Nvme(queue) => queue.wire.is_live(),
        }
    }

    /// Whether the connection is to be closed when everything is written.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Self::Iscsi(wire) => wire.is_finished(),
            Self::Nbd(wire) => wire.is_finished(),
            Self::Nvme(queue) => queue.wire.is_finished(),
        }
    }

    /// Says in the log that a connection has ended.
    pub(crate) fn said_goodbye(&self, log: &PeerLog, now: Instant, peer: &Peer, reason: &str) {
        match self {
            Self::Iscsi(wire) if wire.tsih() != 0 => {
                let (initiator, tsih) = (wire.initiator(), wire.tsih());
                let ignored_total = wire.ignored();
                log.line(now, peer.source(), "session ended", |text| {
                    info!(%peer, initiator, tsih, reason, ignored_total, "{text}");
                });
            }
            Self::Nbd(wire) if wire.is_transmission() => {
                let origin = peer.source();
                log.line(now, origin, "NBD client has left", |text| info!(%peer, reason, "{text}"));
            }
            Self::Nvme(queue) if queue.controller.is_some() => {
                let (host, controller) = (queue.host.escape_debug(), queue.controller);
                let queue = queue.wire.queue();
                log.line(now, peer.source(), "NVMe queue ended", |text| {
                    info!(%peer, %host, controller, queue, reason, "{text}");
                });
            }
            _ => debug!(%peer, reason, "connection closed before login"),
        }
    }
}

/// One connection, as its protocol sees it: everything but its socket.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    pub(crate) speech: Speech,
    pub(crate) received: Received,
    /// The tasks that have no complete reply yet, by the connection's name for them.
    pub(crate) tasks: BTreeMap<u32, TaskKey>,
    /// What an iSCSI session with a target sees.
    pub(crate) view: Option<SessionView>,
    /// A request of an NBD client that waits for payload memory.
    pub(crate) waiting: Option<nbd::Request>,
    /// The tenant of its last command.
    pub(crate) tenant: TenantId,
    pub(crate) allowance: Allowance,
    /// The credentials of its login, once they are offered.
    pub(crate) login: Option<Login>,
    /// It was turned away: it gets a status for its first request, and counts towards no limit of connections.
    pub(crate) turned_away: bool,
    /// A logout was requested: it is closed at this time.
    pub(crate) leave_by: Option<Instant>,
    /// Serves a session: its receive buffer may hold many messages.
    pub(crate) serves: bool,
    pub(crate) encryption: Encryption,
    /// Where its replies leave, if others leave there as well.
    pub(crate) port: Option<Port>,
    /// The errors that it got from volumes that are withdrawn.
    pub(crate) brake: Brake,
}

/// What a connection may take in before others are next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// The cost of commands after which it stops.
    limit: u64,
    /// The cost of the commands that it has taken in.
    pub(crate) taken: u64,
    /// It has stopped, and has bytes that are not handled.
    pub(crate) left_over: bool,
}

impl Allowance {
    /// Commands of this cost; the last one may exceed it.
    pub(crate) const fn of(limit: u64) -> Self {
        Self { limit, taken: 0, left_over: false }
    }

    /// All commands.
    pub(crate) const fn unlimited() -> Self {
        Self::of(u64::MAX)
    }

    /// A command with a payload of this number of bytes was taken in.
    pub(crate) const fn take(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(command_cost(bytes));
    }

    /// Whether the connection stops before these bytes, of which it takes note.
    pub(crate) const fn stops_before(&mut self, bytes: &[u8]) -> bool {
        self.left_over = self.taken >= self.limit && !bytes.is_empty();
        self.left_over
    }
}

/// How far a connection has come with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// Bytes are in the clear.
    None,
    /// TLS begins when the outbox is empty.
    Requested,
    /// All bytes are encrypted.
    Tls,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, peer: Peer, port: Option<Port>, speech: Speech) -> Self {
        Self {
            id,
            peer,
            speech,
            received: Received::default(),
            tasks: BTreeMap::new(),
            view: None,
            waiting: None,
            tenant: TenantId::new(0),
            allowance: Allowance::unlimited(),
            login: None,
            turned_away: false,
            leave_by: None,
            serves: false,
            encryption: Encryption::None,
            port,
            brake: Brake::default(),
        }
    }

    /// The link to the host in the pipeline.
    pub(crate) const fn link(&self) -> LinkId {
        LinkId::new(self.id.index as u32)
    }

    /// What is spoken on it.
    pub(crate) const fn protocol(&self) -> Protocol {
        match self.speech {
            Speech::Iscsi(_) => Protocol::Iscsi,
            Speech::Nbd(_) => Protocol::Nbd,
            Speech::Nvme(_) => Protocol::Nvme,
        }
    }

    /// Its iSCSI state machine, if it speaks iSCSI.
    pub(crate) fn iscsi(&mut self) -> Option<&mut Wire> {
        match &mut self.speech {
            Speech::Iscsi(wire) => Some(wire),
            Speech::Nbd(_) | Speech::Nvme(_) => None,
        }
    }

    /// Room in the receive buffer, enough for the next message.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        let smallest = if self.serves { RECEIVE_SESSION } else { RECEIVE_SMALLEST };
        self.received.spare(self.speech.needed(), smallest)
    }

    /// How its replies leave: `interleaves` as the protocol has it.
    pub(crate) const fn way(&self, interleaves: bool) -> Link {
        Link { interleaves, port: self.port }
    }

    /// Why the state machine has ended the connection.
    pub(crate) fn farewell(&self) -> &'static str {
        match &self.speech {
            Speech::Iscsi(wire) if wire.tsih() == 0 => "login refused",
            Speech::Iscsi(_) => "logged out",
            Speech::Nbd(_) => "disconnected by the client",
            Speech::Nvme(_) => "ended by the host",
        }
    }

    /// Whether received bytes cannot be handled before something else has happened.
    pub(crate) fn is_stuck(&self) -> bool {
        let wire_waits = match &self.speech {
            Speech::Iscsi(_) => false,
            Speech::Nbd(wire) => wire.is_waiting(),
            Speech::Nvme(queue) => queue.wire.is_deciding(),
        };
        wire_waits || self.waiting.is_some()
    }

    /// Whether a command waits for memory.
    pub(crate) fn is_hungry(&self) -> bool {
        let holds_back = matches!(&self.speech, Speech::Nvme(queue) if queue.is_waiting());
        holds_back || self.waiting.is_some()
    }

    /// Whether the outbox is too full to read more.
    pub(crate) fn is_behind(&mut self) -> bool {
        if let Speech::Nvme(_) = self.speech {
            // Its slots bound the outbox. A queue that is not read would keep commands that its host has given up.
            return false;
        }
        let outbox = self.speech.outbox();
        outbox.len() > OUTBOX_MAX || outbox.owned() > OUTBOX_OWNED_MAX
    }
}

/// A connection with more than this waiting to be written is not read from, in bytes.
const OUTBOX_MAX: usize = 16 << 20;

/// The same for bytes that are no payload, which no other limit covers: responses, and the
/// answers to pings and text requests.
const OUTBOX_OWNED_MAX: usize = 1 << 20;

/// Receive buffer of a connection that has not logged in, in bytes.
const RECEIVE_SMALLEST: usize = 4 << 10;

/// Receive buffer of a session, in bytes: many times the largest message.
const RECEIVE_SESSION: usize = 256 << 10;
