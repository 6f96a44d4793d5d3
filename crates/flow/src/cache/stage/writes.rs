//! Writes, flushes and requests that must be durable: into the log, or past it.

use super::{
    Buffer, CacheStage, Held, LogWrite, RULE_DRAIN, RULE_HIT, State, Step, Work, initiator,
};
use crate::cache::writeback::{Effect, Fua, Kind, Log, Memory, Mode, Origin};
use crate::clock::Instant;
use crate::request::{Op, Outcome, Request, RequestKey, VolumeId};
use alloc::boxed::Box;

impl CacheStage {
    /// A write, something that zeroes or unmaps, or a flush. What overwrites a lost range is made durable before it is
    /// answered.
    pub(super) fn change(&mut self, now: Instant, key: RequestKey, request: &Request) {
        let Request { volume, op, extent, fua, .. } = *request;
        let heals = self.heals(request);
        let request = Request { fua: fua || heals, ..*request };
        let held = |state| Held { request, state };
        let Some(log) = &mut self.volumes[volume.index()].log else {
            self.held.insert(key, held(State::Direct));
            self.steps.push_back(Step::Pass { key, rule: RULE_HIT, durable: heals });
            return;
        };
        self.held.insert(key, held(State::Logged { heals: true }));
        let fua = match (fua, heals) {
            (true, _) => Fua::Host,
            (false, true) => Fua::Gateway,
            (false, false) => Fua::No,
        };
        // The log knows no clock of people.
        let who = Origin { tenant: request.tenant, initiator: initiator(request.link), time: 0 };
        match op {
            Op::Flush => log.flush(now, key, who),
            _ => log.write(now, key, kind(op), extent, fua, who),
        }
        self.pump(now, volume);
    }

    /// Something that has to find everything before it on storage.
    pub(super) fn settle(&mut self, now: Instant, key: RequestKey, request: &Request) {
        let Request { volume, .. } = *request;
        let held = |state| Held { request: *request, state };
        if let Some(log) = &mut self.volumes[volume.index()].log {
            self.held.insert(key, held(State::Drains));
            if request.op == Op::Update {
                log.await_update(now, key);
            } else {
                log.await_drained(now, key);
            }
            self.pump(now, volume);
        } else {
            let durable = self.heals(request);
            let request = Request { fua: request.fua || durable, ..*request };
            self.held.insert(key, Held { request, state: State::Direct });
            self.steps.push_back(Step::Pass { key, rule: RULE_HIT, durable });
        }
    }

    /// Drops from the cache what a request has changed, also from fetches in flight.
    pub(super) fn forget(&mut self, request: &Request) {
        if request.op.writes() {
            self.lines.wrote(request.volume, request.extent);
        }
    }

    /// A request that has gone to storage, past the log, has changed it, or has failed to.
    pub(super) fn written(&mut self, request: &Request, outcome: Outcome) {
        self.forget(request);
        if outcome.is_ok() {
            self.volumes[request.volume.index()].wrote_past_log |= request.op.writes();
            self.keep(request);
        }
    }

    /// Puts what was written into the cache.
    pub(super) fn keep(&mut self, request: &Request) {
        if request.op == Op::Write {
            self.copies.clear();
            self.lines.put(request.volume, request.extent, &mut self.copies);
            self.copy(request.tag, true);
        }
    }

    /// Does what a volume's log asks for.
    pub(super) fn pump(&mut self, now: Instant, volume: VolumeId) {
        while let Some(effect) =
            self.volumes[volume.index()].log.as_mut().and_then(|log| log.poll(now))
        {
            match effect {
                Effect::Write(write) => {
                    let from =
                        write.payload.iter().map(|part| self.buffer(volume, part.from)).collect();
                    self.work(Work::Log { volume, write: Box::new(LogWrite { write, from }) });
                }
                Effect::Sync(io) => self.work(Work::Sync { volume, io }),
                Effect::Release(io) => self.work(Work::ReleaseBatch { volume, io }),
                Effect::Abandon => self.work(Work::Abandon(volume)),
                Effect::Closed => self.work(Work::Closed(volume)),
                Effect::Through(key) => {
                    let held = &mut self.held[key];
                    held.state = State::Through;
                    let durable = held.request.fua;
                    self.steps.push_back(Step::Pass { key, rule: RULE_HIT, durable });
                }
                Effect::Ack(key, outcome, rule) => {
                    let Held { request, state } =
                        self.held.remove(key).expect("the log answers once");
                    self.forget(&request);
                    if outcome.is_ok() {
                        self.keep(&request);
                    }
                    let mode = self.log(volume).map(Log::mode);
                    let heals = !matches!(state, State::Logged { heals: false });
                    let durable = heals && (request.fua || mode == Some(Mode::Log));
                    self.end_change(key, &request, outcome, (rule, durable));
                }
                Effect::Drained(key) => {
                    if self.refuse_lost(now, key) {
                        continue;
                    }
                    let held = self.held.get_mut(key).expect("the log answers once");
                    // Nothing of the log makes durable what goes past it.
                    let durable = held.request.op == Op::Update;
                    held.state = if durable { State::Update } else { State::Direct };
                    held.request.fua |= durable;
                    self.steps.push_back(Step::Pass { key, rule: RULE_DRAIN, durable });
                }
                Effect::Gather { job, bytes, pieces } => {
                    self.gather(now, (volume, job), bytes, pieces);
                }
                Effect::Upstream { job, op, extent, fua } => {
                    self.upstream((volume, job), op, extent, fua);
                }
                Effect::Done(job) => self.job_over(volume, job),
                Effect::Notice(notice) => self.steps.push_back(Step::Tell(volume, notice)),
            }
        }
        self.committed(now);
    }

    /// Where the world has what a log calls so.
    pub(super) fn buffer(&self, volume: VolumeId, memory: Memory) -> Buffer {
        match memory {
            Memory::Request(key, offset) => Buffer::Payload(self.held[key].request.tag, offset),
            Memory::Batch(io, offset) => Buffer::Batch(io, offset),
            Memory::Job(job, offset) => Buffer::Payload(self.memory_of(volume, job), offset),
        }
    }
}

/// What the log calls an operation.
fn kind(op: Op) -> Kind {
    match op {
        Op::Write => Kind::Write,
        Op::WriteZeroes => Kind::Zero,
        Op::Discard => Kind::Unmap,
        Op::Read | Op::Flush | Op::Verify | Op::Update => unreachable!("{op:?} is not for a log"),
    }
}
