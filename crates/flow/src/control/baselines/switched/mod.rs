//! Token buckets with a switch each: the frame of TA2 and TA3.
//!
//! A tenant's requests by-pass its bucket until its switch is on. When the switch turns off, the backlog behind
//! the bucket leaves by the rule of [`Leave`]. The policies' [`Decide`] says when to switch; it is evaluated
//! at each completion, or with the estimator `p95` at the end of each window.
//!
//! No step visits all tenants: those with a backlog are listed by the tick at which they can pay, and each
//! change updates the counters that a decision reads.
//!
//! ```text
//!  arrival  ── by-pass or bucket ──> queue ── tick pays ──> ready       mod.rs, ../bucket.rs
//!  ending   ──> response time, above or below its thresholds            responses.rs
//!  100 ms   ──> arrival rate: violator or not                           rates.rs
//!                    │ each change of a tenant's standing
//!                    v
//!  decide   ──> which switches change (TA2: all; TA3: violators)        verdict.rs
//!                    └─> switch: the backlog ramps, goes, or stays      mod.rs
//!
//!  advance, up to now: raise_ramps, release_covered, end_rate_slots, end_windows (then decide)
//! ```

mod rates;
mod responses;
mod settings;
mod verdict;

use self::rates::Rates;
use self::responses::Responses;
use self::verdict::{Standing, Verdict};
use super::bucket::{Bucket, PACE_ONE, Ticks};
use super::simple::{SimpleContract, simple_contracts};
use crate::clock::{Duration, Instant};
use crate::control::RULE_BUCKET;
use crate::control::contract;
use crate::control::{ControlPolicy, Notice, Promises};
use crate::policy::Rule;
use crate::request::{Request, RequestKey, TenantId};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
pub(super) use settings::{
    Decide, ESTIMATOR, HWM, KEEPS_ORDER, LWM, Leave, OLDEST, RAMP, RELEASE, SHARED, Settings,
    WINDOW,
};

/// Buckets, switches, and the observations that move them.
pub(super) struct Switched {
    settings: Settings,
    lanes: Vec<Lane>,
    ticks: Ticks,
    /// The tick at which each lane with a backlog can pay for its head.
    due: BTreeSet<(u64, usize)>,
    /// Lanes whose backlog leaves at its own pace.
    ramped: BTreeSet<usize>,
    responses: Responses,
    rates: Rates,
    verdict: Verdict,
    /// When windows end and beats come next.
    window_end: Instant,
    beat: Instant,
    ready: VecDeque<Released>,
    notices: VecDeque<Notice>,
}

/// A request that may go.
struct Released {
    key: RequestKey,
    rule: Rule,
    index: usize,
}

struct Lane {
    promise: SimpleContract,
    bucket: Bucket,
    queue: VecDeque<(RequestKey, u64)>,
    /// The tick under which `due` lists it.
    due: Option<u64>,
    /// The multiple of the contract's rate at which the queue leaves, over [`PACE_ONE`].
    pace: u128,
}

impl Lane {
    /// Lists it in `due` by its head, or removes it.
    fn schedule(&mut self, index: usize, due: &mut BTreeSet<(u64, usize)>) {
        let head = self.queue.front();
        let tick = head.map(|&(_, cost)| self.bucket.covers(cost, self.pace));
        if tick != self.due {
            if let Some(old) = self.due {
                due.remove(&(old, index));
            }
            due.extend(tick.map(|tick| (tick, index)));
            self.due = tick;
        }
    }
}

