//! Response times in logarithmic buckets.

/// Buckets per power of two: a quantile is at most 1/32 too high.
const PER_OCTAVE: u64 = 32;

/// Enough buckets for every 64-bit number of nanoseconds.
const BUCKETS: usize = (PER_OCTAVE * 60) as usize;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.max) = (0, 0, 0);
    }

    /// Counts one time.
    pub(crate) fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// How many times were counted.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The mean, 0 of nothing.
    pub(crate) fn mean(&self) -> u64 {
        (self.sum / u128::from(self.count.max(1))) as u64
    }

    /// The longest time.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// The upper end of the bucket below which `percent` of all times are, 0 of nothing.
    pub(crate) fn quantile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(index).min(self.max);
            }
        }
        self.max
    }
}

/// Below 64 each number has its own bucket; above, the five bits after the leading one choose.
const fn bucket(nanos: u64) -> usize {
    if nanos < PER_OCTAVE {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - PER_OCTAVE.ilog2();
    (shift as u64 * PER_OCTAVE + (nanos >> shift)) as usize
}

/// The largest number in a bucket.
const fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < PER_OCTAVE {
        return index;
    }
    let shift = index / PER_OCTAVE - 1;
    let leading = PER_OCTAVE + index % PER_OCTAVE;
    (leading << shift) + ((1 << shift) - 1)
}
