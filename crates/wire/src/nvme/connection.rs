//! One connection: phases and the shell's interface.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::commands::Commands;
use super::connect::Queue;
use super::event::Completion;
use super::limits::{DEPTH_BEFORE_CONNECT, Digest};
use super::pdu::{CommonHeader, TermReq, kind};
use super::receive::Incoming;
use super::{ConnectRefusal, Limits, PeerError, connect};
use crate::outbox::Outbox;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `ICReq` is due.
    AwaitIcReq,
    /// Connect is due.
    Initialized,
    /// The shell decides about the Connect in this slot.
    Deciding(u32),
    /// Commands.
    Live,
    /// The host has ended the queue; outstanding commands are still answered.
    Disconnecting,
    /// The outbox is written, and no more input is received.
    Closing,
}

/// The digests of a connection's PDUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Digests {
    pub(super) header: bool,
    pub(super) data: bool,
}

/// The controller's end of one NVMe/TCP connection, which is one queue.
///
/// `P` is the shell's handle of data to the host, for example a reference-counted buffer. `C2HData` PDUs refer to it; it
/// is dropped when the PDU is written. Its bytes must stay the same until then. The marks that the [`Outbox`] reports
/// are slots of commands.
///
/// Memory is bounded: a queue of depth `d` has at most `2 d` slots; a slot has at most one response in the
/// outbox, and [`GATHER_MAX`](super::GATHER_MAX) bytes of gathered data.
#[derive(Debug)]
pub struct Connection<P> {
    pub(super) limits: Limits,
    pub(super) phase: Phase,
    pub(super) digests: Digests,
    /// Alignment of data to the host, in bytes (HPDA).
    pub(super) alignment: usize,
    /// The queue, from Connect on.
    pub(super) queue: Option<Queue>,
    /// Commands taken from the queue, modulo its depth.
    pub(super) head: u16,
    pub(super) commands: Commands,
    /// The data of a PDU that is being received.
    pub(super) incoming: Option<Incoming>,
    pub(super) outbox: Outbox<P>,
    pub(super) needed: usize,
}

impl<P: AsRef<[u8]>> Connection<P> {
    /// A new connection.
    ///
    /// Panics if a limit is out of its range; [`Limits::check`] says which.
    pub fn new(limits: Limits) -> Self {
        assert_eq!(limits.check(), Ok(()), "limits are checked when they are configured");
        Self {
            limits,
            phase: Phase::AwaitIcReq,
            digests: Digests::default(),
            alignment: 4,
            queue: None,
            head: 0,
            commands: Commands::default(),
            incoming: None,
            outbox: Outbox::new(),
            needed: size_of::<CommonHeader>(),
        }
    }

    /// Answers [`Event::Connect`](super::Event::Connect): the queue belongs to this controller.
    ///
    /// Panics if no Connect waits for an answer.
    pub fn admitted(&mut self, controller: u16) {
        let slot = self.deciding();
        self.phase = Phase::Live;
        let queue = self.queue.expect("a Connect describes its queue");
        // FFFFh agrees to do without flow control.
        let sqhd = if queue.no_flow_control { u16::MAX } else { self.head };
        self.push_cqe(slot, Completion::value(controller.into()), sqhd);
    }

    /// Answers [`Event::Connect`](super::Event::Connect): the host may try again on this connection.
    ///
    /// Panics if no Connect waits for an answer.
    pub fn refused(&mut self, reason: ConnectRefusal) {
        let slot = self.deciding();
        self.phase = Phase::Initialized;
        self.queue = None;
        self.push_completion(slot, connect::refusal(reason));
    }

    fn deciding(&self) -> u32 {
        let Phase::Deciding(slot) = self.phase else {
            panic!("a Connect is answered once");
        };
        slot
    }

    /// Ends the connection for a reason of the shell: nothing more is received, and responses are dropped.
    pub fn terminate(&mut self) {
        self.phase = Phase::Closing;
        self.incoming = None;
    }

