//! How much of the guarantees holds: the clocks that buckets fill by.
//!
//! When they do not fit what is left of the capacity they are scaled down by a twentieth every 100 ms,
//! bronze first, then silver, then gold, each to a fifth at most, and come back by a fiftieth every
//! 100 ms in the opposite order. The margin that lets tenants come a little faster than promised is taken
//! away before anything else.
//!
//! Source: `docs/reference/control.md` section 11, brown-out; the order, section 12, X4; the margin, weak point (b).

use super::super::contract::{Contract, Tier};
use super::marker::{Clock, WHOLE};
use crate::clock::Instant;

/// Periods in a row in which guarantees do not fit, before they are scaled.
const MISFITS: u32 = 5;

/// The least scale.
const SCALE_MIN: u64 = 200_000;

/// What comes back in a period.
const STEP: u64 = 20_000;

/// Tiers, the first to give way first.
pub(super) const TIERS: [Tier; 3] = [Tier::Bronze, Tier::Silver, Tier::Gold];

/// The clocks of the tiers.
#[derive(Clone, Debug)]
pub(super) struct Guarantees {
    clocks: [Clock; 3],
    scales: [u64; 3],
    /// Tiers that somebody is in.
    present: [bool; 3],
    misfits: u32,
    margin_permille: u64,
    /// Whether the margin has been taken away.
    cut: bool,
}

impl Guarantees {
    pub(super) fn new<'a>(
        margin_permille: u64,
        contracts: impl Iterator<Item = &'a Contract>,
    ) -> Self {
        let mut present = [false; 3];
        for contract in contracts {
            present[contract.tier as usize] = true;
        }
        let clock = || Clock::new(margin_permille);
        Self {
            clocks: [clock(), clock(), clock()],
            scales: [WHOLE; 3],
            present,
            misfits: 0,
            margin_permille,
            cut: false,
        }
    }

    pub(super) fn advance(&mut self, now: Instant) {
        for clock in &mut self.clocks {
            clock.advance(now);
        }
    }

    pub(super) const fn clock(&self, tier: Tier) -> &Clock {
        &self.clocks[tier as usize]
    }

    /// Whether everything is guaranteed that was promised, and the margin.
    pub(super) fn whole(&self) -> bool {
        !self.cut && self.misfits == 0 && self.scales == [WHOLE; 3]
    }

    /// Whether less could be guaranteed than is.
    pub(super) fn can_give(&self) -> bool {
        self.present.iter().zip(self.scales).any(|(&present, scale)| present && scale > SCALE_MIN)
    }

    /// A period has ended in which the window was at its floor or not, and guarantees did not fit or did.
    /// Gives the tier whose scale has changed, in millionths.
    pub(super) fn judge(&mut self, floor: bool, misfit: bool) -> Option<(Tier, u64)> {
        self.misfits = if misfit { self.misfits.saturating_add(1) } else { 0 };
        let tiers = TIERS.into_iter().filter(|&tier| self.present[tier as usize]);
        let scale = |tier: Tier| self.scales[tier as usize];
        let change = if self.misfits >= MISFITS {
            let mut tiers = tiers;
            let tier = tiers.find(|&tier| scale(tier) > SCALE_MIN);
            tier.map(|tier| (tier, (scale(tier) * 95 / 100).max(SCALE_MIN)))
        } else {
            let tier = tiers.rev().find(|&tier| scale(tier) < WHOLE);
            tier.map(|tier| (tier, (scale(tier) + STEP).min(WHOLE)))
        };
        if let Some((tier, scale)) = change {
            self.scales[tier as usize] = scale;
        }
        self.cut = floor || self.scales != [WHOLE; 3];
        let margin = if self.cut { 0 } else { self.margin_permille };
        for (clock, scale) in self.clocks.iter_mut().zip(self.scales) {
            clock.set(scale, margin);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Duration;
    use alloc::vec::Vec;

    /// Bronze gives way first and comes back last, each tier to a fifth at most, and the margin is gone
    /// while anything is.
    #[test]
    fn bronze_gives_way_first() {
        let mut contract = Contract::new(1, 1, Duration::from_millis(1));
        contract.tier = Tier::Bronze;
        let gold = Contract::new(1, 1, Duration::from_millis(1));
        let mut guarantees = Guarantees::new(50, [&contract, &gold].into_iter());
        let mut order = Vec::new();
        while guarantees.can_give() {
            if let Some((tier, scale)) = guarantees.judge(true, true) {
                assert!((SCALE_MIN..WHOLE).contains(&scale));
                order.push(tier);
            }
        }
        assert!(order.is_sorted() && order[0] == Tier::Bronze && order.contains(&Tier::Gold));
        assert_eq!(order.len(), 2 * 32, "0.95 to the 32nd is less than a fifth");
        let mut back = Vec::new();
        while let Some((tier, _)) = guarantees.judge(false, false) {
            assert!(!guarantees.whole() || back.len() == 79);
            back.push(tier);
        }
        assert_eq!(back.len(), 80, "forty steps of a fiftieth each");
        assert!(back.iter().rev().is_sorted() && guarantees.whole());
    }

    /// At the floor of the window the margin is taken away at once, and given back behind it.
    #[test]
    fn the_margin_goes_first() {
        let gold = Contract::new(1, 1, Duration::from_millis(1));
        let mut guarantees = Guarantees::new(50, [&gold].into_iter());
        guarantees.advance(Instant::from_nanos(1_000));
        assert_eq!(guarantees.judge(true, false), None);
        guarantees.advance(Instant::from_nanos(2_000));
        assert_eq!(guarantees.clock(Tier::Gold).passed(), u128::from((1_050 + 1_000) * WHOLE));
        assert_eq!(guarantees.judge(false, false), None);
        assert!(guarantees.whole());
    }
}
