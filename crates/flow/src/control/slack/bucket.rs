//! Token buckets that fill continuously, on clocks that brown-out slows down, and burst credits.

use super::super::contract::TOKEN;
use crate::clock::{Duration, Instant};

/// A reading of a [`ScaledClock`], in nanoseconds times millionths.
pub(super) type ClockTime = u128;

/// The scale of a clock that keeps time, in millionths.
pub(super) const SCALE_ONE: u64 = 1_000_000;

/// A milli-token in the units of a [`Bucket`].
const MILLI_TOKEN: u128 = 1_000_000_000 * SCALE_ONE as u128 / TOKEN as u128;

/// A clock that runs at a scale. Buckets read it when they are used, so that a change of the scale
/// touches none of them.
#[derive(Clone, Debug)]
pub(super) struct ScaledClock {
    at: Instant,
    time: ClockTime,
    /// The time without the margin: it earns what a contract promises, `time` what is admitted.
    earned: ClockTime,
    scale: u64,
    /// The scale with the margin.
    speed: u64,
}

impl ScaledClock {
    /// A clock at full scale, with this margin on top.
    pub(super) const fn new(margin_permille: u64) -> Self {
        let mut clock = Self { at: Instant::ZERO, time: 0, earned: 0, scale: 0, speed: 0 };
        clock.set(SCALE_ONE, margin_permille);
        clock
    }

    pub(super) fn advance(&mut self, now: Instant) {
        let nanos = u128::from(now.saturating_since(self.at).as_nanos());
        self.time += nanos * u128::from(self.speed);
        self.earned += nanos * u128::from(self.scale);
        self.at = self.at.max(now);
    }

    /// Runs at another scale and with another margin from where it stands.
    pub(super) const fn set(&mut self, scale: u64, margin_permille: u64) {
        assert!(
            0 < scale && scale <= SCALE_ONE,
            "a guarantee is scaled to more than nothing, at most to one"
        );
        self.scale = scale;
        self.speed = scale * (1_000 + margin_permille) / 1_000;
    }

    pub(super) const fn time(&self) -> ClockTime {
        self.time
    }

    /// When it reads `time`, at its present scale.
    pub(super) fn when(&self, time: ClockTime) -> Instant {
        let nanos = time.saturating_sub(self.time).div_ceil(self.speed.into());
        self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(WAIT_MAX).min(WAIT_MAX))
    }
}

/// The burst of a limit and of a group's budget, as time at its rate.
pub(super) const LIMIT_BURST: Duration = Duration::from_millis(100);

/// A wait that is longer than any process runs, in nanoseconds.
const WAIT_MAX: u64 = u64::MAX / 4;

/// A token bucket. It says which requests are guaranteed; it holds no request.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens times 10^15: nanoseconds times millionths.
    tokens: u128,
    /// Tokens that were taken without being there, at most `depth`. It is paid back first.
    debt: u128,
    depth: u128,
    /// Tokens per second.
    rate: u128,
    /// The readings of its clock at the last fill.
    filled: ClockTime,
    filled_earned: ClockTime,
}

impl Bucket {
    /// A full bucket that holds the tokens of `burst`, but one token at least.
    pub(super) fn new(rate: u64, burst: Duration) -> Self {
        let rate = u128::from(rate);
        let held = rate * u128::from(burst.as_nanos()) * u128::from(SCALE_ONE);
        let depth = held.max(MILLI_TOKEN * u128::from(TOKEN));
        Self { tokens: depth, debt: 0, depth, rate, filled: 0, filled_earned: 0 }
    }

    /// Fills it up to the reading of the clock. A head of a queue that costs more than the depth finds room
    /// for its cost. Returns the earned tokens that did not fit.
    pub(super) fn fill(&mut self, clock: &ScaledClock, head: u64) -> u128 {
        assert!(clock.time >= self.filled, "a bucket was filled by another clock that is ahead");
        let more = self.rate * (clock.time - self.filled);
        let earned = self.rate * (clock.earned - self.filled_earned);
        (self.filled, self.filled_earned) = (clock.time, clock.earned);
        let depth = self.depth.max(u128::from(head) * MILLI_TOKEN).max(self.tokens);
        let back = more.min(self.debt);
        self.debt -= back;
        let full = self.tokens + more - back;
        self.tokens = full.min(depth);
        // The margin is lost first.
        (full - self.tokens).saturating_sub(more.saturating_sub(earned))
    }

