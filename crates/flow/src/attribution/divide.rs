//! Divides the waits of one request.

use super::cells::Amounts;
use super::{Attribution, Contributor, History, PARTS_MAX, Part, class};
use crate::clock::{Duration, Instant};
use crate::dispatch::Owner;
use crate::event::{Completed, StageName, Trail};
use crate::request::{Op, TenantId};
use alloc::vec::Vec;

/// One wait: when, and whose.
#[derive(Clone, Copy, Debug)]
struct Wait {
    now: Instant,
    from: Instant,
    to: Instant,
    tenant: TenantId,
}

impl Attribution {
    /// Divides all waits of a request that has ended just now or some time ago: by stage, the largest part first. The parts of a stage
    /// add up to the time there. O(1), some thousand instructions for each stage.
    pub fn explain(&self, now: Instant, completed: &Completed<'_>) -> Vec<Part> {
        let (mut parts, mut from) = (Vec::new(), completed.arrived);
        for stage in StageName::ALL {
            let time = completed.times.spent(stage);
            if time == Duration::ZERO {
                continue;
            }
            let (to, tenant) = (from + time, completed.request.tenant);
            let mut divided = self.divide(completed, stage, Wait { now, from, to, tenant });
            divided.retain(|(_, time)| *time > 0);
            sort(&mut divided);
            sum_smallest(&mut divided);
            let part = |(contributor, nanos)| {
                let time = Duration::from_nanos(nanos);
                Part { stage, contributor, time }
            };
            parts.extend(divided.into_iter().map(part));
            from = to;
        }
        parts
    }

    /// Divides the wait in one stage.
    fn divide(
        &self,
        completed: &Completed<'_>,
        stage: StageName,
        wait: Wait,
    ) -> Vec<(Contributor, u64)> {
        let &Completed { request, times, trail, .. } = completed;
        let Trail { backend, line, freed_by, .. } = trail;
        let rule = times.rule(stage).map_or("", |rule| rule.0);
        let all = |contributor| Vec::from([(contributor, wait.nanos())]);
        let volume = request.volume.index();
        // What a request was given ends its wait, and is not in front of it.
        let own = if request.job { Owner::Job } else { Owner::Tenant(request.tenant) };
        let own = own.stream().index() as u32;
        match stage {
            StageName::Accept if rule == "accept/cap" => {
                let cap = self.caps.get(volume).and_then(Option::as_deref);
                wait.shared(cap, wait.nanos(), (own, request.cost()))
            }
            StageName::Accept => match freed_by {
                Some(tenant) => all(wait.tenant(tenant)),
                None => all(Contributor::Unknown),
            },
            StageName::Cache if rule == "cache/fill" => all(Contributor::Fill),
            StageName::Cache => {
                let Some(log) = self.logs.get(volume) else { return all(Contributor::Unknown) };
                let away = log.away.within(wait.from, wait.to);
                let away = away.max(log.blocked.within(wait.from, wait.to)).as_nanos();
                let rest = wait.nanos() - away;
                let mut parts = wait.shared(log.history.as_deref(), rest, (own, 0));
                parts.push((Contributor::Upstream, away));
                parts
            }
            StageName::Control => match rule {
                "control/bucket" | "control/credit" | "control/limit" => all(Contributor::OwnLimit),
                _ => {
                    let own = (own, request.cost());
                    wait.shared(self.control.as_deref(), wait.nanos(), own)
                }
            },
            StageName::Dispatch => {
                let Some(backend) = self.backends.get(backend.index()) else {
                    return all(Contributor::Unknown);
                };
                let flush = backend.flush.within(wait.from, wait.to).as_nanos();
                let rest = wait.nanos() - flush;
                let mut parts = wait.shared(backend.history.as_deref(), rest, (own, 0));
                parts.push((Contributor::Flush, flush));
                parts
            }
            StageName::Path => {
                let changes = self.backends.get(backend.index()).map(|backend| &backend.changes);
                let before = changes.into_iter().flatten().rev();
                let cause = before.clone().find(|(at, _)| *at <= wait.to);
                all(Contributor::Path(cause.map(|&(_, cause)| cause)))
            }
            StageName::Storage => self.storage(completed, wait, own),
            StageName::Transfer => {
                let line = self.lines.get(line as usize).and_then(Option::as_deref);
                wait.shared(line, wait.nanos(), (own, 0))
            }
        }
    }

