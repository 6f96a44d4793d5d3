//! Names: which are allowed, which exist, and which are meant.

use super::diagnostic::{Code, Diagnostic, Span};
use super::schema::{Default, Key, Kind};
use super::tree::{Context, Read};
use super::units::shorten;
use super::value::one_of;
use std::collections::{BTreeMap, BTreeSet};

/// The key with the name of what a table describes.
pub(crate) const fn key(effect: &'static str) -> Key {
    let kind = Kind::Text("a name: letters, digits, `-`, `_`, `.`");
    Key { name: "name", kind, default: Default::Required, effect }
}

/// The names of one kind of thing, with the index that each stands for.
#[derive(Debug)]
pub(crate) struct Names {
    /// What is named, in messages.
    what: &'static str,
    known: BTreeMap<String, (usize, Option<Span>)>,
    by_index: BTreeMap<usize, String>,
}

impl Names {
    /// No names yet.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, known: BTreeMap::new(), by_index: BTreeMap::new() }
    }

    /// Notes a new name, or a diagnostic if it is taken or not allowed.
    pub(crate) fn define(&mut self, context: &mut Context, name: &Read<String>, index: usize) {
        check_plain(context, name);
        self.define_any(context, name, index);
    }

    /// Notes a new name of whatever form, or a diagnostic if it is taken.
    pub(crate) fn define_any(&mut self, context: &mut Context, name: &Read<String>, index: usize) {
        let Read { value, span } = name;
        if let Some((_, first)) = self.known.get(value) {
            let message = format!("two {}s are called `{}`", self.what, shorten(value));
            let diagnostic = Diagnostic::new(Code::Duplicate, message)
                .at_some(span.as_ref(), "the second")
                .see(first.as_ref(), "the first")
                .help("give one of them another name");
            context.report(diagnostic);
            return;
        }
        self.known.insert(value.clone(), (index, span.clone()));
        self.by_index.insert(index, value.clone());
    }

    /// The index of a name that must exist.
    pub(crate) fn find(&self, context: &mut Context, name: &Read<String>) -> Option<usize> {
        if let Some((index, _)) = self.known.get(&name.value) {
            return Some(*index);
        }
        let (what, value) = (self.what, shorten(&name.value));
        let article = if what.starts_with('a') { "an" } else { "a" };
        let diagnostic = Diagnostic::new(Code::Dangling, format!("no {what} is called `{value}`"))
            .at_some(name.span.as_ref(), format!("names {article} {what}"));
        let known: Vec<&str> = self.known.keys().map(String::as_str).collect();
        context.report(if known.is_empty() {
            diagnostic.help(format!("add a `[[{what}]]` with this name"))
        } else if known.len() > MAX_LISTED {
            diagnostic.help(format!("define it, or name one of the {} that exist", known.len()))
        } else {
            diagnostic.help(one_of(&name.value, &known))
        });
        None
    }

    /// Whether nothing has a name.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The name with this index.
    pub(crate) fn name(&self, index: usize) -> Option<&str> {
        self.by_index.get(&index).map(String::as_str)
    }

    /// The only name that exists, if it is the only one.
    pub(crate) fn only(&self) -> Option<(&str, usize)> {
        match self.known.len() {
            1 => self.known.iter().next().map(|(name, (index, _))| (name.as_str(), *index)),
            _ => None,
        }
    }
}

/// Tenants: those with a table, and then those that exist by being named, in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    known: BTreeMap<String, usize>,
    /// Where the names of those with a table are.
    tables: BTreeMap<usize, Option<Span>>,
    /// Those that something else than their table names.
    named: BTreeSet<usize>,
}

impl Tenants {
    /// The index of a tenant with a table; a diagnostic if it has another table. All of these come before
    /// the others.
    pub(crate) fn define(&mut self, context: &mut Context, name: &Read<String>) -> usize {
        let index = self.enter(context, name);
        if let Some(first) = self.tables.get(&index) {
            let message = format!("two tenants are called `{}`", shorten(&name.value));
            let diagnostic = Diagnostic::new(Code::Duplicate, message)
                .at_some(name.span.as_ref(), "the second")
                .see(first.as_ref(), "the first");
            context.report(diagnostic.help("put all of it into one table, or rename one"));
        } else {
            self.tables.insert(index, name.span.clone());
        }
        index
    }

    /// The index of a tenant that something names.
    pub(crate) fn index(&mut self, context: &mut Context, name: &Read<String>) -> usize {
        let index = self.enter(context, name);
        self.named.insert(index);
        index
    }

    fn enter(&mut self, context: &mut Context, name: &Read<String>) -> usize {
        if let Some(index) = self.known.get(&name.value) {
            return *index;
        }
        check_plain(context, name);
        let index = self.known.len();
        self.known.insert(name.value.clone(), index);
        index
    }

    /// Whether something else than its table names this one.
    pub(crate) fn is_named(&self, index: usize) -> bool {
        self.named.contains(&index)
    }

    /// All names, by index.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.known.iter().collect();
        names.sort_by_key(|(_, index)| **index);
        names.into_iter().map(|(name, _)| name.clone()).collect()
    }
}