impl Switched {
    pub(super) fn new(settings: Settings, list: &Promises) -> Self {
        let promises = simple_contracts(list);
        let thresholds = promises.iter().map(|promise| {
            let percent = |percent: u64| promise.response.as_nanos() * percent / 100;
            let [high, low] = [settings.on_percent, settings.off_percent].map(percent);
            (Duration::from_nanos(high), Duration::from_nanos(low))
        });
        let responses = Responses::new(settings.estimator, thresholds);
        let verdict = Verdict::new(settings.decide, promises.iter().map(|promise| promise.kept));
        let lane = |promise: SimpleContract| Lane {
            bucket: Bucket::new(promise.iops, settings.tau),
            promise,
            queue: VecDeque::new(),
            due: None,
            pace: PACE_ONE,
        };
        let start = Instant::ZERO;
        Self {
            settings,
            responses,
            rates: Rates::new(promises.len()),
            verdict,
            lanes: promises.into_iter().map(lane).collect(),
            ticks: Ticks::new(settings.tau),
            due: BTreeSet::new(),
            ramped: BTreeSet::new(),
            window_end: settings.estimator.window.map_or(NEVER, |window| start + window),
            beat: start + BEAT,
            ready: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// Whether time alone would change something: a request waits, a switch is on, or a response time is
    /// remembered.
    fn time_matters(&self) -> bool {
        !self.due.is_empty() || self.verdict.any_on() || self.responses.lively()
    }

    /// The time at which a bucket covers the next head.
    fn next_release(&self) -> Instant {
        self.due.first().map_or(NEVER, |&(tick, _)| self.ticks.at(tick))
    }

    /// Does everything that is due by `now`, in order of time.
    fn advance(&mut self, now: Instant) {
        loop {
            let beat = self.window_end.min(self.beat).min(self.rates.slot_end());
            let at = self.next_release().min(beat);
            if at > now {
                return;
            }
            if !self.time_matters() {
                self.skip(now);
                return;
            }
            self.raise_ramps(at);
            self.release_covered(at);
            self.end_rate_slots(at);
            self.end_windows(at);
        }
    }

    /// Without a queued request or a remembered response time only rate slots end.
    fn skip(&mut self, now: Instant) {
        self.end_rate_slots(now);
        self.beat = after(self.beat, BEAT, now);
        if let Some(window) = self.settings.estimator.window {
            self.window_end = after(self.window_end, window, now);
        }
    }

    /// Raises the pace of ramps, from the tick at `at` on.
    fn raise_ramps(&mut self, at: Instant) {
        if at < self.beat {
            return;
        }
        let before = self.ticks.until(Instant::from_nanos(at.as_nanos() - 1));
        for &index in &self.ramped {
            let lane = &mut self.lanes[index];
            lane.bucket.fill(before, lane.pace);
            let pace = lane.pace * u128::from(self.settings.ramp_permille) / 1_000;
            lane.pace = pace.min(PACE_MAX);
            lane.schedule(index, &mut self.due);
        }
    }

    /// Releases the requests that the ticks up to `at` cover.
    fn release_covered(&mut self, at: Instant) {
        let last = self.ticks.until(at);
        while let Some(&(tick, index)) = self.due.first()
            && tick <= last
        {
            let paced = self.ramped.contains(&index);
            let rule = if paced { RAMPED } else { RULE_BUCKET };
            let lane = &mut self.lanes[index];
            lane.bucket.fill(tick, lane.pace);
            while let Some(&(key, cost)) = lane.queue.front()
                && lane.bucket.pay(cost)
            {
                lane.queue.pop_front();
                self.ready.push_back(Released { key, rule, index });
            }
            lane.schedule(index, &mut self.due);
            if lane.queue.is_empty() {
                if paced {
                    lane.bucket.settle(lane.pace);
                    self.ramped.remove(&index);
                }
                self.update_violator(index);
            }
        }
    }

    fn end_rate_slots(&mut self, at: Instant) {
        for index in self.rates.end_slots(at) {
            self.update_violator(index);
        }
    }

    fn end_windows(&mut self, at: Instant) {
        let mut due = false;
        if at >= self.window_end
            && let Some(window) = self.settings.estimator.window
        {
            self.window_end += window;
            for index in self.responses.end_window() {
                self.update_response(index, at);
            }
            // A tenant may have become a violator since the last decision although no response time has changed.
            due = true;
        }
        if at >= self.beat {
            self.beat += BEAT;
            for index in self.responses.forget(at) {
                self.update_response(index, at);
                due = true;
            }
            due |= self.responses.any_out();
        }
        if due {
            self.decide(at);
        }
    }

    /// A tenant's rate or backlog has changed. One with a backlog is a violator, even if it sends nothing now.
    fn update_violator(&mut self, index: usize) {
        let Some(margin) = self.settings.decide.margin_permille() else { return };
        let lane = &self.lanes[index];
        let iops = u64::from(lane.promise.iops);
        let violates = !lane.queue.is_empty() || self.rates.above(index, iops, margin);
        let active = self.rates.active(index);
        self.verdict.change(index, Standing { active, violates, ..self.verdict.standing(index) });
    }

    /// A tenant's observed response time has changed.
    fn update_response(&mut self, index: usize, now: Instant) {
        let plight = self.responses.plight(index, now);
        let (hurt, unwell) = (plight.hurt, plight.unwell);
        self.verdict.change(index, Standing { hurt, unwell, ..self.verdict.standing(index) });
    }

    /// Turns the switches that the observed response times demand.
    fn decide(&mut self, now: Instant) {
        while let Some(index) = self.responses.aged(now) {
            self.update_response(index, now);
        }
        for (index, on) in self.verdict.decide() {
            self.switch(index, on, now);
        }
    }

    fn switch(&mut self, index: usize, on: bool, now: Instant) {
        // The last line belongs to no single tenant.
        if index + 1 < self.lanes.len() {
            self.notices.push_back(Notice::Gate(TenantId::new(index as u32), on));
        }
        self.verdict.change(index, Standing { on, ..self.verdict.standing(index) });
        let lane = &mut self.lanes[index];
        if !lane.queue.is_empty() {
            lane.bucket.fill(self.ticks.until(now), lane.pace);
        }
        lane.pace = PACE_ONE;
        if !lane.queue.is_empty() {
            if on {
                self.ramped.remove(&index);
            } else if self.settings.leave == Leave::Ramp {
                self.ramped.insert(index);
            } else if self.settings.leave == Leave::Flush {
                let rule = RULE_BUCKET;
                let left = lane.queue.drain(..);
                self.ready.extend(left.map(|(key, _)| Released { key, rule, index }));
            }
            lane.schedule(index, &mut self.due);
            self.update_violator(index);
        }
    }
}

/// The first of the times `at`, `at + step`, … that is after `now`.
fn after(at: Instant, step: Duration, now: Instant) -> Instant {
    if at > now {
        return at;
    }
    at + step * (1 + now.since(at).as_nanos() / step.as_nanos())
}

impl ControlPolicy for Switched {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, _: Option<u8>) {
        self.advance(now);
        let index = contract::line(request, self.lanes.len());
        let on = self.verdict.standing(index).on;
        let lane = &mut self.lanes[index];
        let cost = lane.promise.cost(request);
        self.rates.count(index, cost);
        let passes = if !lane.queue.is_empty() {
            !on && self.settings.leave == Leave::Stay
        } else if on {
            lane.bucket.refill(self.ticks.until(now));
            lane.bucket.pay(cost)
        } else {
            true
        };
        if passes {
            self.ready.push_back(Released { key, rule: RULE_BUCKET, index });
            return;
        }
        lane.queue.push_back((key, cost));
        if lane.queue.len() == 1 {
            lane.schedule(index, &mut self.due);
            self.update_violator(index);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        let Released { key, rule, index } = self.ready.pop_front()?;
        self.responses.released(index, now);
        Some((key, rule))
    }

    fn complete(&mut self, now: Instant, _: RequestKey, request: &Request, device: Duration) {
        self.advance(now);
        let index = contract::line(request, self.lanes.len());
        let decides = self.responses.ended(index, now, device);
        self.update_response(index, now);
        if decides {
            self.decide(now);
        }
    }

    fn adopt(&mut self, _: RequestKey, request: &Request, released: Instant) {
        // What was before a request that is outstanding now is none of this policy's business.
        self.skip(released);
        let index = contract::line(request, self.lanes.len());
        self.responses.released(index, released);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.time_matters().then(|| self.next_release().min(self.beat).min(self.window_end))
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.advance(now);
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

/// How often a ramp grows and silence is looked for.
const BEAT: Duration = Duration::from_millis(50);

/// The pace at which a ramp stops growing: by then everything leaves at once.
const PACE_MAX: u128 = PACE_ONE << 20;

const RAMPED: Rule = Rule(&"control/release");

const NEVER: Instant = Instant::from_nanos(u64::MAX);

#[cfg(test)]
mod tests {
    use super::super::{ta2, ta3};
    use super::*;
    use crate::control::Contract;
    use crate::testing;

    /// With windows a decision is due at the end of each, also when no percentile has changed: the second tenant
    /// becomes a violator when its first rate slot ends, and the first has been hurt alike since the window before.
    #[test]
    fn every_window_decides() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(10)));
        let list = testing::promises(&[contract(1_000), contract(100)]);
        let values = [("estimator", 1), ("oldest", 0)];
        let choice = testing::choice(&ta3::POLICY, &values);
        let mut policy = (ta3::POLICY.build)(choice.values(), &list);
        let request =
            |tenant: u32| Request { tenant: TenantId::new(tenant), ..testing::request(0) };
        let keys = testing::keys(200);
        let mut switches = Vec::new();
        for (&key, millis) in keys.iter().zip(0..140) {
            for tenant in [0, 1, 1] {
                policy.arrive(at(millis), key, &request(tenant), Some(0));
                while policy.poll(at(millis)).is_some() {}
            }
            if millis >= 20 {
                policy.complete(at(millis), key, &request(0), Duration::from_millis(20));
            }
            let notices = core::iter::from_fn(|| policy.notice());
            switches.extend(notices.map(|notice| (millis, notice)));
        }
        assert_eq!(switches, [(100, Notice::Gate(TenantId::new(1), true))]);
    }

    /// A backlog behind an opened switch leaves at the contract's rate at least, even if that is less
    /// than a milli-token per tick; and the next deadline is when it can, not every tick.
    #[test]
    fn a_slow_backlog_leaves_with_many_ticks() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let contract = Contract::new(30, 4_096, Duration::from_millis(10));
        let list = testing::promises(&[Some(contract)]);
        let values = [("tau", 100_000), ("ramp", 1_001), ("oldest", 0)];
        let choice = testing::choice(&ta2::POLICY, &values);
        let mut policy = (ta2::POLICY.build)(choice.values(), &list);
        let (keys, request) = (testing::keys(5), testing::request(0));
        policy.arrive(at(1), keys[0], &request, Some(0));
        assert_eq!(policy.poll(at(1)), Some((keys[0], RULE_BUCKET)));
        policy.complete(at(21), keys[0], &request, Duration::from_millis(20));
        for &key in &keys[1..] {
            policy.arrive(at(22), key, &request, Some(0));
        }
        assert_eq!(policy.poll(at(22)), Some((keys[1], RULE_BUCKET)));
        assert_eq!(policy.poll(at(22)), None, "the switch is on and the bucket empty");
        policy.complete(at(23), keys[1], &request, Duration::from_millis(1));
        let (mut times, mut asked) = (Vec::new(), 0);
        while times.len() < 3 {
            let now = policy.next_deadline().expect("something waits");
            policy.handle_deadline(now);
            times.extend(policy.poll(now).map(|(_, rule)| (now, rule)));
            asked += 1;
            assert!(asked < 20, "{times:?} at {now:?}");
        }
        let gates: Vec<_> = core::iter::from_fn(|| policy.notice()).collect();
        assert_eq!(gates, [true, false].map(|on| Notice::Gate(TenantId::new(0), on)));
        for (place, (now, rule)) in (1..).zip(times) {
            let due = at(22) + Duration::from_micros(33_340) * place;
            assert!(now <= due && rule == RAMPED, "{place}: {now:?} {rule:?}");
        }
    }
}
