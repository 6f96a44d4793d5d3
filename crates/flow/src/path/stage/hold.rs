//! The hold queue: requests of a backend that no path can take.
//!
//! Those that come from dispatch wait in the order of their arrival. Those whose path failed wait
//! before them, in the order in which they had come to this stage.

use crate::request::RequestKey;
use alloc::collections::VecDeque;

/// Who waits for a path.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Those that were on a path, by their place in the order of arrival, ascending.
    again: VecDeque<(u64, RequestKey)>,
    fresh: VecDeque<RequestKey>,
}

impl Hold {
    /// Takes a request that comes for the first time.
    pub(super) fn push(&mut self, key: RequestKey) {
        self.fresh.push_back(key);
    }

    /// Takes a request that has been on a path; `order` is its place in the order of arrival.
    pub(super) fn push_again(&mut self, order: u64, key: RequestKey) {
        let earlier = self.again.iter().rev().take_while(|&&(place, _)| place > order).count();
        self.again.insert(self.again.len() - earlier, (order, key));
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<RequestKey> {
        self.again.front().map(|&(_, key)| key).or_else(|| self.fresh.front().copied())
    }

    /// Lets the next one go.
    pub(super) fn pop(&mut self) {
        if self.again.pop_front().is_none() {
            self.fresh.pop_front();
        }
    }

    /// Everybody, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = RequestKey> {
        self.again.iter().map(|&(_, key)| key).chain(self.fresh.iter().copied())
    }

    /// Takes somebody out.
    pub(super) fn remove(&mut self, key: RequestKey) {
        self.again.retain(|&(_, one)| one != key);
        self.fresh.retain(|&one| one != key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.again.is_empty() && self.fresh.is_empty()
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
            hold.push_again(place, keys[place as usize]);
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
