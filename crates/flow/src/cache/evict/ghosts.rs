//! Lines that were here: names without data, in one or two lists by age.

use super::Line;
use super::index::Index;
use super::links::{Links, List};
use alloc::vec::Vec;

/// A bounded memory of lines. Every line is in it at most once. 26 to 32 bytes for each it may hold.
#[derive(Debug)]
pub(super) struct Ghosts {
    lines: Vec<Line>,
    /// Which list a slot is in.
    second: Vec<bool>,
    links: Links,
    lists: [List; 2],
    free: List,
    index: Index,
}

impl Ghosts {
    /// Room for `lines` lines.
    pub(super) fn new(room: u32) -> Self {
        let mut links = Links::new(room);
        let mut free = List::EMPTY;
        (0..room).for_each(|slot| links.push(&mut free, slot));
        Self {
            lines: alloc::vec![Line::default(); room as usize],
            second: alloc::vec![false; room as usize],
            links,
            lists: [List::EMPTY; 2],
            free,
            index: Index::new(room),
        }
    }

    /// Sets the key of the index, while there are no ghosts.
    pub(super) fn set_key(&mut self, key: u64) {
        self.index.set_key(key);
    }

    /// How many lines a list holds.
    pub(super) const fn len(&self, list: usize) -> u32 {
        self.lists[list].len()
    }

    /// How many lines both lists hold.
    pub(super) const fn total(&self) -> u32 {
        self.lists[0].len() + self.lists[1].len()
    }

    /// The list that a line is in.
    pub(super) fn find(&self, line: Line) -> Option<usize> {
        let slot = self.index.find(line, &self.lines)?;
        Some(usize::from(self.second[slot as usize]))
    }

    /// Forgets a line; whether it was there.
    pub(super) fn forget(&mut self, line: Line) -> bool {
        let slot = self.index.find(line, &self.lines);
        if let Some(slot) = slot {
            self.release(slot);
        }
        slot.is_some()
    }

    /// Forgets the oldest line of a list, if it has one.
    pub(super) fn forget_oldest(&mut self, list: usize) {
        if let Some(slot) = self.lists[list].oldest() {
            self.release(slot);
        }
    }

    /// Remembers a line that is in neither list as the newest of one. When there is no room, the oldest
    /// line of that list is forgotten; if it has none, nothing is remembered.
    pub(super) fn push(&mut self, list: usize, line: Line) {
        if self.free.len() == 0 {
            self.forget_oldest(list);
        }
        let Some(slot) = self.links.pop(&mut self.free) else { return };
        self.lines[slot as usize] = line;
        self.second[slot as usize] = list == 1;
        self.index.insert(slot, &self.lines);
        self.links.push(&mut self.lists[list], slot);
    }

    fn release(&mut self, slot: u32) {
        self.index.remove(slot, &self.lines);
        let list = usize::from(self.second[slot as usize]);
        self.links.remove(&mut self.lists[list], slot);
        self.links.push(&mut self.free, slot);
    }

    pub(super) fn memory(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
            + self.second.capacity()
            + self.links.memory()
            + self.index.memory()
    }
}
