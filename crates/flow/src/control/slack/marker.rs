//! What is guaranteed, saved and capped: buckets that fill continuously, on clocks that can be slowed.

use super::super::contract::TOKEN;
use crate::clock::{Duration, Instant};

/// Time at a scale: what a bucket's rate is multiplied with. In nanoseconds times millionths.
pub(super) type Passed = u128;

/// The scale of a clock that keeps time, in millionths.
pub(super) const WHOLE: u64 = 1_000_000;

/// A milli-token in the units of a [`Marker`].
const MILLI: u128 = 1_000_000_000 * WHOLE as u128 / TOKEN as u128;

/// A clock that runs at a scale. Buckets read it when they are looked at, so that a change of the scale
/// touches none of them.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    at: Instant,
    passed: Passed,
    /// The same without the margin: what a tenant is owed, not what it is allowed.
    earned: Passed,
    scale: u64,
    /// The scale with the margin.
    speed: u64,
}

impl Clock {
    /// At whole scale, with this margin on top.
    pub(super) const fn new(margin_permille: u64) -> Self {
        let mut clock = Self { at: Instant::ZERO, passed: 0, earned: 0, scale: 0, speed: 0 };
        clock.set(WHOLE, margin_permille);
        clock
    }

    pub(super) fn advance(&mut self, now: Instant) {
        let time = u128::from(now.saturating_since(self.at).as_nanos());
        self.passed += time * u128::from(self.speed);
        self.earned += time * u128::from(self.scale);
        self.at = self.at.max(now);
    }

    /// From where it stands it runs at another scale, with another margin.
    pub(super) const fn set(&mut self, scale: u64, margin_permille: u64) {
        self.scale = scale;
        self.speed = scale * (1_000 + margin_permille) / 1_000;
    }

    pub(super) const fn passed(&self) -> Passed {
        self.passed
    }

    /// When so much has passed, at the scale of now.
    pub(super) fn when(&self, passed: Passed) -> Instant {
        let nanos = passed.saturating_sub(self.passed).div_ceil(self.speed.into());
        self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(FAR).min(FAR))
    }
}

/// A wait that is longer than anything lives, in nanoseconds.
const FAR: u64 = u64::MAX / 4;

/// A bucket of tokens. It marks requests; it does not hold them.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    /// In tokens over 10^15: nanoseconds times millionths.
    tokens: u128,
    /// What has been taken that was not there: paid back before anything else, at most `depth`.
    debt: u128,
    depth: u128,
    /// Tokens per second.
    rate: u128,
    passed: Passed,
    earned: Passed,
}

impl Marker {
    /// A full one that holds what comes in `burst`, but a token at least.
    pub(super) fn new(rate: u64, burst: Duration) -> Self {
        let rate = u128::from(rate);
        let held = rate * u128::from(burst.as_nanos()) * u128::from(WHOLE);
        let depth = held.max(MILLI * u128::from(TOKEN));
        Self { tokens: depth, debt: 0, depth, rate, passed: 0, earned: 0 }
    }

    /// Fills it up to where the clock stands; a head that costs more than it holds finds room for its
    /// cost. Gives what was owed and did not fit.
    pub(super) fn fill(&mut self, clock: &Clock, head: u64) -> u128 {
        let more = self.rate * (clock.passed - self.passed);
        let owed = self.rate * (clock.earned - self.earned);
        (self.passed, self.earned) = (clock.passed, clock.earned);
        let depth = self.depth.max(u128::from(head) * MILLI).max(self.tokens);
        let back = more.min(self.debt);
        self.debt -= back;
        let full = self.tokens + more - back;
        self.tokens = full.min(depth);
        // The margin is lost first.
        (full - self.tokens).saturating_sub(more.saturating_sub(owed))
    }

    /// Pays, if it holds the cost. Filled before.
    pub(super) fn pay(&mut self, cost: u64) -> bool {
        let left = self.tokens.checked_sub(u128::from(cost) * MILLI);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }

    /// Takes the cost, whether it is there or not.
    pub(super) fn drain(&mut self, cost: u64) {
        let cost = u128::from(cost) * MILLI;
        let there = cost.min(self.tokens);
        self.tokens -= there;
        self.debt = (self.debt + cost - there).min(self.depth);
    }

    /// Where the clock stands when it holds the cost. Filled before.
    pub(super) fn holds(&self, cost: u64) -> Passed {
        let missing = (self.debt + u128::from(cost) * MILLI).saturating_sub(self.tokens);
        self.passed + missing.div_ceil(self.rate)
    }
}

/// What a tenant has not used, and the speed at which it may be spent.
#[derive(Clone, Debug)]
pub(super) struct Savings {
    tokens: u128,
    most: u128,
    /// What a nanosecond of the contract is worth.
    worth: u128,
    /// What is guaranteed and what is saved, together.
    pub(super) peak: Marker,
}

impl Savings {
    /// None yet, of at most `credit` at this rate.
    pub(super) fn new(rate: u32, credit: Duration, peak_permille: u32, burst: Duration) -> Self {
        let worth = u128::from(rate) * u128::from(WHOLE);
        let most = worth * u128::from(credit.as_nanos());
        let peak = u64::from(rate) * u64::from(peak_permille) / 1_000;
        Self { tokens: 0, most, worth, peak: Marker::new(peak, burst) }
    }

    /// What they are, as time at the contract's rate.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos((self.tokens / self.worth) as u64)
    }

    /// Begins with so much.
    pub(super) fn begin(&mut self, saved: Duration) {
        self.tokens = (self.worth * u128::from(saved.as_nanos())).min(self.most);
    }

    /// Puts aside what did not fit into the bucket.
    pub(super) fn save(&mut self, surplus: u128) {
        self.tokens = (self.tokens + surplus).min(self.most);
    }

    pub(super) const fn hold(&self, cost: u64) -> bool {
        self.tokens >= cost as u128 * MILLI
    }

    pub(super) const fn spend(&mut self, cost: u64) {
        self.tokens = self.tokens.saturating_sub(cost as u128 * MILLI);
    }
}
