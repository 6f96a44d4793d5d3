//! The result of a reload as the control socket sends it.

use crate::config::{Change, Rejected};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A configuration that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Nothing was changed, because only a check was requested.
    pub dry_run: bool,
    /// What has changed, or would; the first 1000.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// How many there are that `changes` does not have.
    #[serde(default)]
    pub changes_left_out: u64,
    /// The file that a reload and a restart read; `None` for the built-in configuration.
    #[serde(default)]
    pub file: Option<String>,
    /// Which file the gateway finds there; `None` if it finds none. In another mount namespace the name may be that of another.
    #[serde(default)]
    pub file_id: Option<FileId>,
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileId {
    /// Its device (`st_dev`).
    pub device: u64,
    /// Its number on that (`st_ino`).
    pub inode: u64,
}

/// The code of a rejected configuration.
pub(super) const fn code(rejected: &Rejected) -> &'static str {
    match rejected {
        Rejected::Invalid(_) => "invalid",
        Rejected::NeedsRestart(_) => "needs_restart",
        Rejected::InUse(_) => "in_use",
        Rejected::Shrinks(_) => "shrinks",
        Rejected::Unavailable(_) => "unavailable",
    }
}

/// What is wrong with it.
pub(super) fn message(rejected: &Rejected) -> String {
    match rejected {
        Rejected::Invalid(lines) => format!("the configuration is invalid: {}", list(lines)),
        Rejected::NeedsRestart(changes) => format!("a restart is needed: {}", list(changes)),
        Rejected::InUse(faults) | Rejected::Shrinks(faults) | Rejected::Unavailable(faults) => {
            list(faults)
        }
    }
}

/// What to do.
pub(super) const fn help(rejected: &Rejected) -> &'static str {
    match rejected {
        Rejected::Invalid(_) => {
            "nothing was changed: correct the file; the log has all diagnostics"
        }
        Rejected::NeedsRestart(_) => {
            "nothing was changed: undo these changes, or restart the gateway"
        }
        Rejected::InUse(_) => {
            "nothing was changed: let the hosts go, or take its LUN or namespace away first, and have a log written back; \
             --force, or \"force\":true, takes it away nevertheless"
        }
        Rejected::Shrinks(_) => "nothing was changed: hosts would lose the end of the volume",
        Rejected::Unavailable(_) => {
            "no volume was changed: put the file, the space or the size right"
        }
    }
}

/// The first of these on one line, and the number of the others.
fn list(lines: &[String]) -> String {
    let shown = lines[..lines.len().min(SHOWN)].join("; ");
    match lines.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// Lines in a message; the log has the others.
const SHOWN: usize = 20;
