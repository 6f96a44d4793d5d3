//! Counters of many objects by number: one writer makes them, other threads read them without a lock.

use super::counter::Counter;
use std::sync::OnceLock;

/// The blocks of counters of at most `limit` objects, made at first use. Objects beyond the limit share one block,
/// and are counted.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// By the number of an object, in chunks. `None` of an object: it is beyond the limit.
    chunks: Box<[OnceLock<Chunk<T>>]>,
    limit: u64,
    /// How many objects have a block of their own and are there.
    there: Counter,
    left_out: Counter,
    other: T,
}

type Chunk<T> = Box<[OnceLock<Option<T>>]>;

impl<T> Table<T> {
    /// None yet; `other` is for the objects beyond the limit.
    pub(crate) fn new(limit: u64, other: T) -> Self {
        let chunks = (0..CHUNKS).map(|_| OnceLock::new()).collect();
        Self { chunks, limit, there: Counter::default(), left_out: Counter::default(), other }
    }

    /// The block of an object, which `make` makes at its first use.
    pub(crate) fn get(&self, index: usize, make: impl FnOnce() -> T) -> &T {
        let Some(chunk) = self.chunks.get(index / CHUNK) else { return &self.other };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let block = chunk[index % CHUNK].get_or_init(|| {
            let room = self.there.get() < self.limit;
            if room {
                self.there.add(1);
            } else {
                self.left_out.add(1);
            }
            room.then(make)
        });
        block.as_ref().unwrap_or(&self.other)
    }

    /// The block of an object within the limit.
    pub(crate) fn own(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get()?[index % CHUNK].get()?.as_ref()
    }

    /// An object within the limit has gone: another has room. Its block stays.
    pub(crate) fn leave(&self) {
        self.there.set(self.there.get() - 1);
    }

    /// Such an object is there again, whatever the limit.
    pub(crate) fn back(&self) {
        self.there.add(1);
    }

    /// All blocks, that of the objects beyond the limit last if there are any.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.numbered().map(|(_, block)| block)
    }

    /// The same, each with the number of its object.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (Option<usize>, &T)> {
        let chunks = self.chunks.iter().enumerate();
        let blocks = chunks.flat_map(|(chunk, places)| {
            let places = places.get().into_iter().flatten().enumerate();
            places.filter_map(move |(place, block)| {
                Some((Some(chunk * CHUNK + place), block.get()?.as_ref()?))
            })
        });
        blocks.chain((self.left_out() > 0).then_some((None, &self.other)))
    }

    /// The number of objects beyond the limit.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.get()
    }
}

/// Objects whose places are made together.
const CHUNK: usize = 256;

/// For all of the 65,536 tenants that a gateway can have.
const CHUNKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects within the limit have a block each, by order of first use; those beyond it share one and are
    /// counted once each.
    #[test]
    fn what_is_beyond_the_limit_is_summed() {
        let table = Table::new(2, ("_other", Counter::default()));
        for (index, name) in [(65_535, "last"), (3, "three"), (4, "four"), (5, "five"), (4, "four")]
        {
            table.get(index, || (name, Counter::default())).1.add(1);
        }
        table.get(3, || unreachable!("it is there")).1.add(1);
        let all: Vec<_> = table.all().map(|(name, count)| (*name, count.get())).collect();
        assert_eq!(all, [("three", 2), ("last", 1), ("_other", 3)]);
        assert_eq!(table.left_out(), 2);
        assert!(table.own(3).is_some() && table.own(4).is_none() && table.own(9).is_none());
        // One that is left out stays so; one that comes later has the room of one that has gone.
        table.leave();
        for (index, name) in [(4, "four"), (6, "six"), (7, "seven")] {
            table.get(index, || (name, Counter::default())).1.add(1);
        }
        assert!(table.own(3).is_some() && table.own(6).is_some() && table.own(7).is_none());
        assert_eq!(table.left_out(), 3);
    }
}
