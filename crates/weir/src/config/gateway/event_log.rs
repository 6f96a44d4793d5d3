//! `[log]`: the event log on standard error.

use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document};
use toml::Table;
use weir_serve::config::LogFormat;

/// The table.
pub(super) static EVENT_LOG: Section = Section {
    name: "log",
    many: Many::Once,
    effect: "the event log, which goes to standard error",
    keys: &[Key {
        name: "format",
        kind: Kind::Word(&["text", "json"]),
        default: Default::Is("text"),
        effect: "lines for people (text), or one JSON object a line (json) with `timestamp`, `level`, `message` and the \
                 fields of the event",
    }],
    settings: &[],
};

/// Reads the table.
pub(super) fn read(context: &mut Context, document: &Document<'_>) -> Option<LogFormat> {
    let format = document.once(context, "log").text(context, "format")?;
    Some(if format.value == "json" { LogFormat::Json } else { LogFormat::Text })
}

/// What the file says, as far as it can be read at all: the log begins before the file is checked.
pub(crate) fn format(source: &Source) -> LogFormat {
    let table = source.text.parse::<Table>().unwrap_or_default();
    let format = table.get("log").and_then(|log| log.get("format"));
    match format.and_then(|format| format.as_str()) {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Text,
    }
}
