//! What is sent to the host: R2T, data and completions.

use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

use super::Connection;
use super::connection::Phase;
use super::event::Completion;
use super::pdu::{CapsuleResp, CommonHeader, Cqe, DataHeader, flag, kind};
use crate::crc32c::{self, DIGEST_LENGTH, Running};
use crate::outbox::ZEROES;

impl<P: AsRef<[u8]>> Connection<P> {
    /// Asks for the first `length` bytes of the data of a command whose
    /// [`Transfer`](super::Transfer) is by request. They come as [`Event::Data`](super::Event::Data).
    ///
    /// After a Disconnect, or when the connection is to be closed, nothing is asked for; the command is then answered
    /// without its data.
    ///
    /// Panics if nothing without an answer is in the slot, if it has been asked for before, or for no bytes.
    pub fn solicit(&mut self, slot: u32, length: u32) {
        let command = self.commands.get_mut(slot).expect("an outstanding command gets data");
        assert!(!command.granted && length > 0, "data is asked for once");
        let is_open = matches!(self.phase, Phase::Initialized | Phase::Live);
        if !is_open {
            return;
        }
        command.granted = true;
        command.wanted = length;
        let cid = command.cid;
        let header = DataHeader {
            common: self.common(kind::R2T, 0, 0, 0),
            cccid: U16::new(cid),
            ttag: U16::new(slot as u16),
            offset: U32::new(0),
            length: U32::new(length),
            reserved: U32::new(0),
        };
        self.push_header(&header, HEADER_LENGTH);
    }

    /// Ends a command with a status, or with values. The slot is free when the outbox reports it as a mark.
    ///
    /// A command may be answered before all of its data has come. The rest is then dropped, and the response waits for
    /// it. When the connection is to be closed, nothing is sent.
    ///
    /// Panics if nothing without an answer is in the slot, or if a command whose data is due to the host ends with
    /// success.
    pub fn respond(&mut self, slot: u32, completion: Completion) {
        let command = self.commands.get_mut(slot).expect("a slot is answered once");
        assert!(command.held.is_none(), "a slot is answered once");
        let is_whole = !completion.status.is_success() || command.to_host == command.sent;
        assert!(is_whole, "a command that reads is answered with its data");
        command.gather = None;
        let is_open = matches!(self.phase, Phase::Initialized | Phase::Live);
        if is_open && command.is_receiving() {
            command.held = Some(completion);
            return;
        }
        self.push_completion(slot, completion);
    }

    /// Sends the data in `range` of `payload` to the host, as the next of the command's data and in one PDU. With the
    /// last byte the command ends with success.
    ///
    /// Panics if the range is empty, leaves the payload, or is longer than what is due, or if nothing without an answer
    /// is in the slot.
    pub fn respond_data(&mut self, slot: u32, payload: P, range: Range<usize>) {
        self.send_data(slot, payload, range, 0);
    }

    /// Sends the data in `range` of `payload` to the host, cut to what the command asks for, or filled up with zeroes,
    /// and ends the command with success.
    ///
    /// Panics if the range leaves the payload, if data of the command was sent already, or if nothing without an answer
    /// is in the slot.
    pub fn respond_padded(&mut self, slot: u32, payload: P, range: Range<usize>) {
        let command = self.commands.get(slot).expect("a slot is answered once");
        assert_eq!(command.sent, 0, "all data is sent at once");
        let due = command.to_host as usize;
        if due == 0 {
            return self.respond(slot, Completion::SUCCESS);
        }
        let length = range.len().min(due);
        self.send_data(slot, payload, range.start..range.start + length, due - length);
    }

