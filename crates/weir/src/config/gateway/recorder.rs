//! `[recorder]`: what is kept of requests that have ended.

use crate::config::schema::{Many, Part, Section};
use weir_flow::settings::Settings as _;
use weir_serve::config::Recorder;

/// The table.
pub(super) static RECORDER: Section = Section {
    name: "recorder",
    many: Many::Once,
    effect: "the flight recorder: what is kept of requests that have ended, for `weir slow`",
    keys: &[],
    settings: &[Part::always(Recorder::TABLE)],
};
