//! `[limits]`: the named limits of the pipeline.

use super::diagnostic::{Code, Diagnostic};
use super::schema::{Many, Part, Section};
use super::tree::{Context, Document};
use super::units::SIZE;
use weir_flow::pipeline::Limits;
use weir_flow::settings::Settings;

/// The table.
pub(crate) static LIMITS: Section = Section {
    name: "limits",
    many: Many::Once,
    effect: "the limits of the pipeline, and what happens there",
    keys: &[],
    settings: &[Part::always(Limits::TABLE)],
};

/// Largest single transfer of a host, in bytes: what one request may carry.
const LARGEST_TRANSFER: u64 = 8 << 20;

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Limits> {
    let table = document.once(context, "limits");
    let limits: Limits = table.settings(context)?;
    let diagnostics = context.diagnostics.len();
    for (key, bytes) in
        [("max_bytes", limits.max_bytes), ("max_tenant_bytes", limits.max_tenant_bytes)]
    {
        if bytes < LARGEST_TRANSFER {
            let least = SIZE.show(LARGEST_TRANSFER);
            let message = format!("`{key}` is below the largest transfer of a host, {least}");
            let diagnostic = Diagnostic::new(Code::OutOfRange, message)
                .at_some(table.value_span(key).as_ref(), format!("the value of `{key}`"));
            context.report(diagnostic.help(format!("write at least `{least}`")));
        }
    }
    (context.diagnostics.len() == diagnostics).then_some(limits)
}
