//! `[iscsi]`: where hosts connect, and the limits towards them.

use super::listen::{Listeners, addresses, bounded, is_portal};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Read};
use crate::config::units::shorten;
use std::net::SocketAddr;
use weir_serve::config::{DigestPolicy, Iscsi};

/// The table.
pub(super) static ISCSI: Section = Section {
    name: "iscsi",
    many: Many::Once,
    effect: "where iSCSI hosts connect, and the limits towards them",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Is("127.0.0.1:3260"),
            effect: "where connections are accepted; port 0 takes a free one; `[]` for NBD alone",
        },
        Key {
            name: "advertise",
            kind: Kind::Texts("`host:port`"),
            default: Default::Else("the address that the host connected to"),
            effect: "what discovery names, for hosts behind address translation",
        },
        Key {
            name: "max_connections",
            kind: Kind::Count(1, 65_536),
            default: Default::Is("1024"),
            effect: "connections at once; one more is closed at once",
        },
        Key {
            name: "max_logins",
            kind: Kind::Count(1, 65_536),
            default: Default::Is("256"),
            effect: "connections at once that have not logged in; one more closes the one that has \
                     waited longest",
        },
        digest("header_digest", "CRC32C over headers"),
        digest("data_digest", "CRC32C over data"),
        Key {
            name: "max_commands",
            kind: Kind::Count(1, 1_024),
            default: Default::Is("128"),
            effect: "commands that one session may have outstanding: the command window",
        },
        Key {
            name: "buffer",
            kind: Kind::Size(16 << 20, 1 << 50),
            default: Default::Is("256MiB"),
            effect: "memory for the payload of requests, shared among the sessions; when it is used \
                     up, hosts see TASK SET FULL",
        },
    ],
};

const fn digest(name: &'static str, effect: &'static str) -> Key {
    let kind = Kind::Word(&["allowed", "required", "never"]);
    Key { name, kind, default: Default::Is("allowed"), effect }
}

/// The checked table.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) listen: Vec<SocketAddr>,
    pub(super) advertise: Vec<String>,
    pub(super) limits: Iscsi,
}

/// Reads the table.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    listeners: &mut Listeners,
) -> Option<Checked> {
    let table = document.once(context, "iscsi");
    let listen = table.texts(context, "listen");
    let listen = listen.and_then(|texts| addresses(context, &texts, PORT, listeners));
    let advertise = match table.texts(context, "advertise") {
        Some(texts) => portals(context, &texts),
        None if table.has("advertise") => None,
        None => Some(Vec::new()),
    };
    let max_connections = table.number(context, "max_connections");
    let max_logins = table.number(context, "max_logins");
    let header_digest = table.text(context, "header_digest");
    let data_digest = table.text(context, "data_digest");
    let commands = table.number(context, "max_commands");
    let buffer = table.number(context, "buffer");
    let limits = Iscsi {
        max_connections: max_connections?.value as u32,
        commands: commands?.value as u32,
        buffer_bytes: buffer?.value,
        max_logins: max_logins?.value as u32,
        header_digest: policy(&header_digest?),
        data_digest: policy(&data_digest?),
    };
    Some(Checked { listen: listen?, advertise: advertise?, limits })
}

/// What a word says of a digest.
pub(super) fn policy(word: &Read<String>) -> DigestPolicy {
    match word.value.as_str() {
        "never" => DigestPolicy::Never,
        "required" => DigestPolicy::Required,
        _ => DigestPolicy::Allowed,
    }
}

fn portals(context: &mut Context, texts: &[Read<String>]) -> Option<Vec<String>> {
    let diagnostics = context.diagnostics.len();
    for text in texts {
        if !is_portal(&text.value) {
            let message = format!("`{}` is not a host and a port", shorten(&text.value));
            let diagnostic = Diagnostic::new(Code::BadValue, message)
                .at_some(text.span.as_ref(), "an item of `advertise`");
            context.report(diagnostic.help("write `host:port`, such as `10.0.2.2:3260`"));
        }
    }
    bounded(context, "advertise", texts);
    let texts = texts.iter().map(|text| text.value.clone()).collect();
    (context.diagnostics.len() == diagnostics).then_some(texts)
}

/// The port of iSCSI, for messages.
pub(super) const PORT: u16 = 3260;
