//! # Dispatch policy: fair time
//!
//! Streams share backends by time, as under `fog`, but with a clock for each backend too, a bound on the
//! work ahead of a newcomer, and background work charged to those who caused it.
//!
//! | | |
//! |---|---|
//! | Model    | at backend b the smallest `max(v / backends, v(b) - lead)` goes next: v is charged everywhere, v(b) for work at b. An operation is sent while fewer than `depth` are outstanding at b and their nominal times with its own make at most `work`, or if b is idle. A stream that comes back from idleness starts `credit` before the others. An operation of a background stream goes in the turn of, and is charged to, the stream with the smallest clock that owes for such work; if none owes, it is charged to its own stream |
//! | Units    | as `fog` |
//! | Ties     | the operation that came first |
//! | Cost     | O(streams) per operation, O(streams²) while background work waits |
//! | Source   | `fog`, with what `docs/research/dispatch.md` section 6 found: FOG-D (6.1), bounded work (6.2), debts (6.4), credit (5). With `lead` and `work` an hour, no credit and nothing in the background it is `fog` |
//! | Not when | shares of the sum matter more than use, and every stream can use every backend: `fog` is simpler. A nominal time that is far too large sends one operation at a time |

use super::clocks::{Clocks, Epoch, Reading};
use super::estimate::Estimation;
use super::lanes::{Lanes, Slots, Waiting};
use super::{Build, DispatchPolicy, Setup, Weight, Work, estimate, lanes};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Property, Rule, Unit, Values};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fair-time",
    summary: "streams share the time of backends by their weights, with little work ahead of a newcomer",
    properties: &[Property::SharesTime],
    parameters: &[
        Parameter { default: 16, ..lanes::DEPTH },
        time(
            "work",
            1_200_000,
            "nominal work outstanding at a backend; less makes response times shorter, \
            more keeps a parallel device busy; no bound where depth is 0",
        ),
        time(
            "credit",
            1_000_000,
            "how far a stream that comes back is ahead of the others; more makes it \
            answer faster, and takes more from them",
        ),
        time(
            "lead",
            2_000_000,
            "how much more of one backend than its share a stream may have while it \
            has less elsewhere; an hour leaves only the clock of all backends together",
        ),
        estimate::SERVERS,
    ],
    build: |values, setup| Box::new(FairTime::new(values, setup)),
};

/// A parameter of up to an hour.
const fn time(name: &'static str, default: u64, effect: &'static str) -> Parameter {
    Parameter { name, unit: Unit::Time, min: 0, max: 3_600_000_000_000, default, effect }
}

struct FairTime {
    work: u64,
    credit: Duration,
    /// In virtual time.
    lead: i64,
    /// The clocks of all backends together, and of each.
    all: Clocks,
    each: Vec<Clocks>,
    lanes: Lanes<()>,
    /// By backend, what of the foreground waits there.
    foreground: Vec<u32>,
    slots: Slots,
    /// By backend, nominal nanoseconds outstanding.
    ahead: Vec<u64>,
    /// The streams in the background, which are few.
    background: Vec<TenantId>,
    /// By stream, the nanoseconds that it owes.
    debts: Vec<u64>,
    sent: SecondaryMap<RequestKey, Sent>,
    estimation: Estimation,
}

/// An operation at its backend, and who pays for it.
struct Sent {
    work: Work,
    payer: TenantId,
    epochs: [Epoch; 2],
}

impl FairTime {
    fn new(values: Values<'_>, setup: &Setup<'_>) -> Self {
        let (backends, streams) = (setup.backends, setup.streams);
        let depth = values.get("depth");
        Self {
            // A depth that is found out is no more than keeps the backend busy: less would not.
            work: if depth == 0 { u64::MAX } else { values.get("work") },
            credit: values.time("credit"),
            lead: (values.get("lead") << 10).cast_signed(),
            all: Clocks::new(streams),
            each: (0..backends).map(|_| Clocks::new(streams)).collect(),
            lanes: Lanes::new(backends),
            foreground: alloc::vec![0; backends],
            slots: Slots::new(depth, backends),
            ahead: alloc::vec![0; backends],
            background: {
                let streams = (0..).map(TenantId::new).zip(streams);
                streams.filter(|(_, stream)| stream.background).map(|(id, _)| id).collect()
            },
            debts: Vec::new(),
            sent: SecondaryMap::new(),
            estimation: Estimation::from_servers(values.get("servers")),
        }
    }

    fn in_background(&self, stream: TenantId) -> bool {
        self.background.contains(&stream)
    }

