//! One session: framing, phases and the shell's interface.

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::transmute_ref;

use super::discovery::Exchange;
use super::event::{Event, Received};
use super::fault::{Fault, PduKind};
use super::login::Login;
use super::negotiation;
use super::numbers::Numbers;
use super::settings::Settings;
use super::tasks::{Outstanding, Tasks};
use crate::iscsi::chap::CHALLENGE_LENGTH;
use crate::iscsi::framing::{self, Digests, FrameFault, Front, Segment};
use crate::iscsi::keys::{Parameters, SEGMENT_LENGTH_DEFAULT};
use crate::iscsi::pdu::{HEADER_LENGTH, Header, Itt, LoginResponse};
use crate::outbox::Outbox;

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Negotiating.
    Login,
    /// Commands, or discovery.
    FullFeature,
    /// The logout was asked for; no further commands.
    LoggingOut,
    /// No more input is received.
    Over,
}

/// The initiator's end of one iSCSI connection.
///
/// `P` is the shell's handle of write data, for example a reference-counted buffer. Data-Out refers
/// to it; it is cloned once per PDU and dropped when the PDU is written. Its bytes must stay the same
/// until then, even if the command has ended meanwhile.
#[derive(Debug)]
pub struct Initiator<P> {
    pub(super) settings: Arc<Settings>,
    pub(super) phase: Phase,
    pub(super) login: Login,
    pub(super) parameters: Parameters,
    pub(super) digests: Digests,
    pub(super) numbers: Numbers,
    pub(super) tasks: Tasks<P>,
    pub(super) exchange: Option<Exchange>,
    pub(super) outbox: Outbox<P>,
    /// Events of the last PDU that are not yet reported.
    pub(super) pending: VecDeque<Event<'static>>,
    needed: usize,
}

impl<P: AsRef<[u8]> + Clone> Initiator<P> {
    /// A session on a new connection. Its first login request is in the outbox at once. `entropy` is random and used
    /// only for this session: it is the CHAP challenge for the target.
    ///
    /// Panics if a setting is out of its range; [`Settings::check`] says which.
    pub fn new(settings: Arc<Settings>, entropy: [u8; CHALLENGE_LENGTH]) -> Self {
        Self::starting_at(settings, entropy, 1)
    }

    /// The same with the number of the first command.
    pub(super) fn starting_at(
        settings: Arc<Settings>,
        entropy: [u8; CHALLENGE_LENGTH],
        cmd_sn: u32,
    ) -> Self {
        assert_eq!(settings.check(), Ok(()), "settings are checked when they are made");
        let mut initiator = Self {
            phase: Phase::Login,
            login: Login::new(entropy),
            parameters: negotiation::beginning(&settings),
            digests: Digests::default(),
            numbers: Numbers::new(cmd_sn),
            tasks: Tasks::new(),
            exchange: None,
            outbox: Outbox::new(),
            pending: VecDeque::new(),
            needed: HEADER_LENGTH,
            settings,
        };
        initiator.start_login();
        initiator
    }

    /// Takes the PDU at the front of `input` if all of it is there.
    ///
    /// The shell calls this until nothing is consumed and there is no event, each time with what is
    /// left of the input. After a fault input is of no interest.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, Fault> {
        if let Some(event) = self.pending.pop_front() {
            return Ok(Received { consumed: 0, event: Some(event) });
        }
        if self.phase == Phase::Over {
            return Ok(Received { consumed: input.len(), event: None });
        }
        let received = self.receive_pdu(input);
        if received.is_err() {
            self.phase = Phase::Over;
        }
        received
    }

    fn receive_pdu<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, Fault> {
        // RFC 7143 section 13.12: before the full feature phase nothing that was declared counts yet.
        let limit = match self.phase {
            Phase::Login => SEGMENT_LENGTH_DEFAULT,
            _ => self.settings.max_recv,
        };
        let front = framing::front(input, self.digests, limit);
        let pdu = match front.map_err(|fault| framing_fault(fault, limit))? {
            Front::Needs(needed) => {
                self.needed = needed;
                return Ok(Received { consumed: 0, event: None });
            }
            Front::Whole(pdu) => pdu,
        };
        self.needed = HEADER_LENGTH;
        let event = match self.phase {
            Phase::Login => {
                let response: &LoginResponse = transmute_ref!(pdu.header);
                self.on_login(response, pdu.data)?
            }
            _ => self.on_full_feature(pdu.header, pdu.data)?,
        };
        Ok(Received { consumed: pdu.length, event })
    }

    /// How many contiguous bytes the next PDU takes in total, as far as is known. At most
    /// [`Settings::pdu_length_max`].
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// The bytes that are to be written.
    pub const fn outbox(&self) -> &Outbox<P> {
        &self.outbox
    }

    /// Notes that the first `n` waiting bytes of the outbox are written. To be called before anything
    /// is received that may be an answer to them.
    ///
    /// Panics if fewer wait.
    pub fn written(&mut self, n: usize) {
        let Self { outbox, tasks, .. } = self;
        outbox.advance(n, |mark| tasks.left(Itt(mark)));
    }

    /// Commands that may be given now: none outside of the full feature phase of a normal session.
    pub fn room(&self) -> u32 {
        if self.phase != Phase::FullFeature || self.settings.target.is_none() {
            return 0;
        }
        let own = self.settings.commands_max.saturating_sub(self.tasks.commands());
        own.min(self.numbers.room())
    }

    /// The shell has given this command up, its data and its end. Its tag stays taken until the target
    /// has answered, and so does the buffer of a write.
    pub fn forget(&mut self, itt: Itt) {
        if let Some(entry) = self.tasks.find(itt) {
            entry.forgotten = true;
        }
    }

    /// The commands that have not ended, in no particular order; also those of a session that is over,
    /// whose end will never be known.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> {
        self.tasks.outstanding()
    }

    /// Whether the session serves commands or discovery.
    pub fn is_full_feature(&self) -> bool {
        self.phase == Phase::FullFeature
    }

    /// Whether the connection is of no further use and to be closed.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// The settings of the session.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The negotiated parameters.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Queues one PDU with the digests in force; `mark` is the request that it is, or whose sequence
    /// it ends.
    pub(super) fn push(
        &mut self,
        header: [u8; HEADER_LENGTH],
        data: Segment<'_, P>,
        mark: Option<Itt>,
    ) {
        self.outbox.push_pdu(header, data, self.digests, mark);
    }
}

fn framing_fault(fault: FrameFault<'_>, limit: u32) -> Fault {
    let kind = |header: &Header| PduKind(header.kind());
    match fault {
        FrameFault::HeaderDigest => Fault::HeaderDigest,
        FrameFault::DataDigest(header) => Fault::DataDigest { pdu: kind(header) },
        FrameFault::SegmentTooLong(header) => {
            Fault::SegmentTooLong { pdu: kind(header), length: header.data_length() as u32, limit }
        }
    }
}
