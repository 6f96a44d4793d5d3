//! The event loop of a run: hosts, translation layer, dispatch policy and chips.
//!
//! It does not drive `weir_flow::Pipeline`: the paper schedules page operations, which the translation layer
//! makes from requests and from garbage collection, and the pipeline dispatches requests.

use super::hosts::Host;
use super::score::{Outcome, Score};
use super::{Case, Garbage};
use slotmap::{Key, KeyData};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::dispatch::{DispatchPolicy, POLICIES, Setup, Stream, Weight, Work};
use weir_flow::request::{BackendId, RequestKey, TenantId};
use weir_flow::rng::Rng;
use weir_model::ssd::chips::{Chips, Page};
use weir_model::ssd::ftl::Ftl;

/// What happens next. Of equal times ticks come first, then ends in the order in which they were
/// scheduled, then arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick,
    End(u64),
    Arrival(usize),
}

/// An operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    stream: usize,
    chip: u32,
    page: Page,
    /// Of requests, for hosts.
    request: Option<usize>,
}

struct Request {
    stream: usize,
    arrived: u64,
    left: u32,
}

struct Machine<'a> {
    case: &'a Case,
    policy: Box<dyn DispatchPolicy>,
    chips: Chips,
    ftl: Ftl,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event, u64)>>,
    scheduled: u64,
    operations: Vec<Operation>,
    free_operations: Vec<u64>,
    requests: Vec<Request>,
    free_requests: Vec<usize>,
    chance: Vec<Rng>,
    issued: Vec<u64>,
    score: Score,
    /// By chip, pages that wait until a block has been erased, with their streams.
    stalled: Vec<VecDeque<(usize, u32, usize)>>,
    /// By chip: a collection is in progress.
    collecting: Vec<bool>,
    ticks: u32,
}

/// Plays a case.
pub(super) fn play(case: &Case, seed: u64) -> Outcome {
    let device = case.device();
    let collects = case.garbage != Garbage::None;
    let stream = |parts, background| Stream {
        weight: Weight::from_1024ths(parts).expect("a host has a weight"),
        background,
    };
    let mut streams: Vec<_> = case.hosts.iter().map(|host| stream(host.weight, false)).collect();
    if collects {
        streams.push(stream(1_024, case.rival.debts));
    }
    let choice = case.rival.policy.choice(POLICIES);
    let setup = Setup { backends: device.chips as usize, streams: &streams };
    let name = |index| format!("dispatch/host/{index}");
    let mut machine = Machine {
        case,
        policy: (choice.policy().build)(choice.values(), &setup),
        chips: Chips::new(&device),
        ftl: Ftl::new(&device),
        now: 0,
        events: BinaryHeap::new(),
        scheduled: 0,
        operations: Vec::new(),
        free_operations: Vec::new(),
        requests: Vec::new(),
        free_requests: Vec::new(),
        chance: (0..case.hosts.len()).map(|host| Rng::stream(seed, &name(host))).collect(),
        issued: vec![0; case.hosts.len()],
        score: Score::new(&streams, device.chips),
        stalled: vec![VecDeque::new(); device.chips as usize],
        collecting: vec![false; device.chips as usize],
        ticks: 0,
    };
    if matches!(case.garbage, Garbage::Periodic { .. }) {
        machine.schedule(0, Event::Tick);
    }
    for (index, host) in case.hosts.iter().enumerate() {
        let requests = if host.every.is_some() { 1 } else { host.window };
        for _ in 0..requests {
            machine.schedule(host.from, Event::Arrival(index));
        }
    }
    machine.run();
    machine.score.outcome(case, machine.now)
}

