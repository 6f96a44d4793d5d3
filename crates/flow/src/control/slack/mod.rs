//! # Control policy: slack window (TA4)
//!
//! A bucket marks what is guaranteed, a window limits everything else, fair queueing divides it.
//!
//! | | |
//! |---|---|
//! | Model    | per tenant in order: a head whose bucket holds its cost pays and goes (green); any other head goes while fewer than W are at the device, the smallest start tag first. A green ending after more than `theta` of its promise: `ln W -= kappa q / inflight`; else, while W has held somebody: `ln W += kappa (1 - q) / inflight` |
//! | Units    | buckets in 10^-18 tokens, `ln W` in 2^-48, start tags in 2^-40 s: exact or cut there |
//! | Ties     | the lowest tenant; within a tenant, order of arrival |
//! | Cost     | O(waiting tenants + classes of promises) per request and ending |
//! | Source   | spec/control.md section 11. Brown-out from there; what an infeasible promise may cost others is bounded by a test of futility, see `window.rs` |
//! | Not when | requests of a tenant must not be delayed even in excess, or promises are far from what the device can do |
//!
//! A tenant without a contract is never green; it shares what is left with the weight of 100 requests
//! of 4 KiB a second.

mod marker;
mod settings;
mod window;

use self::marker::Marker;
use self::settings::Settings;
use self::window::Window;
use super::contract::{self, Promise};
use super::fair::Fair;
use super::{Build, ControlPolicy, Notice, Promises, token_bucket};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Rule, Unit};
use crate::request::{Request, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "slack",
    summary: "guaranteed requests go at once, all others within a window that holds the promises (TA4)",
    parameters: &[QUANTILE, THETA, KAPPA, MARGIN, BURST, MIN, FIRST, MAX],
    build: |values, list| Box::new(Slack::new(Settings::from(values), list)),
};

const QUANTILE: Parameter = Parameter {
    name: "quantile",
    unit: Unit::Count,
    min: 500,
    max: 999,
    default: 990,
    effect: "thousandths of the guaranteed requests that are to keep the promise; more leaves less for \
             excess",
};
const THETA: Parameter = Parameter {
    name: "theta",
    unit: Unit::Count,
    min: 10,
    max: 100,
    default: 95,
    effect: "per cent of the promised time that a request may take at the device before it counts as a \
             miss; less leaves room for waiting elsewhere",
};
const KAPPA: Parameter = Parameter {
    name: "kappa",
    unit: Unit::Count,
    min: 1,
    max: 1_000,
    default: 100,
    effect: "hundredths by which the logarithm of the window moves in a response time at most; more \
             follows faster and fluctuates more",
};
const MARGIN: Parameter = Parameter {
    name: "margin",
    unit: Unit::Count,
    min: 0,
    max: 1_000,
    default: 50,
    effect: "thousandths above the contract's rate that are still guaranteed; more keeps tenants at \
             their contract out of the excess, and promises more than was sold",
};
const BURST: Parameter = Parameter {
    name: "burst",
    unit: Unit::Time,
    min: 1_000_000,
    max: 60_000_000_000,
    default: 100_000_000,
    effect: "time at the contract's rate that the bucket holds; more guarantees longer bursts, which \
             reach the device as they come",
};
const MIN: Parameter = Parameter {
    name: "min",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 8,
    effect: "smallest window; more keeps the device busy however little the promises leave",
};
const FIRST: Parameter = Parameter {
    name: "first",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 64,
    effect: "window at the start, moved into the range from min to max",
};
const MAX: Parameter = Parameter {
    name: "max",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 4_096,
    effect: "largest window, at least min, and the window while nothing is guaranteed: what the first \
             guaranteed request after that finds before it",
};

const WINDOW: Rule = Rule("control/window");

struct Slack {
    lanes: Vec<Lane>,
    /// The lanes in which something waits.
    waiting: BTreeSet<usize>,
    fair: Fair,
    window: Window,
    /// What is at the device, and whether it was guaranteed.
    inflight: SecondaryMap<RequestKey, bool>,
    ready: VecDeque<(RequestKey, Rule)>,
    notices: VecDeque<Notice>,
}

