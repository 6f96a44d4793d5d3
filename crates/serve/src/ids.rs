//! The keys of connections, commands and jobs.

use slotmap::{Key, KeyData};
use weir_flow::request::Tag;

/// A connection: its place, and a serial number that later connections in the same place do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

slotmap::new_key_type! {
    /// A command in progress.
    pub(crate) struct TaskKey;

    /// Something that waits for tasks to end.
    pub(crate) struct ManagementKey;

    /// A job in progress.
    pub(crate) struct JobKey;
}

impl TaskKey {
    /// The pipeline's name for the command's requests.
    pub(crate) fn tag(self) -> Tag {
        Tag(self.data().as_ffi())
    }

    /// The command that a request belongs to.
    pub(crate) fn of(tag: Tag) -> Self {
        KeyData::from_ffi(tag.0).into()
    }
}
