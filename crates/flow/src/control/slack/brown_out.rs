//! Ends the periods of 100 ms: judges objectives, and scales guarantees down while they do not fit.
//!
//! Brown-out: guarantees that do not fit the remaining capacity are scaled down by a twentieth per period,
//! bronze first, then silver, then gold, each to a fifth at most. They return by a fiftieth per period in the
//! opposite order. The margin, which admits tenants a little above their contract, is taken away first.
//!
//! Source: `docs/reference/control.md` section 11, brown-out; the order, section 12, X4; the margin, weak
//! point (b).

use super::super::Notice;
use super::super::contract::{Contract, Tier};
use super::Slack;
use super::bucket::{SCALE_ONE, ScaledClock};
use crate::clock::Instant;
use crate::request::TenantId;

/// Periods in a row in which guarantees do not fit before they are scaled.
const MISFITS: u32 = 5;

/// The smallest scale, in millionths.
const SCALE_MIN: u64 = 200_000;

/// What returns per period, in millionths.
const STEP: u64 = 20_000;

/// The tiers; the first is scaled down first.
pub(super) const TIERS: [Tier; 3] = [Tier::Bronze, Tier::Silver, Tier::Gold];

/// The clocks by which the buckets of each tier fill.
#[derive(Clone, Debug)]
pub(super) struct TierClocks {
    clocks: [ScaledClock; 3],
    scales: [u64; 3],
    /// Tiers with a tenant.
    present: [bool; 3],
    misfits: u32,
    margin_permille: u64,
    /// Whether the margin has been taken away.
    cut: bool,
}

impl TierClocks {
    pub(super) fn new<'a>(
        margin_permille: u64,
        contracts: impl Iterator<Item = &'a Contract>,
    ) -> Self {
        let mut present = [false; 3];
        for contract in contracts {
            present[contract.tier as usize] = true;
        }
        let clock = || ScaledClock::new(margin_permille);
        Self {
            clocks: [clock(), clock(), clock()],
            scales: [SCALE_ONE; 3],
            present,
            misfits: 0,
            margin_permille,
            cut: false,
        }
    }

    /// Continues the clocks and the scales of `old`. A tier without a tenant has nothing to scale.
    pub(super) fn succeed(&mut self, old: &Self) {
        let present = self.present;
        *self = Self { present, ..old.clone() };
        for (scale, present) in self.scales.iter_mut().zip(present) {
            if !present {
                *scale = SCALE_ONE;
            }
        }
    }

    pub(super) fn advance(&mut self, now: Instant) {
        for clock in &mut self.clocks {
            clock.advance(now);
        }
    }

    pub(super) const fn clock(&self, tier: Tier) -> &ScaledClock {
        &self.clocks[tier as usize]
    }

    /// Whether all contracts are guaranteed in full, with the margin.
    pub(super) fn is_full(&self) -> bool {
        !self.cut && self.misfits == 0 && self.scales == [SCALE_ONE; 3]
    }

    /// Whether a tier can be scaled down further.
    fn can_scale_down(&self) -> bool {
        self.present.iter().zip(self.scales).any(|(&present, scale)| present && scale > SCALE_MIN)
    }

    /// Ends a period in which the window was `at_floor` or not, and guarantees did not fit (`misfit`) or did.
    /// Returns the tier whose scale has changed, and the scale in millionths.
    fn end_period(&mut self, at_floor: bool, misfit: bool) -> Option<(Tier, u64)> {
        self.misfits = if misfit { self.misfits.saturating_add(1) } else { 0 };
        let tiers = TIERS.into_iter().filter(|&tier| self.present[tier as usize]);
        let scale = |tier: Tier| self.scales[tier as usize];
        let change = if self.misfits >= MISFITS {
            let mut tiers = tiers;
            let tier = tiers.find(|&tier| scale(tier) > SCALE_MIN);
            tier.map(|tier| (tier, (scale(tier) * 95 / 100).max(SCALE_MIN)))
        } else {
            let tier = tiers.rev().find(|&tier| scale(tier) < SCALE_ONE);
            tier.map(|tier| (tier, (scale(tier) + STEP).min(SCALE_ONE)))
        };
        if let Some((tier, scale)) = change {
            self.scales[tier as usize] = scale;
        }
        self.cut = at_floor || self.scales != [SCALE_ONE; 3];
        let margin = if self.cut { 0 } else { self.margin_permille };
        for (clock, scale) in self.clocks.iter_mut().zip(self.scales) {
            clock.set(scale, margin);
        }
        change
    }
}