    /// Continues `old` at its own rate and depth, with the readings of this clock. Fill the old one before.
    pub(super) fn succeed(&mut self, old: &Self, clock: &ScaledClock) {
        self.tokens = old.tokens.min(self.depth);
        self.debt = old.debt.min(self.depth);
        (self.filled, self.filled_earned) = (clock.time, clock.earned);
    }

    /// Takes the cost if the bucket holds it. Fill the bucket before.
    pub(super) fn pay(&mut self, cost: u64) -> bool {
        let left = self.tokens.checked_sub(u128::from(cost) * MILLI_TOKEN);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }

    /// Takes the cost; tokens that are missing become debt.
    pub(super) fn charge(&mut self, cost: u64) {
        let cost = u128::from(cost) * MILLI_TOKEN;
        let there = cost.min(self.tokens);
        self.tokens -= there;
        self.debt = (self.debt + cost - there).min(self.depth);
    }

    /// The reading of its clock at which it holds the cost. Fill the bucket before.
    pub(super) fn ready_at(&self, cost: u64) -> ClockTime {
        let missing = (self.debt + u128::from(cost) * MILLI_TOKEN).saturating_sub(self.tokens);
        self.filled + missing.div_ceil(self.rate)
    }
}

/// Tokens that a tenant did not use, and the rate at which it may spend them.
#[derive(Clone, Debug)]
pub(super) struct BurstCredits {
    tokens: u128,
    max: u128,
    /// Tokens that the contract earns per nanosecond.
    per_nano: u128,
    /// Limits guaranteed requests and those paid from credit, together.
    pub(super) peak: Bucket,
}

impl BurstCredits {
    /// Empty credit of at most `credit` at this rate.
    pub(super) fn new(rate: u32, credit: Duration, peak_permille: u32, burst: Duration) -> Self {
        let per_nano = u128::from(rate) * u128::from(SCALE_ONE);
        let max = per_nano * u128::from(credit.as_nanos());
        let peak = u64::from(rate) * u64::from(peak_permille) / 1_000;
        Self { tokens: 0, max, per_nano, peak: Bucket::new(peak, burst) }
    }

    /// The credit as time at the contract's rate.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos((self.tokens / self.per_nano) as u64)
    }

    /// Sets the credit to what a policy before this one has left.
    pub(super) fn restore(&mut self, credit: Duration) {
        self.tokens = (self.per_nano * u128::from(credit.as_nanos())).min(self.max);
    }

    /// Continues `old`, at its own rate and up to its own maximum.
    pub(super) fn succeed(&mut self, old: &Self, clock: &ScaledClock) {
        if self.per_nano == old.per_nano {
            self.tokens = old.tokens.min(self.max);
        } else {
            self.restore(old.time());
        }
        self.peak.succeed(&old.peak, clock);
    }

    /// Adds the earned tokens that did not fit into the bucket.
    pub(super) fn add(&mut self, surplus: u128) {
        self.tokens = (self.tokens + surplus).min(self.max);
    }

    pub(super) const fn covers(&self, cost: u64) -> bool {
        self.tokens >= cost as u128 * MILLI_TOKEN
    }

    /// Takes the cost, which the credit covers.
    pub(super) const fn spend(&mut self, cost: u64) {
        assert!(self.covers(cost), "a request was paid from credit that is not there");
        self.tokens -= cost as u128 * MILLI_TOKEN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Credit that is not there cannot be spent.
    #[test]
    #[should_panic(expected = "credit that is not there")]
    fn credit_is_not_overdrawn() {
        let mut credits = BurstCredits::new(1, Duration::from_secs(1), 2_000, Duration::ZERO);
        credits.spend(1);
    }

    /// A bucket is not filled by a clock that is behind the one before.
    #[test]
    #[should_panic(expected = "another clock that is ahead")]
    fn buckets_fill_forwards() {
        let mut bucket = Bucket::new(1, Duration::ZERO);
        let mut clock = ScaledClock::new(0);
        clock.advance(Instant::from_nanos(9));
        bucket.fill(&clock, 1);
        bucket.fill(&ScaledClock::new(0), 1);
    }

    /// No scale is zero: a bucket that never fills would hold a guaranteed request for ever.
    #[test]
    #[should_panic(expected = "more than nothing")]
    fn a_clock_never_stands() {
        ScaledClock::new(0).set(0, 0);
    }
}
