//! `[[link]]` of a gateway: an outgoing link that connections share.

use super::listen::{Listeners, bounded, local};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::{self, Names};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Read, Table};
use std::net::SocketAddr;
use weir_flow::units::Bandwidth;
use weir_serve::config::Link;

/// The table.
pub(super) static LINK: Section = Section {
    name: "link",
    many: Many::Times(0, 64),
    effect: "an outgoing link that several connections share: their replies leave in the order of the transfer \
             policy, no faster than `bandwidth`; without a link, connections do not wait for each other",
    keys: &[
        names::key("names the link"),
        Key {
            name: "listen",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Required,
            effect: "whose connections leave by it: addresses as they stand in `listen` of `[iscsi]`, `[nbd]` or `[nvme]`",
        },
        Key {
            name: "bandwidth",
            kind: Kind::Bandwidth(SLOWEST, 1 << 40),
            default: Default::Required,
            effect: "what it carries of data and headers of the protocol: 94 % of what an Ethernet does, \
                     or less; too much, and replies wait in the network in the order of their sending",
        },
    ],
    settings: &[],
};

/// A megabyte must not take minutes.
const SLOWEST: u64 = 16 << 10;

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    listeners: &Listeners,
) -> Option<Vec<Link>> {
    let mut names = Names::new("link");
    let mut taken = Vec::new();
    let tables = document.many(context, "link");
    let links: Vec<_> =
        tables.iter().map(|table| one(context, table, &mut names, listeners, &mut taken)).collect();
    links.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    names: &mut Names,
    listeners: &Listeners,
    taken: &mut Vec<Read<SocketAddr>>,
) -> Option<Link> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let listen = table.texts(context, "listen");
    let listen = listen.and_then(|texts| {
        bounded(context, "listen", &texts);
        if texts.is_empty() {
            let diagnostic =
                Diagnostic::new(Code::OutOfRange, "a link without addresses has no connections");
            let diagnostic =
                diagnostic.at_some(table.value_span("listen").as_ref(), "an empty list");
            context.report(diagnostic.help("write addresses, or remove the table"));
        }
        let all: Vec<_> =
            texts.iter().map(|text| address(context, text, listeners, taken)).collect();
        all.into_iter().collect()
    });
    let bandwidth = table.number(context, "bandwidth");
    let bandwidth = Bandwidth::per_second(bandwidth?.value)?;
    Some(Link { name: name?.value, listen: listen?, bandwidth })
}

/// An address that is listened on, and on no other link.
fn address(
    context: &mut Context,
    text: &Read<String>,
    listeners: &Listeners,
    taken: &mut Vec<Read<SocketAddr>>,
) -> Option<SocketAddr> {
    let address = local(context, text)?;
    if !listeners.iter().any(|one| one.value == address) {
        let message = format!("there is no listener on `{address}`");
        let diagnostic = Diagnostic::new(Code::Dangling, message);
        let diagnostic = diagnostic.at_some(text.span.as_ref(), "an item of `listen`");
        let known: Vec<_> = listeners.iter().map(|one| format!("`{}`", one.value)).collect();
        let help = format!(
            "write one that is in `listen` of `[iscsi]`, `[nbd]` or `[nvme]`: {}",
            known.join(", ")
        );
        context.report(diagnostic.help(help));
        return None;
    }
    if let Some(first) = taken.iter().find(|one| one.value == address) {
        let diagnostic = Diagnostic::new(Code::Duplicate, format!("`{address}` is on two links"))
            .at_some(text.span.as_ref(), "the second")
            .see(first.span.as_ref(), "the first");
        context.report(diagnostic.help("remove one of them"));
        return None;
    }
    taken.push(Read { value: address, span: text.span.clone() });
    Some(address)
}
