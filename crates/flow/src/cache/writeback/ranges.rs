//! Which record has the newest data of each byte: disjoint ranges in a sorted map.
//!
//! | | |
//! |---|---|
//! | Model | a newer record takes its range from older ones, which are cut or split |
//! | Cost  | O(log n + pieces taken) per record; about 40 bytes for a range |

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Ranges of a volume, each with the record that wrote it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, Range>);

/// A range, without its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    end: u64,
    seq: u64,
}

/// A range with the record that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) seq: u64,
}

impl Ranges {
    /// `seq` has written everything from `start` to `end`; `taken` learns what older records lose.
    pub(super) fn insert(&mut self, start: u64, end: u64, seq: u64, mut taken: impl FnMut(Held)) {
        assert!(start < end, "a record with data has a length: {start}..{end}");
        self.cut(start, end, |held| {
            assert!(held.seq <= seq, "only a newer record takes a range: {seq} from {held:?}");
            taken(held);
            true
        });
        self.0.insert(start, Range { end, seq });
    }

    /// Forgets what `seq` has between `start` and `end`; what newer records have stays.
    pub(super) fn remove(&mut self, start: u64, end: u64, seq: u64) {
        self.cut(start, end, |held| held.seq == seq);
    }

    /// `seq` has everything from `start` to `end`, whatever the numbers are of those that had it.
    /// `taken` learns what these lose.
    pub(super) fn cover(&mut self, start: u64, end: u64, seq: u64, mut taken: impl FnMut(Held)) {
        self.cut(start, end, |held| {
            taken(held);
            true
        });
        self.0.insert(start, Range { end, seq });
    }

    /// What the record of `held` has in its range is in `copy` now; what others have stays.
    pub(super) fn replace(&mut self, held: &Held, copy: u64) {
        let mut parts = Vec::new();
        self.cut(held.start, held.end, |part| {
            let is_its = part.seq == held.seq;
            if is_its {
                parts.push(part);
            }
            is_its
        });
        for part in parts {
            self.0.insert(part.start, Range { end: part.end, seq: copy });
        }
    }

    /// Takes out the parts between `start` and `end` of those ranges that `take` says yes to.
    pub(super) fn cut(&mut self, start: u64, end: u64, mut take: impl FnMut(Held) -> bool) {
        let mut from = start;
        while let Some(held) = self.from(from).filter(|held| held.start < end) {
            let part = Held { start: held.start.max(start), end: held.end.min(end), ..held };
            from = held.end;
            if !take(part) {
                continue;
            }
            self.0.remove(&held.start);
            if held.start < part.start {
                self.0.insert(held.start, Range { end: part.start, seq: held.seq });
            }
            if part.end < held.end {
                self.0.insert(part.end, Range { end: held.end, seq: held.seq });
            }
        }
    }

    /// The first range that ends after `at`.
    pub(super) fn from(&self, at: u64) -> Option<Held> {
        let held = |(&start, range): (&u64, &Range)| Held { start, end: range.end, seq: range.seq };
        let before = self.0.range(..=at).next_back().map(held).filter(|held| held.end > at);
        before.or_else(|| self.0.range(at..).next().map(held))
    }

    /// The parts of ranges between `start` and `end`, ascending.
    pub(super) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = Held> {
        let first = self.from(start).map_or(end, |held| held.start);
        self.0.range(first..end.max(first)).map(move |(&from, range)| Held {
            start: from.max(start),
            end: range.end.min(end),
            seq: range.seq,
        })
    }

    /// All ranges, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = Held> {
        self.within(0, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A record without a length would be found nowhere: it is noticed.
    #[test]
    #[should_panic(expected = "has a length")]
    fn a_range_is_not_empty() {
        Ranges::default().insert(4, 4, 1, |_| ());
    }

    /// An older record that took bytes from a newer one would bring old data back: it is noticed.
    #[test]
    #[should_panic(expected = "only a newer record takes a range")]
    fn an_older_record_takes_nothing() {
        let mut ranges = Ranges::default();
        ranges.insert(0, 8, 2, |_| ());
        ranges.insert(4, 12, 1, |_| ());
    }

    /// A copy takes the place of its record alone, in all parts that this still has there.
    #[test]
    fn a_copy_replaces_its_record() {
        let mut ranges = Ranges::default();
        ranges.insert(0, 10, 1, |_| ());
        ranges.insert(4, 6, 2, |_| ());
        ranges.replace(&Held { start: 2, end: 8, seq: 1 }, 3);
        let held: Vec<_> = ranges.iter().map(|held| (held.start, held.end, held.seq)).collect();
        assert_eq!(held, [(0, 2, 1), (2, 4, 3), (4, 6, 2), (6, 8, 3), (8, 10, 1)]);
        ranges.cover(1, 9, 2, |_| ());
        let held: Vec<_> = ranges.iter().map(|held| (held.start, held.end, held.seq)).collect();
        assert_eq!(held, [(0, 1, 1), (1, 9, 2), (9, 10, 1)]);
    }

    /// Against a model that keeps the record of every byte: the same bytes belong to the same records,
    /// ranges are disjoint and ascending, what is taken is what the model loses, and only the record
    /// that is named is forgotten.
    #[test]
    fn agrees_with_keeping_every_byte() {
        let mut rng = Rng::stream(1, "ranges");
        let (mut ranges, mut model) = (Ranges::default(), [0_u64; 64]);
        let mut split = 0;
        for seq in 1..20_000 {
            let start = rng.below(60);
            let end = start + 1 + rng.below((63 - start).min(12));
            let (from, to) = (start as usize, end as usize);
            if rng.below(3) > 0 {
                let mut lost = [0; 64];
                ranges.insert(start, end, seq, |held| {
                    lost[held.start as usize..held.end as usize].fill(held.seq);
                });
                for at in 0..64 {
                    let inside = (from..to).contains(&at);
                    assert_eq!(lost[at], if inside { model[at] } else { 0 });
                }
                model[from..to].fill(seq);
            } else {
                let victim = model[from + rng.below(end - start) as usize];
                ranges.remove(start, end, victim);
                for held in &mut model[from..to] {
                    *held = if *held == victim { 0 } else { *held };
                }
            }
            let mut seen = [0; 64];
            let mut last = 0;
            for held in ranges.iter() {
                assert!(held.start >= last && held.end > held.start);
                last = held.end;
                seen[held.start as usize..held.end as usize].fill(held.seq);
            }
            assert_eq!(seen, model);
            split = split.max(ranges.iter().count());
            let part: Vec<Held> = ranges.within(start, end).collect();
            assert!(part.iter().all(|held| held.start >= start && held.end <= end));
            let covered: u64 = part.iter().map(|held| held.end - held.start).sum();
            assert_eq!(covered as usize, model[from..to].iter().filter(|&&seq| seq > 0).count());
        }
        assert!(split > 10, "the test must split ranges, had {split} at most");
    }
}
