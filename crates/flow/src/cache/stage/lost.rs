//! Lost ranges of a volume: reads fail there, and what overwrites them is answered when that is kept.

use super::{CacheStage, Step, VolumeState, Work};
use crate::cache::quarantine::LostRange;
use crate::clock::Instant;
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
        let lost = &self.volumes[request.volume.index()].lost;
        !lost.ranges().is_empty()
            && matches!(request.op, Op::Read | Op::Verify | Op::Update)
            && lost.overlaps(request.extent)
    }

    /// Something that changes a volume is done; if it has overwritten what was lost, it is over when that is kept.
    pub(super) fn end_change(
        &mut self,
        key: RequestKey,
        request: &Request,
        outcome: Outcome,
        rule: Rule,
    ) {
        let lost = &mut self.volumes[request.volume.index()].lost;
        let heals = outcome.is_ok()
            && request.op.writes()
            && !lost.ranges().is_empty()
            && lost.overwrite(request.extent);
        if heals {
            self.await_kept(request.volume, Waiter::Request(key, rule));
        } else {
            self.end(key, outcome, rule);
        }
    }

    /// What write-back of a volume is blocked on, because the log cannot be read there, is lost. What the log has newer is
    /// not.
    pub(super) fn give_up(&mut self, volume: VolumeId, since: u64) {
        let VolumeState { log: Some(log), lost, .. } = &mut self.volumes[volume.index()] else {
            return;
        };
        let Some((extent, seq)) = log.unreadable() else { return };
        log.newest_up_to(extent, seq, |extent| lost.add(LostRange { extent, seq, since }));
        self.await_kept(volume, Waiter::WriteBack(extent, seq));
    }

    fn await_kept(&mut self, volume: VolumeId, waiter: Waiter) {
        if self.volumes[volume.index()].lost.await_kept(waiter) {
            self.keep_lost(volume);
        }
    }

    fn keep_lost(&mut self, volume: VolumeId) {
        let ranges = self.volumes[volume.index()].lost.ranges().to_vec();
        self.steps.push_back(Step::Work(Work::KeepLost(volume, ranges)));
    }

    /// The world has kept the lost ranges of a volume, or not.
    pub(super) fn lost_kept(&mut self, now: Instant, volume: VolumeId, outcome: Outcome) {
        let (waited, again) = self.volumes[volume.index()].lost.kept();
        if again {
            self.keep_lost(volume);
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
