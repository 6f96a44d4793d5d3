//! Response times in logarithmic buckets: mergeable, integers only, memory for what occurs.

use crate::clock::Duration;
use alloc::vec::Vec;
use core::iter::successors;

/// Times, each known to within 1/128 (0.8 %).
///
/// Every power of two is cut into 64 buckets of equal width; up to 127 ns a bucket is one nanosecond. A
/// time is reported as the middle of its bucket. Times from [`LONGEST`] on, and requests that never ended
/// well, share one bucket that is reported as [`Duration::MAX`].
///
/// Buckets come in groups of eight that take memory once one of them has counted something, and keep it:
/// at most [`BYTES_MAX`] in all.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// A bit for each group that is there.
    used: [u64; WORDS],
    /// The groups that are there, in order.
    groups: Vec<[u64; GROUP]>,
    count: u64,
}

/// Times from here on are not told apart: 73 minutes, longer than any promise.
pub const LONGEST: Duration = Duration::from_nanos(1 << LONGEST_BITS);

/// The most memory that the buckets of a histogram take, in bytes.
pub const BYTES_MAX: usize = GROUPS * GROUP * size_of::<u64>();

impl Histogram {
    /// Counts a time.
    pub fn record(&mut self, time: Duration) {
        let bucket = bucket(time.as_nanos());
        let place = self.group(bucket / GROUP);
        self.groups[place][bucket % GROUP] += 1;
        self.count += 1;
    }

    /// How many times were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The time within which this share, in millionths, of the counted ones lies, by nearest rank; `None`
    /// without any.
    pub fn quantile(&self, ppm: u32) -> Option<Duration> {
        let rank = (u128::from(self.count) * u128::from(ppm)).div_ceil(1_000_000).max(1);
        let mut below = 0_u128;
        for (index, group) in self.present() {
            for (place, &count) in group.iter().enumerate() {
                below += u128::from(count);
                if below >= rank {
                    return Some(middle(index * GROUP + place));
                }
            }
        }
        None
    }

    /// Counts everything that the other has counted.
    pub fn merge(&mut self, other: &Self) {
        for (index, theirs) in other.present() {
            if theirs.iter().any(|&count| count > 0) {
                let place = self.group(index);
                for (mine, count) in self.groups[place].iter_mut().zip(theirs) {
                    *mine += count;
                }
            }
        }
        self.count += other.count;
    }

    /// Forgets all times, and keeps the memory.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.groups.fill([0; GROUP]);
            self.count = 0;
        }
    }

    /// Bytes of memory that the buckets take now.
    pub const fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<[u64; GROUP]>()
    }

    /// Where a group is; makes it if it is not there.
    fn group(&mut self, index: usize) -> usize {
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        let before = self.used[..word].iter().map(|word| word.count_ones()).sum::<u32>();
        let place = (before + (self.used[word] & (bit - 1)).count_ones()) as usize;
        if self.used[word] & bit == 0 {
            self.used[word] |= bit;
            self.groups.insert(place, [0; GROUP]);
        }
        place
    }

    /// The groups that are there, with their indices.
    fn present(&self) -> impl Iterator<Item = (usize, &[u64; GROUP])> {
        let indices = self.used.iter().enumerate().flat_map(|(word, &bits)| {
            let some = |bits: u64| (bits != 0).then_some(bits);
            let left = successors(some(bits), move |bits| some(bits & (bits - 1)));
            left.map(move |bits| 64 * word + bits.trailing_zeros() as usize)
        });
        indices.zip(&self.groups)
    }
}

/// The same times were counted, whatever memory is kept.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        fn counts(histogram: &Histogram) -> impl Iterator<Item = (usize, &[u64; GROUP])> {
            histogram.present().filter(|(_, group)| group.iter().any(|&count| count > 0))
        }
        counts(self).eq(counts(other))
    }
}

/// The bucket of a time.
const fn bucket(nanos: u64) -> usize {
    if nanos < EXACT {
        return nanos as usize;
    }
    if nanos >= LONGEST.as_nanos() {
        return BUCKETS - 1;
    }
    let shift = nanos.ilog2() - PRECISION_BITS;
    ((shift as usize) << PRECISION_BITS) + (nanos >> shift) as usize
}

