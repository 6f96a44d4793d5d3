//! The task table: the commands in progress, from a host's tag to the pipeline's requests.

use crate::buffer::Shared;
use crate::ids::{ConnectionId, JobKey, ManagementKey, TaskKey};
use crate::tasks::order::Order;
use slotmap::SlotMap;
use std::collections::VecDeque;
use std::rc::Rc;
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::request::{RequestKey, TenantId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::Media;
use weir_wire::scsi::nexus::{HostId, Nexus, Refusal};
use weir_wire::scsi::reservation::HostOut;
use weir_wire::scsi::unit::ParameterList;

/// A command in progress.
#[derive(Debug)]
pub(crate) struct Task {
    /// The connection that the reply is for; `None` when it is gone, or the command was aborted.
    pub(crate) connection: Option<ConnectionId>,
    /// What is done if it finds no room.
    pub(crate) retries: Retries,
    /// The tenant that claims its host by name.
    pub(crate) claim: Option<TenantId>,
    /// What it is counted for.
    pub(crate) charge: Charge,
    /// When it arrived.
    pub(crate) came: Instant,
    /// The connection's name for it: an initiator task tag, or a slot of NBD.
    pub(crate) name: u32,
    /// Index of the volume.
    pub(crate) volume: usize,
    /// What is to be done, checked against the volume.
    pub(crate) kind: TaskKind,
    /// What it is ordered by among the commands of its session.
    pub(crate) order: Order,
    /// Data from the host, or the pattern made of it.
    pub(crate) data: Option<Shared>,
    /// How many bytes of data the host sends.
    pub(crate) data_length: u32,
    /// Data from the medium, or a journal record.
    pub(crate) medium: Option<Shared>,
    /// The ranges of a command that zeroes or unmaps in steps.
    pub(crate) steps: Steps,
    /// What a comparison with the medium has found.
    pub(crate) comparison: Comparison,
    /// How far it has come.
    pub(crate) phase: Phase,
    /// How far its reply has left.
    pub(crate) reply: ReplyProgress,
    /// The answer, if its requests do not decide it.
    pub(crate) answer: Option<Answer>,
    /// The waiters for its end.
    pub(crate) awaited_by: Vec<ManagementKey>,
    /// The job that it is a step of, instead of a host's command.
    pub(crate) job: Option<JobKey>,
    /// It is memory of the cache, for a read ahead or a part of write-back.
    pub(crate) is_own: bool,
}

/// What is done with a command that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retries {
    /// The answer asks the host to come again.
    Host,
    /// Its protocol cannot say that: it is tried again, if the volume still admits it from its host.
    Judged,
    /// The gateway does it for itself: it is tried again, whatever is reserved.
    Own,
}

/// What a command is counted for until it ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    /// The serial number of the connection that it came on, also when that is gone.
    pub(crate) owner: u64,
    /// Bytes of payload memory.
    pub(crate) bytes: u64,
    /// The tenant in whose quota it is counted, and its bytes there.
    pub(crate) quota: Option<(usize, u64)>,
}

/// The ranges of a command that zeroes or unmaps in steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    /// The present step.
    pub(crate) current: Extent,
    /// The range after it.
    pub(crate) rest: Extent,
}

/// What a comparison of data with the medium has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Comparison {
    /// The first byte that differs.
    pub(crate) differs: Option<u64>,
    /// It was equal. An update that is started again does not compare again, since it may find what it has written
    /// itself.
    pub(crate) equal: bool,
}

/// How far the reply of a command has left.
#[derive(Debug, Default)]
pub(crate) struct ReplyProgress {
    /// Bytes of the part that leaves now, if one does.
    pub(crate) leaving: Option<u64>,
    /// Bytes of the parts behind it in the outbox.
    pub(crate) behind: VecDeque<u64>,
    /// The outbox has the end of the reply: further parts are not for the host.
    pub(crate) complete: bool,
}

impl Task {
    /// A command of a connection, before its data has arrived.
    pub(crate) fn new(came: Instant, volume: usize, kind: TaskKind) -> Self {
        Self {
            connection: None,
            retries: Retries::Host,
            claim: None,
            charge: Charge::default(),
            came,
            name: 0,
            volume,
            kind,
            order: Order::default(),
            data: None,
            data_length: 0,
            medium: None,
            steps: Steps::default(),
            comparison: Comparison::default(),
            phase: Phase::Gathering,
            reply: ReplyProgress::default(),
            answer: None,
            awaited_by: Vec::new(),
            job: None,
            is_own: false,
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
    /// A command for the medium.
    Media(Media),
    /// A parameter list from this nexus.
    Parameters(ParameterList, Rc<Nexus>),
    /// A reservation command of an NVMe host.
    Reserve(HostReserve),
    /// A command that a job works for.
    Internal,
    /// Which parts of a range are mapped.
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

/// A reservation command of an NVMe host, complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostReserve {
    pub(crate) host: HostId,
    pub(crate) out: HostOut,
    /// The current key, then the new or the preempted one.
    pub(crate) keys: [u64; 2],
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its data is still arriving, or that of older commands which it must not pass.
    Gathering,
    /// It is in the pipeline.
    InPipeline {
        /// Requests that have not ended.
        left: u32,
        /// The first failure, or good so far.
        end: End,
    },
    /// It waits for a blocking call, a job, or tasks that it ends.
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

/// All commands in progress.
pub(crate) type Tasks = SlotMap<TaskKey, Task>;