/// More names than this are not listed in a message.
const MAX_LISTED: usize = 12;

/// Longest name of a volume, tenant or other part, in bytes.
const MAX_NAME: usize = 64;

/// A name of our own: letters, digits, `-`, `_` and `.`, at most 64 bytes. It becomes a serial
/// number, a part of a report and the name of a random stream.
fn check_plain(context: &mut Context, name: &Read<String>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let diagnostic = if name.value.len() > MAX_NAME {
        Diagnostic::new(Code::BadValue, format!("a name is longer than {MAX_NAME} bytes"))
    } else if let Some(c) = name.value.chars().find(|&c| !allowed(c)) {
        Diagnostic::new(Code::BadValue, format!("a name has no `{}`", c.escape_debug()))
    } else {
        return;
    };
    let diagnostic = diagnostic.at_some(name.span.as_ref(), "this name");
    context.report(diagnostic.help("use letters, digits, `-`, `_` and `.`, at most 64"));
}

/// Longest NQN in bytes (NVM Express Base 1.4, 7.9).
const MAX_NQN: usize = 223;

/// Whether a text can be the NQN of a subsystem: `nqn.`, a year and a month, and a reversed domain. The error says what
/// is wrong and what to write.
pub(crate) fn check_nqn(name: &str) -> Result<(), (String, String)> {
    let example = "write a name such as `nqn.2026-11.org.example:disks`";
    let wrong = |what: &str| Err((what.to_owned(), example.to_owned()));
    if name.starts_with("iqn.") {
        return wrong("this is an iSCSI name; a subsystem needs an NQN");
    }
    if name.len() > MAX_NQN {
        return wrong("an NQN has at most 223 bytes");
    }
    if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return wrong("an NQN has no spaces and no control characters");
    }
    let is_dated = name.strip_prefix("nqn.").is_some_and(|rest| {
        let digits = |range| {
            rest.get(range).is_some_and(|text: &str| text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        digits(0..4)
            && rest.get(4..5) == Some("-")
            && digits(5..7)
            && rest.get(7..8) == Some(".")
            && rest.len() > 8
    });
    if !is_dated {
        return wrong("the name of a subsystem begins with `nqn.`, a date and a reversed domain");
    }
    if name == "nqn.2014-08.org.nvmexpress.discovery" {
        return wrong("this is the name of every discovery subsystem");
    }
    Ok(())
}

/// Whether a text is the NQN of a host, or a beginning of one and `*`.
pub(crate) fn check_nqns(text: &str) -> Result<(), (String, String)> {
    let front = text.strip_suffix('*').unwrap_or(text);
    let fits = if front.len() == text.len() {
        front.starts_with("nqn.") && front.len() > 4
    } else {
        front.starts_with("nqn.") || "nqn.".starts_with(front)
    };
    let plain = !front.chars().any(|c| c.is_control() || c.is_whitespace() || c == '*');
    if fits && plain && text.len() <= MAX_NQN {
        return Ok(());
    }
    let help =
        "write a whole NQN, or its beginning and `*`, such as `nqn.2014-08.org.nvmexpress:uuid:*`";
    Err(("this is not the NQN of a host".to_owned(), help.to_owned()))
}

/// Longest iSCSI name in bytes (RFC 7143, 4.2.7.2).
const MAX_ISCSI_NAME: usize = 223;

/// Whether a text is an iSCSI name (RFC 7143, 4.2.7): `iqn.`, `eui.` or `naa.`, in the form that
/// hosts compare, which is lower case. The error says what is wrong and what to write.
pub(crate) fn check_iscsi(name: &str) -> Result<(), (String, String)> {
    let example = "write a name such as `iqn.2026-11.org.example:disks`";
    let wrong = |what: &str| Err((what.to_owned(), example.to_owned()));
    if name.len() > MAX_ISCSI_NAME {
        return wrong("an iSCSI name has at most 223 bytes");
    }
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        let lower = name.to_ascii_lowercase();
        let help = format!("write `{}`", shorten(&lower));
        return Err(("an iSCSI name is written in lower case".to_owned(), help));
    }
    let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(id) = name.strip_prefix("eui.") {
        if id.len() != 16 || !hexadecimal(id) {
            return wrong("`eui.` is followed by 16 hexadecimal digits");
        }
        return Ok(());
    }
    if let Some(id) = name.strip_prefix("naa.") {
        if !matches!(id.len(), 16 | 32) || !hexadecimal(id) {
            return wrong("`naa.` is followed by 16 or 32 hexadecimal digits");
        }
        return Ok(());
    }
    let Some(rest) = name.strip_prefix("iqn.") else {
        return wrong("an iSCSI name begins with `iqn.`, `eui.` or `naa.`");
    };
    let (authority, _) = rest.split_once(':').unwrap_or((rest, ""));
    let Some((date, domain)) = authority.split_once('.') else {
        return wrong("`iqn.` is followed by a date and a domain: `iqn.yyyy-mm.domain`");
    };
    let month = |text: &str| text.parse::<u8>().is_ok_and(|month| (1..=12).contains(&month));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match date.split_once('-') {
        Some((y, m)) if y.len() == 4 && m.len() == 2 && digits(y) && digits(m) && month(m) => {}
        _ => return wrong("the date of an iSCSI name is `yyyy-mm`, a year and a month"),
    }
    let label = |text: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !text.is_empty()
            && text.chars().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    if !domain.split('.').all(label) {
        return wrong("the domain of an iSCSI name is written backwards, as in `org.example`");
    }
    let allowed = |c: char| c.is_alphanumeric() || "-.:".contains(c);
    if let Some(c) = rest.chars().find(|&c| !allowed(c)) {
        return wrong(&format!("an iSCSI name has no `{}`", c.escape_debug()));
    }
    Ok(())
}

