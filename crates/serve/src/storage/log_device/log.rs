//! The file or device of a log: creates it, opens it, and matches it with its volume.
//!
//! A volume whose log is missing has lost what was acknowledged and is not on its stores yet. So a volume with a
//! state file has a mark beside it, `STATE.log`, that names its log; without that log it is not served. Removing
//! the mark is how a person accepts the loss.

use super::pages::Pages;
use crate::buffer::Pool;
use crate::config::{IoMode, Log, Volume};
use crate::folder::{beside, can_make};
use crate::storage::file::backing::remove_made;
use crate::storage::file::lock::{holder_name, holder_of, lock};
use crate::storage::random::Random;
use crate::storage::state_file;
use crate::storage::state_file::StateError;
use rustix::fs::{Advice, fadvise};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::rc::Rc;
use thiserror::Error;
use tracing::{info, warn};
use weir_flow::cache::writeback::{Recovered, Refusal, Settings, format_new, recover};
use weir_flow::settings::Settings as _;
use weir_flow::units::ByteCount;

/// An open log.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: File,
    /// Where a log that has failed is remembered as void.
    pub(crate) void: PathBuf,
    /// Its name.
    pub(crate) id: [u8; 16],
    settings: Settings,
    made: Made,
}

/// What was made for a log when it was opened, to be removed if that was in vain.
#[derive(Debug, Default)]
struct Made {
    log: Option<PathBuf>,
    mark: Option<PathBuf>,
}

/// Why a volume's log cannot be used. Nothing was changed.
#[derive(Debug, Error)]
pub enum LogError {
    /// The operating system refused.
    #[error("volume `{volume}`: cannot {action} its log {}: {source}", .path.display())]
    Os {
        /// The volume.
        volume: String,
        /// What was tried.
        action: &'static str,
        /// The log.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "volume `{volume}`: its log {} is in use by {}; two writers would destroy it",
        .path.display(), holder_name(*.pid)
    )]
    InUse {
        /// The volume.
        volume: String,
        /// The log.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// It is of no use, or must not be used.
    #[error("volume `{volume}`: {}: {refusal}", .path.display())]
    Refused {
        /// The volume.
        volume: String,
        /// The log.
        path: PathBuf,
        /// Why.
        refusal: Refusal<io::Error>,
    },
    /// It is too small.
    #[error(
        "volume `{volume}`: its log {} has {found}, and the least is 16 MiB; make it larger",
        .path.display()
    )]
    Small {
        /// The volume.
        volume: String,
        /// The log.
        path: PathBuf,
        /// Its size.
        found: ByteCount,
    },
    /// It has failed, and must never be replayed.
    #[error(
        "volume `{volume}`: its log {} has failed, as {} says, and everything in it is on the volume's own \
         storage: remove both to begin with a new log",
        .path.display(), .void.display()
    )]
    Void {
        /// The volume.
        volume: String,
        /// The log.
        path: PathBuf,
        /// Where that is remembered.
        void: PathBuf,
    },
    /// The volume had another one, which may have what is nowhere else.
    #[error(
        "volume `{volume}`: its log was {}, which may have acknowledged writes that are nowhere else, and it is \
         not {here}; put it back, or accept the loss of these writes by removing {}",
        .was.display(), .mark.display()
    )]
    Missing {
        /// The volume.
        volume: String,
        /// Where its log was.
        was: PathBuf,
        /// What there is instead.
        here: &'static str,
        /// What remembers it.
        mark: PathBuf,
    },
    /// The list of its lost ranges cannot be read.
    #[error("volume `{volume}`: its lost ranges: {source}")]
    Lost {
        /// The volume.
        volume: String,
        /// Why not.
        source: StateError,
    },
    /// The list of its lost ranges is not what was written.
    #[error(
        "volume `{volume}`: its lost ranges: {} is damaged; put it back from a backup, or move it away: reads of these \
         ranges return older data then",
        .path.display()
    )]
    LostDamaged {
        /// The volume.
        volume: String,
        /// The list.
        path: PathBuf,
    },
    /// What remembers the log cannot be read or replaced.
    #[error("volume `{volume}`: the mark of its log: {source}")]
    Mark {
        /// The volume.
        volume: String,
        /// Why not.
        source: StateError,
    },
}

