//! The commands that are under way, between a host's tag and the pipeline's requests.

use crate::buffer::Shared;
use crate::ids::{ConnectionId, JobKey, ManagementKey, TaskKey};
use slotmap::SlotMap;
use std::collections::VecDeque;
use std::rc::Rc;
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::request::{RequestKey, TenantId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::Media;
use weir_wire::scsi::nexus::{Nexus, Refusal};
use weir_wire::scsi::unit::ParameterList;

/// A command in progress.
#[derive(Debug)]
pub(crate) struct Task {
    /// Who waits for the reply; `None` when nobody does any more.
    pub(crate) connection: Option<ConnectionId>,
    /// Its protocol cannot say that the task set is full: it is tried again.
    pub(crate) retries: bool,
    /// The connection that it came on, whether or not that is still there.
    pub(crate) owner: u64,
    /// The tenant that claims its host by name.
    pub(crate) claim: Option<TenantId>,
    /// Bytes of payload memory that it was counted for.
    pub(crate) held: u64,
    /// The tenant in whose quota it is counted, and for how many bytes.
    pub(crate) quota: Option<(usize, u64)>,
    /// When it came.
    pub(crate) came: Instant,
    /// The connection's name for it: an initiator task tag, or a slot of NBD.
    pub(crate) name: u32,
    /// Index of the volume.
    pub(crate) volume: usize,
    /// What is to be done, checked against the volume.
    pub(crate) kind: TaskKind,
    /// Ordered among the other commands.
    pub(crate) ordered: bool,
    /// Data from the host, or the pattern made of it.
    pub(crate) data: Option<Shared>,
    /// How many bytes of data the host sends.
    pub(crate) data_length: u32,
    /// Data from the medium, or a journal record.
    pub(crate) medium: Option<Shared>,
    /// What is being zeroed or given back now, of a command that does so in steps.
    pub(crate) step: Extent,
    /// What is still to be done after that.
    pub(crate) rest: Extent,
    /// The first byte in which what was compared differs.
    pub(crate) differs: Option<u64>,
    /// What was compared is the same: an update that begins again does not look again, since it may find
    /// what it has written itself.
    pub(crate) compared: bool,
    /// How far it has come.
    pub(crate) phase: Phase,
    /// Bytes of the parts of its reply that are in the outbox: the first, and those behind it.
    pub(crate) leaving: Option<u64>,
    pub(crate) behind: VecDeque<u64>,
    /// What the host is told is complete: further parts are not for it.
    pub(crate) replied: bool,
    /// What to answer, once that is decided by something else than its requests.
    pub(crate) answer: Option<Answer>,
    /// What waits for its end.
    pub(crate) awaited_by: Vec<ManagementKey>,
    /// The job that it is a step of, instead of a host's command.
    pub(crate) job: Option<JobKey>,
}

impl Task {
    /// A command of a connection, before its data has come.
    pub(crate) fn new(came: Instant, volume: usize, kind: TaskKind) -> Self {
        Self {
            connection: None,
            retries: false,
            owner: 0,
            claim: None,
            held: 0,
            quota: None,
            came,
            name: 0,
            volume,
            kind,
            ordered: false,
            data: None,
            data_length: 0,
            medium: None,
            step: Extent::default(),
            rest: Extent::default(),
            differs: None,
            compared: false,
            phase: Phase::Gathering,
            leaving: None,
            behind: VecDeque::new(),
            replied: false,
            answer: None,
            awaited_by: Vec::new(),
            job: None,
        }
    }

    /// The data that the host has sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |data| &data.bytes()[..self.data_length as usize])
    }

    /// What it does with the medium. Panics if it has nothing to do with it.
    pub(crate) fn media(&self) -> Media {
        match &self.kind {
            TaskKind::Media(media) => *media,
            other => unreachable!("only media commands have requests: {other:?}"),
        }
    }
}

/// What a command asks for.
#[derive(Clone, Debug)]
pub(crate) enum TaskKind {
    /// Something with the medium.
    Media(Media),
    /// To take in a parameter list from this nexus.
    Parameters(ParameterList, Rc<Nexus>),
    /// What a job does in its name.
    Internal,
    /// To say which parts of a range are mapped.
    Map {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Parts to name at most.
        max: usize,
        /// Quota for the answer, in bytes.
        allocation: u32,
    },
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its data is still coming.
    Gathering,
    /// It is in the pipeline.
    InPipeline {
        /// Requests that have not ended.
        left: u32,
        /// How it will end, as far as is known.
        end: End,
    },
    /// It waits for something that is no request: a chore, a job, or tasks that it ends.
    Blocked,
    /// Its reply is being written.
    Replying(RequestKey),
}

/// How the requests of a command end.
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

/// What a command is answered that was decided here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// GOOD.
    Good,
    /// BUSY: the host may try again.
    Busy,
    /// An error.
    Refused(Refusal),
    /// Runs of bytes that are mapped or not, for NBD.
    Runs(Vec<(u64, bool)>),
}

/// All commands that are under way.
pub(crate) type Tasks = SlotMap<TaskKey, Task>;
