//! Connections that have not logged in, by their age: one too many closes the one that has waited longest.
//!
//! At most a fixed number of connections may be open that have not logged in. One more closes the one that has waited
//! longest, so that hosts get in while one host opens connections and stays silent. O(log n) for each connection.

use std::collections::BTreeMap;

/// Connections that have not logged in. `Id` names a connection, never two at a time.
#[derive(Debug)]
pub(crate) struct LoginQueue<Id> {
    /// By the order in which they came.
    waiting: BTreeMap<u64, Id>,
    /// Their place in that order.
    places: BTreeMap<Id, u64>,
    next_place: u64,
    max: usize,
}

impl<Id: Copy + Ord> LoginQueue<Id> {
    /// At most `max` connections (at least 1) may wait.
    pub(crate) fn new(max: u32) -> Self {
        Self {
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
            max: max.max(1) as usize,
        }
    }

    /// Adds a connection that is logging in. Returns the one that must be closed to make room, which is
    /// removed.
    #[must_use]
    pub(crate) fn enter(&mut self, id: Id) -> Option<Id> {
        if self.places.contains_key(&id) {
            return None;
        }
        self.places.insert(id, self.next_place);
        self.waiting.insert(self.next_place, id);
        self.next_place += 1;
        if self.waiting.len() <= self.max {
            return None;
        }
        let (_, longest) = self.waiting.pop_first()?;
        self.places.remove(&longest);
        Some(longest)
    }

    /// Removes and returns the connection that has waited longest of those that `matches`. O(waiting).
    pub(crate) fn longest(&mut self, matches: impl Fn(Id) -> bool) -> Option<Id> {
        let (&place, &id) = self.waiting.iter().find(|&(_, &id)| matches(id))?;
        self.waiting.remove(&place);
        self.places.remove(&id);
        Some(id)
    }

    /// Removes a connection that has logged in or was closed, if it is there.
    pub(crate) fn leave(&mut self, id: Id) {
        if let Some(place) = self.places.remove(&id) {
            self.waiting.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One connection too many closes the one that has waited longest of those that still wait.
    #[test]
    fn the_longest_wait_makes_room() {
        let mut queue = LoginQueue::new(3);
        // Names are not in the order of coming.
        assert!([30, 10, 20].iter().all(|&id| queue.enter(id).is_none()));
        assert_eq!(queue.enter(5), Some(30));
        queue.leave(20);
        assert_eq!((queue.enter(40), queue.waiting.len()), (None, 3));
        assert_eq!(queue.enter(50), Some(10));
        assert_eq!((queue.enter(60), queue.waiting.len()), (Some(5), 3));
    }

    /// Removing a closed or unknown connection and adding one twice change nothing.
    #[test]
    fn leaving_is_safe() {
        let mut queue = LoginQueue::new(1);
        assert_eq!(queue.enter(1), None);
        assert_eq!(queue.enter(1), None);
        assert_eq!(queue.enter(2), Some(1));
        queue.leave(1);
        queue.leave(9);
        assert_eq!(queue.waiting.len(), 1);
        queue.leave(2);
        assert_eq!((queue.waiting.len(), queue.enter(1)), (0, None));
    }
}