impl LogError {
    /// Whether a log is damaged or missing, so that an operator must inspect it.
    pub const fn is_damage(&self) -> bool {
        !matches!(self, Self::Os { .. } | Self::InUse { .. } | Self::Small { .. })
    }
}

/// How many bytes a log that is there, or shall be made, has.
pub(crate) fn capacity(log: &Log) -> u64 {
    let found = File::open(&log.path).and_then(|mut file| file.seek(SeekFrom::End(0))).ok();
    let whole = |bytes: u64| bytes / PAGE * PAGE;
    log.size.or(found.filter(|&found| found > 0)).map_or(NEW, whole)
}

/// Bytes of a segment, by the bytes of the log: few enough that there are a dozen.
pub(crate) fn segment(capacity: u64) -> u64 {
    (capacity / 16 / PAGE * PAGE).clamp(SEGMENT_LEAST, SEGMENT_MOST)
}

/// Opens a volume's log, or makes it, and says what is in it.
pub(super) fn open(
    volume: &Volume,
    log: &Log,
    settings: &Settings,
    random: &mut dyn Random,
) -> Result<(LogFile, Recovered), LogError> {
    let name = || volume.name.clone();
    let path = || log.path.clone();
    let failed =
        |action| move |source| LogError::Os { volume: name(), action, path: path(), source };
    if settings.validate().is_err() {
        let found = ByteCount(settings.capacity);
        return Err(LogError::Small { volume: name(), path: path(), found });
    }
    let void = beside(&log.path, ".void");
    if void.exists() {
        return Err(LogError::Void { volume: name(), path: path(), void });
    }
    let marked = Mark::of(volume).load(volume)?;
    let exists = log.path.exists();
    if let Some(mark) = marked.as_ref().filter(|_| !exists) {
        return Err(mark.missing(volume, "there"));
    }
    let file = open_file(volume, log, false)?;
    let found = (&file).seek(SeekFrom::End(0)).map_err(failed("measure"))?;
    let device = file.metadata().map_err(failed("look at"))?.file_type().is_block_device();
    if is_blank(&file, device, found).map_err(failed("read"))? {
        if let Some(mark) = &marked {
            return Err(mark.missing(volume, "what was there"));
        }
        let made = make(&file, settings, device, random).map_err(failed("make"));
        made.inspect_err(|_| {
            if !exists {
                remove_made(&volume.name, &log.path);
            }
        })?;
    }
    // It is opened, and locked, by one at a time.
    drop(file);
    let past_cache = if log.io == IoMode::Buffered { None } else { direct(volume, log) };
    let file = match past_cache {
        Some(file) => file,
        None if log.io == IoMode::Direct => {
            let source = io::Error::other("it cannot do direct I/O in 512-byte blocks");
            return Err(failed("open")(source));
        }
        None => {
            let file = open_file(volume, log, false)?;
            forget_cached(&file);
            file
        }
    };
    let size = (&file).seek(SeekFrom::End(0)).map_err(failed("measure"))?;
    let refused = |refusal| LogError::Refused { volume: name(), path: path(), refusal };
    let mut pages = Pages::new(&file);
    let mut read = |at: u64, bytes: &mut [u8]| pages.read(at, bytes);
    let recovered = recover(&mut read, size, settings).map_err(refused)?;
    drop(pages);
    let id = recovered.log();
    let made = Made { log: (!exists).then(path), mark: None };
    let mut opened = LogFile { file, void, id, settings: *settings, made };
    match &marked {
        Some(mark) if mark.id != id => return Err(mark.missing(volume, "this one")),
        Some(_) => {}
        None => match (Mark { id, path: path() }).save(volume) {
            Ok(()) => opened.made.mark = Mark::of(volume).0,
            Err(error) => {
                opened.unmake(&volume.name);
                return Err(error);
            }
        },
    }
    let (bytes, records) = recovered.dirty();
    info!(
        volume = volume.name,
        log = %log.path.display(),
        size = %ByteCount(settings.capacity),
        dirty = %ByteCount(bytes),
        records,
        "log"
    );
    Ok((opened, recovered))
}

