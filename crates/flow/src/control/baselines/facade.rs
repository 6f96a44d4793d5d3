//! # Control policy: earliest deadline first with a controlled depth (Façade)
//!
//! EDF whose depth follows the mean response times.
//!
//! | | |
//! |---|---|
//! | Model    | as `edf`; every 100 ms the depth is multiplied by the smallest `response / mean response time` of a tenant: by at least 0.5 when that is below one, else by at most 1.1 and only if a request waits for the depth. The means are over requests with deadlines that ended in the 100 ms, from arrival to end |
//! | Units    | depth in millionths, rounded to whole requests where it is compared |
//! | Ties     | as `edf` |
//! | Order    | as `edf` |
//! | Cost     | as `edf`, and O(tenants) every 100 ms |
//! | Source   | Lumb, Merchant and Alvarez, "Façade: virtual storage devices with performance guarantees", FAST 2003, as `docs/reference/control.md` section 7 describes it |
//! | Not when | promises are percentiles: a mean at the promise leaves four in ten late. More work within the contracts than the device can do drives the depth, and the throughput, to the floor |
//!
//! Section 7 leaves open which latency it means, where the depth begins, when it is binding and how it is
//! rounded. As above it meets every cell of the nine intervals within 1 point and 1 % but one: set A, constant
//! arrivals, interval 6, where W1 has 53.9 % satisfied instead of 57.2 % and both together get 5199 requests a
//! second instead of 5306. That interval is at the edge of a collapse: roundings of the depth and of the
//! buckets that were tried give 54 to 62 % there, and leave the tables elsewhere; by seed it is 0.6 to
//! 73.6 %. Times at the device, means over all requests, growth by a fixed tenth or another first depth
//! are off by 17 points and more.
//!
//! Where the contracts nearly fill what the device can do, a few long periods in a row decide the rest of
//! a run: once the depth passes less than the contracts ask for, the means grow and it goes to the floor
//! for good. So the stress scenarios 1 (15 % of the capacity lost) and 12 (stalls) are a matter of chance.
//! Their random streams are not published, nor how many runs a figure is the mean of. Satisfied requests of
//! the worst tenant in per cent, as the mean of seeds 1 to 3 and in 100 runs:
//!
//! | scenario | published | seeds 1 to 3 | lowest | median | highest | runs beyond the published |
//! |---|---|---|---|---|---|---|
//! | 1  | 60.9 | 12.9 | 2.1  | 16.9 | 71.5 | 14 above |
//! | 12 | 0.8  | 61.7 | 0.0  | 33.1 | 70.5 | 4 below |
//! | 3  | 62.5 | 58.6 | 54.6 | 60.8 | 73.3 | 30 above |
//! | 7  | 66.6 | 62.4 | 57.7 | 64.0 | 70.8 | 16 above |
//! | 8  | 67.2 | 59.7 | 48.3 | 60.6 | 81.9 | 19 above |
//!
//! So the mean of a few runs says little in 1 and 12. Two other roundings of the depth, and other readings
//! of "binding", collapse as often, in part in other runs. With times at the device no run of 12 has less
//! than 42 %, which the published figure contradicts.

