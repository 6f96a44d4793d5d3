//! Received PDUs: their headers, and their data as it comes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::commands::{Command, Gather};
use super::connection::{Digests, Phase};
use super::event::{Completion, DIGEST_BITS_RESERVED};
use super::limits::{ADMIN_IN_CAPSULE, GATHER_MAX};
use super::pdu::{
    CapsuleCmd, CommonHeader, DataHeader, InitializeConnection, Sqe, TermReq, Transfer, digest_bit,
    field, flag, kind,
};
use super::status::Status;
use super::{Connection, Event, PeerError, Received, connect, fabrics};
use crate::crc32c::{self, DIGEST_LENGTH, Running};

/// The data of a PDU that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    slot: u32,
    /// Padding in front of the data that has not come, in bytes.
    padding: u32,
    /// Data that has not come, in bytes.
    left: u32,
    /// The digest so far, if there is one.
    digest: Option<Running>,
    /// The data is wanted, at this offset of the command's data; `None` if it is only taken off the stream.
    offset: Option<u32>,
}

/// What follows the header of a PDU.
#[derive(Clone, Copy)]
struct Layout {
    /// Padding in front of the data, in bytes.
    padding: u32,
    /// Length of the data, in bytes.
    data: u32,
}

impl<P: AsRef<[u8]>> Connection<P> {
    /// Takes what is at the front of `input`: one header, or a part of a PDU's data.
    ///
    /// The shell calls this until nothing is consumed, each time with what is left of the input.
    /// After an error, or while [`wants_close`](Self::wants_close), input is of no interest.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, PeerError> {
        match self.phase {
            Phase::Deciding(_) => Ok(Received { consumed: 0, event: None }),
            Phase::Disconnecting | Phase::Closing => {
                Ok(Received { consumed: input.len(), event: None })
            }
            Phase::AwaitIcReq | Phase::Initialized | Phase::Live => {
                if let Some(incoming) = self.incoming {
                    return Ok(self.receive_data(incoming, input));
                }
                let received = self.receive_header(input);
                if let Err(error) = received {
                    self.fail(error, input);
                }
                received
            }
        }
    }

    fn receive_header<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, PeerError> {
        let needs = |connection: &mut Self, needed| {
            connection.needed = needed;
            Ok(Received { consumed: 0, event: None })
        };
        let Ok((common, _)) = CommonHeader::ref_from_prefix(input) else {
            return needs(self, size_of::<CommonHeader>());
        };
        let (hlen, has_digest) = match common.kind {
            kind::IC_REQ => (size_of::<InitializeConnection>(), false),
            kind::H2C_TERM_REQ => (size_of::<TermReq>(), false),
            kind::CAPSULE_CMD => (size_of::<CapsuleCmd>(), self.digests.header),
            kind::H2C_DATA => (size_of::<DataHeader>(), self.digests.header),
            _ => return Err(PeerError::HeaderField(field::TYPE)),
        };
        match (self.phase, common.kind) {
            (_, kind::H2C_TERM_REQ) | (Phase::AwaitIcReq, kind::IC_REQ) => {}
            (Phase::AwaitIcReq, other) => return Err(PeerError::BeforeIcReq(other)),
            (_, kind::IC_REQ) => return Err(PeerError::SecondIcReq),
            _ => {}
        }
        if usize::from(common.hlen) != hlen {
            return Err(PeerError::HeaderField(field::HLEN));
        }
        let end = hlen + if has_digest { DIGEST_LENGTH } else { 0 };
        let Some((header, digest)) = input.get(..end).map(|front| front.split_at(hlen)) else {
            return needs(self, end);
        };
        if has_digest && !crc32c::matches(header, digest) {
            let got = U32::read_from_bytes(digest).expect("a digest has four bytes").get();
            return Err(PeerError::HeaderDigest { got });
        }
        self.needed = size_of::<CommonHeader>();
        let event = match common.kind {
            kind::IC_REQ => self.on_ic_req(header)?,
            kind::H2C_TERM_REQ => Some(self.on_term_req(header)),
            kind::CAPSULE_CMD => {
                let layout = self.layout(*common, end)?;
                self.on_capsule(header, layout)?
            }
            _ => {
                let layout = self.layout(*common, end)?;
                self.on_data(header, layout)?
            }
        };
        Ok(Received { consumed: end, event })
    }

    /// What follows a header that ends, with its digest, at `end`.
    fn layout(&self, common: CommonHeader, end: usize) -> Result<Layout, PeerError> {
        let wrong = |field| Err(PeerError::HeaderField(field));
        let (plen, pdo) = (common.plen.get(), u32::from(common.pdo));
        let end = end as u32;
        if (common.flags & flag::HEADER_DIGEST != 0) != self.digests.header {
            return wrong(field::FLAGS);
        }
        if plen < end {
            return wrong(field::PLEN);
        }
        if plen == end {
            return Ok(Layout { padding: 0, data: 0 });
        }
        if !pdo.is_multiple_of(4) || pdo < end || pdo > plen {
            return wrong(field::PDO);
        }
        if (common.flags & flag::DATA_DIGEST != 0) != self.digests.data {
            return wrong(field::FLAGS);
        }
        let digest = if self.digests.data { DIGEST_LENGTH as u32 } else { 0 };
        match (plen - pdo).checked_sub(digest) {
            // A PDU that is longer than its header has data.
            None | Some(0) => wrong(field::PLEN),
            Some(data) => Ok(Layout { padding: pdo - end, data }),
        }
    }

    fn on_ic_req<'a>(&mut self, header: &[u8]) -> Result<Option<Event<'a>>, PeerError> {
        let request = InitializeConnection::read_from_bytes(header).expect("the header is whole");
        let wrong = |field| Err(PeerError::HeaderField(field));
        if request.common.plen.get() as usize != size_of::<InitializeConnection>() {
            return wrong(field::PLEN);
        }
        if request.pfv.get() != 0 {
            return wrong(field::PFV);
        }
        if request.pda > HPDA_MAX {
            return wrong(field::HPDA);
        }
        let asked = request.digests;
        if asked & DIGEST_BITS_RESERVED != 0 {
            return wrong(field::DGST);
        }
        let required = PeerError::DigestsRequired { asked };
        let agreed = |digest: super::Digest, bit| digest.agreed(asked & bit != 0).ok_or(required);
        self.digests = Digests {
            header: agreed(self.limits.header_digest, digest_bit::HEADER)?,
            data: agreed(self.limits.data_digest, digest_bit::DATA)?,
        };
        self.alignment = (usize::from(request.pda) + 1) * 4;
        let length = size_of::<InitializeConnection>();
        let plen = U32::new(length as u32);
        let mut digests = 0;
        if self.digests.header {
            digests |= digest_bit::HEADER;
        }
        if self.digests.data {
            digests |= digest_bit::DATA;
        }
        let response = InitializeConnection {
            common: CommonHeader {
                kind: kind::IC_RESP,
                flags: 0,
                hlen: length as u8,
                pdo: 0,
                plen,
            },
            pfv: U16::new(0),
            // CPDA: Linux accepts no other.
            pda: 0,
            digests,
            maximum: U32::new(self.limits.max_transfer),
            reserved: [0; 112],
        };
        self.outbox.push_bytes(response.as_bytes());
        self.phase = Phase::Initialized;
        Ok(None)
    }

    fn on_term_req<'a>(&mut self, header: &[u8]) -> Event<'a> {
        let request = TermReq::read_from_bytes(header).expect("the header is whole");
        self.terminate();
        Event::Terminated { fes: request.fes.get(), fei: request.fei.get() }
    }

    fn on_capsule<'a>(
        &mut self,
        header: &[u8],
        layout: Layout,
    ) -> Result<Option<Event<'a>>, PeerError> {
        let sqe = CapsuleCmd::read_from_bytes(header).expect("the header is whole").sqe;
        let is_io = self.queue.is_some_and(|queue| queue.id != 0) && !sqe.is_fabrics();
        let limit = if is_io { self.limits.in_capsule } else { ADMIN_IN_CAPSULE };
        if layout.data > limit {
            return Err(PeerError::TooLong { length: layout.data, limit });
        }
        let depth = self.depth();
        if !self.commands.has_room(depth, &self.outbox) {
            return Err(PeerError::TooManyCommands(depth));
        }
        self.head = (self.head + 1) % self.queue.map_or(u16::MAX, |queue| queue.depth);
        let mut transfer = sqe.transfer(layout.data);
        let is_described = matches!(transfer, Transfer::InCapsule(_) | Transfer::Invalid(_));
        if layout.data > 0 && !is_described {
            // The capsule has data that the command does not know of.
            transfer = Transfer::Invalid(Status::SGL_LENGTH_INVALID);
        }
        let mut command = Command::new(sqe.cid());
        let mut offset = None;
        match transfer {
            Transfer::InCapsule(length) => {
                command.wanted = length;
                offset = Some(0);
            }
            Transfer::ToHost(length) => command.to_host = length,
            Transfer::None | Transfer::ByRequest(_) | Transfer::Invalid(_) => {}
        }
        let slot = self.commands.take(command, &self.outbox);
        if layout.data > 0 {
            self.expect(slot, layout, offset);
        }
        if !self.commands.get(slot).expect("just taken").owns_cid {
            self.respond(slot, Completion::failed(Status::CID_CONFLICT));
            return Ok(None);
        }
        Ok(self.on_command(slot, sqe, transfer))
    }

    /// A command: Fabrics commands are dealt with here, others by the shell.
    fn on_command<'a>(&mut self, slot: u32, sqe: Sqe, transfer: Transfer) -> Option<Event<'a>> {
        let is_live = self.phase == Phase::Live;
        let is_admin = self.queue.is_some_and(|queue| queue.id == 0);
        let status = match fabrics::decode(&sqe) {
            None if is_live => return Some(Event::Command { slot, sqe, transfer }),
            Some(fabrics::Command::Connect) if !is_live => match (transfer, transfer.from_host()) {
                (Transfer::Invalid(status), _) => status,
                (_, Some(connect::DATA_LENGTH)) => {
                    self.gather(slot, sqe, connect::DATA_LENGTH);
                    return None;
                }
                _ => Status::SGL_LENGTH_INVALID,
            },
            None | Some(fabrics::Command::Connect) => Status::SEQUENCE_ERROR,
            Some(_) if !is_live => Status::SEQUENCE_ERROR,
            Some(fabrics::Command::Property(property)) if is_admin => {
                return Some(Event::Property { slot, property });
            }
            Some(fabrics::Command::Disconnect) if !is_admin => {
                self.disconnect(slot);
                return Some(Event::Disconnect { slot });
            }
            Some(fabrics::Command::Invalid(status)) => status,
            Some(_) => Status::INVALID_OPCODE,
        };
        self.respond(slot, Completion::failed(status));
        None
    }

    /// The host sends no more: answers that were held for its data are settled now.
    fn disconnect(&mut self, slot: u32) {
        self.phase = Phase::Disconnecting;
        self.incoming = None;
        if let Some(command) = self.commands.get_mut(slot) {
            command.on_stream = false;
        }
        let held: Vec<_> = self
            .commands
            .taken()
            .filter_map(|(slot, command)| Some((slot, command.held?)))
            .collect();
        for (slot, completion) in held {
            self.push_completion(slot, completion);
        }
    }

    fn on_data<'a>(
        &mut self,
        header: &[u8],
        layout: Layout,
    ) -> Result<Option<Event<'a>>, PeerError> {
        let data = DataHeader::read_from_bytes(header).expect("the header is whole");
        let (tag, cid) = (data.ttag.get(), data.cccid.get());
        let (offset, length) = (data.offset.get(), data.length.get());
        let command = self.commands.get_mut(tag.into());
        let Some(command) = command.filter(|it| it.granted && it.received < it.wanted) else {
            return Err(PeerError::UnknownTag(tag));
        };
        if command.cid != cid {
            return Err(PeerError::WrongCommand { expected: command.cid, got: cid });
        }
        let limit = self.limits.max_transfer;
        if layout.data > limit {
            return Err(PeerError::TooLong { length: layout.data, limit });
        }
        if length != layout.data {
            return Err(PeerError::HeaderField(field::DATAL));
        }
        let (expected, end) = (command.received, command.wanted);
        let after = offset.checked_add(length).filter(|&after| after <= end);
        let (true, true, Some(after)) = (length > 0, offset == expected, after) else {
            return Err(PeerError::OutOfRange { expected, end, offset, length });
        };
        // LAST_PDU ends the grant; that it is missing at the end is forgiven.
        if data.common.flags & flag::LAST_PDU != 0 && after < end {
            return Err(PeerError::EndsEarly { expected: end, got: after });
        }
        self.expect(tag.into(), layout, Some(offset));
        Ok(None)
    }

    /// Makes the data of a PDU the next thing that is received.
    fn expect(&mut self, slot: u32, layout: Layout, offset: Option<u32>) {
        let digest = self.digests.data.then(Running::default);
        let Layout { padding, data: left } = layout;
        self.commands.get_mut(slot).expect("it has no response").on_stream = true;
        self.incoming = Some(Incoming { slot, padding, left, digest, offset });
        self.needed = 1;
    }

    fn receive_data<'a>(&mut self, mut incoming: Incoming, input: &'a [u8]) -> Received<'a> {
        let padding = input.len().min(incoming.padding as usize);
        incoming.padding -= padding as u32;
        let behind = &input[padding..];
        let (bytes, behind) = behind.split_at(behind.len().min(incoming.left as usize));
        incoming.left -= bytes.len() as u32;
        if let Some(digest) = &mut incoming.digest {
            digest.update(bytes);
        }
        let mut consumed = padding + bytes.len();
        let is_all = incoming.padding == 0 && incoming.left == 0;
        let mut is_over = is_all;
        if let (true, Some(running)) = (is_all, incoming.digest) {
            if let Some(digest) = behind.get(..DIGEST_LENGTH) {
                consumed += DIGEST_LENGTH;
                if running.digest() != digest {
                    self.commands.get_mut(incoming.slot).expect("it receives").is_damaged = true;
                }
            } else {
                is_over = false;
                self.needed = DIGEST_LENGTH;
            }
        }
        let offset = incoming.offset;
        if let Some(offset) = &mut incoming.offset {
            *offset += bytes.len() as u32;
        }
        self.incoming = (!is_over).then_some(incoming);
        if is_over {
            self.needed = size_of::<CommonHeader>();
        }
        let event = self.on_bytes(incoming.slot, offset, bytes, is_over);
        Received { consumed, event }
    }

    /// Hands on data of a command. `is_over` says that its PDU ends with it.
    fn on_bytes<'a>(
        &mut self,
        slot: u32,
        offset: Option<u32>,
        bytes: &'a [u8],
        is_over: bool,
    ) -> Option<Event<'a>> {
        let command = self.commands.get_mut(slot).expect("a command that receives has no response");
        if is_over {
            command.on_stream = false;
        }
        if offset.is_some() {
            command.received += bytes.len() as u32;
        }
        let is_complete = is_over && command.received >= command.wanted;
        if let Some(completion) = command.held {
            if !command.is_receiving() {
                self.push_completion(slot, completion);
            }
            return None;
        }
        let offset = offset?;
        if let Some(gather) = &mut command.gather {
            let room = gather.limit - gather.data.len();
            gather.data.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if is_complete && command.is_damaged {
            command.gather = None;
            return self.on_damage(slot);
        }
        if is_complete && let Some(gather) = command.gather.take() {
            return self.on_gathered(slot, *gather);
        }
        let hands_on = command.gather.is_none() && (!bytes.is_empty() || is_complete);
        hands_on.then_some(Event::Data { slot, offset, bytes, complete: is_complete })
    }

    fn on_damage<'a>(&mut self, slot: u32) -> Option<Event<'a>> {
        let status = Status::TRANSIENT_TRANSPORT_ERROR;
        if self.phase == Phase::Live {
            return Some(Event::TransferFailed { slot, status });
        }
        self.respond(slot, Completion::failed(status));
        None
    }

    fn on_gathered<'a>(&mut self, slot: u32, gather: Gather) -> Option<Event<'a>> {
        let Gather { sqe, data, .. } = gather;
        if self.phase == Phase::Live {
            // A second Connect, whose data came after the first was admitted.
            if sqe.is_fabrics() {
                self.respond(slot, Completion::failed(Status::SEQUENCE_ERROR));
                return None;
            }
            return Some(Event::Gathered { slot, sqe, data });
        }
        match connect::parse(&sqe, &data, &self.limits) {
            Ok((queue, connect)) => {
                self.phase = Phase::Deciding(slot);
                self.queue = Some(queue);
                self.head = 1 % queue.depth;
                Some(Event::Connect(Box::new(connect)))
            }
            Err(completion) => {
                self.respond(slot, completion);
                None
            }
        }
    }

    /// Collects the first `length` bytes of the data of a command, at most [`GATHER_MAX`], and drops what the host has
    /// beyond them. They come as [`Event::Gathered`], unless the command is answered before. To be called before
    /// more is received, with a command whose [`Transfer`] is from the host and not shorter than `length`.
    ///
    /// Panics if nothing without an answer is in the slot, or for a greater length.
    pub fn gather(&mut self, slot: u32, sqe: Sqe, length: u32) {
        assert!((1..=GATHER_MAX).contains(&length), "what is gathered is bounded");
        let command = self.commands.get_mut(slot).expect("an outstanding command gathers");
        assert_eq!(command.received, 0, "a command gathers from its first byte on");
        let limit = length as usize;
        let data = Vec::with_capacity(limit);
        command.gather = Some(Box::new(Gather { sqe, data, limit }));
        if !command.on_stream {
            self.solicit(slot, length);
        }
    }
}

/// Greatest HPDA: data aligned to 128 bytes.
const HPDA_MAX: u8 = 31;