/// Whether a volume's log could be opened, or made. Changes nothing, and does not read it.
pub(crate) fn check(volume: &Volume, log: &Log) -> Result<(), LogError> {
    let (name, path) = (volume.name.clone(), log.path.clone());
    let failed = |action: &'static str| {
        let (volume, path) = (name.clone(), path.clone());
        move |source: io::Error| LogError::Os { volume, action, path, source }
    };
    let void = beside(&path, ".void");
    if void.exists() {
        return Err(LogError::Void { volume: name, path, void });
    }
    if !path.try_exists().map_err(failed("look for"))? {
        return can_make(&path).map_err(failed("make"));
    }
    let mut options = OpenOptions::new();
    // Opening something that is no file must not wait.
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(&path).map_err(failed("open"))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(LogError::InUse { volume: name, path, pid: holder_of(&file) })
        }
        locked => locked.map_err(|error| failed("lock")(error.into())),
    }
}

impl LogFile {
    /// Whether a start would find nothing in it that is not known to be upstream. No write to it is in flight.
    pub(crate) fn is_clean(&self) -> bool {
        let Ok(size) = (&self.file).seek(SeekFrom::End(0)) else { return false };
        let mut pages = Pages::new(&self.file);
        let mut read = |at: u64, bytes: &mut [u8]| pages.read(at, bytes);
        let found = recover(&mut read, size, &self.settings);
        found.is_ok_and(|recovered| recovered.dirty() == (0, 0))
    }

    /// Closes a log that was opened in vain, and removes what was made for it. Nothing was written to it since.
    pub(crate) fn unmake(self, volume: &str) {
        // The mark first: without its log the volume would not be served.
        for path in self.made.mark.iter().chain(&self.made.log) {
            remove_made(volume, path);
        }
    }
}