/// Whether a text is an iSCSI name, or the beginning of some and a `*`. The error says what is wrong
/// and what to write.
pub(crate) fn check_initiator(text: &str) -> Result<(), (String, String)> {
    if text.starts_with("nqn.") {
        return check_nqns(text);
    }
    let front = text.strip_suffix('*').unwrap_or(text);
    if front.contains('*') {
        return Err((
            "`*` stands at the end, for the rest of a name".to_owned(),
            BEGINNING.to_owned(),
        ));
    }
    // A beginning is right if a name continues it.
    let whole = match front.get(..4) {
        _ if front.len() == text.len() => front.to_owned(),
        Some("eui.") => complete(front, "eui.0000000000000000"),
        Some("naa.") if front.len() <= 20 => complete(front, "naa.0000000000000000"),
        Some("naa.") => complete(front, &format!("naa.{}", "0".repeat(32))),
        Some(_) if front.len() < 12 => complete(front, "iqn.2026-11.x"),
        Some(_) => format!("{front}x"),
        None if ["iqn.", "eui.", "naa."].iter().any(|kind| kind.starts_with(front)) => {
            return Ok(());
        }
        None => front.to_owned(),
    };
    check_iscsi(&whole).map_err(|(message, _)| {
        if front.chars().any(|c| c.is_ascii_uppercase()) {
            return (message, format!("write `{}`", shorten(&text.to_ascii_lowercase())));
        }
        (message, BEGINNING.to_owned())
    })
}

/// What is there, and the rest of an example.
fn complete(front: &str, example: &str) -> String {
    format!("{front}{}", example.get(front.len()..).unwrap_or_default())
}

/// What the beginning of a name looks like.
const BEGINNING: &str = "write a whole name, or its beginning and `*`, such as \
                         `iqn.2026-11.org.example:*`";

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7143, 4.2.7, are names.
    #[test]
    fn names_of_the_standard_are_accepted() {
        for name in [
            "iqn.2001-04.com.example",
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "iqn.2001-04.com.example:storage.tape1.sys1.xyz",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
        ] {
            assert_eq!(check_iscsi(name), Ok(()), "{name}");
        }
    }

    /// A beginning is taken if a name can continue it.
    #[test]
    fn beginnings_of_names_are_checked() {
        for good in [
            "*",
            "iq*",
            "iqn.*",
            "iqn.20*",
            "iqn.2026-1*",
            "iqn.2026-11*",
            "iqn.2026-11.*",
            "iqn.2026-11.org-*",
            "iqn.2026-11.org.example:*",
            "iqn.2026-11.org.example:host-*",
            "eui.*",
            "eui.0200*",
            "eui.02004567a425678d*",
            "naa.5200*",
            "naa.62004567ba64678d01*",
            "iqn.2026-11.org.example:host",
        ] {
            assert_eq!(check_initiator(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "host*",
            "x*",
            "iqx.*",
            "iqn.26-*",
            "iqn.2026-13*",
            "iqn.2026-11.org.example:a b*",
            "iqn.2026-11.org.example:*:a",
            "eui.02x*",
            "iqn.2026-11.org.example:Host*",
        ] {
            assert!(check_initiator(bad).is_err(), "{bad}");
        }
        let (_, help) = check_initiator("iqn.2026-11.org.example:Host*").unwrap_err();
        assert_eq!(help, "write `iqn.2026-11.org.example:host*`");
    }

    /// Each rule of the syntax is noticed when it is broken.
    #[test]
    fn broken_names_are_refused() {
        for name in [
            "disk0",
            "iqn.2026-13.org.example",
            "iqn.26-11.org.example",
            "iqn.2026-11.",
            "iqn.2026-11",
            "iqn.2026-11.-example",
            "iqn.2026-11.org.example:a b",
            "iqn.2026-11.org.example:a_b",
            "eui.02004567a425678",
            "naa.x2004567ba64678d",
        ] {
            assert!(check_iscsi(name).is_err(), "{name}");
        }
        assert!(check_iscsi(&format!("iqn.2026-11.org.example:{}", "x".repeat(200))).is_err());
        let (_, help) = check_iscsi("iqn.2026-11.org.example:Disk").unwrap_err();
        assert_eq!(help, "write `iqn.2026-11.org.example:disk`");
    }
}
