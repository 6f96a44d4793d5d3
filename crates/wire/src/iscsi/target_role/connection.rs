//! One connection: framing, phases and the shell's interface.

use std::sync::Arc;

use super::discovery::Exchange;
use super::login::Login;
use super::task::Tasks;
use super::window::Window;
use super::{Isid, Limits, Node, Parameters, PeerError, Received, RejectReason};
use crate::iscsi::chap::CHALLENGE_LENGTH;
use crate::iscsi::framing::{self, Digests, FrameFault, Front};
use crate::iscsi::keys::SEGMENT_LENGTH_DEFAULT;
use crate::iscsi::pdu::{HEADER_LENGTH, Itt, RESERVED_TAG};
use crate::outbox::Outbox;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Negotiating.
    Login,
    /// The shell decides about the session.
    Deciding,
    /// SCSI commands, or discovery.
    FullFeature,
    /// The initiator has asked to log out; what it still sends is discarded.
    LoggingOut,
    /// The outbox is written, and no more input is received.
    Closing,
}

/// A task management function without a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Managing {
    pub(super) itt: Itt,
    pub(super) immediate: bool,
}

/// The target's end of one iSCSI connection.
///
/// `P` is the shell's handle of read data, for example a reference-counted buffer. Data-In refers
/// to it; it is cloned once per PDU and dropped when the PDU is written. Its bytes must stay the
/// same until then.
#[derive(Debug)]
pub struct Connection<P> {
    pub(super) node: Arc<Node>,
    pub(super) limits: Limits,
    pub(super) portals: Vec<String>,
    pub(super) challenge: [u8; CHALLENGE_LENGTH],
    pub(super) phase: Phase,
    pub(super) login: Login,
    pub(super) parameters: Parameters,
    pub(super) digests: Digests,
    pub(super) window: Window,
    pub(super) tasks: Tasks,
    pub(super) managing: Vec<Managing>,
    pub(super) exchange: Option<Exchange>,
    pub(super) pings: Vec<u32>,
    pub(super) outbox: Outbox<P>,
    /// Commands outside of the window.
    pub(super) ignored: u64,
    needed: usize,
    next_ttt: u32,
}

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// A new connection. `portals` are the addresses at which this initiator reaches the target, an IPv6 address in
    /// brackets: a discovery session gets all of them when the node names no portals. `challenge` is the CHAP
    /// challenge: random bytes, new for each connection.
    ///
    /// Panics if a limit is out of its range; [`Limits::check`] says which.
    pub fn new(
        node: Arc<Node>,
        limits: Limits,
        portals: Vec<String>,
        challenge: [u8; CHALLENGE_LENGTH],
    ) -> Self {
        assert_eq!(limits.check(), Ok(()), "limits are checked when they are configured");
        Self {
            node,
            limits,
            portals,
            challenge,
            phase: Phase::Login,
            login: Login::default(),
            parameters: Parameters::default(),
            digests: Digests::default(),
            window: Window::new(limits.command_window),
            tasks: Tasks::default(),
            managing: Vec::new(),
            exchange: None,
            pings: Vec::new(),
            outbox: Outbox::new(),
            ignored: 0,
            needed: HEADER_LENGTH,
            next_ttt: 0,
        }
    }

    /// Takes the PDU at the front of `input` if all of it is there.
    ///
    /// The shell calls this until nothing is consumed, each time with what is left of the input.
    /// After an error, or while [`wants_close`](Self::wants_close), input is of no interest.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, PeerError> {
        match self.phase {
            Phase::Deciding => Ok(Received { consumed: 0, event: None }),
            Phase::Closing => Ok(Received { consumed: input.len(), event: None }),
            Phase::Login | Phase::FullFeature | Phase::LoggingOut => {
                let received = self.receive_pdu(input);
                if received.is_err() {
                    self.phase = Phase::Closing;
                }
                received
            }
        }
    }

    fn receive_pdu<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, PeerError> {
        let limit = self.segment_length_limit();
        let pdu = match framing::front(input, self.digests, limit) {
            Ok(Front::Needs(needed)) => {
                self.needed = needed;
                return Ok(Received { consumed: 0, event: None });
            }
            Ok(Front::Whole(pdu)) => pdu,
            Err(FrameFault::HeaderDigest) => return Err(PeerError::HeaderDigest),
            Err(FrameFault::SegmentTooLong(header)) => {
                let length = header.data_length() as u32;
                return Err(PeerError::SegmentTooLong { length, limit });
            }
            Err(FrameFault::DataDigest(header)) => {
                // RFC 7143 section 7.8: reject, then (at error recovery level 0) end the session.
                self.reject(header, RejectReason::DataDigestError);
                return Err(PeerError::DataDigest);
            }
        };
        self.needed = HEADER_LENGTH;
        let event = match self.phase {
            Phase::Login => self.on_login(pdu.header, pdu.data),
            Phase::FullFeature => self.on_full_feature(pdu.header, pdu.segments, pdu.data)?,
            Phase::Deciding | Phase::LoggingOut | Phase::Closing => None,
        };
        Ok(Received { consumed: pdu.length, event })
    }

    // RFC 7143 section 13.12: before the full feature phase nothing that was declared counts yet.
    fn segment_length_limit(&self) -> u32 {
        match self.phase {
            Phase::Login => SEGMENT_LENGTH_DEFAULT,
            _ => self.parameters.target_segment_length,
        }
    }

    /// How many contiguous bytes the next PDU takes in total, as far as is known. At most
    /// [`Limits::pdu_length_max`].
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// The bytes that are to be written.
    pub fn outbox(&mut self) -> &mut Outbox<P> {
        &mut self.outbox
    }

    /// Whether the connection is to be closed once the outbox is written.
    pub fn wants_close(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Whether the connection is to be closed and everything is written.
    pub fn is_finished(&self) -> bool {
        self.wants_close() && self.outbox.is_empty()
    }

    /// Whether the login is over and the session serves commands or discovery.
    pub fn is_full_feature(&self) -> bool {
        self.phase == Phase::FullFeature
    }

    /// Changes how many commands may be outstanding; at most 1024. A smaller window takes effect as
    /// commands end, because what was granted cannot be taken back.
    pub fn set_window(&mut self, commands: u32) {
        self.window.size = Limits::window(commands);
        let outstanding = self.outstanding();
        if self.phase == Phase::FullFeature && self.window.is_stuck(outstanding) {
            // RFC 7143 section 11.19: a NOP-In may carry new numbers without asking for an answer.
            self.push_nop_in(RESERVED_TAG);
        }
    }

    /// Commands that take a place in the window.
    pub(super) fn outstanding(&self) -> usize {
        let managing = self.managing.iter().filter(|one| !one.immediate).count();
        self.tasks.in_window() + managing
    }

    /// A tag that the peer will send back; never the reserved one.
    pub(super) fn new_ttt(&mut self) -> u32 {
        let ttt = self.next_ttt;
        self.next_ttt = if ttt == RESERVED_TAG - 1 { 0 } else { ttt + 1 };
        ttt
    }

    /// Commands that were ignored, as the protocol requires, because they were outside of the window or duplicates.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Tags of the SCSI commands that have no response yet, in no particular order. When the
    /// connection is lost, these are the tasks that end with it.
    pub fn outstanding_tasks(&self) -> &[Itt] {
        self.tasks.tags()
    }

    /// iSCSI name of the initiator, in lower case; empty before it is known.
    pub fn initiator(&self) -> &str {
        &self.login.initiator
    }

    /// Initiator's part of the session identifier.
    pub const fn isid(&self) -> Isid {
        self.login.isid
    }

    /// Target's part of the session identifier; zero before the session is admitted.
    pub const fn tsih(&self) -> u16 {
        if self.login.admitted { self.login.tsih } else { 0 }
    }

    /// Connection identifier.
    pub const fn cid(&self) -> u16 {
        self.login.cid
    }

    /// Index of the target in [`Node::targets`]; `None` in a discovery session.
    pub const fn target(&self) -> Option<usize> {
        self.login.target
    }

    /// The negotiated parameters.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}