/// What a bucket is reported as.
const fn middle(bucket: usize) -> Duration {
    if bucket == BUCKETS - 1 {
        return Duration::MAX;
    }
    if bucket < EXACT as usize {
        return Duration::from_nanos(bucket as u64);
    }
    let shift = (bucket >> PRECISION_BITS) - 1;
    let lowest = (bucket - (shift << PRECISION_BITS)) << shift;
    Duration::from_nanos((lowest + (1 << shift) / 2) as u64)
}

/// Buckets of a power of two, as a power of two.
const PRECISION_BITS: u32 = 6;

/// Times below this are counted exactly.
const EXACT: u64 = 2 << PRECISION_BITS;

const LONGEST_BITS: u32 = 42;

/// Buckets in all; the last one is for what is too long.
const BUCKETS: usize = (((LONGEST_BITS - PRECISION_BITS) as usize + 1) << PRECISION_BITS) + 1;

/// Buckets that take memory together: those of one cache line.
const GROUP: usize = 8;

const GROUPS: usize = BUCKETS.div_ceil(GROUP);

const WORDS: usize = GROUPS.div_ceil(64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Times of all magnitudes.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((any::<u64>(), 0..64_u32).prop_map(|(bits, cut)| bits >> cut), 1..300)
    }

    fn histogram(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for &time in times {
            histogram.record(Duration::from_nanos(time));
        }
        histogram
    }

    proptest! {
        /// Two histograms merged are the histogram of both, in either order.
        #[test]
        fn merged_is_together(one in times(), other in times()) {
            let both = histogram(&[one.clone(), other.clone()].concat());
            let mut merged = histogram(&one);
            merged.merge(&histogram(&other));
            prop_assert_eq!(&merged, &both);
            prop_assert_eq!(merged.count(), both.count());
            let mut turned = histogram(&other);
            turned.merge(&histogram(&one));
            prop_assert_eq!(turned, both);
        }

        /// A quantile is within 1 % of the value at its rank among the sorted times.
        #[test]
        fn quantiles_are_within_one_per_cent(mut all in times(), ppm in 0..=1_000_000_u32) {
            let histogram = histogram(&all);
            all.sort_unstable();
            let rank = (all.len() as u64 * u64::from(ppm)).div_ceil(1_000_000).max(1);
            let exact = all[rank as usize - 1];
            let told = histogram.quantile(ppm).unwrap();
            if exact >= LONGEST.as_nanos() {
                prop_assert_eq!(told, Duration::MAX);
            } else {
                prop_assert!(told.as_nanos().abs_diff(exact) * 100 <= exact, "{} for {}", told, exact);
            }
        }

        /// However many times are counted, the memory stays within its bound.
        #[test]
        fn memory_is_bounded(all in times()) {
            let mut full = Histogram::default();
            for bucket in 0..BUCKETS {
                full.record(middle(bucket));
            }
            full.merge(&histogram(&all));
            prop_assert_eq!(full.groups.len() * GROUP * size_of::<u64>(), BYTES_MAX);
        }
    }

    /// Each bucket's middle lies in that bucket, and buckets ascend without a gap.
    #[test]
    fn buckets_tile_the_range() {
        for one in 0..BUCKETS {
            assert_eq!(bucket(middle(one).as_nanos()), one);
        }
        for shift in 0..LONGEST_BITS {
            for near in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                assert!(bucket(near + 1) - bucket(near) <= 1, "no bucket is left out at {near}");
            }
        }
        assert_eq!(bucket(LONGEST.as_nanos() - 1), BUCKETS - 2);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// What was cleared is as new, and its memory serves the next times.
    #[test]
    fn cleared_is_empty() {
        let mut histogram = histogram(&[5, 5_000, 5_000_000]);
        let bytes = histogram.bytes();
        histogram.clear();
        assert_eq!((histogram.count(), histogram.quantile(990_000)), (0, None));
        assert_eq!(histogram, Histogram::default());
        histogram.record(Duration::from_nanos(5_000));
        assert_eq!(histogram.bytes(), bytes);
    }
}
