//! A request on its way.

use super::Overdue;
use crate::accept::Piece;
use crate::accept::hazard::Claim;
use crate::cache::JobKey;
use crate::clock::{Duration, Instant};
use crate::dispatch::Owner;
use crate::event::{StageName, StageTimes};
use crate::policy::Rule;
use crate::request::{BackendId, Outcome, Request, RequestKey};
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
            place: (0, 0),
            order: 0,
            released: now,
            dispatched: now,
            owner: if request.job { Owner::Job } else { Owner::Tenant(request.tenant) },
            reply: Progress::default(),
            job: None,
        }
    }

    /// Notes where it is to be done.
    pub(super) const fn put(&mut self, piece: &Piece) {
        (self.backend, self.place) = (piece.backend, (piece.part, piece.at));
    }

    /// Charges the time since it entered its stage to `rule` and moves it on.
    pub(super) fn move_to(&mut self, now: Instant, stage: StageName, rule: Rule) {
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
