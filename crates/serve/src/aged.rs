//! A bounded table that forgets the entry that was used longest ago.

use std::collections::{BTreeMap, BTreeSet};
use weir_flow::clock::Instant;

/// At most `max` entries, each with the time of its last use. O(log n) for each operation.
#[derive(Debug)]
pub(crate) struct Aged<K, V> {
    entries: BTreeMap<K, (Instant, V)>,
    by_age: BTreeSet<(Instant, K)>,
    max: usize,
}

impl<K: Clone + Ord, V> Aged<K, V> {
    /// An empty table for `max` entries (at least 1).
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: BTreeMap::new(), by_age: BTreeSet::new(), max: max.max(1) }
    }

    /// An entry and the time of its last use.
    pub(crate) fn get(&self, key: &K) -> Option<(Instant, &V)> {
        self.entries.get(key).map(|(at, value)| (*at, value))
    }

    /// All entries with the time of their last use, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, Instant, &V)> {
        self.entries.iter().map(|(key, (at, value))| (key, *at, value))
    }

    /// Uses an entry now: the old value is given to `value`, which returns the new one. If the table is full, the
    /// entry of the oldest use is forgotten and returned.
    pub(crate) fn update(
        &mut self,
        key: K,
        now: Instant,
        value: impl FnOnce(Option<(Instant, V)>) -> V,
    ) -> Option<(K, V)> {
        let old = self.remove(&key);
        let forgotten = if self.entries.len() == self.max { self.pop_oldest() } else { None };
        self.by_age.insert((now, key.clone()));
        self.entries.insert(key, (now, value(old)));
        assert!(self.entries.len() == self.by_age.len() && self.entries.len() <= self.max);
        forgotten
    }

    /// Forgets an entry, and returns the time of its last use and its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<(Instant, V)> {
        let (at, value) = self.entries.remove(key)?;
        self.by_age.remove(&(at, key.clone()));
        Some((at, value))
    }

    /// Forgets the entry of the oldest use.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_age.pop_first()?;
        let (_, value) = self.entries.remove(&key).expect("each age has an entry");
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::clock::Duration;

    /// A full table forgets the entry of the oldest use, and using an entry makes it the youngest.
    #[test]
    fn the_oldest_is_forgotten() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut table = Aged::new(3);
        let mut count = |key: &'static str, seconds| {
            table.update(key, at(seconds), |old| old.map_or(1, |(_, count)| count + 1))
        };
        assert!(["a", "b", "c"].into_iter().all(|key| count(key, 1).is_none()));
        assert_eq!(count("a", 2), None);
        assert_eq!(count("d", 3), Some(("b", 1)));
        assert_eq!(count("e", 3), Some(("c", 1)));
        assert_eq!(count("f", 3), Some(("a", 2)));
        assert_eq!(
            (table.iter().count(), table.remove(&"d"), table.get(&"d")),
            (3, Some((at(3), 1)), None)
        );
    }
}
