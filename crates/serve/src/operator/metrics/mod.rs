//! Counters of a gateway for monitoring systems, and their encoding in the formats of Prometheus.
//!
//! The event loop writes [`Metrics`] and other threads read it without a lock. What is no counter, such as the state
//! of a path, comes in a [`Snapshot`]. [`encode`](encode::encode) makes a page of both on any thread, so that a scrape
//! takes only the snapshot from the event loop. [Decision 37](../../../../docs/decisions/0037-metrics.md) has the
//! reasons.

mod blocks;
mod counter;
pub(crate) mod encode;
mod families;
mod histogram;
pub(crate) mod history;
pub(crate) mod loads;
pub(crate) mod page;
mod process;
pub(crate) mod scraper;
pub(crate) mod snapshot;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod totals;

pub use families::families_page;

use blocks::{StageBlock, TenantBlock, VolumeBlock};
use counter::Counter;
use histogram::Sample;
use std::array::from_fn;
use table::Table;
use weir_flow::account::Scored;
use weir_flow::control::{Notice, Tier};
use weir_flow::event::Completed;
use weir_flow::request::{Op, Request, TenantId, VolumeId};

/// The counters of a gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    volumes: Table<VolumeBlock>,
    tenants: Table<TenantBlock>,
    /// By stage.
    stages: [StageBlock; 7],
    /// By [`Tier`]: the scale of its guarantees in millionths.
    tiers: [Counter; 3],
    reload: Reload,
}

/// The last time that the configuration was read again, or the start.
#[derive(Debug)]
struct Reload {
    failed: Counter,
    /// When one succeeded last, in nanoseconds since 1970.
    success: Counter,
}

impl Metrics {
    /// All zero, of a gateway that was started at `now`, in nanoseconds since 1970.
    pub(crate) fn new(now: u64) -> Self {
        let reload = Reload { failed: Counter::default(), success: Counter::default() };
        reload.success.set(now);
        let tiers = from_fn(|_| Counter::default());
        for scale in &tiers {
            Counter::set(scale, 1_000_000);
        }
        Self {
            volumes: Table::new(VOLUMES_MAX, VolumeBlock::new(OTHER.to_owned())),
            tenants: Table::new(TENANTS_MAX, TenantBlock::new(OTHER.to_owned())),
            stages: from_fn(|_| StageBlock::default()),
            tiers,
            reload,
        }
    }

    /// The counters of a volume.
    pub(crate) fn volume(&self, id: VolumeId, name: impl FnOnce() -> String) -> &VolumeBlock {
        self.volumes.get(id.index(), || VolumeBlock::new(name()))
    }

    /// A volume has come.
    pub(crate) fn volume_came(&self, id: VolumeId, name: impl FnOnce() -> String) {
        match self.volumes.own(id.index()) {
            Some(block) if !block.is_there() => {
                block.set_there(true);
                self.volumes.back();
            }
            _ => {
                self.volume(id, name);
            }
        }
    }

    /// A volume has gone: its series go, and another has room for its own. One that is summed with others leaves its counts
    /// there.
    pub(crate) fn volume_went(&self, id: VolumeId) {
        if let Some(block) = self.volumes.own(id.index())
            && block.is_there()
        {
            block.set_there(false);
            self.volumes.leave();
        }
    }

    /// The counters of a tenant.
    pub(crate) fn tenant(&self, id: TenantId, name: impl FnOnce() -> String) -> &TenantBlock {
        self.tenants.get(id.index(), || TenantBlock::new(name()))
    }

    /// A request has ended. `scored` says how, if it falls under an objective.
    pub(crate) fn completed(
        &self,
        completed: &Completed<'_>,
        scored: Option<Scored>,
        names: (impl FnOnce() -> String, impl FnOnce() -> String),
    ) {
        let Completed { request, times, outcome, .. } = completed;
        let op = OpClass::of(request.op);
        let volume = self.volume(request.volume, names.0);
        let tenant = self.tenant(request.tenant, names.1);
        tenant.requests[op as usize].add(1);
        if let Some(scored) = scored {
            tenant.slo.score(scored);
        }
        if outcome.is_err() {
            volume.errors[op as usize].add(1);
            return;
        }
        let sample = Sample::of(times.total());
        volume.durations[op as usize].record(sample);
        tenant.durations.record(sample);
        if let Some(direction) = op.direction() {
            volume.bytes[direction].add(request.extent.length);
            tenant.bytes[direction].add(request.extent.length);
        }
        for (stage, rule, time) in times.held() {
            self.stages[stage.index()].record(rule, time);
        }
    }

    /// A request was refused because a limit was reached.
    pub(crate) fn refused(
        &self,
        request: &Request,
        scored: Option<Scored>,
        names: (impl FnOnce() -> String, impl FnOnce() -> String),
    ) {
        self.volume(request.volume, names.0).refused[OpClass::of(request.op) as usize].add(1);
        let tenant = self.tenant(request.tenant, names.1);
        tenant.refused.add(1);
        if let Some(scored) = scored {
            tenant.slo.score(scored);
        }
    }

    /// The control policy has something to tell.
    pub(crate) fn control(&self, notice: Notice, name: impl FnOnce(TenantId) -> String) {
        match notice {
            Notice::Gate(..) => {}
            Notice::Infeasible(tenant, on) => {
                self.tenant(tenant, || name(tenant)).slo.infeasible.set(on.into());
            }
            Notice::Scaled(tier, ppm) => self.tiers[tier_index(tier)].set(ppm.into()),
        }
    }

    /// The configuration was read again; `now` in nanoseconds since 1970.
    pub(crate) fn reloaded(&self, succeeded: bool, now: u64) {
        self.reload.failed.set((!succeeded).into());
        if succeeded {
            self.reload.success.set(now);
        }
    }
}

/// A class of operations: the values of the label `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpClass {
    Read,
    Write,
    Flush,
    Other,
}

impl OpClass {
    const NAMES: [&'static str; 4] = ["read", "write", "flush", "other"];

    const fn of(op: Op) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Write | Op::Update => Self::Write,
            Op::Flush => Self::Flush,
            Op::Discard | Op::WriteZeroes | Op::Verify => Self::Other,
        }
    }

    /// The direction of the data, 0 for reads and 1 for writes; `None` without data.
    const fn direction(self) -> Option<usize> {
        match self {
            Self::Read => Some(0),
            Self::Write => Some(1),
            Self::Flush | Self::Other => None,
        }
    }
}

const fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Gold => 0,
        Tier::Silver => 1,
        Tier::Bronze => 2,
    }
}

/// The label of what is beyond a limit.
const OTHER: &str = "_other";

/// Tenants with series of their own; the others are summed.
const TENANTS_MAX: u64 = 10_000;

/// Volumes with series of their own; the others are summed.
const VOLUMES_MAX: u64 = 1_000;