/// What the page cache shows after a flush that failed may be nowhere else, and must not be found.
pub(super) fn forget_cached(file: &File) {
    // It is advice, and may be refused.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Sees to it that a volume that is configured without a log has none with anything in it.
pub(super) fn none(volume: &Volume) -> Result<(), LogError> {
    let Some(mark) = Mark::of(volume).load(volume)? else { return Ok(()) };
    Err(mark.missing(volume, "configured"))
}

fn open_file(volume: &Volume, log: &Log, direct: bool) -> Result<File, LogError> {
    let name = || volume.name.clone();
    let failed = |action| {
        move |source| LogError::Os { volume: name(), action, path: log.path.clone(), source }
    };
    let in_use = |pid| LogError::InUse { volume: name(), path: log.path.clone(), pid };
    let device = log.path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(!direct).truncate(false).mode(0o600);
    options.custom_flags(
        if device { libc::O_EXCL } else { 0 } | if direct { libc::O_DIRECT } else { 0 },
    );
    let file = options.open(&log.path).map_err(|source| match source.kind() {
        io::ErrorKind::ResourceBusy => in_use(None),
        _ => failed("open")(source),
    })?;
    lock(&file).map_err(|error| match error {
        TryLockError::WouldBlock => in_use(holder_of(&file)),
        TryLockError::Error(source) => failed("lock")(source),
    })?;
    Ok(file)
}

/// The log past the page cache, if it can be read so in sectors.
fn direct(volume: &Volume, log: &Log) -> Option<File> {
    let file = open_file(volume, log, true).ok()?;
    let mut buffer = Pool::new(PAGE).take(512)?;
    let sector = &mut Rc::get_mut(&mut buffer)?.bytes_mut()[..512];
    file.read_exact_at(sector, 512).ok()?;
    Some(file)
}

/// Whether a device begins with nothing, or there is nothing but zeroes in a file: it was left so by a gateway that was killed
/// while it made the log.
fn is_blank(file: &File, device: bool, size: u64) -> io::Result<bool> {
    let end = if device { FRONT } else { size };
    let mut bytes = vec![0; ZEROES];
    let mut at = 0;
    while at < end {
        let most = if at == 0 { FRONT } else { ZEROES as u64 };
        let piece = &mut bytes[..(end - at).min(most) as usize];
        file.read_exact_at(piece, at)?;
        if piece.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

/// Makes a new log. It is filled with zeroes first, so that writing to it allocates nothing.
fn make(file: &File, settings: &Settings, device: bool, random: &mut dyn Random) -> io::Result<()> {
    let mut id = [0; 16];
    random.fill(&mut id)?;
    if !device {
        let zeroes = vec![0; ZEROES];
        let mut at = 0;
        while at < settings.capacity {
            let length = (settings.capacity - at).min(zeroes.len() as u64);
            file.write_all_at(&zeroes[..length as usize], at)?;
            at += length;
        }
        // What is made in part is not taken for a log before the super blocks are there.
        file.sync_all()?;
    }
    for (at, bytes) in format_new(settings, id, 1, 1) {
        file.write_all_at(&bytes, at)?;
    }
    file.sync_all()
}

/// What a volume remembers of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    id: [u8; 16],
    path: PathBuf,
}

/// Where a volume's mark is; nowhere for one without a state file.
struct Place(Option<PathBuf>);

impl Mark {
    fn of(volume: &Volume) -> Place {
        Place(volume.state.as_ref().map(|state| beside(state, ".log")))
    }

    /// A volume must not be served without the log that the mark names.
    fn missing(&self, volume: &Volume, here: &'static str) -> LogError {
        let mark = Self::of(volume).0.unwrap_or_default();
        LogError::Missing { volume: volume.name.clone(), was: self.path.clone(), here, mark }
    }

    fn save(&self, volume: &Volume) -> Result<(), LogError> {
        let Some(place) = Self::of(volume).0 else {
            warn!(
                volume = volume.name,
                "has no `state` file to remember its log in: a missing log will not be noticed"
            );
            return Ok(());
        };
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let text = format!("{:032x} {}\n", u128::from_be_bytes(self.id), path.display());
        let failed = |source| LogError::Mark { volume: volume.name.clone(), source };
        state_file::save(&place, text.as_bytes()).map_err(failed)
    }
}

impl Place {
    fn load(&self, volume: &Volume) -> Result<Option<Mark>, LogError> {
        let Some(place) = &self.0 else { return Ok(None) };
        let failed = |source| LogError::Mark { volume: volume.name.clone(), source };
        let Some(bytes) = state_file::read(place, MARK_MOST).map_err(failed)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        let parsed = text.trim_end().split_once(' ').and_then(|(hex, path)| {
            let id = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32)?;
            Some(Mark { id: id.to_be_bytes(), path: PathBuf::from(path) })
        });
        let foreign = || StateError::Damaged {
            path: place.clone(),
            damage: state_file::StateDamage::Foreign,
        };
        parsed.map(Some).ok_or_else(|| failed(foreign()))
    }
}

impl AsRawFd for LogFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Bytes at the front of a log: both super blocks.
const FRONT: u64 = 8192;

/// Bytes that are read, or written, at once while a log is made.
const ZEROES: usize = 1 << 20;

/// What a log's size is a multiple of.
const PAGE: u64 = 4096;

/// The default size of a new log, in bytes.
const NEW: u64 = 1 << 30;

/// Bytes of the smallest and the largest segment.
const SEGMENT_LEAST: u64 = 2 << 20;
const SEGMENT_MOST: u64 = 64 << 20;

/// More bytes than any mark has.
const MARK_MOST: usize = 8192;
