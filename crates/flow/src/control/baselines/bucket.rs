//! A token bucket in exact integers, refilled by ticks.
//!
//! With `iops` tokens a second and `tau` ticks a second, a tick adds `rho = iops / tau` tokens; a
//! fraction of a milli-token is carried to the next tick. The depth is `1.5 rho`, as the paper has it,
//! but at least `rho + 1 token - g`, where g is the greatest common divisor of rho and a token: with
//! less, a bucket below a token would overflow, and a contract would get less than its rate (`docs/reference/control.md` section 4, A4).
//! While a request waits the bucket fills until it holds its cost, so that a request larger than the
//! depth leaves at the contract's rate (A23).
//!
//! No tick has to be handled: missed refills are added when the bucket is used, and the tick at which a
//! cost will be covered is known in advance.

use crate::clock::Instant;
use crate::control::contract::TOKEN;

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
    /// The number of the last tick that has been made up for.
    done: u64,
}

impl Bucket {
    /// A full bucket, before the first tick.
    pub(super) fn new(iops: u32, tau: u64) -> Self {
        let rate = u64::from(iops) * TOKEN;
        let rho = rate.div_ceil(tau);
        let step = if rate.is_multiple_of(tau) { gcd(rho, TOKEN) } else { 1 };
        let depth = (rate * 3 / (tau * 2)).max(rho + TOKEN - step);
        Self::holding(depth, rate, tau)
    }

    /// A full bucket of this depth in milli-tokens, which gets `rate` of them per second.
    pub(super) const fn holding(depth: u64, rate: u64, tau: u64) -> Self {
        Self { tokens: depth, depth, rate, tau, carry: 0, done: 0 }
    }

    /// Adds the refills up to this tick while no request is queued; tokens above the depth are lost.
    pub(super) fn refill(&mut self, tick: u64) {
        if tick > self.done {
            self.fill(tick, PACE_ONE);
            self.tokens = self.tokens.min(self.depth);
        }
    }

    /// Adds the refills up to this tick, at a multiple of the rate, `pace` over [`PACE_ONE`], while a request
    /// is queued whose cost is not covered before the last of them.
    pub(super) fn fill(&mut self, tick: u64, pace: u128) {
        assert!(tick >= self.done, "a bucket was filled for a tick that is past");
        let ticks = tick - self.done;
        self.done = tick;
        let more = if let Some(more) = self.faster(pace) {
            more.saturating_mul(ticks)
        } else {
            let sum = u128::from(self.rate) * u128::from(ticks) + u128::from(self.carry);
            self.carry = (sum % u128::from(self.tau)) as u64;
            u64::try_from(sum / u128::from(self.tau)).unwrap_or(u64::MAX)
        };
        self.tokens = self.tokens.saturating_add(more);
    }

    /// The tick at which a waiting request's cost will be covered.
    pub(super) fn covers(&self, cost: u64, pace: u128) -> u64 {
        let lacks = cost.saturating_sub(self.tokens);
        let ticks = if let Some(more) = self.faster(pace) {
            lacks.div_ceil(more)
        } else {
            let lacks = u128::from(lacks) * u128::from(self.tau);
            let ticks = lacks.saturating_sub(u128::from(self.carry)).div_ceil(self.rate.into());
            u64::try_from(ticks).unwrap_or(NEVER)
        };
        self.done.saturating_add(ticks).min(NEVER)
    }

    /// Cuts the tokens that remain after a paced queue has left to the paced depth.
    pub(super) fn settle(&mut self, pace: u128) {
        let depth = u64::try_from(u128::from(self.depth) * pace / PACE_ONE).unwrap_or(u64::MAX);
        self.tokens = self.tokens.min(depth);
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

    /// What a tick at this pace adds, in whole milli-tokens as the paper's release has it; `None` if that
    /// is no more than an ordinary tick, which carries fractions, can add.
    fn faster(&self, pace: u128) -> Option<u64> {
        let more = u128::from(self.rate) * pace / (u128::from(self.tau) * PACE_ONE);
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        (more > self.rate / self.tau).then_some(more)
    }
}

/// A pace of one, in units that hold the first few powers of 1.05 exactly.
pub(super) const PACE_ONE: u128 = 1_000_000_000_000_000_000;

/// Ticks are at whole multiples of `1 / tau` seconds, rounded up to a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    tau: u64,
}

impl Ticks {
    pub(super) const fn new(tau: u64) -> Self {
        Self { tau }
    }

    /// When this tick is; the first has number 1.
    pub(super) fn at(self, tick: u64) -> Instant {
        let nanos = (u128::from(tick) * NANOS).div_ceil(u128::from(self.tau));
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The last tick that is not after `now`.
    pub(super) fn until(self, now: Instant) -> u64 {
        (u128::from(now.as_nanos()) * u128::from(self.tau) / NANOS) as u64
    }
}

/// A tick that no clock will see.
const NEVER: u64 = 1 << 60;

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
    use alloc::vec::Vec;

    /// Requests that a bucket with an endless queue releases in `seconds`: by handling every tick and, with the
    /// same result, only those that the bucket names.
    fn backlogged(bucket: &Bucket, seconds: u64, cost: u64) -> u64 {
        let end = seconds * bucket.tau;
        let (mut steps, mut leaps) = (bucket.clone(), bucket.clone());
        let mut times = [Vec::new(), Vec::new()];
        for tick in 0..=end {
            steps.fill(tick, PACE_ONE);
            while steps.pay(cost) {
                times[0].push(tick);
            }
        }
        let mut tick = leaps.covers(cost, PACE_ONE);
        while tick <= end {
            leaps.fill(tick, PACE_ONE);
            assert!(leaps.pay(cost), "covered at {tick}");
            times[1].push(tick);
            tick = leaps.covers(cost, PACE_ONE);
        }
        assert_eq!(times[0], times[1]);
        times[0].len() as u64
    }

