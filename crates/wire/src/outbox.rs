//! The bytes to be written on a connection: headers inline, payload by handle, in order.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that a piece holds itself: enough for a header of either protocol with what little follows
/// it. More goes to the heap.
pub(crate) const INLINE_LENGTH: usize = 56;

/// The location of a piece's bytes.
#[derive(Debug)]
enum Body<P> {
    Inline { bytes: [u8; INLINE_LENGTH], length: u8 },
    Owned(Box<[u8]>),
    Static(&'static [u8]),
    Payload { payload: P, range: Range<usize> },
}

/// Contiguous bytes, and whether a response ends with them.
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
            Body::Static(bytes) => bytes,
            Body::Payload { payload, range } => &payload.as_ref()[range.clone()],
        }
    }

    fn len(&self) -> usize {
        match &self.body {
            Body::Inline { length, .. } => usize::from(*length),
            Body::Owned(bytes) => bytes.len(),
            Body::Static(bytes) => bytes.len(),
            Body::Payload { range, .. } => range.len(),
        }
    }

    /// Whether the bytes are memory of the outbox.
    const fn is_owned(&self) -> bool {
        matches!(self.body, Body::Inline { .. } | Body::Owned(_))
    }
}

/// Pieces to be written to the socket, in order.
///
/// `P` is the shell's handle of payload. A response may carry a mark, the number by which its
/// connection and the shell know the task: the initiator task tag of iSCSI, the slot of NBD.
///
/// The outbox grows with the answers to the peer and shrinks only when the shell writes. The only bound is that a
/// shell stops reading from a peer whose outbox is too long.
#[derive(Debug)]
pub struct Outbox<P> {
    pieces: VecDeque<Piece<P>>,
    /// The marks of responses that end in `pieces`, in order.
    marks: VecDeque<u32>,
    /// Bytes of the first piece that are already written.
    written: usize,
    /// Bytes not yet written, over all pieces.
    length: usize,
    /// Bytes of the pieces that are neither payload nor static, written or not.
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
    pub(crate) fn holds(&self, mark: u32) -> bool {
        self.marks.contains(&mark)
    }

    /// Responses that have not been written completely.
    pub(crate) fn responses(&self) -> usize {
        self.marks.len()
    }

    /// Waiting bytes without payload: the memory that a peer that does not read can occupy. Each response counts with
    /// its header.
    pub const fn owned(&self) -> usize {
        self.owned
    }

    /// Whether no bytes wait.
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

    /// Records that the first `n` waiting bytes are written. `done` gets the mark of every response that is now
    /// completely written, including payload; its buffers are then free.
    ///
    /// Panics if fewer than `n` bytes wait.
    pub fn advance(&mut self, n: usize, mut done: impl FnMut(u32)) {
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
            if front.is_owned() {
                self.owned -= length;
            }
            self.pieces.pop_front();
            if ends_response {
                done(self.marks.pop_front().expect("a mark for each response"));
            }
        }
    }

    /// Appends bytes that are copied.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.len() > INLINE_LENGTH {
            return self.push_owned(bytes.into());
        }
        let mut inline = [0; INLINE_LENGTH];
        inline[..bytes.len()].copy_from_slice(bytes);
        self.push(Body::Inline { bytes: inline, length: bytes.len() as u8 });
    }

    /// Appends bytes that are already on the heap.
    pub(crate) fn push_owned(&mut self, bytes: Box<[u8]>) {
        self.push(Body::Owned(bytes));
    }

    /// Appends the bytes in `range` of `payload`.
    pub(crate) fn push_payload(&mut self, payload: P, range: Range<usize>) {
        self.push(Body::Payload { payload, range });
    }

    /// Appends zero bytes, which take no memory.
    pub(crate) fn push_zeroes(&mut self, mut length: usize) {
        while length > 0 {
            let part = length.min(ZEROES.len());
            self.push(Body::Static(&ZEROES[..part]));
            length -= part;
        }
    }

    /// Makes the last piece the end of the response with this mark. To be called once, and before
    /// that piece is written.
    pub(crate) fn mark_last(&mut self, mark: u32) {
        let last = self.pieces.back_mut().expect("a response has at least one piece");
        debug_assert!(!last.ends_response, "a piece ends one response");
        last.ends_response = true;
        self.marks.push_back(mark);
    }

    /// Empty pieces are left out, so that [`slices`](Self::slices) has none.
    fn push(&mut self, body: Body<P>) {
        let piece = Piece { body, ends_response: false };
        if piece.len() == 0 {
            return;
        }
        self.length += piece.len();
        if piece.is_owned() {
            self.owned += piece.len();
        }
        self.pieces.push_back(piece);
    }
}

