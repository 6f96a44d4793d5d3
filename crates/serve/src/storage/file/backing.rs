//! Opens the file or block device behind a volume; a file is created on first use.

use super::lock::{holder_name, holder_of, lock};
use crate::buffer::Pool;
use crate::config::{FileStore, IoMode, Volume};
use crate::folder::{can_make, folder};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tracing::warn;
use weir_flow::units::ByteCount;

/// An open file or device.
#[derive(Debug)]
pub(crate) struct Backing {
    file: Arc<File>,
    /// Bytes of the volume.
    pub(crate) capacity: u64,
    /// Whether the page cache is passed by.
    pub(crate) direct: bool,
    /// Whether the file was made just now.
    pub(crate) created: bool,
    /// Whether space can be given back.
    pub(crate) holes: bool,
}

/// Why a volume cannot be served.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The operating system refused.
    #[error("volume `{volume}`: cannot {action} {}: {source}", .path.display())]
    Os {
        /// The volume.
        volume: String,
        /// What was tried.
        action: &'static str,
        /// The file or device.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process has the file.
    #[error(
        "volume `{volume}`: {} is in use by {}; two writers would destroy it",
        .path.display(), holder_name(*.pid)
    )]
    InUse {
        /// The volume.
        volume: String,
        /// The file or device.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// A new file needs a size.
    #[error(
        "volume `{volume}`: {} does not exist; give `size` to have it made",
        .path.display()
    )]
    NoSize {
        /// The volume.
        volume: String,
        /// The file.
        path: PathBuf,
    },
    /// What is there is larger than what was asked for.
    #[error(
        "volume `{volume}`: {} has {found}, but `size` is {wanted}; serving it would hide its end. \
         Leave `size` out to serve all of it",
        .path.display()
    )]
    Larger {
        /// The volume.
        volume: String,
        /// The file or device.
        path: PathBuf,
        /// Its size.
        found: ByteCount,
        /// The configured size.
        wanted: ByteCount,
    },
    /// A device is smaller than what was asked for, and cannot grow.
    #[error(
        "volume `{volume}`: device {} has {found}, but `size` is {wanted}",
        .path.display()
    )]
    Smaller {
        /// The volume.
        volume: String,
        /// The device.
        path: PathBuf,
        /// Its size.
        found: ByteCount,
        /// The configured size.
        wanted: ByteCount,
    },
    /// There is not a single whole block, or a part of one is left over.
    #[error(
        "volume `{volume}`: {} has {found}, which is not a whole number of {block_size}-byte blocks",
        .path.display()
    )]
    PartBlock {
        /// The volume.
        volume: String,
        /// The file or device.
        path: PathBuf,
        /// Its size.
        found: ByteCount,
        /// The volume's block size.
        block_size: u32,
    },
    /// The blocks of an upstream are larger than those of the volume, or do not fill them.
    #[error(
        "volume `{volume}`: upstream `{upstream}` has {blocks} blocks of {found} bytes, which \
         `block_size = {block_size}` does not fit; {}",
        fitting(*.found)
    )]
    Blocks {
        /// The volume.
        volume: String,
        /// The upstream.
        upstream: String,
        /// How many blocks it has.
        blocks: u64,
        /// Their size.
        found: u32,
        /// The volume's block size.
        block_size: u32,
    },
    /// An upstream has less than is to be used of it.
    #[error(
        "volume `{volume}`: upstream `{upstream}` has {found}, but `size` of its store is {wanted}"
    )]
    SmallUnit {
        /// The volume.
        volume: String,
        /// The upstream.
        upstream: String,
        /// Its size.
        found: ByteCount,
        /// The configured size.
        wanted: ByteCount,
    },
    /// A store of a stripe has no room for one turn.
    #[error(
        "volume `{volume}`: its store `{store}` is smaller than one chunk of {chunk}; make the store \
         larger, or `chunk` smaller before there is data"
    )]
    NoChunk {
        /// The volume.
        volume: String,
        /// The store, or its upstream.
        store: String,
        /// Bytes of a chunk.
        chunk: ByteCount,
    },
    /// All stores together are more than a volume can have.
    #[error(
        "volume `{volume}`: its stores have more than 8 EiB together; use fewer, or smaller ones"
    )]
    TooLarge {
        /// The volume.
        volume: String,
    },
    /// A modelled device has addresses, and fewer than the volumes on it.
    #[error(
        "backend `{backend}`: the volumes on it have {wanted}, but the device has {found}; give it more \
         `blocks` or `capacity`, or the volumes less `size`"
    )]
    SmallDevice {
        /// The modelled device.
        backend: String,
        /// Its size.
        found: ByteCount,
        /// What is to be on it.
        wanted: ByteCount,
    },
    /// Direct I/O was asked for by name.
    #[error(
        "volume `{volume}`: {} cannot do direct I/O in {block_size}-byte blocks; \
         use `io = \"auto\"` or `io = \"buffered\"`",
        .path.display()
    )]
    NotDirect {
        /// The volume.
        volume: String,
        /// The file or device.
        path: PathBuf,
        /// The volume's block size.
        block_size: u32,
    },
}