impl Machine<'_> {
    fn schedule(&mut self, at: u64, event: Event) {
        self.events.push(Reverse((at, event, self.scheduled)));
        self.scheduled += 1;
    }

    fn run(&mut self) {
        while let Some(Reverse((at, event, _))) = self.events.pop() {
            if self.case.until.is_some_and(|until| at > until) {
                break;
            }
            self.now = at;
            match event {
                Event::Tick => self.tick(),
                Event::End(_) => self.end(event),
                Event::Arrival(host) => {
                    if let Some(every) = self.case.hosts[host].every {
                        self.schedule(at + every, event);
                    }
                    self.arrive(host);
                }
            }
        }
    }

    const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// A host issues a request, if it has one left.
    fn arrive(&mut self, index: usize) {
        let host: Host = self.case.hosts[index];
        if host.count.is_some_and(|count| self.issued[index] >= count) {
            return;
        }
        self.issued[index] += 1;
        self.score.begins(index, self.now);
        let chips = self.stalled.len() as u64;
        let region = u64::from(self.ftl.capacity()) / self.case.hosts.len() as u64;
        let region = region - region % chips;
        let region = (region * index as u64, region);
        let writes = host.writes(self.now, &mut self.chance[index]);
        let pages = host.place(region, chips, &mut self.chance[index]);
        let request = Request { stream: index, arrived: self.now, left: host.pages };
        let request = if let Some(free) = self.free_requests.pop() {
            self.requests[free] = request;
            free
        } else {
            self.requests.push(request);
            self.requests.len() - 1
        };
        let mut touched = 0_u64;
        let whole = {
            let kind = if writes { Page::Program } else { Page::Read };
            self.nominal(kind) * u64::from(host.pages)
        };
        let tag = key(self.scheduled, 3);
        for page in pages {
            if writes {
                touched |= self.program(index, page, request, (tag, whole));
            } else {
                let chip = self.ftl.chip(page);
                touched |= self.enter(index, chip, Page::Read, Some(request), (tag, whole));
            }
        }
        self.scheduled += 1;
        self.try_chips(touched);
    }

    /// A page is to be written: it goes to a chip, or waits for an erased block there.
    fn program(
        &mut self,
        stream: usize,
        page: u32,
        request: usize,
        whole: (RequestKey, u64),
    ) -> u64 {
        let chip = self.ftl.place(stream);
        let mut touched = 0;
        if self.case.garbage == Garbage::Real {
            if self.ftl.low(chip) && !self.collecting[chip as usize] {
                self.collecting[chip as usize] = true;
                touched |= self.collect(chip);
            }
            if self.ftl.full(chip) || !self.stalled[chip as usize].is_empty() {
                self.stalled[chip as usize].push_back((stream, page, request));
                self.score.stalls(chip, self.now);
                return touched;
            }
        }
        self.ftl.write(page, chip);
        self.owe(stream);
        touched | self.enter(stream, chip, Page::Program, Some(request), whole)
    }

    /// A later move of valid pages is charged to the stream whose write caused it.
    fn owe(&mut self, stream: usize) {
        if self.case.garbage == Garbage::Real && self.case.rival.debts {
            let price = self.score.price();
            self.policy.owe(TenantId::new(stream as u32), Duration::from_nanos(price));
        }
    }

    /// Nanoseconds that an operation is taken to cost.
    fn nominal(&self, page: Page) -> u64 {
        let actual = self.chips.service(page).as_nanos();
        self.case.rival.flat.unwrap_or(actual)
    }

    /// An operation takes its place among those that wait; the answer has its chip's bit.
    fn enter(
        &mut self,
        stream: usize,
        chip: u32,
        page: Page,
        request: Option<usize>,
        (tag, whole): (RequestKey, u64),
    ) -> u64 {
        let operation = Operation { stream, chip, page, request };
        let index = if let Some(free) = self.free_operations.pop() {
            self.operations[free as usize] = operation;
            free
        } else {
            self.operations.push(operation);
            self.operations.len() as u64 - 1
        };
        let work = Work {
            key: key(index, 1),
            stream: TenantId::new(stream as u32),
            substream: None,
            backend: BackendId::new(chip),
            bytes: if page == Page::Erase { 0 } else { 4_096 },
            nominal: Duration::from_nanos(self.nominal(page)),
            request: tag,
            whole: Duration::from_nanos(whole),
        };
        self.policy.arrive(self.instant(), &work);
        if page == Page::Program && request.is_some() {
            self.score.writes(chip, self.now);
        }
        self.score.waits(stream, self.now);
        1 << chip
    }

    /// Chips take what they have room for, in ascending order.
    fn try_chips(&mut self, touched: u64) {
        for chip in (0..self.stalled.len() as u32).filter(|chip| (touched >> chip) & 1 == 1) {
            while let Some((key, _)) = self.policy.next(self.instant(), BackendId::new(chip)) {
                let index = key.data().as_ffi() & u64::from(u32::MAX);
                let Operation { stream, page, .. } = self.operations[index as usize];
                let end = self.chips.submit(self.instant(), chip, page).as_nanos();
                let service = self.chips.service(page).as_nanos();
                self.score.served(stream, end - service, end);
                // The number of its scheduling is the first that tells ends of one time apart.
                let event = Event::End((self.scheduled << 24) | index);
                self.schedule(end, event);
            }
        }
    }

    fn end(&mut self, event: Event) {
        let Event::End(number) = event else { unreachable!("only ends come here") };
        let index = number & ((1 << 24) - 1);
        let Operation { stream, chip, page, request } = self.operations[index as usize];
        let actual = self.chips.service(page).as_nanos();
        let service = if self.case.rival.corrects { actual } else { self.nominal(page) };
        self.policy.complete(self.instant(), key(index, 1), Duration::from_nanos(service));
        self.free_operations.push(index);
        self.score.done(stream, self.now, page, actual);
        let mut touched = 1 << chip;
        match request {
            Some(number) => {
                if page == Page::Program {
                    self.score.written(chip, self.now);
                }
                self.score.page(stream, self.now);
                self.requests[number].left -= 1;
                if self.requests[number].left == 0 {
                    let Request { stream, arrived, .. } = self.requests[number];
                    self.free_requests.push(number);
                    self.score.answered(stream, self.now - arrived, self.now);
                    if self.case.hosts[stream].every.is_none() {
                        self.arrive(stream);
                    }
                }
            }
            None => touched |= self.collected(chip, page),
        }
        self.try_chips(touched);
    }

    /// The paper's collection: a block of the next chip.
    fn tick(&mut self) {
        let Garbage::Periodic { period, pages } = self.case.garbage else { return };
        if self.case.hosts.iter().enumerate().all(|(index, host)| self.score.is_over(index, host)) {
            return;
        }
        let (stream, chip) = (self.case.hosts.len(), self.ticks % self.stalled.len() as u32);
        self.ticks += 1;
        let moves = self.nominal(Page::Read) + self.nominal(Page::Program);
        let whole = moves * u64::from(pages) + self.nominal(Page::Erase);
        let whole = (key(self.scheduled, 3), whole);
        let mut touched = 0;
        for page in [Page::Read, Page::Program] {
            for _ in 0..pages {
                touched |= self.enter(stream, chip, page, None, whole);
            }
        }
        touched |= self.enter(stream, chip, Page::Erase, None, whole);
        self.schedule(self.now + period, Event::Tick);
        self.try_chips(touched);
    }

    /// The collection of a real block: all its copies and the erasure, in their order. One after the other, each
    /// would wait for its turn anew, and collection would never have a queue to be served from.
    fn collect(&mut self, chip: u32) -> u64 {
        let stream = self.case.hosts.len();
        let alone = |page: Page, at: &Self| (key(at.scheduled, 3), at.nominal(page));
        let mut touched = 0;
        // It chooses a block, which may hold nothing.
        self.ftl.moves_due(chip);
        while !self.ftl.emptied(chip) {
            if self.ftl.step(chip).is_none() {
                self.collecting[chip as usize] = false;
                return touched;
            }
            for page in [Page::Read, Page::Program] {
                let whole = alone(page, self);
                touched |= self.enter(stream, chip, page, None, whole);
            }
        }
        let erase = alone(Page::Erase, self);
        touched | self.enter(stream, chip, Page::Erase, None, erase)
    }

    /// A block has been erased: the next one, and what waited for it.
    fn collected(&mut self, chip: u32, page: Page) -> u64 {
        if self.case.garbage != Garbage::Real || page != Page::Erase {
            return 0;
        }
        let mut touched = 0;
        // Only now can the block be written.
        self.ftl.step(chip);
        while !self.ftl.full(chip)
            && let Some((stream, page, request)) = self.stalled[chip as usize].pop_front()
        {
            self.score.resumes(chip, self.now);
            self.ftl.write(page, chip);
            self.owe(stream);
            let whole = (key(self.scheduled, 3), self.nominal(Page::Program));
            self.scheduled += 1;
            touched |= self.enter(stream, chip, Page::Program, Some(request), whole);
        }
        if !self.ftl.low(chip) {
            self.collecting[chip as usize] = false;
            return touched;
        }
        touched | self.collect(chip)
    }
}

/// A key that this number makes; numbers with different generations never meet.
fn key(number: u64, generation: u64) -> RequestKey {
    RequestKey::from(KeyData::from_ffi((generation << 32) | (number & u64::from(u32::MAX))))
}
