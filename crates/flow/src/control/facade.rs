//! # Control policy: earliest deadline first with a controlled depth (Façade)
//!
//! EDF whose depth follows the mean response times.
//!
//! | | |
//! |---|---|
//! | Model    | as `edf`; every 100 ms the depth is multiplied by the smallest `response / mean device time` of a tenant: by at least 0.5 when that is below one, else by at most 1.1 and only if somebody has waited for the depth |
//! | Units    | depth in thousandths |
//! | Ties     | as `edf` |
//! | Order    | as `edf` |
//! | Cost     | as `edf`, and O(tenants) every 100 ms |
//! | Source   | Lumb, Merchant and Alvarez, "Façade: virtual storage devices with performance guarantees", FAST 2003, as spec/control.md section 7 describes it |
//! | Differs  | from the reference tables of the specification where it overloads itself: set B, Poisson, W1 in interval 6 has 28 % satisfied instead of 63 %, W2 in 8 34 % instead of 47 %; their program is not at hand and no reading of section 7 that was tried gives both |
//! | Not when | promises are percentiles: a mean at the promise leaves four in ten late. More work within the contracts than the device can do drives the depth, and the throughput, to the floor |

use super::contract::{self, Promise};
use super::edf::{Edf, MARGIN};
use super::sfq::DEPTH;
use super::{Build, ControlPolicy};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "facade",
    summary: "earliest deadline first with a depth that follows the mean response times (Façade)",
    parameters: &[FIRST, MARGIN],
    build: |values, list| {
        Box::new(Facade {
            edf: Edf::new(values[0] as u32, values[1], list),
            lanes: contract::promises(list).into_iter().map(Lane::new).collect(),
            depth_permille: values[0] * 1_000,
            period_end: Instant::ZERO + PERIOD,
            bound: false,
        })
    },
};

const FIRST: Parameter =
    Parameter { min: DEPTH_MIN, effect: "requests at the device at once, to begin with", ..DEPTH };

const PERIOD: Duration = Duration::from_millis(100);

/// The range of the depth.
const DEPTH_MIN: u64 = 8;
const DEPTH_MAX: u64 = 65_536;

struct Facade {
    edf: Edf,
    lanes: Vec<Lane>,
    depth_permille: u64,
    period_end: Instant,
    /// Whether anybody waited for a place in this period.
    bound: bool,
}

struct Lane {
    promise: Promise,
    /// Requests that ended in this period, and their time at the device in nanoseconds.
    ended: u64,
    time: u128,
}

impl Lane {
    const fn new(promise: Promise) -> Self {
        Self { promise, ended: 0, time: 0 }
    }

    /// Promise over mean, in thousandths, of the period that ends; nothing without endings.
    fn ease(&mut self) -> Option<u64> {
        let (ended, time) = (core::mem::take(&mut self.ended), core::mem::take(&mut self.time));
        let promised = u128::from(self.promise.response.as_nanos()) * u128::from(ended);
        let some = self.promise.kept && ended > 0 && time > 0;
        some.then(|| u64::try_from(promised * 1_000 / time).unwrap_or(u64::MAX))
    }
}

impl Facade {
    fn advance(&mut self, now: Instant) {
        if now < self.period_end {
            return;
        }
        let late = now.since(self.period_end).as_nanos() / PERIOD.as_nanos();
        self.period_end += PERIOD * (1 + late);
        let ease = self.lanes.iter_mut().filter_map(Lane::ease).min();
        let factor = match ease {
            Some(ease @ ..1_000) => ease.max(500),
            Some(ease) if self.bound => ease.min(1_100),
            _ => 1_000,
        };
        let depth = self.depth_permille * factor / 1_000;
        self.depth_permille = depth.clamp(DEPTH_MIN * 1_000, DEPTH_MAX * 1_000);
        self.edf.places.depth = (self.depth_permille / 1_000) as u32;
        self.bound = self.edf.waits();
    }
}

impl ControlPolicy for Facade {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, row: Option<u8>) {
        self.advance(now);
        self.edf.arrive(now, key, request, row);
    }

    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        let next = self.edf.poll(now);
        self.bound |= next.is_none() && self.edf.waits();
        next
    }

    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration) {
        self.advance(now);
        let lines = self.lanes.len();
        if let Some(&came) = self.edf.came.get(key) {
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
        None
    }

    fn handle_deadline(&mut self, _: Instant) {}
}
