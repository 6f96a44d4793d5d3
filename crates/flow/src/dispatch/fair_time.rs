//! # Dispatch policy: fair time
//!
//! Streams share backends by time, as under `fog`, but with a clock for each backend too, no more outstanding than
//! keeps a backend busy, and background work charged to those who caused it.
//!
//! | | |
//! |---|---|
//! | Model    | at backend b the smallest `max(v / backends, v(b) - lead)` goes next: v is charged everywhere, v(b) for work at b. At most `depth` operations are outstanding at b; `depth` = 0 finds the fewest that keep b busy (`knee.rs`). A stream that comes back from idleness starts `credit` before the others. An operation of a background stream goes in the turn of, and is charged to, the stream with the smallest clock that owes for such work; if none owes, it is charged to its own stream. A payer competes as if the operation were its own |
//! | Units    | as `fog` |
//! | Ties     | the operation that came first |
//! | Cost     | O(streams) per operation, O(streams²) while background work waits |
//! | Source   | `fog`, with what `docs/research/dispatch.md` section 6 found: FOG-D (6.1), debts (6.4), credit (5); the depth near the knee is from section 8.1 of `docs/reference/dispatch.md`. With a `depth`, `lead` an hour, no credit and nothing in the background it is `fog` |
//! | Not when | shares of the sum matter more than use, and every stream can use every backend: `fog` is simpler. Shares hold only while `depth` times a stream's share is less than its hosts keep outstanding, and a backend that needs a great depth to be busy gets one |

use super::clocks::{Clocks, Epoch, Reading};
use super::estimate::Estimation;
use super::lanes::{Lanes, Slots};
use super::substreams::Waiting;
use super::{Build, DispatchPolicy, Setup, Substream, Weight, Work, estimate, lanes};
use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Policy, Property, Rule, Values};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fair-time",
    summary: "streams share the time of backends by their weights, with little work ahead of a newcomer",
    properties: &[Property::SharesTime],
    parameters: &[
        Parameter { default: 0, ..lanes::DEPTH },
        Parameter::time(
            "credit",
            1_000_000,
            "how far a stream that comes back is ahead of the others; more makes it \
            answer faster, and takes more from them",
        ),
        Parameter::time(
            "lead",
            2_000_000,
            "how much more of one backend than its share a stream may have while it \
            has less elsewhere; an hour leaves only the clock of all backends together",
        ),
        estimate::SERVERS,
    ],
    build: |values, setup| Box::new(FairTime::new(values, setup)),
};

struct FairTime {
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
    /// The streams in the background, which are few.
    background: Vec<TenantId>,
    /// By stream, the nanoseconds that it owes.
    debts: Vec<u64>,
    /// The streams that owe.
    debtors: u32,
    /// By backend, the streams that compete there because they may have to pay for waiting background work.
    payers: Vec<Vec<TenantId>>,
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
            credit: values.time("credit"),
            lead: (values.get("lead") << 10).cast_signed(),
            all: Clocks::new(streams),
            each: (0..backends).map(|_| Clocks::new(streams)).collect(),
            lanes: Lanes::new(backends),
            foreground: alloc::vec![0; backends],
            slots: Slots::new(depth, backends),
            background: {
                let streams = (0..).map(TenantId::new).zip(streams);
                streams.filter(|(_, stream)| stream.background).map(|(id, _)| id).collect()
            },
            debts: Vec::new(),
            debtors: 0,
            payers: alloc::vec![Vec::new(); backends],
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

    /// Whether an operation of the background waits at this backend.
    fn waits_behind(&self, backend: BackendId) -> bool {
        self.lanes.waiting(backend) > self.foreground[backend.index()]
    }

    /// Whether this stream may have to pay for background operations that wait at this backend: one that owes, or if
    /// none does, a background stream itself.
    fn is_payer(&self, stream: TenantId, backend: BackendId) -> bool {
        if self.debtors == 0 {
            return self.in_background(stream) && self.lanes.head(stream, backend).is_some();
        }
        let owes = self.debts.get(stream.index()).is_some_and(|&debt| debt > 0);
        owes && self.waits_behind(backend)
    }

    /// Lets payers compete, from the time of the others, and lets those go that have nothing to pay for any more.
    fn update_payers(&mut self, backend: BackendId) {
        let mut payers = core::mem::take(&mut self.payers[backend.index()]);
        payers.retain(|&stream| {
            let stays = self.is_payer(stream, backend);
            if !stays {
                self.leave(stream, backend);
            }
            stays
        });
        let streams = self.debts.len().max(self.lanes.streams()) as u32;
        for stream in (0..streams).map(TenantId::new) {
            if self.is_payer(stream, backend) && !payers.contains(&stream) {
                self.enter(stream, backend, Duration::ZERO);
                payers.push(stream);
            }
        }
        self.payers[backend.index()] = payers;
    }

