//! One TCP connection: its socket, its buffers and its iSCSI state machine.

use crate::buffer::Shared;
use crate::task::TaskKey;
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use weir_flow::clock::Instant;
use weir_wire::iscsi::target::{self, Itt};
use weir_wire::scsi::attention::UnitAttention;

/// A reply's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Data from the medium, shared between the task and the connection's outbox.
    Pooled(Shared),
    /// What the gateway itself has to say.
    Small(Rc<[u8]>),
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer.bytes(),
            Self::Small(bytes) => bytes,
        }
    }
}

/// The state machine of a connection, sending pooled buffers.
pub(crate) type Wire = target::Connection<Payload>;

/// A connection, told apart from later ones in the same place by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// One TCP connection.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: SocketAddr,
    pub(crate) wire: Wire,
    pub(crate) received: Received,
    /// The tasks that have no complete reply yet, by the host's tag.
    pub(crate) tasks: BTreeMap<Itt, TaskKey>,
    /// What the session has yet to be told about each logical unit of its target.
    pub(crate) units: Vec<UnitAttention>,
    pub(crate) opened: Instant,
    pub(crate) last_heard: Instant,
    pub(crate) pinged: Option<Instant>,
    /// Serves a session: its receive buffer may hold many PDUs.
    pub(crate) widen: bool,
    /// On the list of connections with something to write.
    pub(crate) dirty: bool,
    /// On the list of connections that have more to read.
    pub(crate) queued: bool,
    /// Not read from because too much waits to be written.
    pub(crate) paused: bool,
    /// The host will send nothing more: what has come is read up to the end.
    pub(crate) ends: bool,
    socket: TcpStream,
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
        socket: TcpStream,
        peer: SocketAddr,
        wire: Wire,
        now: Instant,
    ) -> Self {
        Self {
            id,
            peer,
            wire,
            received: Received::default(),
            tasks: BTreeMap::new(),
            units: Vec::new(),
            opened: now,
            last_heard: now,
            pinged: None,
            widen: false,
            dirty: false,
            queued: false,
            paused: false,
            ends: false,
            socket,
        }
    }

    /// Reads once into the receive buffer, which always has room for the next PDU.
    pub(crate) fn read(&mut self) -> Progress {
        let smallest = if self.widen { RECEIVE_SESSION } else { RECEIVE_SMALLEST };
        let spare = self.received.spare(self.wire.needed(), smallest);
        let room = spare.len();
        loop {
            return match self.socket.read(spare) {
                Ok(0) => Progress::Closed,
                Ok(count) => {
                    self.received.filled += count;
                    // A stream socket that gave less than was asked for is empty: epoll(7). Its end
                    // behind the bytes is told only once, so it is looked for.
                    if count < room && !self.ends { Progress::Drained } else { Progress::More }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => Progress::Drained,
                    io::ErrorKind::Interrupted => continue,
                    _ => Progress::Closed,
                },
            };
        }
    }

    /// Writes what waits, and names the tasks whose reply has left completely.
    pub(crate) fn write(&mut self, sent: &mut Vec<Itt>) -> Progress {
        while !self.wire.outbox().is_empty() {
            let written = {
                let outbox = self.wire.outbox();
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
                Ok(count) => self.wire.outbox().advance(count, |itt| sent.push(itt)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Progress::Drained,
                    io::ErrorKind::Interrupted => {}
                    _ => return Progress::Closed,
                },
            }
        }
        Progress::More
    }

    /// Why a connection ends that the state machine has brought to its end.
    pub(crate) fn farewell(&self) -> &'static str {
        if self.wire.tsih() == 0 { "login refused" } else { "logged out" }
    }

    /// Whether so much waits to be written that nothing more is to be read.
    pub(crate) fn is_behind(&mut self) -> bool {
        let outbox = self.wire.outbox();
        outbox.len() > OUTBOX_MAX || outbox.owned() > OUTBOX_OWNED_MAX
    }

    /// The socket, to be registered and deregistered.
    pub(crate) const fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }
}

/// Bytes that have come and are not dealt with yet.
#[derive(Default)]
pub(crate) struct Received {
    memory: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Received {
    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.filled]
    }

    /// Notes that the first `count` of them are dealt with.
    pub(crate) const fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.filled {
            self.start = 0;
            self.filled = 0;
        }
    }

    /// Room for at least the rest of a PDU of `needed` bytes. Grows only for a PDU that is larger
    /// than what there is, so a connection that never logs in stays small.
    fn spare(&mut self, needed: usize, smallest: usize) -> &mut [u8] {
        let wanted = needed.max(smallest).next_power_of_two();
        if self.memory.len() < wanted {
            self.memory.resize(wanted, 0);
        }
        if self.memory.len() - self.start < needed || self.filled == self.memory.len() {
            self.memory.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        let spare = &mut self.memory[self.filled..];
        assert!(!spare.is_empty(), "what waits is less than the PDU that is needed");
        spare
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

/// Receive buffer of a session, in bytes: the largest PDU and a good deal more.
const RECEIVE_SESSION: usize = 256 << 10;
