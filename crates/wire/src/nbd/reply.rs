//! Replies of the server to requests.

use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U32, U64};

use super::limits::EXTENTS_MAX;
use super::protocol::{
    Chunk, DataChunk, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply, chunk, context,
};
use super::transmission::Outstanding;
use super::transmission::{Fate, Fault};
use super::{Command, Connection, Error, Extent};

impl<P: AsRef<[u8]>> Connection<P> {
    /// Ends a request: any with an error, and one that asks for nothing but its being done with
    /// success. The slot is free when the outbox reports it as a mark.
    ///
    /// A write may be answered before all of its data has come. The rest is then skipped, and the
    /// reply put into the outbox behind it.
    ///
    /// Panics if nothing without an answer is in the slot, or if a read or block status ends with
    /// success.
    pub fn respond(&mut self, slot: u32, result: Result<(), Error>) {
        if let Some(payload) = &mut self.payload {
            match payload.fate {
                Fate::Wanted { slot: receiving } if receiving == slot => {
                    payload.fate = Fate::Answered { slot, result };
                    return;
                }
                Fate::Answered { slot: answered, .. } => {
                    assert_ne!(answered, slot, "a slot is answered once");
                }
                _ => {}
            }
        }
        let Outstanding { cookie, command, .. } = self.slots.end(slot);
        match result {
            Ok(()) => {
                let bare = !matches!(command, Command::Read | Command::BlockStatus { .. });
                assert!(bare, "what asks for something is answered with it");
                self.push_simple(cookie, 0);
            }
            Err(error) => self.push_fault(Fault { cookie, error, says: "", offset: None }),
        }
        self.outbox.mark_last(slot);
    }

    /// Ends a read with the data in `range` of `payload`, which is as long as the request.
    ///
    /// Panics if it is not, if the range leaves the payload, or if no read without an answer is in
    /// the slot.
    pub fn respond_data(&mut self, slot: u32, payload: P, range: Range<usize>) {
        let request = self.slots.end(slot);
        assert_eq!(request.command, Command::Read, "only a read is answered with data");
        assert_eq!(range.len(), request.length as usize, "a read is answered with all of its data");
        assert!(range.end <= payload.as_ref().len(), "read data lies within its payload");
        if self.haggling.structured {
            // Section "Structured reply chunk message": it may be the last one, for nothing can go
            // wrong any more.
            let length = size_of::<U64>() + range.len();
            let chunk = only_chunk(request.cookie, chunk::OFFSET_DATA, length);
            let header = DataChunk { chunk, offset: request.offset.into() };
            self.outbox.push_bytes(header.as_bytes());
        } else {
            self.push_simple(request.cookie, 0);
        }
        self.outbox.push_payload(payload, range);
        self.outbox.mark_last(slot);
    }

    /// Ends a block status with what is known about the range from the request's offset on. Extents
    /// beyond its length are cut off, equal ones in a row are joined, and at most 1024 are sent; the
    /// client asks again for what is missing.
    ///
    /// Panics if there are none, if one is empty, or if no block status without an answer is in the
    /// slot.
    pub fn respond_status(&mut self, slot: u32, extents: &[Extent]) {
        let request = self.slots.end(slot);
        let Command::BlockStatus { one } = request.command else {
            panic!("only a block status is answered with extents");
        };
        // Only one extent may be returned with NBD_CMD_FLAG_REQ_ONE.
        let most = if one { 1 } else { EXTENTS_MAX };
        let mut descriptors: Vec<[U32; 2]> = Vec::new();
        let mut left = request.length;
        for extent in extents {
            assert!(extent.length > 0, "an extent has a length");
            let length = extent.length.min(left);
            let hole = if extent.hole { context::STATE_HOLE } else { 0 };
            let flags = U32::new(hole | if extent.zero { context::STATE_ZERO } else { 0 });
            if length == 0 {
                break;
            }
            let is_full = descriptors.len() == most;
            match descriptors.last_mut() {
                Some(last) if last[1] == flags => last[0] += length,
                _ if is_full => break,
                _ => descriptors.push([length.into(), flags]),
            }
            left -= length;
        }
        assert!(!descriptors.is_empty(), "a block status has at least one extent");
        let parts = [&context::ID.to_be_bytes()[..], descriptors.as_bytes()];
        self.push_chunk(request.cookie, chunk::BLOCK_STATUS, &parts);
        self.outbox.mark_last(slot);
    }

    /// Queues an error reply.
    pub(super) fn push_fault(&mut self, fault: Fault) {
        let Fault { cookie, error, says, offset } = fault;
        // Section "Structured reply chunk message": to be preferred for errors, and a must for
        // reads.
        if !self.haggling.structured {
            return self.push_simple(cookie, error as u32);
        }
        let code = (error as u32).to_be_bytes();
        let length = (says.len() as u16).to_be_bytes();
        let parts = [&code[..], &length, says.as_bytes()];
        match offset.map(u64::to_be_bytes) {
            None => self.push_chunk(cookie, chunk::ERROR, &parts),
            Some(offset) => {
                let parts = [parts[0], parts[1], parts[2], &offset];
                self.push_chunk(cookie, chunk::ERROR_OFFSET, &parts);
            }
        }
    }

    fn push_simple(&mut self, cookie: u64, error: u32) {
        let magic = SIMPLE_REPLY_MAGIC.into();
        let reply = SimpleReply { magic, error: error.into(), cookie: cookie.into() };
        self.outbox.push_bytes(reply.as_bytes());
    }

    /// Queues a reply of one chunk, with its payload in parts.
    fn push_chunk(&mut self, cookie: u64, kind: u16, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum();
        self.outbox.push_bytes(only_chunk(cookie, kind, length).as_bytes());
        for part in parts {
            self.outbox.push_bytes(part);
        }
    }
}

/// The header of the only chunk of a reply.
fn only_chunk(cookie: u64, kind: u16, length: usize) -> Chunk {
    Chunk {
        magic: STRUCTURED_REPLY_MAGIC.into(),
        flags: chunk::DONE.into(),
        kind: kind.into(),
        cookie: cookie.into(),
        length: (length as u32).into(),
    }
}