    /// Who owes has changed.
    fn update_all_payers(&mut self) {
        for backend in 0..self.each.len() {
            self.update_payers(BackendId::new(backend as u32));
        }
    }

    /// An operation of a background stream was charged to its payer, whose debt is less by that.
    fn pay(&mut self, payer: TenantId, stream: TenantId, nominal: Duration) {
        if payer == stream {
            return;
        }
        let debt = &mut self.debts[payer.index()];
        *debt = debt.saturating_sub(nominal.as_nanos());
        if *debt == 0 {
            self.debtors -= 1;
            self.update_all_payers();
        }
    }

    /// A stream competes at this backend for one operation more.
    fn enter(&mut self, stream: TenantId, backend: BackendId, credit: Duration) {
        let (each, backends) =
            (&mut self.each[backend.index()], self.slots.backends().cast_signed() as i64);
        self.all.enter(stream, credit);
        // Where nothing has waited for a while, time has gone on nevertheless.
        if self.foreground[backend.index()] == 0 {
            each.pass(self.all.system() / backends);
        }
        each.enter(stream, credit);
    }

    /// A stream competes at this backend for one operation less.
    fn leave(&mut self, stream: TenantId, backend: BackendId) {
        self.all.leave(stream);
        self.each[backend.index()].leave(stream);
    }
}

impl DispatchPolicy for FairTime {
    fn arrive(&mut self, _: Instant, work: &Work) {
        let Work { stream, backend, .. } = *work;
        if self.in_background(stream) {
            let new = self.lanes.head(stream, backend).is_none();
            self.lanes.push(*work, ());
            if new {
                self.update_payers(backend);
            }
            return;
        }
        self.enter(stream, backend, self.credit);
        self.foreground[backend.index()] += 1;
        self.lanes.push(*work, ());
    }

    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)> {
        if !self.slots.free(backend) {
            return None;
        }
        let order = |head: Waiting<()>| {
            let payer = self.payer(head.work.stream, backend);
            (self.tag(payer, backend), head.arrival, head.work.stream, payer)
        };
        let (_, _, stream, payer) = self.lanes.heads(backend).map(order).min()?;
        let index = backend.index();
        let work = self.lanes.pop(stream, backend).work;
        if !self.in_background(stream) {
            self.leave(stream, backend);
            assert!(self.foreground[index] > 0, "the foreground of a backend was miscounted");
            self.foreground[index] -= 1;
        } else if self.lanes.head(stream, backend).is_none() {
            self.update_payers(backend);
        }
        let nominal = work.nominal;
        let epochs = [self.all.charge(payer, nominal), self.each[index].charge(payer, nominal)];
        self.pay(payer, stream, nominal);
        self.slots.take(now, backend, &self.lanes);
        self.sent.insert(work.key, Sent { work, payer, epochs });
        Some((work.key, lanes::RULE_SHARE))
    }

    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration) {
        let Sent { work, payer, epochs: [all, each] } =
            self.sent.remove(key).expect("only what was sent can end");
        let index = work.backend.index();
        self.lanes.settle(key, service);
        self.slots.leave(now, work.backend, service, &self.lanes);
        self.all.settle(payer, all, work.nominal, service);
        self.each[index].settle(payer, each, work.nominal, service);
    }

    fn set_backends(&mut self, backends: usize) {
        self.lanes.set_backends(backends);
        self.slots.set_backends(backends);
        self.each.resize_with(backends, || self.all.anew());
        self.foreground.resize(backends, 0);
        self.payers.resize_with(backends, Vec::new);
    }

    fn repriced(&mut self, backend: BackendId) {
        self.slots.repriced(backend);
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

    fn set_substream(&mut self, stream: Substream, weight: Option<Weight>) {
        self.lanes.set_substream(stream, weight);
    }

    fn owe(&mut self, stream: TenantId, cost: Duration) {
        if self.debts.len() <= stream.index() {
            self.debts.resize(stream.index() + 1, 0);
        }
        let debt = &mut self.debts[stream.index()];
        let new = *debt == 0 && cost > Duration::ZERO;
        *debt = debt.saturating_add(cost.as_nanos());
        if new {
            self.debtors += 1;
            self.update_all_payers();
        }
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
