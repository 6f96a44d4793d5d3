//! Bytes of earlier writes to the log device that are kept in memory. Mode `ram` only.
//!
//! There a request is acknowledged before its record is durable. If the write fails, the record is written again
//! from the bytes of that write, which the shell keeps until `Effect::Release`.

use super::super::effect::LocalId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The writes whose bytes are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    /// How many records need the bytes of each write.
    users: BTreeMap<LocalId, u32>,
    /// One entry for each record that has moved to a newer write, to be released when that was asked for.
    to_release: Vec<LocalId>,
}

impl Buffers {
    /// `records` need the bytes of this write.
    pub(crate) fn keep(&mut self, io: LocalId, records: u32) {
        if records > 0 {
            self.users.insert(io, records);
        }
    }

    /// A record is in a newer write, too.
    pub(crate) fn supersede(&mut self, io: LocalId) {
        self.to_release.push(io);
    }

    /// The writes that records have moved away from, since this was asked last.
    pub(crate) fn take_superseded(&mut self) -> Vec<LocalId> {
        core::mem::take(&mut self.to_release)
    }

    /// One record less needs the bytes of this write. True if that was the last one.
    #[must_use]
    pub(crate) fn drop_user(&mut self, io: LocalId) -> bool {
        let users = self.users.get_mut(&io).expect("a kept write has users");
        assert!(*users > 0, "a record lets go of a buffer once");
        *users -= 1;
        let last = *users == 0;
        if last {
            self.users.remove(&io);
        }
        last
    }

    pub(crate) fn is_kept(&self, io: LocalId) -> bool {
        self.users.contains_key(&io)
    }
}
