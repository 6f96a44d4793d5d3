//! `[iscsi]`: where hosts connect, and the limits towards them.

use super::listen::{Listeners, addresses, bounded, is_portal};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Part, Section};
use crate::config::tree::{Context, Document, Read};
use crate::config::units::shorten;
use std::net::SocketAddr;
use weir_flow::settings::Settings as _;
use weir_serve::config::{ChapAlgorithm, DigestPolicy, Iscsi};

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
            effect: "where connections are accepted; port 0 takes a free one; `[]` for none",
        },
        Key {
            name: "advertise",
            kind: Kind::Texts("`host:port`"),
            default: Default::Else("the address that the host connected to"),
            effect: "what discovery names, for hosts behind address translation",
        },
        digest("header_digest", "CRC32C over headers"),
        digest("data_digest", "CRC32C over data"),
        Key {
            name: "chap_algorithm_min",
            kind: Kind::Word(&["md5", "sha-256"]),
            default: Default::Is("md5"),
            effect: "the weakest CHAP algorithm that hosts may use; the strongest that both sides know is chosen",
        },
    ],
    settings: &[Part::always(Iscsi::TABLE)],
};

/// The key of a digest.
pub(super) const fn digest(name: &'static str, effect: &'static str) -> Key {
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
    let header_digest = table.text(context, "header_digest");
    let data_digest = table.text(context, "data_digest");
    let chap_algorithm_min = table.text(context, "chap_algorithm_min");
    let settings: Option<Iscsi> = table.settings(context);
    let limits = Iscsi {
        header_digest: policy(&header_digest?),
        data_digest: policy(&data_digest?),
        chap_algorithm_min: match chap_algorithm_min?.value.as_str() {
            "sha-256" => ChapAlgorithm::Sha256,
            _ => ChapAlgorithm::Md5,
        },
        ..settings?
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
