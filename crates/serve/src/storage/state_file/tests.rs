//! State files against a real file system.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// A folder of the test's own, gone when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("the folder for temporary files is writable");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of what is in it.
    fn names(&self) -> Vec<OsString> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("readable").file_name()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn examples() -> Vec<State> {
    let reservations = vec![7; 300];
    vec![
        State::default(),
        State { reservations: reservations.clone(), sanitize: Sanitize::None },
        State { reservations, sanitize: Sanitize::Running(vec![1, 2, 3]) },
        State { reservations: Vec::new(), sanitize: Sanitize::Failed(vec![9]) },
        State { reservations: Vec::new(), sanitize: Sanitize::Running(Vec::new()) },
    ]
}

/// What is saved is loaded again, one state after the other under the same name.
#[test]
fn what_is_saved_is_loaded() {
    let folder = Folder::new("state-saved");
    let path = folder.file("v.state");
    assert_eq!(load(&path).unwrap(), None);
    for state in examples() {
        save(&path, &state.encode().unwrap()).unwrap();
        assert_eq!(load(&path).unwrap(), Some(state));
    }
    assert_eq!(folder.names(), ["v.state"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// What a crash has left behind does not count and does not stay.
#[test]
fn leftovers_are_removed() {
    let folder = Folder::new("state-leftover");
    let path = folder.file("v.state");
    fs::write(folder.file("v.state.new"), b"half a st").unwrap();
    assert_eq!(load(&path).unwrap(), None);
    assert!(folder.names().is_empty());
    fs::write(folder.file("v.state.new"), b"half a st").unwrap();
    let state = &examples()[2];
    save(&path, &state.encode().unwrap()).unwrap();
    assert_eq!(load(&path).unwrap().as_ref(), Some(state));
    assert_eq!(folder.names(), ["v.state"]);
}

/// A state that cannot take its place leaves the old one whole and nothing else behind.
#[test]
fn a_failed_save_leaves_nothing() {
    let folder = Folder::new("state-failed");
    let path = folder.file("v.state");
    fs::create_dir_all(path.join("in the way")).unwrap();
    let error = save(&path, &State::default().encode().unwrap()).unwrap_err();
    assert!(matches!(error, StateError::Os { action: "replace it", .. }), "{error}");
    assert_eq!(folder.names(), ["v.state"]);
    let path = folder.file("missing/v.state");
    let error = save(&path, &[]).unwrap_err();
    assert!(matches!(error, StateError::Os { action: "write its successor", .. }), "{error}");
}

/// No changed bit, no missing byte and no added one goes unnoticed.
#[test]
fn damage_is_found() {
    let bytes = examples()[2].encode().unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let problem = decode(&changed).unwrap_err();
            let expected = if at < 8 { StateDamage::Foreign } else { StateDamage::Checksum };
            assert_eq!(problem, Problem::Damage(expected), "bit {bit} of byte {at}");
        }
        assert!(decode(&bytes[..at]).is_err(), "cut to {at} bytes");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(decode(&longer), Err(Problem::Damage(StateDamage::Checksum)));
}

/// An intact file with a value that no version writes is refused, not guessed at.
#[test]
fn contradictions_are_refused() {
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = examples()[2].encode().unwrap();
        bytes.truncate(bytes.len() - CHECKSUM);
        change(&mut bytes);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        decode(&bytes)
    };
    assert_eq!(sealed(&|_| {}).as_ref(), Ok(&examples()[2]));
    let contradiction = Err(Problem::Damage(StateDamage::Contents));
    assert_eq!(sealed(&|bytes| bytes[20] = 0), contradiction, "parameters of no sanitize");
    assert_eq!(sealed(&|bytes| bytes[20] = 3), contradiction);
    assert_eq!(sealed(&|bytes| bytes[8] = 0), contradiction);
    assert_eq!(sealed(&|bytes| bytes[12] += 1), contradiction);
    assert_eq!(sealed(&|bytes| bytes[15] = 0xff), contradiction);
    assert_eq!(sealed(&|bytes| bytes.push(0)), contradiction);
    assert_eq!(sealed(&|bytes| bytes[8] = 2), Err(Problem::Newer(2)));
    assert_eq!(sealed(&|bytes| bytes[11] = 1), Err(Problem::Newer(0x0100_0001)));
}

/// States are bounded on the way out and on the way in.
#[test]
fn lengths_are_bounded() {
    let state = |length| State { reservations: vec![0; length], sanitize: Sanitize::None };
    let largest = LENGTH_MAX - LENGTH_MIN;
    assert_eq!(state(largest).encode().unwrap().len(), LENGTH_MAX);
    assert!(state(largest + 1).encode().is_none());
    let both = State { sanitize: Sanitize::Running(vec![0; 1]), ..state(largest) };
    assert!(both.encode().is_none());

    let folder = Folder::new("state-bounded");
    let path = folder.file("v.state");
    let mut bytes = Vec::from(MAGIC);
    bytes.resize(LENGTH_MAX * 2, 0);
    fs::write(&path, &bytes).unwrap();
    let error = load(&path).unwrap_err();
    let length = LENGTH_MAX as u64 * 2;
    assert!(
        matches!(error, StateError::Damaged { damage: StateDamage::Length(found), .. } if found == length)
    );
}

/// Every message names the file, what is wrong with it and what can be done.
#[test]
fn messages_say_what_to_do() {
    let folder = Folder::new("state-messages");
    let path = folder.file("v.state");
    let message = || load(&path).unwrap_err().to_string();
    let named = format!("state file {}: ", path.display());
    fs::write(&path, b"something else").unwrap();
    assert!(message().starts_with(&named) && message().contains("not the state file"));
    assert!(message().contains("move it away"));
    fs::write(&path, b"").unwrap();
    assert!(message().contains("it has 0 bytes"), "{}", message());
    let mut newer = State::default().encode().unwrap();
    newer.truncate(HEADER);
    newer[8] = 9;
    newer.extend(crc32c::crc32c(&newer).to_le_bytes());
    fs::write(&path, &newer).unwrap();
    assert!(message().starts_with(&named) && message().contains("format 9 by a newer release"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(message().contains("it is not a file"), "{}", message());
    // A name through a file is one that cannot be looked up.
    fs::remove_dir(&path).unwrap();
    fs::write(folder.file("plain"), b"").unwrap();
    let error = load(&folder.file("plain/v.state")).unwrap_err();
    assert!(matches!(error, StateError::Os { .. }), "{error}");
}
