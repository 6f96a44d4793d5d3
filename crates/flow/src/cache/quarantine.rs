//! The quarantine of a volume: ranges whose newest data is lost. Reads of them fail until hosts have overwritten them.
//!
//! | | |
//! |---|---|
//! | Enters | what a record of the write-back log had and cannot be read any more, by an operator's order |
//! | Leaves | the bytes that a host has written, zeroed or unmapped since, when that is done and before it is answered |
//! | Kept   | by the world, durably: before write-back goes past the record, and before an overwriting request is answered |
//! | Cost   | O(ranges) per request of a volume that has any, nothing otherwise |
//!
//! A crash between an overwriting request and the change of what is kept leaves the range in quarantine: the request was
//! not answered, and hosts repeat it.

use crate::units::Extent;
use alloc::vec::Vec;

/// A range whose newest data is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Which bytes of the volume.
    pub extent: Extent,
    /// The record of the log that had the data: older records of the range do not count any more, either.
    pub seq: u64,
    /// When an operator gave the order, in nanoseconds since 1970; 0 if that is not known.
    pub since: u64,
}

/// The lost ranges of a volume, and the waiters until they are kept durably, each named by a `W`.
#[derive(Clone, Debug)]
pub(super) struct Quarantine<W> {
    /// Disjoint, in the order in which they came.
    ranges: Vec<LostRange>,
    /// The waiters for the ranges that the world is keeping now, if it is.
    saving: Option<Vec<W>>,
    /// The waiters for the ranges as they are now.
    next: Vec<W>,
}

impl<W> Default for Quarantine<W> {
    fn default() -> Self {
        Self { ranges: Vec::new(), saving: None, next: Vec::new() }
    }
}

impl<W> Quarantine<W> {
    pub(super) fn ranges(&self) -> &[LostRange] {
        &self.ranges
    }

    /// Whether a byte of the extent is lost.
    pub(super) fn overlaps(&self, extent: Extent) -> bool {
        self.ranges.iter().any(|range| range.extent.overlaps(extent))
    }

    /// More is lost.
    pub(super) fn add(&mut self, range: LostRange) {
        assert!(range.extent.length > 0, "a lost range has a length: {range:?}");
        self.overwrite(range.extent);
        self.ranges.push(range);
    }

    /// These bytes are not lost any more. Whether any was.
    pub(super) fn overwrite(&mut self, extent: Extent) -> bool {
        if !self.overlaps(extent) {
            return false;
        }
        let end = |extent: Extent| extent.end().expect("a volume ends before the address space");
        let mut left = Vec::with_capacity(self.ranges.len() + 1);
        for range in &self.ranges {
            let (start, stop) = (range.extent.offset, end(range.extent));
            let parts = [(start, stop.min(extent.offset)), (start.max(end(extent)), stop)];
            if !range.extent.overlaps(extent) {
                left.push(*range);
                continue;
            }
            let parts = parts.into_iter().filter(|(from, to)| from < to);
            left.extend(
                parts
                    .map(|(from, to)| LostRange { extent: Extent::new(from, to - from), ..*range }),
            );
        }
        self.ranges = left;
        true
    }

    /// `waiter` waits until the ranges, as they are now, are kept. True if they are to be handed to the world now.
    pub(super) fn await_kept(&mut self, waiter: W) -> bool {
        self.next.push(waiter);
        self.hand_over()
    }

    /// The world has kept what it was handed, or not. Gives the waiters for that, and whether the world is to be handed
    /// the ranges again.
    pub(super) fn kept(&mut self) -> (Vec<W>, bool) {
        let waited = self.saving.take().expect("the world answers once");
        let again = !self.next.is_empty() && self.hand_over();
        (waited, again)
    }

    fn hand_over(&mut self) -> bool {
        let free = self.saving.is_none();
        if free {
            self.saving = Some(core::mem::take(&mut self.next));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const fn lost(offset: u64, length: u64) -> LostRange {
        LostRange { extent: Extent::new(offset, length), seq: 7, since: 1 }
    }

    /// Against a model that keeps every byte: what is overwritten is not lost, and nothing else changes.
    #[test]
    fn agrees_with_keeping_every_byte() {
        let mut rng = Rng::stream(1, "quarantine");
        let (mut quarantine, mut model) = (Quarantine::<()>::default(), [false; 64]);
        let mut split = 0;
        for _ in 0..20_000 {
            let start = rng.below(60);
            let length = 1 + rng.below(64 - start).min(11);
            let bytes = start as usize..(start + length) as usize;
            let extent = Extent::new(start, length);
            let any = model[bytes.clone()].iter().any(|&lost| lost);
            assert_eq!(quarantine.overlaps(extent), any);
            let adds = rng.below(4) == 0;
            if adds {
                quarantine.add(lost(start, length));
            } else {
                assert_eq!(quarantine.overwrite(extent), any);
            }
            model[bytes].fill(adds);
            let mut seen = [0; 64];
            for LostRange { extent, seq, since } in quarantine.ranges() {
                assert_eq!((*seq, *since), (7, 1));
                for at in extent.offset..extent.end().unwrap() {
                    seen[at as usize] += 1;
                }
            }
            assert_eq!(seen, model.map(i32::from));
            split = split.max(quarantine.ranges().len());
        }
        assert!(split > 5, "{split}");
    }

    /// The world is handed the ranges one at a time, and each waiter hears of a state that came after it began to wait.
    #[test]
    fn each_waits_for_a_later_state() {
        let mut quarantine = Quarantine::default();
        quarantine.add(lost(0, 8));
        assert!(quarantine.await_kept(1));
        assert!(!quarantine.await_kept(2));
        assert!(!quarantine.await_kept(3));
        assert_eq!(quarantine.kept(), (alloc::vec![1], true));
        assert!(!quarantine.await_kept(4));
        assert_eq!(quarantine.kept(), (alloc::vec![2, 3], true));
        assert_eq!(quarantine.kept(), (alloc::vec![4], false));
        assert!(quarantine.await_kept(5));
    }
}
