//! Stage 1, accept: a session's command becomes requests.
//!
//! `intake.rs` comes before the stage: it tells an event loop whose commands to read next.
//!
//! Checks bounds against the volume, holds what goes past the volume's cap (`cap.rs`), keeps overlapping
//! requests in order (`hazard.rs`) and cuts what is larger than the volume's transfer limit into pieces. The pipeline counts what is outstanding
//! and refuses what goes past its limits before anything here sees it.

pub(crate) mod cap;
pub(crate) mod hazard;
pub mod intake;
pub(crate) mod layout;

pub use cap::{BANDWIDTH_MAX, BURST_MAX, Cap, RULE_CAP};
pub use layout::{CHUNK_MAX, CHUNK_MIN, Layout, PARTS_MAX, Part, Piece};

use crate::error::IoError;
use crate::policy::Rule;
use crate::request::{Op, Request};
use crate::units::Extent;
use hazard::Access;

/// Held because an earlier request touches the same bytes.
pub const RULE_OVERLAP: Rule = Rule(&"accept/overlap");

/// The smallest limit of a transfer: what a disk can write at least.
pub const TRANSFER_MIN: u64 = 512;

/// What the pipeline knows of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Size in bytes; requests past it end with [`OutOfRange`](crate::error::IoError::OutOfRange).
    pub capacity: u64,
    /// Where its bytes are.
    pub layout: Layout,
    /// Reads, writes and verifies larger than this many bytes are cut at multiples of it from
    /// their start, or from where a part or chunk begins; updates never are. At least 1; `u64::MAX` never
    /// cuts. Smaller values let others in between.
    pub max_transfer: u64,
    /// The most that it does for all hosts together.
    pub cap: Cap,
}

impl Volume {
    /// What contradicts itself here, in a pipeline with this number of backends, as a message.
    pub(crate) fn validate(&self, backends: usize) -> Result<(), &'static str> {
        self.layout.validate(self.capacity, backends)?;
        if self.max_transfer < TRANSFER_MIN {
            return Err("a volume's largest transfer is below 512 bytes");
        }
        self.cap.validate()
    }

    /// Why the request cannot be done, if it cannot.
    pub(crate) fn refuses(&self, request: &Request) -> Option<IoError> {
        let nowhere = request.extent.length == 0 && self.layout.parts() == 0;
        if !self.holds(request) || nowhere {
            return Some(IoError::OutOfRange);
        }
        self.cannot_cut(request).then_some(IoError::Unsupported)
    }

    /// Whether the request stays inside the volume.
    pub fn holds(&self, request: &Request) -> bool {
        request.extent.end().is_some_and(|end| end <= self.capacity)
    }
}

/// The bytes that the request must not share with others, if any.
pub(crate) fn access(request: &Request) -> Option<Access> {
    if request.ordered {
        return Some(Access::EXCLUSIVE);
    }
    if request.op == Op::Flush || request.extent.length == 0 {
        return None;
    }
    let Extent { offset: start, length } = request.extent;
    Some(Access { start, end: start + length, writes: request.op.writes() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::BackendId;

    /// A range whose end does not fit 64 bits is outside every volume.
    #[test]
    fn an_overflowing_range_is_outside() {
        let volume = Volume {
            capacity: u64::MAX,
            layout: Layout::One(BackendId::new(0)),
            max_transfer: u64::MAX,
            cap: Cap::default(),
        };
        let request = Request {
            op: Op::Read,
            extent: Extent::new(u64::MAX, 2),
            ..crate::testing::request(0)
        };
        assert!(!volume.holds(&request));
    }
}
