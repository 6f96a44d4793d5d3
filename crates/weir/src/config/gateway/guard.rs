//! Refuses files with secrets that other users of the machine may read.

use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::tree::Context;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reports an error if users other than the owner may access the file `path`, which `label` describes at `span`.
/// A file that is not there is not exposed: its reader reports it.
pub(super) fn refuse_exposed(context: &mut Context, path: &Path, span: Span, label: &str) {
    let Ok(metadata) = path.metadata() else { return };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS == 0 {
        return;
    }
    let path = path.display();
    let message = format!("users other than its owner may access `{path}` (mode {mode:04o})");
    let diagnostic = Diagnostic::new(Code::Permissions, message).at(span, label);
    context.report(diagnostic.help(format!("remove their permissions: chmod go= '{path}'")));
}

/// The permissions of the group and of all other users.
const OTHERS: u32 = 0o077;
