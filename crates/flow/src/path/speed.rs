//! The speed of a path, fitted to how long its I/Os took.

use super::Speed;
use crate::clock::Duration;

/// A speed to reckon with, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    fixed: u64,
    per_mib: u64,
}

impl Line {
    /// What is assumed before anything is known: 100 us and 1 GiB/s.
    pub(super) const GUESS: Self = Self { fixed: 100_000, per_mib: 1_000_000 };

    /// How long `count` I/Os with `bytes` together take, one after the other.
    pub(super) fn time(self, count: u64, bytes: u64) -> u64 {
        let moving = (u128::from(self.per_mib) * u128::from(bytes)) >> MIB_SHIFT;
        let fixed = self.fixed.saturating_mul(count);
        fixed.saturating_add(u64::try_from(moving).unwrap_or(u64::MAX))
    }

    pub(super) const fn speed(self) -> Speed {
        Speed {
            fixed: Duration::from_nanos(self.fixed),
            per_mib: Duration::from_nanos(self.per_mib),
        }
    }
}

/// I/Os that ended at one instant: how many, their bytes, and how long the path was busy with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) count: u64,
    /// At least one.
    pub(super) bytes: u64,
    /// Nanoseconds.
    pub(super) time: u64,
    /// Whether the path had nothing else to do when the first of them started.
    pub(super) alone: bool,
}

/// Sums over samples of `time = count * fixed + blocks * per block`, for least squares. A sample counts
/// for 15/16 of what it did with each that follows.
///
/// Samples are limited to [`COUNT`], [`BLOCKS`] and [`TIME`], so that no product leaves 128 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fit {
    count_count: u64,
    count_blocks: u64,
    count_time: u64,
    blocks_blocks: u64,
    blocks_time: u128,
}

impl Fit {
    /// With one sample more, where `line` is what was expected.
    ///
    /// One that took more than [`CLIP`] times as long enters as that: one stall is not a rate. More than
    /// three times as long, or less than a third, says that the past is no guide, and it counts for less;
    /// the latter only of an I/O that was alone, since ends may come in bursts.
    pub(super) fn with(mut self, sample: Sample, line: Option<Line>) -> Self {
        let mut time = sample.time;
        let mut steps = 1;
        if let Some(line) = line {
            let expected = line.time(sample.count, sample.bytes);
            time = time.min(expected.saturating_mul(CLIP));
            if time / 3 > expected {
                steps += SLOWER_STEPS;
            } else if sample.alone && time < expected / 3 {
                steps += FASTER_STEPS;
            }
        }
        for _ in 0..steps {
            self.decay();
        }
        let count = sample.count.min(COUNT);
        let blocks = sample.bytes.div_ceil(BLOCK).min(BLOCKS);
        let time = time.min(TIME);
        self.count_count += ONE * count * count;
        self.count_blocks += ONE * count * blocks;
        self.count_time += ONE * count * time;
        self.blocks_blocks += ONE * blocks * blocks;
        self.blocks_time += u128::from(ONE * blocks) * u128::from(time);
        self
    }

    const fn decay(&mut self) {
        self.count_count -= self.count_count >> DECAY_SHIFT;
        self.count_blocks -= self.count_blocks >> DECAY_SHIFT;
        self.count_time -= self.count_time >> DECAY_SHIFT;
        self.blocks_blocks -= self.blocks_blocks >> DECAY_SHIFT;
        self.blocks_time -= self.blocks_time >> DECAY_SHIFT;
    }

    /// The line of least squares among those that do not fall and do not start below zero. There is at
    /// least one sample.
    pub(super) fn line(&self) -> Line {
        let (count, blocks) = (u128::from(self.count_count), u128::from(self.count_blocks));
        let time = u128::from(self.count_time);
        let mean_squared = blocks * blocks;
        // How much the sizes vary, as a variance in the same unit.
        let spread = (count * u128::from(self.blocks_blocks)).saturating_sub(mean_squared);
        let per_mib = if spread << SPREAD_SHIFT > mean_squared {
            let slope = (count * self.blocks_time).saturating_sub(blocks * time) * BLOCKS_PER_MIB;
            // Steeper than this, it would start below zero.
            (slope / spread).min(time * BLOCKS_PER_MIB / blocks)
        } else {
            // Samples of one size have no slope of their own.
            time * BLOCKS_PER_MIB / (blocks + count * FIXED_BLOCKS)
        };
        let fixed = time.saturating_sub(per_mib * blocks / BLOCKS_PER_MIB) / count;
        Line { fixed: fixed as u64, per_mib: per_mib as u64 }
    }
}

/// One, in a sum.
const ONE: u64 = 1 << 12;

/// A sixteenth is forgotten with each sample.
const DECAY_SHIFT: u32 = 4;

/// Further steps when a sample took more than three times as long as expected.
const SLOWER_STEPS: u32 = 4;

/// Further steps when it took less than a third.
const FASTER_STEPS: u32 = 8;

