//! Zipf-distributed ranks in constant time and memory, by rejection-inversion.
//!
//! Source: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", ACM Transactions on Modeling and Computer Simulation 6(3), 1996, as
//! simplified in Apache Commons RNG. The density `h(x) = 1 / x^skew` has an integral with a closed
//! inverse; a uniform variate below that integral is inverted, rounded to a rank, and rejected in
//! the rare case that it falls outside the rank's own bar. Fewer than 1.2 tries on average.

use weir_flow::rng::Rng;

/// Ranks 1 to `count` with probability proportional to `1 / rank^skew`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: f64,
    skew: f64,
    /// Integral of the density at the ends of the range from which variates are drawn.
    low: f64,
    high: f64,
    /// Candidates closer than this to their rank are accepted without looking.
    near: f64,
}

impl Zipf {
    /// `count` is at least 1 and `skew` above 0. Counts above 2^53 are as good as 2^53.
    pub(super) fn new(count: u64, skew: f64) -> Self {
        let count = count as f64;
        let mut zipf = Self { count, skew, low: 0.0, high: 0.0, near: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(count + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// The next rank.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let rank = libm::floor(x + 0.5).clamp(1.0, self.count);
            if rank - x <= self.near || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    /// `1 / x^skew`.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.skew * libm::log(x))
    }

    /// `(x^(1 - skew) - 1) / (1 - skew)`, which is `ln x` for a skew of 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        expm1_over((1.0 - self.skew) * log) * log
    }

    /// The `x` whose integral is `y`.
    fn inverse(&self, y: f64) -> f64 {
        // Rounding may take the product just past the end of the logarithm's domain.
        let t = (y * (1.0 - self.skew)).max(-1.0);
        libm::exp(log1p_over(t) * y)
    }
}

/// `ln(1 + x) / x`, continuous at 0.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

/// `(e^x - 1) / x`, continuous at 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x * (0.5 + x / 6.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frequencies agree with the exact distribution by Pearson's chi-squared test, for skews
    /// below, at and above one.
    #[test]
    fn agrees_with_the_exact_distribution() {
        let (count, draws) = (50_u32, 500_000);
        for skew in [0.2, 0.9, 1.0, 1.3, 4.0] {
            let zipf = Zipf::new(u64::from(count), skew);
            let mut rng = Rng::stream(1, "zipf");
            let mut seen = vec![0_u64; count as usize];
            for _ in 0..draws {
                seen[zipf.draw(&mut rng) as usize - 1] += 1;
            }
            let weight = |rank: u32| libm::pow(f64::from(rank), -skew);
            let sum: f64 = (1..=count).map(weight).sum();
            let (mut chi, mut rare) = (0.0, (0.0, 0.0));
            for rank in 1..=count {
                let expected = f64::from(draws) * weight(rank) / sum;
                let observed = seen[rank as usize - 1] as f64;
                // The test needs a handful of cases in every cell; rare ranks share one.
                if expected < 10.0 {
                    rare = (rare.0 + expected, rare.1 + observed);
                } else {
                    chi += (observed - expected) * (observed - expected) / expected;
                }
            }
            if rare.0 > 0.0 {
                chi += (rare.1 - rare.0) * (rare.1 - rare.0) / rare.0;
            }
            // 49 degrees of freedom at most: a true generator exceeds 85 once in a thousand runs.
            assert!(chi < 85.0, "skew {skew}: chi-squared is {chi}");
        }
    }

    /// A single rank, and more ranks than a float counts, both work.
    #[test]
    fn the_ends_of_the_range_work() {
        let mut rng = Rng::stream(1, "zipf");
        let one = Zipf::new(1, 1.0);
        let many = Zipf::new(1 << 60, 0.5);
        for _ in 0..1_000 {
            assert_eq!(one.draw(&mut rng), 1);
            assert!((1..=1 << 60).contains(&many.draw(&mut rng)));
        }
    }
}
