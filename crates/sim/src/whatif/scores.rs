//! Response times by tenant, volume and operation, and objectives, of one run.

use crate::account;
use crate::measure::Sample;
use crate::results::TargetResults;
use serde::Serialize;
use std::collections::BTreeMap;
use weir_flow::account::Accounts;
use weir_flow::clock::Instant;
use weir_flow::control::Promises;
use weir_flow::event::{Completed, Event, Observer};
use weir_flow::request::{Op, Request, TenantId};

/// Whose times: tenant, volume, and 0 for reads, 1 for writes, 2 for others.
pub(super) type Row = (usize, usize, u8);

/// One run's figures of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests that ended.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests a second.
    pub iops: f64,
    /// Mean response time.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
}

/// An observer that keeps them.
#[derive(Clone, Debug)]
pub(super) struct Scores {
    rows: BTreeMap<Row, (Sample, u64)>,
    accounts: Accounts,
    first: Option<Instant>,
    last: Instant,
}

impl Scores {
    pub(super) fn new(promises: &Promises) -> Self {
        let accounts = Accounts::new(promises);
        Self { rows: BTreeMap::new(), accounts, first: None, last: Instant::ZERO }
    }

    /// The figures of each row.
    pub(super) fn figures(&self) -> BTreeMap<Row, Figures> {
        let seconds = self.first.map_or(0.0, |first| self.last.since(first).as_secs_f64());
        let figures = |(sample, refused): &(Sample, u64)| {
            let times = sample.times();
            Figures {
                requests: times.count,
                refused: *refused,
                iops: if seconds > 0.0 { times.count as f64 / seconds } else { 0.0 },
                mean_ns: times.mean_ns,
                p50_ns: times.p50_ns,
                p99_ns: times.p99_ns,
            }
        };
        self.rows.iter().map(|(&row, cell)| (row, figures(cell))).collect()
    }

    /// How well the objectives of each tenant were met.
    pub(super) fn targets(&mut self) -> BTreeMap<usize, Vec<TargetResults>> {
        let tenants: Vec<usize> =
            self.accounts.tenants().map(|(tenant, _)| tenant.index()).collect();
        let last = self.last;
        let of = |tenant: usize| {
            let id = TenantId::new(tenant as u32);
            (tenant, account::attainment(&mut self.accounts, id, last))
        };
        tenants.into_iter().map(of).filter(|(_, targets)| !targets.is_empty()).collect()
    }

    fn completed(&mut self, completed: &Completed<'_>) {
        let Completed { request, times, .. } = completed;
        self.rows.entry(row(request)).or_default().0.record(times.total());
    }
}

fn row(request: &Request) -> Row {
    let kind = match request.op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush | Op::Discard | Op::WriteZeroes | Op::Verify | Op::Update => 2,
    };
    (request.tenant.index(), request.volume.index(), kind)
}

impl Observer for Scores {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        self.accounts.event(now, event);
        match event {
            Event::Arrived(_) => {
                self.first.get_or_insert(now);
            }
            Event::Refused(request, _) => {
                self.rows.entry(row(request)).or_default().1 += 1;
            }
            Event::Completed(completed) => {
                self.last = now;
                self.completed(&completed);
            }
            Event::Path(_)
            | Event::Overdue { .. }
            | Event::Control(_)
            | Event::Cache(..)
            | Event::Lost(_)
            | Event::ControlSet(_)
            | Event::VolumeAdded(..)
            | Event::VolumeRemoved(_)
            | Event::Stray => {}
        }
    }
}
