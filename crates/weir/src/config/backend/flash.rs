//! A flash device: its settings, or its capacity in place of a number of blocks.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::tree::{Context, Table};
use weir_flow::settings::Settings as _;
use weir_model::ssd::Config;

/// Reads the keys; those that are not written are as in `preset`.
pub(super) fn read(context: &mut Context, table: &Table<'_>, preset: Config) -> Option<Config> {
    let config = table.settings_over(context, preset);
    let capacity = table.number(context, "capacity");
    if let (Some(capacity), Some(blocks)) =
        (table.value_span("capacity"), table.value_span("blocks"))
    {
        let message = "`capacity` and `blocks` both say how large the device is";
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at(capacity, "one")
            .see(Some(&blocks), "the other");
        context.report(diagnostic.help("remove one of them"));
        return None;
    }
    let config = match table.optional("capacity", capacity).ok()? {
        Some(capacity) => {
            table.forget(context, "blocks");
            config?.with_capacity(capacity)
        }
        None => config?,
    };
    let Err(invalid) = config.validate() else { return Some(config) };
    let (key, message) = match invalid.name() {
        "blocks" if table.has("capacity") => {
            ("capacity", "`capacity` makes more blocks or pages than a device can have".to_owned())
        }
        name => (name, invalid.to_string()),
    };
    let span = table.value_span(key).unwrap_or_else(|| table.span());
    let diagnostic = Diagnostic::new(Code::OutOfRange, message);
    let help = "give it more or fewer chips, blocks or pages, or another share of spare ones";
    context.report(diagnostic.at(span, "this device").help(help));
    None
}
