//! The hold queue: requests of a backend that no path can take.
//!
//! Those that come from dispatch wait in the order of their arrival. Those whose path failed wait
//! before them, in the order in which they had come to this stage.

use crate::request::RequestKey;
use alloc::collections::VecDeque;

/// Requests that wait for a path.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Those that were on a path, by their place in the order of arrival, ascending.
    returned: VecDeque<(u64, RequestKey)>,
    /// Those that come for the first time.
    fresh: VecDeque<RequestKey>,
}

impl Hold {
    /// Takes a request that comes for the first time.
    pub(super) fn push(&mut self, key: RequestKey) {
        self.fresh.push_back(key);
    }

    /// Takes a request that has been on a path; `order` is its place in the order of arrival.
    pub(super) fn push_returned(&mut self, order: u64, key: RequestKey) {
        let earlier = self.returned.iter().rev().take_while(|&&(place, _)| place > order).count();
        self.returned.insert(self.returned.len() - earlier, (order, key));
    }

    /// The next request.
    pub(super) fn first(&self) -> Option<RequestKey> {
        self.returned.front().map(|&(_, key)| key).or_else(|| self.fresh.front().copied())
    }

    /// Takes out the next request.
    pub(super) fn pop(&mut self) {
        if self.returned.pop_front().is_none() {
            self.fresh.pop_front();
        }
    }

    /// Every request, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = RequestKey> {
        self.returned.iter().map(|&(_, key)| key).chain(self.fresh.iter().copied())
    }

    /// Takes out a request.
    pub(super) fn remove(&mut self, key: RequestKey) {
        self.returned.retain(|&(_, one)| one != key);
        self.fresh.retain(|&one| one != key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.returned.is_empty() && self.fresh.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::keys;
    use alloc::vec::Vec;

    /// Requests that were on a path go first, in the order of their arrival however they come back;
    /// the others follow in theirs.
    #[test]
    fn the_order_of_arrival_is_kept() {
        let keys = keys(5);
        let mut hold = Hold::default();
        hold.push(keys[3]);
        hold.push(keys[4]);
        for place in [1, 2, 0] {
            hold.push_returned(place, keys[place as usize]);
        }
        assert_eq!(hold.iter().collect::<Vec<_>>(), keys);
        hold.remove(keys[1]);
        let mut order = Vec::new();
        while let Some(key) = hold.first() {
            hold.pop();
            order.push(key);
        }
        assert_eq!(order, [keys[0], keys[2], keys[3], keys[4]]);
        assert!(hold.is_empty());
    }
}
