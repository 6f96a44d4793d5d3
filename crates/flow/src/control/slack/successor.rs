//! Puts other contracts into force and keeps what does not depend on those that changed.
//!
//! A change of one contract must not cost other tenants a thing. So buckets, credits, limits and fair tags stay as they
//! are: a new bucket would be full, and each change would give every tenant a burst beyond its contract. The windows of
//! objectives stay, and stay active: without an active window, excess goes to the devices until the next guaranteed
//! request has ended. Brown-out and SLO waivers last. The window of a new objective starts from the nearest one that was
//! there, by the ratio of their times, since response times grow with the window.

use super::super::Promises;
use super::super::contract::Tier;
use super::Slack;
use crate::clock::Instant;

impl Slack {
    /// Other contracts are in force from now on. Queues are empty afterwards.
    pub(super) fn succeed(&mut self, now: Instant, list: &Promises) {
        self.end_periods(now);
        self.advance_clocks(now);
        let mut next = Self::new(self.window.settings(), list);
        next.clock = self.clock.clone();
        next.guarantees.succeed(&self.guarantees);
        next.window.succeed(&self.window, now);
        let (own, others) = (next.tenants.len() - 1, self.tenants.len() - 1);
        let old_index = |index: usize| if index == own { others } else { index };
        for (index, tenant) in next.tenants.iter_mut().enumerate() {
            // A tenant that was not in the list was one of those past it.
            let old = &mut self.tenants[old_index(index).min(others)];
            old.fill(self.guarantees.clock(old.tier), 0);
            old.fill_limits(&self.clock);
            tenant.succeed(old, next.guarantees.clock(tenant.tier), &next.clock);
        }
        let gold = next.guarantees.clock(Tier::Gold);
        for (group, old) in next.groups.iter_mut().zip(&mut self.groups) {
            old.fill(self.guarantees.clock(Tier::Gold), &self.clock);
            group.succeed(old, gold, &next.clock);
        }
        let (groups, old_groups) = (next.groups.len() as u32, self.groups.len() as u32);
        let old_node = |node: u32| match node.checked_sub(groups + 1) {
            None => Some(node).filter(|&node| node <= old_groups),
            Some(index) if index as usize == own => Some(old_groups + 1 + others as u32),
            Some(index) => Some(old_groups + 1 + index).filter(|_| (index as usize) < others),
        };
        next.tree.succeed(&self.tree, old_node);
        next.inflight = core::mem::take(&mut self.inflight);
        for (key, _) in &self.ready {
            next.inflight.remove(*key);
        }
        next.notices = core::mem::take(&mut self.notices);
        *self = next;
        assert!(self.queued == 0 && self.ready.is_empty(), "queued requests arrive again");
    }
}