    /// What the stream is ordered by at this backend.
    fn tag(&self, stream: TenantId, backend: BackendId) -> i64 {
        let all = self.all.v(stream) / self.each.len().cast_signed() as i64;
        all.max(self.each[backend.index()].v(stream) - self.lead)
    }

    /// Who pays for an operation of this stream.
    fn payer(&self, stream: TenantId, backend: BackendId) -> TenantId {
        if !self.in_background(stream) {
            return stream;
        }
        let owes = self.debts.iter().enumerate().filter(|&(_, &debt)| debt > 0);
        let owes = owes.map(|(index, _)| TenantId::new(index as u32));
        owes.min_by_key(|&owes| (self.tag(owes, backend), owes)).unwrap_or(stream)
    }

    /// A background stream that waits at this backend starts where the others are, though no clock counts it.
    fn lift_background(&mut self, backend: BackendId) {
        for index in 0..self.background.len() {
            let stream = self.background[index];
            if self.lanes.head(stream, backend).is_none() {
                continue;
            }
            let payer = self.payer(stream, backend);
            self.all.lift(payer, Duration::ZERO);
            self.each[backend.index()].lift(payer, Duration::ZERO);
        }
    }
}

impl DispatchPolicy for FairTime {
    fn arrive(&mut self, _: Instant, work: &Work) {
        if !self.in_background(work.stream) {
            let (each, backends) =
                (&mut self.each[work.backend.index()], self.slots.backends().cast_signed() as i64);
            self.all.enter(work.stream, self.credit);
            // Where nothing has waited for a while, time has gone on nevertheless.
            if self.foreground[work.backend.index()] == 0 {
                each.pass(self.all.system() / backends);
            }
            each.enter(work.stream, self.credit);
            self.foreground[work.backend.index()] += 1;
        }
        self.lanes.push(*work, ());
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.slots.free(backend) {
            return None;
        }
        self.lift_background(backend);
        let order = |head: &Waiting<()>| {
            let payer = self.payer(head.work.stream, backend);
            (self.tag(payer, backend), head.arrival, head.work.stream, payer)
        };
        let (_, _, stream, payer) = self.lanes.heads(backend).map(order).min()?;
        let (index, nominal) = (backend.index(), self.lanes.head(stream, backend)?.work.nominal);
        let ahead = self.ahead[index].saturating_add(nominal.as_nanos());
        // An operation that is next and does not fit keeps the place: small operations must not pass for ever.
        if ahead > self.work && !self.slots.idle(backend) {
            return None;
        }
        let work = self.lanes.pop(stream, backend).work;
        if !self.in_background(stream) {
            self.all.leave(stream);
            self.each[index].leave(stream);
            assert!(self.foreground[index] > 0, "the foreground of a backend was miscounted");
            self.foreground[index] -= 1;
        }
        if payer != stream {
            let debt = &mut self.debts[payer.index()];
            *debt = debt.saturating_sub(nominal.as_nanos());
        }
        let epochs = [self.all.charge(payer, nominal), self.each[index].charge(payer, nominal)];
        self.slots.take(now, backend);
        self.ahead[index] = ahead;
        self.sent.insert(work.key, Sent { work, payer, epochs });
        Some((work.key, lanes::RULE_SHARE))
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        let Sent { work, payer, epochs: [all, each] } =
            self.sent.remove(key).expect("only what was sent can end");
        let index = work.backend.index();
        self.slots.leave(now, work.backend, service);
        self.ahead[index] = self.ahead[index].saturating_sub(work.nominal.as_nanos());
        self.all.settle(payer, all, work.nominal, service);
        self.each[index].settle(payer, each, work.nominal, service);
    }

    fn depth(&self, backend: BackendId) -> u32 {
        self.slots.depth(backend)
    }

    fn set_weight(&mut self, stream: TenantId, weight: Weight) {
        self.all.set_weight(stream, weight);
        for clocks in &mut self.each {
            clocks.set_weight(stream, weight);
        }
    }

    fn owe(&mut self, stream: TenantId, cost: Duration) {
        if self.debts.len() <= stream.index() {
            self.debts.resize(stream.index() + 1, 0);
        }
        let debt = &mut self.debts[stream.index()];
        *debt = debt.saturating_add(cost.as_nanos());
    }

    fn estimation(&self) -> Option<Estimation> {
        Some(self.estimation)
    }

    fn reading(&self, stream: TenantId) -> Option<Reading> {
        Some(self.all.reading(stream))
    }
}

#[cfg(test)]
mod tests;
