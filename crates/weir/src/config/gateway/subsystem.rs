//! `[[subsystem]]`: a name that NVMe hosts connect to, and the volumes that they find there.

use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::{Names, check_nqn, check_nqns};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Read, Table};
use crate::config::units::shorten;
use crate::config::value::{Value, type_name};
use std::collections::BTreeMap;
use toml::de::DeValue;
use weir_serve::config::{Initiators, Subsystem};

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
    ],
    settings: &[],
};

/// Largest namespace identifier.
const MAX_NSID: u32 = 256;

/// Most entries of `hosts`.
const MAX_HOSTS: usize = 1_024;

/// What the value of `namespaces` looks like.
const FORM: &str = "write `namespaces = { 1 = \"disk0\" }`";

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
) -> Option<Vec<Subsystem>> {
    let mut known = Known::default();
    let tables = document.many(context, "subsystem");
    let all: Vec<_> = tables.iter().map(|table| one(context, table, volumes, &mut known)).collect();
    all.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    volumes: &Names,
    known: &mut Known,
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
    let hosts = hosts(context, table);
    Some(Subsystem { name: name?.value, namespaces: namespaces?, hosts: hosts? })
}

fn hosts(context: &mut Context, table: &Table<'_>) -> Option<Initiators> {
    let Some(names) = table.texts(context, "hosts") else {
        return (!table.has("hosts")).then(Initiators::default);
    };
    let diagnostics = context.diagnostics.len();
    for name in &names {
        if let Err((message, help)) = check_nqns(&name.value) {
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "no host is called so");
            context.report(diagnostic.help(help));
        }
    }
    let wrong = if names.is_empty() {
        Some(("an empty list of hosts would let everyone in", "name a host, or remove `hosts`"))
    } else if names.len() > MAX_HOSTS {
        Some(("there are more than 1024 hosts", "let an entry that ends in `*` stand for several"))
    } else {
        None
    };
    if let Some((message, help)) = wrong {
        let span = table.value_span("hosts");
        let diagnostic = Diagnostic::new(Code::OutOfRange, message);
        context.report(diagnostic.at_some(span.as_ref(), "this list").help(help));
    }
    let names = names.into_iter().map(|name| name.value);
    (context.diagnostics.len() == diagnostics).then(|| Initiators::new(names))
}

fn namespaces(
    context: &mut Context,
    table: &Table<'_>,
    volumes: &Names,
    known: &mut Known,
) -> Option<Vec<(u32, usize)>> {
    let Some(raw) = table.raw(context, "namespaces") else {
        table.missing(context, "namespaces");
        return None;
    };
    let DeValue::Table(entries) = raw.get_ref() else {
        let message = format!("{} where a table of namespaces belongs", type_name(raw.get_ref()));
        let diagnostic = Diagnostic::new(Code::WrongType, message);
        context.report(diagnostic.at(raw.span(), "the value of `namespaces`").help(FORM));
        return None;
    };
    let diagnostics = context.diagnostics.len();
    if entries.is_empty() {
        let message = "a subsystem without namespaces offers nothing";
        let diagnostic = Diagnostic::new(Code::BadValue, message);
        context.report(diagnostic.at(raw.span(), "the value of `namespaces`").help(FORM));
    }
    let mut found: BTreeMap<u32, (String, usize)> = BTreeMap::new();
    for (key, value) in entries {
        let Some(nsid) = number(key.get_ref()) else {
            let message = format!("namespace `{}`", shorten(key.get_ref()));
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let diagnostic = diagnostic.at(key.span(), "a key of `namespaces`");
            context.report(diagnostic.help(format!("namespace identifiers are 1 to {MAX_NSID}")));
            continue;
        };
        let Some(name) = value.get_ref().as_str() else {
            let message = format!("{} where a volume's name belongs", type_name(value.get_ref()));
            let diagnostic = Diagnostic::new(Code::WrongType, message).at(value.span(), "this");
            context.report(diagnostic.help(FORM));
            continue;
        };
        let read = Read { value: name.to_owned(), span: Some(value.span()) };
        let Some(volume) = volumes.find(context, &read) else { continue };
        if let Some(first) = known.volumes.get(&volume) {
            let message = format!("volume `{name}` is a namespace twice");
            let diagnostic = Diagnostic::new(Code::Duplicate, message)
                .at(value.span(), "the second")
                .see(Some(first), "the first");
            let help = "hosts refuse one disk under two names; list both hosts in one subsystem";
            context.report(diagnostic.help(help));
            continue;
        }
        known.volumes.insert(volume, value.span());
        found.insert(nsid, (name.to_owned(), volume));
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    let pairs = found.iter().map(|(nsid, (name, _))| (nsid.to_string(), Value::Text(name.clone())));
    table.note(context, "namespaces", Value::Pairs(pairs.collect()), Some(raw.span()));
    Some(found.into_iter().map(|(nsid, (_, volume))| (nsid, volume)).collect())
}

/// A namespace identifier in its only form: digits without leading zeros.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|nsid| plain && (1..=MAX_NSID).contains(nsid))
}
