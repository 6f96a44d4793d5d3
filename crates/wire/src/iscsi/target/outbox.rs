//! What a connection wants written: headers inline, payload by handle, in order.

use std::collections::VecDeque;
use std::ops::Range;

use crate::iscsi::digest::{self, DIGEST_LENGTH};
use crate::iscsi::pdu::{HEADER_LENGTH, Itt};

/// Bytes that a piece holds itself: a header with its digest, or sense data with padding and
/// digest.
const INLINE_LENGTH: usize = 56;

/// Which digests the PDUs of a connection carry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// The data segment of one PDU.
pub(crate) enum Segment<'a, P> {
    Empty,
    Bytes(&'a [u8]),
    Payload(P, Range<usize>),
}

/// Where the bytes of a piece are.
#[derive(Debug)]
enum Body<P> {
    Inline { bytes: [u8; INLINE_LENGTH], length: u8 },
    Owned(Box<[u8]>),
    Payload { payload: P, range: Range<usize> },
}

/// Bytes in one place, and whether a response ends with them.
#[derive(Debug)]
struct Piece<P> {
    body: Body<P>,
    ends_response: bool,
}

impl<P: AsRef<[u8]>> Piece<P> {
    fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Inline { bytes, length } => &bytes[..usize::from(*length)],
            Body::Owned(bytes) => bytes,
            Body::Payload { payload, range } => &payload.as_ref()[range.clone()],
        }
    }

    fn len(&self) -> usize {
        match &self.body {
            Body::Inline { length, .. } => usize::from(*length),
            Body::Owned(bytes) => bytes.len(),
            Body::Payload { range, .. } => range.len(),
        }
    }
}

/// Pieces to be written to the socket, in order.
///
/// The outbox grows by what the peer makes the connection say and shrinks only when the shell
/// writes. A shell stops reading from a peer whose outbox is longer than it likes; that is the only
/// bound.
#[derive(Debug)]
pub struct Outbox<P> {
    pieces: VecDeque<Piece<P>>,
    /// Whose responses end in `pieces`, in order.
    marks: VecDeque<Itt>,
    /// Bytes of the first piece that are already written.
    written: usize,
    /// Bytes not yet written, over all pieces.
    length: usize,
    /// Bytes of the pieces that are not payload, written or not.
    owned: usize,
}

impl<P: AsRef<[u8]>> Outbox<P> {
    pub(crate) const fn new() -> Self {
        Self { pieces: VecDeque::new(), marks: VecDeque::new(), written: 0, length: 0, owned: 0 }
    }

    /// Bytes that wait to be written.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether the response of this task has not been written completely.
    pub(crate) fn holds(&self, itt: Itt) -> bool {
        self.marks.contains(&itt)
    }

    /// Bytes that wait and that the outbox holds itself, payload apart: what a peer that does not
    /// read can make it hold. Each response is among them with its header.
    pub const fn owned(&self) -> usize {
        self.owned
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The waiting bytes, in order, each slice not empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().enumerate().map(|(index, piece)| {
            let skip = if index == 0 { self.written } else { 0 };
            &piece.bytes()[skip..]
        })
    }

    /// Notes that the first `n` waiting bytes are written. `done` is told the tag of every SCSI
    /// command whose response has now left completely, data included; its buffers are free then.
    ///
    /// Panics if fewer than `n` bytes wait.
    pub fn advance(&mut self, n: usize, mut done: impl FnMut(Itt)) {
        assert!(n <= self.length, "more bytes written than were waiting");
        self.length -= n;
        self.written += n;
        while let Some(front) = self.pieces.front() {
            let length = front.len();
            if self.written < length {
                break;
            }
            self.written -= length;
            let ends_response = front.ends_response;
            if !matches!(front.body, Body::Payload { .. }) {
                self.owned -= length;
            }
            self.pieces.pop_front();
            if ends_response {
                done(self.marks.pop_front().expect("a mark for each response"));
            }
        }
    }

