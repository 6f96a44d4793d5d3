//! Payload of the log that rots while gateways run, and the list of lost ranges that gateways keep.

use super::content::SECTOR;
use std::collections::BTreeSet;
use std::ops::Range;
use weir_flow::cache::quarantine::LostRange;
use weir_flow::cache::writeback::format::Span;
use weir_flow::rng::Rng;

/// What is rotten and what is given up. It outlives gateways.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost {
    /// Sectors of the log device.
    rotten: BTreeSet<u32>,
    /// There has been one.
    ever: bool,
    kept: Vec<LostRange>,
    /// The list that is to be kept, while that is on its way.
    coming: Option<Vec<LostRange>>,
}

impl Lost {
    /// A sector of the log device has rotted.
    pub(super) fn rots(&mut self, sector: u32) {
        self.rotten.insert(sector);
        self.ever = true;
    }

    /// What is written to the log device from a sector on.
    pub(super) fn rewritten(&mut self, sectors: Range<u32>) {
        self.rotten.retain(|sector| !sectors.contains(sector));
    }

    /// Whether something has rotted.
    pub(super) const fn any(&self) -> bool {
        self.ever
    }

    /// Whether payload cannot be read because of that.
    pub(super) fn spoils(&self, span: Span) -> bool {
        let (_, payload) = span.reads();
        let sector = |at: u64| (at / SECTOR as u64) as u32;
        let (first, end) = (sector(payload.offset), sector(payload.offset + payload.length - 1));
        self.rotten.range(first..=end).next().is_some()
    }

    /// Other ranges are to be kept.
    pub(super) fn begin(&mut self, ranges: Vec<LostRange>) {
        self.coming = Some(ranges);
    }

    /// They are.
    pub(super) fn end(&mut self) {
        if let Some(ranges) = self.coming.take() {
            self.kept = ranges;
        }
    }

    /// The ranges that a crash leaves.
    pub(super) fn left(&self, rng: &mut Rng) -> Vec<LostRange> {
        match &self.coming {
            Some(coming) if rng.below(2) == 0 => coming.clone(),
            _ => self.kept.clone(),
        }
    }

    /// Nothing of these sectors is lost, by a planted bug.
    pub(super) fn forget(&mut self, sectors: &Range<u32>) {
        self.kept.retain(|range| {
            let lost = sectors_of(range);
            lost.start >= sectors.end || sectors.start >= lost.end
        });
    }

    /// A crash has left these.
    pub(super) fn restart(&mut self, ranges: Vec<LostRange>) {
        (self.kept, self.coming) = (ranges, None);
    }

    /// The ranges that are kept now.
    pub(super) fn kept(&self) -> &[LostRange] {
        &self.kept
    }
}

/// The sectors of a lost range.
pub(super) fn sectors_of(range: &LostRange) -> Range<u32> {
    let sector = |at: u64| (at / SECTOR as u64) as u32;
    sector(range.extent.offset)..sector(range.extent.offset + range.extent.length)
}
