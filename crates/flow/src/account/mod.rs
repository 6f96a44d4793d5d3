//! Accounts of every tenant: how well its contract was met, and where its time went.
//!
//! * [`histogram`]: response times, mergeable;
//! * [`attainment`]: one row of a contract and direction, over a second, a minute and an hour;
//! * [`burn`]: counts of requests and misses, and how fast an error budget is used up;
//! * [`ledger`]: time by cause.
//!
//! All of it comes from the pipeline's events, and so does the time.

pub mod attainment;
pub mod burn;
pub mod histogram;
pub mod ledger;

use crate::clock::{Duration, Instant};
use crate::control::{Contract, Direction, Promises, Target};
use crate::error::IoError;
use crate::event::{Completed, Event, Observer};
use crate::request::{Request, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use attainment::Attainment;
use ledger::Ledger;

/// The accounts of all tenants.
///
/// A tenant takes memory once it has asked for something, a row of its contract once a request fell under
/// it. Requests are scored from arrival to the last byte of the reply, when that has left:
///
/// | a request that | counts as |
/// |---|---|
/// | ended well | its time says |
/// | was refused | a miss of every target (docs/reference/control.md, section 2.5) |
/// | failed because storage or the way to it did | a miss of every target |
/// | failed because the host asked for what cannot be | its time says |
/// | has no contract, or no row of it | nothing; it is in the ledger |
///
/// All requests of a tenant are scored, also those beyond the rate of its contract.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    contracts: Vec<Option<Contract>>,
    /// By tenant.
    tenants: Vec<Option<Box<Account>>>,
}

/// How a request under an objective was scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scored {
    /// It missed the last target of its row.
    pub missed: bool,
    /// The response time of that target.
    pub target: Duration,
    /// The share of such requests that may miss it, in millionths.
    pub allowed_ppm: u32,
}

impl Scored {
    fn of(missed: bool, target: Target) -> Self {
        Self { missed, target: target.response, allowed_ppm: target.allowed_ppm() }
    }
}

/// The account of one tenant.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Where its time went, also that of requests without a promise.
    pub ledger: Ledger,
    /// By row and direction, see [`place`].
    rows: Vec<Option<Box<Attainment>>>,
}

impl Accounts {
    /// Empty accounts of tenants with these contracts.
    pub fn new(promises: &Promises) -> Self {
        Self { contracts: promises.contracts.clone(), tenants: Vec::new() }
    }

    /// The tenants that have asked for something, and their accounts.
    pub fn tenants(&mut self) -> impl Iterator<Item = (TenantId, &mut Account)> {
        let accounts = (0..).map(TenantId::new).zip(&mut self.tenants);
        accounts.filter_map(|(tenant, account)| Some((tenant, account.as_deref_mut()?)))
    }

    /// The account of a tenant, if it has asked for something.
    pub fn tenant(&mut self, tenant: TenantId) -> Option<&mut Account> {
        self.tenants.get_mut(tenant.index())?.as_deref_mut()
    }

    /// The contract of a tenant, if it has one.
    pub fn contract(&self, tenant: TenantId) -> Option<&Contract> {
        self.contracts.get(tenant.index())?.as_ref()
    }

    /// Other promises hold from now on. What rows have got starts anew where they differ.
    fn set_control(&mut self, promises: &Promises) {
        let old = core::mem::replace(&mut self.contracts, promises.contracts.clone());
        for (index, account) in self.tenants.iter_mut().enumerate() {
            let Some(account) = account else { continue };
            let rows = |contracts: &[Option<Contract>]| {
                contracts.get(index).and_then(Option::as_ref).map(|contract| contract.rows.clone())
            };
            if rows(&old) != rows(&self.contracts) {
                account.rows.clear();
            }
        }
    }

    /// The account of the tenant, and the score of the row that the request falls under, if under any.
    fn find(
        &mut self,
        now: Instant,
        request: &Request,
        row: Option<u8>,
    ) -> (&mut Ledger, Option<&mut Attainment>) {
        let index = request.tenant.index();
        if index >= self.tenants.len() {
            self.tenants.resize_with(index + 1, || None);
        }
        let Account { ledger, rows } = &mut **self.tenants[index].get_or_insert_default();
        let contract = self.contracts.get(index).and_then(Option::as_ref);
        let row = row.map(usize::from);
        let Some((kept, row)) = contract.and_then(|one| Some((one.rows.get(row?)?, row?))) else {
            return (ledger, None);
        };
        let place = place(row, Direction::of(request.op));
        if place >= rows.len() {
            rows.resize_with(place + 1, || None);
        }
        let begin = || Box::new(Attainment::new(kept, now));
        (ledger, Some(rows[place].get_or_insert_with(begin)))
    }

    fn completed(&mut self, now: Instant, completed: &Completed<'_>) -> Option<Scored> {
        let (ledger, score) = self.find(now, completed.request, completed.row);
        let failed = completed.outcome.is_err_and(is_ours);
        let response = (!failed).then(|| completed.times.total());
        let scored = score.map(|score| (score.record(now, response), score.last_target()));
        let late = scored.filter(|(missed, _)| *missed).map(|(_, target)| target.response);
        ledger.record(completed.times, late);
        scored.map(|(missed, target)| Scored::of(missed, target))
    }

    /// Takes an event. Says how its request was scored, if it falls under an objective.
    pub fn take(&mut self, now: Instant, event: &Event<'_>) -> Option<Scored> {
        match *event {
            Event::Completed(ref completed) => return self.completed(now, completed),
            Event::Refused(request, row) => {
                let (ledger, score) = self.find(now, request, row);
                ledger.refused += 1;
                let score = score?;
                let missed = score.record(now, None);
                return Some(Scored::of(missed, score.last_target()));
            }
            Event::ControlSet(promises) => self.set_control(promises),
            Event::Arrived(_)
            | Event::Path(_)
            | Event::Overdue { .. }
            | Event::Control(_)
            | Event::Cache(..)
            | Event::Lost(_)
            | Event::VolumeAdded(..)
            | Event::VolumeRemoved(_)
            | Event::Stray => {}
        }
        None
    }
}

impl Observer for Accounts {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        self.take(now, &event);
    }
}

impl Account {
    /// What was scored: the index of the row in the contract, the direction, and the score.
    pub fn rows(&mut self) -> impl Iterator<Item = (usize, Direction, &mut Attainment)> {
        let rows = self.rows.iter_mut().enumerate();
        rows.filter_map(|(place, score)| {
            let direction = if place % 2 == 0 { Direction::Read } else { Direction::Write };
            Some((place / 2, direction, score.as_deref_mut()?))
        })
    }
}

/// Where the score of a row and direction is.
const fn place(row: usize, direction: Direction) -> usize {
    2 * row + direction as usize
}

/// Whether an error is that of the storage or of the path to it, and not a mistake of the host.
pub const fn is_ours(error: IoError) -> bool {
    match error {
        IoError::Medium
        | IoError::PathFailed
        | IoError::NoPath
        | IoError::NoSpace
        | IoError::Fenced
        | IoError::Busy => true,
        IoError::OutOfRange | IoError::WriteProtected | IoError::Unsupported => false,
    }
}

#[cfg(test)]
mod tests;
