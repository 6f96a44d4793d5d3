//! Stage 1, accept: a session's command becomes requests.
//!
//! Checks bounds against the volume, holds what goes past the volume's cap (`cap.rs`), keeps overlapping
//! requests in order (`hazard.rs`) and cuts what is larger than the volume's transfer limit into pieces. The pipeline counts what is outstanding
//! and refuses what goes past its limits before anything here sees it.

pub(crate) mod cap;
pub(crate) mod hazard;

pub use cap::{BANDWIDTH_MAX, BURST_MAX, Cap, RULE_CAP};

use crate::policy::Rule;
use crate::request::{BackendId, Op, Request};
use crate::units::Extent;
use hazard::Access;

/// Held because an earlier request touches the same bytes.
pub const RULE_OVERLAP: Rule = Rule("accept/overlap");

/// What the pipeline knows of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Size in bytes; requests past it end with [`OutOfRange`](crate::error::IoError::OutOfRange).
    pub capacity: u64,
    /// Where its bytes are.
    pub backend: BackendId,
    /// Reads, writes and verifies larger than this many bytes are cut at multiples of it from
    /// their start; updates never are. At least 1; `u64::MAX` never cuts. Smaller values let others in between.
    pub max_transfer: u64,
    /// The most that it does, whoever asks.
    pub cap: Cap,
}

impl Volume {
    /// Whether the request stays inside the volume.
    pub fn holds(&self, request: &Request) -> bool {
        request.extent.end().is_some_and(|end| end <= self.capacity)
    }

    /// How many pieces the request is cut into; 1 for what is not cut.
    pub const fn pieces(&self, request: &Request) -> u64 {
        if request.payload() <= self.max_transfer || matches!(request.op, Op::Update) {
            1
        } else {
            request.extent.length.div_ceil(self.max_transfer)
        }
    }

    /// The `index`-th piece of an extent.
    pub(crate) fn piece(&self, extent: Extent, index: u64) -> Extent {
        let skip = index * self.max_transfer;
        Extent::new(extent.offset + skip, self.max_transfer.min(extent.length - skip))
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

    /// The pieces of an extent are adjacent, within the limit, and cover it exactly.
    #[test]
    fn pieces_cover_the_extent() {
        let volume = Volume {
            capacity: 100,
            backend: BackendId::new(0),
            max_transfer: 7,
            cap: Cap::default(),
        };
        let request =
            Request { op: Op::Write, extent: Extent::new(3, 30), ..crate::testing::request(0) };
        let count = volume.pieces(&request);
        assert_eq!(count, 5);
        let mut next = 3;
        for i in 0..count {
            let piece = volume.piece(request.extent, i);
            assert!(piece.offset == next && piece.length <= 7 && piece.length > 0);
            next = piece.end().unwrap();
        }
        assert_eq!(next, 33);
    }

    /// A range whose end does not fit 64 bits is outside every volume.
    #[test]
    fn an_overflowing_range_is_outside() {
        let volume = Volume {
            capacity: u64::MAX,
            backend: BackendId::new(0),
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
