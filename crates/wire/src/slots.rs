//! The commands of one connection that have no complete response, each in a numbered slot.

use std::collections::VecDeque;

use crate::outbox::Outbox;

/// The slots. One is taken from the command until the last byte of its response is written, so that a mark in the
/// outbox names one command. Every response must have one mark, and responses leave the outbox in the order in which
/// their commands were answered.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Option<T>>,
    /// Slots whose command was answered, in that order: those whose response is not written are the last ones.
    free: VecDeque<u32>,
    outstanding: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: VecDeque::new(), outstanding: 0 }
    }
}

impl<T> Slots<T> {
    /// Whether a slot can be taken, of at most `limit`.
    pub(crate) fn has_room<P: AsRef<[u8]>>(&self, limit: u32, outbox: &Outbox<P>) -> bool {
        (self.entries.len() as u32) < limit || self.free.len() > outbox.responses()
    }

    /// Puts a command into a slot. There must be room.
    pub(crate) fn take<P: AsRef<[u8]>>(&mut self, command: T, outbox: &Outbox<P>) -> u32 {
        self.outstanding += 1;
        if self.free.len() > outbox.responses() {
            let slot = self.free.pop_front().expect("more than none are free");
            self.entries[slot as usize] = Some(command);
            return slot;
        }
        self.entries.push(Some(command));
        (self.entries.len() - 1) as u32
    }

    /// Ends the command in a slot, whose response must be put into the outbox at once.
    ///
    /// Panics if there is none.
    pub(crate) fn end(&mut self, slot: u32) -> T {
        let command = self.forget(slot);
        self.free.push_back(slot);
        command
    }

    /// Ends the command in a slot of a connection that sends no more responses.
    ///
    /// Panics if there is none.
    pub(crate) fn forget(&mut self, slot: u32) -> T {
        let entry = self.entries.get_mut(slot as usize).and_then(Option::take);
        let command = entry.expect("a slot is answered once");
        self.outstanding -= 1;
        command
    }

    /// The command in a slot, if there is one.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// The command in a slot, if there is one.
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.entries.get(slot as usize)?.as_ref()
    }

    /// The slots with a command, in ascending order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = (0..).zip(&self.entries);
        slots.filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// Commands that have no response yet.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot is used again only when its response is written, and then the oldest first; the limit counts responses
    /// that are not written.
    #[test]
    fn slots_are_not_used_early() {
        let mut outbox: Outbox<Vec<u8>> = Outbox::new();
        let mut slots = Slots::default();
        for name in ['a', 'b', 'c'] {
            assert!(slots.has_room(3, &outbox));
            slots.take(name, &outbox);
        }
        assert!(!slots.has_room(3, &outbox));
        for (slot, name) in [(1, 'b'), (0, 'a')] {
            assert_eq!(slots.end(slot), name);
            outbox.push_bytes(&[0; 4]);
            outbox.mark_last(slot);
        }
        assert_eq!(slots.taken().collect::<Vec<_>>(), [(2, &'c')]);
        assert_eq!((slots.outstanding(), slots.has_room(3, &outbox)), (1, false));
        outbox.advance(4, |_| ());
        assert!(slots.has_room(3, &outbox));
        assert_eq!(slots.take('d', &outbox), 1);
        assert!(!slots.has_room(3, &outbox), "the response of slot 0 is not written");
        assert_eq!((slots.get(1), slots.get(0)), (Some(&'d'), None));
    }
}