use super::depth_bound::{DEPTH, DepthBound};
use super::edf::{Edf, MARGIN};
use super::simple::{SimpleContract, simple_contracts};
use crate::clock::{Duration, Instant};
use crate::control::contract;
use crate::control::{Build, ControlPolicy, Promises};
use crate::policy::{Parameter, Policy, Property, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(in crate::control) const POLICY: Policy<Build> = Policy {
    name: "facade",
    summary: "earliest deadline first with a depth that follows the mean response times (Façade)",
    properties: &[Property::WorkConserving],
    parameters: &[FIRST, MARGIN],
    build: |values, list| Box::new(Facade::new(values.get("depth"), values.get("margin"), list)),
};

const FIRST: Parameter = Parameter {
    min: DEPTH_MIN,
    default: 128,
    effect: "requests at the device at once, to begin with",
    ..DEPTH
};

const PERIOD: Duration = Duration::from_millis(100);

/// The range of the depth.
const DEPTH_MIN: u64 = 8;
const DEPTH_MAX: u64 = 65_536;

/// Factors and depths are in millionths.
const ONE: u64 = 1_000_000;

struct Facade {
    edf: DepthBound<Edf>,
    lanes: Vec<Lane>,
    /// In millionths.
    depth: u64,
    period_end: Instant,
}

struct Lane {
    promise: SimpleContract,
    /// Requests that ended in this period, and the time from their arrivals in nanoseconds.
    ended: u64,
    time: u128,
}

impl Lane {
    const fn new(promise: SimpleContract) -> Self {
        Self { promise, ended: 0, time: 0 }
    }

    /// Promise over mean, in millionths, of the period that ends; nothing without endings.
    fn ease(&mut self) -> Option<u64> {
        let (ended, time) = (core::mem::take(&mut self.ended), core::mem::take(&mut self.time));
        let promised = u128::from(self.promise.response.as_nanos()) * u128::from(ended);
        let some = self.promise.kept && ended > 0 && time > 0;
        some.then(|| u64::try_from(promised * u128::from(ONE) / time).unwrap_or(u64::MAX))
    }
}

impl Facade {
    fn new(first: u64, margin_permille: u64, list: &Promises) -> Self {
        Self {
            edf: DepthBound::new(Edf::new(margin_permille, list), first as u32),
            lanes: simple_contracts(list).into_iter().map(Lane::new).collect(),
            depth: first * ONE,
            period_end: Instant::ZERO + PERIOD,
        }
    }

    /// Ends the period before an event at `now`: a request that is queued was queued at its end.
    fn advance(&mut self, now: Instant) {
        if now < self.period_end {
            return;
        }
        let late = now.since(self.period_end).as_nanos() / PERIOD.as_nanos();
        self.period_end += PERIOD * (1 + late);
        let ease = self.lanes.iter_mut().filter_map(Lane::ease).min();
        let factor = match ease {
            Some(ease @ ..ONE) => ease.max(ONE / 2),
            Some(ease) if self.edf.order.waits() => ease.min(ONE * 11 / 10),
            _ => ONE,
        };
        let depth = u128::from(self.depth) * u128::from(factor) / u128::from(ONE);
        self.depth = (depth as u64).clamp(DEPTH_MIN * ONE, DEPTH_MAX * ONE);
        self.edf.depth = ((self.depth + ONE / 2) / ONE) as u32;
    }
}

impl ControlPolicy for Facade {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, row: Option<u8>) {
        self.advance(now);
        self.edf.arrive(now, key, request, row);
    }

    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        self.edf.poll(now)
    }

    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration) {
        self.advance(now);
        let lines = self.lanes.len();
        if let Some(&came) = self.edf.order.came.get(key) {
            let lane = &mut self.lanes[contract::line(request, lines)];
            lane.ended += 1;
            lane.time += u128::from(now.since(came).as_nanos());
        }
        self.edf.complete(now, key, request, device);
    }

    fn adopt(&mut self, key: RequestKey, request: &Request, released: Instant) {
        self.edf.adopt(key, request, released);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.edf.order.waits().then_some(self.period_end)
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.advance(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Contract;
    use crate::testing;

    /// After 100 ms the depth follows the mean time from arrival of what was within the profile: it is
    /// halved at most, grows by a tenth at most and only while a request is queued, and has a floor.
    #[test]
    fn the_depth_follows_the_means() {
        let (end, request) = (Instant::ZERO + PERIOD, testing::request(0));
        // Of a promise of 10 ms: the rate that is promised, the depth, how many come, when those within
        // the profile end, and the depth after that.
        for (iops, first, come, millis, depth) in [
            (2_000, 20, 30, 15, 13),
            (2_000, 20, 30, 40, 10),
            (2_000, 20, 30, 5, 22),
            (2_000, 25, 30, 5, 28),
            (2_000, 100, 101, 9, 110),
            (2_000, 100, 101, 10, 100),
            (2_000, 20, 20, 5, 20),
            (2_000, 8, 30, 40, 8),
            (200, 20, 30, 5, 22),
        ] {
            let contract = Contract::new(iops, 4_096, Duration::from_millis(10));
            let mut facade = Facade::new(first, 0, &testing::promises(&[Some(contract)]));
            for key in testing::keys(come) {
                facade.arrive(Instant::ZERO, key, &request, Some(0));
            }
            let gone: Vec<_> = core::iter::from_fn(|| facade.poll(Instant::ZERO)).collect();
            let profile = iops as usize / 20;
            for (n, &(key, _)) in gone.iter().enumerate() {
                let millis = if n < profile { millis } else { 90 };
                let now = Instant::ZERO + Duration::from_millis(millis);
                facade.complete(now, key, &request, Duration::ZERO);
            }
            let waits = come > first as usize;
            assert_eq!(facade.next_deadline(), waits.then_some(end), "{come} at {first}");
            facade.handle_deadline(end);
            assert_eq!(facade.edf.depth, depth, "{iops} {first} {come} {millis}");
        }
    }
}
