//! Inspects a closed log: prints it, and applies it to an image.
//!
//! A log is opened read-only and never written to. A gateway that serves it has it locked; it is not looked at then.

use super::log::forget_cached;
use super::pages::Pages;
use crate::folder::beside;
use crate::storage::file::lock::{holder_name, holder_of};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A log that no gateway serves.
#[derive(Debug)]
pub struct ClosedLog {
    file: File,
    /// Bytes of its file or device.
    pub size: u64,
    /// What says that it has failed and must not be replayed: everything in it is on the volume's own storage.
    pub void: Option<PathBuf>,
}

/// Why a log, or an image, cannot be had.
#[derive(Debug, Error)]
pub enum LookError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Os {
        /// What was tried.
        action: &'static str,
        /// The file or device.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A gateway has it.
    #[error("{} is in use by {}", .path.display(), holder_name(*.pid))]
    InUse {
        /// The file or device.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
}

impl ClosedLog {
    /// Opens a log read-only.
    pub fn open(path: &Path) -> Result<Self, LookError> {
        let failed = |action| move |source| LookError::Os { action, path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed("open"))?;
        locked(&file, path, File::try_lock_shared)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed("measure"))?;
        // As a gateway would see it after a failure of the device.
        forget_cached(&file);
        let void = Some(beside(path, ".void")).filter(|void| void.exists());
        Ok(Self { file, size, void })
    }

    /// What is in it. What cannot be read, or is behind the end, is given as zeroes.
    pub fn reader(&self) -> LogReader<'_> {
        LogReader { pages: Pages::new(&self.file), size: self.size, unreadable: Vec::new() }
    }
}

/// Reads a log.
#[derive(Debug)]
pub struct LogReader<'a> {
    pages: Pages<'a>,
    size: u64,
    /// Places that could not be read, in the order in which that was tried, and why.
    pub unreadable: Vec<(u64, String)>,
}

impl LogReader<'_> {
    /// Fills `bytes` with what is at `at`.
    pub fn read(&mut self, at: u64, bytes: &mut [u8]) {
        let there = self.size.saturating_sub(at).min(bytes.len() as u64) as usize;
        let (there, behind) = bytes.split_at_mut(there);
        behind.fill(0);
        if let Err(error) = self.pages.read(at, there) {
            there.fill(0);
            if self.unreadable.len() < UNREADABLE_MOST
                && self.unreadable.iter().all(|&(known, _)| known != at)
            {
                self.unreadable.push((at, error.to_string()));
            }
        }
    }
}

/// A file or device that records of a log are applied to.
#[derive(Debug)]
pub struct Image {
    file: File,
    path: PathBuf,
    size: u64,
    /// It was made just now, and grows as far as records reach.
    made: bool,
}

impl Image {
    /// Makes a new file; one that exists is an error.
    pub fn create(path: &Path) -> Result<Self, LookError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Self::of(options.open(path), path, "make", true)
    }

    /// Opens one to change it. A gateway that serves it keeps it.
    pub fn open(path: &Path) -> Result<Self, LookError> {
        let device = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(if device { libc::O_EXCL } else { 0 });
        Self::of(options.open(path), path, "open", false)
    }

    fn of(
        opened: io::Result<File>,
        path: &Path,
        action: &'static str,
        made: bool,
    ) -> Result<Self, LookError> {
        let failed = |action| move |source| LookError::Os { action, path: path.to_owned(), source };
        let mut file = opened.map_err(failed(action))?;
        locked(&file, path, File::try_lock)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed("measure"))?;
        Ok(Self { file, path: path.to_owned(), size, made })
    }

    /// How many bytes it has, if that is settled.
    pub fn size(&self) -> Option<u64> {
        (!self.made).then_some(self.size)
    }

    /// Writes bytes.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), LookError> {
        self.grow(at + bytes.len() as u64)?;
        self.file.write_all_at(bytes, at).map_err(|source| self.failed("write to", source))
    }

    /// Makes a range read as zeroes.
    pub fn zero(&mut self, at: u64, length: u64) -> Result<(), LookError> {
        self.grow(at + length)?;
        if punch(&self.file, at, length) {
            return Ok(());
        }
        let zeroes = vec![0; length.min(1 << 20) as usize];
        let (mut at, end) = (at, at + length);
        while at < end {
            let piece = &zeroes[..(end - at).min(zeroes.len() as u64) as usize];
            self.file.write_all_at(piece, at).map_err(|source| self.failed("write to", source))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<(), LookError> {
        self.file.sync_all().map_err(|source| self.failed("flush", source))
    }

    fn grow(&mut self, end: u64) -> Result<(), LookError> {
        if self.made && end > self.size {
            self.file.set_len(end).map_err(|source| self.failed("extend", source))?;
            self.size = end;
        }
        Ok(())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> LookError {
        LookError::Os { action, path: self.path.clone(), source }
    }
}

fn locked(
    file: &File,
    path: &Path,
    lock: impl FnOnce(&File) -> Result<(), TryLockError>,
) -> Result<(), LookError> {
    lock(file).map_err(|error| match error {
        TryLockError::WouldBlock => {
            LookError::InUse { path: path.to_owned(), pid: holder_of(file) }
        }
        TryLockError::Error(source) => {
            LookError::Os { action: "lock", path: path.to_owned(), source }
        }
    })
}

/// Gives space back; whether the file system can do that.
fn punch(file: &File, at: u64, length: u64) -> bool {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length).is_ok()
}

/// How many places that cannot be read are remembered.
const UNREADABLE_MOST: usize = 1_000;
