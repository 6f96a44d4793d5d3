//! `[cache]`: the memory for what was read.

use super::diagnostic::{Code, Diagnostic};
use super::schema::{Default, Key, Kind, Many, Section};
use super::tree::{Context, Document};
use weir_flow::cache::Settings;
use weir_flow::cache::stage::SIZE_MAX;

/// The table.
pub(crate) static CACHE: Section = Section {
    name: "cache",
    many: Many::Once,
    effect: "memory for what was read, shared by all volumes; `[policy]` says what leaves it and what is read ahead",
    keys: &[
        Key {
            name: "size",
            kind: Kind::Size(0, SIZE_MAX),
            default: Default::Is("0B"),
            effect: "how much memory; 0 keeps nothing and reads nothing ahead",
        },
        Key {
            name: "line",
            kind: Kind::Size(512, 32 << 10),
            default: Default::Is("4KiB"),
            effect: "what is kept or let go as a whole, a power of two",
        },
    ],
};

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Settings> {
    let table = document.once(context, "cache");
    let size = table.number(context, "size");
    let line = table.number(context, "line")?;
    if !line.value.is_power_of_two() {
        let message = format!("a line of {} bytes is not a power of two", line.value);
        let diagnostic =
            Diagnostic::new(Code::BadValue, message).at_some(line.span.as_ref(), "this size");
        context.report(diagnostic.help("write `4KiB`, or another power of two from 512B to 32KiB"));
        return None;
    }
    Some(Settings { size: size?.value, line: line.value as u32, ..Settings::default() })
}