    /// Divides the time at the device: what it takes alone, then flushes, then others.
    fn storage(&self, completed: &Completed<'_>, wait: Wait, own: u32) -> Vec<(Contributor, u64)> {
        let Completed { request, trail: Trail { backend, .. }, .. } = completed;
        let Some(backend) = self.backends.get(backend.index()) else {
            return Vec::from([(Contributor::Unknown, wait.nanos())]);
        };
        let all = wait.nanos();
        // The device of a flush is the flush.
        if request.op == Op::Flush {
            return Vec::from([(Contributor::Flush, all)]);
        }
        let alone = backend.alone[class(request.op, request.extent.length)].min(all);
        let excess = all - alone;
        let flush = backend.flush.within(wait.from, wait.to).as_nanos();
        let flush = (u128::from(excess) * u128::from(flush) / u128::from(all)) as u64;
        let rest = excess - flush;
        let mut parts = wait.shared(backend.history.as_deref(), rest, (own, all));
        parts.extend([(Contributor::Device, alone), (Contributor::Flush, flush)]);
        parts
    }
}

/// The largest first.
fn sort(parts: &mut [(Contributor, u64)]) {
    parts.sort_by_key(|&(contributor, time)| (core::cmp::Reverse(time), contributor));
}

/// Leaves at most [`PARTS_MAX`] parts, so that a story has a limit however many tenants there are.
fn sum_smallest(parts: &mut Vec<(Contributor, u64)>) {
    if parts.len() <= PARTS_MAX {
        return;
    }
    let mut others: u64 = parts.drain(PARTS_MAX - 1..).map(|(_, time)| time).sum();
    parts.retain(|&(contributor, time)| {
        let joins = contributor == Contributor::Others;
        others += u64::from(joins) * time;
        !joins
    });
    parts.push((Contributor::Others, others));
    sort(parts);
}

impl Wait {
    fn nanos(self) -> u64 {
        self.to.since(self.from).as_nanos()
    }

    fn tenant(self, tenant: TenantId) -> Contributor {
        if tenant == self.tenant { Contributor::Own } else { Contributor::Tenant(tenant) }
    }

    fn contributor(self, owner: u32) -> Contributor {
        match Owner::of(TenantId::new(owner)) {
            Owner::Tenant(tenant) => self.tenant(tenant),
            Owner::WriteBack => Contributor::WriteBack,
            Owner::Prefetch => Contributor::Prefetch,
            Owner::Job => Contributor::Job,
        }
    }

    /// Divides `nanos` of the wait by what others were given of a resource meanwhile. What was before its history
    /// began is unknown.
    fn shared(
        self,
        history: Option<&History>,
        nanos: u64,
        own: (u32, u64),
    ) -> Vec<(Contributor, u64)> {
        if nanos == 0 {
            return Vec::new();
        }
        let Some(history) = history.filter(|history| history.since < self.to) else {
            return Vec::from([(Contributor::Unknown, nanos)]);
        };
        let before = history.since.saturating_since(self.from).as_nanos();
        let unknown = (u128::from(nanos) * u128::from(before) / u128::from(self.nanos())) as u64;
        let from = self.from.max(history.since);
        let amounts = history.cells.read(self.now, from, self.to, own);
        let mut parts = divide(nanos - unknown, amounts, |owner| self.contributor(owner));
        parts.push((Contributor::Unknown, unknown));
        parts
    }
}

/// Divides `nanos` in proportion to amounts: each gets the floor, and the largest the remainder.
fn divide(
    nanos: u64,
    amounts: Amounts,
    contributor: impl Fn(u32) -> Contributor,
) -> Vec<(Contributor, u64)> {
    let named = amounts.owners.into_iter().map(|(owner, amount)| (contributor(owner), amount));
    let mut parts: Vec<_> = named.chain([(Contributor::Others, amounts.others)]).collect();
    let sum: u128 = parts.iter().map(|&(_, amount)| u128::from(amount)).sum();
    if sum == 0 {
        return Vec::from([(Contributor::Idle, nanos)]);
    }
    let largest = parts
        .iter()
        .enumerate()
        .max_by_key(|&(index, &(_, amount))| (amount, core::cmp::Reverse(index)));
    let largest = largest.map_or(0, |(index, _)| index);
    let mut left = nanos;
    for (_, amount) in &mut parts {
        *amount = (u128::from(*amount) * u128::from(nanos) / sum) as u64;
        left -= *amount;
    }
    parts[largest].1 += left;
    parts
}
