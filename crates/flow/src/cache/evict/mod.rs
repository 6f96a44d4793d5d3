//! Which line a full buffer gives up.
//!
//! A policy sees lines and the frames they lie in, never sectors or data. [`Lines`](super::lines::Lines)
//! drives it: `hit` for each use of a line that is here, `victim` and then `admit` for one that came.
//! The first read of a line that was fetched ahead is no `hit`: it is the use that the fetch foresaw.

mod arc;
mod clock;
mod fifo;
mod ghosts;
mod index;
mod links;
mod lru;
mod s3_fifo;
mod sieve;
mod sketch;
mod w_tinylfu;

pub(super) use index::Index;

use crate::policy::{Policy, Values};
use crate::request::VolumeId;
use alloc::boxed::Box;

/// A line of a volume: an aligned piece of the buffer's line size. Twelve bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    volume: VolumeId,
    // Two halves, since a `u64` would cost four bytes of padding in every line of a large buffer.
    high: u32,
    low: u32,
}

impl Line {
    /// The line that begins at byte `index * line size` of the volume.
    pub const fn new(volume: VolumeId, index: u64) -> Self {
        Self { volume, high: (index >> 32) as u32, low: index as u32 }
    }

    /// Its volume.
    pub const fn volume(self) -> VolumeId {
        self.volume
    }

    /// Its place on the volume, in lines.
    pub const fn index(self) -> u64 {
        (self.high as u64) << 32 | self.low as u64
    }
}

/// A piece of memory that holds one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(u32);

impl Frame {
    /// The frame with this index.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index, dense from zero.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Decides which line is given up. Deterministic, without a clock; after it was built it allocates
/// nothing. A line that is named must be resident, and one that is admitted must not be: everything
/// else is a bug of the caller and panics.
pub trait Evict {
    /// A resident line was used.
    fn hit(&mut self, line: Line, frame: Frame);

    /// Gives up a resident line, so that `incoming`, which is not resident, may have its frame. The
    /// policy forgets it, but may remember that it was here. `resident` tells the line of each frame.
    /// `None` if nothing is resident.
    fn victim(&mut self, incoming: Line, resident: &[Line]) -> Option<Frame>;

    /// `line` is resident in `frame` from now on.
    fn admit(&mut self, line: Line, frame: Frame);

    /// The line in `frame` is no longer resident and shall not be remembered: it was overwritten.
    fn remove(&mut self, frame: Frame);

    /// Sets the key of tables that find lines, before anything is resident. It changes no decision.
    fn set_key(&mut self, _: u64) {}

    /// Lines that it remembers without their being resident.
    fn remembered(&self) -> u32 {
        0
    }

    /// Bytes of memory it holds; the same as long as it lives.
    fn memory(&self) -> usize;
}

/// Builds a policy from checked parameter values for a buffer of this number of lines.
pub type Build = fn(Values<'_>, u32) -> Box<dyn Evict>;

/// Every policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    s3_fifo::POLICY,
    fifo::POLICY,
    lru::POLICY,
    clock::POLICY,
    sieve::POLICY,
    arc::POLICY,
    w_tinylfu::POLICY,
];