impl Slack {
    /// Advances the clocks. They may lag while no bucket is used and no scale changes.
    pub(super) fn advance_clocks(&mut self, now: Instant) {
        self.guarantees.advance(now);
        self.clock.advance(now);
    }

    /// Ends the periods that are over: scales guarantees, grants and ends SLO waivers.
    pub(super) fn end_periods(&mut self, now: Instant) {
        while let Some(at) = self.window.period_over(now) {
            if self.window.is_settled() && self.guarantees.is_full() {
                self.window.skip_periods(now);
                break;
            }
            self.check();
            self.guarantees.advance(at);
            let outcome = self.window.period_outcome();
            let scaled = self.guarantees.end_period(outcome.at_floor, outcome.misfit);
            self.notices.extend(scaled.map(|(tier, scale)| Notice::Scaled(tier, scale as u32)));
            for (key, waived) in self.window.end_period(self.guarantees.can_scale_down()) {
                let class = self.window.class(key);
                let tenants = (0_u32..).zip(&self.tenants);
                let affected = tenants
                    .filter(|(_, tenant)| tenant.classes.iter().flatten().any(|&c| c == class));
                self.notices
                    .extend(affected.map(|(id, _)| Notice::Infeasible(TenantId::new(id), waived)));
            }
        }
    }

    /// Every queued request is counted, and its tenant competes for the window.
    fn check(&self) {
        if cfg!(debug_assertions) {
            let lengths = self.tenants.iter().map(|tenant| tenant.requests.len());
            assert_eq!(
                lengths.sum::<usize>(),
                self.queued,
                "the count of queued requests is wrong"
            );
            for tenant in &self.tenants {
                let (waits, competes) = (!tenant.requests.is_empty(), tenant.priority.is_some());
                assert_eq!(
                    waits, competes,
                    "a tenant competes exactly while it has requests queued"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Duration;
    use alloc::vec::Vec;

    /// Bronze is scaled down first and returns last, each tier to a fifth at most; the margin is gone
    /// while any tier is scaled down.
    #[test]
    fn bronze_is_scaled_down_first() {
        let mut contract = Contract::new(1, 1, Duration::from_millis(1));
        contract.tier = Tier::Bronze;
        let gold = Contract::new(1, 1, Duration::from_millis(1));
        let mut guarantees = TierClocks::new(50, [&contract, &gold].into_iter());
        let mut order = Vec::new();
        while guarantees.can_scale_down() {
            if let Some((tier, scale)) = guarantees.end_period(true, true) {
                assert!((SCALE_MIN..SCALE_ONE).contains(&scale));
                order.push(tier);
            }
        }
        assert!(order.is_sorted() && order[0] == Tier::Bronze && order.contains(&Tier::Gold));
        assert_eq!(order.len(), 2 * 32, "0.95 to the 32nd is less than a fifth");
        let mut back = Vec::new();
        while let Some((tier, _)) = guarantees.end_period(false, false) {
            assert!(!guarantees.is_full() || back.len() == 79);
            back.push(tier);
        }
        assert_eq!(back.len(), 80, "forty steps of a fiftieth each");
        assert!(back.iter().rev().is_sorted() && guarantees.is_full());
    }

    /// At the floor of the window the margin is taken away at once, and given back above it.
    #[test]
    fn the_margin_goes_first() {
        let gold = Contract::new(1, 1, Duration::from_millis(1));
        let mut guarantees = TierClocks::new(50, [&gold].into_iter());
        guarantees.advance(Instant::from_nanos(1_000));
        assert_eq!(guarantees.end_period(true, false), None);
        guarantees.advance(Instant::from_nanos(2_000));
        assert_eq!(guarantees.clock(Tier::Gold).time(), u128::from((1_050 + 1_000) * SCALE_ONE));
        assert_eq!(guarantees.end_period(false, false), None);
        assert!(guarantees.is_full());
    }
}
