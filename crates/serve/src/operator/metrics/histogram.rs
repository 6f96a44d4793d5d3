//! Response times in buckets with exact edges, which other threads read while they are counted.

use super::counter::Counter;
use std::array::from_fn;
use weir_flow::clock::Duration;

/// Response times in eight geometric buckets for each power of two, from 2^10 to 2^34 ns: 1.02 µs to 17.2 s.
///
/// Edge `i` is 2^(10 + i/8) ns, rounded down to whole nanoseconds and inclusive, as `le` is. Times are whole
/// nanoseconds, so the edges are exact: these are the buckets of schema 3 of Prometheus' native histograms.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [Counter; BUCKETS],
    /// In nanoseconds.
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

/// A time and its bucket, found once for all the histograms that count it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    bucket: usize,
    nanos: u64,
}

impl Sample {
    pub(crate) fn of(time: Duration) -> Self {
        let nanos = time.as_nanos();
        Self { bucket: bucket(nanos), nanos }
    }
}

impl Histogram {
    /// Counts a time.
    pub(crate) fn record(&self, sample: Sample) {
        self.buckets[sample.bucket].add(1);
        self.sum.add(sample.nanos);
    }

    /// What it has counted so far.
    pub(crate) fn read(&self) -> Counts {
        Counts { buckets: from_fn(|index| self.buckets[index].get()), sum_ns: self.sum.get() }
    }
}

/// The contents of one or several histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    buckets: [u64; BUCKETS],
    /// The sum of the times.
    pub(crate) sum_ns: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Counts {
    /// Counts what the other has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// The number of times.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Each bucket that is not empty: its bound, and the times in it. What is longer than all bounds has the largest number.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, u64)> {
        let bound = |index| if index < BUCKETS - 1 { edge(index) } else { u64::MAX };
        let buckets = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        buckets.map(move |(index, &count)| (bound(index), count))
    }

    /// The classic buckets with these bounds: each bound, and the number of times up to it.
    pub(crate) fn up_to(&self, bounds: Bounds) -> impl Iterator<Item = (u64, u64)> {
        let mut below = 0;
        let mut next = 0;
        bounds.edges().map(move |index| {
            below += self.buckets[next..=index].iter().sum::<u64>();
            next = index + 1;
            (edge(index), below)
        })
    }
}

/// The bounds of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// Two for each power of two from 2^14 to 2^33 ns: 39.
    Fine,
    /// One for each power of two from 2^16 to 2^33 ns: 18.
    Coarse,
}

impl Bounds {
    /// The indices of its edges.
    fn edges(self) -> impl Iterator<Item = usize> {
        let (first, step) = match self {
            Self::Fine => (14, PER_OCTAVE / 2),
            Self::Coarse => (16, PER_OCTAVE),
        };
        let index = |power: usize| (power - FIRST as usize) * PER_OCTAVE;
        (index(first)..=index(33)).step_by(step)
    }
}

/// The bucket of a time: the number of edges that are shorter.
fn bucket(nanos: u64) -> usize {
    if nanos <= 1 << FIRST {
        return 0;
    }
    let power = nanos.ilog2();
    let scaled = nanos << (63 - power);
    // The four bits behind the first one know all edges but one.
    let known = usize::from(BELOW[(scaled >> 59) as usize % SLOTS]);
    let within = known + usize::from(scaled > FRACTIONS[known]);
    ((power - FIRST) as usize * PER_OCTAVE + within).min(BUCKETS - 1)
}

/// The largest time that is not longer than edge `index`, in nanoseconds.
const fn edge(index: usize) -> u64 {
    FRACTIONS[index % PER_OCTAVE] >> (63 - FIRST as usize - index / PER_OCTAVE)
}

/// 2^(63 + i/8), rounded down; the last one is beyond all.
const FRACTIONS: [u64; PER_OCTAVE + 1] = [
    0x8000_0000_0000_0000,
    0x8b95_c1e3_ea8b_d6e6,
    0x9837_f051_8db8_a96f,
    0xa5fe_d6a9_b151_38ea,
    0xb504_f333_f9de_6484,
    0xc567_2a11_5506_dadd,
    0xd744_fcca_d69d_6af4,
    0xeac0_c6e7_dd24_392e,
    u64::MAX,
];

/// Equal parts of a power of two, each with at most one edge behind its beginning.
const SLOTS: usize = 16;

/// By part: the edges of its power of two that are below its beginning.
const BELOW: [u8; SLOTS] = {
    let mut below = [0; SLOTS];
    let mut slot = 0;
    while slot < SLOTS {
        let begin = 1 << 63 | (slot as u64) << 59;
        while FRACTIONS[below[slot] as usize] < begin {
            below[slot] += 1;
        }
        slot += 1;
    }
    below
};

/// Buckets for each power of two.
const PER_OCTAVE: usize = 8;

/// The first edge, as a power of two.
const FIRST: u32 = 10;

/// One up to the first edge, one up to each further one, and one for what is longer than 2^34 ns.
const BUCKETS: usize = 24 * PER_OCTAVE + 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(times: &[u64]) -> Counts {
        let histogram = Histogram::default();
        for &time in times {
            histogram.record(Sample::of(Duration::from_nanos(time)));
        }
        histogram.read()
    }

    /// A time equal to an edge is in the bucket that ends there, the next nanosecond in the one after it.
    #[test]
    fn edges_are_inclusive() {
        for index in 0..BUCKETS - 1 {
            let edge = edge(index);
            assert_eq!((bucket(edge), bucket(edge + 1)), (index, index + 1), "{edge} ns");
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// The classic bounds are those of the reference, each once and ascending.
    #[test]
    fn bounds_are_powers_of_two_and_their_roots() {
        let bounds = |bounds: Bounds| bounds.edges().map(edge).collect::<Vec<_>>();
        let (fine, coarse) = (bounds(Bounds::Fine), bounds(Bounds::Coarse));
        assert_eq!((fine.len(), fine[0], fine[1], fine[38]), (39, 1 << 14, 23_170, 1 << 33));
        assert_eq!((coarse.len(), coarse[0], coarse[17]), (18, 1 << 16, 1 << 33));
        assert!(coarse.iter().all(|edge| fine.contains(edge) && edge.is_power_of_two()));
        assert!(fine.is_sorted_by(|one, next| one < next));
    }

    /// Each classic bucket has exactly the times up to its bound, and the sum is that of the times.
    #[test]
    fn buckets_agree_with_a_list() {
        let near = (9..36).flat_map(|power| [(1 << power) - 1, 1_u64 << power, (1 << power) + 1]);
        let spread =
            (0..2_000_u64).map(|one| one.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (28 + one % 32));
        let times: Vec<u64> = near.chain(spread).collect();
        let counts = counts(&times);
        for bounds in [Bounds::Fine, Bounds::Coarse] {
            for (bound, below) in counts.up_to(bounds) {
                let wanted = times.iter().filter(|&&time| time <= bound).count() as u64;
                assert_eq!(below, wanted, "up to {bound} ns");
            }
        }
        assert_eq!(counts.count(), times.len() as u64);
        assert_eq!(counts.sum_ns, times.iter().sum::<u64>());
    }
}
