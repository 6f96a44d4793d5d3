//! What `weir serve` does without a configuration: one file-backed volume on loopback.

use crate::config::gateway::MAX_SOCKET_PATH;
use crate::config::source::Source;
use crate::config::value::quote;
use crate::exit::{Exit, Failure};
use std::path::{Path, PathBuf};

/// The configuration, as if it had been written to a file.
pub(crate) fn source() -> Result<Source, Failure> {
    let folder = state_folder()?.join("weir");
    let file = folder.join("disk0.img");
    let Some(file) = file.to_str() else {
        let message = format!("the path `{}` is not UTF-8", file.display());
        return Err(Failure::new(
            Exit::Invalid,
            message,
            "name a configuration: weir serve CONFIG",
        ));
    };
    let text = format!(
        "# what `weir serve` does without a configuration\n\
         [iscsi]\n\
         listen = [\"127.0.0.1:3260\"]\n\
         \n\
         [[volume]]\n\
         name = \"disk0\"\n\
         file = {}\n\
         size = \"1GiB\"\n\
         \n\
         [[target]]\n\
         name = \"iqn.2026-11.io.weir:disk0\"\n\
         luns = {{ 0 = \"disk0\" }}\n{}",
        quote(file),
        socket_in(&folder)
            .map(|socket| format!("\n[control]\nsocket = {}\n", quote(&socket)))
            .unwrap_or_default()
    );
    Ok(Source::built_in(text, folder))
}

/// The control socket of a gateway without a configuration, if a folder for it exists.
pub(crate) fn socket() -> Option<String> {
    socket_in(&state_folder().ok()?.join("weir"))
}

/// The control socket beside the disk; none if the path is too long for a socket. The process that serves the disk
/// has locked it, so the path is free.
fn socket_in(folder: &Path) -> Option<String> {
    let socket = folder.join("control.sock").to_str()?.to_owned();
    (socket.len() <= MAX_SOCKET_PATH).then_some(socket)
}

/// The folder for the state of a user's programs: `$XDG_STATE_HOME`, or `~/.local/state`. A relative path in the
/// variable does not count (XDG Base Directory Specification).
fn state_folder() -> Result<PathBuf, Failure> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local").join("state"));
    absolute("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        Failure::new(
            Exit::Unavailable,
            "there is no folder for the default disk: neither XDG_STATE_HOME nor HOME is set",
            "set one of them, or name a configuration: weir serve CONFIG",
        )
    })
}
