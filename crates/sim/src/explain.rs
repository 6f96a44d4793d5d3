//! Explains response times: the rules that held each request, and the time of each tenant by rule.

use crate::account;
use crate::error::RunError;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::replay::{Replay, ReplayError, replay_before};
use crate::results::{LedgerResults, Results, TargetResults};
use crate::run::simulate;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use weir_flow::account::Accounts;
use weir_flow::attribution::{Attribution, Contributor};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::Promises;
use weir_flow::event::{Completed, Event, Observer, Service, StageName};
use weir_flow::pipeline::{Census, Config};
use weir_flow::policy::Rule;
use weir_flow::request::{Tag, TenantId};

/// What is to be explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Only this tenant.
    pub tenant: Option<TenantId>,
    /// The requests with this tag, in the order in which they ended, instead of the slowest. A tag may come
    /// again once the request that had it has ended.
    pub tag: Option<Tag>,
    /// How many requests, at most [`REQUESTS_MAX`].
    pub requests: usize,
}

/// The most requests that are explained at once.
pub const REQUESTS_MAX: usize = 100_000;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Tenants that asked for something, by id.
    pub tenants: Vec<TenantExplanation>,
    /// The slowest requests, slowest first, or those with the tag.
    pub requests: Vec<Story>,
    /// Requests that ended and were asked for, whether there was room for them in `requests` or not.
    pub ended: u64,
    /// What had not ended: the stages with anything in them.
    pub outstanding: Vec<Outstanding>,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantExplanation {
    /// Its number.
    pub tenant: usize,
    /// Requests that were turned away.
    pub refused: u64,
    /// How well its contract was kept.
    pub attainment: Vec<TargetResults>,
    /// What its time was spent on.
    pub ledger: LedgerResults,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Story {
    /// Its tag.
    pub tag: u64,
    /// Who asked.
    pub tenant: usize,
    /// For which volume.
    pub volume: usize,
    /// `read`, `write`, `flush`, `discard`, `write-zeroes`, `verify` or `update`.
    pub op: &'static str,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// When it came.
    pub arrived_ns: u64,
    /// From then to the last byte of the reply.
    pub response_ns: u64,
    /// The last target of its row in the contract; `None` if nothing was promised.
    pub target_ns: Option<u64>,
    /// Why it failed; `None` if it ended well.
    pub error: Option<String>,
    /// Where it was held, in order; the times add up to `response_ns`.
    pub held: Vec<Held>,
}

/// Time in a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Where.
    pub stage: &'static str,
    /// The rule that held it there last.
    pub rule: &'static str,
    /// For how long.
    pub time_ns: u64,
    /// Who was served meanwhile, or what was in the way, the largest part first; the times add up to `time_ns`.
    pub behind: Vec<Behind>,
}

/// Part of the time in a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Behind {
    /// Who or what it is charged to.
    pub who: String,
    /// The number of the tenant, if it is one.
    pub tenant: Option<usize>,
    /// For how long.
    pub time_ns: u64,
}

/// What had not ended in a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outstanding {
    /// The stage.
    pub stage: &'static str,
    /// Requests there, pieces counted singly.
    pub count: usize,
    /// How long the oldest has been there.
    pub oldest_ns: u64,
}

/// Explains a recording.
pub fn recording(
    source: impl Read,
    question: Question,
    progress: impl FnMut(u64),
) -> Result<(Replay, Explanation), ReplayError> {
    let begin = |config: &Config| (Explainer::new(question, &config.promises, Instant::ZERO), ());
    let (replay, explainer, (), census) = replay_before(source, begin, progress)?;
    let mut explanation = explainer.finish(Instant::from_nanos(replay.virtual_ns));
    let waiting = census.iter().filter(|census| census.count > 0);
    explanation.outstanding = waiting.map(outstanding).collect();
    Ok((replay, explanation))
}

/// Runs a plan and explains what happened after its warm-up.
pub fn plan(
    plan: &Plan,
    question: Question,
    mut progress: impl FnMut(Progress),
) -> Result<(Results, Explanation), RunError> {
    let begin = Instant::ZERO + plan.end.warm_up;
    let explainer = Explainer::new(question, &plan.promises, begin);
    let (results, explainer) = simulate(plan, None, explainer, &mut progress)?;
    let explanation = explainer.finish(Instant::from_nanos(results.virtual_ns));
    Ok((results, explanation))
}

/// Listens to a run.
struct Explainer {
    question: Question,
    begin: Instant,
    accounts: Accounts,
    attribution: Attribution,
    ended: u64,
    /// The slowest, the least slow of them on top.
    slowest: BinaryHeap<Reverse<Ranked>>,
    /// Those with the tag.
    tagged: Vec<Story>,
}