impl OpenError {
    /// The file or device that it is about.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Os { path, .. }
            | Self::InUse { path, .. }
            | Self::NoSize { path, .. }
            | Self::Larger { path, .. }
            | Self::Smaller { path, .. }
            | Self::PartBlock { path, .. }
            | Self::NotDirect { path, .. } => Some(path),
            Self::Blocks { .. }
            | Self::SmallUnit { .. }
            | Self::NoChunk { .. }
            | Self::TooLarge { .. }
            | Self::SmallDevice { .. } => None,
        }
    }

    /// The keys of the configuration that it is about, the first of which counts that is written.
    pub(crate) const fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Larger { .. } | Self::Smaller { .. } => &["size", "file"],
            Self::PartBlock { .. } | Self::Blocks { .. } => &["block_size", "file"],
            Self::NotDirect { .. } => &["io", "file"],
            Self::NoChunk { .. } => &["chunk", "layout", "stores"],
            _ => &["file", "stores"],
        }
    }
}

/// What to write for blocks of an upstream of this size.
fn fitting(found: u32) -> String {
    match found {
        512 | 4_096 => format!("set `block_size = {found}`"),
        _ => String::from("volumes have blocks of 512 or 4096 bytes"),
    }
}

impl Backing {
    /// Opens, and makes or extends if need be, the `store` of `volume`. After an error no file is there that was not there
    /// before.
    pub(crate) fn open(volume: &Volume, store: &FileStore) -> Result<Self, OpenError> {
        let failed = |action: &'static str| {
            move |source: io::Error| OpenError::Os {
                volume: volume.name.clone(),
                action,
                path: store.path.clone(),
                source,
            }
        };
        let exists = store.path.try_exists().map_err(failed("look for"))?;
        if !exists && store.size.is_none() {
            return Err(OpenError::NoSize {
                volume: volume.name.clone(),
                path: store.path.clone(),
            });
        }
        let device = exists
            && fs::metadata(&store.path).map_err(failed("look at"))?.file_type().is_block_device();
        // On a block device O_EXCL keeps file systems and volume managers away, and is refused if
        // one of them has it.
        let exclusive = if device && !volume.read_only { libc::O_EXCL } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(!volume.read_only || !exists).create(!exists).mode(0o600);
        options.custom_flags(exclusive);
        let in_use =
            |pid| OpenError::InUse { volume: volume.name.clone(), path: store.path.clone(), pid };
        let open = |options: &OpenOptions| {
            let file = options.open(&store.path).map_err(|source| match source.kind() {
                io::ErrorKind::ResourceBusy => in_use(None),
                _ => failed("open")(source),
            })?;
            lock(&file).map_err(|error| match error {
                TryLockError::WouldBlock => in_use(holder_of(&file)),
                TryLockError::Error(source) => failed("lock")(source),
            })?;
            Ok(file)
        };
        let mut file: File = open(&options)?;
        let mut made = Made((!exists).then_some((&volume.name, &store.path)));
        let found = file.seek(SeekFrom::End(0)).map_err(failed("measure"))?;
        let capacity = store.size.unwrap_or(found);
        let sizes = (ByteCount(found), ByteCount(capacity));
        check_size(volume, store, device, sizes)?;
        if capacity > found {
            file.set_len(capacity).map_err(failed("extend"))?;
            file.sync_all().map_err(failed("extend"))?;
        }
        if !exists {
            // A new file is only durable together with its name.
            File::open(folder(&store.path))
                .and_then(|folder| folder.sync_all())
                .map_err(failed("make durable"))?;
        }
        let mut direct = false;
        if store.io != IoMode::Buffered {
            // Before it is opened again: it is opened, and locked, by one at a time.
            drop(file);
            options.create(false).custom_flags(exclusive | libc::O_DIRECT);
            let past_cache = open(&options);
            if matches!(past_cache, Err(OpenError::InUse { .. })) {
                // Another gateway has taken the file in between: it is not ours to remove.
                made.0 = None;
            }
            let past_cache =
                past_cache.ok().filter(|file| can_read_blocks(file, volume.block_size, capacity));
            direct = past_cache.is_some();
            file = match past_cache {
                Some(file) => file,
                None if store.io == IoMode::Direct => {
                    return Err(OpenError::NotDirect {
                        volume: volume.name.clone(),
                        path: store.path.clone(),
                        block_size: volume.block_size,
                    });
                }
                None => open(options.custom_flags(exclusive)).inspect_err(|_| made.0 = None)?,
            };
        }
        let holes = volume.read_only || device || can_make_holes(&file, capacity.max(found));
        made.0 = None;
        Ok(Self { file: Arc::new(file), capacity, direct, created: !exists, holes })
    }

    /// Whether the `store` of `volume` could be opened, or made: an error as [`open`](Self::open) would give
    /// it, or the size that it would have. Changes nothing.
    pub(crate) fn check(volume: &Volume, store: &FileStore) -> Result<u64, OpenError> {
        let (name, path) = (volume.name.clone(), store.path.clone());
        let failed = |action: &'static str| {
            let (volume, path) = (name.clone(), path.clone());
            move |source: io::Error| OpenError::Os { volume, action, path, source }
        };
        if !path.try_exists().map_err(failed("look for"))? {
            let Some(size) = store.size else {
                return Err(OpenError::NoSize { volume: name, path });
            };
            can_make(&path).map_err(failed("make"))?;
            let found = ByteCount(0);
            return check_size(volume, store, false, (found, ByteCount(size))).map(|()| size);
        }
        let device = fs::metadata(&path).map_err(failed("look at"))?.file_type().is_block_device();
        let mut options = OpenOptions::new();
        // Opening something that is no file must not wait. A device is opened as for good, to see whether a file system or
        // a volume manager has it.
        let exclusive = if device && !volume.read_only { libc::O_EXCL } else { 0 };
        options.read(true).write(!volume.read_only).custom_flags(libc::O_NONBLOCK | exclusive);
        let mut file = options.open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => {
                OpenError::InUse { volume: name.clone(), path: path.clone(), pid: None }
            }
            _ => failed("open")(source),
        })?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { volume: name, path, pid: holder_of(&file) });
            }
            locked => locked.map_err(|error| failed("lock")(error.into()))?,
        }
        let found = file.seek(SeekFrom::End(0)).map_err(failed("measure"))?;
        let wanted = store.size.unwrap_or(found);
        check_size(volume, store, device, (ByteCount(found), ByteCount(wanted)))?;
        Ok(wanted)
    }

    /// The size of the file or device now, in bytes.
    pub(crate) fn measure(&self) -> io::Result<u64> {
        (&*self.file).seek(SeekFrom::End(0))
    }

    /// Extends the file to `size` bytes if it is shorter. Devices cannot be extended.
    pub(crate) fn grow(&self, size: u64) -> io::Result<()> {
        if self.measure()? >= size {
            return Ok(());
        }
        self.file.set_len(size)?;
        self.file.sync_all()
    }

    /// Bytes of the volume for which the file system has allocated no space: writes there take free space of the
    /// file system. 0 for devices.
    pub(crate) fn unallocated(&self) -> io::Result<u64> {
        let metadata = self.file.metadata()?;
        let allocated = metadata.blocks().saturating_mul(STAT_BLOCK);
        if !metadata.is_file() || allocated >= self.capacity {
            return Ok(0);
        }
        // A file system that compresses allocates less than the size of a file without holes.
        let hole = rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Hole(0))?;
        Ok(if hole < self.capacity { self.capacity - allocated } else { 0 })
    }

    /// Whether [`grow`](Self::grow) makes sense.
    pub(crate) fn can_grow(&self, size: u64) -> io::Result<()> {
        let found = self.measure()?;
        if found < size && self.file.metadata()?.file_type().is_block_device() {
            let message = format!("the device has {}", ByteCount(found));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// The open file, for a helper thread.
    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Makes everything written so far durable, and waits for it.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A file of a volume that was made and is not open for good: removed when this is dropped.
struct Made<'a>(Option<(&'a String, &'a PathBuf)>);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some((volume, path)) = self.0 {
            remove_made(volume, path);
        }
    }
}

