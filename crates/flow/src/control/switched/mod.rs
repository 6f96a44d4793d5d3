//! Buckets with a by-pass around each: what TA2 and TA3 share.
//!
//! A tenant's requests by-pass its bucket until its switch is on. When the switch goes off, what has
//! collected behind the bucket leaves by the rule of [`Leave`]. When to switch is the policies'
//! [`Decide`]; it is asked whenever an observed response time changes.

mod observe;
mod settings;

use self::observe::{Meter, Observed, SLOT};
use super::bucket::{Bucket, PACE_ONE, Ticks};
use super::contract::{self, Promise};
use super::{ControlPolicy, Notice, Promises, token_bucket};
use crate::clock::{Duration, Instant};
use crate::policy::Rule;
use crate::request::{Request, RequestKey, TenantId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(super) use settings::{
    Decide, ESTIMATOR, HWM, LWM, Leave, OLDEST, RAMP, RELEASE, SHARED, Settings, WINDOW,
};

/// How often a ramp grows and silence is looked for.
const BEAT: Duration = Duration::from_millis(50);

const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// The pace at which a ramp stops growing: by then everything leaves at once.
const PACE_MAX: u128 = PACE_ONE << 20;

const RAMPED: Rule = Rule("control/release");

/// Buckets, switches and what they go by.
pub(super) struct Switched {
    settings: Settings,
    lanes: Vec<Lane>,
    ticks: Ticks,
    /// The number of the next tick.
    tick: u64,
    /// When windows end, beats come and slots end next.
    window_end: Instant,
    beat: Instant,
    slot_end: Instant,
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
    index: usize,
    promise: Promise,
    /// Thresholds.
    high: Duration,
    low: Duration,
    bucket: Bucket,
    queue: VecDeque<(RequestKey, u64)>,
    on: bool,
    /// The multiple of the contract's rate at which the queue leaves, over [`PACE_ONE`].
    pace: u128,
    observed: Observed,
    meter: Meter,
}

impl Lane {
    /// Whether the tenant breaks its contract. One with a backlog has broken it, even if it is
    /// silent now.
    fn violates(&self, margin_permille: u64) -> bool {
        !self.queue.is_empty() || self.meter.above(u64::from(self.promise.iops), margin_permille)
    }

    fn release(&mut self, ready: &mut VecDeque<Released>, rule: Rule) {
        while let Some(&(key, cost)) = self.queue.front()
            && self.bucket.pay(cost)
        {
            self.queue.pop_front();
            ready.push_back(Released { key, rule, index: self.index });
        }
    }

    /// Whether its backlog is leaving at a pace of its own.
    fn paced(&self, leave: Leave) -> bool {
        !self.on && !self.queue.is_empty() && leave == Leave::Ramp
    }
}

impl Switched {
    pub(super) fn new(settings: Settings, list: &Promises) -> Self {
        let percent =
            |time: Duration, percent: u64| Duration::from_nanos(time.as_nanos() * percent / 100);
        let lane = |(index, promise): (usize, Promise)| Lane {
            index,
            high: percent(promise.response, settings.on_percent),
            low: percent(promise.response, settings.off_percent),
            bucket: Bucket::new(promise.iops, settings.tau),
            promise,
            queue: VecDeque::new(),
            on: false,
            pace: PACE_ONE,
            observed: Observed::default(),
            meter: Meter::default(),
        };
        let start = Instant::ZERO;
        Self {
            settings,
            lanes: contract::promises(list).into_iter().enumerate().map(lane).collect(),
            ticks: Ticks::new(settings.tau),
            tick: 1,
            window_end: settings.estimator.window.map_or(NEVER, |window| start + window),
            beat: start + BEAT,
            slot_end: start + SLOT,
            ready: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    fn waits(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.queue.is_empty())
    }

    /// Whether a silent world would still change something: a switch is on, or somebody's response
    /// time is remembered.
    fn lively(&self) -> bool {
        self.lanes.iter().any(|lane| lane.on || lane.observed.lively())
    }

    /// Everything that time brings, up to `now`, in its order.
    fn advance(&mut self, now: Instant) {
        loop {
            let at =
                self.ticks.at(self.tick).min(self.window_end).min(self.beat).min(self.slot_end);
            if at > now {
                return;
            }
            if !self.waits() && !self.lively() {
                self.skip(now);
                return;
            }
            self.grow(at);
            self.tick(at);
            self.slots(at);
            self.beats(at);
        }
    }

    /// Nothing waits and nothing is remembered: only buckets fill and slots end.
    fn skip(&mut self, now: Instant) {
        let tick = self.ticks.until(now);
        for lane in &mut self.lanes {
            lane.bucket.refill(tick);
        }
        self.tick = tick + 1;
        self.slots(now);
        self.beat = after(self.beat, BEAT, now);
        if let Some(window) = self.settings.estimator.window {
            self.window_end = after(self.window_end, window, now);
        }
    }

    /// Lets ramps rise.
    fn grow(&mut self, at: Instant) {
        if at < self.beat {
            return;
        }
        for lane in &mut self.lanes {
            if lane.paced(self.settings.leave) {
                let pace = lane.pace * u128::from(self.settings.ramp_permille) / 1_000;
                lane.pace = pace.min(PACE_MAX);
            }
        }
    }

    /// Refills every bucket and lets go what it pays for.
    fn tick(&mut self, at: Instant) {
        let tick = self.ticks.until(at);
        if tick < self.tick {
            return;
        }
        self.tick = tick + 1;
        for lane in &mut self.lanes {
            if lane.paced(self.settings.leave) {
                lane.bucket.fill(tick, lane.pace);
                lane.release(&mut self.ready, RAMPED);
                if lane.queue.is_empty() {
                    lane.bucket.settle(lane.pace);
                }
            } else if lane.queue.is_empty() {
                lane.bucket.refill(tick);
            } else {
                lane.bucket.fill(tick, PACE_ONE);
                lane.release(&mut self.ready, token_bucket::RULE);
            }
        }
    }

    fn slots(&mut self, at: Instant) {
        if at < self.slot_end {
            return;
        }
        let late = at.since(self.slot_end).as_nanos() / SLOT.as_nanos();
        for lane in &mut self.lanes {
            lane.meter.slots(1 + late);
        }
        self.slot_end += SLOT * (1 + late);
    }

    fn beats(&mut self, at: Instant) {
        let mut changed = false;
        if at >= self.window_end
            && let Some(window) = self.settings.estimator.window
        {
            self.window_end += window;
            for lane in &mut self.lanes {
                changed |= lane.observed.end_window();
            }
        }
        if at >= self.beat {
            self.beat += BEAT;
            for lane in &mut self.lanes {
                changed |= lane.observed.beat(at, &self.settings.estimator);
            }
        }
        if changed {
            self.decide(at);
        }
    }

    /// Switches whom the observed response times say.
    fn decide(&mut self, now: Instant) {
        for lane in &mut self.lanes {
            lane.observed.look(now);
        }
        match self.settings.decide {
            Decide::Together => self.decide_for(|_| true, |_| true),
            Decide::Victim { margin_permille } => {
                let violates = |lane: &Lane| lane.violates(margin_permille);
                let active = || self.lanes.iter().filter(|lane| lane.meter.active());
                let crowd = active().count() >= 2 && active().all(violates);
                self.decide_for(|lane| crowd || !violates(lane), violates);
            }
            Decide::Own { margin_permille } => {
                for index in 0..self.lanes.len() {
                    let lane = &self.lanes[index];
                    if lane.promise.kept {
                        if lane.observed.time > lane.high && lane.violates(margin_permille) {
                            self.switch(index, true);
                        } else if lane.observed.time < lane.low {
                            self.switch(index, false);
                        }
                    }
                }
            }
        }
    }

    /// On with those who are `held` if anybody who is `watched` suffers; all off if all of those are
    /// well.
    fn decide_for(&mut self, watched: impl Fn(&Lane) -> bool, held: impl Fn(&Lane) -> bool) {
        let mut watch = self.lanes.iter().filter(|lane| lane.promise.kept && watched(lane));
        if watch.clone().any(|lane| lane.observed.time > lane.high) {
            for index in 0..self.lanes.len() {
                if held(&self.lanes[index]) {
                    self.switch(index, true);
                }
            }
        } else if watch.all(|lane| lane.observed.time < lane.low) {
            for index in 0..self.lanes.len() {
                self.switch(index, false);
            }
        }
    }

    fn switch(&mut self, index: usize, on: bool) {
        // The last line has no tenant of its own to speak of.
        let named = index + 1 < self.lanes.len();
        let lane = &mut self.lanes[index];
        if lane.on == on {
            return;
        }
        lane.on = on;
        lane.pace = PACE_ONE;
        if named {
            self.notices.push_back(Notice::Gate(TenantId::new(index as u32), on));
        }
        if !on && self.settings.leave == Leave::Flush {
            let (rule, index) = (token_bucket::RULE, index);
            let left = lane.queue.drain(..);
            self.ready.extend(left.map(|(key, _)| Released { key, rule, index }));
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
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request) {
        self.advance(now);
        let lines = self.lanes.len();
        let lane = &mut self.lanes[contract::line(request, lines)];
        let cost = lane.promise.cost(request);
        lane.meter.count(cost);
        let passes = if lane.on {
            lane.queue.is_empty() && lane.bucket.pay(cost)
        } else {
            lane.queue.is_empty() || self.settings.leave == Leave::Stay
        };
        if passes {
            let (rule, index) = (token_bucket::RULE, lane.index);
            self.ready.push_back(Released { key, rule, index });
        } else {
            lane.queue.push_back((key, cost));
        }
    }

    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        let Released { key, rule, index } = self.ready.pop_front()?;
        self.lanes[index].observed.released(now, &self.settings.estimator);
        Some((key, rule))
    }

    fn complete(&mut self, now: Instant, _: RequestKey, request: &Request, device: Duration) {
        self.advance(now);
        let lines = self.lanes.len();
        let lane = &mut self.lanes[contract::line(request, lines)];
        if lane.observed.ended(now, device, &self.settings.estimator) {
            self.decide(now);
        }
    }

    fn adopt(&mut self, _: RequestKey, request: &Request, released: Instant) {
        let lines = self.lanes.len();
        let lane = &mut self.lanes[contract::line(request, lines)];
        lane.observed.released(released, &self.settings.estimator);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.waits() {
            Some(self.ticks.at(self.tick).min(self.beat).min(self.window_end))
        } else {
            self.lively().then(|| self.beat.min(self.window_end))
        }
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.advance(now);
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}