struct Lane {
    promise: Promise,
    marker: Marker,
    queue: VecDeque<(RequestKey, u64)>,
}

impl Slack {
    fn new(settings: Settings, list: &Promises) -> Self {
        let promises = contract::promises(list);
        let kept = promises.iter().filter(|promise| promise.kept);
        let window = Window::new(settings, kept.map(|promise| promise.response));
        let fair = Fair::new(&promises);
        let lane = |promise: Promise| Lane {
            marker: Marker::new(promise.iops, &settings),
            promise,
            queue: VecDeque::new(),
        };
        Self {
            lanes: promises.into_iter().map(lane).collect(),
            waiting: BTreeSet::new(),
            fair,
            window,
            inflight: SecondaryMap::new(),
            ready: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// Judges the periods that have ended.
    fn advance(&mut self, now: Instant) {
        while let Some(at) = self.window.due(now) {
            if self.window.settled() {
                self.window.skip(now);
                return;
            }
            // Up to here buckets have filled at the old scale.
            let scale = self.window.scale();
            let news = self.window.judge();
            if scale != self.window.scale() {
                for lane in &mut self.lanes {
                    let head = lane.queue.front().map(|&(_, cost)| cost);
                    lane.marker.fill(at, scale, head);
                }
            }
            for (response, infeasible) in news {
                let named = (0_u32..).zip(&self.lanes);
                let hit = named
                    .filter(|(_, lane)| lane.promise.kept && lane.promise.response == response);
                self.notices
                    .extend(hit.map(|(id, _)| Notice::Infeasible(TenantId::new(id), infeasible)));
            }
        }
    }

    /// Lets go what may go.
    fn pump(&mut self, now: Instant) {
        let scale = self.window.scale();
        let mut empty = Vec::new();
        for &index in &self.waiting {
            let lane = &mut self.lanes[index];
            while let Some(&(key, cost)) = lane.queue.front()
                && lane.promise.kept
                && lane.marker.pay(now, scale, cost)
            {
                lane.queue.pop_front();
                self.inflight.insert(key, true);
                self.ready.push_back((key, token_bucket::RULE));
            }
            if lane.queue.is_empty() {
                empty.push(index);
            }
        }
        for index in empty {
            self.waiting.remove(&index);
        }
        loop {
            let least = self.waiting.iter().min_by_key(|&&index| (self.fair.start(index), index));
            let Some(&index) = least else { return };
            if !self.window.room(self.inflight.len() as u32) {
                self.window.binds(now);
                return;
            }
            let lane = &mut self.lanes[index];
            let (key, cost) = lane.queue.pop_front().expect("a waiting lane has a head");
            if lane.queue.is_empty() {
                self.waiting.remove(&index);
            }
            let start = self.fair.tag(index, cost);
            self.fair.gone(start);
            self.inflight.insert(key, false);
            self.ready.push_back((key, WINDOW));
        }
    }
}

impl ControlPolicy for Slack {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request) {
        self.advance(now);
        let index = contract::line(request, self.lanes.len());
        let lane = &mut self.lanes[index];
        lane.queue.push_back((key, lane.promise.cost(request)));
        self.waiting.insert(index);
        self.window.rule(now);
        self.pump(now);
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        self.ready.pop_front()
    }

    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration) {
        self.advance(now);
        let inflight = self.inflight.len() as u32;
        let green = self.inflight.remove(key).expect("only what was released can end");
        let index = contract::line(request, self.lanes.len());
        if green {
            let response = self.lanes[index].promise.response;
            self.window.ended(now, response, device, inflight);
        } else {
            self.window.rule(now);
        }
        self.pump(now);
    }

    fn adopt(&mut self, key: RequestKey, _: &Request, _: Instant) {
        self.inflight.insert(key, false);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let scale = self.window.scale();
        let mut next = self.window.next();
        if self.waiting.is_empty() {
            return None;
        }
        for &index in &self.waiting {
            let lane = &self.lanes[index];
            if let Some(&(_, cost)) = lane.queue.front()
                && lane.promise.kept
            {
                let at = lane.marker.holds(cost, scale);
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.advance(now);
        self.window.rule(now);
        self.pump(now);
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

#[cfg(test)]
mod tests;
