//! Payload memory: the bytes that each connection holds, and the connections that wait for some.
//!
//! Invariant: the bytes that a connection holds are the sum over its tasks ([`Charge::bytes`]), until the
//! connection is forgotten. So nothing is held when there is no task.
//!
//! [`Charge::bytes`]: crate::tasks::table::Charge::bytes

use crate::buffer::{LARGEST, Pool, Shared};
use crate::ids::ConnectionId;
use crate::storage::file::atomic_journal;
use std::collections::{BTreeMap, VecDeque};
use weir_wire::scsi::cdb::{Media, MediaOp};

/// The payload memory that a command needs, before it is taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Bytes that the host sends.
    pub(crate) data: u32,
    /// Bytes from the medium, or of a journal record.
    pub(crate) medium: u64,
}

impl Held {
    /// For a command for the medium, of which the host sends `data` bytes, in blocks of `block` bytes.
    pub(crate) fn of(media: &Media, data: u32, block: u32) -> Self {
        let medium = match media.op {
            MediaOp::WriteAtomic => atomic_journal::HEADER as u64 + u64::from(data),
            _ if media.needs_medium() => media.blocks * u64::from(block),
            _ => 0,
        };
        Self { data, medium }
    }

    /// All of it, in bytes.
    pub(crate) fn payload(self) -> u64 {
        u64::from(self.data) + self.medium
    }
}

/// Buffers for the payload of hosts' commands and of jobs.
#[derive(Debug)]
pub(crate) struct PayloadMemory {
    pool: Pool,
    /// Bytes in use, by the serial number of the connection, and their sum.
    held: BTreeMap<u64, u64>,
    total: u64,
    /// The most bytes in use.
    limit: u64,
    /// Bytes that are set aside for data that comes unasked.
    reserved: u64,
    /// Connections that wait for memory, in order.
    hungry: VecDeque<ConnectionId>,
}

/// How much a connection may hold.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Its share, in bytes.
    share: u64,
    /// The most bytes of all connections.
    limit: u64,
}

impl Bounds {
    /// Whether a connection that holds `held` bytes may hold `more`, while all hold `total`.
    const fn admit(self, held: u64, total: u64, more: u64) -> bool {
        held + more <= self.share || total + more + SPARE <= self.limit
    }
}

impl PayloadMemory {
    /// `limit` bytes, all of them free.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            pool: Pool::new(limit),
            held: BTreeMap::new(),
            total: 0,
            limit,
            reserved: 0,
            hungry: VecDeque::new(),
        }
    }

    /// Whether a connection may hold `more` bytes: its share, or more while two of the largest buffers
    /// stay free for the other `sessions`. So no host can take all memory, and a host alone is not
    /// refused what no other host wants.
    pub(crate) fn may_hold(&self, owner: u64, more: u64, sessions: usize) -> bool {
        let held = self.held.get(&owner).copied().unwrap_or(0);
        self.bounds(sessions).admit(held, self.total, more)
    }

    fn bounds(&self, sessions: usize) -> Bounds {
        let share = ((self.limit - self.reserved) / sessions.max(1) as u64).max(SPARE);
        Bounds { share, limit: self.limit - self.reserved }
    }

    /// Counts bytes for a connection if it [may hold](Self::may_hold) them.
    pub(crate) fn try_charge(&mut self, owner: u64, bytes: u64, sessions: usize) -> bool {
        let bounds = self.bounds(sessions);
        let held = self.held.entry(owner).or_default();
        let fits = bounds.admit(*held, self.total, bytes);
        if fits {
            *held += bytes;
            self.total += bytes;
        }
        fits
    }

    /// Sets memory aside for data that a host sends unasked; false if that would leave less than half for everything
    /// else.
    pub(crate) const fn set_aside(&mut self, bytes: u64) -> bool {
        let fits = self.reserved + bytes <= self.limit / 2;
        if fits {
            self.reserved += bytes;
        }
        fits
    }

    /// Gives back what was set aside.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.reserved = self.reserved.checked_sub(bytes).expect("it was set aside");
    }

    /// A buffer of at least `length` bytes; `None` if there is none now.
    pub(crate) fn take(&mut self, length: usize) -> Option<Shared> {
        self.pool.take(length)
    }

    /// Buffers for a host's data and for the medium's; `None` if there is no memory for both.
    pub(crate) fn take_both(&mut self, held: Held) -> Option<(Option<Shared>, Option<Shared>)> {
        let mut take = |length: u64| match length {
            0 => Some(None),
            _ => self.pool.take(length as usize).map(Some),
        };
        let data = take(held.data.into())?;
        let Some(medium) = take(held.medium) else {
            if let Some(buffer) = data {
                self.pool.give(buffer);
            }
            return None;
        };
        Some((data, medium))
    }

    /// Takes a buffer back. Only the last reference may be given back.
    pub(crate) fn give(&mut self, buffer: Shared) {
        self.pool.give(buffer);
    }

    /// Counts bytes for a connection.
    pub(crate) fn charge(&mut self, owner: u64, bytes: u64) {
        *self.held.entry(owner).or_default() += bytes;
        self.total += bytes;
    }

    /// Counts bytes for a connection no longer, unless it was forgotten.
    pub(crate) fn release(&mut self, owner: u64, bytes: u64) {
        if let Some(held) = self.held.get_mut(&owner) {
            *held = held.checked_sub(bytes).expect("a connection gives back what it holds");
            self.total -= bytes;
        }
    }

    /// Whether no connection holds memory.
    pub(crate) const fn is_unused(&self) -> bool {
        self.total == 0
    }

    /// Notes that a connection waits for memory.
    pub(crate) fn wait(&mut self, id: ConnectionId) {
        self.hungry.push_back(id);
    }

    /// The connection that has waited longest, which waits no longer.
    pub(crate) fn next_waiting(&mut self) -> Option<ConnectionId> {
        self.hungry.pop_front()
    }

    /// A connection is gone.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.total -= self.held.remove(&id.serial).unwrap_or(0);
        self.hungry.retain(|&hungry| hungry != id);
    }
}

