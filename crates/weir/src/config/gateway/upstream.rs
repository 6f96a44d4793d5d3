//! `[[upstream]]`: a logical unit of another iSCSI target, and the paths to it.

use super::account::Accounts;
use super::iscsi::digest;
use super::listen::remote;
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::{self, Names, check_iscsi};
use crate::config::schema::{Default, Key, Kind, Many, Part, Section};
use crate::config::tree::{Context, Document, Read, Table, unknown};
use crate::config::units::shorten;
use crate::config::value::{Value, type_name};
use std::net::SocketAddr;
use toml::de::DeValue;
use weir_flow::settings::Settings as _;
use weir_serve::config::{Account, Portal, Upstream, Volume, Where};

/// The table.
pub(super) static UPSTREAM: Section = Section {
    name: "upstream",
    many: Many::Times(0, 1_024),
    effect: "a logical unit of another iSCSI target, on which a volume or a store may be; connected only then",
    keys: &[
        names::key("names the upstream"),
        Key {
            name: "target",
            kind: Kind::Text("an iSCSI name: `iqn.`, `eui.` or `naa.`"),
            default: Default::Required,
            effect: "the target that is logged in to",
        },
        Key {
            name: "portals",
            kind: Kind::Other("list: `address:port`, or `{ address = \"…\", group = 1 }`"),
            default: Default::Required,
            effect: "where the target is reached; each is a path. Paths of a smaller group (0 to 255, \
                     0 if not written) are used while one of them works",
        },
        Key {
            name: "initiator_name",
            kind: Kind::Text("an iSCSI name: `iqn.`, `eui.` or `naa.`"),
            default: Default::Else("a name made of this machine's identity"),
            effect: "who the gateway is there; no two gateways may have the same name at one target",
        },
        Key {
            name: "account",
            kind: Kind::Text("an account's name"),
            default: Default::Else("none"),
            effect: "what the gateway proves itself by, if the target asks (CHAP)",
        },
        Key {
            name: "mutual",
            kind: Kind::Text("an account's name"),
            default: Default::Else("none"),
            effect: "what the target must prove itself by (mutual CHAP)",
        },
        digest("header_digest", "CRC32C over headers"),
        digest("data_digest", "CRC32C over data"),
    ],
    settings: &[Part::always(Upstream::TABLE)],
};

/// Most portals of one upstream.
const MAX_PORTALS: usize = 64;

/// Largest number of a priority group.
const MAX_GROUP: u32 = 255;

/// What a portal looks like.
const FORM: &str = "write `\"192.0.2.1:3260\"` or `{ address = \"192.0.2.1:3260\", group = 1 }`";

/// The keys of a portal that is a table.
const PORTAL_KEYS: &[&str] = &["address", "group"];

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    names: &mut Names,
    accounts: &mut Accounts,
) -> Option<Vec<Upstream>> {
    let tables = document.many(context, "upstream");
    let upstreams: Vec<_> =
        tables.iter().map(|table| one(context, table, names, accounts)).collect();
    upstreams.into_iter().collect()
}

/// Those that a volume is on, which the volumes now name by their new places: others are not connected, and
/// cannot keep the gateway from its start.
pub(super) fn in_use(upstreams: Vec<Upstream>, volumes: &mut [Volume]) -> Vec<Upstream> {
    let is_used = |index: &usize| volumes.iter().any(|volume| volume.is_on(*index));
    let used: Vec<usize> = (0..upstreams.len()).filter(is_used).collect();
    for store in volumes.iter_mut().flat_map(|volume| &mut volume.stores) {
        if let Where::Upstream { index, .. } = store {
            *index = used.binary_search(index).expect("a volume is on it");
        }
    }
    let upstreams = upstreams.into_iter().enumerate();
    upstreams.filter(|(index, _)| used.contains(index)).map(|(_, upstream)| upstream).collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    names: &mut Names,
    accounts: &mut Accounts,
) -> Option<Upstream> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let target = iscsi_name(context, table, "target");
    let portals = portals(context, table);
    let initiator_name = iscsi_name(context, table, "initiator_name");
    let proofs = proofs(context, table, accounts);
    let header_digest = table.text(context, "header_digest");
    let data_digest = table.text(context, "data_digest");
    let settings: Option<Upstream> = table.settings(context);
    let (account, mutual) = proofs?;
    Some(Upstream {
        name: name?.value,
        target: target?.value,
        portals: portals?,
        initiator_name: table.optional("initiator_name", initiator_name).ok()?,
        account,
        mutual,
        header_digest: super::iscsi::policy(&header_digest?),
        data_digest: super::iscsi::policy(&data_digest?),
        ..settings?
    })
}

/// A name of an initiator or a target.
pub(super) fn iscsi_name(
    context: &mut Context,
    table: &Table<'_>,
    key: &str,
) -> Option<Read<String>> {
    let name = table.text(context, key)?;
    if let Err((message, help)) = check_iscsi(&name.value) {
        let diagnostic = Diagnostic::new(Code::BadValue, message);
        let diagnostic = diagnostic.at_some(name.span.as_ref(), "not an iSCSI name");
        context.report(diagnostic.help(help));
        return None;
    }
    Some(name)
}

