//! Releases requests: those that are guaranteed, then those that a group lends for, then credit and excess
//! within the window.

use super::super::RULE_BUCKET;
use super::super::contract::Tier;
use super::Slack;
use super::brown_out::TIERS;
use super::fair_tree::{Priority, ROOT};
use super::tenant::Queued;
use crate::clock::Instant;
use crate::policy::Rule;
use crate::request::RequestKey;

pub(super) const WINDOW: Rule = Rule(&"control/window");
const CREDIT: Rule = Rule(&"control/credit");
const GROUP: Rule = Rule(&"control/group");
const LIMIT: Rule = Rule(&"control/limit");

/// What pays for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The bucket of its tenant.
    Guaranteed,
    /// The bucket of this group, which another member leaves unused.
    Borrowed(u32),
    /// Burst credit, within the window.
    Credit,
    /// Nothing: the window has room.
    Excess,
}

impl Slack {
    /// Whether no request is queued, and no list has a tenant or group left from one that was.
    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0
            && self.limited.is_empty()
            && self.lenders.is_empty()
            && self.credit_due.is_empty()
    }

    /// Whether no tenant has an objective and no request is queued. Then nothing is measured, and the
    /// tenants that queue later start equal.
    pub(super) fn is_unpromised(&self) -> bool {
        !self.window.has_objectives() && self.is_idle()
    }

    /// Releases a request on arrival if no request is queued, its tenant is plain, and the bucket or the
    /// window has room. Otherwise it must be queued. It leaves the same state as the queue would.
    pub(super) fn release_on_arrival(&mut self, now: Instant, index: usize, head: Queued) -> bool {
        if !self.is_idle() || !self.tenants[index].plain {
            return false;
        }
        if head.objective.is_some() {
            self.advance_clocks(now);
            let tenant = &mut self.tenants[index];
            tenant.fill(self.guarantees.clock(tenant.tier), head.cost);
            if tenant.bucket.pay(head.cost) {
                self.send(head.key, head.objective, RULE_BUCKET);
                return true;
            }
        }
        if !self.window.has_room(self.inflight.len() as u32) {
            return false;
        }
        self.tree.charge(self.tenants[index].leaf, ROOT, |_| head.cost);
        self.send(head.key, None, WINDOW);
        true
    }

    /// Releases every request that may go now.
    pub(super) fn release_due(&mut self, now: Instant) {
        if self.is_idle() {
            return;
        }
        self.advance_clocks(now);
        self.sweep(now);
        // A head that went for another reason may have stood before one that the bucket covers.
        while self.covers_a_head() {
            self.sweep(now);
        }
    }

    /// Whether the bucket of some tenant covers its head.
    fn covers_a_head(&self) -> bool {
        let mut firsts =
            TIERS.into_iter().map(|tier| (tier, self.guaranteed[tier as usize].first()));
        firsts.any(|(tier, first)| {
            first.is_some_and(|&(at, _)| at <= self.guarantees.clock(tier).time())
        })
    }

    /// Does the steps of a release once, in the order of the classes.
    fn sweep(&mut self, now: Instant) {
        self.resume_limited();
        self.release_guaranteed();
        self.release_borrowed();
        while let Some(&(at, index)) = self.credit_due.first()
            && at <= self.clock.time()
        {
            self.credit_due.pop_first();
            self.list_head(index);
        }
        self.release_within_window(now);
    }

    /// Gold first.
    fn release_guaranteed(&mut self) {
        for tier in TIERS.into_iter().rev() {
            let time = self.guarantees.clock(tier).time();
            while let Some(&(at, index)) = self.guaranteed[tier as usize].first()
                && at <= time
            {
                if self.hold_if_limited(index) {
                    continue;
                }
                let tenant = &mut self.tenants[index as usize];
                let head = tenant.head();
                tenant.fill(self.guarantees.clock(tier), head.cost);
                assert!(
                    tenant.bucket.pay(head.cost),
                    "the clock has reached the time at which the bucket holds the cost"
                );
                self.release(index, Class::Guaranteed);
            }
        }
    }

    fn release_within_window(&mut self, now: Instant) {
        while self.tree.has_competitor(ROOT) {
            if !self.window.has_room(self.inflight.len() as u32) {
                self.window.set_full(now);
                return;
            }
            let (leaf, priority) = self.tree.next(ROOT).expect("a leaf competes");
            let index = self.tenant_of(leaf).expect("a leaf is a tenant's");
            if !self.hold_if_limited(index) {
                self.release(
                    index,
                    match priority {
                        Priority::Credit => Class::Credit,
                        Priority::Excess => Class::Excess,
                    },
                );
            }
        }
    }

    /// Lists the head of a queue by when it is guaranteed and by its priority. Call it when the head or what
    /// pays for it has changed.
    pub(super) fn list_head(&mut self, index: u32) {
        let tenant = &mut self.tenants[index as usize];
        let guaranteed = &mut self.guaranteed[tenant.tier as usize];
        if let Some(at) = tenant.guaranteed_at.take() {
            guaranteed.remove(&(at, index));
        }
        let Some(&head) = tenant.requests.front() else {
            if tenant.priority.take().is_some() {
                self.tree.set_priority(tenant.leaf, None);
            }
            return;
        };
        tenant.fill(self.guarantees.clock(tenant.tier), head.cost);
        if head.objective.is_some() && tenant.limited_until.is_none() {
            let at = tenant.bucket.ready_at(head.cost);
            tenant.guaranteed_at = Some(at);
            guaranteed.insert((at, index));
        }
        let priority = tenant.priority_of(&self.clock, head);
        if priority == Priority::Excess
            && let Some(credits) = &tenant.credits
            && credits.covers(head.cost)
        {
            self.credit_due.insert((credits.peak.ready_at(head.cost), index));
        }
        if tenant.priority != Some(priority) {
            tenant.priority = Some(priority);
            self.tree.set_priority(tenant.leaf, Some(priority));
        }
        let leaf = tenant.leaf;
        self.list_lenders(self.tree.parent(leaf));
    }

    /// Releases the head of a queue and charges everything that pays for it.
    pub(super) fn release(&mut self, index: u32, class: Class) {
        let tenant = &mut self.tenants[index as usize];
        let head = tenant.requests.pop_front().expect("a listed queue has a head");
        let (leaf, cost) = (tenant.leaf, head.cost);
        let was_limited = core::mem::take(&mut tenant.was_limited);
        assert!(self.queued > 0, "a request was released that is not counted");
        self.queued -= 1;
        if let Some(limit) = &mut tenant.limit {
            limit.charge(cost);
        }
        if let Some(credits) = &mut tenant.credits {
            if class == Class::Credit {
                credits.spend(cost);
            }
            if class != Class::Excess {
                credits.peak.fill(&self.clock, cost);
                credits.peak.charge(cost);
            }
        }
        // The groups below a lender have no tokens left to pay with.
        let mut node = self.tree.parent(leaf);
        let mut pays = class == Class::Guaranteed;
        while node != ROOT {
            pays |= class == Class::Borrowed(node);
            let group = &mut self.groups[node as usize - 1];
            let cost = group.cost(head.bytes);
            if pays {
                group.bucket.fill(self.guarantees.clock(Tier::Gold), cost);
                group.bucket.charge(cost);
            }
            if let Some(limit) = &mut group.limit {
                limit.charge(cost);
            }
            node = self.tree.parent(node);
        }
        // Below which node the fair tree is charged.
        let (rule, top) = match class {
            Class::Guaranteed => (RULE_BUCKET, None),
            Class::Borrowed(node) => (GROUP, Some(node)),
            Class::Credit => (CREDIT, Some(ROOT)),
            Class::Excess => (WINDOW, Some(ROOT)),
        };
        if let Some(top) = top {
            let groups = &self.groups;
            let cost = |node: u32| match groups.get(node as usize - 1) {
                Some(group) => group.cost(head.bytes),
                None => cost,
            };
            self.tree.charge(leaf, top, cost);
        }
        let objective = head.objective.filter(|_| class == Class::Guaranteed);
        self.send(head.key, objective, if was_limited { LIMIT } else { rule });
        self.list_head(index);
    }

    /// Sends a request to the devices; `objective` is the one under which it was guaranteed.
    pub(super) fn send(&mut self, key: RequestKey, objective: Option<u8>, rule: Rule) {
        self.inflight.insert(key, objective);
        self.ready.push_back((key, rule));
    }
}
