//! The ring of the latest requests.

use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::event::{Completed, StageTimes, Trail};
use weir_flow::request::Request;

/// The latest requests, oldest first in a circle of fixed size.
#[derive(Debug)]
pub(super) struct Ring {
    records: Vec<Record>,
    capacity: usize,
    /// Where the next one goes, once the ring is full.
    next: usize,
    /// Records since the start: the number of the next one.
    count: u64,
}

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Its number, counted from the start.
    pub(super) number: u64,
    pub(super) ended: Instant,
    pub(super) request: Request,
    pub(super) row: Option<u8>,
    pub(super) arrived: Instant,
    pub(super) times: StageTimes,
    /// `None`: it was refused.
    pub(super) outcome: Option<Result<(), IoError>>,
    pub(super) trail: Trail,
}

impl Ring {
    /// An empty ring that takes this memory, all of it now; `None` if that is not enough for one record.
    pub(super) fn new(memory: u64) -> Option<Self> {
        let capacity = usize::try_from(memory).ok()? / size_of::<Record>();
        let records = Vec::with_capacity(capacity);
        (capacity > 0).then_some(Self { records, capacity, next: 0, count: 0 })
    }

    /// Adds a request that has ended, and returns its number.
    pub(super) fn push(&mut self, now: Instant, completed: &Completed<'_>) -> u64 {
        let number = self.count;
        self.put(&Record::of(number, now, completed));
        number
    }

    /// Adds a request that was refused.
    pub(super) fn refused(&mut self, now: Instant, request: &Request) {
        let (times, trail) = (StageTimes::default(), Trail::default());
        let (number, arrived) = (self.count, now);
        let (request, row, outcome) = (*request, None, None);
        self.put(&Record { number, ended: now, request, row, arrived, times, outcome, trail });
    }

    fn put(&mut self, record: &Record) {
        self.count += 1;
        if self.records.len() < self.capacity {
            self.records.push(*record);
            return;
        }
        self.records[self.next] = *record;
        self.next += 1;
        if self.next == self.capacity {
            self.next = 0;
        }
    }

    /// The record with this number, if it is still there.
    pub(super) fn get(&self, number: u64) -> Option<&Record> {
        let ago = self.count.checked_sub(number)?.checked_sub(1)?;
        let ago = usize::try_from(ago).ok().filter(|&ago| ago < self.records.len())?;
        let last = if self.records.len() < self.capacity { self.records.len() } else { self.next };
        let index = (last + self.records.len() - 1 - ago) % self.records.len();
        Some(&self.records[index])
    }

    /// The records, the latest first.
    pub(super) fn latest(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.next);
        newer.iter().rev().chain(older.iter().rev())
    }

    /// When the oldest that is there ended.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let oldest = if self.records.len() < self.capacity { 0 } else { self.next };
        self.records.get(oldest).map(|record| record.ended)
    }

    /// The memory of the ring.
    pub(super) const fn memory(&self) -> usize {
        self.capacity * size_of::<Record>()
    }
}

impl Record {
    pub(super) const fn of(number: u64, now: Instant, completed: &Completed<'_>) -> Self {
        let &Completed { request, row, arrived, times, outcome, trail } = completed;
        Self {
            number,
            ended: now,
            request: *request,
            row,
            arrived,
            times: *times,
            outcome: Some(outcome),
            trail,
        }
    }

    /// As it ended; `None` if it was refused.
    pub(super) const fn completed(&self) -> Option<Completed<'_>> {
        let Self { request, row, arrived, times, trail, .. } = self;
        let Some(outcome) = self.outcome else { return None };
        let (row, arrived, trail) = (*row, *arrived, *trail);
        Some(Completed { request, row, arrived, times, outcome, trail })
    }

    pub(super) fn response(&self) -> Duration {
        self.times.total()
    }
}
