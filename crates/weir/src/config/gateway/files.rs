//! The files that volumes keep their bytes and their states in: no two may be the same.

use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::tree::{Context, Read};
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

/// The files of the volumes that have been read.
#[derive(Debug, Default)]
pub(super) struct Files {
    volumes: BTreeMap<PathBuf, Option<Span>>,
    states: Vec<(PathBuf, State)>,
}

/// Where a volume's state is.
#[derive(Debug)]
pub(super) struct State {
    /// Its place in the configuration, or that of the volume's file, from which it follows.
    pub(super) span: Option<Span>,
    /// Whether it is written there.
    pub(super) written: bool,
}

impl Files {
    /// Notes the file of a volume or a store, or a diagnostic if another one has it: both would destroy each
    /// other's data. True if it is the first.
    pub(super) fn volume(
        &mut self,
        context: &mut Context,
        file: &Read<String>,
        path: &Path,
        what: &str,
    ) -> bool {
        let plain = plain(path);
        if let Some(first) = self.volumes.get(&plain) {
            let message = format!("two {what}s keep their bytes in `{}`", plain.display());
            let diagnostic = Diagnostic::new(Code::Duplicate, message)
                .at_some(file.span.as_ref(), "the second")
                .see(first.as_ref(), "the first")
                .help(format!("give each {what} its own file; they would overwrite each other"));
            context.report(diagnostic);
            return false;
        }
        self.volumes.insert(plain, file.span.clone());
        true
    }

    /// Notes a volume's state file, for [`check`](Self::check).
    pub(super) fn state(&mut self, path: &Path, state: State) {
        self.states.push((plain(path), state));
    }

    /// Finds the state files that another volume's state or some volume's bytes are in. Called when
    /// all volumes have been read.
    pub(super) fn check(self, context: &mut Context) {
        let mut known: BTreeMap<PathBuf, State> = BTreeMap::new();
        for (path, state) in self.states {
            let label = if state.written { "this state" } else { "its state would be beside it" };
            let (message, first, first_label) = if let Some(first) = self.volumes.get(&path) {
                let message = format!("`{}` would hold a volume and a state", path.display());
                (message, first, "this volume")
            } else if let Some(first) = known.get(&path) {
                let message = format!("two volumes keep their state in `{}`", path.display());
                (message, &first.span, "the first")
            } else {
                known.insert(path, state);
                continue;
            };
            let diagnostic = Diagnostic::new(Code::Duplicate, message)
                .at_some(state.span.as_ref(), label)
                .see(first.as_ref(), first_label);
            context.report(diagnostic.help("give the volume its own `state`"));
        }
    }
}

/// Whether there is a block device at this path.
pub(super) fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// A path without `.` and `..`, so that two ways to write one file are the same.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}
