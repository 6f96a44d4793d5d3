//! Lost ranges of a volume: reads fail there, and what overwrites them is answered when that is kept.

use super::{CacheStage, RULE_DRAIN, State, VolumeState, Work};
use crate::cache::quarantine::LostRange;
use crate::clock::Instant;
use crate::error::IoError;
use crate::policy::Rule;
use crate::request::{Op, Outcome, Request, RequestKey, VolumeId};
use crate::units::Extent;

/// A waiter until the lost ranges are kept durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A request that has overwritten some of them, and what it waited for before.
    Request(RequestKey, Rule),
    /// Write-back, which goes past what this record has in this extent then.
    WriteBack(Extent, u64),
}

impl CacheStage {
    /// Whether a request reads what is lost.
    pub(super) fn is_lost(&self, request: &Request) -> bool {
        matches!(request.op, Op::Read | Op::Verify | Op::Update)
            && self.volumes[request.volume.index()].lost.overlaps(request.extent)
    }

    /// Whether a request overwrites what is lost: it is to be durable before it is answered.
    pub(super) fn heals(&self, request: &Request) -> bool {
        request.op.writes() && self.volumes[request.volume.index()].lost.overlaps(request.extent)
    }

    /// Something that changes a volume is done; if it has overwritten what was lost, and is durable, it is over when that is
    /// kept. What came before the range was lost may not be durable: then a crash would uncover older data, and the range
    /// stays lost.
    pub(super) fn end_change(
        &mut self,
        key: RequestKey,
        request: &Request,
        outcome: Outcome,
        (rule, durable): (Rule, bool),
    ) {
        let Request { volume, extent, .. } = *request;
        if durable && outcome.is_ok() && self.heals(request) {
            self.await_kept(volume, extent, Waiter::Request(key, rule));
        } else {
            self.end(key, outcome, rule);
        }
    }

    /// Does what an operator has ordered, if one has: what write-back of a volume is blocked on, because the log cannot be
    /// read there, is lost. What the log has newer is not; if that is not durable yet, this waits until it is.
    pub(super) fn give_up(&mut self, volume: VolumeId) {
        let VolumeState { log: Some(log), lost, ordered, .. } = &mut self.volumes[volume.index()]
        else {
            return;
        };
        let (Some(since), Some((extent, seq))) = (*ordered, log.unreadable()) else {
            *ordered = None;
            return;
        };
        let Some(parts) = log.newest_up_to(extent, seq) else { return };
        *ordered = None;
        for &extent in &parts {
            lost.add(LostRange { extent, seq, since });
        }
        // What is lost may be a part of a request that has not ended.
        let within = |request: &Request| {
            request.volume == volume && parts.iter().any(|part| part.overlaps(request.extent))
        };
        for held in self.held.values_mut().filter(|held| within(&held.request)) {
            if let State::Logged { heals } = &mut held.state {
                *heals = false;
            }
        }
        self.await_kept(volume, Extent::default(), Waiter::WriteBack(extent, seq));
    }

    /// Whether an operator has ordered to give up what write-back of a volume is blocked on, and that is not kept yet.
    pub fn gives_up(&self, volume: VolumeId) -> bool {
        let VolumeState { ordered, lost, .. } = &self.volumes[volume.index()];
        ordered.is_some() || lost.waiters().any(|one| matches!(one, Waiter::WriteBack(..)))
    }

    /// Ends a request that may go to storage now and reads there what was given up while it waited. Whether it does.
    pub(super) fn refuse_lost(&mut self, now: Instant, key: RequestKey) -> bool {
        let request = self.held[key].request;
        if !self.is_lost(&request) {
            return false;
        }
        self.held.remove(key);
        self.end(key, Err(IoError::Medium), RULE_DRAIN);
        if request.op == Op::Update
            && let Some(log) = &mut self.volumes[request.volume.index()].log
        {
            log.update_ended(now, Ok(()));
        }
        true
    }

    fn await_kept(&mut self, volume: VolumeId, overwritten: Extent, waiter: Waiter) {
        if let Some(ranges) = self.volumes[volume.index()].lost.await_kept(overwritten, waiter) {
            self.work(Work::KeepLost(volume, ranges));
        }
    }

    /// The world has kept the lost ranges of a volume, or not.
    pub(super) fn lost_kept(&mut self, now: Instant, volume: VolumeId, outcome: Outcome) {
        let (waited, next) = self.volumes[volume.index()].lost.kept(outcome.is_err());
        if let Some(ranges) = next {
            self.work(Work::KeepLost(volume, ranges));
        }
        for waiter in waited {
            match waiter {
                Waiter::Request(key, rule) => self.end(key, outcome, rule),
                Waiter::WriteBack(extent, seq) if outcome.is_ok() => {
                    self.with(now, volume, |log| {
                        log.skip(now, extent, seq);
                        log.retry();
                    });
                }
                // It stays blocked, and the order can be given again.
                Waiter::WriteBack(..) => {}
            }
        }
    }
}
