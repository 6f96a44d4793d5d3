//! One connection: phases and the shell's interface.

use std::sync::Arc;

use super::handshake::{Choice, Haggling, Skip};
use super::limits::REPLIES_MAX;
use super::protocol::{self, IHAVEOPT, NBDMAGIC, OptionHeader, RequestHeader};
use super::transmission::{Outstanding, Payload};
use super::{Exports, Limits, PeerError, Received};
use crate::outbox::Outbox;
use crate::slots::Slots;

/// The phase of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// The client's flags are due.
    ClientFlags,
    /// An option is due.
    Haggling,
    /// The data of an option that is refused.
    Skipping(Skip),
    /// The shell goes over to TLS.
    StartingTls,
    /// The shell decides about the export.
    Deciding(Choice),
    /// Requests.
    Transmission,
    /// The client has disconnected; outstanding requests are still answered.
    Disconnecting,
    /// The outbox is written, and no more input is received.
    Closing,
}

/// The server's end of one NBD connection.
///
/// `P` is the shell's handle of read data, for example a reference-counted buffer. Replies refer to
/// it; it is dropped when the reply is written. Its bytes must stay the same until then. The marks
/// that the [`Outbox`] reports are slots of requests.
#[derive(Debug)]
pub struct Connection<P> {
    pub(super) exports: Arc<Exports>,
    pub(super) limits: Limits,
    pub(super) phase: Phase,
    pub(super) haggling: Haggling,
    /// The export in use, or the one about which the shell decides.
    pub(super) export: Option<usize>,
    /// Its size in bytes, which may change.
    pub(super) size: u64,
    pub(super) slots: Slots<Outstanding>,
    /// The payload of a write that is being received.
    pub(super) payload: Option<Payload>,
    pub(super) outbox: Outbox<P>,
    pub(super) needed: usize,
}

impl<P: AsRef<[u8]>> Connection<P> {
    /// A new connection. Its greeting is in the outbox.
    ///
    /// Panics if a limit is out of its range; [`Limits::check`] says which.
    pub fn new(exports: Arc<Exports>, limits: Limits) -> Self {
        assert_eq!(limits.check(), Ok(()), "limits are checked when they are configured");
        let mut outbox = Outbox::new();
        let flags = protocol::handshake::FIXED_NEWSTYLE | protocol::handshake::NO_ZEROES;
        outbox.push_bytes(&NBDMAGIC.to_be_bytes());
        outbox.push_bytes(&IHAVEOPT.to_be_bytes());
        outbox.push_bytes(&flags.to_be_bytes());
        Self {
            exports,
            limits,
            phase: Phase::ClientFlags,
            haggling: Haggling::default(),
            export: None,
            size: 0,
            slots: Slots::default(),
            payload: None,
            outbox,
            needed: size_of::<u32>(),
        }
    }

    /// Takes what is at the front of `input`: one option, one request or a part of its payload.
    ///
    /// The shell calls this until nothing is consumed, each time with what is left of the input.
    /// After an error, or while [`wants_close`](Self::wants_close), input is of no interest.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, PeerError> {
        let nothing = Ok(Received { consumed: 0, event: None });
        if self.is_waiting() && !matches!(self.phase, Phase::StartingTls) {
            return nothing;
        }
        let received = match self.phase {
            Phase::ClientFlags => self.receive_client_flags(input),
            Phase::Haggling => self.receive_option(input),
            Phase::Skipping(skip) => Ok(self.receive_skipped(skip, input)),
            Phase::StartingTls if !input.is_empty() => Err(PeerError::PlaintextBehindStartTls),
            Phase::StartingTls | Phase::Deciding(_) => nothing,
            Phase::Transmission => self.receive_transmission(input),
            Phase::Disconnecting | Phase::Closing => {
                Ok(Received { consumed: input.len(), event: None })
            }
        };
        if received.is_err() {
            self.phase = Phase::Closing;
        }
        received
    }

    /// Whether the connection currently consumes no input. The shell then stops reading, and calls
    /// [`receive`](Self::receive) again with its buffered input when that may have changed: after it has written, or
    /// has answered an event.
    ///
    /// This holds while replies to an option wait to be written, since a client must read them before its next option
    /// (section "Fixed newstyle negotiation"); while an answer to [`Event::StartTls`](super::Event::StartTls) or
    /// [`Event::ExportChosen`](super::Event::ExportChosen) is due; while [`Limits::requests`] have no complete reply;
    /// and while 256 KiB of replies wait to be written, payload apart.
    pub fn is_waiting(&self) -> bool {
        match self.phase {
            Phase::ClientFlags | Phase::Haggling | Phase::Skipping(_) => !self.outbox.is_empty(),
            Phase::StartingTls | Phase::Deciding(_) => true,
            Phase::Transmission => {
                let full = !self.slots.has_room(self.limits.requests, &self.outbox)
                    || self.outbox.owned() > REPLIES_MAX;
                self.payload.is_none() && full
            }
            Phase::Disconnecting | Phase::Closing => false,
        }
    }

    /// How many contiguous bytes must be there for the next step, as far as is known. At most
    /// [`NEEDED_MAX`](super::NEEDED_MAX); in the transmission phase at most 28.
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// Makes an option the next thing that is received.
    pub(super) const fn haggle(&mut self) {
        self.phase = Phase::Haggling;
        self.needed = size_of::<OptionHeader>();
    }

    /// Makes a request the next thing that is received.
    pub(super) const fn transmit(&mut self) {
        self.phase = Phase::Transmission;
        self.needed = size_of::<RequestHeader>();
    }

    /// The bytes that are to be written.
    pub fn outbox(&mut self) -> &mut Outbox<P> {
        &mut self.outbox
    }

    /// Whether the connection is to be closed once the outbox is written.
    pub fn wants_close(&self) -> bool {
        match self.phase {
            // NBD_CMD_DISC: all outstanding requests must be handled first.
            Phase::Disconnecting => self.slots.outstanding() == 0,
            Phase::Closing => true,
            _ => false,
        }
    }

    /// Whether the connection is to be closed and everything is written.
    pub fn is_finished(&self) -> bool {
        self.wants_close() && self.outbox.is_empty()
    }

    /// Whether the negotiation is over and requests are served.
    pub fn is_transmission(&self) -> bool {
        matches!(self.phase, Phase::Transmission)
    }

    /// Requests without a reply.
    pub fn outstanding(&self) -> u32 {
        self.slots.outstanding()
    }

    /// Index of the export in use, or of the one about which the shell decides.
    pub const fn export(&self) -> Option<usize> {
        self.export
    }

    /// Changes the size of the export, in bytes. It holds for later requests, and for what the
    /// client learns of it if the export has yet to be admitted; the protocol cannot announce it afterwards.
    pub const fn resize(&mut self, size: u64) {
        self.size = size;
    }
}
