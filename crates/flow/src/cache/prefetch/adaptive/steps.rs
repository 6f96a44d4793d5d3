//! Reads in steps of equal length: a column of a table, every n-th block.
//!
//! The steps between the reads that are in no stream are remembered, the last 32. A read whose own step is
//! most of the last 8, 16 or 32 is followed by others: as many as were foreseen before are foreseen twice,
//! from two up to 64.

use super::stream::Grant;
use crate::units::Extent;
use alloc::vec::Vec;

/// Steps that are remembered.
const HISTORY: usize = 32;

/// Reads that are foreseen at first,
const FEWEST: u64 = 2;
/// and at last, as long as they are
const MOST: u64 = 64;
/// no more than a number of bytes.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The last steps, a ring.
    ring: [i64; HISTORY],
    /// Steps so far.
    count: usize,
    last: Option<Extent>,
    run: Option<Run>,
    /// The number of the read that began the run, which names it.
    serial: u64,
}

#[derive(Debug)]
struct Run {
    step: i64,
    /// Reads that are foreseen at once.
    depth: u64,
    /// Where the furthest of them begins.
    edge: u64,
}

/// The offset after a number of steps, if there is one.
fn after(offset: u64, step: i64, times: u64) -> Option<u64> {
    offset.checked_add_signed(step.checked_mul(i64::try_from(times).ok()?)?)
}

impl Steps {
    /// The run that wishes are made for.
    pub(super) const fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether a step is most of the last ones.
    fn prevails(&self, step: i64) -> bool {
        let recent = |window: usize| {
            let known = self.count.min(window);
            let nth = |back: usize| self.ring[(self.count - 1 - back) % HISTORY];
            let same = (0..known).filter(|&back| nth(back) == step).count();
            same > window / 2
        };
        recent(8) || recent(16) || recent(HISTORY)
    }

    /// Learns from a read that is in no stream, the `count`-th of all; what should be fetched for it.
    pub(super) fn read(
        &mut self,
        extent: Extent,
        capacity: u64,
        count: u64,
        grant: impl FnOnce() -> Grant,
    ) -> Vec<Extent> {
        let Some(last) = self.last.replace(extent) else { return Vec::new() };
        let step = extent.offset.wrapping_sub(last.offset).cast_signed();
        self.ring[self.count % HISTORY] = step;
        self.count += 1;
        // What overlaps is read again rather than in steps.
        if step.unsigned_abs() <= extent.length || !self.prevails(step) {
            return Vec::new();
        }
        let run = match &mut self.run {
            Some(run) if run.step == step => run,
            run => {
                self.serial = count;
                run.insert(Run { step, depth: FEWEST / 2, edge: extent.offset })
            }
        };
        let left = run.edge.wrapping_sub(extent.offset).cast_signed() / step;
        // A reader that is not on the way to the edge has gone somewhere else.
        let left = u64::try_from(left).ok().filter(|&left| left <= MOST).unwrap_or(0);
        if left > run.depth / 2 {
            return Vec::new();
        }
        let most = (MOST_BYTES / extent.length).clamp(1, MOST);
        run.depth = match grant() {
            Grant::Full => (run.depth * 2).min(most),
            Grant::Half => run.depth.min(most / 2).max(1),
            Grant::Nothing => return Vec::new(),
        };
        let mut wishes = Vec::new();
        for times in left + 1..=run.depth {
            let Some(offset) = after(extent.offset, step, times) else { break };
            if offset >= capacity || extent.length > capacity - offset {
                break;
            }
            wishes.push(Extent::new(offset, extent.length));
            run.edge = offset;
        }
        wishes
    }
}
