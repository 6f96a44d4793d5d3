//! The state file of a volume: what must survive a restart.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `weirstat` |
//! | 8..12 | version of the format, now 1 |
//! | 12..16 | length of the reservations |
//! | 16..20 | length of the sanitize parameters |
//! | 20 | sanitize: 0 none, 1 running, 2 failed |
//! | 21..24 | zero |
//! | 24.. | the reservations, then the sanitize parameters |
//! | last 4 | CRC32C of everything before |
//!
//! Numbers are little-endian. The first twelve bytes and the last four mean the same in every version,
//! so that a newer file is not taken for a damaged one.
//!
//! A file is replaced whole: written under another name in the same folder, made durable, renamed.
//! After a crash there is the old one or the new one.

use crate::folder::{can_make, folder};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What must survive a restart of a volume's gateway. Its parts are opaque here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The persistent reservations, as the unit encodes them. Empty: there are none.
    pub(crate) reservations: Vec<u8>,
    /// Whether the volume's data is being destroyed.
    pub(crate) sanitize: Sanitize,
}

/// How far the destruction of a volume's data has come. The bytes are the parameters with which it was
/// asked for, as the job encodes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sanitize {
    /// None was asked for, or the last one has ended well.
    #[default]
    None,
    /// One has begun; it continues after a restart.
    Running(Vec<u8>),
    /// The last one failed, and the volume is of no use until another one has ended well or the host
    /// has left the failure mode; the parameters say which ways out there are.
    Failed(Vec<u8>),
}

/// Why a state file could not be read or replaced.
#[derive(Debug, Error)]
pub enum StateError {
    /// The operating system refused.
    #[error("state file {}: cannot {action}: {source}", .path.display())]
    Os {
        /// The state file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It is not what was written.
    #[error(
        "state file {}: {damage}; to start without it, move it away: reservations are forgotten \
         then, and a sanitize that has not ended has to be asked for again",
        .path.display()
    )]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        damage: StateDamage,
    },
    /// It is whole, but of a format that came later.
    #[error(
        "state file {}: written in format {version} by a newer release, and this one knows formats \
         up to {VERSION}; start that release, or move the file away to start without reservations",
        .path.display()
    )]
    Newer {
        /// The state file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
}

/// What is wrong with a state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StateDamage {
    /// A folder, a device or the like.
    #[error("it is not a file")]
    NotFile,
    /// It begins with something else.
    #[error("it is not the state file of a volume")]
    Foreign,
    /// It is cut off, or longer than any that is written.
    #[error("it has {0} bytes, which no state file has")]
    Length(u64),
    /// Some of its bytes have changed.
    #[error("it is damaged: its checksum is wrong")]
    Checksum,
    /// It is intact, but has a value that no version writes.
    #[error("its contents contradict each other")]
    Contents,
}

impl StateError {
    /// Whether an operator must inspect the file.
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Newer { .. })
    }
}

impl State {
    /// The contents of a state file; `None` if they would be longer than [`LENGTH_MAX`].
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let (kind, parameters): (u8, &[u8]) = match &self.sanitize {
            Sanitize::None => (0, &[]),
            Sanitize::Running(parameters) => (1, parameters),
            Sanitize::Failed(parameters) => (2, parameters),
        };
        let length = LENGTH_MIN.checked_add(self.reservations.len())?;
        if length.checked_add(parameters.len())? > LENGTH_MAX {
            return None;
        }
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.reservations.len() as u32).to_le_bytes());
        bytes.extend((parameters.len() as u32).to_le_bytes());
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend(&self.reservations);
        bytes.extend(parameters);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        Some(bytes)
    }
}

/// What the state file at `path` says; `None` if there is no such file. Blocks; for use before anything
/// is served.
pub(crate) fn load(path: &Path) -> Result<Option<State>, StateError> {
    let Some(bytes) = read(path, LENGTH_MAX)? else { return Ok(None) };
    match decode(&bytes) {
        Ok(state) => Ok(Some(state)),
        Err(Problem::Damage(damage)) => {
            Err(StateError::Damaged { path: path.to_path_buf(), damage })
        }
        Err(Problem::Newer(version)) => {
            Err(StateError::Newer { path: path.to_path_buf(), version })
        }
    }
}

