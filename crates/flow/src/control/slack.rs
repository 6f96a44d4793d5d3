//! # Control policy: slack window (TA4)
//!
//! Releases guaranteed requests at once and all others within a window that keeps the objectives.
//!
//! | | |
//! |---|---|
//! | Model    | a head whose bucket holds its cost pays and goes (guaranteed); any other head goes while fewer than W requests are at the devices: those paid from burst credit first, then the smallest start tag (excess). A guaranteed ending after more than `theta` of its objective's time with quantile q: `ln W -= kappa q / inflight`; any other, while W has held a request: `ln W += kappa (1 - q) / inflight`. Each class of objectives has such a W; the smallest counts |
//! | Credit   | what overflows the bucket, up to `credit`; spent at up to `peak` times the contract |
//! | Groups   | the groups above pay for a guaranteed request as well; tokens that a group's members do not use it lends to others of them. Limits of tenants and groups hold everything |
//! | Units    | buckets in 10^-15 tokens, `ln W` in 2^-48, start tags in 2^-40 s: exact or cut there |
//! | Ties     | the lowest tenant; within a tenant, order of arrival |
//! | Cost     | O(log(tenants) * levels of groups) per request and ending; O(objectives) every 100 ms |
//! | Source   | `docs/reference/control.md` sections 11 and 12, X1 to X4 |
//! | Not when | requests of a tenant must not be delayed even in excess, or objectives are far from what the device can do |
//!
//! A tenant without a contract is always excess; it shares what is left with the weight of 100 requests of
//! 4 KiB a second. So are requests that no objective of the contract covers.
//!
//! ```text
//!  arrive ─┐             ┌─ tenant.rs ─────────────┐    bucket.rs: buckets, credits, clocks
//!  complete├─> slack.rs ─┤ queue, bucket, credits, │    groups.rs: budgets and limits of groups
//!  deadline┘             │ limit of each tenant    │    fair_tree.rs: start tags of tenants and groups
//!                        └─────────────────────────┘    window.rs: W of each class, the effective W
//!                                                       successor.rs: what outlives a change of contracts
//!
//!  One decision, in this order:
//!   1  end_periods          every 100 ms: SLO waivers (window.rs), scales of the tiers   brown_out.rs
//!   2  count_ending, update a guaranteed ending moves its W; the smallest active W       window.rs
//!   3  release_on_arrival   nothing is queued: bucket or window at once, skip 4 to 9     schedule.rs
//!   4  advance_clocks       buckets fill by these                                        brown_out.rs
//!   5  resume_limited       limits that admit a request again                            groups.rs
//!   6  release_guaranteed   heads that their bucket covers; gold, silver, bronze         schedule.rs
//!   7  release_borrowed     heads that a group lends tokens for                          groups.rs
//!   8  release_within_window  credit, then excess, by start tag while W has room         schedule.rs
//!   9  release, list_head   charges what pays; lists the next head for 5 to 8            schedule.rs
//! ```

mod brown_out;
mod bucket;
mod fair_tree;
mod groups;
mod schedule;
mod settings;
mod successor;
mod tenant;
mod window;

use self::brown_out::{TIERS, TierClocks};
use self::bucket::{ClockTime, ScaledClock};
use self::fair_tree::{FairTree, ROOT};
use self::groups::GroupBudget;
use self::schedule::WINDOW;
use self::settings::Settings;
use self::tenant::TenantQueue;
use self::window::Window;
use super::contract::{Contract, Tier};
use super::{Build, ControlPolicy, Notice, PolicyHandover, Promises, contract};
use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Policy, Property, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "slack",
    summary: "guaranteed requests go at once, all others within a window that keeps the objectives (TA4)",
    properties: &[Property::KeepsOrder, Property::WorkConserving],
    parameters: settings::PARAMETERS,
    build: |values, list| Box::new(Slack::new(Settings::from(values), list)),
};

struct Slack {
    /// By tenant id; the last is for all tenants past the list of contracts.
    tenants: Vec<TenantQueue>,
    groups: Vec<GroupBudget>,
    /// The root, then the groups, then the tenants.
    tree: FairTree,
    guarantees: TierClocks,
    /// The clock of limits and peaks, which are not scaled.
    clock: ScaledClock,
    window: Window,
    /// Tenants by the time at which their head is guaranteed, by tier.
    guaranteed: [BTreeSet<(ClockTime, u32)>; 3],
    /// Nodes of groups by the time at which they may lend, while a member wants to borrow.
    lenders: BTreeSet<(ClockTime, u32)>,
    /// Tenants with credit that is spent at its peak, by the time at which they may spend more.
    credit_due: BTreeSet<(ClockTime, u32)>,
    /// Nodes that a limit holds, by the time until which it does.
    limited: BTreeSet<(ClockTime, u32)>,
    /// Requests in the queues of all tenants.
    queued: usize,
    /// Requests at the devices, and the objective under which each was guaranteed.
    inflight: SecondaryMap<RequestKey, Option<u8>>,
    /// Released requests that `poll` has not returned yet.
    ready: VecDeque<(RequestKey, Rule)>,
    notices: VecDeque<Notice>,
}

