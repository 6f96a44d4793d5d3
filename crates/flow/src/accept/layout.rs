//! Where the bytes of a volume are: on one backend, on several one after the other, or striped.
//!
//! | | |
//! |---|---|
//! | One    | byte `a` is byte `a` of the backend |
//! | Concat | part `p` begins where part `p - 1` ends; the last one has no end |
//! | Stripe | chunk `c = a / chunk` is on part `c mod n`, there as chunk `c / n` |
//! | Cost   | O(1) for a piece; O(parts) where they are concatenated |
//!
//! A piece is on one part, and contiguous there. What moves bytes is cut wherever the part changes, since
//! the bytes of neighbours on a part are not neighbours in its buffer; what moves none, a discard or
//! zeroes, is one piece for each part that it touches.

use super::Volume;
use crate::request::{BackendId, Op, Request};
use crate::units::Extent;
use alloc::vec::Vec;

/// How the bytes of a volume are laid out over its parts, which are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All on one backend.
    One(BackendId),
    /// One part after the other: 1 to [`PARTS_MAX`].
    Concat(Vec<Part>),
    /// In turns.
    Stripe {
        /// Where each part is: 2 to [`PARTS_MAX`].
        backends: Vec<BackendId>,
        /// Bytes in one turn: a power of two from [`CHUNK_MIN`] to [`CHUNK_MAX`].
        chunk: u64,
    },
}

/// A part of a concatenated volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub backend: BackendId,
    /// Bytes of the volume that are on it, at least 1. The last part has all that follow, too.
    pub length: u64,
}

/// A request, or what of it goes to one part of its volume at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The part.
    pub part: u32,
    /// Where the part is.
    pub backend: BackendId,
    /// The bytes of the volume. Of a discard or zeroes on a stripe: the first of them, and how many
    /// there are on this part.
    pub extent: Extent,
    /// The first byte in the part.
    pub at: u64,
}

/// Most parts of a volume: a flush goes to each of them.
pub const PARTS_MAX: usize = 64;

/// The smallest chunk of a stripe, in bytes: no smaller than any block, so that none is on two parts.
pub const CHUNK_MIN: u64 = 4 << 10;

/// The largest chunk of a stripe, in bytes.
pub const CHUNK_MAX: u64 = 16 << 20;

/// Where a byte of a volume is.
struct Place {
    part: usize,
    /// The byte in the part.
    at: u64,
    /// Bytes from there on that follow each other both in the volume and in the part.
    room: u64,
}

impl Layout {
    /// Whether a part is on this backend.
    pub(crate) fn is_on(&self, backend: BackendId) -> bool {
        match self {
            Self::One(one) => *one == backend,
            Self::Concat(parts) => parts.iter().any(|part| part.backend == backend),
            Self::Stripe { backends, .. } => backends.contains(&backend),
        }
    }

    /// What is wrong with it for a volume of `capacity` bytes and `backends` backends.
    pub(crate) fn validate(&self, capacity: u64, backends: usize) -> Result<(), &'static str> {
        let parts = self.parts();
        if (0..parts).any(|part| self.backend(part).index() >= backends) {
            return Err("a volume is on a backend that is not there");
        }
        if parts == 0 || parts > PARTS_MAX {
            return Err("a volume has no part, or more than 64");
        }
        match self {
            Self::One(_) => Ok(()),
            Self::Concat(parts) => {
                let whole = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.length));
                if whole.is_none() || parts.iter().any(|part| part.length == 0) {
                    return Err("a part of a volume is empty, or past the end of all addresses");
                }
                if whole < Some(capacity) {
                    return Err("a volume is larger than its parts");
                }
                Ok(())
            }
            Self::Stripe { chunk, .. } => {
                if !chunk.is_power_of_two() || *chunk < CHUNK_MIN || *chunk > CHUNK_MAX {
                    return Err("a chunk is not a power of two from 4 KiB to 16 MiB");
                }
                if parts < 2 {
                    return Err("a stripe has only one part");
                }
                Ok(())
            }
        }
    }

    /// Number of parts.
    pub const fn parts(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Concat(parts) => parts.len(),
            Self::Stripe { backends, .. } => backends.len(),
        }
    }

    /// Where a part is.
    pub fn backend(&self, part: usize) -> BackendId {
        match self {
            Self::One(backend) => *backend,
            Self::Concat(parts) => parts[part].backend,
            Self::Stripe { backends, .. } => backends[part],
        }
    }

    fn place(&self, offset: u64) -> Place {
        match self {
            Self::One(_) => Place { part: 0, at: offset, room: u64::MAX },
            Self::Concat(parts) => {
                let (mut part, mut at) = (0, offset);
                while part + 1 < parts.len() && at >= parts[part].length {
                    at -= parts[part].length;
                    part += 1;
                }
                let last = part + 1 == parts.len();
                Place { part, at, room: if last { u64::MAX } else { parts[part].length - at } }
            }
            Self::Stripe { backends, chunk } => {
                let (turn, within) = (offset / chunk, offset % chunk);
                let count = backends.len() as u64;
                let part = (turn % count) as usize;
                Place { part, at: turn / count * chunk + within, room: chunk - within }
            }
        }
    }

    fn piece(&self, part: usize, extent: Extent, at: u64) -> Piece {
        Piece { part: part as u32, backend: self.backend(part), extent, at }
    }
}

