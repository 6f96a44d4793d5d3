//! Files with secrets that everyone on the machine may read.

use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::tree::Context;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether users who are neither the owner nor of the file's group may read it.
pub(super) fn is_open(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// Warns that they may.
pub(super) fn warn(context: &mut Context, path: &Path, span: Span, label: &str) {
    let path = path.display();
    let message = format!("every user of this machine may read `{path}`");
    let diagnostic = Diagnostic::new(Code::Exposed, message).at(span, label);
    context.report(diagnostic.help(format!("keep others out: chmod o-rwx '{path}'")));
}
