//! `[[fault]]`: something that happens to a path.

use super::{MAX_TIME, only_with};
use crate::config::fault::{Code, Fault};
use crate::config::names::Names;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Table};
use weir_flow::clock::Duration;
use weir_flow::request::BackendId;
use weir_sim::plan::{MAX_PARTS, PathChange, PathFault};

/// The table.
pub(super) static FAULT: Section = Section {
    name: "fault",
    many: Many::Times(0, MAX_PARTS),
    effect: "something that happens to a path",
    keys: &[
        Key {
            name: "at",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Required,
            effect: "when it happens",
        },
        Key {
            name: "backend",
            kind: Kind::Text("a backend's name"),
            default: Default::Else("the only backend"),
            effect: "the device to which the path leads",
        },
        Key {
            name: "path",
            kind: Kind::Count(0, MAX_PARTS as u64 - 1),
            default: Default::Required,
            effect: "the path, counted from zero",
        },
        Key {
            name: "change",
            kind: Kind::Word(&["down", "up"]),
            default: Default::Required,
            effect: "the path stops working, or works again",
        },
        Key {
            name: "detect",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Else("needed for `down`"),
            effect: "down: time until an I/O on the dead path is given up",
        },
    ],
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    backends: &Names,
) -> Option<Vec<PathFault>> {
    let tables = document.many(context, "fault");
    let faults: Vec<_> = tables.iter().map(|table| one(context, table, backends)).collect();
    faults.into_iter().collect()
}

fn one(context: &mut Context, table: &Table<'_>, backends: &Names) -> Option<PathFault> {
    let at = table.number(context, "at");
    let backend = super::part_of(context, table, "backend", backends);
    let path = table.number(context, "path");
    let change = table.text(context, "change").map(|change| change.value);
    let detect = table.number(context, "detect");
    let detect = table.optional("detect", detect).ok();
    let change = match (change?.as_str(), detect?) {
        ("up", _) => {
            only_with(context, table, &["detect"], "change", "up");
            PathChange::Up
        }
        (_, Some(detect)) => PathChange::Down { detect: Duration::from_nanos(detect) },
        (_, None) => {
            let fault = Fault::new(Code::MissingKey, "a path that goes down needs a `detect`");
            let fault = fault.at(table.span(), "this table");
            context.faults.push(fault.help("add `detect = \"1s\"`, the transport's time-out"));
            return None;
        }
    };
    Some(PathFault {
        at: Duration::from_nanos(at?.value),
        backend: BackendId::new(backend? as u32),
        path: path?.value as u32,
        change,
    })
}
