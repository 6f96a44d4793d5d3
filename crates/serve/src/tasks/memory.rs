//! Payload memory: the bytes that each connection holds, and the connections that wait for some.
//!
//! Invariant: the bytes that a connection holds are the sum over its tasks ([`Task::held`]), until the
//! connection is forgotten.
//!
//! [`Task::held`]: crate::tasks::table::Task::held

use crate::buffer::{LARGEST, Pool, Shared};
use crate::ids::ConnectionId;
use crate::tasks::submit::Held;
use std::collections::{BTreeMap, VecDeque};

/// Buffers for the payload of hosts' commands and of jobs.
#[derive(Debug)]
pub(crate) struct PayloadMemory {
    pool: Pool,
    /// Bytes in use, by the serial number of the connection.
    held: BTreeMap<u64, u64>,
    /// Bytes that there are.
    limit: u64,
    /// Connections that wait for memory, in order.
    hungry: VecDeque<ConnectionId>,
}

impl PayloadMemory {
    /// `limit` bytes, all of them free.
    pub(crate) fn new(limit: u64) -> Self {
        Self { pool: Pool::new(limit), held: BTreeMap::new(), limit, hungry: VecDeque::new() }
    }

    /// Whether a connection may hold `more` bytes: its share, or more while two of the largest buffers
    /// stay free for the other `sessions`. So no host can take all memory, and a host alone is not
    /// refused what no other host wants.
    pub(crate) fn may_hold(&self, owner: u64, more: u64, sessions: usize) -> bool {
        let share = self.limit / sessions.max(1) as u64;
        let held = self.held.get(&owner).copied().unwrap_or(0);
        let all = || self.held.values().sum::<u64>();
        held + more <= share.max(SPARE) || all() + more + SPARE <= self.limit
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
    }

    /// Counts bytes for a connection no longer, unless it was forgotten.
    pub(crate) fn release(&mut self, owner: u64, bytes: u64) {
        if let Some(held) = self.held.get_mut(&owner) {
            *held -= bytes;
        }
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
        self.held.remove(&id.serial);
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
}