    /// Ends the connection with a termination request about the PDU at the front of `input`.
    pub(super) fn fail(&mut self, error: PeerError, input: &[u8]) {
        let length = input.len().min(input.get(2).map_or(0, |&hlen| hlen.into()));
        let offending = &input[..length.min(OFFENDING_MAX)];
        let common = CommonHeader {
            kind: kind::C2H_TERM_REQ,
            flags: 0,
            hlen: size_of::<TermReq>() as u8,
            pdo: 0,
            plen: U32::new((size_of::<TermReq>() + offending.len()) as u32),
        };
        let request = TermReq {
            common,
            fes: U16::new(error.fes()),
            fei: U32::new(error.fei()),
            reserved: [0; 10],
        };
        self.outbox.push_bytes(request.as_bytes());
        self.outbox.push_bytes(offending);
        self.terminate();
    }

    /// Whether an answer to [`Event::Connect`](super::Event::Connect) is due. Nothing is received before it.
    pub const fn is_deciding(&self) -> bool {
        matches!(self.phase, Phase::Deciding(_))
    }

    /// How many contiguous bytes must be there for the next step, as far as is known. At most
    /// [`NEEDED_MAX`](super::NEEDED_MAX).
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// The bytes that are to be written.
    pub fn outbox(&mut self) -> &mut Outbox<P> {
        &mut self.outbox
    }

    /// Whether the connection is to be closed once the outbox is written.
    pub fn wants_close(&self) -> bool {
        match self.phase {
            Phase::Disconnecting => self.commands.outstanding() == 0,
            Phase::Closing => true,
            _ => false,
        }
    }

    /// Whether the connection is to be closed and everything is written.
    pub fn is_finished(&self) -> bool {
        self.wants_close() && self.outbox.is_empty()
    }

    /// Whether the queue belongs to a controller and serves commands.
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// The queue identifier, from a valid Connect on: 0 is the admin queue.
    pub fn queue(&self) -> Option<u16> {
        self.queue.map(|queue| queue.id)
    }

    /// Commands without a response.
    pub const fn outstanding(&self) -> u32 {
        self.commands.outstanding()
    }

    /// Slots of the commands without a response, in ascending order. When the connection is lost, these are the
    /// commands that end with it.
    pub fn outstanding_slots(&self) -> impl Iterator<Item = u32> {
        self.commands.taken().map(|(slot, _)| slot)
    }

    /// The slot of the unanswered command with this identifier. A command whose answer waits for the host's data is
    /// answered.
    pub fn find(&self, cid: u16) -> Option<u32> {
        let mut taken = self.commands.taken();
        taken
            .find(|(_, command)| command.cid == cid && command.owns_cid && command.held.is_none())
            .map(|(slot, _)| slot)
    }

    /// Whether the command in this slot has no answer. One whose answer waits for the host's data has.
    pub fn is_outstanding(&self, slot: u32) -> bool {
        self.commands.get(slot).is_some_and(|command| command.held.is_none())
    }

    /// Whether the host still sends data of the command in this slot, so that nothing of it can have taken effect.
    pub fn is_receiving(&self, slot: u32) -> bool {
        self.commands.get(slot).is_some_and(super::commands::Command::is_receiving)
    }

    /// The commands whose data is collected: the slot and the namespace identifier of each.
    pub fn gathering(&self) -> impl Iterator<Item = (u32, u32)> {
        let gather = |(slot, command): (u32, &super::commands::Command)| {
            command.gather.as_ref().map(|gather| (slot, gather.sqe.nsid()))
        };
        self.commands.taken().filter_map(gather)
    }

    /// The oldest command of which the host still sends data: its number among all commands of the connection. While it
    /// stays the same, that command has no complete data.
    pub fn oldest_receiving(&self) -> Option<u64> {
        let receiving = self.commands.taken().filter(|(_, command)| command.is_receiving());
        receiving.map(|(_, command)| command.number).min()
    }

    /// Unanswered commands that the host may have.
    pub(super) fn depth(&self) -> u32 {
        self.queue.map_or(DEPTH_BEFORE_CONNECT, |queue| queue.depth).into()
    }
}

impl Digest {
    /// Whether there are digests if the host asks for them, or not. `None`: the host is refused.
    pub(super) const fn agreed(self, asked: bool) -> Option<bool> {
        match (self, asked) {
            (Self::Off, _) => Some(false),
            (Self::Required, false) => None,
            (Self::Allowed | Self::Required, asked) => Some(asked),
        }
    }
}

/// Most bytes of an offending header that a termination request repeats.
const OFFENDING_MAX: usize = 128;