/// How many times as long as expected a sample may be.
const CLIP: u64 = 8;

/// Sizes whose standard deviation is an eighth of their mean or less are one size.
const SPREAD_SHIFT: u32 = 6;

const MIB_SHIFT: u32 = 20;

/// Bytes of a block, the unit in which sizes are fitted.
const BLOCK: u64 = 512;

const BLOCKS_PER_MIB: u128 = (1 << MIB_SHIFT) / BLOCK as u128;

/// What the fixed part of an I/O is worth where it cannot be told from the rest: 16 KiB.
const FIXED_BLOCKS: u128 = 32;

/// The most I/Os of a sample.
const COUNT: u64 = 1 << 8;

/// The most blocks of a sample: 1 GiB.
const BLOCKS: u64 = 1 << 21;

/// The most nanoseconds of a sample: 68.7 s.
const TIME: u64 = 1 << 36;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn sample(count: u64, bytes: u64, time: u64) -> Sample {
        Sample { count, bytes, time, alone: true }
    }

    fn fit(samples: &[Sample]) -> Line {
        samples.iter().fold(Fit::default(), |fit, &sample| fit.with(sample, None)).line()
    }

    fn close(value: u64, to: u64) -> bool {
        value.abs_diff(to) <= to / 500
    }

    /// Samples on a line give that line, also when several I/Os ended together.
    #[test]
    fn a_line_is_found() {
        // 10 us and 400 MB/s: 2.5 ns for each byte.
        for batch in [1, 3] {
            let on_line = |bytes: u64| sample(batch, bytes, batch * 10_000 + bytes * 5 / 2);
            let samples: Vec<_> = (1..40).map(|n| on_line((n * 37 % 64 + 1) * 4_096)).collect();
            let line = fit(&samples);
            assert!(close(line.fixed, 10_000), "{line:?}");
            assert!(close(line.per_mib, 2_621_440), "{line:?}");
        }
    }

    /// One size: the mean time at that size, of which 16 KiB are worth the fixed part.
    #[test]
    fn one_size_is_split_by_convention() {
        let line = fit(&[sample(1, 48 << 10, 64_000); 20]);
        assert!(close(line.time(1, 48 << 10), 64_000), "{line:?}");
        assert!(close(line.fixed, 16_000), "{line:?}");
    }

    /// Large I/Os that were faster than small ones do not make the line fall, and small ones that were
    /// much faster do not make it start below zero.
    #[test]
    fn no_line_falls_or_starts_below_zero() {
        let (small, large) = (4_096, 1 << 20);
        let falling = fit(&[sample(1, small, 9_000), sample(1, large, 1_000)]);
        assert_eq!(falling.per_mib, 0);
        assert!((4_500..5_100).contains(&falling.fixed), "{falling:?}");
        let steep =
            fit(&[sample(1, small, 1), sample(1, large, 1 << 20), sample(1, 2 << 20, 4 << 20)]);
        assert!(steep.fixed <= 1 && steep.per_mib > 1 << 20, "{steep:?}");
    }

    /// A stall enters as eight times what was expected, with the past at 0.72 of its weight.
    #[test]
    fn a_stall_is_no_rate() {
        let before = Fit::default().with(sample(1, 4_096, 1_000), None);
        let line = before.line();
        assert_eq!(line.time(1, 4_096), 1_000);
        let stalled = before.with(sample(1, 4_096, 2_000_000_000), Some(line));
        // 4096 decay to 2968 in five steps; (2968 * 1000 + 4096 * 8000) / (2968 + 4096) = 5058.
        assert_eq!(stalled.count_count, 2_968 + 4_096);
        assert!(stalled.line().time(1, 4_096).abs_diff(5_058) < 5, "{:?}", stalled.line());
    }

    /// A path that is fast again is believed at once if the I/O was alone; in a burst of ends only its
    /// share.
    #[test]
    fn a_fast_path_is_believed_when_alone() {
        let before = fit(&[sample(1, 4_096, 9_000); 30]);
        let fits =
            [sample(1, 4_096, 9_000); 30].iter().fold(Fit::default(), |f, &s| f.with(s, None));
        let fast = Sample { alone: true, ..sample(1, 4_096, 1_000) };
        let alone = fits.with(fast, Some(before)).line().time(1, 4_096);
        let burst = fits.with(Sample { alone: false, ..fast }, Some(before)).line().time(1, 4_096);
        assert!(alone < burst && burst > 8_400, "{alone} {burst}");
    }

    /// The largest samples overflow nothing.
    #[test]
    fn the_largest_samples_fit() {
        let largest = sample(u64::MAX, u64::MAX, u64::MAX);
        let line = fit(&[largest; 200]);
        assert!(close(line.time(COUNT, BLOCKS * BLOCK), TIME), "{line:?}");
        let mixed = fit(&[sample(1, 1, u64::MAX), largest, sample(COUNT, 1, u64::MAX), largest]);
        assert!(mixed.time(u64::MAX, u64::MAX) > 0, "{mixed:?}");
    }
}
