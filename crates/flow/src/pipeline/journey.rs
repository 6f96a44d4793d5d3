//! How a request travels: one function per step, in the order of the steps.

use super::in_flight::InFlight;
use super::losses::Losses;
use super::outstanding::Outstanding;
use super::{Action, Config, Input, Limits, Overdue, RULE_DEVICE, SetControl, StoreIo};
use crate::accept::cap::Caps;
use crate::accept::hazard::Hazards;
use crate::accept::{self, Piece, RULE_CAP, RULE_OVERLAP, Volume};
use crate::cache::Done;
use crate::cache::stage::{CacheStage, RULE_HIT};
use crate::clock::Instant;
use crate::control::{ControlPolicy, PolicyHandover, Rows};
use crate::dispatch::{Dispatch, Owner};
use crate::error::IoError;
use crate::event::{Completed, Event, Observer, Service, StageName, StorageIo, Trail};
use crate::path::{PathIo, Paths, RULE_LOST, RULE_NO_PATH, RULE_OVERDUE, Step};
use crate::policy::Rule;
use crate::request::{BackendId, Op, Outcome, PathId, Request, RequestKey};
use crate::stage::Stage;
use crate::transfer::{Grant, Links, Progress};
use crate::units::Extent;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slotmap::SlotMap;

/// The data path. See the [module](super) for its inputs and outputs.
pub struct Pipeline<O = ()> {
    pub(super) limits: Limits,
    pub(super) volumes: Vec<Volume>,
    pub(super) requests: SlotMap<RequestKey, InFlight>,
    outstanding: Outstanding,
    pub(super) losses: Losses,
    pub(super) caps: Caps,
    pub(super) hazards: Hazards,
    /// Requests whose last blocker has ended and that have not begun yet.
    unblocked: VecDeque<RequestKey>,
    /// The pieces of the request that begins now.
    pieces: Vec<Piece>,
    pub(super) cache: CacheStage,
    /// What tenants are promised for which request.
    rows: Rows,
    control: Box<dyn ControlPolicy>,
    /// Requests that have come to control.
    ordered: u64,
    pub(super) dispatch: Dispatch,
    pub(super) paths: Paths,
    links: Links,
    /// When to look for overdue requests next, while any is outstanding.
    watch: Option<Instant>,
    pub(super) actions: VecDeque<Action>,
    pub(super) observer: O,
}

impl<O: Observer> Pipeline<O> {
    /// An empty pipeline. Panics if the configuration is not [valid](Config::validate).
    pub fn new(config: &Config, observer: O) -> Self {
        assert_eq!(config.validate(), Ok(()), "a configuration is checked before it is used");
        let Config { volumes, backends, promises, shares, limits, paths, cache, policies } = config;
        Self {
            limits: *limits,
            volumes: volumes.clone(),
            requests: SlotMap::with_capacity_and_key(limits.max_requests as usize),
            outstanding: Outstanding::default(),
            losses: Losses::new(volumes),
            caps: Caps::new(volumes),
            hazards: Hazards::new(volumes.len()),
            unblocked: VecDeque::new(),
            pieces: Vec::new(),
            cache: CacheStage::new(cache, &policies.cache, &policies.prefetch, volumes.len()),
            rows: Rows::new(promises),
            control: (policies.control.policy().build)(policies.control.values(), promises),
            ordered: 0,
            dispatch: Dispatch::new(&policies.dispatch, backends.len(), shares),
            paths: Paths::new(&policies.path, backends, paths, limits.no_path_timeout),
            links: Links::new(&policies.transfer, limits.link_window),
            watch: None,
            actions: VecDeque::new(),
            observer,
        }
    }

