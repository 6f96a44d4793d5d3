//! Where a line is: an open-addressing table of slot numbers over keys that the caller keeps.
//!
//! Linear probing, deletion by shifting back, at most three quarters full: 5.3 to 10.7 bytes for each
//! entry. It never grows. The hash decides nothing, it costs or saves time only; with a key that hosts do not
//! know they cannot choose lines that all want the same place.

use super::Line;
use crate::rng::mix;
use alloc::vec::Vec;

const FREE: u32 = u32::MAX;

/// Finds the slot of a line. `keys[slot]` is the line of every slot that is in the table.
#[derive(Debug)]
pub(in crate::cache) struct Index {
    /// A power of two of places.
    places: Vec<u32>,
    key: u64,
}

impl Index {
    /// A table for at most `entries` entries.
    pub(in crate::cache) fn new(entries: u32) -> Self {
        let places = (u64::from(entries) * 4 / 3 + 1).next_power_of_two();
        Self { places: alloc::vec![FREE; places as usize], key: 0 }
    }

    /// Sets the key, while there are no entries.
    pub(in crate::cache) fn set_key(&mut self, key: u64) {
        assert!(self.places.iter().all(|&slot| slot == FREE), "entries would not be found again");
        self.key = key;
    }

    const fn mask(&self) -> usize {
        self.places.len() - 1
    }

    fn home(&self, line: Line) -> usize {
        let volume = (line.volume().index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let once = mix(volume ^ line.index() ^ self.key);
        mix(once.wrapping_add(self.key)) as usize & self.mask()
    }

    /// The place of a line, or the free one where it would be.
    fn place(&self, line: Line, keys: &[Line]) -> usize {
        let mut place = self.home(line);
        while self.places[place] != FREE && keys[self.places[place] as usize] != line {
            place = (place + 1) & self.mask();
        }
        place
    }

    pub(in crate::cache) fn find(&self, line: Line, keys: &[Line]) -> Option<u32> {
        let slot = self.places[self.place(line, keys)];
        (slot != FREE).then_some(slot)
    }

    /// Enters the slot of a line that has none; `keys` has it already.
    pub(in crate::cache) fn insert(&mut self, slot: u32, keys: &[Line]) {
        let place = self.place(keys[slot as usize], keys);
        assert_eq!(self.places[place], FREE, "{:?} is in the table", keys[slot as usize]);
        self.places[place] = slot;
    }

    /// Takes out the slot of a line; `keys` still has it.
    pub(in crate::cache) fn remove(&mut self, slot: u32, keys: &[Line]) {
        let mut gap = self.place(keys[slot as usize], keys);
        assert_eq!(self.places[gap], slot, "{:?} is in the table", keys[slot as usize]);
        let mask = self.mask();
        let mut next = (gap + 1) & mask;
        while self.places[next] != FREE {
            // What is probed from a place beyond the gap must stay where it is.
            let home = self.home(keys[self.places[next] as usize]);
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.places[gap] = self.places[next];
                gap = next;
            }
            next = (next + 1) & mask;
        }
        self.places[gap] = FREE;
    }

    pub(in crate::cache) fn memory(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::VolumeId;
    use crate::rng::Rng;
    use alloc::collections::BTreeMap;

    /// At every step it finds what a map finds, also when it is as full as it may be.
    #[test]
    fn agrees_with_a_map() {
        for entries in [1, 2, 3, 12, 48, 191, 192] {
            let mut rng = Rng::stream(u64::from(entries), "index");
            let mut keys = alloc::vec![Line::default(); entries as usize];
            let mut free: Vec<u32> = (0..entries).collect();
            let (mut index, mut map) = (Index::new(entries), BTreeMap::new());
            for _ in 0..20_000 {
                let volume = VolumeId::new(rng.below(2) as u32);
                let line = Line::new(volume, rng.below(u64::from(entries)));
                assert_eq!(index.find(line, &keys), map.get(&line).copied());
                match map.get(&line).copied() {
                    Some(slot) if rng.below(2) == 0 => {
                        index.remove(slot, &keys);
                        map.remove(&line);
                        free.push(slot);
                    }
                    None if !free.is_empty() => {
                        let slot = free.pop().unwrap();
                        keys[slot as usize] = line;
                        index.insert(slot, &keys);
                        map.insert(line, slot);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Lines that were chosen to want the first few places stand in one row without a key, and spread out
    /// with one.
    #[test]
    fn a_key_spreads_what_was_chosen() {
        let row = |key: u64| {
            let mut index = Index::new(1_000);
            let line = |n| Line::new(VolumeId::new(0), n);
            let chosen = (0..).map(line).filter(|&line| index.home(line) < 8).take(1_000);
            let keys: Vec<Line> = chosen.collect();
            index.set_key(key);
            (0..1_000).for_each(|slot| index.insert(slot, &keys));
            index.places.split(|&slot| slot == FREE).map(<[u32]>::len).max().unwrap()
        };
        assert_eq!(row(0), 1_000);
        assert!(row(0x1234_5678_9abc_def0) < 50, "{}", row(0x1234_5678_9abc_def0));
    }
}
