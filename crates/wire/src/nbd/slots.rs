//! The requests of one connection that have no complete reply, each in a numbered slot.

use std::collections::VecDeque;

use super::Command;
use crate::outbox::Outbox;

/// A request that has no reply yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The client's name for it, which the reply repeats. It need not be unique.
    pub(super) cookie: u64,
    pub(super) command: Command,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// The slots. One is taken from the request until the last byte of its reply is written, so that a
/// mark in the outbox names one request.
#[derive(Debug)]
pub(super) struct Slots {
    entries: Vec<Option<Outstanding>>,
    /// Slots whose request was answered, in the order in which that happened, which is the order in
    /// which their replies leave the outbox: if the first is still in there, all are.
    free: VecDeque<u32>,
    limit: u32,
    outstanding: u32,
}

impl Slots {
    pub(super) const fn new(limit: u32) -> Self {
        Self { entries: Vec::new(), free: VecDeque::new(), limit, outstanding: 0 }
    }

    /// Whether a slot can be taken.
    pub(super) fn has_room<P: AsRef<[u8]>>(&self, outbox: &Outbox<P>) -> bool {
        (self.entries.len() as u32) < self.limit
            || self.free.front().is_some_and(|&slot| !outbox.holds(slot))
    }

    /// Puts a request into a slot. There must be room.
    pub(super) fn take<P: AsRef<[u8]>>(&mut self, request: Outstanding, outbox: &Outbox<P>) -> u32 {
        self.outstanding += 1;
        if let Some(slot) = self.free.pop_front_if(|slot| !outbox.holds(*slot)) {
            self.entries[slot as usize] = Some(request);
            return slot;
        }
        assert!((self.entries.len() as u32) < self.limit, "a request is taken when there is room");
        self.entries.push(Some(request));
        (self.entries.len() - 1) as u32
    }

    /// Ends the request in a slot, whose reply must be put into the outbox at once.
    ///
    /// Panics if there is none.
    pub(super) fn end(&mut self, slot: u32) -> Outstanding {
        let entry = self.entries.get_mut(slot as usize).and_then(Option::take);
        let request = entry.expect("a slot is answered once");
        self.free.push_back(slot);
        self.outstanding -= 1;
        request
    }

    /// Requests that have no reply yet.
    pub(super) const fn outstanding(&self) -> u32 {
        self.outstanding
    }
}
