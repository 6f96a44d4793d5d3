//! What did an operation really take?
//!
//! A backend tells when an operation was given to it and when it ended; in between it may have waited
//! behind others inside. An estimator turns the two times into a service time. Which one is right
//! depends on what the backend is (`docs/reference/dispatch.md` section 8.1); none is right for all.

mod replay;
mod sample;
mod serial;

use crate::clock::{Duration, Instant};
use crate::policy::{Parameter, Unit};
use crate::request::{Op, Request, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub use replay::Replay;
pub use sample::Sample;
pub use serial::Serial;

/// Finds out service times at one backend.
///
/// Laws (checked for all): an answer is never longer than the operation was away; the same inputs give
/// the same answers; a limit is at least one and ends.
pub trait Estimator {
    /// What an operation should cost.
    fn nominal(&self, class: Class) -> Duration;

    /// An operation goes to the backend.
    fn submit(&mut self, now: Instant, key: RequestKey, class: Class);

    /// It has ended: what it took, without its waiting there.
    fn complete(&mut self, now: Instant, key: RequestKey) -> Duration;

    /// Whether the cost of a class that is not well known yet has turned out to be another one, since this was asked last.
    fn repriced(&mut self) -> bool {
        false
    }

    /// How many operations may be at the backend now, and until when, if the estimator has to look
    /// closely.
    fn limit(&self, _now: Instant) -> Option<(u32, Instant)> {
        None
    }
}

/// How to find out service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimation {
    /// Nothing is known of the backend: costs of classes of operations are learnt while little is
    /// outstanding, for a short time again and again.
    Sample,
    /// It does this number of operations at once, in order.
    Replay(u32),
    /// It does one operation at a time, in order.
    Serial,
}

impl Estimation {
    /// As the parameter [`SERVERS`] says it.
    pub(super) const fn from_servers(servers: u64) -> Self {
        match servers {
            0 => Self::Sample,
            1 => Self::Serial,
            servers => Self::Replay(servers as u32),
        }
    }

    /// An estimator for a backend. `index` shifts the times at which it looks closely, so that not all
    /// backends are held at once.
    pub(crate) fn build(self, index: usize) -> Box<dyn Estimator> {
        match self {
            Self::Sample => Box::new(Sample::new(index)),
            Self::Replay(servers) => Box::new(Replay::new(servers)),
            Self::Serial => Box::new(Serial::new()),
        }
    }
}

/// The parameter of policies that charge time.
pub(super) const SERVERS: Parameter = Parameter {
    name: "servers",
    unit: Unit::Count,
    min: 0,
    max: 65_536,
    default: 0,
    effect: "operations that a backend does at once, in order, if that is known; with 0 what operations \
             cost is learnt from times at which few are outstanding",
};

/// Operations that are taken to cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    writes: bool,
    /// The smallest power of two of bytes that has room for it.
    size: u8,
}

impl Class {
    /// The class of an operation that moves `bytes`.
    pub const fn new(writes: bool, bytes: u64) -> Self {
        let size = match bytes {
            0 | 1 => 0,
            bytes => 64 - (bytes - 1).leading_zeros() as u8,
        };
        let largest = SIZES as u8 - 1;
        Self { writes, size: if size < largest { size } else { largest } }
    }

    pub(crate) const fn of(request: &Request) -> Self {
        let reads = matches!(request.op, Op::Read | Op::Verify);
        Self::new(!reads, request.payload())
    }

    const fn index(self) -> usize {
        self.size as usize * 2 + self.writes as usize
    }
}

/// What each class costs, in nanoseconds.
#[derive(Clone, Debug)]
struct Costs(Vec<u64>);

impl Costs {
    /// What is believed before anything is known: 100 us and a gigabyte per second.
    fn new() -> Self {
        let cost = |index: usize| BASE + (1_u64 << (index / 2)) * PER_BYTE;
        Self((0..2 * SIZES).map(cost).collect())
    }

    fn get(&self, class: Class) -> Duration {
        Duration::from_nanos(self.0[class.index()])
    }

    fn set(&mut self, class: Class, cost: Duration) {
        self.0[class.index()] = cost.as_nanos();
    }

    /// Sets the cost of one class, by index, to that of another and the difference of their bytes.
    fn derive(&mut self, index: usize, from: usize) {
        let bytes = |index: usize| (1_u64 << (index / 2)) * PER_BYTE;
        let cost = (self.0[from] + bytes(index)).saturating_sub(bytes(from));
        self.0[index] = cost.max(self.0[from] / 2);
    }

    /// Moves the cost an eighth of the way to what was seen.
    fn follow(&mut self, class: Class, seen: Duration) {
        let cost = &mut self.0[class.index()];
        *cost = *cost - *cost / 8 + seen.as_nanos() / 8;
    }
}

/// Classes of sizes: the last is for everything above a gigabyte.
const SIZES: usize = 32;

/// Nanoseconds of the smallest operation, and for each byte, as long as nothing is known.
const BASE: u64 = 100_000;
const PER_BYTE: u64 = 1;

#[cfg(test)]
mod tests;
