//! Messages, and the PDUs that carry them (RFC 4171, section 5.1).

use super::codes::{Function, Status};
use super::fault::Fault;

/// The header of a PDU.
pub(super) const HEADER_LENGTH: usize = 12;

const VERSION: u16 = 1;

/// Flags: the sender is a client; an authentication block follows; the last PDU of a message, the first one.
const CLIENT: u16 = 0x8000;
const AUTHENTICATED: u16 = 0x2000;
const LAST: u16 = 0x0800;
const FIRST: u16 = 0x0400;

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) function: Function,
    pub(super) transaction: u16,
    pub(super) payload: Vec<u8>,
}

impl Message {
    /// The status of an answer, and the attributes behind it.
    pub(super) fn status(&self) -> Result<(Status, &[u8]), Fault> {
        let (status, rest) =
            self.payload.split_first_chunk().ok_or(Fault::NoStatus(self.payload.len()))?;
        Ok((Status(u32::from_be_bytes(*status)), rest))
    }

    /// Appends its only PDU. The payload has at most 65,532 bytes.
    pub(super) fn write(&self, output: &mut Vec<u8>) {
        let length = u16::try_from(self.payload.len()).expect("requests are cut to fit one PDU");
        let flags = CLIENT | FIRST | LAST;
        for word in [VERSION, self.function.0, length, flags, self.transaction, 0] {
            output.extend(word.to_be_bytes());
        }
        output.extend(&self.payload);
    }
}

/// Takes whole messages from received bytes. Keeps at most `limit` bytes.
#[derive(Debug)]
pub(super) struct Assembler {
    limit: usize,
    /// A message of which PDUs are to come, and the sequence of the next.
    open: Option<(Message, u16)>,
}

impl Assembler {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, open: None }
    }

    /// Takes a PDU from the front of `bytes`: how many bytes, and the message that it completes. 0 bytes: the PDU is not
    /// whole.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Message>), Fault> {
        let Some((header, rest)) = bytes.split_at_checked(HEADER_LENGTH) else {
            return Ok((0, None));
        };
        let word = |index: usize| u16::from_be_bytes([header[2 * index], header[2 * index + 1]]);
        let (version, function, length) = (word(0), Function(word(1)), word(2));
        let (flags, transaction, got) = (word(3), word(4), word(5));
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        if !length.is_multiple_of(4) {
            return Err(Fault::Unaligned(length));
        }
        if flags & AUTHENTICATED != 0 {
            return Err(Fault::Authentication);
        }
        let expected = self.open.as_ref().map_or(0, |(_, next)| *next);
        if let Some((message, _)) = &self.open
            && (message.function, message.transaction) != (function, transaction)
        {
            return Err(Fault::Interleaved(function));
        }
        if got != expected || (flags & FIRST != 0) != (expected == 0) {
            return Err(Fault::Sequence { expected, got });
        }
        let length = usize::from(length);
        let before = self.open.as_ref().map_or(0, |(message, _)| message.payload.len());
        // The sequence has 16 bits; PDUs without a payload would not be bounded by the length.
        let next = expected.checked_add(1).ok_or(Fault::TooLong(self.limit))?;
        if before + length > self.limit {
            return Err(Fault::TooLong(self.limit));
        }
        let Some(part) = rest.get(..length) else { return Ok((0, None)) };
        let start = || (Message { function, transaction, payload: Vec::new() }, 0);
        let (mut message, _) = self.open.take().unwrap_or_else(start);
        message.payload.extend(part);
        if flags & LAST == 0 {
            self.open = Some((message, next));
            return Ok((HEADER_LENGTH + length, None));
        }
        Ok((HEADER_LENGTH + length, Some(message)))
    }
}
