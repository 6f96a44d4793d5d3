//! The effects of a log, which the shell performs, and the names in them.

use super::format::Span;
use crate::clock::Duration;
use crate::error::IoError;
use crate::policy::Rule;
use crate::request::{Op, Outcome, RequestKey, TenantId};
use crate::units::Extent;
use alloc::vec::Vec;
use core::fmt;

/// A write or a sync of the log device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalId(pub u64);

/// An I/O of write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// What a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data is written.
    Write,
    /// Zeroes are written, without a payload.
    Zero,
    /// Blocks are unmapped: they read as zeroes.
    Unmap,
}

/// Whether a write is to be durable before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fua {
    /// As the mode of the log says.
    No,
    /// The host wants it.
    Host,
    /// The gateway wants it, and the host knows nothing of that.
    Gateway,
}

/// Who sent a write or a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Of which tenant.
    pub tenant: TenantId,
    /// The host's session (an I-T nexus), by a number that the caller does not use for another while this
    /// one lives. Whether it flushes decides how strictly write-back is ordered.
    pub initiator: u64,
    /// When, in nanoseconds since 1970, for people who read the log; 0 if that is not known.
    pub time: u64,
}

/// What the world is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write to the log device; answered by [`log_io_ended`](super::Log::log_io_ended). Several at once may run in
    /// any order.
    Write(Write),
    /// Make durable what has been written to the log device; answered by
    /// [`log_io_ended`](super::Log::log_io_ended). Never to be tried again after an error.
    Sync(LocalId),
    /// The bytes of this [`Effect::Write`] are not needed any more. Comes when it has ended; in mode
    /// `ram` when it is durable.
    Release(LocalId),
    /// Answer the host; the payload under this key is not needed any more. The rule is what the request
    /// waited for longest.
    Ack(RequestKey, Outcome, Rule),
    /// The volume is in `through`: send the request upstream as it is and answer the host; then
    /// [`forward_ended`](super::Log::forward_ended).
    Through(RequestKey),
    /// What [`await_drained`](super::Log::await_drained) asked for is upstream and flushed.
    Drained(RequestKey),
    /// Bring together in a buffer of `bytes` bytes what is to be written upstream; answered by
    /// [`gathered`](super::Log::gathered). Asked for again, the buffer is filled again.
    Gather {
        /// Names the buffer.
        job: JobId,
        /// Its length.
        bytes: u64,
        /// Where its bytes come from: all of them, in order.
        pieces: Vec<Piece>,
    },
    /// Do this I/O upstream, a write with the bytes of the job's buffer; answered by
    /// [`upstream_ended`](super::Log::upstream_ended). May be asked for again after an error.
    Upstream {
        /// Names the I/O and its buffer.
        job: JobId,
        /// `Write`, `WriteZeroes`, `Discard` or `Flush`.
        op: Op,
        /// Which bytes of the volume; empty for a flush.
        extent: Extent,
        /// A write must be durable before it is answered.
        fua: bool,
    },
    /// The job is over; its buffer may go.
    Done(JobId),
    /// The log device has failed, and everything in it is upstream now. Before new writes go there past
    /// the log, remember durably and elsewhere that this log is never to be replayed; then
    /// [`abandoned`](super::Log::abandoned).
    Abandon,
    /// After [`close`](super::Log::close): everything accepted is durable and marked; nothing more will
    /// be asked for.
    Closed,
    /// Something that observers and operators want to know.
    Notice(Notice),
}

/// One write to the log device: a super block, or a batch with or without a segment header before it.
/// [`assemble`](super::assemble()) makes its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Names it.
    pub io: LocalId,
    /// Where on the device; a multiple of 4096.
    pub at: u64,
    /// The whole length; a multiple of 4096.
    pub bytes: u64,
    /// The bytes before the payload.
    pub head: Vec<u8>,
    /// Where in them the checksums of the payload belong.
    pub sums_at: u32,
    /// The checksum of the header of their batch, to which they are [bound](super::format::binding); 0 in a super block,
    /// which has none.
    pub sum: u32,
    /// The payload, in order; the checksums of each part stand by themselves. Zeroes follow.
    pub payload: Vec<Part>,
}