/// What [`push_zeroes`](Outbox::push_zeroes) refers to.
pub(crate) static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(outbox: &mut Outbox<Vec<u8>>, step: usize) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut done) = (Vec::new(), Vec::new());
        while !outbox.is_empty() {
            let flat: Vec<u8> = outbox.slices().take(2).flatten().copied().collect();
            let n = flat.len().min(step);
            bytes.extend_from_slice(&flat[..n]);
            outbox.advance(n, |mark| done.push(mark));
        }
        (bytes, done)
    }

    /// However the socket cuts the writes, the bytes are the same and each mark comes once.
    #[test]
    fn partial_writes_lose_nothing() {
        let build = || {
            let mut outbox = Outbox::new();
            outbox.push_bytes(&[1; 16]);
            outbox.push_payload(vec![5, 6, 7, 8, 9], 1..4);
            outbox.mark_last(7);
            outbox.push_bytes(&[2; INLINE_LENGTH]);
            outbox.push_bytes(&[3; INLINE_LENGTH + 1]);
            outbox.push_owned(Box::new([4; 2]));
            outbox.mark_last(8);
            assert_eq!((outbox.len(), outbox.owned()), (134, 131));
            assert!(outbox.holds(7) && outbox.holds(8) && !outbox.holds(9));
            outbox
        };
        let expected =
            [&[1; 16][..], &[6, 7, 8], &[2; INLINE_LENGTH], &[3; INLINE_LENGTH + 1], &[4; 2]];
        for step in [1, 3, 19, 50, usize::MAX] {
            assert_eq!(drained(&mut build(), step), (expected.concat(), vec![7, 8]));
        }
    }

    /// A mark is not reported while a byte of its response waits, and what the outbox holds itself
    /// is counted down piece by piece.
    #[test]
    fn a_mark_waits_for_the_last_byte() {
        let mut outbox = Outbox::new();
        outbox.push_bytes(&[0; 16]);
        outbox.push_payload(vec![7; 4], 0..4);
        outbox.mark_last(5);
        outbox.advance(19, |_| panic!("one byte still waits"));
        assert_eq!((outbox.len(), outbox.owned()), (1, 0));
        let mut done = None;
        outbox.advance(1, |mark| done = Some(mark));
        assert_eq!((done, outbox.holds(5)), (Some(5), false));
    }

    /// Zero bytes take no memory, however many there are, and end a response like others.
    #[test]
    fn zeroes_take_no_memory() {
        let mut outbox = Outbox::new();
        outbox.push_zeroes(2 * ZEROES.len() + 5);
        outbox.mark_last(3);
        assert_eq!((outbox.owned(), outbox.responses(), outbox.slices().count()), (0, 1, 3));
        let (bytes, done) = drained(&mut outbox, 1000);
        assert_eq!((bytes, done), (vec![0; 2 * ZEROES.len() + 5], vec![3]));
        assert_eq!(outbox.responses(), 0);
    }

    /// Empty pieces leave no slice behind.
    #[test]
    fn empty_pieces_are_left_out() {
        let mut outbox = Outbox::new();
        outbox.push_bytes(&[]);
        outbox.push_payload(vec![1, 2], 1..1);
        assert_eq!((outbox.slices().count(), outbox.is_empty()), (0, true));
    }
}
