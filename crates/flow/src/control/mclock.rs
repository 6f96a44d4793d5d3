//! # Control policy: reservations before shares, with a depth (mClock(D))
//!
//! At most D requests are at the device; what a contract reserves goes first, the rest by shares.
//!
//! | | |
//! |---|---|
//! | Model    | on arrival `r = max(now - 50 ms, last r + its cost / iops)` and the tags of `sfq`; while fewer than `depth` are at the device: of the heads with `r <= now` the smallest r goes; if there is none, the smallest start goes, and its tenant's later r come down by its `cost / iops` |
//! | Units    | r in nanoseconds times iops, exact; starts in 2^-40 s of virtual time |
//! | Ties     | the lowest tenant; within a tenant, order of arrival |
//! | Cost     | O(log waiting tenants) per request |
//! | Source   | Gulati, Merchant and Varman, "mClock: handling throughput variability for hypervisor IO scheduling", OSDI 2010, without limits; spec/control.md section 7 |
//! | Not when | as `sfq`; shares in proportion to reservations make the two nearly equal |
//!
//! A tenant without a contract reserves nothing and has the weight of 100 requests of 4 KiB a second.

use super::contract::{self, Promise};
use super::fair::{Fair, Tag};
use super::sfq::{self, Places};
use super::{Build, ControlPolicy};
use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "mclock",
    summary: "a fixed number of places at the device, first for what contracts reserve, then by shares \
              (mClock(D))",
    parameters: &[sfq::DEPTH],
    build: |values, list| {
        let promises = contract::promises(list);
        let lane = |promise: &Promise| Lane {
            promise: promise.clone(),
            queue: VecDeque::new(),
            next: 0,
            credit: 0,
        };
        Box::new(Mclock {
            lanes: promises.iter().map(lane).collect(),
            reserved: BTreeSet::new(),
            shares: BTreeSet::new(),
            fair: Fair::new(&promises),
            places: Places::new(values[0] as u32),
        })
    },
};

/// How much of what it has not asked for a tenant may make up for, as EDF's profile has it.
const BEHIND: Duration = Duration::from_millis(50);

struct Mclock {
    lanes: Vec<Lane>,
    /// The reservations of the heads that have one, and the starts of all heads.
    reserved: BTreeSet<(Instant, usize)>,
    shares: BTreeSet<(Tag, usize)>,
    fair: Fair,
    places: Places,
}

struct Lane {
    promise: Promise,
    queue: VecDeque<Waiting>,
    /// The earliest reservation of the next request, without the credit.
    next: u128,
    /// What later reservations come down by.
    credit: u128,
}

struct Waiting {
    key: RequestKey,
    /// Nanoseconds times iops, as it was on arrival plus the credit of that time.
    reserved: u128,
    share: u128,
    start: Tag,
}

impl Lane {
    /// The reservation of the head, and the time that it stands for.
    fn reserved(&self) -> Option<Instant> {
        let head = self.queue.front().filter(|_| self.promise.kept)?;
        let scaled = head.reserved.saturating_sub(self.credit);
        let nanos = scaled.div_ceil(u128::from(self.promise.iops));
        Some(Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

impl Mclock {
    /// The head of this lane competes with those of others.
    fn line_up(&mut self, index: usize) {
        let lane = &self.lanes[index];
        if let Some(head) = lane.queue.front() {
            self.shares.insert((head.start, index));
            self.reserved.extend(lane.reserved().map(|at| (at, index)));
        }
    }
}

impl ControlPolicy for Mclock {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, _: Option<u8>) {
        let index = contract::line(request, self.lanes.len());
        let lane = &mut self.lanes[index];
        let cost = lane.promise.cost(request);
        // A milli-token takes 10^6 / iops nanoseconds.
        let share = u128::from(cost) * 1_000_000;
        let from = now.as_nanos().saturating_sub(BEHIND.as_nanos());
        let from = u128::from(from) * u128::from(lane.promise.iops) + lane.credit;
        let reserved = from.max(lane.next);
        lane.next = reserved + share;
        let start = self.fair.tag(index, cost);
        lane.queue.push_back(Waiting { key, reserved, share, start });
        if lane.queue.len() == 1 {
            self.line_up(index);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)> {
        if !self.places.free() {
            return None;
        }
        let due = self.reserved.first().filter(|(at, _)| *at <= now).map(|&(_, index)| index);
        let index = due.or_else(|| self.shares.first().map(|&(_, index)| index))?;
        let lane = &mut self.lanes[index];
        if let Some(at) = lane.reserved() {
            self.reserved.remove(&(at, index));
        }
        let gone = lane.queue.pop_front().expect("a head is in its lane");
        self.shares.remove(&(gone.start, index));
        if due.is_none() {
            lane.credit += gone.share;
            self.fair.gone(gone.start);
        }
        self.line_up(index);
        self.places.take();
        Some((gone.key, sfq::RULE))
    }

    fn complete(&mut self, _: Instant, _: RequestKey, _: &Request, _: Duration) {
        self.places.leave();
    }

    fn adopt(&mut self, _: RequestKey, _: &Request, _: Instant) {
        self.places.take();
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::super::Contract;
    use super::*;
    use crate::request::TenantId;
    use crate::testing;

    /// A reservation that is due goes first, although by shares alone it would be far from its turn.
    #[test]
    fn a_due_reservation_goes_first() {
        let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(1)));
        let mut mclock = (POLICY.build)(&[1], &testing::promises(&[None, contract(10)]));
        let keys = testing::keys(6);
        let request =
            |tenant: u32| Request { tenant: TenantId::new(tenant), ..testing::request(0) };
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let next = |mclock: &mut dyn ControlPolicy, millis: u64| {
            let (key, _) = mclock.poll(at(millis)).unwrap();
            assert!(mclock.poll(at(millis)).is_none(), "there is one place");
            mclock.complete(at(millis), key, &request(0), Duration::ZERO);
            keys.iter().position(|&k| k == key).unwrap()
        };
        for (&key, tenant) in keys.iter().zip([1, 1, 0, 0, 0, 0]) {
            mclock.arrive(at(0), key, &request(tenant), Some(0));
        }
        // The second tenant's next is reserved for 100 ms, where its share begins too; the first has come
        // to 20 ms of its shares by then.
        let order = [0, 0, 0, 100, 100, 100].map(|millis| next(&mut *mclock, millis));
        assert_eq!(order, [0, 2, 3, 1, 4, 5]);
    }
}
