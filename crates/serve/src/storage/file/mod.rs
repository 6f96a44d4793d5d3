//! Files and devices: opening them, and the drivers that read and write them.
//!
//! A [`Driver`] takes [`Io`]s and gives each back as [`Done`], in any order. There are two:
//! [`uring`] where the kernel offers a ring, [`threads`] elsewhere. Both do the same operations with
//! the same meaning.

pub(crate) mod atomic_journal;
pub(crate) mod backing;
pub(crate) mod lock;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod threads;
pub(crate) mod uring;

use crate::storage::io::{Done, Io};
use std::io;
use std::os::fd::RawFd;

/// Does I/O on files without waiting for it.
pub(crate) trait Driver {
    /// What operators call it.
    fn name(&self) -> &'static str;

    /// Takes an operation on an open file. It may stay queued until [`flush`](Self::flush).
    fn submit(&mut self, fd: RawFd, io: Io);

    /// Hands everything queued to the kernel.
    fn flush(&mut self) -> io::Result<()>;

    /// Collects what has ended since the last call. True if operations continue that need another
    /// [`flush`](Self::flush).
    fn reap(&mut self, done: &mut Vec<Done>) -> bool;
}

/// Zeroes for files whose file system cannot make a hole.
const ZEROES: usize = 1 << 20;

/// Whether an error of `fallocate` means that holes cannot be made here, so that zeroes have to be
/// written: not at all, not on this kind of file, or not at this alignment of a block device.
const fn no_holes(code: i32) -> bool {
    matches!(code, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::ENODEV)
}

/// The device gave fewer bytes than the volume has: the file was cut behind our back.
fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the volume does")
}