/// Payload memory that one session leaves to the others, in bytes: two of the largest buffers, which
/// one VERIFY takes.
const SPARE: u64 = 2 * LARGEST as u64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection may hold its share, and more only while two of the largest buffers stay free; what it
    /// gives back counts no longer.
    #[test]
    fn shares_are_kept() {
        let mut memory = PayloadMemory::new(8 * SPARE);
        memory.charge(1, 6 * SPARE);
        assert!(memory.may_hold(1, SPARE, 4), "no other connection wants it");
        assert!(!memory.may_hold(1, SPARE + 1, 4), "the last two buffers are for others");
        assert!(memory.may_hold(2, 2 * SPARE, 4), "its share");
        memory.release(1, 6 * SPARE);
        assert!(memory.may_hold(1, 7 * SPARE, 4));
    }

    /// What is set aside is taken from what all share, up to half of it, and comes back.
    #[test]
    fn memory_is_set_aside() {
        let mut memory = PayloadMemory::new(8 * SPARE);
        assert!(!memory.set_aside(4 * SPARE + 1), "half stays");
        assert!(memory.set_aside(4 * SPARE));
        assert!(!memory.set_aside(1));
        assert!(memory.may_hold(1, 4 * SPARE, 1) && !memory.may_hold(1, 4 * SPARE + 1, 1));
        memory.give_back(4 * SPARE);
        assert!(memory.may_hold(1, 8 * SPARE, 1));
    }

    /// A connection that is gone holds nothing, whatever its tasks give back later.
    #[test]
    fn a_connection_that_is_gone_holds_nothing() {
        let mut memory = PayloadMemory::new(8 * SPARE);
        memory.charge(1, SPARE);
        memory.charge(2, SPARE);
        memory.forget(ConnectionId { index: 0, serial: 1 });
        memory.release(1, SPARE);
        assert!(!memory.is_unused());
        memory.release(2, SPARE);
        assert!(memory.is_unused());
    }

    /// More is never given back than a connection holds: a task that ended twice would free memory in use.
    #[test]
    #[should_panic(expected = "gives back what it holds")]
    fn memory_is_given_back_once() {
        let mut memory = PayloadMemory::new(8 * SPARE);
        memory.charge(1, SPARE);
        memory.release(1, SPARE);
        memory.release(1, 1);
    }
}
