//! `[[subsystem]]`: a name that NVMe hosts connect to, and the volumes that they find there.

use super::initiators::{self, List};
use super::numbered::{Numbered, entries};
use super::streams;
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::{Names, check_nqn, check_nqns};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Table};
use crate::config::units::shorten;
use crate::config::value::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_serve::config::{AnaState, NSID_MAX, Subsystem};

/// The table.
pub(super) static SUBSYSTEM: Section = Section {
    name: "subsystem",
    many: Many::Times(0, 256),
    effect: "a name that NVMe hosts connect to",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("an NQN: `nqn.`, a date and a reversed domain"),
            default: Default::Required,
            effect: "what hosts connect to",
        },
        Key {
            name: "namespaces",
            kind: Kind::Other("`{ 1 = \"volume\", … }`, numbers 1 to 256"),
            default: Default::Required,
            effect: "which volume hosts find under which namespace identifier; a volume is in one subsystem only",
        },
        Key {
            name: "hosts",
            kind: Kind::Texts(
                "NQNs, or beginnings of NQNs and `*`; upper and lower case are the same",
            ),
            default: Default::Else("everyone"),
            effect: "who may connect; discovery does not name it to others. A name is no proof",
        },
        streams::STREAMS,
        streams::QUEUE_SHARES,
        streams::HOST_SHARES,
        streams::NAMESPACE_SHARES,
        Key {
            name: "ana",
            kind: Kind::Other(
                "`{ \"192.0.2.10:4420\" = \"optimized\", … }`, addresses of `listen`; `optimized`, `non-optimized` or \
                 `inaccessible`",
            ),
            default: Default::Else("optimized through every address"),
            effect: "which paths hosts prefer, and which they must not use (ANA)",
        },
    ],
    settings: &[],
};

const NAMESPACES: Numbered = Numbered {
    key: "namespaces",
    one: "a namespace identifier",
    several: "namespaces",
    numbers: 1..=NSID_MAX,
    form: "write `namespaces = { 1 = \"disk0\" }`",
    twice: (
        "is a namespace twice",
        "hosts refuse one disk under two names; list both hosts in one subsystem",
    ),
};

const HOSTS: List = List { key: "hosts", several: "hosts", one: "host", check: check_nqns };

/// What is known of the tables before.
#[derive(Default)]
struct Known {
    names: BTreeMap<String, Option<Span>>,
    /// The subsystem of each volume.
    volumes: BTreeMap<usize, Span>,
}

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    volumes: &Names,
    limits: (u32, &[SocketAddr]),
) -> Option<Vec<Subsystem>> {
    let mut known = Known::default();
    let tables = document.many(context, "subsystem");
    let all: Vec<_> =
        tables.iter().map(|table| one(context, table, volumes, &mut known, limits)).collect();
    all.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    volumes: &Names,
    known: &mut Known,
    (queues, listen): (u32, &[SocketAddr]),
) -> Option<Subsystem> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        if let Err((message, help)) = check_nqn(&name.value) {
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "not the NQN of a subsystem");
            context.report(diagnostic.help(help));
        }
        if let Some(first) = known.names.get(&name.value) {
            let diagnostic = Diagnostic::new(Code::Duplicate, "two subsystems have this name")
                .at_some(name.span.as_ref(), "the second")
                .see(first.as_ref(), "the first");
            context.report(diagnostic.help("put all namespaces into one of them, or rename one"));
        } else {
            known.names.insert(name.value.clone(), name.span.clone());
        }
    }
    let namespaces = namespaces(context, table, volumes, known);
    let hosts = initiators::read_list(context, table, &HOSTS);
    let streams = streams::read(context, table, queues, namespaces.as_deref());
    let ana = ana(context, table, listen);
    Some(Subsystem {
        name: name?.value,
        namespaces: namespaces?,
        hosts: hosts?,
        streams: streams?,
        ana: ana?,
    })
}

/// The state of access by portal.
fn ana(
    context: &mut Context,
    table: &Table<'_>,
    listen: &[SocketAddr],
) -> Option<Vec<(SocketAddr, AnaState)>> {
    const FORM: &str = "write `ana = { \"192.0.2.10:4420\" = \"non-optimized\" }`";
    let Some(raw) = table.raw(context, "ana") else { return Some(Vec::new()) };
    let entries = entries(context, raw, ("ana", "addresses"), FORM)?;
    let diagnostics = context.diagnostics.len();
    let (mut found, mut pairs) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        let text = key.get_ref();
        // A listener may take a free port, which is known later.
        let hears = |listener: &SocketAddr, address: SocketAddr| {
            (listener.ip() == address.ip() || listener.ip().is_unspecified())
                && (listener.port() == address.port() || listener.port() == 0)
        };
        let address = text.parse::<SocketAddr>().ok();
        let address = address.filter(|&one| listen.iter().any(|listener| hears(listener, one)));
        let Some(address) = address else {
            let message = format!("nothing listens on `{}`, which `ana` names", shorten(text));
            let diagnostic = Diagnostic::new(Code::Dangling, message);
            let diagnostic = diagnostic.at(key.span(), "a key of `ana`");
            context.report(diagnostic.help("write an address of `listen` in `[nvme]`"));
            continue;
        };
        let word = value.get_ref().as_str();
        let state = STATES.iter().find(|(name, _)| Some(*name) == word);
        let Some(&(name, state)) = state else {
            let message = "this is no state of access";
            let diagnostic = Diagnostic::new(Code::BadValue, message).at(value.span(), "this");
            let help = "write `optimized`, `non-optimized` or `inaccessible`";
            context.report(diagnostic.help(help));
            continue;
        };
        found.push((address, state));
        pairs.push((address.to_string(), Value::Text(name.to_owned())));
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    table.note(context, "ana", Value::Pairs(pairs), Some(raw.span()));
    Some(found)
}

/// The states of access that can be configured.
const STATES: [(&str, AnaState); 3] = [
    ("optimized", AnaState::Optimized),
    ("non-optimized", AnaState::NonOptimized),
    ("inaccessible", AnaState::Inaccessible),
];

fn namespaces(
    context: &mut Context,
    table: &Table<'_>,
    volumes: &Names,
    known: &mut Known,
) -> Option<Vec<(u32, usize)>> {
    let found = NAMESPACES.read(context, table, volumes, &mut known.volumes)?;
    if found.is_empty() {
        let message = "a subsystem without namespaces offers nothing";
        let diagnostic = Diagnostic::new(Code::BadValue, message);
        let span = table.value_span("namespaces");
        let diagnostic = diagnostic.at_some(span.as_ref(), "the value of `namespaces`");
        context.report(diagnostic.help(NAMESPACES.form));
        return None;
    }
    Some(found.into_iter().collect())
}
