//! A text that shall replace a file: all that can fail is done before, and the old text is kept.

use super::apply::refuse_exposed;
use crate::exit::{Exit, Failure};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use weir_serve::operator::FileId;

/// Two files beside the one to replace: its new text, and what it is now.
pub(super) struct Successor {
    new: Own,
    old: Own,
    bak: PathBuf,
    file: PathBuf,
    seen: Metadata,
}

impl Successor {
    /// Writes the new text with the owner and the mode of the file, and keeps the old one. Nothing that was there changes.
    /// `id` is which file the gateway finds under this name.
    pub(super) fn prepare(
        (file, id): (&Path, Option<FileId>),
        text: &str,
    ) -> Result<Self, Failure> {
        refuse_exposed(file, text)?;
        Self::beside(file, id, text).map_err(|error| {
            let message = format!("cannot replace {}: {error}", file.display());
            let help = "nothing was changed: run it on the machine of the gateway, as a user that may write there";
            Failure::new(Exit::Unavailable, message, help)
        })
    }

    fn beside(file: &Path, id: Option<FileId>, text: &str) -> io::Result<Self> {
        // A link stays one.
        let file = file.canonicalize()?;
        let seen = file.metadata()?;
        match id {
            Some(id) if id == (FileId { device: seen.dev(), inode: seen.ino() }) => {}
            Some(_) => {
                return Err(io::Error::other(
                    "it is not the file that the gateway finds under this name, which is in another mount namespace",
                ));
            }
            None => return Err(io::Error::other("the gateway finds no file under this name")),
        }
        if seen.dev() != folder(&file).metadata()?.dev() || is_mounted(&mounts(), &file) {
            return Err(io::Error::other("it is a mount point, which cannot be renamed over"));
        }
        let bak = with_end(&file, ".bak");
        if bak.is_dir() {
            return Err(io::Error::other(format!("{} is a folder", bak.display())));
        }
        let new = Own::make(&file, ".new", |path| write(path, &seen, text.as_bytes()))?;
        // Some file systems have no hard links.
        let old =
            Own::make(&file, ".old", |path| std::fs::hard_link(&file, path)).or_else(|_| {
                Own::make(&file, ".old", |path| write(path, &seen, &std::fs::read(&file)?))
            })?;
        Ok(Self { new, old, bak, file, seen })
    }

    /// Replaces the file; where its old text is now.
    pub(super) fn replace(self) -> Result<PathBuf, Failure> {
        let Self { new, old, bak, file: path, seen } = self;
        let file = path.display();
        let failed = |what: String| {
            let message = format!("the configuration is in force, but {what}");
            let help = "compare it with what was applied: a restart reads what it is now";
            Failure::new(Exit::NotSaved, message, help)
        };
        match path.metadata() {
            Ok(now) if state(&now) == state(&seen) => {}
            Ok(_) => {
                return Err(failed(format!("{file} has changed meanwhile and was not replaced")));
            }
            Err(error) => return Err(failed(format!("{file} could not be replaced: {error}"))),
        }
        std::fs::rename(&new.0, &path)
            .map_err(|error| failed(format!("{file} could not be replaced: {error}")))?;
        std::fs::rename(&old.0, &bak).map_err(|error| {
            // The only one with the old text.
            let (old, bak) = (old.keep(), bak.display());
            let old = old.display();
            failed(format!(
                "{file} was replaced, and what it was is in {old}, not in {bak}: {error}"
            ))
        })?;
        File::open(folder(&path)).and_then(|folder| folder.sync_all()).map_err(|error| {
            failed(format!("{file} was replaced, but a power failure may undo that: {error}"))
        })?;
        Ok(bak)
    }
}

/// A file of this process alone, removed at the end unless it has been renamed.
struct Own(PathBuf);

impl Own {
    /// Makes one beside `file`, under a name that no other file has.
    fn make(file: &Path, end: &str, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<Self> {
        let pid = std::process::id();
        for attempt in 0..ATTEMPTS {
            let path = with_end(file, &format!(".{pid}-{attempt}{end}"));
            match make(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                result => return result.map(|()| Self(path)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Leaves it where it is.
    fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // It is not there any more if it has been renamed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a new file with the owner and the mode of another one.
fn write(path: &Path, like: &Metadata, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut complete = || {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    complete().inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

/// What differs once a file was replaced or written to.
fn state(of: &Metadata) -> [u64; 5] {
    let time = [of.mtime().cast_unsigned(), of.mtime_nsec().cast_unsigned()];
    [of.dev(), of.ino(), of.len(), time[0], time[1]]
}

/// The mounts that this process sees; nothing where the system does not tell.
fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// Whether something is mounted over this file, from the same file system, too.
fn is_mounted(mounts: &str, file: &Path) -> bool {
    let mut name = file.display().to_string();
    for (plain, escaped) in [("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")] {
        name = name.replace(plain, escaped);
    }
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&name))
}

fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

/// A path with this behind its name.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Names to try: another one may have the same process number in another container.
const ATTEMPTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// If the backup cannot take its name, the old text stays under the one that it has, and the message names it.
    #[test]
    fn the_old_text_is_never_lost() {
        let folder = std::env::temp_dir().join(format!("weir-successor-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("weir.toml");
        std::fs::write(&file, "old").unwrap();
        let seen = file.metadata().unwrap();
        let id = FileId { device: seen.dev(), inode: seen.ino() };
        let successor = Successor::prepare((&file, Some(id)), "new").unwrap();
        // No file can be renamed to that.
        std::fs::create_dir(folder.join("weir.toml.bak")).unwrap();
        let failure = successor.replace().unwrap_err();
        assert_eq!(failure.exit, Exit::NotSaved);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        let old = folder.join(format!("weir.toml.{}-0.old", std::process::id()));
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
        let text = failure.text(false);
        assert!(text.contains(&format!("what it was is in {}", old.display())), "{text}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "nothing else is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_is_mounted_is_found_by_its_whole_name() {
        let mounts = "36 35 98:0 /a /etc/weir/my\\040weir.toml rw,noatime - ext4 /dev/vda rw\n";
        assert!(is_mounted(mounts, Path::new("/etc/weir/my weir.toml")));
        assert!(!is_mounted(mounts, Path::new("/etc/weir/my")));
        assert!(!is_mounted(mounts, Path::new("/a")));
    }
}
