//! The ring of the latest requests.

use super::Reason;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::event::{Completed, StageTimes, Trail};
use weir_flow::request::{LinkId, Op, Request, Tag, TenantId, VolumeId};
use weir_flow::units::Extent;

/// The latest requests, oldest first in a circle of fixed size.
#[derive(Debug)]
pub(super) struct Ring {
    records: Box<[Record]>,
    /// Where the next one goes.
    next: usize,
    /// Records since the start: the number of the next one.
    count: u64,
}

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) ended: Instant,
    pub(super) request: Request,
    pub(super) times: StageTimes,
    pub(super) trail: Trail,
    /// `None`: it was refused.
    pub(super) outcome: Option<Result<(), IoError>>,
    /// Why it is slow, and the objective that it had when it ended: a later configuration may have others.
    pub(super) reason: Option<Reason>,
    pub(super) target: Option<Duration>,
}

impl Ring {
    /// An empty ring that takes this memory, all of it now; `None` if that is not enough for one record.
    pub(super) fn new(memory: u64) -> Option<Self> {
        let capacity = usize::try_from(memory).ok()? / size_of::<Record>();
        let none = Request {
            tag: Tag(0),
            tenant: TenantId::default(),
            volume: VolumeId::default(),
            link: LinkId::default(),
            op: Op::Read,
            extent: Extent::new(0, 0),
            fua: false,
            ordered: false,
            job: false,
        };
        let records = vec![Record::refused(Instant::ZERO, none); capacity].into();
        (capacity > 0).then_some(Self { records, next: 0, count: 0 })
    }

    /// Adds a request that has ended, and returns its number.
    pub(super) fn push(
        &mut self,
        now: Instant,
        completed: &Completed<'_>,
        (reason, target): (Option<Reason>, Option<Duration>),
    ) -> u64 {
        let &Completed { request, times, outcome, trail, .. } = completed;
        let (number, record) = self.take();
        // One by one: a record that is made as a whole is copied twice.
        record.ended = now;
        record.request = *request;
        record.times = *times;
        record.trail = trail;
        record.outcome = Some(outcome);
        record.reason = reason;
        record.target = target;
        number
    }

    /// Adds a request that was refused.
    pub(super) fn refused(&mut self, now: Instant, request: &Request, target: Option<Duration>) {
        *self.take().1 = Record { target, ..Record::refused(now, *request) };
    }

    /// The number and the place of the next record.
    fn take(&mut self) -> (u64, &mut Record) {
        let (number, place) = (self.count, self.next);
        self.count += 1;
        self.next += 1;
        if self.next == self.records.len() {
            self.next = 0;
        }
        (number, &mut self.records[place])
    }

    /// Whether a request with this number has ended.
    pub(super) const fn has_had(&self, number: u64) -> bool {
        number < self.count
    }

    /// The record with this number, if it is still there.
    pub(super) fn get(&self, number: u64) -> Option<&Record> {
        let ago = self.count.checked_sub(number)?.checked_sub(1)?;
        self.latest().nth(usize::try_from(ago).ok()?)
    }

    /// The records, the latest first.
    pub(super) fn latest(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.next);
        let known = usize::try_from(self.count).unwrap_or(usize::MAX);
        newer.iter().rev().chain(older.iter().rev()).take(known)
    }

    /// The latest record.
    pub(super) fn last(&self) -> Option<&Record> {
        self.latest().next()
    }

    /// When the oldest that is there ended.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let is_full = self.count >= self.records.len() as u64;
        let oldest = if is_full { self.next } else { 0 };
        self.records.get(oldest).filter(|_| self.count > 0).map(|record| record.ended)
    }

    /// The memory of the ring.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.records[..])
    }
}

impl Record {
    /// A request that was refused without a wait.
    fn refused(now: Instant, request: Request) -> Self {
        let (times, trail) = (StageTimes::default(), Trail::default());
        Self { ended: now, request, times, trail, outcome: None, reason: None, target: None }
    }

    pub(super) fn arrived(&self) -> Instant {
        Instant::from_nanos(self.ended.as_nanos() - self.times.total().as_nanos())
    }

    /// As it ended; `None` if it was refused.
    pub(super) fn completed(&self) -> Option<Completed<'_>> {
        let Self { request, times, trail, outcome, .. } = self;
        // Its row is not kept: `reason` and `target` say what came of it.
        let (row, arrived, outcome, trail) = (None, self.arrived(), (*outcome)?, *trail);
        Some(Completed { request, row, arrived, times, outcome, trail })
    }

    pub(super) const fn response(&self) -> Duration {
        self.times.total()
    }
}
