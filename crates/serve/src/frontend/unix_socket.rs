//! Listens on a Unix socket: makes its file, locks its folder, and removes the file at the end.

use crate::folder::{can_make, folder};
use mio::net::UnixListener;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A Unix socket that is listened on. Its file goes with it.
#[derive(Debug)]
pub(crate) struct UnixPlace {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    file: FileId,
}

/// The users who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Those that the process's umask allows.
    ByUmask,
    /// Only the user of this process, and root.
    Owner,
}

/// Identifies a file by device and inode.
type FileId = (u64, u64);

impl UnixPlace {
    /// Takes the place. A stale socket, on which no process listens, is replaced; one on which a process listens
    /// is [`AddrInUse`](io::ErrorKind::AddrInUse), anything else
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    pub(crate) fn take(path: &Path, access: Access) -> io::Result<Self> {
        // Of two gateways that start at once, one would find the other's socket before that listens, and
        // take it for a stale one.
        let _folder = lock(folder(path))?;
        clear(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        if access == Access::Owner {
            // No client can connect before it listens.
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
        }
        let file = id(path)?;
        socket.listen(BACKLOG)?;
        Ok(Self { listener: UnixListener::from_std(socket.into()), path: path.to_path_buf(), file })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixPlace {
    fn drop(&mut self) {
        // The file may have been removed, and another process may have made it again.
        if id(&self.path).is_ok_and(|file| file == self.file) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Whether a socket can be made there: the error that [`UnixPlace::take`] would return. Changes nothing.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    can_make(path)?;
    is_stale(path).map(drop)
}

fn id(path: &Path) -> io::Result<FileId> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Locks a folder while a socket is made in it. No process needs long for that; one that holds
/// the lock for longer does something else with it.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_PAUSE),
        }
    }
    let message = format!("another program holds a lock on the folder {}", folder.display());
    Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
}

/// Removes a stale socket file, on which no process listens.
fn clear(path: &Path) -> io::Result<()> {
    if is_stale(path)? { fs::remove_file(path) } else { Ok(()) }
}

/// Whether there is a socket file that no program listens on any more; false if there is no file.
fn is_stale(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is no socket"));
        }
        Ok(_) => {}
    }
    // Nonblocking: where the queue of connections is full, a process listens.
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Connections that wait in the kernel to be accepted. One more waits in its `connect`.
const BACKLOG: i32 = 1_024;

/// How often, and after what pause, a lock is asked for.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// An empty folder for one test.
    fn folder_of(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-place-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// A place is taken once; when its owner has left it is free, and so it is when the owner could not
    /// clear up.
    #[test]
    fn a_place_has_one_owner() {
        let path = folder_of("owner").join("socket");
        let place = UnixPlace::take(&path, Access::ByUmask).unwrap();
        let second = UnixPlace::take(&path, Access::ByUmask).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(place);
        assert!(!path.exists());
        // Its file outlives a listener of the standard library.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(UnixPlace::take(&path, Access::ByUmask).unwrap());
    }

    /// A file that is no socket stays as it is.
    #[test]
    fn no_file_is_replaced() {
        let path = folder_of("file").join("socket");
        fs::write(&path, "precious").unwrap();
        let refused = UnixPlace::take(&path, Access::Owner).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    /// A process that has taken a place over keeps it when the one before leaves.
    #[test]
    fn the_place_of_another_is_left_alone() {
        let path = folder_of("other").join("socket");
        let first = UnixPlace::take(&path, Access::Owner).unwrap();
        fs::remove_file(&path).unwrap();
        let second = UnixPlace::take(&path, Access::Owner).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    /// Of many threads that take a stale place at the same time one gets it, and keeps it.
    #[test]
    fn of_many_at_once_one_wins() {
        let path = folder_of("race").join("socket");
        for _ in 0..50 {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let results: Vec<_> = std::thread::scope(|scope| {
                let racers: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| UnixPlace::take(&path, Access::Owner))).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).collect()
            });
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
            UnixStream::connect(&path).unwrap();
        }
    }
}
