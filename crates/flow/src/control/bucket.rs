//! A token bucket in exact integers, refilled by ticks.
//!
//! With `iops` tokens a second and `tau` ticks a second, a tick adds `rho = iops / tau` tokens; a
//! fraction of a milli-token is carried to the next tick. The depth is `1.5 rho`, as the paper has it,
//! but at least `rho + 1 token - g`, where g is the greatest common divisor of rho and a token: with
//! less, a bucket below a token would overflow, and a contract would get less than its rate (spec A4).
//! While a request waits the bucket may hold its cost and one refill more, so that a request larger
//! than the depth leaves at the contract's rate (A23).

use super::contract::TOKEN;
use crate::clock::Instant;

/// The tokens of one tenant, in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    tokens: u64,
    depth: u64,
    /// Milli-tokens per second, and ticks per second.
    rate: u64,
    tau: u64,
    /// What the ticks so far owe, in milli-tokens times `tau`.
    carry: u64,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(iops: u32, tau: u64) -> Self {
        let rate = u64::from(iops) * TOKEN;
        let rho = rate.div_ceil(tau);
        let step = if rate.is_multiple_of(tau) { gcd(rho, TOKEN) } else { 1 };
        let depth = (rate * 3 / (tau * 2)).max(rho + TOKEN - step);
        Self { tokens: depth, depth, rate, tau, carry: 0 }
    }

    /// So many ticks; `head` is what the request at the front of the queue costs.
    pub(super) fn refill(&mut self, ticks: u64, head: Option<u64>) {
        let depth =
            head.map_or(self.depth, |cost| self.depth.max(cost + self.rate.div_ceil(self.tau)));
        let sum = u128::from(self.rate) * u128::from(ticks) + u128::from(self.carry);
        self.carry = (sum % u128::from(self.tau)) as u64;
        let tokens = u128::from(self.tokens) + sum / u128::from(self.tau);
        self.tokens = tokens.min(u128::from(depth)) as u64;
    }

    /// One tick at a multiple of the rate, `pace` over [`PACE_ONE`]. What the bucket may hold comes
    /// after the queue has taken its share: see [`settle`](Self::settle).
    pub(super) fn refill_paced(&mut self, pace: u128) {
        let rho = u128::from(self.rate / self.tau);
        let more = rho * pace / PACE_ONE;
        self.tokens = self.tokens.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
    }

    /// Cuts what is left after a paced tick to the paced depth, or to what the waiting head needs.
    pub(super) fn settle(&mut self, pace: u128, head: Option<u64>) {
        let depth = u64::try_from(u128::from(self.depth) * pace / PACE_ONE).unwrap_or(u64::MAX);
        self.tokens = self.tokens.min(depth.max(head.unwrap_or(0)));
    }

    /// Pays for a request, if the bucket holds its cost.
    pub(super) fn pay(&mut self, cost: u64) -> bool {
        match self.tokens.checked_sub(cost) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

/// A pace of one, in units that hold the first few powers of 1.05 exactly.
pub(super) const PACE_ONE: u128 = 1_000_000_000_000_000_000;

/// Ticks at whole multiples of `1 / tau` seconds, rounded up to a nanosecond.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    tau: u64,
    /// How many have been done.
    done: u64,
}

impl Ticks {
    pub(super) const fn new(tau: u64) -> Self {
        Self { tau, done: 0 }
    }

    /// When the next tick is.
    pub(super) fn next(&self) -> Instant {
        let nanos = (u128::from(self.done + 1) * NANOS).div_ceil(u128::from(self.tau));
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many ticks are due and not done.
    pub(super) fn due(&self, now: Instant) -> u64 {
        let all = u128::from(now.as_nanos()) * u128::from(self.tau) / NANOS;
        all as u64 - self.done
    }

    /// So many have been done.
    pub(super) const fn pass(&mut self, count: u64) {
        self.done += count;
    }
}

const NANOS: u128 = 1_000_000_000;

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a bucket with an endless queue lets out in so many seconds of 1000 ticks.
    fn backlogged(mut bucket: Bucket, seconds: u64, cost: u64) -> u64 {
        let mut out = 0;
        while bucket.pay(cost) {
            out += 1;
        }
        for _ in 0..seconds * bucket.tau {
            bucket.refill(1, Some(cost));
            while bucket.pay(cost) {
                out += 1;
            }
        }
        out
    }

    /// With the guard every contract from 1 to 5000 a second gets exactly its rate from a backlog, plus
    /// what the bucket held; a rate that is no whole number per tick loses nothing either, and requests
    /// of five contract sizes get a fifth.
    #[test]
    fn a_backlog_gets_exactly_the_rate() {
        for iops in 1..=5_000 {
            let bucket = Bucket::new(iops, 1_000);
            let expected = (bucket.tokens + 2_000 * u64::from(iops)) / TOKEN;
            assert_eq!(backlogged(bucket, 2, TOKEN), expected, "{iops}");
        }
        for (iops, tau) in [(1, 7), (1_000, 3), (3_499, 1_024), (5, 100_000)] {
            let bucket = Bucket::new(iops, tau);
            let full = bucket.tokens;
            let expected = (full + 20 * 1_000 * u64::from(iops)) / TOKEN;
            assert_eq!(backlogged(bucket.clone(), 20, TOKEN), expected, "{iops} at {tau}");
            let large = (full + 20 * 1_000 * u64::from(iops)) / (5 * TOKEN);
            assert_eq!(backlogged(bucket, 20, 5 * TOKEN), large, "{iops} at {tau}, large");
        }
    }

    /// An idle bucket holds 1.5 refills or the guard, whichever is more, for how long it idles.
    #[test]
    fn an_idle_bucket_holds_its_depth() {
        for (iops, depth) in
            [(3_500, 5_250), (1_500, 2_250), (666, 1_664), (1_000, 1_500), (1, 1_000)]
        {
            let mut bucket = Bucket::new(iops, 1_000);
            bucket.refill(1_000_000, None);
            assert_eq!((bucket.tokens, bucket.depth), (depth, depth), "{iops}");
            assert!(bucket.pay(1_000) && bucket.tokens == depth - 1_000);
        }
    }

    /// The depth of the paper alone would lose refills: nothing at all below 667 a second, 500 of 700,
    /// 1000 of 1300.
    #[test]
    fn the_literal_depth_is_too_small() {
        for (iops, rate) in [(666, 0), (700, 500), (1_300, 1_000)] {
            let mut bucket = Bucket::new(iops, 1_000);
            (bucket.depth, bucket.tokens) = (u64::from(iops) * 3 / 2, 0);
            let mut out = 0;
            for _ in 0..10_000 {
                bucket.refill(1, None);
                while bucket.pay(TOKEN) {
                    out += 1;
                }
            }
            assert_eq!(out / 10, rate, "{iops}");
        }
    }

    /// Ticks are at whole multiples of their period, rounded up, and none is lost or done twice.
    #[test]
    fn ticks_do_not_drift() {
        let mut ticks = Ticks::new(3);
        let mut times = [0; 6];
        for time in &mut times {
            *time = ticks.next().as_nanos();
            assert_eq!(ticks.due(Instant::from_nanos(*time - 1)), 0);
            assert_eq!(ticks.due(Instant::from_nanos(*time)), 1);
            ticks.pass(1);
        }
        assert_eq!(times[..3], [333_333_334, 666_666_667, 1_000_000_000]);
        assert_eq!(times[5], 2_000_000_000);
    }
}
