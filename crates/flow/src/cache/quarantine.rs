//! The quarantine of a volume: ranges whose newest data is lost. Reads of them fail until hosts have overwritten them.
//!
//! | | |
//! |---|---|
//! | Enters | what a record of the write-back log had and cannot be read any more, by an operator's order |
//! | Leaves | the bytes that a host has written, zeroed or unmapped since, when that is durable and before it is answered |
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
    /// The waiters for what the world is keeping now, if it is, with what they have overwritten.
    saving: Option<Vec<(Extent, W)>>,
    /// The waiters for what the world keeps next.
    next: Vec<(Extent, W)>,
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

    /// Whether the world is keeping the ranges now.
    pub(super) const fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Whether a byte of the extent is lost.
    pub(super) fn overlaps(&self, extent: Extent) -> bool {
        self.ranges.iter().any(|range| range.extent.overlaps(extent))
    }

    /// More is lost.
    pub(super) fn add(&mut self, range: LostRange) {
        assert!(range.extent.length > 0, "a lost range has a length: {range:?}");
        self.ranges = without(&self.ranges, range.extent);
        self.ranges.push(range);
    }

    /// `waiter` has overwritten this extent, which may be empty, and waits until the world has kept the ranges without it:
    /// only then it is not lost any more. Gives what the world is to keep now, if it keeps nothing yet.
    pub(super) fn await_kept(&mut self, overwritten: Extent, waiter: W) -> Option<Vec<LostRange>> {
        self.next.push((overwritten, waiter));
        self.hand_over()
    }

    /// The waiters until something is kept.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.saving.iter().flatten().chain(&self.next).map(|(_, waiter)| waiter)
    }

    /// The world has kept what it was handed, or with `failed` not: then nothing is overwritten. Gives the waiters for
    /// that, and what the world is to keep next.
    pub(super) fn kept(&mut self, failed: bool) -> (Vec<W>, Option<Vec<LostRange>>) {
        let waited = self.saving.take().expect("the world answers once");
        if !failed {
            self.ranges = self.after(&waited);
        }
        let next = if self.next.is_empty() { None } else { self.hand_over() };
        (waited.into_iter().map(|(_, waiter)| waiter).collect(), next)
    }

    fn hand_over(&mut self) -> Option<Vec<LostRange>> {
        if self.saving.is_some() {
            return None;
        }
        let waiters = core::mem::take(&mut self.next);
        let ranges = self.after(&waiters);
        self.saving = Some(waiters);
        Some(ranges)
    }

    /// The ranges without what these waiters have overwritten.
    fn after(&self, waiters: &[(Extent, W)]) -> Vec<LostRange> {
        waiters.iter().fold(self.ranges.clone(), |left, (extent, _)| without(&left, *extent))
    }
}

/// The parts of these ranges outside an extent.
fn without(ranges: &[LostRange], extent: Extent) -> Vec<LostRange> {
    let end = |extent: Extent| extent.end().expect("a volume ends before the address space");
    let mut left = Vec::with_capacity(ranges.len() + 1);
    for range in ranges {
        if !range.extent.overlaps(extent) {
            left.push(*range);
            continue;
        }
        let (start, stop) = (range.extent.offset, end(range.extent));
        for (from, to) in [(start, extent.offset), (end(extent), stop)] {
            if from < to {
                left.push(LostRange { extent: Extent::new(from, to - from), ..*range });
            }
        }
    }
    left
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
            match rng.below(4) {
                0 => {
                    quarantine.add(lost(start, length));
                    model[bytes].fill(true);
                }
                what => {
                    let before = quarantine.ranges().to_vec();
                    let kept = quarantine.await_kept(extent, ());
                    assert_eq!(quarantine.ranges(), before, "it is lost until that is kept");
                    let failed = what == 1;
                    assert_eq!(quarantine.kept(failed), (alloc::vec![()], None));
                    if !failed {
                        assert_eq!(kept.as_deref(), Some(quarantine.ranges()));
                        model[bytes].fill(false);
                    }
                }
            }
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
        let at = |offset| Extent::new(offset, 1);
        assert_eq!(quarantine.await_kept(at(0), 1), Some(alloc::vec![lost(1, 7)]));
        assert_eq!(quarantine.await_kept(at(1), 2), None);
        assert_eq!(quarantine.await_kept(at(7), 3), None);
        assert_eq!(quarantine.kept(false), (alloc::vec![1], Some(alloc::vec![lost(2, 5)])));
        assert_eq!(quarantine.await_kept(at(2), 4), None);
        assert_eq!(
            quarantine.kept(true),
            (alloc::vec![2, 3], Some(alloc::vec![lost(1, 1), lost(3, 5)]))
        );
        assert_eq!(quarantine.kept(false), (alloc::vec![4], None));
        assert_eq!(quarantine.ranges(), [lost(1, 1), lost(3, 5)]);
        assert_eq!(
            quarantine.await_kept(Extent::default(), 5).as_deref(),
            Some(quarantine.ranges())
        );
    }
}