    /// With the guard every contract from 1 to 5000 a second gets exactly its rate from a backlog, plus
    /// what the bucket held; a rate that is no whole number per tick loses nothing either, and requests
    /// of five contract sizes get a fifth.
    #[test]
    fn a_backlog_gets_exactly_the_rate() {
        for iops in 1..=5_000 {
            let bucket = Bucket::new(iops, 1_000);
            let expected = (bucket.tokens + 2_000 * u64::from(iops)) / TOKEN;
            assert_eq!(backlogged(&bucket, 2, TOKEN), expected, "{iops}");
        }
        for (iops, tau) in [(1, 7), (1_000, 3), (3_499, 1_024), (5, 100_000)] {
            let bucket = Bucket::new(iops, tau);
            let full = bucket.tokens;
            let expected = (full + 20 * 1_000 * u64::from(iops)) / TOKEN;
            assert_eq!(backlogged(&bucket, 20, TOKEN), expected, "{iops} at {tau}");
            let large = (full + 20 * 1_000 * u64::from(iops)) / (5 * TOKEN);
            assert_eq!(backlogged(&bucket, 20, 5 * TOKEN), large, "{iops} at {tau}, large");
        }
    }

    /// An idle bucket holds 1.5 refills or the guard, whichever is more, for how long it idles; what is
    /// above that stays until the next tick.
    #[test]
    fn an_idle_bucket_holds_its_depth() {
        for (iops, depth) in
            [(3_500, 5_250), (1_500, 2_250), (666, 1_664), (1_000, 1_500), (1, 1_000)]
        {
            let mut bucket = Bucket::new(iops, 1_000);
            bucket.refill(1_000_000);
            assert_eq!((bucket.tokens, bucket.depth), (depth, depth), "{iops}");
            assert!(bucket.pay(1_000) && bucket.tokens == depth - 1_000);
            bucket.tokens = 3 * depth;
            bucket.refill(1_000_000);
            assert_eq!(bucket.tokens, 3 * depth);
            bucket.refill(1_000_001);
            assert_eq!(bucket.tokens, depth);
        }
    }

    /// The depth of the paper alone would lose refills: nothing at all below 667 a second, 500 of 700,
    /// 1000 of 1300.
    #[test]
    fn the_literal_depth_is_too_small() {
        for (iops, rate) in [(1, 0), (666, 0), (700, 500), (1_300, 1_000), (1_500, 1_500)] {
            let mut bucket = Bucket::new(iops, 1_000);
            (bucket.depth, bucket.tokens) = (u64::from(iops) * 3 / 2, 0);
            let mut out = 0;
            for tick in 1..=10_000 {
                bucket.refill(tick);
                while bucket.pay(TOKEN) {
                    out += 1;
                }
            }
            assert_eq!(out / 10, rate, "{iops}");
        }
    }

    /// A paced bucket names the tick that covers a cost, adds whole milli-tokens and is cut to the paced
    /// depth; one of less than a milli-token per tick gives at least its rate at every pace.
    #[test]
    fn a_paced_bucket_names_its_tick() {
        let mut bucket = Bucket::new(2_000, 1_000);
        bucket.tokens = 0;
        let pace = PACE_ONE * 3 / 2;
        assert_eq!(bucket.covers(7_000, pace), 3);
        bucket.fill(2, pace);
        assert!(!bucket.pay(7_000));
        bucket.fill(3, pace);
        assert!(bucket.pay(7_000) && bucket.tokens == 2_000);
        bucket.tokens = 9_000;
        bucket.settle(PACE_ONE * 2);
        assert_eq!(bucket.tokens, 6_000);
        let mut slow = Bucket::new(30, 100_000);
        slow.tokens = 0;
        // A 30th of a second, at four times the rate, and one milli-token a tick.
        for (pace, ticks) in [(1, 3_334), (3, 3_334), (4, 1_000)] {
            let pace = PACE_ONE * pace;
            assert_eq!(slow.covers(TOKEN, pace), ticks);
            let mut filled = slow.clone();
            filled.fill(ticks - 1, pace);
            assert!(!filled.pay(TOKEN));
            filled.fill(ticks, pace);
            assert!(filled.pay(TOKEN));
        }
    }

    /// Ticks are at whole multiples of their period, rounded up, and none is lost or done twice.
    #[test]
    fn ticks_do_not_drift() {
        let ticks = Ticks::new(3);
        let times = [1, 2, 3, 4, 5, 6].map(|tick| ticks.at(tick).as_nanos());
        assert_eq!(times[..3], [333_333_334, 666_666_667, 1_000_000_000]);
        assert_eq!(times[5], 2_000_000_000);
        for (tick, time) in (1..).zip(times) {
            assert_eq!(ticks.until(Instant::from_nanos(time)), tick);
            assert_eq!(ticks.until(Instant::from_nanos(time - 1)), tick - 1);
        }
    }

    /// A bucket is not filled for a tick that is past.
    #[test]
    #[should_panic(expected = "tick that is past")]
    fn ticks_do_not_run_backwards() {
        let mut bucket = Bucket::new(1, 1);
        bucket.fill(2, PACE_ONE);
        bucket.fill(1, PACE_ONE);
    }
}
