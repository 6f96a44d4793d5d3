//! The handshake phase: client flags, options, and their replies.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::connection::Phase;
use super::limits::{OPTION_LENGTH_MAX, OPTION_SKIP_MAX};
use super::options::{ContextQuery, InfoRequest, Wanted};
use super::protocol::{
    IHAVEOPT, OPTION_REPLY_MAGIC, OptionHeader, OptionReply, STRING_MAX, ZEROES, client, context,
    info, option, rep,
};
use super::{Connection, Event, Export, PeerError, Received, Refusal, Tls};

/// The options negotiated so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Haggling {
    /// The client knows that options may be refused.
    fixed: bool,
    /// The client does without the zero bytes.
    no_zeroes: bool,
    encrypted: bool,
    pub(super) structured: bool,
    /// Index of the export for which `base:allocation` was selected.
    pub(super) allocation: Option<usize>,
}

/// An option whose data is skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skip {
    option: u32,
    /// Bytes that are still to come.
    left: usize,
    /// Type of the reply when they have.
    reply: u32,
}

/// The option that chose the export.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    /// By `NBD_OPT_EXPORT_NAME`.
    Name,
    /// By `NBD_OPT_GO`.
    Go(Wanted),
}

impl<P: AsRef<[u8]>> Connection<P> {
    pub(super) fn receive_client_flags<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<Received<'a>, PeerError> {
        let Ok((flags, _)) = U32::ref_from_prefix(input) else {
            return Ok(Received { consumed: 0, event: None });
        };
        let flags = flags.get();
        // Section "Client flags": an unknown flag must end the connection.
        if flags & !(client::FIXED_NEWSTYLE | client::NO_ZEROES) != 0 {
            return Err(PeerError::ClientFlags { flags });
        }
        self.haggling.fixed = flags & client::FIXED_NEWSTYLE != 0;
        self.haggling.no_zeroes = flags & client::NO_ZEROES != 0;
        self.haggle();
        Ok(Received { consumed: size_of::<U32>(), event: None })
    }

    pub(super) fn receive_option<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<Received<'a>, PeerError> {
        let more = Ok(Received { consumed: 0, event: None });
        let Ok((header, rest)) = OptionHeader::ref_from_prefix(input) else {
            return more;
        };
        let (option, length) = (header.option.get(), header.length.get());
        if header.magic != IHAVEOPT {
            return Err(PeerError::OptionMagic);
        }
        // Section "Newstyle negotiation": without fixed newstyle only one option is allowed.
        if !self.haggling.fixed && option != option::EXPORT_NAME {
            return Err(PeerError::NotFixedNewstyle { option });
        }
        if let Some(reply) = self.refusal(option, length as usize) {
            return self.refuse_option(option, length, reply);
        }
        let total = size_of::<OptionHeader>() + length as usize;
        let Some((data, behind)) = rest.split_at_checked(length as usize) else {
            self.needed = total;
            return more;
        };
        self.haggle();
        let event = self.on_option(option, data, behind)?;
        Ok(Received { consumed: total, event })
    }

    /// The reply to an option whose data is not examined.
    fn refusal(&self, option: u32, length: usize) -> Option<u32> {
        let lacks_tls = self.limits.tls == Tls::Required && !self.haggling.encrypted;
        // Section "FORCEDTLS mode": all options but these two, known or not.
        if lacks_tls && !matches!(option, option::STARTTLS | option::ABORT) {
            return Some(rep::ERR_TLS_REQD);
        }
        (length > OPTION_LENGTH_MAX).then_some(rep::ERR_TOO_BIG)
    }

    fn refuse_option<'a>(
        &mut self,
        option: u32,
        length: u32,
        reply: u32,
    ) -> Result<Received<'a>, PeerError> {
        let left = length as usize;
        // NBD_OPT_EXPORT_NAME: there is no error reply, so the session must end.
        if option == option::EXPORT_NAME {
            let lacks_tls = reply == rep::ERR_TLS_REQD;
            return Err(if lacks_tls { PeerError::TlsRequired } else { PeerError::UnknownExport });
        }
        if left > OPTION_SKIP_MAX {
            return Err(PeerError::OptionTooLong { option, length });
        }
        let skip = Skip { option, left, reply };
        self.phase = Phase::Skipping(skip);
        self.needed = 1;
        let consumed = size_of::<OptionHeader>();
        let skipped = self.receive_skipped(skip, &[]);
        Ok(Received { consumed: consumed + skipped.consumed, event: None })
    }

    pub(super) fn receive_skipped<'a>(&mut self, skip: Skip, input: &'a [u8]) -> Received<'a> {
        let consumed = skip.left.min(input.len());
        let left = skip.left - consumed;
        if left == 0 {
            self.reply(skip.option, skip.reply, &[]);
            self.haggle();
        } else {
            self.phase = Phase::Skipping(Skip { left, ..skip });
        }
        Received { consumed, event: None }
    }

    /// Handles one option with all of its data. `behind` is the input after it.
    fn on_option<'a>(
        &mut self,
        option: u32,
        data: &[u8],
        behind: &[u8],
    ) -> Result<Option<Event<'a>>, PeerError> {
        let reply = match option {
            option::EXPORT_NAME => return self.on_export_name(data).map(Some),
            option::ABORT => {
                // NBD_OPT_ABORT: data that comes with it should be ignored.
                self.reply(option, rep::ACK, &[]);
                self.phase = Phase::Closing;
                return Ok(Some(Event::Disconnect));
            }
            option::INFO | option::GO => return Ok(self.on_info(option, data)),
            option::LIST_META_CONTEXT => self.on_list_contexts(data),
            option::SET_META_CONTEXT => self.on_set_contexts(data),
            // The three that come without data, each by its own paragraph.
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY if !data.is_empty() => {
                rep::ERR_INVALID
            }
            option::LIST => self.on_list(),
            option::STRUCTURED_REPLY => {
                self.haggling.structured = true;
                rep::ACK
            }
            // Section "NOTLS mode".
            option::STARTTLS if self.limits.tls == Tls::Off => rep::ERR_POLICY,
            option::STARTTLS if self.haggling.encrypted => rep::ERR_INVALID,
            option::STARTTLS if !behind.is_empty() => {
                return Err(PeerError::PlaintextBehindStartTls);
            }
            option::STARTTLS => {
                self.reply(option, rep::ACK, &[]);
                self.phase = Phase::StartingTls;
                return Ok(Some(Event::StartTls));
            }
            _ => rep::ERR_UNSUP,
        };
        self.reply(option, reply, &[]);
        Ok(None)
    }

    /// Continues the negotiation, which is now encrypted. To be called after
    /// [`Event::StartTls`] when the TLS handshake has succeeded.
    pub fn tls_started(&mut self) {
        if matches!(self.phase, Phase::StartingTls) {
            // NBD_OPT_STARTTLS: earlier negotiation results must be discarded.
            self.haggling.structured = false;
            self.haggling.allocation = None;
            self.haggling.encrypted = true;
            self.haggle();
        }
    }

    fn on_export_name<'a>(&mut self, name: &[u8]) -> Result<Event<'a>, PeerError> {
        let (index, export) = self.exports.find(name).ok_or(PeerError::UnknownExport)?;
        let size = export.size;
        Ok(self.choose(index, size, Choice::Name))
    }

    fn choose<'a>(&mut self, index: usize, size: u64, choice: Choice) -> Event<'a> {
        self.export = Some(index);
        self.size = size;
        self.phase = Phase::Deciding(choice);
        Event::ExportChosen { index }
    }

    fn on_info<'a>(&mut self, option: u32, data: &[u8]) -> Option<Event<'a>> {
        let Some(InfoRequest { name, wanted }) = InfoRequest::parse(data) else {
            self.reply(option, rep::ERR_INVALID, &[]);
            return None;
        };
        let Some((index, export)) = self.exports.find(name) else {
            self.reply(option, rep::ERR_UNKNOWN, &[]);
            return None;
        };
        let size = export.size;
        if option == option::GO {
            return Some(self.choose(index, size, Choice::Go(wanted)));
        }
        self.push_info(option, index, size, wanted);
        None
    }

    /// Lets the client use the export that it has chosen. Requests come next.
    pub fn export_admitted(&mut self) {
        let (Phase::Deciding(choice), Some(index)) = (self.phase, self.export) else {
            return;
        };
        match choice {
            Choice::Go(wanted) => self.push_info(option::GO, index, self.size, wanted),
            Choice::Name => {
                let flags = self.exports.as_slice()[index].flags(self.haggling.structured);
                self.outbox.push_bytes(&self.size.to_be_bytes());
                self.outbox.push_bytes(&flags.to_be_bytes());
                if !self.haggling.no_zeroes {
                    self.outbox.push_bytes(&[0; ZEROES]);
                }
            }
        }
        self.transmit();
    }

    /// Refuses the export that the client has chosen. The client may choose another one if the option has an error
    /// reply; else the connection closes.
    pub fn export_refused(&mut self, refusal: Refusal) {
        let Phase::Deciding(choice) = self.phase else {
            return;
        };
        self.export = None;
        match choice {
            Choice::Name => self.phase = Phase::Closing,
            Choice::Go(_) => {
                let reply = match refusal {
                    Refusal::Policy => rep::ERR_POLICY,
                    Refusal::Unknown => rep::ERR_UNKNOWN,
                    Refusal::Shutdown => rep::ERR_SHUTDOWN,
                };
                self.reply(option::GO, reply, &[]);
                self.haggle();
            }
        }
    }

    /// The information about an export, and that this was all.
    fn push_info(&mut self, option: u32, index: usize, size: u64, wanted: Wanted) {
        let exports = self.exports.clone();
        let export = &exports.as_slice()[index];
        let kind = |kind: u16| kind.to_be_bytes();
        let flags = U16::new(export.flags(self.haggling.structured));
        let size = U64::new(size);
        self.reply(option, rep::INFO, &[&kind(info::EXPORT), size.as_bytes(), flags.as_bytes()]);
        if wanted.name {
            self.reply(option, rep::INFO, &[&kind(info::NAME), export.name.as_bytes()]);
        }
        if wanted.description && !export.description.is_empty() {
            let text = export.description.as_bytes();
            self.reply(option, rep::INFO, &[&kind(info::DESCRIPTION), text]);
        }
        // Section "Size constraints": always sent, because they are enforced.
        let block = export.block_size;
        let sizes = [block.minimum, block.preferred, block.maximum].map(U32::new);
        self.reply(option, rep::INFO, &[&kind(info::BLOCK_SIZE), sizes.as_bytes()]);
        self.reply(option, rep::ACK, &[]);
    }

    fn on_list(&mut self) -> u32 {
        let exports = self.exports.clone();
        let offered = exports.as_slice().iter().filter(|export| !export.removed);
        for Export { name, description, .. } in offered {
            let length = U32::new(name.len() as u32);
            let parts = [length.as_bytes(), name.as_bytes(), description.as_bytes()];
            self.reply(option::LIST, rep::SERVER, &parts);
        }
        rep::ACK
    }

    fn on_list_contexts(&mut self, data: &[u8]) -> u32 {
        let query = match self.context_query(data) {
            Ok((query, _)) => query,
            Err(reply) => return reply,
        };
        if query.empty || query.allocation || query.wildcard {
            // NBD_OPT_LIST_META_CONTEXT: the ID is reserved and should be zero.
            self.push_context(option::LIST_META_CONTEXT, 0);
        }
        rep::ACK
    }

    fn on_set_contexts(&mut self, data: &[u8]) -> u32 {
        // NBD_OPT_SET_META_CONTEXT: replaces what was set before even if it fails.
        self.haggling.allocation = None;
        let (query, index) = match self.context_query(data) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        // Section "The `base:` metadata namespace": the wildcard selects nothing.
        if query.allocation {
            self.haggling.allocation = Some(index);
            self.push_context(option::SET_META_CONTEXT, context::ID);
        }
        rep::ACK
    }

    /// The query and the export that it concerns, or the type of the error reply.
    fn context_query<'a>(&self, data: &'a [u8]) -> Result<(ContextQuery<'a>, usize), u32> {
        // NBD_OPT_SET_META_CONTEXT: structured replies come first.
        if !self.haggling.structured {
            return Err(rep::ERR_INVALID);
        }
        let query = ContextQuery::parse(data).ok_or(rep::ERR_INVALID)?;
        let (index, _) = self.exports.find(query.name).ok_or(rep::ERR_UNKNOWN)?;
        Ok((query, index))
    }

    fn push_context(&mut self, option: u32, id: u32) {
        let name = context::ALLOCATION.as_bytes();
        self.reply(option, rep::META_CONTEXT, &[&id.to_be_bytes(), name]);
    }

    /// Queues one reply to an option; its data is in parts.
    fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) {
        debug_assert!(parts.iter().all(|part| part.len() <= STRING_MAX), "strings are checked");
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let header = OptionReply {
            magic: OPTION_REPLY_MAGIC.into(),
            option: option.into(),
            kind: kind.into(),
            length: (length as u32).into(),
        };
        self.outbox.push_bytes(header.as_bytes());
        for part in parts {
            self.outbox.push_bytes(part);
        }
    }
}
