//! Locks on files, against other gateways.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// Locks a file against other gateways. A gateway that was killed keeps its lock until the kernel has ended its last
/// I/O, for which its successor waits: up to a second for any holder, and up to a minute for a process that is dead,
/// since a disk may be slow.
#[expect(clippy::disallowed_methods, reason = "at start, before anything is served")]
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    for attempt in 1.. {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            result => return result,
        }
        if attempt >= LOCK_TRIES {
            let dead = holder_of(file).filter(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            let Some(pid) = dead.filter(|_| attempt < LOCK_TRIES_DEAD) else { break };
            if attempt == LOCK_TRIES {
                warn!(pid, "waiting for the last I/O of a gateway that was killed");
            }
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    file.try_lock()
}

/// The process that has a file locked, if the kernel names it.
pub(crate) fn holder_of(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    pid_in(&fs::read_to_string("/proc/locks").ok()?, inode)
}

/// What error messages call the process that has a file locked.
pub(crate) fn holder_name(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The process with a lock on this inode by /proc/locks. The device is not compared: some file systems report another
/// one there.
fn pid_in(locks: &str, inode: u64) -> Option<u32> {
    let mut held = locks.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words[..] else { return None };
        let found = place.rsplit(':').next()?.parse::<u64>().ok()?;
        Some(pid.parse().ok()?).filter(|_| found == inode)
    });
    // Two files with the same number on two devices: which is it?
    held.next().filter(|&pid: &u32| pid > 0 && held.all(|other| other == pid))
}

/// Attempts to take a lock that a process has, and that a dead process has; the time between them.
const LOCK_TRIES: u32 = 20;
const LOCK_TRIES_DEAD: u32 = 1_200;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// The kernel's list of locks names the holder, unless it is ambiguous.
    #[test]
    fn the_holder_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 11 fe:00:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  READ 13 fe:00:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 14 fe:00:79 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 15 fe:01:79 0 EOF\n\
                     6: FLOCK\n";
        assert_eq!(pid_in(locks, 77), Some(12));
        assert_eq!(pid_in(locks, 79), None);
        assert_eq!(pid_in(locks, 80), None);
    }

    /// Who is alive keeps a file; what a dead process has is waited for, although it takes longer than that.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the kernel lets go when it likes")]
    fn the_dead_let_go() {
        let path = std::env::temp_dir().join(format!("weir-lock-{}", std::process::id()));
        let [mine, other] = [(); 2].map(|()| File::create(&path).unwrap());
        mine.try_lock().unwrap();
        assert!(matches!(lock(&other), Err(TryLockError::WouldBlock)));
        mine.unlock().unwrap();
        // The lock belongs to the open file, which outlives the process that took it.
        let input = mine.try_clone().unwrap();
        let dead = Command::new("flock").args(["--nonblock", "0"]).stdin(input).status().unwrap();
        assert!(dead.success());
        let waits = thread::spawn(move || lock(&other));
        thread::sleep(LOCK_PAUSE * LOCK_TRIES * 3 / 2);
        assert!(!waits.is_finished());
        drop(mine);
        waits.join().unwrap().unwrap();
        fs::remove_file(path).unwrap();
    }
}
