//! Running the program, for the tests of its commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// A folder for one test, empty at its start. Tests run side by side, so each has names that no other uses.
pub(crate) fn folder(name: &str) -> PathBuf {
    static USERS: Mutex<BTreeMap<String, ThreadId>> = Mutex::new(BTreeMap::new());
    let user = thread::current().id();
    let first = *USERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(name.to_owned())
        .or_insert(user);
    assert_eq!(first, user, "another test has a folder named {name}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The program, in `folder`, with nothing of the environment that it looks at.
pub(crate) fn weir(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(folder).env("XDG_STATE_HOME", folder.join("state"));
    command
        .env_remove("WEIR_CONFIG")
        .env_remove("WEIR_LOG")
        .env_remove("WEIR_SOCKET")
        .env_remove("NO_COLOR");
    command
}

/// The result of the program with these arguments.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    weir(folder).args(arguments).output().unwrap()
}

/// The exit code.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Standard output as text.
pub(crate) fn out(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

/// Standard error as text.
pub(crate) fn err(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}
