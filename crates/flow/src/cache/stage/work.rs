//! The requests of the cache to the world (`Work`), and the answers (`Done`).

use crate::cache::evict::Frame;
use crate::cache::quarantine::LostRange;
use crate::cache::writeback::format::Span;
use crate::cache::writeback::{LocalId, Recovered, Write};
use crate::request::{LinkId, Outcome, Tag, VolumeId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

slotmap::new_key_type! {
    /// Something that the cache does on its own account: a fetch ahead of its reader, or a part of write-back.
    pub struct JobKey;

    /// A read from a log.
    pub struct FetchKey;
}

/// What the world is to do for the cache. The tag names the payload of a request, of a host's or of the cache's
/// own; offsets are counted within that payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Copy from a frame to a payload, or back. To be done before whatever is asked for next; no answer.
    Copy(Copied),
    /// Make these bytes of a payload zeroes. To be done before whatever is asked for next; no answer.
    Zero {
        /// Whose payload.
        tag: Tag,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Read from a volume's log into a payload, check the bytes, and answer with [`Done::Fetched`];
    /// [`Medium`](crate::error::IoError::Medium) says that they are damaged.
    Fetch {
        /// Name it so in the answer.
        fetch: FetchKey,
        /// Whose log.
        volume: VolumeId,
        /// Where in the log, and how many bytes.
        span: Span,
        /// Whose payload.
        tag: Tag,
        /// First byte there.
        offset: u64,
    },
    /// Copy from memory that a log keeps to a payload. To be done before whatever is asked for next; no answer.
    CopyBuffer {
        /// Whose log.
        volume: VolumeId,
        /// From where.
        from: Buffer,
        /// Whose payload.
        tag: Tag,
        /// First byte there.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Set memory aside for a job, and answer with [`Done::Reserved`], which may be later, when there is
    /// some.
    Reserve {
        /// Name it so in the answer.
        job: JobKey,
        /// The volume that it is for.
        volume: VolumeId,
        /// How many bytes; may be none.
        bytes: u64,
        /// They are read from the volume, not written to it.
        reads: bool,
    },
    /// What was set aside under this tag is not needed any more; no answer.
    Release(Tag),
    /// Write to a volume's log; answer with [`Done::Logged`]. What is written must be kept until it is
    /// [forgotten](Work::ReleaseBatch).
    Log {
        /// Whose log.
        volume: VolumeId,
        /// What to write.
        write: Box<LogWrite>,
    },
    /// Make durable what was written to a volume's log and whose end has been told; answer with
    /// [`Done::Logged`].
    Sync {
        /// Whose log.
        volume: VolumeId,
        /// Name it so in the answer.
        io: LocalId,
    },
    /// What this write to a log was made of is not needed any more; no answer.
    ReleaseBatch {
        /// Whose log.
        volume: VolumeId,
        /// The write.
        io: LocalId,
    },
    /// The log has failed, and everything in it is on shared storage: remember durably, elsewhere, that it is
    /// never to be replayed; answer with [`Done::Abandoned`].
    Abandon(VolumeId),
    /// Keep these as the lost ranges of a volume, durably and outside its log, in the place of those kept before; answer
    /// with [`Done::LostKept`].
    KeepLost(VolumeId, Vec<LostRange>),
    /// The log has closed after [`Done::Close`]: nothing more will be asked for it; no answer.
    Closed(VolumeId),
}

/// A copy between a frame and a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Whose payload.
    pub tag: Tag,
    /// First byte there.
    pub offset: u64,
    /// The frame.
    pub frame: Frame,
    /// First byte in the frame.
    pub at: u32,
    /// Number of bytes.
    pub length: u32,
    /// From the payload to the frame, not the other way.
    pub keep: bool,
}

/// One write to a log, as [`assemble`](crate::cache::writeback::assemble()) makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogWrite {
    /// What to write, and where.
    pub write: Write,
    /// Where each part of its payload is, in their order.
    pub from: Vec<Buffer>,
}

/// Bytes in memory, from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// In the payload of a request.
    Payload(Tag, u64),
    /// In what an earlier write to the log was made of.
    Batch(LocalId, u64),
}

/// What the world tells the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// A [`Work::Fetch`] has ended.
    Fetched {
        /// Which one.
        fetch: FetchKey,
        /// How.
        outcome: Outcome,
    },
    /// A [`Work::Reserve`] is done.
    Reserved {
        /// For which job.
        job: JobKey,
        /// The name of the payload from here on.
        tag: Tag,
    },
    /// A [`Work::Log`] or [`Work::Sync`] has ended.
    Logged {
        /// Whose log.
        volume: VolumeId,
        /// Which one.
        io: LocalId,
        /// How.
        outcome: Outcome,
    },
    /// What was found in a volume's log when it was opened: the first input of the volume.
    Recovered(VolumeId, Arc<Recovered>),
    /// An operator wants everything of a volume written back, and nothing kept from then on; or no longer.
    Drain(VolumeId, bool),
    /// An operator wants write-back to continue where it was blocked.
    Retry(VolumeId),
    /// The lost ranges of a volume that were [kept](Work::KeepLost): to be told before [`Done::Recovered`].
    Lost(VolumeId, Vec<LostRange>),
    /// An operator gives up the data on which write-back of a volume is blocked, since the log cannot be read there. The
    /// time is nanoseconds since 1970.
    Quarantine(VolumeId, u64),
    /// A [`Work::KeepLost`] has ended.
    LostKept(VolumeId, Outcome),
    /// A [`Work::Abandon`] has ended.
    Abandoned(VolumeId, Outcome),
    /// The gateway stops: a log takes nothing more, and what it has is made durable; then [`Work::Closed`].
    Close(VolumeId),
    /// The host behind a link is gone; another may come on the same.
    Gone(LinkId),
}