/// A story among others: longer is more, and of equally long ones the earlier.
struct Ranked {
    rank: (Duration, Reverse<u64>),
    story: Story,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl Explainer {
    fn new(question: Question, promises: &Promises, begin: Instant) -> Self {
        let question = Question { requests: question.requests.min(REQUESTS_MAX), ..question };
        Self {
            question,
            begin,
            accounts: Accounts::new(promises),
            attribution: Attribution::default(),
            ended: 0,
            slowest: BinaryHeap::new(),
            tagged: Vec::new(),
        }
    }

    fn completed(&mut self, now: Instant, completed: &Completed<'_>) {
        let Question { tenant, tag, requests } = self.question;
        let request = completed.request;
        if tenant.is_some_and(|tenant| tenant != request.tenant)
            || tag.is_some_and(|tag| tag != request.tag)
        {
            return;
        }
        self.ended += 1;
        if tag.is_some() {
            if self.tagged.len() < requests {
                self.tagged.push(self.story(now, completed));
            }
            return;
        }
        let rank = (completed.times.total(), Reverse(self.ended));
        let is_full = self.slowest.len() >= requests;
        if is_full && self.slowest.peek().is_none_or(|Reverse(least)| least.rank > rank) {
            return;
        }
        self.slowest.push(Reverse(Ranked { rank, story: self.story(now, completed) }));
        if is_full {
            self.slowest.pop();
        }
    }

    fn story(&self, now: Instant, completed: &Completed<'_>) -> Story {
        let &Completed { request, row, arrived, times, outcome, .. } = completed;
        let parts = self.attribution.explain(now, completed);
        let behind = |stage| {
            let of = parts.iter().filter(move |part| part.stage == stage);
            of.map(|part| {
                let tenant = match part.contributor {
                    Contributor::Tenant(tenant) => Some(tenant.index()),
                    _ => None,
                };
                let name = |tenant: TenantId| format!("tenant {}", tenant.index());
                let who = part.contributor.text(name);
                Behind { who, tenant, time_ns: part.time.as_nanos() }
            })
            .collect()
        };
        let contract = self.accounts.contract(request.tenant);
        let row = contract.and_then(|contract| contract.rows.get(usize::from(row?)));
        let held = |(stage, rule, time): (StageName, Rule, Duration)| Held {
            stage: stage.as_str(),
            rule: rule.0,
            time_ns: time.as_nanos(),
            behind: behind(stage),
        };
        Story {
            tag: request.tag.0,
            tenant: request.tenant.index(),
            volume: request.volume.index(),
            op: request.op.as_str(),
            offset: request.extent.offset,
            length: request.extent.length,
            arrived_ns: arrived.as_nanos(),
            response_ns: times.total().as_nanos(),
            target_ns: row.map(|row| row.response().as_nanos()),
            error: outcome.err().map(|error| error.to_string()),
            held: times.held().map(held).collect(),
        }
    }

    fn finish(mut self, now: Instant) -> Explanation {
        let wanted = self.question.tenant;
        let mut tenants: Vec<_> = self
            .accounts
            .tenants()
            .filter(|&(tenant, _)| wanted.is_none_or(|wanted| wanted == tenant))
            .map(|(tenant, account)| TenantExplanation {
                tenant: tenant.index(),
                refused: account.ledger.refused,
                attainment: Vec::new(),
                ledger: account::ledger(&account.ledger),
            })
            .collect();
        for told in &mut tenants {
            let tenant = TenantId::new(told.tenant as u32);
            told.attainment = account::attainment(&mut self.accounts, tenant, now);
        }
        let mut slowest: Vec<_> = self.slowest.into_iter().map(|Reverse(ranked)| ranked).collect();
        slowest.sort_by(|a, b| b.cmp(a));
        let mut requests = self.tagged;
        requests.extend(slowest.into_iter().map(|ranked| ranked.story));
        Explanation { tenants, requests, ended: self.ended, outstanding: Vec::new() }
    }
}

impl Observer for Explainer {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        if now >= self.begin {
            if let Event::Completed(completed) = &event {
                self.completed(now, completed);
            }
            self.accounts.event(now, event);
        }
        self.attribution.event(now, event);
    }

    fn service(&mut self, now: Instant, service: Service) {
        self.attribution.service(now, service);
    }
}

fn outstanding(census: &Census) -> Outstanding {
    let Census { stage, count, oldest } = census;
    Outstanding { stage: stage.as_str(), count: *count as usize, oldest_ns: oldest.as_nanos() }
}

#[cfg(test)]
mod tests;