    fn send_data(&mut self, slot: u32, payload: P, range: Range<usize>, zeroes: usize) {
        let command = self.commands.get_mut(slot).expect("a slot is answered once");
        assert!(command.held.is_none(), "a slot is answered once");
        let (length, offset) = ((range.len() + zeroes) as u32, command.sent);
        let left = command.to_host - offset;
        assert!((1..=left).contains(&length), "{length} bytes of data, {left} are due");
        assert!(range.end <= payload.as_ref().len(), "data lies within its payload");
        command.sent += length;
        let (cid, is_last) = (command.cid, length == left);
        if self.phase == Phase::Closing {
            if is_last {
                self.commands.forget(slot);
            }
            return;
        }
        // A host takes the data for all there is when SUCCESS or a completion comes: both come with the last byte.
        let is_success = is_last && self.queue.is_some_and(|queue| queue.no_flow_control);
        let flags = match (is_last, is_success) {
            (false, _) => 0,
            (true, false) => flag::LAST_PDU,
            (true, true) => flag::LAST_PDU | flag::SUCCESS,
        };
        let pdo = self.data_offset();
        let header = DataHeader {
            common: self.common(kind::C2H_DATA, flags, pdo, length as usize),
            cccid: U16::new(cid),
            ttag: U16::new(0),
            offset: U32::new(offset),
            length: U32::new(length),
            reserved: U32::new(0),
        };
        self.push_header(&header, pdo);
        let digest = self.digests.data.then(|| {
            let mut running = Running::default();
            running.update(&payload.as_ref()[range.clone()]);
            let mut left = zeroes;
            while left > 0 {
                let part = left.min(ZEROES.len());
                running.update(&ZEROES[..part]);
                left -= part;
            }
            running.digest()
        });
        self.outbox.push_payload(payload, range);
        self.outbox.push_zeroes(zeroes);
        if let Some(digest) = digest {
            self.outbox.push_bytes(&digest);
        }
        if is_success {
            self.commands.end(slot);
            self.outbox.mark_last(slot);
        } else if is_last {
            self.push_completion(slot, Completion::SUCCESS);
        }
    }

    /// Ends a command and queues its response capsule.
    pub(super) fn push_completion(&mut self, slot: u32, completion: Completion) {
        // Without flow control the field is reserved.
        let has_flow_control = self.queue.is_some_and(|queue| !queue.no_flow_control);
        let sqhd = if has_flow_control { self.head } else { 0 };
        self.push_cqe(slot, completion, sqhd);
    }

    /// Ends a command and queues its response capsule with this head of the queue.
    pub(super) fn push_cqe(&mut self, slot: u32, completion: Completion, sqhd: u16) {
        if self.phase == Phase::Closing {
            self.commands.forget(slot);
            return;
        }
        let cid = self.commands.end(slot).cid;
        let cqe = Cqe {
            dw0: U32::new(completion.dw0),
            dw1: U32::new(completion.dw1),
            sqhd: U16::new(sqhd),
            sqid: U16::new(self.queue.map_or(0, |queue| queue.id)),
            cid: U16::new(cid),
            status: U16::new(completion.status.field()),
        };
        let common = self.common(kind::CAPSULE_RESP, 0, 0, 0);
        self.push_header(&CapsuleResp { common, cqe }, HEADER_LENGTH);
        self.outbox.mark_last(slot);
    }

    /// Where data begins in a PDU to the host.
    fn data_offset(&self) -> usize {
        let digest = if self.digests.header { DIGEST_LENGTH } else { 0 };
        (HEADER_LENGTH + digest).next_multiple_of(self.alignment)
    }

    /// The common header of a PDU to the host, with `data` bytes at `pdo`, or without data.
    fn common(&self, kind: u8, mut flags: u8, pdo: usize, data: usize) -> CommonHeader {
        let mut plen = HEADER_LENGTH;
        if self.digests.header {
            flags |= flag::HEADER_DIGEST;
            plen += DIGEST_LENGTH;
        }
        if data > 0 {
            plen = pdo + data;
            if self.digests.data {
                flags |= flag::DATA_DIGEST;
                plen += DIGEST_LENGTH;
            }
        }
        let hlen = HEADER_LENGTH as u8;
        CommonHeader { kind, flags, hlen, pdo: pdo as u8, plen: U32::new(plen as u32) }
    }

    /// Queues a header of 24 bytes with its digest, and zeroes up to `end`.
    fn push_header(&mut self, header: &(impl IntoBytes + Immutable), end: usize) {
        let mut bytes = [0; FRONT_MAX];
        bytes[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
        let mut length = HEADER_LENGTH;
        if self.digests.header {
            let digest = crc32c::padded(&bytes[..HEADER_LENGTH], 0);
            bytes[HEADER_LENGTH..HEADER_LENGTH + DIGEST_LENGTH].copy_from_slice(&digest);
            length += DIGEST_LENGTH;
        }
        self.outbox.push_bytes(&bytes[..length.max(end)]);
    }
}

/// Length of every header to the host but that of `ICResp`, in bytes: Linux reads exactly this much.
const HEADER_LENGTH: usize = 24;
/// Longest header with its digest and padding, in bytes: data is aligned to at most 128.
const FRONT_MAX: usize = 128;