    /// Requests that have arrived and whose reply has not left.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding.requests()
    }

    /// The observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, to read and reset it.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// The observer, when the pipeline is done with.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// What the control policy would leave to one that followed it now. Changes nothing. O(tenants).
    pub fn handover(&self, now: Instant) -> PolicyHandover {
        self.control.handover(now)
    }

    /// Stage 1: counts, checks and orders a new request.
    fn arrive(&mut self, now: Instant, request: Request) {
        let row = self.rows.arrive(now, &request);
        if !self.outstanding.enter(&self.limits, &request) {
            self.observer.event(now, Event::Refused(&request, row));
            self.actions.push_back(Action::Refuse { tag: request.tag });
            return;
        }
        self.observer.event(now, Event::Arrived(&request));
        self.watch.get_or_insert(now + self.limits.report_after);
        let key = self.requests.insert(InFlight::new(request, row, now));
        if let Some(error) = self.volumes[request.volume.index()].refuses(&request) {
            self.reply(now, key, Err(error));
            return;
        }
        if self.caps.enter(now, key, &request) {
            self.line_up(now, key);
        }
    }

    /// The volume's cap lets the request go: it waits for earlier ones that touch the same bytes.
    fn line_up(&mut self, now: Instant, key: RequestKey) {
        let request = self.requests[key].request;
        if let Some(access) = accept::access(&request) {
            let (claim, free) = self.hazards.enter(request.volume, access, key);
            self.requests[key].claim = Some(claim);
            if !free {
                return;
            }
        }
        self.begin(now, key);
    }

    /// Nothing earlier is in the way any more: is it cached?
    fn begin(&mut self, now: Instant, key: RequestKey) {
        let entry = &mut self.requests[key];
        // The cache, and all behind it, rely on this: requests that conflict run one after the other.
        let alone = entry.claim.is_none_or(|claim| self.hazards.may_run(claim));
        assert!(alone, "a request waits for all that conflict with it");
        entry.move_to(now, StageName::Cache, RULE_OVERLAP);
        let request = entry.request;
        let end = self.volumes[request.volume.index()].capacity;
        if self.cache.arrive(now, key, &request, end) {
            self.pass(now, key, RULE_HIT);
        }
    }

    /// Stage 2 passes it to shared storage: cuts it if it is large or on several parts.
    pub(super) fn pass(&mut self, now: Instant, key: RequestKey, rule: Rule) {
        let entry = &mut self.requests[key];
        entry.move_to(now, StageName::Control, rule);
        let mut pieces = core::mem::take(&mut self.pieces);
        self.volumes[entry.request.volume.index()].cut(&entry.request, &mut pieces);
        assert!(!pieces.is_empty(), "a request is at least one piece");
        entry.pieces_left = pieces.len() as u64;
        if let [whole] = &pieces[..] {
            entry.put(whole);
            self.enter_control(now, key);
        } else {
            entry.stage = StageName::Accept;
            let InFlight { request, row, arrived, times, owner, .. } = *entry;
            for piece in &pieces {
                let request = Request { extent: piece.extent, ..request };
                let stage = StageName::Control;
                let part = InFlight::new(request, row, now);
                let mut part = InFlight { parent: Some(key), arrived, times, stage, owner, ..part };
                part.put(piece);
                let part = self.requests.insert(part);
                self.enter_control(now, part);
            }
        }
        self.pieces = pieces;
    }

    /// Stage 3: takes its place among those that wait.
    fn enter_control(&mut self, now: Instant, key: RequestKey) {
        let entry = &mut self.requests[key];
        assert!(entry.stage == StageName::Control, "what control is given is in its stage");
        self.ordered += 1;
        entry.order = self.ordered;
        self.control.arrive(now, key, &entry.request, entry.row);
    }

    /// Puts other contracts, and another control policy if that has changed, in place of those in force.
    /// O(outstanding).
    fn set_control(&mut self, now: Instant, set_control: &SetControl) {
        let SetControl { control, promises } = set_control;
        assert_eq!(promises.validate(), Ok(()), "promises are checked before they are used");
        let stays = self.control.set_promises(now, control, promises);
        if !stays {
            let handover = self.control.handover(now);
            self.control = (control.policy().build)(control.values(), promises);
            self.control.take_over(now, &handover);
        }
        self.rows.set_promises(promises);
        for entry in self.requests.values_mut() {
            entry.row = self.rows.again(&entry.request);
        }
        self.observer.event(now, Event::ControlSet(promises));
        let held = [StageName::Control, StageName::Dispatch, StageName::Path, StageName::Storage];
        // A request that was cut stays at accept; its pieces are in control.
        let concerned = self.requests.iter().filter(|(_, entry)| held.contains(&entry.stage));
        let mut concerned: Vec<_> = concerned.map(|(key, entry)| (entry.order, key)).collect();
        concerned.sort_unstable();
        let waits = |entry: &InFlight| entry.stage == StageName::Control;
        for &(_, key) in &concerned {
            let entry = &self.requests[key];
            if !stays && !waits(entry) {
                self.control.adopt(key, &entry.request, entry.released);
            }
        }
        for (_, key) in concerned {
            let entry = &self.requests[key];
            if waits(entry) {
                self.control.arrive(now, key, &entry.request, entry.row);
            }
        }
    }

    /// Stages 3 and 4: moves whatever may move.
    fn drain(&mut self, now: Instant) {
        self.follow(now);
        while let Some(key) = self.caps.release(now) {
            let entry = &mut self.requests[key];
            entry.move_to(now, StageName::Accept, RULE_CAP);
            let InFlight { ref request, owner, .. } = *entry;
            let service = Service::Cap(request.volume, owner, request.cost());
            self.observer.service(now, service);
            self.line_up(now, key);
        }
        loop {
            while let Some(key) = self.unblocked.pop_front() {
                self.begin(now, key);
            }
            self.run_cache(now);
            if !self.unblocked.is_empty() {
                continue;
            }
            while let Some((key, rule)) = self.control.poll(now) {
                let entry = &mut self.requests[key];
                entry.move_to(now, StageName::Dispatch, rule);
                entry.released = now;
                let entry = &self.requests[key];
                let whole = entry.parent.map(|parent| (parent, &self.requests[parent].request));
                let InFlight { ref request, backend, owner, .. } = *entry;
                let service = Service::Control(owner, request.cost());
                self.observer.service(now, service);
                self.dispatch.push(now, (key, owner), request, whole, backend);
            }
            while let Some(notice) = self.control.notice() {
                self.observer.event(now, Event::Control(notice));
            }
            let Some((key, rule)) = self.dispatch.poll(now) else { break };
            let entry = &mut self.requests[key];
            entry.move_to(now, StageName::Path, rule);
            entry.dispatched = now;
            self.enter_paths(now, key);
            self.follow(now);
        }
    }

    /// Stages 5 and 6: does what the path stage asks for.
    fn follow(&mut self, now: Instant) {
        while let Some(step) = self.paths.poll() {
            match step {
                Step::Go(key, path, rule) => self.go(now, key, path, rule),
                Step::Abandon(key, backend, path) => {
                    let entry = &mut self.requests[key];
                    let op = entry.request.op;
                    entry.come_back(now, RULE_OVERDUE);
                    self.left(now, op, backend);
                    self.actions.push_back(Action::Abandon { key, backend, path });
                }
                Step::NoPath(key) => self.deliver(now, key, Err(IoError::NoPath), RULE_NO_PATH),
                Step::Check(backend, path) => {
                    self.actions.push_back(Action::Check { backend, path });
                }
                Step::Recall(key, backend, path) => {
                    self.actions.push_back(Action::Recall { key, backend, path });
                }
                Step::Reset(backend, path) => {
                    self.actions.push_back(Action::Reset { backend, path });
                }
                Step::Report(change) => self.observer.event(now, Event::Path(change)),
            }
        }
    }

    /// Stage 6: the I/O starts on a path.
    fn go(&mut self, now: Instant, key: RequestKey, path: PathId, rule: Rule) {
        let entry = &mut self.requests[key];
        entry.move_to(now, StageName::Storage, rule);
        (entry.path, entry.alone) = (Some(path), self.dispatch.is_alone(entry.backend));
        let InFlight { request, parent, backend, place: (part, at), .. } = *entry;
        let whole = parent.map_or(request.extent, |parent| self.requests[parent].request.extent);
        assert!(whole.offset <= request.extent.offset, "a piece is inside its request");
        self.requests[key].part_then = self.losses.at_start(&request, part);
        if request.op == Op::Flush {
            self.observer.service(now, Service::Flush(backend, true));
        }
        self.actions.push_back(Action::Store(StoreIo {
            key,
            tag: request.tag,
            volume: request.volume,
            part,
            backend,
            path,
            op: request.op,
            extent: Extent::new(at, request.extent.length),
            offset_in_request: request.extent.offset - whole.offset,
            fua: request.fua && request.op != Op::Flush,
        }));
    }

    /// Stage 6: the device has ended an I/O.
    fn stored(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let at_storage = |entry: &&mut InFlight| entry.stage == StageName::Storage;
        let Some(entry) = self.requests.get_mut(key).filter(at_storage) else {
            self.observer.event(now, Event::Stray);
            return;
        };
        if outcome == Err(IoError::PathFailed) {
            let InFlight { ref request, backend, .. } = *entry;
            let op = request.op;
            entry.come_back(now, RULE_LOST);
            self.left(now, op, backend);
            self.paths.lost(now, key);
            return;
        }
        self.paths.answered(now, key);
        let InFlight { ref request, owner, part_then, place: (part, _), .. } = self.requests[key];
        if outcome.is_ok()
            && owner != Owner::WriteBack
            && self.losses.may_be_lost(request, part, part_then)
        {
            self.requests[key].come_back(now, RULE_LOST);
            self.enter_paths(now, key);
            return;
        }
        self.deliver(now, key, outcome, RULE_DEVICE);
    }

    /// An operation leaves the device: if it is a flush, there is one less in flight.
    fn left(&mut self, now: Instant, op: Op, backend: BackendId) {
        if op == Op::Flush {
            self.observer.service(now, Service::Flush(backend, false));
        }
    }

    /// Stage 5: a request waits for a path.
    fn enter_paths(&mut self, now: Instant, key: RequestKey) {
        let InFlight { backend, arrived, place: (_, offset), ref request, .. } = self.requests[key];
        let Request { op, tenant, volume, .. } = *request;
        let io = PathIo { bytes: request.payload(), op, tenant, volume, offset, arrived };
        self.paths.enter(now, key, backend, io);
    }

    /// Tells every stage on the way back that a request has ended.
    fn deliver(&mut self, now: Instant, key: RequestKey, outcome: Outcome, rule: Rule) {
        let entry = &mut self.requests[key];
        if entry.stage == StageName::Storage {
            let InFlight { ref request, backend, owner, entered, alone, .. } = *entry;
            let (op, length, time) = (request.op, request.extent.length, now.since(entered));
            let io = StorageIo { op, length, time, alone };
            self.observer.service(now, Service::Storage(backend, owner, io));
            self.left(now, op, backend);
        }
        let entry = &mut self.requests[key];
        entry.move_to(now, StageName::Transfer, rule);
        let InFlight { request, owner, released, dispatched, part_then, place: (part, _), .. } =
            *entry;
        if request.op != Op::Read && (owner != Owner::WriteBack || request.op == Op::Flush) {
            self.losses.stored(&request, part, part_then, outcome);
        }
        self.paths.leave(key);
        self.dispatch.complete(now, (key, owner), &request, now.since(dispatched));
        self.control.complete(now, key, &request, now.since(released));
        self.ended(now, key, outcome);
    }

    /// Joins a piece to its whole, which comes back to the cache.
    fn ended(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let Some(parent_key) = self.requests[key].parent else {
            self.back(now, key, outcome);
            return;
        };
        let piece = self.requests.remove(key).expect("a piece ends once");
        let parent = &mut self.requests[parent_key];
        parent.outcome = parent.outcome.and(outcome);
        parent.piece_ended();
        if parent.pieces_left == 0 {
            // Its own time from the cut to here is that of the piece it waited for.
            parent.times = piece.times;
            (parent.backend, parent.path, parent.alone) = (piece.backend, piece.path, piece.alone);
            (parent.length, parent.entered) = (piece.length, now);
            let outcome = parent.outcome;
            self.back(now, parent_key, outcome);
        }
    }

    /// Stage 7: the bytes are free for others; the reply waits for its link.
    pub(super) fn reply(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let entry = &mut self.requests[key];
        let outcome = self.losses.told(&entry.request, outcome);
        entry.outcome = outcome;
        entry.move_to(now, StageName::Transfer, RULE_OVERLAP);
        if let Some(claim) = entry.claim.take() {
            let freed = self.hazards.leave(claim);
            let tenant = entry.request.tenant;
            for &(_, freed) in freed {
                self.requests[freed].freed_by = Some(tenant);
            }
            self.unblocked.extend(freed.iter().map(|&(_, key)| key));
        }
        let entry = &mut self.requests[key];
        entry.reply = Progress::of(&entry.request, outcome);
        let grant = self.links.push(now, key, (&entry.request, entry.arrived), &mut entry.reply);
        let line = entry.reply.line();
        if let Some(grant) = grant {
            self.hand_out(now, grant);
        }
        self.pump(now, line);
    }

    /// Starts as much of what is ready as may leave by now.
    fn pump(&mut self, now: Instant, line: usize) {
        while let Some(grant) = self.links.pop(now, line) {
            self.hand_out(now, grant);
        }
    }

    fn hand_out(&mut self, now: Instant, grant: Grant) {
        let key = grant.key;
        let entry = &mut self.requests[key];
        // A later write of the same bytes may have run by now: the reply has its own copy of them.
        assert!(entry.claim.is_none(), "the bytes of a reply are final before it leaves");
        let next = self.links.start(now, grant, &mut entry.reply);
        match self.actions.back_mut() {
            Some(Action::Transfer { key: before, part, .. }) if *before == key => {
                part.length += next.length;
                part.last = next.last;
            }
            _ => {
                let (tag, outcome) = (entry.request.tag, entry.outcome);
                self.actions.push_back(Action::Transfer { key, tag, outcome, part: next });
            }
        }
    }

    /// Something of a reply has left; with the last of it the request's story is complete.
    fn sent(&mut self, now: Instant, key: RequestKey, bytes: u64) {
        let Some(entry) = self.requests.get_mut(key) else {
            self.observer.event(now, Event::Stray);
            return;
        };
        let line = entry.reply.line();
        match (self.links.sent(now, key, bytes, &mut entry.reply), entry.reply.rule) {
            (Some(true), Some(rule)) => entry.move_to(now, StageName::Transfer, rule),
            (Some(_), _) => return self.pump(now, line),
            (None, _) => {
                self.observer.event(now, Event::Stray);
                return;
            }
        }
        let entry = self.requests.remove(key).expect("it was found above");
        let InFlight { ref request, row, arrived, ref times, outcome, .. } = entry;
        let InFlight { backend, path, length, freed_by, alone, .. } = entry;
        assert!(times.total() == now.since(arrived), "the parts add up to the whole");
        self.outstanding.leave(request);
        let outstanding = self.outstanding.requests();
        assert!(
            outstanding as usize <= self.requests.len(),
            "what is outstanding is in the pipeline"
        );
        let last = outstanding == 0;
        if last {
            self.watch = None;
        }
        let trail = Trail { backend, path, length, line: line as u32, freed_by, alone, last };
        let completed = Completed { request, row, arrived, times, outcome, trail };
        self.observer.event(now, Event::Completed(completed));
        self.pump(now, line);
    }

    /// Reports what has been in one stage for too long.
    fn watch(&mut self, now: Instant) {
        self.watch = Some(now + self.limits.report_after);
        for entry in self.requests.values() {
            if let Some(Overdue { request, stage, age }) =
                entry.overdue(now, self.limits.report_after)
            {
                self.observer.event(now, Event::Overdue { request, stage, age });
            }
        }
    }
}