    /// Appends one PDU: fills in its data length, pads it and adds the digests. `mark` is the task
    /// that is over when its last byte is written.
    pub(crate) fn push_pdu(
        &mut self,
        mut header: [u8; HEADER_LENGTH],
        segment: Segment<'_, P>,
        digests: Digests,
        mark: Option<Itt>,
    ) {
        let length = match &segment {
            Segment::Empty => 0,
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Payload(_, range) => range.len(),
        };
        header[5..8].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
        let padding = length.wrapping_neg() % 4;

        let mut front = [0; INLINE_LENGTH];
        front[..HEADER_LENGTH].copy_from_slice(&header);
        let mut front_length = HEADER_LENGTH;
        if digests.header {
            front[front_length..][..DIGEST_LENGTH].copy_from_slice(&digest::padded(&header, 0));
            front_length += DIGEST_LENGTH;
        }
        self.push_inline(front, front_length);

        // RFC 7143 section 11.2.3: an empty data segment has no digest.
        if length > 0 {
            self.push_segment(segment, padding, digests.data);
        }
        if let (Some(itt), Some(last)) = (mark, self.pieces.back_mut()) {
            last.ends_response = true;
            self.marks.push_back(itt);
        }
    }

    fn push_segment(&mut self, segment: Segment<'_, P>, padding: usize, with_digest: bool) {
        let mut tail = [0; INLINE_LENGTH];
        let mut tail_length = padding;
        match segment {
            Segment::Empty => {}
            Segment::Bytes(bytes) => {
                let digest = with_digest.then(|| digest::padded(bytes, padding));
                let digest = digest.as_ref().map_or(&[][..], |digest| &digest[..]);
                let total = bytes.len() + padding + digest.len();
                if total <= INLINE_LENGTH {
                    tail[..bytes.len()].copy_from_slice(bytes);
                    tail[bytes.len() + padding..total].copy_from_slice(digest);
                    self.push_inline(tail, total);
                } else {
                    let owned = [bytes, &[0; 4][..padding], digest].concat();
                    self.push(Body::Owned(owned.into_boxed_slice()));
                }
            }
            Segment::Payload(payload, range) => {
                if with_digest {
                    let digest = digest::padded(&payload.as_ref()[range.clone()], padding);
                    tail[padding..padding + DIGEST_LENGTH].copy_from_slice(&digest);
                    tail_length += DIGEST_LENGTH;
                }
                self.push(Body::Payload { payload, range });
                if tail_length > 0 {
                    self.push_inline(tail, tail_length);
                }
            }
        }
    }

    fn push_inline(&mut self, bytes: [u8; INLINE_LENGTH], length: usize) {
        self.push(Body::Inline { bytes, length: length as u8 });
    }

    fn push(&mut self, body: Body<P>) {
        let piece = Piece { body, ends_response: false };
        self.length += piece.len();
        if !matches!(piece.body, Body::Payload { .. }) {
            self.owned += piece.len();
        }
        self.pieces.push_back(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(outbox: &mut Outbox<Vec<u8>>, step: usize) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut done) = (Vec::new(), Vec::new());
        while !outbox.is_empty() {
            let flat: Vec<u8> = outbox.slices().take(2).flatten().copied().collect();
            let n = flat.len().min(step);
            bytes.extend_from_slice(&flat[..n]);
            outbox.advance(n, |itt| done.push(itt.0));
        }
        (bytes, done)
    }

    /// However the socket cuts the writes, the bytes are the same and each mark comes once, after
    /// the last byte of its PDU.
    #[test]
    fn partial_writes_lose_nothing() {
        let build = || {
            let mut outbox = Outbox::new();
            let digests = Digests { header: true, data: true };
            outbox.push_pdu([1; 48], Segment::Payload(vec![7; 10], 2..9), digests, Some(Itt(1)));
            outbox.push_pdu([2; 48], Segment::Bytes(&[9; 100]), digests, None);
            outbox.push_pdu([3; 48], Segment::Empty, digests, Some(Itt(2)));
            outbox
        };
        let whole = drained(&mut build(), usize::MAX);
        assert_eq!(whole.0.len(), 52 + 8 + 4 + 52 + 104 + 52);
        assert_eq!(whole.0[5..8], [0, 0, 7]);
        assert_eq!(whole.0[52..60], [7, 7, 7, 7, 7, 7, 7, 0]);
        assert_eq!(whole.1, [1, 2]);
        for step in [1, 3, 50, 53] {
            assert_eq!(drained(&mut build(), step), whole);
        }
    }

    /// A mark is not reported while a byte of its PDU waits.
    #[test]
    fn a_mark_waits_for_the_last_byte() {
        let mut outbox = Outbox::new();
        let payload = Segment::Payload(vec![7; 4], 0..4);
        outbox.push_pdu([0; 48], payload, Digests::default(), Some(Itt(5)));
        outbox.advance(51, |_| panic!("one byte still waits"));
        let mut done = None;
        outbox.advance(1, |itt| done = Some(itt));
        assert_eq!(done, Some(Itt(5)));
    }
}