/// What either side proves itself by.
fn proofs(
    context: &mut Context,
    table: &Table<'_>,
    accounts: &mut Accounts,
) -> Option<(Option<Account>, Option<Account>)> {
    let mut read = |key: &str| match table.text(context, key) {
        Some(name) => accounts.proof(context, &name).map(Some),
        None => (!table.has(key)).then_some(None),
    };
    let (account, mutual) = (read("account"), read("mutual"));
    if let Some(span) = table.value_span("mutual").filter(|_| !table.has("account")) {
        let message = "`mutual` without `account`: a target is asked only by who proves itself";
        let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "this account");
        context.report(diagnostic.help("add `account = \"…\"`, or remove `mutual`"));
        return None;
    }
    let (account, mutual) = (account?, mutual?);
    if let (Some(one), Some(other)) = (&account, &mutual)
        && one.secret == other.secret
    {
        let message = "the two sides of one login prove themselves by one secret";
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at_some(table.value_span("mutual").as_ref(), "proves the target")
            .see(table.value_span("account").as_ref(), "proves the gateway");
        let help = "use an account with another secret for `mutual` (RFC 7143, 9.2.1)";
        context.report(diagnostic.help(help));
        return None;
    }
    Some((account, mutual))
}

fn portals(context: &mut Context, table: &Table<'_>) -> Option<Vec<Portal>> {
    let raw = table.raw(context, "portals")?;
    let items: Vec<_> = match raw.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![raw],
    };
    let diagnostics = context.diagnostics.len();
    let mut portals: Vec<Portal> = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    let mut shown = Vec::new();
    for item in &items {
        let Some((address, group)) = portal(context, item.get_ref(), item.span()) else { continue };
        if let Some(first) = portals.iter().position(|known| known.address == address) {
            let diagnostic =
                Diagnostic::new(Code::Duplicate, format!("`{address}` is a path twice"))
                    .at(item.span(), "the second")
                    .see(Some(&spans[first]), "the first");
            context.report(diagnostic.help("remove one of them"));
            continue;
        }
        portals.push(Portal { address, group });
        spans.push(item.span());
        let text = Value::Text(address.to_string());
        shown.push(if group == 0 {
            text
        } else {
            let group = Value::Number(group.into(), None);
            Value::Pairs(vec![("address".to_owned(), text), ("group".to_owned(), group)])
        });
    }
    if items.is_empty() {
        let diagnostic =
            Diagnostic::new(Code::BadValue, "an upstream without portals cannot be reached");
        context.report(diagnostic.at(raw.span(), "the value of `portals`").help(FORM));
    }
    if let Some(extra) = items.get(MAX_PORTALS) {
        let diagnostic =
            Diagnostic::new(Code::OutOfRange, format!("`portals` has {} entries", items.len()));
        let diagnostic = diagnostic.at(extra.span(), "the first one too many");
        context.report(diagnostic.help(format!("write at most {MAX_PORTALS}")));
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    table.note(context, "portals", Value::List(shown), Some(raw.span()));
    Some(portals)
}

/// One portal, in either of its forms.
fn portal(context: &mut Context, item: &DeValue<'_>, span: Span) -> Option<(SocketAddr, u32)> {
    match item {
        DeValue::String(text) => address(context, text, span).map(|address| (address, 0)),
        DeValue::Table(entries) => {
            let diagnostics = context.diagnostics.len();
            for (key, _) in entries {
                let name: &str = key.get_ref();
                if !PORTAL_KEYS.contains(&name) {
                    let message = format!("a portal has no key `{}`", shorten(name));
                    context.report(unknown(message, key.span(), name, PORTAL_KEYS));
                }
            }
            let Some(text) = entries.get("address") else {
                let diagnostic = Diagnostic::new(Code::MissingKey, "a portal has no `address`");
                context.report(diagnostic.at(span, "this portal").help(FORM));
                return None;
            };
            let address = match text.get_ref().as_str() {
                Some(written) => address(context, written, text.span()),
                None => wrong(context, text.get_ref(), text.span()),
            };
            let group = match entries.get("group") {
                None => Some(0),
                Some(group) => {
                    let number = group.get_ref().as_integer();
                    let number = number
                        .and_then(|number| {
                            u32::from_str_radix(number.as_str(), number.radix()).ok()
                        })
                        .filter(|&number| number <= MAX_GROUP);
                    if number.is_none() {
                        let message = "this is not the number of a priority group";
                        let diagnostic = Diagnostic::new(Code::BadValue, message);
                        let diagnostic = diagnostic.at(group.span(), "the value of `group`");
                        let help = format!("write a number from 0 to {MAX_GROUP}");
                        context.report(diagnostic.help(help));
                    }
                    number
                }
            };
            (context.diagnostics.len() == diagnostics).then_some((address?, group?))
        }
        other => wrong(context, other, span),
    }
}

fn address(context: &mut Context, text: &str, span: Span) -> Option<SocketAddr> {
    match remote(text) {
        Ok(address) => Some(address),
        Err(help) => {
            let message = format!("`{}` is not an address and a port", shorten(text));
            let diagnostic =
                Diagnostic::new(Code::BadValue, message).at(span, "an item of `portals`");
            context.report(diagnostic.help(help));
            None
        }
    }
}

fn wrong<T>(context: &mut Context, found: &DeValue<'_>, span: Span) -> Option<T> {
    let message = format!("{} where a portal belongs", type_name(found));
    let diagnostic = Diagnostic::new(Code::WrongType, message).at(span, "an item of `portals`");
    context.report(diagnostic.help(FORM));
    None
}
