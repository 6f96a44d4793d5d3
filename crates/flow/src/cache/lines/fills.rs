//! Fetches that are on their way, and what of them has become old meanwhile.

use super::{Piece, SECTOR, mask};
use crate::request::VolumeId;
use crate::units::Extent;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// A fetch from upstream that fills lines. Ends once: a second end is a bug and panics.
    pub struct FillId;
}

/// One fetch.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) volume: VolumeId,
    pub(super) extent: Extent,
    pub(super) ahead: bool,
    number: u64,
    /// A bit for each sector the extent touches, counted from its first; none before the first exclusion.
    excluded: Vec<u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Fills {
    running: SlotMap<FillId, Fill>,
    /// By volume, first byte and number, for the search by extent.
    places: BTreeMap<(VolumeId, u64, u64), FillId>,
    /// The number of the next.
    begun: u64,
    /// The longest there has been: how far before an extent a fill may begin that reaches into it.
    longest: u64,
}

const fn end(extent: Extent) -> u64 {
    extent.offset.saturating_add(extent.length)
}

impl Fill {
    /// The sectors of the volume that it touches.
    const fn sectors(&self) -> (u64, u64) {
        (self.extent.offset / SECTOR, end(self.extent).div_ceil(SECTOR))
    }

    /// Takes bytes out, and with them the sectors they lie in.
    fn exclude(&mut self, extent: Extent) {
        if !self.extent.overlaps(extent) {
            return;
        }
        let (first, last) = self.sectors();
        if self.excluded.is_empty() {
            self.excluded.resize((last - first).div_ceil(64) as usize, 0);
        }
        let from = (extent.offset / SECTOR).max(first) - first;
        let to = end(extent).div_ceil(SECTOR).min(last) - first;
        for word in from / 64..to.div_ceil(64) {
            let bits = from.max(word * 64) - word * 64..to.min(word * 64 + 64) - word * 64;
            self.excluded[word as usize] |= mask(bits.start as u32..bits.end as u32);
        }
    }

    /// Which sectors of a piece of the fill are taken out.
    pub(super) fn excluded(&self, piece: Piece) -> u64 {
        if self.excluded.is_empty() {
            return 0;
        }
        let start = piece.start / SECTOR;
        let mut out = 0;
        let mut rest = piece.sectors;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            if self.is_excluded(start + u64::from(bit)) {
                out |= 1 << bit;
            }
        }
        out
    }

    fn is_excluded(&self, sector: u64) -> bool {
        let bit = sector - self.sectors().0;
        self.excluded.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The sectors that it has in common with an extent and that will be installed.
    fn brings(&self, extent: Extent) -> impl Iterator<Item = u64> {
        // A sector of which only a part is fetched is not installed.
        let first = self.extent.offset.div_ceil(SECTOR).max(extent.offset / SECTOR);
        let last = (end(self.extent) / SECTOR).min(end(extent).div_ceil(SECTOR));
        (first..last).filter(|&sector| !self.is_excluded(sector))
    }
}

impl Fills {
    pub(super) fn begin(&mut self, volume: VolumeId, extent: Extent, ahead: bool) -> FillId {
        let number = self.begun;
        self.begun += 1;
        let fill = Fill { volume, extent, ahead, number, excluded: Vec::new() };
        let id = self.running.insert(fill);
        self.places.insert((volume, extent.offset, number), id);
        self.longest = self.longest.max(extent.length);
        assert!(self.places.len() == self.running.len(), "each fill has one place");
        id
    }

    pub(super) fn end(&mut self, id: FillId) -> Fill {
        let fill = self.running.remove(id).expect("a fill ends once");
        self.places.remove(&(fill.volume, fill.extent.offset, fill.number));
        assert!(self.places.len() == self.running.len(), "a fill that has ended has no place");
        fill
    }

    /// The fills that have a byte in common with an extent, by their beginning.
    fn touching(&self, volume: VolumeId, extent: Extent) -> impl Iterator<Item = FillId> {
        let first = (volume, extent.offset.saturating_sub(self.longest), 0);
        let range = self.places.range(first..(volume, end(extent), 0));
        range.map(|(_, &id)| id).filter(move |&id| self.running[id].extent.overlaps(extent))
    }

    pub(super) fn exclude(&mut self, id: FillId, extent: Extent) {
        self.running.get_mut(id).expect("the fill is running").exclude(extent);
    }

    pub(super) fn exclude_all(&mut self, volume: VolumeId, extent: Extent) {
        if self.running.is_empty() {
            return;
        }
        let touched: Vec<FillId> = self.touching(volume, extent).collect();
        for id in touched {
            self.running[id].exclude(extent);
        }
    }

    /// The first fill that will install a sector of the extent.
    pub(super) fn find(&self, volume: VolumeId, extent: Extent) -> Option<FillId> {
        self.touching(volume, extent).find(|&id| self.running[id].brings(extent).next().is_some())
    }

    /// Whether one fill will install every sector of the extent.
    pub(super) fn bring(&self, volume: VolumeId, extent: Extent) -> bool {
        let sectors = (end(extent).div_ceil(SECTOR) - extent.offset / SECTOR) as usize;
        self.touching(volume, extent).any(|id| self.running[id].brings(extent).count() == sectors)
    }
}