impl Volume {
    /// Whether a request that is never cut would have to be: nothing can make it one I/O.
    pub(crate) fn cannot_cut(&self, request: &Request) -> bool {
        let Extent { offset, length } = request.extent;
        request.op == Op::Update && self.layout.place(offset).room < length
    }

    /// The pieces of a request that the volume [holds](Self::holds), in order of their first bytes, in
    /// place of what is in `pieces`; at least one. What [cannot be cut](Self::cannot_cut) must not come
    /// here.
    pub(crate) fn cut(&self, request: &Request, pieces: &mut Vec<Piece>) {
        pieces.clear();
        let (layout, extent) = (&self.layout, request.extent);
        match (layout, request.op) {
            (Layout::Concat(_) | Layout::Stripe { .. }, Op::Flush) => {
                pieces.extend((0..layout.parts()).map(|part| layout.piece(part, extent, 0)));
                return;
            }
            (Layout::Stripe { backends, chunk }, Op::Discard | Op::WriteZeroes) => {
                spread(layout, (backends.len() as u64, *chunk), extent, pieces);
                return;
            }
            _ => {}
        }
        let (mut next, mut left, most) = (extent.offset, extent.length, self.most(request));
        loop {
            let Place { part, at, room } = layout.place(next);
            let length = left.min(room).min(most);
            pieces.push(layout.piece(part, Extent::new(next, length), at));
            (next, left) = (next + length, left - length);
            if left == 0 {
                return;
            }
        }
    }

    /// How many pieces a request that the volume [holds](Self::holds) is cut into; at least one.
    pub fn pieces(&self, request: &Request) -> u64 {
        let Extent { offset, length } = request.extent;
        let most = self.most(request);
        let pieces = match (&self.layout, request.op) {
            (layout, Op::Flush) => layout.parts() as u64,
            (Layout::Stripe { backends, chunk }, Op::Discard | Op::WriteZeroes) => {
                touched(extent_chunks(request.extent, *chunk), backends.len() as u64)
            }
            (Layout::One(_), _) => length.div_ceil(most),
            (Layout::Stripe { chunk, .. }, _) => {
                let head = length.min(chunk - offset % chunk);
                let rest = length - head;
                let whole = (rest / chunk).saturating_mul(chunk.div_ceil(most));
                head.div_ceil(most) + whole + (rest % chunk).div_ceil(most)
            }
            (layout @ Layout::Concat(_), _) => {
                let (mut next, mut left, mut pieces) = (offset, length, 0);
                while left > 0 {
                    let run = left.min(layout.place(next).room);
                    (next, left, pieces) = (next + run, left - run, pieces + run.div_ceil(most));
                }
                pieces
            }
        };
        pieces.max(1)
    }

    /// The most bytes of one piece, by the operation alone.
    const fn most(&self, request: &Request) -> u64 {
        match request.op {
            Op::Read | Op::Write | Op::Verify => self.max_transfer,
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Update => u64::MAX,
        }
    }
}

/// The first chunk that an extent touches, and how many it touches.
const fn extent_chunks(extent: Extent, chunk: u64) -> (u64, u64) {
    let Extent { offset, length } = extent;
    let first = offset / chunk;
    (first, (offset % chunk + length % chunk).div_ceil(chunk) + length / chunk)
}

/// How many of `count` parts that many chunks are on.
fn touched((_, chunks): (u64, u64), count: u64) -> u64 {
    chunks.min(count)
}

/// One piece for each part of a stripe that an extent touches.
fn spread(layout: &Layout, (count, chunk): (u64, u64), extent: Extent, pieces: &mut Vec<Piece>) {
    let end = extent.offset + extent.length;
    let chunks = extent_chunks(extent, chunk);
    for index in 0..touched(chunks, count).max(1) {
        let first = extent.offset.max((chunks.0 + index) * chunk);
        let Place { part, at, .. } = layout.place(first);
        let length = before(part as u64, (count, chunk), end) - at;
        pieces.push(layout.piece(part, Extent::new(first, length), at));
    }
}

/// How many bytes of a part of a stripe come before this byte of the volume.
fn before(part: u64, (count, chunk): (u64, u64), offset: u64) -> u64 {
    let row = count * chunk;
    offset / row * chunk + (offset % row).saturating_sub(part * chunk).min(chunk)
}

#[cfg(test)]
mod tests;