/// Whether a state file at `path` could be read and replaced. Changes nothing.
pub(crate) fn check(path: &Path) -> Result<(), StateError> {
    can_make(path).map_err(failed(path, "write it"))?;
    match path.metadata() {
        Ok(found) if !found.is_file() => {
            Err(StateError::Damaged { path: path.to_path_buf(), damage: StateDamage::NotFile })
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(path, "look at it")(error))
        }
        _ => Ok(()),
    }
}

/// The contents of the file at `path`, which are at most so long; `None` if there is no such file.
///
/// What an interrupted [`save`] has left behind is removed first. Blocks.
pub(crate) fn read(path: &Path, most: usize) -> Result<Option<Vec<u8>>, StateError> {
    let failed = |action| failed(path, action);
    let damaged = |damage| StateError::Damaged { path: path.to_path_buf(), damage };
    remove(&new_name(path)).map_err(failed("remove what an interrupted write has left"))?;
    // Opening something that is not a file must not wait for anybody.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed("open it"))?,
    };
    let metadata = file.metadata().map_err(failed("look at it"))?;
    if !metadata.is_file() {
        return Err(damaged(StateDamage::NotFile));
    }
    if metadata.len() > most as u64 {
        return Err(damaged(StateDamage::Length(metadata.len())));
    }
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(failed("read it"))?;
    Ok(Some(bytes))
}

/// Makes `bytes` the contents of the file at `path`, durably, readable for its owner only.
///
/// After an error the old contents or the new ones are there. Blocks.
pub(crate) fn save(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    let failed = |action| failed(path, action);
    let new = new_name(path);
    remove(&new).map_err(failed("remove what an interrupted write has left"))?;
    let written = write(&new, bytes).map_err(failed("write its successor"));
    let replaced = written.and_then(|()| fs::rename(&new, path).map_err(failed("replace it")));
    if replaced.is_err() {
        // What is left behind now is removed by the next attempt.
        drop(remove(&new));
    }
    replaced?;
    // The new name is durable with the folder that it stands in.
    File::open(folder(path)).and_then(|folder| folder.sync_all()).map_err(failed("make it durable"))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Under which name the successor of a state file is written.
fn new_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    PathBuf::from(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> StateError {
    move |source| StateError::Os { path: path.to_path_buf(), action, source }
}

/// Why bytes are not the contents of a state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Damage(StateDamage),
    Newer(u32),
}

fn decode(bytes: &[u8]) -> Result<State, Problem> {
    let damage = |damage| Err(Problem::Damage(damage));
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
    if !bytes.starts_with(MAGIC) && !MAGIC.starts_with(bytes) {
        return damage(StateDamage::Foreign);
    }
    if bytes.len() < LENGTH_MIN {
        return damage(StateDamage::Length(bytes.len() as u64));
    }
    let (covered, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    if crc32c::crc32c(covered) != number(checksum) {
        return damage(StateDamage::Checksum);
    }
    let version = number(&covered[8..12]);
    if version > VERSION {
        return Err(Problem::Newer(version));
    }
    let (reservations, parameters) = (number(&covered[12..16]), number(&covered[16..20]));
    let kind = covered[20];
    let rest = &covered[HEADER..];
    if version == 0 || u64::from(reservations) + u64::from(parameters) != rest.len() as u64 {
        return damage(StateDamage::Contents);
    }
    let (reservations, parameters) = rest.split_at(reservations as usize);
    let sanitize = match kind {
        0 if parameters.is_empty() => Sanitize::None,
        1 => Sanitize::Running(parameters.to_vec()),
        2 => Sanitize::Failed(parameters.to_vec()),
        _ => return damage(StateDamage::Contents),
    };
    Ok(State { reservations: reservations.to_vec(), sanitize })
}

/// The longest state file, in bytes. A command whose state does not fit is refused.
pub(crate) const LENGTH_MAX: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"weirstat";
const VERSION: u32 = 1;
const HEADER: usize = 24;
const CHECKSUM: usize = 4;
const LENGTH_MIN: usize = HEADER + CHECKSUM;

/// For the owner only: reservation keys are meant for the hosts that hold them.
const MODE: u32 = 0o600;

#[cfg(test)]
pub(crate) mod tests;