/// Payload of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// In whose memory.
    pub from: Memory,
    /// How many bytes.
    pub length: u64,
}

/// Bytes in the shell's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The payload of a request, from an offset on.
    Request(RequestKey, u64),
    /// What an earlier write to the log device was made of, from an offset on. Only in mode `ram`.
    Batch(LocalId, u64),
    /// What an [`Effect::Gather`] has brought together, from an offset on.
    Job(JobId, u64),
}

/// A part of what a job writes upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the job's buffer.
    pub offset: u64,
    /// From where. `Log` and `Memory` name its length.
    pub source: Source,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The log device. To be checked: [`Span::check`].
    Log(Span),
    /// The shell's memory: the log device has failed.
    Memory(Part),
    /// This number of zeroes.
    Zeroes(u64),
}

/// What the log has for a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// Which bytes of the volume.
    pub extent: Extent,
    /// Where the newest data is.
    pub found: Found,
}

/// Where the newest data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// On the log device. To be checked: [`Span::check`].
    Log(Span),
    /// They are zeroes.
    Zeroes,
    /// Nowhere from where it may be read: look again when [`readable`](super::Log::readable) has
    /// come to this record.
    NotYet(u64),
}

/// What has changed, for observers and operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A write or a sync of the log device has failed; what was in it is written again elsewhere.
    LogFault(IoError),
    /// The log device has failed twice in a row: everything goes upstream, then the volume is in
    /// `through`.
    LogFailed(IoError),
    /// The upstream does not answer, or is busy; it is tried again for ever.
    Away(IoError),
    /// The upstream answers again, after so long.
    Back(Duration),
    /// Write-back of this volume has stopped and waits for a person. Nothing is dropped.
    Blocked(Blocked),
    /// An operator has asked to continue.
    Unblocked,
    /// Writes are held because the log is full, or not any more.
    Full(bool),
    /// Epochs are closed by flushes alone; false: by every acknowledgement.
    Relaxed(bool),
    /// The volume is in `through` now.
    Through(Why),
    /// Writes go to the log again.
    Resumed,
}

/// Why a volume is in `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An operator has asked for it.
    Asked,
    /// Committing to the log takes longer than a write upstream: the medians.
    Slower {
        /// Of a commit.
        local: Duration,
        /// Of a small write upstream.
        upstream: Duration,
    },
    /// The log is full, and writes wait longer for room than they would take upstream: the mean times.
    Behind {
        /// For which a write waits for room.
        log: Duration,
        /// Of a write upstream under this load.
        upstream: Duration,
    },
    /// The log device has failed.
    Failed,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("an operator has asked for it"),
            Self::Slower { local, upstream } => write!(
                f,
                "the log takes {local} to make a write durable, the volume's own storage {upstream}"
            ),
            Self::Behind { log, upstream } => write!(
                f,
                "the log is full and a write waits {log} for room in it; the volume's own storage would take {upstream}. \
                 The log is used again after a minute of less load"
            ),
            Self::Failed => f.write_str("the log has failed"),
        }
    }
}

/// Where write-back has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The first record that could not be applied.
    pub seq: u64,
    /// Which bytes of the volume.
    pub extent: Extent,
    /// What could not be done.
    pub cause: Cause,
}

/// What stops write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The upstream refuses the data.
    Upstream(IoError),
    /// The data cannot be read from the log, or its checksum is wrong.
    Log(IoError),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upstream(error) => write!(f, "upstream: {error}"),
            Self::Log(error) => write!(f, "the log cannot be read: {error}"),
        }
    }
}

/// Waiting for the log to be durable.
pub const COMMIT: Rule = Rule(&"cache/commit");
/// Waiting because the log fills: from 75 to 95 %.
pub const PACE: Rule = Rule(&"cache/pace");
/// Waiting because the log is full: above 95 %.
pub const FULL: Rule = Rule(&"cache/full");
/// Waiting for the upstream: a drain, or `sync = upstream`.
pub const DRAIN: Rule = Rule(&"cache/drain");
/// A flush waits for writes that bypassed the log to be durable upstream.
pub const DEBT: Rule = Rule(&"cache/debt");
