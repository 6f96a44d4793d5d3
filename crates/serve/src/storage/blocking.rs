//! Makes rare calls of the operating system that may block on a helper thread, so that
//! the event loop never waits for them.
//!
//! Calls are done in the order of their submission, one at a time. The queue has no limit: a submitter keeps
//! to a bounded number that are not reaped, for instance one save for each volume and one map for each
//! request.

use crate::storage::state_file;
use crate::storage::state_file::StateError;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Something that the helper is to do.
#[derive(Debug)]
pub(crate) enum BlockingCall {
    /// Replace a small file durably: [`state_file::save`].
    Save {
        /// Comes back in [`BlockingResult::Saved`].
        owner: u64,
        /// The file.
        path: PathBuf,
        /// Its new contents.
        bytes: Vec<u8>,
    },
    /// Find out which parts of a range of a file hold data, and which are holes.
    Map {
        /// Comes back in [`BlockingResult::Mapped`].
        token: u64,
        /// The open file or device. Its position is moved, on which no other I/O depends: all other
        /// reads and writes are positioned.
        file: Arc<File>,
        /// First byte, a multiple of `block`.
        offset: u64,
        /// Number of bytes, a multiple of `block`.
        length: u64,
        /// Bytes in a block, at least 1. Runs are whole blocks; one with any data in it is mapped.
        block: u64,
        /// How many runs are wanted at most; at least 1.
        max: usize,
    },
}

/// A chore that has been done.
#[derive(Debug)]
pub(crate) enum BlockingResult {
    /// A [`BlockingCall::Save`].
    Saved {
        /// As given.
        owner: u64,
        /// After an error the old contents or the new ones are in the file.
        result: Result<(), StateError>,
    },
    /// A [`BlockingCall::Map`].
    Mapped {
        /// As given.
        token: u64,
        /// Runs from the start of the range on: number of bytes, never 0, and whether they are mapped.
        /// Neighbours differ. There is one at least unless the range is empty, but they may end before
        /// the range does, and the last one before its kind does.
        /// What is not mapped reads as zeroes. Where a file system or device cannot report holes, everything
        /// is mapped.
        result: io::Result<Vec<Run>>,
    },
}

/// Number of bytes, and whether they are mapped.
pub(crate) type Run = (u64, bool);

/// The helper thread. When dropped it does what is queued first.
#[derive(Debug)]
pub(crate) struct BlockingPool {
    queue: Option<Sender<BlockingCall>>,
    finished: Arc<Mutex<Vec<BlockingResult>>>,
    helper: Option<JoinHandle<()>>,
}

/// Runs calls that may block, apart from the event loop.
pub(crate) trait Blocking {
    /// Queues a call.
    fn submit(&mut self, call: BlockingCall);

    /// Appends the results of calls that have ended since the last time, in their order.
    fn reap(&mut self, done: &mut Vec<BlockingResult>);
}

impl BlockingPool {
    /// Starts the helper. It calls `wake` after each chore.
    pub(crate) fn new(wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (queue, chores) = channel();
        let finished = Arc::new(Mutex::new(Vec::new()));
        let done = finished.clone();
        let helper = Builder::new()
            .name(String::from("weir-blocking"))
            .spawn(move || work(&chores, &done, &wake))?;
        Ok(Self { queue: Some(queue), finished, helper: Some(helper) })
    }
}

impl Blocking for BlockingPool {
    fn submit(&mut self, call: BlockingCall) {
        let queue = self.queue.as_ref().expect("open until dropped");
        assert!(queue.send(call).is_ok(), "the helper lives as long as the queue");
    }

    fn reap(&mut self, done: &mut Vec<BlockingResult>) {
        done.append(&mut self.finished.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(helper) = self.helper.take() {
            // A helper that panicked has said so itself.
            drop(helper.join());
        }
    }
}

fn work(chores: &Receiver<BlockingCall>, finished: &Mutex<Vec<BlockingResult>>, wake: &impl Fn()) {
    while let Ok(chore) = chores.recv() {
        let done = match chore {
            BlockingCall::Save { owner, path, bytes } => {
                BlockingResult::Saved { owner, result: state_file::save(&path, &bytes) }
            }
            BlockingCall::Map { token, file, offset, length, block, max } => {
                let seek = |position| Ok(rustix::fs::seek(&file, position)?);
                BlockingResult::Mapped { token, result: map(seek, offset, length, block, max) }
            }
        };
        finished.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        wake();
    }
}

/// The runs of a range, as `lseek` reports them, in at most `2 * max + 1` calls.
fn map(
    seek: impl Fn(SeekFrom) -> io::Result<u64>,
    offset: u64,
    length: u64,
    block: u64,
    max: usize,
) -> io::Result<Vec<Run>> {
    let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
    if length == 0 {
        return Ok(Vec::new());
    }
    // What lies behind the end of a file would pass for a hole, but it cannot be read.
    if seek(SeekFrom::End(0))? < end {
        let problem = "the file ends before the volume does";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut at = offset;
    let mut add = |from: u64, to: u64, mapped| {
        match runs.last_mut() {
            _ if from == to => {}
            Some((length, last)) if *last == mapped => *length += to - from,
            _ => runs.push((to - from, mapped)),
        }
        runs.len() >= max || to >= end
    };
    // Each round adds a run or makes the last one longer, so the work is bounded as well.
    for _ in 0..max.max(1) {
        let data = match seek(SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            Err(error) => match Errno::from_io_error(&error) {
                // lseek(2): there is only a hole from here to the end of the file.
                Some(Errno::NXIO) => end,
                // Block devices, and file systems that keep no account of holes.
                Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    add(at, end, true);
                    break;
                }
                _ => return Err(error),
            },
        };
        let from = if data == end { end } else { data / block * block }.max(at);
        if add(at, from, false) || from == end {
            break;
        }
        let hole = match seek(SeekFrom::Hole(data)) {
            // This data may have become a hole just now; the next call finds out.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => data,
            hole => hole?,
        };
        at = hole.max(data + 1).next_multiple_of(block).min(end);
        if add(from, at, true) {
            break;
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
