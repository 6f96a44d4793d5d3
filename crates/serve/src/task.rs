//! The commands that are under way, between a host's tag and the pipeline's requests.

use crate::buffer::Shared;
use crate::listen::connection::ConnectionId;
use slotmap::{Key, KeyData, SlotMap};
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::request::{RequestKey, Tag};
use weir_wire::iscsi::target::Itt;
use weir_wire::scsi::cdb::Media;

slotmap::new_key_type! {
    /// A command that is under way.
    pub(crate) struct TaskKey;

    /// A task management function that waits for tasks to end.
    pub(crate) struct ManagementKey;
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

/// A command that is under way.
#[derive(Debug)]
pub(crate) struct Task {
    /// Who waits for the reply; `None` when nobody does any more.
    pub(crate) connection: Option<ConnectionId>,
    /// The connection that it came on, whether or not that is still there.
    pub(crate) owner: u64,
    /// Bytes of payload memory that it was counted for.
    pub(crate) held: u64,
    /// When it came.
    pub(crate) came: Instant,
    /// The host's name for it.
    pub(crate) itt: Itt,
    /// Index of the volume.
    pub(crate) volume: usize,
    /// What is to be done, checked against the volume.
    pub(crate) media: Media,
    /// Ordered among the other commands.
    pub(crate) ordered: bool,
    /// Data from the host, or the pattern made of it.
    pub(crate) data: Option<Shared>,
    /// How many bytes of data the host sends.
    pub(crate) data_length: u32,
    /// Data from the medium.
    pub(crate) medium: Option<Shared>,
    /// How far it has come.
    pub(crate) phase: Phase,
    /// Task management functions that wait for its end.
    pub(crate) awaited_by: Vec<ManagementKey>,
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its data is still coming.
    Gathering,
    /// It is in the pipeline.
    Flowing {
        /// Requests that have not ended.
        left: u32,
        /// How it will end, as far as is known.
        end: End,
    },
    /// Its reply is being written.
    Replying(RequestKey),
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Well.
    Good,
    /// With an error.
    Failed(IoError),
    /// A limit was reached: the host may try again.
    Full,
}

impl End {
    /// Joins the ends of two requests of one command: the first failure stays.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::Good { other } else { self }
    }
}

/// All commands that are under way.
pub(crate) type Tasks = SlotMap<TaskKey, Task>;
