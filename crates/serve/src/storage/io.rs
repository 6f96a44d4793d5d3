//! The messages between a shard and storage: operations and their ends.

use crate::buffer::Shared;
use crate::storage::memory::Memory;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use weir_flow::cache::stage::FetchKey;
use weir_flow::cache::writeback::LocalId;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{BackendId, Outcome, PathId, RequestKey, VolumeId};

/// One operation on one store.
#[derive(Debug)]
pub(crate) struct Io {
    /// Comes back in [`Done`].
    pub(crate) whose: Whose,
    /// What to do.
    pub(crate) work: Work,
    /// First byte in the store.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// The store, in the row of all, whose durability its end vouches for, if it does. Comes back in
    /// [`Done`].
    pub(crate) promise: Option<usize>,
}

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A request at its store.
    Request(RequestKey),
    /// A read from a log.
    Fetch(FetchKey),
    /// A write to a log, or its flush.
    Log(VolumeId, LocalId),
    /// The last flush of a store, in the row of all, whose volume goes.
    Last(usize),
}

/// Where an operation is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// The open file. It outlives the operation: files are closed after the drivers, or when nothing uses them.
    File(RawFd),
    /// A store without a disk.
    Memory(Rc<Memory>),
    /// A path to an upstream.
    Path(BackendId, PathId),
}

/// What a shard asks of storage.
#[derive(Debug)]
pub(crate) enum StorageSubmit {
    /// Do an operation; [`StorageDone::Ended`] reports its end.
    Io(Location, Io),
    /// Check a path; `Input::Checked` reports its answer.
    Check(BackendId, PathId),
    /// Forget a read on a path, and an end of it that was not reported yet: its buffer is not touched any more.
    Abandon(BackendId, PathId, RequestKey),
    /// Give a path up if its target has put this operation off, or takes none.
    Recall(BackendId, PathId, RequestKey),
    /// Give a path up, and connect it again.
    Reset(BackendId, PathId),
}

/// What storage reports to a shard.
#[derive(Debug)]
pub(crate) enum StorageDone {
    /// An operation has ended.
    Ended(Ended),
    /// A path has changed, or has answered: for the pipeline.
    Input(Input),
    /// Another gateway owns the unit of this upstream: this one must not write to it any more.
    Fenced(usize),
    /// The unit of this upstream is the gateway's now, on one path more.
    Claimed(usize),
    /// Another gateway owns the unit of this upstream, as a move or a start beside it provides for.
    Left(usize),
    /// The unit of this upstream has grown to this number of bytes.
    Resized(usize, u64),
}

/// Takes what a shard asks of storage, and sees to it that each operation ends.
pub(crate) trait Submit {
    /// Takes a request.
    fn submit(&mut self, request: StorageSubmit);
}

/// What is to be done with a range of a store.
#[derive(Debug)]
pub(crate) enum Work {
    /// Fill the buffer from `at` on.
    Read {
        /// Where the bytes go.
        buffer: Shared,
        /// First byte within the buffer.
        at: usize,
    },
    /// Store the buffer's bytes from `at` on.
    Write {
        /// Where the bytes are.
        buffer: Shared,
        /// First byte within the buffer.
        at: usize,
        /// Durable when done, as if followed by a sync of these bytes.
        durable: bool,
    },
    /// Make everything that has ended before durable.
    Sync,
    /// Make the range read as zeroes and give its space back where the file system can.
    Discard,
    /// Make the range read as zeroes.
    Zero,
}

/// An operation that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Which one.
    pub(crate) whose: Whose,
    /// How it ended; the error that the operating system gave.
    pub(crate) result: io::Result<()>,
    /// It was a [`Work::Sync`].
    pub(crate) flushed: bool,
    /// As given.
    pub(crate) promise: Option<usize>,
}

/// An operation that has ended, with the outcome that the pipeline knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Which one.
    pub(crate) whose: Whose,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// It was the one [`Work::Sync`] of a file that others may wait for.
    pub(crate) flushed: bool,
    /// As given.
    pub(crate) promise: Option<usize>,
}

/// The error that the host gets for an error of the operating system.
pub(crate) fn tenant_error(error: &io::Error) -> IoError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => IoError::NoSpace,
        Some(libc::EROFS | libc::EPERM | libc::EACCES) => IoError::WriteProtected,
        Some(libc::EOPNOTSUPP) => IoError::Unsupported,
        _ => IoError::Medium,
    }
}