/// Removes a file that was made for a volume in vain: nothing was written to it since.
pub(crate) fn remove_made(volume: &str, path: &Path) {
    if let Err(problem) = fs::remove_file(path) {
        let file = path.display();
        warn!(volume, %file, %problem, "cannot remove a file that was made for nothing");
    }
}

impl AsRawFd for Backing {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn check_size(
    volume: &Volume,
    store: &FileStore,
    device: bool,
    (found, wanted): (ByteCount, ByteCount),
) -> Result<(), OpenError> {
    let (name, path) = (volume.name.clone(), store.path.clone());
    let block_size = volume.block_size;
    // One of several stores may have more than is used: where the next one begins is written down.
    if wanted.0 < found.0 && volume.stores.len() == 1 {
        return Err(OpenError::Larger { volume: name, path, found, wanted });
    }
    if wanted.0 > found.0 && device {
        return Err(OpenError::Smaller { volume: name, path, found, wanted });
    }
    if wanted.0 == 0 || !wanted.0.is_multiple_of(u64::from(block_size)) {
        return Err(OpenError::PartBlock { volume: name, path, found, block_size });
    }
    Ok(())
}

/// Asks the file system by a hole behind the `end` of the file, which changes nothing.
fn can_make_holes(file: &File, end: u64) -> bool {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, end, 4096).is_ok()
}

/// Asks the file itself: a file system may take the flag and still refuse small blocks.
fn can_read_blocks(file: &File, block_size: u32, capacity: u64) -> bool {
    let mut pool = Pool::new(u64::from(u32::MAX));
    let Some(mut buffer) = pool.take(block_size as usize) else { return false };
    let Some(buffer) = std::rc::Rc::get_mut(&mut buffer) else { return false };
    let block = &mut buffer.bytes_mut()[..block_size as usize];
    let last = capacity - u64::from(block_size);
    file.read_exact_at(block, last).is_ok()
}

/// Bytes per block of `st_blocks`: stat(2).
const STAT_BLOCK: u64 = 512;
