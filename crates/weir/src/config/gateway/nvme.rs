//! `[nvme]`: where NVMe hosts connect over TCP, and the limits towards them.

#[cfg(test)]
mod tests;

use super::iscsi::{digest, policy};
use super::listen::{Listeners, addresses, bounded};
use super::subsystem;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::Names;
use crate::config::schema::{Default, Key, Kind, Many, Part, Section};
use crate::config::tree::{Context, Document, Read, Table};
use crate::config::units::shorten;
use std::net::SocketAddr;
use weir_flow::settings::Settings as _;
use weir_serve::config::Nvme;

/// The table.
pub(super) static NVME: Section = Section {
    name: "nvme",
    many: Many::Once,
    effect: "where NVMe hosts connect over TCP, and the limits towards them",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Else("none"),
            effect: "where connections are accepted, for discovery and for I/O; port 0 takes a free one",
        },
        Key {
            name: "advertise",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Else("the addresses that the host can use"),
            effect: "what discovery names, for hosts behind address translation",
        },
        digest("header_digest", "CRC32C over headers"),
        digest("data_digest", "CRC32C over data"),
    ],
    settings: &[Part::always(Nvme::TABLE)],
};

/// Reads the table, and the subsystems.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    volumes: &Names,
    listeners: &mut Listeners,
) -> Option<Nvme> {
    let table = document.once(context, "nvme");
    let listen = match table.texts(context, "listen") {
        Some(texts) => addresses(context, &texts, PORT, listeners),
        None => (!table.has("listen")).then(Vec::new),
    };
    let advertise = advertise(context, &table);
    let header_digest = table.text(context, "header_digest");
    let data_digest = table.text(context, "data_digest");
    let settings = table.settings(context).filter(|settings| fits(context, &table, settings));
    let queues = settings.as_ref().map_or(u32::MAX, |settings| settings.queues);
    let subsystems = subsystem::read(
        context,
        document,
        volumes,
        (queues, listen.as_deref().unwrap_or_default()),
    );
    let nvme = Nvme {
        listen: listen?,
        advertise: advertise?,
        header_digest: policy(&header_digest?),
        data_digest: policy(&data_digest?),
        subsystems: subsystems?,
        ..settings?
    };
    if nvme.listen.is_empty() && !nvme.subsystems.is_empty() {
        let diagnostic = Diagnostic::new(Code::MissingKey, "NVMe subsystems without a listener");
        let span = document.locate("subsystem", 0, &["name"]);
        let help = format!("add `[nvme]` with `listen = [\"127.0.0.1:{PORT}\"]`");
        context.report(diagnostic.at(span, "this subsystem").help(help));
    }
    if !nvme.listen.is_empty() && nvme.subsystems.is_empty() {
        let diagnostic = Diagnostic::new(Code::MissingKey, "NVMe hosts would find no subsystem");
        let span = document.locate("nvme", 0, &["listen"]);
        let help = "add a `[[subsystem]]` with `name` and `namespaces`";
        context.report(diagnostic.at(span, "they can connect, but").help(help));
    }
    Some(nvme)
}

/// Whether the settings fulfil what their ranges do not say.
fn fits(context: &mut Context, table: &Table<'_>, settings: &Nvme) -> bool {
    let Err(invalid) = settings.validate() else { return true };
    let diagnostic = Diagnostic::new(Code::OutOfRange, invalid.to_string());
    let diagnostic = diagnostic.at_some(table.value_span(invalid.name()).as_ref(), "this value");
    context
        .report(diagnostic.help("such as `max_transfer = \"1MiB\"` and `in_capsule = \"8KiB\"`"));
    false
}

/// The addresses that discovery names.
fn advertise(context: &mut Context, table: &Table<'_>) -> Option<Vec<SocketAddr>> {
    let Some(texts) = table.texts(context, "advertise") else {
        return (!table.has("advertise")).then(Vec::new);
    };
    bounded(context, "advertise", &texts);
    let address = |text: &Read<String>| {
        let parsed = text.value.parse::<SocketAddr>().ok();
        let usable = parsed.filter(|one| one.port() != 0 && !one.ip().is_unspecified());
        if usable.is_none() {
            let message =
                format!("`{}` is not an address that hosts can use", shorten(&text.value));
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let diagnostic = diagnostic.at_some(text.span.as_ref(), "an item of `advertise`");
            let help = format!("write an IP address and a port, such as `192.0.2.10:{PORT}`");
            context.report(diagnostic.help(help));
        }
        usable
    };
    let all: Vec<_> = texts.iter().map(address).collect();
    all.into_iter().collect()
}

/// The port of NVMe/TCP, for messages.
const PORT: u16 = 4_420;
