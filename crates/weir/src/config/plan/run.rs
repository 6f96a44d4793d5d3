//! `[run]`: when the experiment ends, and what of it is measured.

use super::MAX_TIME;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document};
use weir_flow::clock::Duration;
use weir_sim::plan::End;

/// The table.
pub(super) static RUN: Section = Section {
    name: "run",
    many: Many::Once,
    effect: "when the run ends, and what of it is measured",
    keys: &[
        Key {
            name: "duration",
            kind: Kind::Time(1, MAX_TIME),
            default: Default::Else("until the sources of requests end"),
            effect: "virtual time after which nothing arrives",
        },
        Key {
            name: "requests",
            kind: Kind::Count(1, u64::MAX),
            default: Default::Else("no limit"),
            effect: "arrivals, all sources together, after which nothing arrives",
        },
        Key {
            name: "warm_up",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Is("0s"),
            effect: "requests that end before this time are not measured",
        },
        Key {
            name: "drain",
            kind: Kind::Flag,
            default: Default::Is("true"),
            effect: "after `duration`, wait for what is outstanding and measure it",
        },
    ],
    settings: &[],
};

/// Reads the table.
pub(super) fn read(context: &mut Context, document: &Document<'_>) -> Option<End> {
    let table = document.once(context, "run");
    let duration = table.number(context, "duration");
    let requests = table.number(context, "requests");
    let warm_up = table.number(context, "warm_up");
    let drain = table.flag(context, "drain");
    Some(End {
        duration: table.optional("duration", duration).ok()?.map(Duration::from_nanos),
        requests: table.optional("requests", requests).ok()?,
        warm_up: Duration::from_nanos(warm_up?.value),
        drain: drain?.value,
    })
}
