//! `[[target]]`: a name that hosts log in to, and the volumes that they find there.

use super::account::{ACCOUNTS, Accounts, MUTUAL};
use super::initiators;
use super::listen::is_portal;
use super::numbered::Numbered;
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::{Names, check_iscsi};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Noted, Table};
use crate::config::units::shorten;
use std::collections::BTreeMap;
use weir_serve::config::{Redirect, Target};

/// The table.
pub(super) static TARGET: Section = Section {
    name: "target",
    many: Many::Times(0, 1_024),
    effect: "a name that hosts log in to",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("an iSCSI name: `iqn.`, `eui.` or `naa.`"),
            default: Default::Required,
            effect: "what hosts log in to (RFC 7143, 4.2.7)",
        },
        Key {
            name: "alias",
            kind: Kind::Text("a text of at most 255 bytes"),
            default: Default::Else("none"),
            effect: "a name for people, which hosts may show",
        },
        initiators::key("who may log in; to others it does not exist"),
        ACCOUNTS,
        MUTUAL,
        Key {
            name: "redirect",
            kind: Kind::Text("`host:port`"),
            default: Default::Else("none"),
            effect: "where hosts that log in are sent instead",
        },
        Key {
            name: "redirect_permanent",
            kind: Kind::Flag,
            default: Default::Is("false"),
            effect: "sent there for ever, so that hosts may remember it",
        },
        Key {
            name: "luns",
            kind: Kind::Other("`{ 0 = \"volume\", … }`, numbers 0 to 255"),
            default: Default::Else("none, with `redirect`; otherwise it is required"),
            effect: "which volume hosts find under which logical unit number",
        },
    ],
    settings: &[],
};

/// Longest alias, in bytes: what a text value of a login holds (RFC 7143, 6.1).
const MAX_ALIAS: usize = 255;

/// The largest logical unit number is 255: those above need another addressing method (SAM-5, 4.7).
const LUNS: Numbered = Numbered {
    key: "luns",
    one: "a LUN",
    several: "LUNs",
    numbers: 0..=255,
    form: "write `luns = { 0 = \"disk0\" }`",
    twice: ("is in this target twice", "hosts take both for one disk; remove one"),
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    volumes: &Names,
    accounts: &mut Accounts,
) -> Option<Vec<Target>> {
    let mut names: BTreeMap<String, Option<Span>> = BTreeMap::new();
    let tables = document.many(context, "target");
    let targets: Vec<_> =
        tables.iter().map(|table| one(context, table, volumes, accounts, &mut names)).collect();
    targets.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    volumes: &Names,
    accounts: &mut Accounts,
    names: &mut BTreeMap<String, Option<Span>>,
) -> Option<Target> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        if let Err((message, help)) = check_iscsi(&name.value) {
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "not an iSCSI name");
            context.report(diagnostic.help(help));
        }
        if let Some(first) = names.get(&name.value) {
            let diagnostic = Diagnostic::new(Code::Duplicate, "two targets have this name")
                .at_some(name.span.as_ref(), "the second")
                .see(first.as_ref(), "the first");
            context.report(diagnostic.help("put all LUNs into one of them, or rename one"));
        } else {
            names.insert(name.value.clone(), name.span.clone());
        }
    }
    let alias = table.text(context, "alias");
    if let Some(alias) = &alias
        && alias.value.len() > MAX_ALIAS
    {
        let diagnostic =
            Diagnostic::new(Code::OutOfRange, format!("an alias has at most {MAX_ALIAS} bytes"));
        let diagnostic = diagnostic.at_some(alias.span.as_ref(), "this alias");
        context.report(diagnostic.help("write a shorter one"));
    }
    let initiators = initiators::read(context, table);
    let authentication = accounts.authentication(context, table);
    let redirect = redirect(context, table);
    let luns = if table.has("redirect") && !table.has("luns") {
        Some(Vec::new())
    } else {
        luns(context, table, volumes)
    };
    Some(Target {
        name: name?.value,
        alias: table.optional("alias", alias).ok()?,
        initiators: initiators?,
        authentication: authentication?,
        redirect: redirect.ok()?,
        luns: luns?,
    })
}

/// Where hosts are sent instead, if anywhere.
fn redirect(context: &mut Context, table: &Table<'_>) -> Result<Option<Redirect>, Noted> {
    if !table.has("redirect") {
        if let Some(span) = table.value_span("redirect_permanent") {
            let message = "`redirect_permanent` means nothing without `redirect`";
            let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "this value");
            context.report(diagnostic.help("add `redirect = \"host:port\"`, or remove it"));
        }
        return Ok(None);
    }
    let portal = table.text(context, "redirect");
    let permanent = table.flag(context, "redirect_permanent");
    let portal = portal.ok_or(Noted)?;
    if !is_portal(&portal.value) {
        let message = format!("`{}` is not a host and a port", shorten(&portal.value));
        let diagnostic = Diagnostic::new(Code::BadValue, message);
        let diagnostic = diagnostic.at_some(portal.span.as_ref(), "the value of `redirect`");
        context.report(diagnostic.help("write `host:port`, such as `192.0.2.10:3260`"));
        return Err(Noted);
    }
    let permanent = permanent.ok_or(Noted)?.value;
    Ok(Some(Redirect { portal: portal.value, permanent }))
}

fn luns(context: &mut Context, table: &Table<'_>, volumes: &Names) -> Option<Vec<(u16, usize)>> {
    let luns = LUNS.read(context, table, volumes, &mut BTreeMap::new())?;
    let span = table.value_span("luns");
    let label = "the value of `luns`";
    if luns.is_empty() && !table.has("redirect") {
        let diagnostic = Diagnostic::new(Code::BadValue, "a target without LUNs offers nothing");
        context.report(diagnostic.at_some(span.as_ref(), label).help(LUNS.form));
        return None;
    }
    if !luns.contains_key(&0) && !luns.is_empty() {
        let diagnostic = Diagnostic::new(Code::Unused, "this target has no LUN 0");
        let diagnostic = diagnostic.at_some(span.as_ref(), label);
        context.report(diagnostic.help("many hosts ask LUN 0 for the list of the others"));
    }
    Some(luns.into_iter().map(|(lun, volume)| (lun as u16, volume)).collect())
}
