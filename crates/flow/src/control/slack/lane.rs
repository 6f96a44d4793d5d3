//! A tenant's line of requests, and the groups above it.

use super::super::contract::by_size;
use super::super::contract::{self, Contract, Group, Tier};
use super::super::tariff::Tariff;
use super::marker::{Clock, Marker, Passed, Savings};
use super::share::Hue;
use super::window::{Promised, Window};
use crate::clock::Duration;
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How long a limit lets come at once.
const LIMIT_BURST: Duration = Duration::from_millis(100);

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) key: RequestKey,
    /// Milli-tokens of its tenant.
    pub(super) cost: u64,
    pub(super) bytes: u64,
    /// The row of the contract that it falls under, if one.
    pub(super) row: Option<u8>,
}

/// A tenant, or all that are promised nothing and have no number of their own.
pub(super) struct Lane {
    tariff: Tariff,
    /// The classes of each row's promises.
    pub(super) classes: Vec<Vec<u32>>,
    pub(super) tier: Tier,
    pub(super) marker: Marker,
    pub(super) savings: Option<Box<Savings>>,
    pub(super) limit: Option<Marker>,
    /// It has no savings, limit or group.
    pub(super) plain: bool,
    /// Its leaf among those that share the window.
    pub(super) leaf: u32,
    pub(super) queue: VecDeque<Waiting>,
    /// Where the tier's clock stands when the head is guaranteed, while it waits for that.
    pub(super) green: Option<Passed>,
    /// Until where the clock of limits holds it, and whether it has held the head.
    pub(super) held: Option<Passed>,
    pub(super) stopped: bool,
    pub(super) hue: Option<Hue>,
}

/// Tenants, or groups of them, together.
pub(super) struct Band {
    size: u32,
    pub(super) marker: Marker,
    pub(super) limit: Option<Marker>,
    /// Where the clock stands when it may lend, while somebody wants to borrow.
    pub(super) lends: Option<Passed>,
    /// Until where the clock of limits holds it.
    pub(super) held: Option<Passed>,
}

/// The promises of a list of contracts.
pub(super) fn promised<'a>(contracts: impl Iterator<Item = &'a Contract>) -> Vec<Promised> {
    let targets = contracts.flat_map(|contract| &contract.rows).flat_map(|row| &row.targets);
    targets.map(|target| (target.response, target.quantile_ppm)).collect()
}

impl Lane {
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
        let saves = contract.is_some() && *credit > Duration::ZERO;
        let savings = || Box::new(Savings::new(iops, *credit, *peak_permille, *burst));
        Self {
            tariff: Tariff::new(rows),
            classes,
            tier: *tier,
            marker: Marker::new(iops.into(), *burst),
            savings: saves.then(savings),
            limit: limit.map(|limit| Marker::new(limit.into(), LIMIT_BURST)),
            plain: !saves && limit.is_none() && group.is_none(),
            leaf,
            queue: VecDeque::new(),
            green: None,
            held: None,
            stopped: false,
            hue: None,
        }
    }

    /// The weight of its leaf.
    pub(super) fn weight(contract: Option<&Contract>) -> u32 {
        contract.map_or(contract::BEST_EFFORT_IOPS, |contract| contract.weight)
    }

    /// What a request is to it.
    pub(super) fn waiting(&self, key: RequestKey, request: &Request, row: Option<u8>) -> Waiting {
        Waiting { key, cost: self.tariff.cost(request), bytes: request.payload(), row }
    }

    /// Fills its bucket for a head of this cost; what does not fit is saved.
    pub(super) fn fill(&mut self, clock: &Clock, cost: u64) {
        let surplus = self.marker.fill(clock, cost);
        if let Some(savings) = &mut self.savings {
            savings.save(surplus);
        }
    }

    /// With what its head would compete now.
    pub(super) fn competes(&mut self, time: &Clock, head: Waiting) -> Hue {
        match &mut self.savings {
            Some(savings) if head.row.is_some() && savings.hold(head.cost) => {
                savings.peak.fill(time, head.cost);
                let fast = savings.peak.holds(head.cost) > time.passed();
                if fast { Hue::Red } else { Hue::Yellow }
            }
            _ => Hue::Red,
        }
    }
}

impl Band {
    pub(super) fn new(group: &Group) -> Self {
        Self {
            size: group.size,
            marker: Marker::new(group.iops.into(), LIMIT_BURST),
            limit: group.limit.map(|limit| Marker::new(limit.into(), LIMIT_BURST)),
            lends: None,
            held: None,
        }
    }

    /// Milli-tokens of the group that so many bytes cost.
    pub(super) fn cost(&self, bytes: u64) -> u64 {
        by_size(bytes, self.size)
    }
}
