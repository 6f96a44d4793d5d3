//! The record that policies keep of a reply in the queue, and a queue by rank.

use super::{Grant, Reply};
use crate::request::RequestKey;
use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

/// A reply, or the rest of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) key: RequestKey,
    /// Bytes that were not handed out.
    pub(super) left: u64,
    whole: bool,
}

impl Waiting {
    pub(super) const fn new(&Reply { key, bytes, whole, .. }: &Reply) -> Self {
        Self { key, left: bytes, whole }
    }

    /// What it is handed out next if it may be interrupted after `chunk` bytes.
    pub(super) fn next(&self, chunk: u64) -> u64 {
        if self.whole { self.left } else { self.left.min(chunk) }
    }

    /// Hands that out.
    pub(super) fn take(&mut self, chunk: u64) -> Grant {
        let bytes = self.next(chunk);
        assert!(0 < bytes && bytes <= self.left, "a grant is a part of what is left");
        self.left -= bytes;
        Grant { key: self.key, bytes }
    }
}

/// Replies by rank, the smallest first; among equals the one that came first.
#[derive(Debug, Default)]
pub(super) struct Ranked {
    heap: BinaryHeap<Entry>,
    came: u64,
}

#[derive(Debug)]
struct Entry {
    rank: u128,
    came: u64,
    waiting: Waiting,
}

impl Ranked {
    /// O(log n).
    pub(super) fn push(&mut self, rank: u128, waiting: Waiting) {
        self.came += 1;
        self.heap.push(Entry { rank, came: self.came, waiting });
    }

    /// Hands out a chunk of the first; `again` is its rank after `bytes` of it were granted.
    /// O(log n).
    pub(super) fn take(&mut self, chunk: u64, again: fn(u128, u64) -> u128) -> Option<Grant> {
        let mut first = self.heap.peek_mut()?;
        let grant = first.waiting.take(chunk);
        if first.waiting.left == 0 {
            alloc::collections::binary_heap::PeekMut::pop(first);
        } else {
            first.rank = again(first.rank, grant.bytes);
        }
        Some(grant)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Turned round: the heap has the greatest on top.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.rank, other.came).cmp(&(self.rank, self.came))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::keys;

    /// A reply that was granted whole is granted no more.
    #[test]
    #[should_panic(expected = "a part of what is left")]
    fn grants_end() {
        let mut waiting = Waiting::new(&Reply::sized(keys(1)[0], 9, true));
        waiting.take(4);
        waiting.take(4);
    }
}
