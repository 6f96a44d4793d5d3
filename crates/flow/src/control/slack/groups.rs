//! Groups of tenants: their budgets, what they lend to their members, and limits of tenants and groups.

use super::super::contract::{Group, TOKEN, Tier, by_size};
use super::Slack;
use super::bucket::{Bucket, ClockTime, LIMIT_BURST, ScaledClock};
use super::fair_tree::ROOT;
use super::schedule::Class;

/// What the members of a group reserve together.
pub(super) struct GroupBudget {
    size: u32,
    pub(super) bucket: Bucket,
    pub(super) limit: Option<Bucket>,
    /// The reading of the gold clock at which it may lend, while a member wants to borrow.
    lends_at: Option<ClockTime>,
    /// The reading of the limits' clock until which its limit holds it.
    limited_until: Option<ClockTime>,
}

impl GroupBudget {
    pub(super) fn new(group: &Group) -> Self {
        Self {
            size: group.size,
            bucket: Bucket::new(group.iops.into(), LIMIT_BURST),
            limit: group.limit.map(|limit| Bucket::new(limit.into(), LIMIT_BURST)),
            lends_at: None,
            limited_until: None,
        }
    }

    /// Fills its budget and its limit.
    pub(super) fn fill(&mut self, guarantees: &ScaledClock, clock: &ScaledClock) {
        self.bucket.fill(guarantees, 0);
        if let Some(limit) = &mut self.limit {
            limit.fill(clock, 0);
        }
    }

    /// Continues the budget and the limit of `old`, which are filled.
    pub(super) fn succeed(&mut self, old: &Self, guarantees: &ScaledClock, clock: &ScaledClock) {
        self.bucket.succeed(&old.bucket, guarantees);
        if let (Some(limit), Some(old)) = (&mut self.limit, &old.limit) {
            limit.succeed(old, clock);
        }
    }

    /// The cost of a request in milli-tokens of the group.
    pub(super) fn cost(&self, bytes: u64) -> u64 {
        by_size(bytes, self.size)
    }
}

/// Lending: tokens that a group's members do not use pay for requests of other members.
impl Slack {
    /// Lists a group and those above it as lenders, at the time at which they have a token.
    pub(super) fn list_lenders(&mut self, node: u32) {
        let mut node = node;
        while node != ROOT {
            let group = &mut self.groups[node as usize - 1];
            if group.lends_at.is_none() && self.tree.has_competitor(node) {
                group.bucket.fill(self.guarantees.clock(Tier::Gold), TOKEN);
                let at = group.bucket.ready_at(TOKEN);
                group.lends_at = Some(at);
                self.lenders.insert((at, node));
            }
            node = self.tree.parent(node);
        }
    }

    /// Releases the requests that groups lend tokens for now.
    pub(super) fn release_borrowed(&mut self) {
        while let Some(&(at, node)) = self.lenders.first()
            && at <= self.guarantees.clock(Tier::Gold).time()
        {
            self.lenders.pop_first();
            self.groups[node as usize - 1].lends_at = None;
            let Some((leaf, _)) = self.tree.next(node) else { continue };
            let index = self.tenant_of(leaf).expect("a leaf is a tenant's");
            let head = self.tenants[index as usize].head();
            if self.hold_if_limited(index) {
                self.list_lenders(node);
                continue;
            }
            let group = &mut self.groups[node as usize - 1];
            let cost = group.cost(head.bytes);
            group.bucket.fill(self.guarantees.clock(Tier::Gold), cost);
            let at = group.bucket.ready_at(cost);
            if at <= self.guarantees.clock(Tier::Gold).time() {
                self.release(index, Class::Borrowed(node));
                self.list_lenders(node);
            } else {
                group.lends_at = Some(at);
                self.lenders.insert((at, node));
            }
        }
    }
}

/// Limits hold every request, guaranteed or not.
impl Slack {
    /// Whether a limit holds the head of a queue. If so, the tenant or group with that limit is left out
    /// until the limit admits the head.
    pub(super) fn hold_if_limited(&mut self, index: u32) -> bool {
        let tenant = &mut self.tenants[index as usize];
        let head = tenant.head();
        let (leaf, mut found) = (tenant.leaf, None);
        if let Some(limit) = &mut tenant.limit {
            limit.fill(&self.clock, head.cost);
            found = Some((limit.ready_at(head.cost), leaf));
        }
        let mut node = self.tree.parent(leaf);
        while node != ROOT {
            let group = &mut self.groups[node as usize - 1];
            let cost = group.cost(head.bytes);
            if let Some(limit) = &mut group.limit {
                limit.fill(&self.clock, cost);
                found = found.max(Some((limit.ready_at(cost), node)));
            }
            node = self.tree.parent(node);
        }
        let Some((until, node)) = found.filter(|&(until, _)| until > self.clock.time()) else {
            return false;
        };
        self.hold(node, until);
        // Guaranteed requests pass the tree, so the tenant itself must be held as well.
        self.hold(leaf, until);
        true
    }

    fn hold(&mut self, node: u32, until: ClockTime) {
        let held = match self.tenant_of(node) {
            Some(index) => {
                let tenant = &mut self.tenants[index as usize];
                if let Some(at) = tenant.guaranteed_at.take() {
                    self.guaranteed[tenant.tier as usize].remove(&(at, index));
                }
                tenant.was_limited = true;
                &mut tenant.limited_until
            }
            None => &mut self.groups[node as usize - 1].limited_until,
        };
        if held.is_none() {
            *held = Some(until);
            self.limited.insert((until, node));
            self.tree.suspend(node, true);
        }
    }

    /// Lets tenants and groups compete again whose limits admit a request.
    pub(super) fn resume_limited(&mut self) {
        while let Some(&(until, node)) = self.limited.first()
            && until <= self.clock.time()
        {
            self.limited.pop_first();
            self.tree.suspend(node, false);
            if let Some(index) = self.tenant_of(node) {
                self.tenants[index as usize].limited_until = None;
                self.list_head(index);
            } else {
                self.groups[node as usize - 1].limited_until = None;
                self.list_lenders(node);
            }
        }
    }
}
