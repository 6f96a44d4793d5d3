//! A hard cap on a volume: no more than a number of requests and bytes a second, whichever host asks and however
//! idle the storage is.
//!
//! | | |
//! |---|---|
//! | Model    | virtual scheduling (GCRA), one meter for requests and one for bytes. With `paid` the time up to which a meter has been used, `cost` = 1 / iops or bytes / bandwidth: a request may go at the first time s that is not before its arrival, nor before the request in front of it, with `paid + cost <= s` on both meters; then `paid = max(paid, s - max(burst, cost)) + cost` |
//! | Units    | iops in requests per second, bandwidth in bytes of payload per second, burst in nanoseconds; a meter counts in nanoseconds times its rate, so that nothing is rounded but s, up to a whole nanosecond, and that is not paid for twice |
//! | Order    | first in, first out in each volume |
//! | Ties     | two volumes whose requests may go at one time: the lower id first |
//! | Cost     | O(1) for a volume without a cap or a request that may go at once; otherwise O(log n) in the volumes where requests wait |
//! | Source   | ITU-T I.371, annex A (GCRA); docs/reference/control.md, section 12, X1 |
//! | Not when | tenants share what there is: a cap wastes what no other tenant wants. Objectives are for `control` |
//!
//! A request pays before it goes: its cost must have passed since the meter was last used, so a large
//! one waits longer instead of leaving a debt to those behind it. After idling the meter holds `burst`,
//! or the cost of the request that comes, whichever is more: one request always goes at once, and one
//! that is larger than the burst goes, too. With no burst, a backlog of n requests per second has
//! exactly n in every second from the first. What was held is charged at the time at which it could go,
//! not of the call: late timers do not lower the rate.

use super::Volume;
use crate::clock::{Duration, Instant};
use crate::policy::Rule;
use crate::request::{Request, RequestKey, VolumeId};
use crate::units::Bandwidth;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Held because the volume has a cap, and has used it.
pub const RULE_CAP: Rule = Rule(&"accept/cap");

/// The most that a volume does, whatever else would let more go. The default is no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Requests per second, of whatever kind and size; `None` for any number.
    pub iops: Option<NonZeroU32>,
    /// Payload per second, at most [`BANDWIDTH_MAX`]; `None` for any amount.
    pub bandwidth: Option<Bandwidth>,
    /// What an idle volume saves up, as time at its caps: so much goes at once when requests come, and
    /// at least one request. At most [`BURST_MAX`].
    pub burst: Duration,
}

/// The largest bandwidth of a cap, in bytes per second.
pub const BANDWIDTH_MAX: u64 = 1 << 50;

/// The longest burst of a cap.
pub const BURST_MAX: Duration = Duration::from_secs(3_600);

impl Cap {
    /// No cap.
    pub(crate) const NONE: Self = Self { iops: None, bandwidth: None, burst: Duration::ZERO };

    /// What contradicts itself here, in words for its author.
    pub fn validate(&self) -> Result<(), &'static str> {
        let bandwidth = self.bandwidth.map_or(0, Bandwidth::bytes_per_second);
        if bandwidth > BANDWIDTH_MAX {
            return Err("a cap is above 1 PiB per second");
        }
        if self.burst > BURST_MAX {
            return Err("the burst of a cap is above an hour");
        }
        Ok(())
    }

    const fn is_none(&self) -> bool {
        self.iops.is_none() && self.bandwidth.is_none()
    }
}

/// The caps of all volumes, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Caps {
    lines: Vec<Line>,
    /// When the first in each line that is not empty may go.
    due: BTreeSet<(Instant, u32)>,
}

#[derive(Debug)]
struct Line {
    cap: Cap,
    requests: Meter,
    bytes: Meter,
    waiting: VecDeque<Waiting>,
    /// Nothing goes before: the cap was changed then, or the last request went.
    floor: Instant,
    /// When the first that waits may go.
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: RequestKey,
    arrived: Instant,
    payload: u64,
}

impl Caps {
    pub(crate) fn new(volumes: &[Volume]) -> Self {
        Self { lines: volumes.iter().map(Line::of).collect(), due: BTreeSet::new() }
    }

    /// A place, or the next one, has another volume, or none. Nothing waits there.
    pub(crate) fn put(&mut self, id: VolumeId, volume: &Volume) {
        if id.index() == self.lines.len() {
            self.lines.push(Line::of(volume));
            return;
        }
        let line = &mut self.lines[id.index()];
        assert!(line.waiting.is_empty(), "nothing waits at a place that changes its volume");
        *line = Line::of(volume);
    }

