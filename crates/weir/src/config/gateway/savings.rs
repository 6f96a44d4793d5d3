//! `[burst_credits]`: what control remembers over a restart.

use super::files::plain;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted};
use std::path::{Path, PathBuf};
use weir_serve::config::Volume;

/// The table.
pub(super) static SAVINGS: Section = Section {
    name: "burst_credits",
    many: Many::Once,
    effect: "burst credits of tenants, kept over a restart",
    keys: &[Key {
        name: "file",
        kind: Kind::Text("a path; relative to this file"),
        default: Default::Else("none: after a restart tenants have no burst credits"),
        effect: "keeps the burst credits of tenants (`credit`), and the measured capacity of the devices; \
                 written every minute and at a stop",
    }],
    settings: &[],
};

/// Reads the table.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
) -> Result<Option<PathBuf>, Noted> {
    let table = document.once(context, "burst_credits");
    let file = table.text(context, "file");
    let file = table.optional("file", file)?;
    Ok(file.map(|file| source.resolve(&file)))
}

/// The file is replaced: it must not be one that a volume keeps something in.
pub(super) fn apart(
    context: &mut Context,
    document: &Document<'_>,
    path: &Path,
    volumes: &[Volume],
) {
    let taken = |volume: &&Volume| {
        let mut files = volume.files().map(|file| &file.path).chain(&volume.state);
        files.any(|file| plain(file) == plain(path))
    };
    let Some(volume) = volumes.iter().find(taken) else { return };
    let message = format!("volume `{}` keeps something in `{}`", volume.name, path.display());
    let span = document.once(context, "burst_credits").value_span("file");
    let diagnostic =
        Diagnostic::new(Code::Duplicate, message).at_some(span.as_ref(), "the value of `file`");
    context.report(diagnostic.help("give `[burst_credits]` its own file"));
}
