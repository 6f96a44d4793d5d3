//! `[stop]`: how the gateway ends.

use crate::config::schema::{Many, Part, Section};
use weir_flow::settings::Settings as _;
use weir_serve::config::Stop;

/// The table.
pub(super) static STOP: Section = Section {
    name: "stop",
    many: Many::Once,
    effect: "how the gateway ends",
    keys: &[],
    settings: &[Part::always(Stop::TABLE)],
};
