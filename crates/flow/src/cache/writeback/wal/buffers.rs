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
            let before = self.users.insert(io, records);
            assert!(before.is_none(), "the bytes of a write are kept once: {io:?}");
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
    pub(crate) fn drop_user(&mut self, io: LocalId) -> bool {
        let users = self.users.get_mut(&io).expect("a kept write has users");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A write is released when the last record has let go of it.
    #[test]
    fn the_last_user_releases() {
        let mut buffers = Buffers::default();
        buffers.keep(LocalId(1), 2);
        assert!(!buffers.drop_user(LocalId(1)));
        assert!(buffers.drop_user(LocalId(1)) && !buffers.is_kept(LocalId(1)));
    }

    /// Bytes that were released may be another write's: letting go of them again is noticed.
    #[test]
    #[should_panic(expected = "a kept write has users")]
    fn a_write_is_released_once() {
        let mut buffers = Buffers::default();
        buffers.keep(LocalId(1), 1);
        buffers.drop_user(LocalId(1));
        buffers.drop_user(LocalId(1));
    }
}
