//! What marks a request as guaranteed.

use super::super::contract::TOKEN;
use super::Settings;
use super::window::WHOLE;
use crate::clock::{Duration, Instant};

/// A bucket that fills continuously. It marks requests; it does not hold them.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    /// In 10^-18 tokens: thousandths of the margin, millionths of the scale, nanoseconds.
    tokens: u128,
    depth: u128,
    /// Tokens per second, in thousandths.
    rate: u128,
    filled: Instant,
}

/// A milli-token in the units of a [`Marker`].
const MILLI: u128 = 1_000_000_000_000_000;

impl Marker {
    /// A full one. It holds at least a token.
    pub(super) fn new(iops: u32, settings: &Settings) -> Self {
        let burst = u128::from(iops) * u128::from(settings.burst.as_nanos()) * 1_000_000_000;
        let depth = burst.max(MILLI * u128::from(TOKEN));
        let rate = u128::from(iops) * u128::from(1_000 + settings.margin_permille);
        Self { tokens: depth, depth, rate, filled: Instant::ZERO }
    }

    /// Fills it up to `now`; a head that costs more than it holds finds room for its cost.
    pub(super) fn fill(&mut self, now: Instant, scale: u64, head: Option<u64>) {
        let passed = now.saturating_since(self.filled).as_nanos();
        let more = self.rate * u128::from(scale) * u128::from(passed);
        let depth = self.depth.max(u128::from(head.unwrap_or(0)) * MILLI);
        self.tokens = (self.tokens + more).min(depth.max(self.tokens));
        self.filled = self.filled.max(now);
    }

    pub(super) fn pay(&mut self, now: Instant, scale: u64, cost: u64) -> bool {
        self.fill(now, scale, Some(cost));
        let cost = u128::from(cost) * MILLI;
        let pays = self.tokens >= cost;
        if pays {
            self.tokens -= cost;
        }
        pays
    }

    /// When it holds so much, if the scale stays as it is.
    pub(super) fn holds(&self, cost: u64, scale: u64) -> Instant {
        let missing = (u128::from(cost) * MILLI).saturating_sub(self.tokens);
        let nanos = missing.div_ceil(self.rate * u128::from(scale.min(WHOLE)));
        self.filled
            + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4).min(u64::MAX / 4))
    }
}
