//! A tenant's queue with its buckets, and where the head of the queue is listed.

use super::super::contract::{self, Contract, Tier};
use super::super::tariff::Tariff;
use super::bucket::{Bucket, BurstCredits, ClockTime, LIMIT_BURST, ScaledClock};
use super::fair_tree::Priority;
use super::window::{ClassKey, Window};
use crate::clock::Duration;
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A request in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) key: RequestKey,
    /// Milli-tokens of its tenant.
    pub(super) cost: u64,
    pub(super) bytes: u64,
    /// The objective of the contract that covers it.
    pub(super) objective: Option<u8>,
}

/// The queue of a tenant, or of all tenants past the list of contracts.
pub(super) struct TenantQueue {
    tariff: Tariff,
    /// The window's classes of each objective.
    pub(super) classes: Vec<Vec<u32>>,
    pub(super) tier: Tier,
    /// Its tokens guarantee requests.
    pub(super) bucket: Bucket,
    pub(super) credits: Option<Box<BurstCredits>>,
    pub(super) limit: Option<Bucket>,
    /// It has no burst credit, limit or group.
    pub(super) plain: bool,
    /// Its leaf in the fair tree.
    pub(super) leaf: u32,
    pub(super) requests: VecDeque<Queued>,
    /// The reading of the tier's clock at which the head is guaranteed, while it is listed by that.
    pub(super) guaranteed_at: Option<ClockTime>,
    /// The reading of the limits' clock until which a limit holds it.
    pub(super) limited_until: Option<ClockTime>,
    /// Whether a limit has held the present head.
    pub(super) was_limited: bool,
    /// The priority with which the head competes for the window.
    pub(super) priority: Option<Priority>,
}

/// The classes of the objectives of a list of contracts.
pub(super) fn class_keys<'a>(contracts: impl Iterator<Item = &'a Contract>) -> Vec<ClassKey> {
    let targets = contracts.flat_map(|contract| &contract.rows).flat_map(|row| &row.targets);
    targets.map(|target| (target.response, target.quantile_ppm)).collect()
}

impl TenantQueue {
    pub(super) fn new(contract: Option<&Contract>, leaf: u32, window: &Window) -> Self {
        let best_effort = contract::best_effort();
        let Contract { rows, burst, credit, peak_permille, limit, tier, group, .. } =
            contract.unwrap_or(&best_effort);
        let iops = rows[0].iops;
        let classes = |row: &super::super::Row| {
            let targets = row.targets.iter();
            targets.map(|target| window.class((target.response, target.quantile_ppm))).collect()
        };
        let classes = contract.map_or_else(Vec::new, |c| c.rows.iter().map(classes).collect());
        let has_credit = contract.is_some() && *credit > Duration::ZERO;
        let credits = || Box::new(BurstCredits::new(iops, *credit, *peak_permille, *burst));
        Self {
            tariff: Tariff::new(rows),
            classes,
            tier: *tier,
            bucket: Bucket::new(iops.into(), *burst),
            credits: has_credit.then(credits),
            limit: limit.map(|limit| Bucket::new(limit.into(), LIMIT_BURST)),
            plain: !has_credit && limit.is_none() && group.is_none(),
            leaf,
            requests: VecDeque::new(),
            guaranteed_at: None,
            limited_until: None,
            was_limited: false,
            priority: None,
        }
    }

    /// The weight of its leaf.
    pub(super) fn weight(contract: Option<&Contract>) -> u32 {
        contract.map_or(contract::BEST_EFFORT_IOPS, |contract| contract.weight)
    }

    /// A request of this tenant with its cost.
    pub(super) fn price(
        &self,
        key: RequestKey,
        request: &Request,
        objective: Option<u8>,
    ) -> Queued {
        Queued { key, cost: self.tariff.cost(request), bytes: request.payload(), objective }
    }

    /// The head of a queue that is listed somewhere, which is never empty.
    pub(super) fn head(&self) -> Queued {
        *self.requests.front().expect("a listed queue has a head")
    }

    /// Fills its bucket for a head of this cost; what does not fit becomes burst credit.
    pub(super) fn fill(&mut self, clock: &ScaledClock, cost: u64) {
        let surplus = self.bucket.fill(clock, cost);
        if let Some(credits) = &mut self.credits {
            credits.add(surplus);
        }
    }

    /// Fills what limits it, apart from its bucket.
    pub(super) fn fill_limits(&mut self, clock: &ScaledClock) {
        if let Some(limit) = &mut self.limit {
            limit.fill(clock, 0);
        }
        if let Some(credits) = &mut self.credits {
            credits.peak.fill(clock, 0);
        }
    }

    /// Continues the buckets and the credit of `old`, which are filled. `guarantees` is the clock of its tier.
    pub(super) fn succeed(&mut self, old: &Self, guarantees: &ScaledClock, clock: &ScaledClock) {
        self.bucket.succeed(&old.bucket, guarantees);
        if let (Some(limit), Some(old)) = (&mut self.limit, &old.limit) {
            limit.succeed(old, clock);
        }
        if let (Some(credits), Some(old)) = (&mut self.credits, &old.credits) {
            credits.succeed(old, clock);
        }
    }

    /// The priority with which a head competes for the window now.
    pub(super) fn priority_of(&mut self, clock: &ScaledClock, head: Queued) -> Priority {
        match &mut self.credits {
            Some(credits) if head.objective.is_some() && credits.covers(head.cost) => {
                credits.peak.fill(clock, head.cost);
                let above_peak = credits.peak.ready_at(head.cost) > clock.time();
                if above_peak { Priority::Excess } else { Priority::Credit }
            }
            _ => Priority::Excess,
        }
    }
}