impl<O: Observer> Stage for Pipeline<O> {
    type Input = Input;
    type Output = Action;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Arrive(request) => self.arrive(now, request),
            Input::Stored { key, outcome } => self.stored(now, key, outcome),
            Input::Sent { key, bytes } => self.sent(now, key, bytes),
            Input::Link(id, link) => self.links.set(id, link),
            Input::Substream(member, weight) => self.dispatch.set_substream(member, weight),
            Input::PathDown(backend, path) => self.paths.down(now, backend, path),
            Input::PathUp(backend, path) => {
                self.forget_cached(now, backend);
                self.paths.up(now, backend, path);
            }
            Input::UnitReset(backend) => self.lose(now, backend, false),
            Input::WriteLost(backend) => self.lose(now, backend, true),
            Input::PathAccess(backend, path, access) => {
                self.paths.access(now, backend, path, access);
            }
            Input::Checked(backend, path) => self.paths.checked(now, backend, path),
            Input::PathOrder(backend, order) => self.paths.order(now, backend, order),
            Input::Resized(volume, capacity) => self.resize(volume, capacity),
            Input::VolumeAdded(added) => self.add_volume(now, &added),
            Input::VolumeRemoved(volume) => self.remove_volume(now, volume),
            Input::Capped(volume, cap) => {
                assert_eq!(cap.validate(), Ok(()), "a cap is checked before it is used");
                self.caps.change(now, volume, cap);
            }
            Input::SetControl(set_control) => self.set_control(now, &set_control),
            Input::SetWeights(shares) => self.dispatch.set_weights(&shares),
            Input::TakeOver(handover) => self.control.take_over(now, &handover),
            Input::Cache(done) => {
                if let Done::Recovered(volume, recovered) = &done
                    && recovered.bypassed()
                {
                    self.losses.bypassed(*volume);
                }
                self.cache.done(now, done);
            }
        }
        self.drain(now);
    }

    fn poll(&mut self, _: Instant) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        [
            self.caps.next_deadline(),
            self.cache.next_deadline(),
            self.control.next_deadline(),
            self.dispatch.next_deadline(),
            self.paths.next_deadline(),
            self.links.next_deadline(),
            self.watch,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        self.cache.handle_deadline(now);
        if due(self.control.next_deadline()) {
            self.control.handle_deadline(now);
        }
        if due(self.dispatch.next_deadline()) {
            self.dispatch.handle_deadline(now);
        }
        self.paths.handle_deadline(now);
        if due(self.links.next_deadline()) {
            for port in 0..self.links.ports() {
                if let Some(line) = self.links.line_of(port) {
                    self.pump(now, line);
                }
            }
        }
        if due(self.watch) {
            self.watch(now);
        }
        self.drain(now);
    }
}

impl<O> core::fmt::Debug for Pipeline<O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (requests, bytes) = (self.outstanding.requests(), self.outstanding.bytes());
        write!(f, "Pipeline({requests} outstanding, {bytes} bytes)")
    }
}
