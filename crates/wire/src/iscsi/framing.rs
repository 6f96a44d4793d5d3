//! Framing: one PDU with its length, padding and digests, as pieces of the outbox.

use std::ops::Range;

use zerocopy::FromBytes;

use crate::crc32c::{self as digest, DIGEST_LENGTH};
use crate::iscsi::pdu::{HEADER_LENGTH, Header, Itt};
use crate::outbox::{INLINE_LENGTH, Outbox};

/// The digests of a connection's PDUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// One whole PDU that was received.
pub(crate) struct Pdu<'a> {
    pub(crate) header: &'a Header,
    /// The additional header segments.
    pub(crate) segments: &'a [u8],
    /// The data segment without padding.
    pub(crate) data: &'a [u8],
    /// The total length in bytes.
    pub(crate) length: usize,
}

/// The PDU at the front of received bytes.
pub(crate) enum Front<'a> {
    /// A part of a PDU, and the PDU's length in bytes as far as it is known.
    Needs(usize),
    Whole(Pdu<'a>),
}

/// A PDU that cannot be taken.
#[derive(Clone, Copy)]
pub(crate) enum FrameFault<'a> {
    /// The header does not match its digest.
    HeaderDigest,
    /// The data segment is longer than the limit.
    SegmentTooLong(&'a Header),
    /// The data does not match its digest.
    DataDigest(&'a Header),
}

/// Finds the PDU at the front of `input`, whose data segment may have `limit` bytes.
#[inline]
pub(crate) fn front(
    input: &[u8],
    digests: Digests,
    limit: u32,
) -> Result<Front<'_>, FrameFault<'_>> {
    let Ok((header, _)) = Header::ref_from_prefix(input) else {
        return Ok(Front::Needs(HEADER_LENGTH));
    };
    let header_end = HEADER_LENGTH + header.ahs_length();
    let data_start = header_end + if digests.header { DIGEST_LENGTH } else { 0 };
    let Some(front) = input.get(..data_start) else {
        return Ok(Front::Needs(data_start));
    };
    // RFC 7143 section 7.8: with a wrong header digest the lengths cannot be believed, so the next
    // PDU cannot be found.
    let (covered, header_digest) = front.split_at(header_end);
    if digests.header && !digest::matches(covered, header_digest) {
        return Err(FrameFault::HeaderDigest);
    }

    let length = header.data_length();
    if length > limit as usize {
        return Err(FrameFault::SegmentTooLong(header));
    }
    let data_end = data_start + length.next_multiple_of(4);
    let has_digest = digests.data && length > 0;
    let needed = data_end + if has_digest { DIGEST_LENGTH } else { 0 };
    let Some(pdu) = input.get(..needed) else {
        return Ok(Front::Needs(needed));
    };
    if has_digest && !digest::matches(&pdu[data_start..data_end], &pdu[data_end..]) {
        return Err(FrameFault::DataDigest(header));
    }
    Ok(Front::Whole(Pdu {
        header,
        segments: &covered[HEADER_LENGTH..],
        data: &pdu[data_start..data_start + length],
        length: needed,
    }))
}

/// The data segment of one PDU.
pub(crate) enum Segment<'a, P> {
    Empty,
    Bytes(&'a [u8]),
    Payload(P, Range<usize>),
}

impl<P: AsRef<[u8]>> Outbox<P> {
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

        let mut front = [0; HEADER_LENGTH + DIGEST_LENGTH];
        front[..HEADER_LENGTH].copy_from_slice(&header);
        let mut front_length = HEADER_LENGTH;
        if digests.header {
            front[HEADER_LENGTH..].copy_from_slice(&digest::padded(&header, 0));
            front_length += DIGEST_LENGTH;
        }
        self.push_bytes(&front[..front_length]);

        // RFC 7143 section 11.2.3: an empty data segment has no digest.
        if length > 0 {
            self.push_segment(segment, padding, digests.data);
        }
        if let Some(itt) = mark {
            self.mark_last(itt.0);
        }
    }

    fn push_segment(&mut self, segment: Segment<'_, P>, padding: usize, with_digest: bool) {
        match segment {
            Segment::Empty => {}
            Segment::Bytes(bytes) => {
                let digest = with_digest.then(|| digest::padded(bytes, padding));
                let digest = digest.as_ref().map_or(&[][..], |digest| &digest[..]);
                let total = bytes.len() + padding + digest.len();
                if total <= INLINE_LENGTH {
                    let mut small = [0; INLINE_LENGTH];
                    small[..bytes.len()].copy_from_slice(bytes);
                    small[bytes.len() + padding..total].copy_from_slice(digest);
                    self.push_bytes(&small[..total]);
                } else {
                    self.push_owned([bytes, &[0; 4][..padding], digest].concat().into());
                }
            }
            Segment::Payload(payload, range) => {
                let mut tail = [0; 3 + DIGEST_LENGTH];
                let mut tail_length = padding;
                if with_digest {
                    let digest = digest::padded(&payload.as_ref()[range.clone()], padding);
                    tail[padding..padding + DIGEST_LENGTH].copy_from_slice(&digest);
                    tail_length += DIGEST_LENGTH;
                }
                self.push_payload(payload, range);
                self.push_bytes(&tail[..tail_length]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each PDU has its length, padding and digests, and its task ends with its last byte.
    #[test]
    fn pdus_are_framed() {
        let mut outbox = Outbox::new();
        let digests = Digests { header: true, data: true };
        outbox.push_pdu([1; 48], Segment::Payload(vec![7; 10], 2..9), digests, Some(Itt(1)));
        outbox.push_pdu([2; 48], Segment::Bytes(&[9; 100]), digests, None);
        outbox.push_pdu([3; 48], Segment::Empty, digests, Some(Itt(2)));
        let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
        assert_eq!(bytes.len(), 52 + 8 + 4 + 52 + 104 + 52);
        assert_eq!(bytes[5..8], [0, 0, 7]);
        assert_eq!(bytes[52..60], [7, 7, 7, 7, 7, 7, 7, 0]);
        assert!(digest::matches(&bytes[52..60], &bytes[60..64]));
        let mut done = Vec::new();
        outbox.advance(63, |itt| done.push(itt));
        assert_eq!(done, [], "the digest is part of the PDU");
        outbox.advance(bytes.len() - 63, |itt| done.push(itt));
        assert_eq!(done, [1, 2]);
    }

    /// Without digests a PDU is its header, its data and the padding.
    #[test]
    fn digests_are_optional() {
        let mut outbox: Outbox<Vec<u8>> = Outbox::new();
        outbox.push_pdu([0; 48], Segment::Bytes(&[9; 5]), Digests::default(), None);
        let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
        assert_eq!(bytes[48..], [9, 9, 9, 9, 9, 0, 0, 0]);
    }
}
