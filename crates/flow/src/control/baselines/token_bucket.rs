//! # Control policy: token bucket (TA1)
//!
//! Each tenant's requests pass a bucket that fills at the contract's rate.
//!
//! | | |
//! |---|---|
//! | Model    | every `1 / tau` s: `tokens = min(depth, tokens + iops / tau)`, then heads leave while `tokens >= cost`; an arrival that finds no queue and enough tokens leaves at once; `cost = max(1, bytes / size)` tokens |
//! | Units    | milli-tokens; a token is one request of the contract's size |
//! | Ties     | at a tick the lowest tenant first; within a tenant, order of arrival |
//! | Cost     | O(log waiting tenants) per request; wakes only at ticks at which a request can pay |
//! | Source   | scheme TA1 of the token-bucket paper, section 2.1; depth with the guard of `docs/reference/control.md` section 4, A4 |
//! | Not when | what one tenant leaves should serve another: the rate of the contract is also the limit. Arrivals that are not smooth wait even below the contract: a bucket refilled at the mean rate is a queue at load one |
//!
//! A tenant without a contract has no bucket and passes.

use super::bucket::{Bucket, PACE_ONE, Ticks};
use super::simple::{SimpleContract, simple_contracts};
use crate::clock::{Duration, Instant};
use crate::control::contract;
use crate::control::{Build, ControlPolicy, Notice, Promises, RULE_BUCKET};
use crate::policy::{Parameter, Policy, Property, Rule, Unit};
use crate::request::{Request, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

pub(in crate::control) const POLICY: Policy<Build> = Policy {
    name: "ta1",
    summary: "each tenant's requests pass a bucket that fills at the contract's rate (TA1)",
    properties: &[Property::KeepsOrder],
    parameters: &[TAU],
    build: |values, list| Box::new(TokenBucket::new(values.get("tau"), list)),
};

/// Refills per second, the `tau` of the paper.
pub(super) const TAU: Parameter = Parameter {
    name: "tau",
    unit: Unit::Count,
    min: 1,
    max: 100_000,
    default: 1_000,
    effect: "refills of the buckets per second; more is smoother, and may wake the gateway more often \
             while requests wait",
};

struct TokenBucket {
    lanes: Vec<Lane>,
    /// The tick at which each lane with a queue can pay for its head.
    due: BTreeSet<(u64, usize)>,
    ticks: Ticks,
    ready: VecDeque<RequestKey>,
    notices: VecDeque<Notice>,
}

struct Lane {
    promise: SimpleContract,
    bucket: Bucket,
    /// Queued requests with their costs.
    queue: VecDeque<(RequestKey, u64)>,
}

impl TokenBucket {
    fn new(tau: u64, list: &Promises) -> Self {
        let lane = |promise: SimpleContract| Lane {
            bucket: Bucket::new(promise.iops, tau),
            promise,
            queue: VecDeque::new(),
        };
        let lanes: Vec<Lane> = simple_contracts(list).into_iter().map(lane).collect();
        let kept = (0..).zip(&lanes).filter(|(_, lane)| lane.promise.kept);
        let notices = kept.map(|(id, _)| Notice::Gate(TenantId::new(id), true)).collect();
        let (due, ready) = (BTreeSet::new(), VecDeque::new());
        Self { lanes, due, ticks: Ticks::new(tau), ready, notices }
    }

    /// Lets go what the ticks up to `now` pay for.
    fn advance(&mut self, now: Instant) {
        let last = self.ticks.until(now);
        while let Some(&(tick, index)) = self.due.first()
            && tick <= last
        {
            self.due.pop_first();
            let lane = &mut self.lanes[index];
            lane.bucket.fill(tick, PACE_ONE);
            while let Some(&(key, cost)) = lane.queue.front() {
                if !lane.bucket.pay(cost) {
                    self.due.insert((lane.bucket.covers(cost, PACE_ONE), index));
                    break;
                }
                lane.queue.pop_front();
                self.ready.push_back(key);
            }
        }
    }
}

impl ControlPolicy for TokenBucket {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, _: Option<u8>) {
        self.advance(now);
        let index = contract::line(request, self.lanes.len());
        let lane = &mut self.lanes[index];
        if !lane.promise.kept {
            self.ready.push_back(key);
            return;
        }
        let cost = lane.promise.cost(request);
        if lane.queue.is_empty() {
            lane.bucket.refill(self.ticks.until(now));
            if lane.bucket.pay(cost) {
                self.ready.push_back(key);
                return;
            }
            self.due.insert((lane.bucket.covers(cost, PACE_ONE), index));
        }
        lane.queue.push_back((key, cost));
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        self.ready.pop_front().map(|key| (key, RULE_BUCKET))
    }

    fn complete(&mut self, _: Instant, _: RequestKey, _: &Request, _: Duration) {}

    fn adopt(&mut self, _: RequestKey, _: &Request, _: Instant) {}

    fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|&(tick, _)| self.ticks.at(tick))
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.advance(now);
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}
