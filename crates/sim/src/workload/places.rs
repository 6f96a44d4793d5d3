//! Offsets of generated requests.

use super::zipf::Zipf;
use crate::plan::{Access, Workload};
use weir_flow::rng::Rng;
use weir_flow::units::Extent;

/// The addresses of a workload's requests.
#[derive(Debug)]
pub(super) struct Places {
    region: Extent,
    alignment: u64,
    pattern: Pattern,
    rng: Rng,
}

#[derive(Debug)]
enum Pattern {
    Random,
    /// Where the next request begins, relative to the region.
    Sequential(u64),
    Zipf {
        ranks: Zipf,
        scatter: Scatter,
    },
}

impl Places {
    pub(super) fn new(workload: &Workload, rng: Rng) -> Self {
        let Workload { region, alignment, access, .. } = *workload;
        let pattern = match access {
            Access::Random => Pattern::Random,
            Access::Sequential => Pattern::Sequential(0),
            Access::Zipf { skew } => {
                let blocks = region.length.div_ceil(alignment);
                Pattern::Zipf { ranks: Zipf::new(blocks, skew), scatter: Scatter::new(blocks) }
            }
        };
        Self { region, alignment, pattern, rng }
    }

    /// The range of the next request of `size` bytes, which is no more than the region has.
    pub(super) fn draw(&mut self, size: u64) -> Extent {
        let room = self.region.length - size;
        let last = room / self.alignment;
        let offset = match &mut self.pattern {
            Pattern::Random => self.rng.below(last + 1) * self.alignment,
            Pattern::Sequential(next) => {
                let offset = if *next <= room { *next } else { 0 };
                *next = (offset + size).div_ceil(self.alignment).saturating_mul(self.alignment);
                offset
            }
            Pattern::Zipf { ranks, scatter } => {
                scatter.block(ranks.draw(&mut self.rng)).min(last) * self.alignment
            }
        };
        Extent::new(self.region.offset + offset, size)
    }
}

/// Scatters ranks over blocks: rank k goes to block `k * step mod blocks`. The step has no factor
/// in common with the number of blocks, so no two ranks meet, and it is close to the golden section of
/// that number, so neighbouring ranks are far apart.
#[derive(Debug)]
struct Scatter {
    blocks: u64,
    step: u64,
}

impl Scatter {
    fn new(blocks: u64) -> Self {
        // 0.618... as a fraction of 2^64.
        let golden = 0x9e37_79b9_7f4a_7c15_u64;
        let start = ((u128::from(blocks) * u128::from(golden)) >> 64) as u64;
        let step = (start.max(1)..=blocks).find(|&step| gcd(step, blocks) == 1).unwrap_or(1);
        Self { blocks, step }
    }

    /// The block of a rank, counted from 1.
    fn block(&self, rank: u64) -> u64 {
        (u128::from(rank - 1) * u128::from(self.step) % u128::from(self.blocks)) as u64
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arrivals;
    use crate::testing;

    fn places(access: Access, region: Extent, alignment: u64) -> Places {
        let mut workload = testing::workload(Arrivals::Poisson { rate: 1.0 });
        (workload.access, workload.region, workload.alignment) = (access, region, alignment);
        Places::new(&workload, Rng::stream(1, "places"))
    }

    /// Random requests are aligned, inside the region, and reach its first and last position.
    #[test]
    fn random_covers_the_region() {
        let region = Extent::new(1_000, 100);
        let mut places = places(Access::Random, region, 10);
        let mut seen = [0_u32; 10];
        for _ in 0..8_000 {
            let extent = places.draw(15);
            assert!(extent.offset.is_multiple_of(10) && extent.end().unwrap() <= 1_100);
            seen[(extent.offset - 1_000) as usize / 10] += 1;
        }
        assert!(seen[..9].iter().all(|&n| n > 750), "{seen:?}");
        assert_eq!(seen[9], 0);
    }

    /// Sequential requests follow each other, aligned, and start again before the end is passed.
    #[test]
    fn sequential_goes_round() {
        let mut places = places(Access::Sequential, Extent::new(50, 40), 8);
        let mut offsets = Vec::new();
        for size in [8, 8, 5, 16, 8, 40, 40] {
            offsets.push(places.draw(size).offset - 50);
        }
        assert_eq!(offsets, [0, 8, 16, 24, 0, 0, 0]);
    }

    /// Each rank has another block, and the two hottest are not neighbours.
    #[test]
    fn scatter_is_a_permutation() {
        for blocks in [1, 2, 3, 4, 6, 100, 1_000, 4_095, 4_096] {
            let scatter = Scatter::new(blocks);
            let mut hit: Vec<u64> = (1..=blocks).map(|rank| scatter.block(rank)).collect();
            hit.sort_unstable();
            assert_eq!(hit, (0..blocks).collect::<Vec<_>>());
        }
        let scatter = Scatter::new(1_000);
        assert!(scatter.block(1).abs_diff(scatter.block(2)) > 300);
    }

    /// A hot block near the end of the region does not let a large request stick out.
    #[test]
    fn zipf_stays_inside() {
        let mut places = places(Access::Zipf { skew: 1.0 }, Extent::new(0, 105), 10);
        for _ in 0..2_000 {
            let extent = places.draw(35);
            assert!(extent.offset.is_multiple_of(10) && extent.end().unwrap() <= 105);
        }
    }
}
