//! `[[link]]`: the way of the replies to the hosts.

use crate::config::names::{self, Names};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Table};
use weir_flow::clock::Duration;
use weir_flow::units::Bandwidth;
use weir_model::link;
use weir_sim::plan::{HostLink, MAX_PARTS};

/// The table.
pub(super) static LINK: Section = Section {
    name: "link",
    many: Many::Times(0, MAX_PARTS),
    effect: "a link on which replies leave; without any there is one that takes no time",
    keys: &[
        names::key("names the link"),
        Key {
            name: "bandwidth",
            kind: Kind::Bandwidth(1, 1 << 50),
            default: Default::Else("infinite"),
            effect: "rate at which replies leave",
        },
        Key {
            name: "delay",
            kind: Kind::Time(0, 3_600 * 1_000_000_000),
            default: Default::Is("0s"),
            effect: "time in one direction; a closed loop waits for it twice",
        },
    ],
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
    let bandwidth = table.number(context, "bandwidth");
    let bandwidth = table.optional("bandwidth", bandwidth).ok();
    let delay = table.number(context, "delay");
    let config = link::Config {
        bandwidth: bandwidth?.and_then(Bandwidth::per_second),
        delay: Duration::from_nanos(delay?.value),
    };
    Some(HostLink { name: name?.value, config })
}
