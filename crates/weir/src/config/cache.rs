//! `[cache]`: the read cache.

use super::diagnostic::{Code, Diagnostic};
use super::schema::{Many, Part, Section};
use super::tree::{Context, Document};
use weir_flow::cache::Settings;
use weir_flow::settings::Settings as _;

/// The table.
pub(crate) static CACHE: Section = Section {
    name: "cache",
    many: Many::Once,
    effect: "the read cache, shared by all volumes; `[policy]` has its eviction and prefetch policies",
    keys: &[],
    settings: &[Part::always(Settings::TABLE)],
};

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Settings> {
    let table = document.once(context, "cache");
    let settings: Settings = table.settings(context)?;
    if !settings.line.is_power_of_two() {
        let message = format!("a line of {} bytes is not a power of two", settings.line);
        let diagnostic = Diagnostic::new(Code::BadValue, message)
            .at_some(table.value_span("line").as_ref(), "this size");
        context.report(diagnostic.help("write `4KiB`, or another power of two from 512B to 32KiB"));
        return None;
    }
    Some(settings)
}
