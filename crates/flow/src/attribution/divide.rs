//! Divides the waits of one request.

use super::cells::Amounts;
use super::{Attribution, Contributor, History, PARTS_MAX, Part, class};
use crate::clock::{Duration, Instant};
use crate::dispatch::Owner;
use crate::event::{Completed, StageName, Trail};
use crate::policy::Rule;
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

/// The parts of a wait in one stage, at the end of those of the stages before.
struct Parts<'a> {
    stage: StageName,
    all: &'a mut Vec<Part>,
    first: usize,
}

impl Attribution {
    /// Divides all waits of a request that has ended just now or some time ago: by stage, the largest part first. The parts of a stage
    /// add up to the time there. O(1), some thousand instructions for each stage that has a history.
    pub fn explain(&self, now: Instant, completed: &Completed<'_>) -> Vec<Part> {
        let (mut parts, mut from) = (Vec::new(), completed.arrived);
        for (stage, rule, time) in completed.times.held() {
            let (to, tenant) = (from + time, completed.request.tenant);
            let first = parts.len();
            let mut divided = Parts { stage, all: &mut parts, first };
            self.divide(completed, rule, Wait { now, from, to, tenant }, &mut divided);
            divided.finish();
            from = to;
        }
        parts
    }

    /// Divides the wait in one stage.
    fn divide(&self, completed: &Completed<'_>, rule: Rule, wait: Wait, parts: &mut Parts<'_>) {
        let &Completed { request, trail, .. } = completed;
        let Trail { backend, line, freed_by, .. } = trail;
        let (rule, nanos) = (*rule.0, wait.nanos());
        let volume = request.volume.index();
        // What a request was given ends its wait, and is not in front of it.
        let own = if request.job { Owner::Job } else { Owner::Tenant(request.tenant) };
        let own = own.stream().index() as u32;
        match parts.stage {
            StageName::Accept if rule == "accept/cap" => {
                let cap = self.caps.get(volume).and_then(Option::as_deref);
                wait.share(parts, cap, nanos, (own, request.cost()));
            }
            StageName::Accept => parts
                .add(freed_by.map_or(Contributor::Unknown, |tenant| wait.tenant(tenant)), nanos),
            StageName::Cache if rule == "cache/fill" => parts.add(Contributor::Fill, nanos),
            StageName::Cache => {
                let Some(log) = self.logs.get(volume) else {
                    return parts.add(Contributor::Unknown, nanos);
                };
                let away = log.away.within(wait.from, wait.to);
                let away = away.max(log.blocked.within(wait.from, wait.to)).as_nanos();
                wait.share(parts, log.history.as_deref(), nanos - away, (own, 0));
                parts.add(Contributor::Upstream, away);
            }
            StageName::Control => match rule {
                "control/bucket" | "control/credit" | "control/limit" => {
                    parts.add(Contributor::OwnLimit, nanos);
                }
                _ => wait.share(parts, self.control.as_deref(), nanos, (own, request.cost())),
            },
            StageName::Dispatch => {
                let Some(backend) = self.backends.get(backend.index()) else {
                    return parts.add(Contributor::Unknown, nanos);
                };
                let flush = backend.flush.within(wait.from, wait.to).as_nanos();
                wait.share(parts, backend.history.as_deref(), nanos - flush, (own, 0));
                parts.add(Contributor::Flush, flush);
            }
            StageName::Path => {
                let changes = self.backends.get(backend.index()).map(|backend| &backend.changes);
                let mut before = changes.into_iter().flatten().rev();
                let cause = before.find(|(at, _)| *at <= wait.to);
                parts.add(Contributor::Path(cause.map(|&(_, cause)| cause)), nanos);
            }
            StageName::Storage => self.storage(completed, wait, own, parts),
            StageName::Transfer => {
                let line = self.lines.get(line as usize).and_then(Option::as_deref);
                wait.share(parts, line, nanos, (own, 0));
            }
        }
    }

    /// Divides the time at the device: what it takes alone, then flushes, then others.
    fn storage(&self, completed: &Completed<'_>, wait: Wait, own: u32, parts: &mut Parts<'_>) {
        let Completed { request, trail: Trail { backend, length, .. }, .. } = completed;
        let all = wait.nanos();
        let Some(backend) = self.backends.get(backend.index()) else {
            return parts.add(Contributor::Unknown, all);
        };
        // The device of a flush is the flush.
        if request.op == Op::Flush {
            return parts.add(Contributor::Flush, all);
        }
        // A request that was cut has the times of one piece, and the device had to do only that.
        let alone = backend.alone[class(request.op, *length)].min(all);
        let excess = all - alone;
        let flush = backend.flush.within(wait.from, wait.to).as_nanos();
        let flush = (u128::from(excess) * u128::from(flush) / u128::from(all)) as u64;
        wait.share(parts, backend.history.as_deref(), excess - flush, (own, all));
        parts.add(Contributor::Device, alone);
        parts.add(Contributor::Flush, flush);
    }
}

impl Parts<'_> {
    /// Charges nanoseconds; none are no part.
    fn add(&mut self, contributor: Contributor, nanos: u64) {
        if nanos > 0 {
            let time = Duration::from_nanos(nanos);
            self.all.push(Part { stage: self.stage, contributor, time });
        }
    }

    /// The largest first, and at most [`PARTS_MAX`], so that a story has a limit however many tenants there are.
    fn finish(self) {
        sort(&mut self.all[self.first..]);
        if self.all.len() - self.first <= PARTS_MAX {
            return;
        }
        let smallest = self.all.drain(self.first + PARTS_MAX - 1..);
        let mut time = smallest.fold(Duration::ZERO, |sum, part| sum + part.time);
        let mut of_stage = self.all[self.first..].iter();
        if let Some(others) = of_stage.position(|part| part.contributor == Contributor::Others) {
            time += self.all.remove(self.first + others).time;
        }
        self.all.push(Part { stage: self.stage, contributor: Contributor::Others, time });
        sort(&mut self.all[self.first..]);
    }
}

/// The largest first.
fn sort(parts: &mut [Part]) {
    parts.sort_by_key(|part| (core::cmp::Reverse(part.time), part.contributor));
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
    fn share(self, parts: &mut Parts<'_>, history: Option<&History>, nanos: u64, own: (u32, u64)) {
        let Some(history) = history.filter(|history| nanos > 0 && history.since < self.to) else {
            return parts.add(Contributor::Unknown, nanos);
        };
        let before = history.since.saturating_since(self.from).as_nanos();
        let unknown = (u128::from(nanos) * u128::from(before) / u128::from(self.nanos())) as u64;
        let from = self.from.max(history.since);
        let amounts = history.cells.read(self.now, from, self.to, own);
        for (contributor, nanos) in
            divide(nanos - unknown, amounts, |owner| self.contributor(owner))
        {
            parts.add(contributor, nanos);
        }
        parts.add(Contributor::Unknown, unknown);
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