    /// Takes a request in; true if it may go at once, otherwise some [`release`](Self::release) names it.
    pub(crate) fn enter(&mut self, now: Instant, key: RequestKey, request: &Request) -> bool {
        let line = &mut self.lines[request.volume.index()];
        if line.cap.is_none() {
            return true;
        }
        let one = Waiting { key, arrived: now, payload: request.payload() };
        if line.waiting.is_empty() {
            let start = line.start(one);
            if start <= now {
                line.charge(start, one.payload);
                return true;
            }
            line.due = start;
            self.due.insert((start, request.volume.index() as u32));
        }
        line.waiting.push_back(one);
        false
    }

    /// The next request that may go at `now`.
    pub(crate) fn release(&mut self, now: Instant) -> Option<RequestKey> {
        let &(due, volume) = self.due.first().filter(|&&(due, _)| due <= now)?;
        self.due.pop_first();
        let line = &mut self.lines[volume as usize];
        assert!(
            line.due == due,
            "a volume is due when its first request is: {:?}, {due:?}",
            line.due
        );
        let one = line.waiting.pop_front().expect("an empty line is not due");
        line.charge(due, one.payload);
        self.schedule(volume);
        Some(one.key)
    }

    /// When [`release`](Self::release) has something next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|&(due, _)| due)
    }

    /// Puts another cap on a volume, for waiting requests as well. What has been saved up stays, as far as the
    /// new burst allows.
    pub(crate) fn change(&mut self, now: Instant, volume: VolumeId, cap: Cap) {
        let index = volume.index();
        let line = &mut self.lines[index];
        self.due.remove(&(line.due, index as u32));
        line.floor = line.floor.max(now);
        line.set(cap);
        self.schedule(index as u32);
    }

    /// Notes when the first in a line may go.
    fn schedule(&mut self, volume: u32) {
        let line = &mut self.lines[volume as usize];
        if let Some(&first) = line.waiting.front() {
            line.due = line.start(first);
            self.due.insert((line.due, volume));
        }
    }
}

impl Line {
    fn of(volume: &Volume) -> Self {
        let mut line = Self {
            cap: Cap::default(),
            requests: Meter::default(),
            bytes: Meter::default(),
            waiting: VecDeque::new(),
            floor: Instant::ZERO,
            due: Instant::ZERO,
        };
        line.set(volume.cap);
        line
    }

    fn set(&mut self, cap: Cap) {
        self.cap = cap;
        self.requests.set(cap.iops.map_or(0, |iops| iops.get().into()));
        self.bytes.set(cap.bandwidth.map_or(0, Bandwidth::bytes_per_second));
    }

    /// When the first request of the line may go.
    fn start(&self, one: Waiting) -> Instant {
        let earliest = one.arrived.max(self.floor);
        earliest.max(self.requests.ready(1)).max(self.bytes.ready(one.payload))
    }

    fn charge(&mut self, start: Instant, payload: u64) {
        assert!(start >= self.floor, "requests of a volume pass its cap in order: {start:?}");
        self.floor = start;
        self.requests.charge(start, self.cap.burst, 1);
        self.bytes.charge(start, self.cap.burst, payload);
    }
}

/// One rate and how far it has been used.
#[derive(Clone, Copy, Debug)]
struct Meter {
    /// Per second; zero for no limit.
    rate: u64,
    /// Used up to this time, in nanoseconds times the rate. Below zero before anything was.
    paid: i128,
}

/// A meter that was never used, and has saved up whatever is asked for.
impl Default for Meter {
    fn default() -> Self {
        Self { rate: 0, paid: i128::MIN / 2 }
    }
}

impl Meter {
    fn set(&mut self, rate: u64) {
        if self.rate > 0 && rate > 0 && self.paid > 0 {
            self.paid = self.paid / i128::from(self.rate) * i128::from(rate);
        } else if self.rate != rate {
            self.paid = Self::default().paid;
        }
        self.rate = rate;
    }

    /// When `amount` has been saved up, rounded up to a whole nanosecond.
    fn ready(&self, amount: u64) -> Instant {
        let at = self.paid + cost(amount);
        let Ok(at) = u128::try_from(at) else { return Instant::ZERO };
        if self.rate == 0 {
            return Instant::ZERO;
        }
        let nanos = at.div_ceil(self.rate.into());
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Uses up `amount` at `start`.
    fn charge(&mut self, start: Instant, burst: Duration, amount: u64) {
        if self.rate == 0 {
            return;
        }
        let rate = i128::from(self.rate);
        let (cost, burst) = (cost(amount), i128::from(burst.as_nanos()) * rate);
        // The last nanosecond was rounded up: its part that had not passed is not paid for.
        let saved = cost.max(burst) + rate - 1;
        self.paid = self.paid.max(i128::from(start.as_nanos()) * rate - saved) + cost;
    }
}

/// What an amount costs, in nanoseconds times a rate: less than 2 to the 94th, and a time times a rate is
/// less than 2 to the 127th.
fn cost(amount: u64) -> i128 {
    i128::from(amount) * 1_000_000_000
}

#[cfg(test)]
mod tests;
