//! Arrival times of generated requests.

use crate::plan::Arrivals;
use weir_flow::clock::Duration;
use weir_flow::rng::Rng;

/// The times of a workload's requests, counted from its start.
#[derive(Debug)]
pub(super) struct Gaps {
    arrivals: Arrivals,
    rng: Rng,
    /// Requests so far.
    count: u64,
    /// The last Poisson arrival: whole nanoseconds, and the fraction that rounding has left. Adding
    /// each gap to the fraction keeps a long run from drifting.
    whole: u64,
    fraction: f64,
}

impl Gaps {
    pub(super) const fn new(arrivals: Arrivals, rng: Rng) -> Self {
        Self { arrivals, rng, count: 0, whole: 0, fraction: 0.0 }
    }

    pub(super) const fn closed(&self) -> Option<(u32, Duration)> {
        match self.arrivals {
            Arrivals::Closed { depth, think } => Some((depth, think)),
            Arrivals::Constant { .. } | Arrivals::Poisson { .. } => None,
        }
    }

    /// The next arrival of an open loop; `None` for a closed one, and after 584 years.
    pub(super) fn next_offset(&mut self) -> Option<Duration> {
        let nanos = match self.arrivals {
            Arrivals::Constant { rate, jitter_permille } => {
                self.count += 1;
                let jitter = f64::from(jitter_permille) / 1_000.0 * (self.rng.unit() - 0.5);
                let nanos = libm::rint((self.count as f64 + jitter) * 1e9 / rate);
                (nanos < LIMIT).then_some(nanos as u64)?
            }
            Arrivals::Poisson { rate } => {
                let gap = -libm::log(1.0 - self.rng.unit()) * 1e9 / rate + self.fraction;
                let whole = libm::floor(gap);
                self.fraction = gap - whole;
                (whole < LIMIT).then_some(())?;
                self.whole = self.whole.checked_add(whole as u64)?;
                self.whole
            }
            Arrivals::Closed { .. } => return None,
        };
        Some(Duration::from_nanos(nanos))
    }
}

/// Times from here on are never reached: half the range of the clock.
const LIMIT: f64 = (1_u64 << 63) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: Arrivals, count: usize) -> Vec<u64> {
        let mut gaps = Gaps::new(arrivals, Rng::stream(1, "gaps"));
        std::iter::from_fn(|| gaps.next_offset().map(Duration::as_nanos)).take(count).collect()
    }

    /// Without jitter request i comes at i / rate, rounded once, however long the run is.
    #[test]
    fn a_constant_rate_does_not_drift() {
        let times = times(Arrivals::Constant { rate: 3.0, jitter_permille: 0 }, 3_000_000);
        assert_eq!(times[..3], [333_333_333, 666_666_667, 1_000_000_000]);
        assert_eq!(times[2_999_999], 1_000_000 * 1_000_000_000);
    }

    /// A jitter of 200 thousandths moves each request by at most a tenth of the gap either way, and
    /// uses that room; at 1000 thousandths the requests are still in order.
    #[test]
    fn jitter_stays_in_its_band() {
        let gap = 1_000_000_f64;
        let jittered = times(Arrivals::Constant { rate: 1e3, jitter_permille: 200 }, 10_000);
        let offsets = jittered.iter().zip(1..).map(|(&t, i)| t as f64 / gap - f64::from(i));
        let (low, high) = offsets.fold((0.0, 0.0), |(l, h): (f64, f64), o| (l.min(o), h.max(o)));
        assert!((-0.100_001..-0.099).contains(&low) && (0.099..0.100_001).contains(&high));
        let wild = times(Arrivals::Constant { rate: 1e3, jitter_permille: 1_000 }, 100_000);
        assert!(wild.is_sorted());
    }

    /// Poisson: gaps have mean and standard deviation `1 / rate`, a share of 1/e is longer than the
    /// mean, and the number of requests has no drift, also when gaps are shorter than a nanosecond
    /// is precise.
    #[test]
    fn poisson_gaps_are_exponential() {
        for rate in [2_500.0, 5e8] {
            let count = 400_000;
            let times = times(Arrivals::Poisson { rate }, count);
            let mean = 1e9 / rate;
            let measured = times[count - 1] as f64 / count as f64;
            // The mean of 400 000 gaps has a standard error of 0.16 %; four of them.
            assert!((measured / mean - 1.0).abs() < 0.0064, "{rate}: {measured}");
            if rate < 1e6 {
                let gaps = times.windows(2).map(|w| (w[1] - w[0]) as f64 / mean);
                let square = gaps.clone().map(|gap| (gap - 1.0) * (gap - 1.0)).sum::<f64>();
                let deviation = libm::sqrt(square / count as f64);
                assert!((deviation - 1.0).abs() < 0.01, "{deviation}");
                let long = gaps.filter(|&gap| gap > 1.0).count() as f64 / count as f64;
                assert!((long - libm::exp(-1.0)).abs() < 0.004, "{long}");
            }
        }
    }

    /// A rate that is next to nothing gives no request within the range of the clock.
    #[test]
    fn the_clock_has_an_end() {
        assert_eq!(times(Arrivals::Poisson { rate: 1e-300 }, 3), []);
        assert_eq!(times(Arrivals::Constant { rate: 1e-10, jitter_permille: 0 }, 3), []);
    }
}
