//! `[[link]]` of a plan: what carries the replies to the hosts.

use crate::config::names::{self, Names};
use crate::config::schema::{Many, Part, Section};
use crate::config::tree::{Context, Document, Table};
use weir_flow::settings::Settings as _;
use weir_model::link;
use weir_sim::plan::{HostLink, MAX_PARTS};

/// The table.
pub(super) static LINK: Section = Section {
    name: "link",
    many: Many::Times(0, MAX_PARTS),
    effect: "a link on which replies leave; without any there is one that takes no time",
    keys: &[names::key("names the link")],
    settings: &[Part::always(link::Config::TABLE)],
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    names: &mut Names,
) -> Option<Vec<HostLink>> {
    let tables = document.many(context, "link");
    if tables.is_empty() {
        return Some(vec![HostLink::infinite("host")]);
    }
    let links: Vec<_> = tables.iter().map(|table| one(context, table, names)).collect();
    links.into_iter().collect()
}

fn one(context: &mut Context, table: &Table<'_>, names: &mut Names) -> Option<HostLink> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let config = table.settings(context);
    Some(HostLink { name: name?.value, config: config? })
}
