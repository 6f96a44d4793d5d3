//! `[[volume]]` of a plan: an address space on a backend.

use super::part_of;
use crate::config::cap;
use crate::config::names::{self, Names};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Table};
use weir_flow::request::BackendId;
use weir_sim::plan::{MAX_PARTS, Volume};

/// The table.
pub(super) static VOLUME: Section = Section {
    name: "volume",
    many: Many::Times(1, MAX_PARTS),
    effect: "an address space that requests are aimed at",
    keys: &[
        names::key("names the volume"),
        Key {
            name: "size",
            kind: Kind::Size(1, 1 << 60),
            default: Default::Required,
            effect: "size of the volume",
        },
        Key {
            name: "backend",
            kind: Kind::Text("a backend's name"),
            default: Default::Else("the only backend"),
            effect: "the device behind it",
        },
        Key {
            name: "max_transfer",
            kind: Kind::Size(1, 1 << 60),
            default: Default::Else("never cut"),
            effect: "requests larger than this are cut",
        },
        cap::IOPS,
        cap::BANDWIDTH,
        cap::BURST,
    ],
    settings: &[],
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    backends: &Names,
    names: &mut Names,
) -> Option<Vec<Volume>> {
    let tables = document.many(context, "volume");
    let volumes: Vec<_> = tables.iter().map(|table| one(context, table, backends, names)).collect();
    volumes.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    backends: &Names,
    names: &mut Names,
) -> Option<Volume> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let size = table.number(context, "size");
    let backend = part_of(context, table, "backend", backends);
    let max_transfer = table.number(context, "max_transfer");
    let cap = cap::read(context, table);
    Some(Volume {
        name: name?.value,
        size: size?.value,
        backend: BackendId::new(backend? as u32),
        max_transfer: table.optional("max_transfer", max_transfer).ok()?.unwrap_or(u64::MAX),
        cap: cap?,
    })
}
