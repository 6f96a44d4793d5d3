//! A request on its way.

use super::Overdue;
use crate::accept::Piece;
use crate::accept::hazard::Claim;
use crate::cache::JobKey;
use crate::clock::{Duration, Instant};
use crate::dispatch::Owner;
use crate::event::{StageName, StageTimes};
use crate::policy::Rule;
use crate::request::{BackendId, Outcome, PathId, Request, RequestKey, TenantId};
use crate::transfer::Progress;

/// A request, or one piece of a split one, and where it is.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) request: Request,
    pub(super) arrived: Instant,
    pub(super) stage: StageName,
    pub(super) entered: Instant,
    pub(super) times: StageTimes,
    pub(super) claim: Option<Claim>,
    pub(super) parent: Option<RequestKey>,
    pub(super) pieces_left: u64,
    pub(super) outcome: Outcome,
    /// The row of its tenant's contract.
    pub(super) row: Option<u8>,
    pub(super) backend: BackendId,
    /// The path that it was sent on last.
    pub(super) path: Option<PathId>,
    /// The bytes of the piece that ended last, of which it has the times.
    pub(super) length: u64,
    /// Its backend had no other when it was sent there.
    pub(super) alone: bool,
    /// Whose request it waited for last, because they touch the same bytes.
    pub(super) freed_by: Option<TenantId>,
    /// The part of its volume, and its first byte there.
    pub(super) place: (u32, u64),
    /// Its place among those that came to control.
    pub(super) order: u64,
    /// When control let it go.
    pub(super) released: Instant,
    /// When dispatch sent it.
    pub(super) dispatched: Instant,
    /// Whose part of the backends' time it takes.
    pub(super) owner: Owner,
    /// How far its reply has come.
    pub(super) reply: Progress,
    /// What it must know of its part as that was when it began there.
    pub(super) part_then: u64,
    /// What of the cache's own it is for, if it is no host's.
    pub(super) job: Option<JobKey>,
}

impl InFlight {
    pub(super) fn new(request: Request, row: Option<u8>, now: Instant) -> Self {
        Self {
            request,
            arrived: now,
            stage: StageName::Accept,
            entered: now,
            times: StageTimes::default(),
            claim: None,
            parent: None,
            pieces_left: 0,
            outcome: Ok(()),
            row,
            backend: BackendId::default(),
            path: None,
            length: request.extent.length,
            alone: false,
            freed_by: None,
            place: (0, 0),
            order: 0,
            released: now,
            dispatched: now,
            owner: if request.job { Owner::Job } else { Owner::Tenant(request.tenant) },
            reply: Progress::default(),
            part_then: 0,
            job: None,
        }
    }

    /// Notes where it is to be done.
    pub(super) const fn put(&mut self, piece: &Piece) {
        (self.backend, self.place) = (piece.backend, (piece.part, piece.at));
    }

    /// One of its pieces has ended.
    pub(super) fn piece_ended(&mut self) {
        assert!(self.pieces_left > 0, "a piece ends once");
        self.pieces_left -= 1;
    }

    /// Charges the time since it entered its stage to `rule` and moves it on.
    #[inline]
    pub(super) fn move_to(&mut self, now: Instant, stage: StageName, rule: Rule) {
        assert!(self.stage as u8 <= stage as u8, "a request passes the stages in their order");
        self.times.charge(self.stage, now.since(self.entered), rule);
        self.stage = stage;
        self.entered = now;
    }

    /// What to say of it if it has been in its stage for `limit` or longer.
    pub(super) fn overdue(&self, now: Instant, limit: Duration) -> Option<Overdue<'_>> {
        let age = now.saturating_since(self.entered);
        // A split request waits for its pieces, which speak for themselves.
        let speaks = self.parent.is_some() || self.pieces_left <= 1;
        let Self { request, stage, .. } = self;
        (age >= limit && speaks).then_some(Overdue { request, stage: *stage, age })
    }

    /// Goes back from a device to the path stage, whose fault the time since it left that is.
    pub(super) fn come_back(&mut self, now: Instant, rule: Rule) {
        self.stage = StageName::Path;
        self.move_to(now, StageName::Path, rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const RULE: Rule = Rule(&"test/rule");

    fn in_flight() -> InFlight {
        InFlight::new(testing::request(0), None, Instant::ZERO)
    }

    /// A lost path takes a request back from the device to the path stage, and nothing else takes it back.
    #[test]
    fn only_a_lost_path_takes_a_request_back() {
        let mut request = in_flight();
        request.move_to(Instant::ZERO, StageName::Path, RULE);
        request.come_back(Instant::ZERO, RULE);
        request.move_to(Instant::ZERO, StageName::Transfer, RULE);
        assert_eq!(request.stage, StageName::Transfer);
    }

    /// A request that was dispatched is not held by control again.
    #[test]
    #[should_panic(expected = "passes the stages in their order")]
    fn a_request_never_goes_back() {
        let mut request = in_flight();
        request.move_to(Instant::ZERO, StageName::Dispatch, RULE);
        request.move_to(Instant::ZERO, StageName::Control, RULE);
    }

    /// A piece that ends twice would end its request before the other pieces.
    #[test]
    #[should_panic(expected = "a piece ends once")]
    fn a_piece_ends_once() {
        let mut request = in_flight();
        request.pieces_left = 1;
        request.piece_ended();
        request.piece_ended();
    }
}