impl Slack {
    fn new(settings: Settings, list: &Promises) -> Self {
        let Promises { contracts, groups } = list;
        let present = || contracts.iter().flatten();
        let window = Window::new(settings, tenant::class_keys(present()));
        let mut tree = FairTree::new();
        // A group comes after its parent, so that its node does too.
        let node = |group: Option<u32>| group.map_or(ROOT, |group| group + 1);
        for group in groups {
            tree.add(node(group.parent), group.weight);
        }
        let groups = groups.iter().map(GroupBudget::new).collect();
        let mut tenant = |contract: Option<&Contract>| {
            let above = node(contract.and_then(|contract| contract.group));
            let leaf = tree.add(above, TenantQueue::weight(contract));
            TenantQueue::new(contract, leaf, &window)
        };
        let tenants = contracts.iter().map(Option::as_ref).chain([None]).map(&mut tenant).collect();
        Self {
            tenants,
            groups,
            tree,
            guarantees: TierClocks::new(settings.margin_permille, present()),
            clock: ScaledClock::new(0),
            window,
            guaranteed: [const { BTreeSet::new() }; 3],
            lenders: BTreeSet::new(),
            credit_due: BTreeSet::new(),
            limited: BTreeSet::new(),
            queued: 0,
            inflight: SecondaryMap::new(),
            ready: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// The tenant of a leaf; `None` for a group.
    fn tenant_of(&self, node: u32) -> Option<u32> {
        node.checked_sub(self.groups.len() as u32 + 1)
    }
}

impl ControlPolicy for Slack {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, row: Option<u8>) {
        if self.is_unpromised() && self.window.has_room(self.inflight.len() as u32) {
            self.send(key, None, WINDOW);
            return;
        }
        self.end_periods(now);
        self.window.update(now);
        let index = contract::line(request, self.tenants.len());
        let head = self.tenants[index].price(key, request, row);
        if self.release_on_arrival(now, index, head) {
            return;
        }
        self.advance_clocks(now);
        let tenant = &mut self.tenants[index];
        tenant.requests.push_back(head);
        self.queued += 1;
        if tenant.requests.len() == 1 {
            self.list_head(index as u32);
        }
        self.release_due(now);
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        self.ready.pop_front()
    }

    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration) {
        let inflight = self.inflight.len() as u32;
        let row = self.inflight.remove(key).expect("only a released request can end");
        if self.is_unpromised() {
            return;
        }
        self.end_periods(now);
        let tenant = &self.tenants[contract::line(request, self.tenants.len())];
        // The contract may have had more rows when the request was released.
        let classes = row.and_then(|row| tenant.classes.get(usize::from(row)));
        let classes = classes.map_or(&[][..], |classes| classes);
        for &class in classes {
            self.window.count_ending(now, class, device, inflight);
        }
        self.window.update(now);
        self.release_due(now);
    }

    fn adopt(&mut self, key: RequestKey, _: &Request, _: Instant) {
        self.inflight.insert(key, None);
    }

    fn handover(&self, now: Instant) -> PolicyHandover {
        let mut guarantees = self.guarantees.clone();
        guarantees.advance(now);
        let credit = |tenant: &TenantQueue| {
            let Some(credits) = &tenant.credits else { return Duration::ZERO };
            let (mut credits, mut bucket) = (credits.clone(), tenant.bucket.clone());
            credits.add(bucket.fill(guarantees.clock(tenant.tier), 0));
            credits.time()
        };
        let credits = self.tenants.iter().map(credit).collect();
        PolicyHandover { credits, window: self.window.learnt() }
    }

    fn take_over(&mut self, now: Instant, handover: &PolicyHandover) {
        self.end_periods(now);
        self.advance_clocks(now);
        for (index, &credit) in (0..self.tenants.len()).zip(&handover.credits) {
            if let Some(credits) = &mut self.tenants[index].credits {
                credits.restore(credit);
                self.list_head(index as u32);
            }
        }
        if let Some(window) = handover.window {
            self.window.restore(window);
        }
    }

    fn set_promises(&mut self, now: Instant, control: &Choice<Build>, list: &Promises) -> bool {
        let same = control.policy().name == POLICY.name
            && self.window.settings() == Settings::from(control.values());
        if same {
            self.succeed(now, list);
        }
        same
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.queued == 0 {
            return None;
        }
        let gold = self.guarantees.clock(Tier::Gold);
        let guaranteed = TIERS.into_iter().filter_map(|tier| {
            let first = self.guaranteed[tier as usize].first();
            first.map(|&(at, _)| self.guarantees.clock(tier).when(at))
        });
        let lent = self.lenders.first().map(|&(at, _)| gold.when(at));
        let limited = self.limited.first().map(|&(until, _)| self.clock.when(until));
        let period = (!self.guarantees.is_full()).then_some(self.window.period_end());
        guaranteed.chain(lent).chain(limited).chain(period).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.end_periods(now);
        self.window.update(now);
        self.release_due(now);
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

#[cfg(test)]
mod tests;
