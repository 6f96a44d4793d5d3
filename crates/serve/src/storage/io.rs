//! The operations that storage is asked for, and how they end.

use crate::buffer::Shared;
use std::io;
use std::os::fd::RawFd;
use weir_flow::cache::stage::FetchKey;
use weir_flow::cache::writeback::LocalId;
use weir_flow::error::IoError;
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
}

impl Whose {
    /// The request at its store. Panics if it is for something else, which no upstream is asked for.
    pub(crate) fn request(self) -> RequestKey {
        match self {
            Self::Request(key) => key,
            Self::Fetch(_) | Self::Log(..) => unreachable!("logs are files: {self:?}"),
        }
    }
}

/// Where an operation is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The open file. It outlives the operation: files are closed after the drivers.
    File(RawFd),
    /// A path to an upstream.
    Path(BackendId, PathId),
}

/// Whoever takes operations and sees to it that each of them ends.
pub(crate) trait Stores {
    /// Takes an operation.
    fn submit(&mut self, place: Place, io: Io);
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

/// An operation that has ended, in the words of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Which one.
    pub(crate) key: RequestKey,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// It was the one [`Work::Sync`] of a file that others may wait for.
    pub(crate) flushed: bool,
    /// As given.
    pub(crate) promise: Option<usize>,
}

/// What the host is told about an error of the operating system.
pub(crate) fn tenant_error(error: &io::Error) -> IoError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => IoError::NoSpace,
        Some(libc::EROFS | libc::EPERM | libc::EACCES) => IoError::WriteProtected,
        Some(libc::EOPNOTSUPP) => IoError::Unsupported,
        _ => IoError::Medium,
    }
}
