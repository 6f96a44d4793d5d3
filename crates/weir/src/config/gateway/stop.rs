//! `[stop]`: how the gateway ends.

use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document};
use weir_flow::clock::Duration;

/// The table.
pub(super) static STOP: Section = Section {
    name: "stop",
    many: Many::Once,
    effect: "how the gateway ends",
    keys: &[Key {
        name: "timeout",
        kind: Kind::Time(0, 3_600 * 1_000_000_000),
        default: Default::Is("30s"),
        effect: "how long a graceful stop waits for what is in flight; volumes are flushed in any \
                 case",
    }],
};

/// Reads the table.
pub(super) fn read(context: &mut Context, document: &Document<'_>) -> Option<Duration> {
    let table = document.once(context, "stop");
    table.number(context, "timeout").map(|timeout| Duration::from_nanos(timeout.value))
}
