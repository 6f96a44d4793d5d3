//! `[[fault]]`: something that happens to a path.

use super::{MAX_TIME, only_with};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::Names;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Table};
use weir_flow::clock::Duration;
use weir_flow::request::BackendId;
use weir_sim::plan::{MAX_FACTOR, MAX_PARTS, PathChange, PathFault};

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
            kind: Kind::Word(&["down", "slow", "stall", "up"]),
            default: Default::Required,
            effect: "the path stops working, is slow, is silent without an error, or works again",
        },
        Key {
            name: "detect",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Else("needed for `down`"),
            effect: "down: time until an I/O on the dead path is given up",
        },
        Key {
            name: "factor",
            kind: Kind::Count(2, MAX_FACTOR as u64),
            default: Default::Else("needed for `slow`"),
            effect: "slow: each answer takes this many times longer",
        },
    ],
    settings: &[],
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
    let factor = table.number(context, "factor");
    let factor = table.optional("factor", factor).ok();
    let change = change?;
    let others: &[&str] = match &*change {
        "down" => &["factor"],
        "slow" => &["detect"],
        _ => &["detect", "factor"],
    };
    only_with(context, table, others, "change", &change);
    let mut missing = |message: &str, help: &str| {
        let diagnostic = Diagnostic::new(Code::MissingKey, message).at(table.span(), "this table");
        context.report(diagnostic.help(help));
        None
    };
    let change = match (&*change, detect?, factor?) {
        ("up", ..) => PathChange::Up,
        ("stall", ..) => PathChange::Stall,
        ("down", Some(detect), _) => PathChange::Down { detect: Duration::from_nanos(detect) },
        ("down", None, _) => {
            let help = "add `detect = \"1s\"`, the transport's time-out";
            return missing("a path that goes down needs a `detect`", help);
        }
        (_, _, Some(factor)) => PathChange::Slow { factor: factor as u32 },
        (_, _, None) => {
            return missing("a path that is slow needs a `factor`", "add `factor = 20`");
        }
    };
    Some(PathFault {
        at: Duration::from_nanos(at?.value),
        backend: BackendId::new(backend? as u32),
        path: path?.value as u32,
        change,
    })
}
