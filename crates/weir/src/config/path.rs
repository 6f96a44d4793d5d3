//! `[path]`: how paths to storage are judged.

use super::diagnostic::{Code, Diagnostic};
use super::schema::{Many, Part, Section};
use super::tree::{Context, Document};
use weir_flow::path::{Failback, Settings};
use weir_flow::settings::Settings as _;

/// The table.
pub(crate) static PATH: Section = Section {
    name: "path",
    many: Many::Once,
    effect: "when a path is checked, given up, left for being slow, and used again",
    keys: &[],
    settings: &[Part::always(Settings::TABLE)],
};

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Settings> {
    let table = document.once(context, "path");
    let settings: Settings = table.settings(context)?;
    if settings.failback == Failback::After && !table.has("failback_after") {
        let diagnostic = Diagnostic::new(Code::MissingKey, "`failback = \"after\"` needs a time");
        let diagnostic = diagnostic.at_some(table.value_span("failback").as_ref(), "this value");
        context.report(diagnostic.help("add `failback_after = \"10s\"`"));
        return None;
    }
    if settings.failback != Failback::After && table.has("failback_after") {
        let word = table.text(context, "failback")?.value;
        super::only_with(context, &table, &["failback_after"], "failback", &word);
        return None;
    }
    Some(settings)
}
