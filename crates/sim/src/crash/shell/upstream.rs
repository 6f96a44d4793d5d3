//! Performs upstream I/O over paths that may break.

use super::super::bug::Bug;
use super::super::content::{Content, SECTOR};
use super::super::device::Id;
use super::super::events::Event as Happening;
use super::super::loss::Loss;
use super::{Asked, Effect, Fault, Io, OTHER, Shell, sector};
use weir_flow::error::IoError;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{BackendId, Op, Outcome, PathId, RequestKey};

impl Shell<'_> {
    /// An I/O of the upstream begins.
    pub(super) fn store(&mut self, io: StoreIo) -> Result<(), Fault> {
        if io.volume == OTHER {
            self.ios.push(Io::Other(io));
            return Ok(());
        }
        let path = self.paths.own(io.backend, io.path).expect("a path to the volume");
        let io = StoreIo { path, ..io };
        let StoreIo { key, tag, op, extent, part, .. } = io;
        let (first, count) = (sector(extent.offset), sector(extent.length));
        self.tell(|| match op {
            Op::Flush => "upstream flush begins".to_owned(),
            _ if part > 0 => {
                format!("upstream {op:?} of {first}..{} of store {part} begins", first + count)
            }
            _ => format!("upstream {op:?} of {first}..{} begins", first + count),
        });
        if self.tenure.fenced {
            self.stored(key, Err(IoError::Fenced));
            return Ok(());
        }
        if (self.plan.late || self.plan.paths > 1) && self.paths.is_down(io.path) {
            // The pipeline does not know it yet.
            self.stored(key, Err(IoError::PathFailed));
            return Ok(());
        }
        if let Some(Asked::Change { place, direct, .. }) = self.asked.get_mut(&tag) {
            *direct = true;
            let place = *place;
            if !self.lasting.history.is_in_debt() {
                // Of several stores one may begin before another with what came earlier.
                self.pass_outstanding();
            }
            self.lasting.history.passed(place);
        }
        if op == Op::Update && self.target.rival.is_none() {
            return self.begin_update(io);
        }
        let of_host = self.asked.contains_key(&tag);
        let pays = op == Op::Flush && !of_host && self.lasting.history.is_in_debt();
        if !of_host && !matches!(op, Op::Flush | Op::Read) {
            self.lasting.history.written_back();
        }
        self.unflushed.begins(&io, of_host);
        if self.unflushed.takes_again(&io) && self.is(Bug::LostWriteNotRepeated) {
            self.stored(key, Ok(()));
            return Ok(());
        }
        let effect = match op {
            _ if self.is_refused() && op != Op::Read => Effect::Conflict,
            Op::Flush if self.is(Bug::PassedFlushDropped) && of_host => Effect::Nothing,
            Op::Flush if self.is(Bug::DebtFlushDropped) && pays => Effect::Nothing,
            Op::Flush => {
                self.lasting.events[Happening::StoreFlush] += u64::from(part > 0);
                let flush = self.target.device.flush_of(part);
                let other = part > 0;
                if self.is(Bug::UpstreamFlushDropped) || (other && self.is(Bug::OneStoreFlushed)) {
                    Effect::Nothing
                } else if self.is(Bug::UpstreamFlushAnsweredEarly)
                    || (self.is(Bug::DebtPaidEarly) && pays)
                    || (other && self.is(Bug::FirstStoreAnswers))
                {
                    self.ios.push(Io::Unseen { on_log: false, effect: Effect::Flush(flush) });
                    self.stored(key, Ok(()));
                    return self.point();
                } else {
                    Effect::Flush(flush)
                }
            }
            Op::Read => Effect::Read(self.upstream_bytes(&io)),
            Op::Write => {
                let at = io.offset_in_request as usize;
                let bytes = &self.memory.payloads[&tag][at..];
                let wrong =
                    self.is(Bug::StaleBuffer) && !of_host && self.memory.stale.len() >= bytes.len();
                let bytes = if wrong { &self.memory.stale } else { bytes };
                let (bug, store) = (self.bug, &mut self.lasting.store);
                let short = if bug == Some(Bug::ShortUpstreamWrite) { count / 2 } else { 0 };
                let sectors = bytes.as_chunks::<SECTOR>().0.iter().take((count - short) as usize);
                let contents: Vec<_> = sectors.map(|bytes| store.name(bytes)).collect();
                Effect::Write(self.begin_at(part, first, contents))
            }
            Op::Discard if self.is(Bug::DiscardDropped) => Effect::Nothing,
            Op::WriteZeroes if self.is(Bug::ZeroesDropped) => Effect::Nothing,
            Op::Discard | Op::WriteZeroes => {
                let zeroes = vec![Content::default(); count as usize];
                Effect::Write(self.begin_at(part, first, zeroes))
            }
            Op::Update if self.tenure.admitted => {
                return self.begin_update(io);
            }
            Op::Update => Effect::Conflict,
            Op::Verify => unreachable!("no host asks for it"),
        };
        if self.is(Bug::UpstreamAnsweredEarly) && matches!(effect, Effect::Write(_)) {
            self.ios.push(Io::Unseen { on_log: false, effect });
            self.stored(key, Ok(()));
        } else {
            self.ios.push(Io::Store(io, effect));
        }
        self.point()
    }

    /// What the upstream has where an I/O is.
    pub(super) fn upstream_bytes(&self, io: &StoreIo) -> Vec<u8> {
        let mut bytes = vec![0; io.extent.length as usize];
        let (store, image) = (&self.lasting.store, self.target.device.visible());
        for (at, bytes) in (sector(io.extent.offset)..).zip(bytes.chunks_exact_mut(SECTOR)) {
            let at = u64::from(self.plan.stores.in_volume(io.part, at));
            store.read(image, at * SECTOR as u64, bytes);
        }
        bytes
    }

    /// A write to a store begins.
    fn begin_at(&mut self, part: u32, first: u32, contents: Vec<Content>) -> Id {
        let place = |at| self.plan.stores.in_volume(part, at);
        let sectors = (first..).map(place).zip(contents).collect();
        self.target.device.begin_at(part, sectors)
    }

    /// An I/O of the upstream ends, well unless the link breaks now.
    pub(super) fn end_store(&mut self, io: StoreIo, effect: Effect) -> Result<(), Fault> {
        let StoreIo { key, tag, op, fua, .. } = io;
        if matches!(effect, Effect::Conflict) {
            return self.conflict(io);
        }
        if !self.tenure.calm
            && !matches!(effect, Effect::Flush(_) | Effect::Nothing)
            && self.rng.below(100) < self.plan.upstream_faults
        {
            if self.is(Bug::UpstreamErrorHidden)
                && let Effect::Write(id) = effect
            {
                self.tell(|| format!("upstream {op:?} has failed"));
                self.target.device.fail(id, &mut self.rng);
                self.stored(key, Ok(()));
                return self.point();
            }
            self.ios.push(Io::Store(io, effect));
            return self.break_link(io.path, false);
        }
        let of_host = self.asked.contains_key(&tag);
        if let Effect::Write(id) = effect
            && !of_host
            && self.plan.full > 0
            && !self.tenure.calm
            && self.rng.below(100) < self.plan.full
        {
            self.lasting.events.count(Happening::NoSpace);
            self.tell(|| format!("upstream {op:?} has no space"));
            self.target.device.refuse(id);
            let hidden = self.is(Bug::NoSpaceTakenForDone);
            self.stored(key, if hidden { Ok(()) } else { Err(IoError::NoSpace) });
            return self.point();
        }
        self.tell(|| format!("upstream {op:?} ends"));
        match effect {
            Effect::Write(id)
                if (op == Op::Update && self.is(Bug::UpdateFuaDropped))
                    || (of_host && op != Op::Update && self.is(Bug::HealFuaDropped)) =>
            {
                self.target.device.end(id);
            }
            Effect::Write(id) if fua && (of_host || !self.is(Bug::UpstreamFuaDropped)) => {
                self.target.device.end_durable(id);
            }
            Effect::Write(id) => self.target.device.end(id),
            Effect::Flush(flush) => self.target.device.settle(&flush),
            Effect::Read(early) => {
                // The upstream has read when the I/O began, or now.
                let late = self.rng.below(2) == 0;
                let data = if late { self.upstream_bytes(&io) } else { early };
                if op == Op::Update {
                    return self.updated(io, Some(&data));
                }
                if self.is(Bug::AbandonedReadAnswers) && !self.memory.payloads.contains_key(&tag) {
                    // The request has its answer, by the planted bug.
                    return Ok(());
                }
                let at = io.offset_in_request;
                self.memory.payload(tag, at, data.len() as u64).copy_from_slice(&data);
            }
            Effect::Conflict | Effect::Nothing => {}
        }
        if op == Op::Update {
            return self.updated(io, None);
        }
        self.stored(key, Ok(()));
        self.point()
    }

    pub(super) fn stored(&mut self, key: RequestKey, outcome: Outcome) {
        self.told.push_back(Input::Stored { key, outcome });
    }

    /// A path breaks; with `power` all do, because the upstream has lost its power, and with that its cache. Of several
    /// stores the one behind the path has.
    pub(super) fn break_link(&mut self, path: PathId, power: bool) -> Result<(), Fault> {
        self.lasting.events[Happening::PowerLoss] += u64::from(power);
        if power && self.plan.settings.upstream_flush {
            // A new session is no sign of a loss: common targets report 29h to each.
            let store = if self.plan.stores.count() > 1 { path.index() as u32 } else { 0 };
            self.lose_cache(true, store);
            if self.is(Bug::UpstreamResetUntold) {
                return self.point();
            }
        }
        let all = power && self.plan.stores.count() == 1;
        let broken = if all { self.paths.up() } else { vec![path] };
        for path in broken {
            if !self.paths.is_down(path) {
                let (backend, way) = self.paths.way(path);
                self.told.push_back(Input::PathDown(backend, way));
                self.lose_link(path);
            }
        }
        if power {
            self.target.abort_all(&mut self.rng);
        }
        self.point()
    }

    /// The upstream loses its cache, and with `aborts` ends the writes of lost sessions. Whether something is gone that
    /// hosts were told is done.
    fn lose_cache(&mut self, aborts: bool, store: u32) -> bool {
        let loss = Loss::ALL[self.rng.below(7) as usize];
        if aborts {
            self.target.abort_all(&mut self.rng);
        }
        self.target.device.lose_cache(store, |at_risk| loss.keep(at_risk, &mut self.rng));
        self.tell(|| format!("the upstream loses its cache: {}", loss.name()));
        for asked in self.asked.values_mut() {
            match asked {
                Asked::Copy(copying) => copying.doubt(),
                Asked::Update(update) => update.doubt(&self.lasting.history),
                Asked::Read { faded, .. } => {
                    faded.get_or_insert_with(|| Box::new(self.lasting.history.clone()));
                }
                _ => {}
            }
        }
        let Self { lasting, target, .. } = self;
        target.rival.is_none()
            && lasting.history.lost(&lasting.store.all_tokens(target.device.visible()))
    }

    /// The unit is reset and loses its cache, and all sessions stay. It says so before it executes the next command
    /// (SPC-4, unit attention 29h), so a flush that it had not answered finds nothing to make durable.
    pub(super) fn reset_unit(&mut self) -> Result<(), Fault> {
        if !self.plan.settings.upstream_flush || self.paths.up().is_empty() {
            return Ok(());
        }
        self.lasting.events.count(Happening::UnitReset);
        self.tell(|| "the unit is reset, and all sessions stay".to_owned());
        let store = self.store_at_random();
        self.lose_reported(true, store);
        let untold = self.is(Bug::UnitResetUntold) || (store > 0 && self.is(Bug::StoreResetUntold));
        if !untold {
            self.told.push_back(Input::UnitReset(BackendId::new(store)));
        }
        self.point()
    }

    /// The unit loses writes that it had acknowledged, and says so with a deferred error before it executes the next
    /// command (SPC-4, 4.5).
    pub(super) fn lose_write(&mut self) -> Result<(), Fault> {
        if !self.plan.settings.upstream_flush || self.paths.up().is_empty() {
            return Ok(());
        }
        self.lasting.events.count(Happening::WriteLost);
        self.tell(|| "the unit has lost a write that it had acknowledged".to_owned());
        let store = self.store_at_random();
        self.lose_reported(false, store);
        if !self.is(Bug::DeferredErrorUntold) {
            self.told.push_back(Input::WriteLost(BackendId::new(store)));
        }
        self.point()
    }

    /// The path that says so is one of several: on others are answers to what the unit has done before, which come later.
    fn answers_on_their_way(&mut self) {
        let up = self.paths.up();
        if self.plan.stores.count() > 1 || up.len() < 2 {
            return;
        }
        let says = up[self.rng.below(up.len() as u64) as usize];
        for io in &mut self.ios {
            if let Io::Store(StoreIo { path, fua, .. }, effect) = io
                && let Effect::Write(id) = *effect
                && *path != says
                && self.rng.below(2) == 0
            {
                self.lasting.events.count(Happening::AnswerAfterReset);
                if *fua {
                    self.target.device.end_durable(id);
                } else {
                    self.target.device.end(id);
                }
                *effect = Effect::Nothing;
            }
        }
    }

    /// The unit loses its cache, and will say so: a flush that it has not answered finds nothing to make durable.
    fn lose_reported(&mut self, aborts: bool, store: u32) {
        self.answers_on_their_way();
        if self.lose_cache(aborts, store) {
            self.unflushed.lost();
        }
        for io in std::mem::take(&mut self.ios) {
            match io {
                Io::Store(io, Effect::Flush(flush)) if io.part != store => {
                    self.ios.push(Io::Store(io, Effect::Flush(flush)));
                }
                Io::Store(io, Effect::Flush(_)) if self.is(Bug::ResetFlushTakenForDone) => {
                    self.stored(io.key, Ok(()));
                }
                Io::Store(io, Effect::Flush(_)) => {
                    let flush = self.target.device.flush_of(store);
                    self.ios.push(Io::Store(io, Effect::Flush(flush)));
                }
                io => self.ios.push(io),
            }
        }
    }

    /// The session of a path is lost. Writes on their way may still be executed, so they are held until the target has
    /// ended the session; other operations end at once.
    pub(super) fn lose_link(&mut self, path: PathId) {
        self.tell(|| format!("path {} to the upstream is gone", path.index()));
        if !self.paths.set_down(path, true) {
            return;
        }
        self.lasting.events.count(Happening::LostPath);
        for io in std::mem::take(&mut self.ios) {
            let Io::Store(io, effect) = io else {
                self.ios.push(io);
                continue;
            };
            if io.path != path {
                self.ios.push(Io::Store(io, effect));
                continue;
            }
            let outcome = Err(IoError::PathFailed);
            match effect {
                Effect::Write(id) if self.plan.late => {
                    self.target.leave((self.nexus(path), self.tenure.life), id, io.fua);
                    if self.is(Bug::HeldWritesNotHeld) {
                        self.stored(io.key, outcome);
                    } else {
                        self.paths.hold(path, io.key);
                    }
                }
                Effect::Write(id) => {
                    self.target.device.fail(id, &mut self.rng);
                    self.stored(io.key, outcome);
                }
                Effect::Flush(_) if self.is(Bug::LostFlushTakenForDone) => {
                    self.stored(io.key, Ok(()));
                }
                Effect::Flush(_) | Effect::Read(_) | Effect::Conflict | Effect::Nothing => {
                    self.stored(io.key, outcome);
                }
            }
        }
    }

    /// A path has a session again, of the same name as the one before: that one is dead to the target.
    pub(super) fn mend_link(&mut self, path: PathId) {
        self.tell(|| format!("path {} to the upstream is back", path.index()));
        if !self.is(Bug::SessionsOfOtherNames) {
            self.target.log_in(self.nexus(path), &mut self.rng);
        }
        self.release(path);
        if self.plan.fence && !self.claim(path) {
            return;
        }
        self.paths.set_down(path, false);
        let (backend, way) = self.paths.way(path);
        self.told.push_back(Input::PathUp(backend, way));
    }

    /// The target has ended the lost session of a path: its writes may be sent elsewhere.
    pub(super) fn release(&mut self, path: PathId) {
        for key in self.paths.release(path) {
            if self.is(Bug::HeldWritesForgotten) {
                continue;
            }
            let done = self.is(Bug::HeldWritesTakenForDone);
            self.stored(key, if done { Ok(()) } else { Err(IoError::PathFailed) });
        }
    }

    /// Nothing of a read is wanted any more, which is sent again on another path.
    pub(super) fn abandon(&mut self, key: RequestKey) {
        self.tell(|| "a read is abandoned".to_owned());
        for io in std::mem::take(&mut self.ios) {
            match io {
                Io::Store(io, _) if io.key == key && self.is(Bug::AbandonedReadAnswers) => {
                    self.ios.push(Io::Answer(Input::Stored { key, outcome: Ok(()) }));
                }
                Io::Store(io, _) | Io::Other(io) if io.key == key => {}
                io => self.ios.push(io),
            }
        }
    }

    /// The target ends a lost session although its path is still gone: by a session of the same name on another portal,
    /// or because the unit is reset over another path.
    pub(super) fn confirm(&mut self, path: PathId) -> Result<(), Fault> {
        let up = self.paths.up();
        let Some(&over) = up.first() else { return Ok(()) };
        self.lasting.events.count(Happening::Confirmed);
        if self.rng.below(3) > 0 {
            self.tell(|| format!("another portal ends the lost session of path {}", path.index()));
            if !self.is(Bug::HelperOfAnotherName) {
                self.target.log_in(self.nexus(path), &mut self.rng);
            }
            self.release(path);
            return self.point();
        }
        self.tell(|| format!("the unit is reset over path {}", over.index()));
        if self.is(Bug::ResetTakenForOwnPath) {
            self.abort_unseen();
        } else {
            for path in up {
                let (backend, way) = self.paths.way(path);
                self.told.push_back(Input::PathDown(backend, way));
                self.lose_link(path);
            }
        }
        self.target.abort_all(&mut self.rng);
        for path in self.paths.ids() {
            self.release(path);
        }
        self.point()
    }

    /// The target ends the writes of sessions that work, and the gateway takes them for done.
    fn abort_unseen(&mut self) {
        for io in std::mem::take(&mut self.ios) {
            match io {
                Io::Store(io, Effect::Write(id)) => {
                    self.target.device.fail(id, &mut self.rng);
                    self.stored(io.key, Ok(()));
                }
                io => self.ios.push(io),
            }
        }
    }

    /// The target executes a write whose session is lost.
    pub(super) fn execute_late(&mut self) -> Result<(), Fault> {
        self.lasting.events.count(Happening::LateWrite);
        self.tell(|| "the upstream executes a write of a lost session".to_owned());
        let life = self.target.execute_late(&mut self.rng);
        let cleaned = life != self.tenure.life && self.lasting.has_cleaned();
        self.lasting.events[Happening::LateWriteCleaned] += u64::from(cleaned);
        self.point()
    }
}
