//! `[[account]]`: names and the secrets that prove them, and which of them a login needs.

use super::guard;
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::Names;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::{Source, reason};
use crate::config::tree::{Context, Document, Read, Table};
use crate::config::units::shorten;
use crate::config::value::{Value, type_name};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use weir_serve::config::{Account, Authentication, Secret};

/// The table.
pub(super) static ACCOUNT: Section = Section {
    name: "account",
    many: Many::Times(0, 1_024),
    effect: "a name and the secret that proves it (CHAP)",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("a text of at most 255 bytes"),
            default: Default::Required,
            effect: "the CHAP name, and what `accounts` and `mutual` refer to",
        },
        Key {
            name: "secret",
            kind: Kind::Other("a text of 12 to 255 bytes"),
            default: Default::Else("the first line of `secret_file`"),
            effect: "the CHAP secret; it is never printed",
        },
        Key {
            name: "secret_file",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; then `secret` is required"),
            effect: "a file whose first line is the secret, without the end of the line",
        },
    ],
    settings: &[],
};

/// The key that names who may log in.
pub(super) const ACCOUNTS: Key = Key {
    name: "accounts",
    kind: Kind::Texts("accounts' names"),
    default: Default::Else("anyone may, without authentication"),
    effect: "the accounts of which initiators must prove one (CHAP)",
};

/// The key that names who is logged in to.
pub(super) const MUTUAL: Key = Key {
    name: "mutual",
    kind: Kind::Text("an account's name"),
    default: Default::Else("none"),
    effect: "the account by which the gateway proves itself to initiators that ask (mutual CHAP)",
};

/// The accounts of the file, and which of them something refers to.
#[derive(Debug)]
pub(super) struct Accounts {
    names: Names,
    /// By index; `None` for one with a diagnostic.
    list: Vec<Option<Account>>,
    used: BTreeSet<usize>,
}

/// Reads the tables, in order.
pub(super) fn read(context: &mut Context, document: &Document<'_>, source: &Source) -> Accounts {
    let mut names = Names::new("account");
    let tables = document.many(context, "account");
    let written = tables.iter().find_map(|table| table.value_span("secret"));
    // Of a text that a client has sent, the client has looked at its file.
    if let (Some(span), Some(file)) = (written, source.file()) {
        guard::refuse_exposed(context, file, span, "a secret is in the configuration");
    }
    let list = tables.iter().map(|table| one(context, table, source, &mut names)).collect();
    Accounts { names, list, used: BTreeSet::new() }
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    names: &mut Names,
) -> Option<Account> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define_any(context, name, table.index());
        if name.value.len() > MAX_NAME {
            let message = format!("an account's name is longer than {MAX_NAME} bytes");
            let diagnostic = Diagnostic::new(Code::OutOfRange, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "this name");
            context.report(diagnostic.help("write a shorter one"));
            return None;
        }
    }
    let bytes = match (table.value_span("secret"), table.value_span("secret_file")) {
        (Some(secret), Some(file)) => {
            let message = "an account has a `secret` or a `secret_file`, not both";
            let diagnostic = Diagnostic::new(Code::Conflict, message).at(file, "this file");
            let diagnostic = diagnostic.see(Some(&secret), "this secret");
            context.report(diagnostic.help("remove one of them"));
            None
        }
        (Some(_), None) => written(context, table),
        (None, Some(_)) => kept(context, table, source),
        (None, None) => {
            let message = "`[[account]]` has neither `secret` nor `secret_file`";
            let diagnostic =
                Diagnostic::new(Code::MissingKey, message).at(table.span(), "this table");
            let help = "add `secret_file = \"…\"`: a file whose first line is the secret";
            context.report(diagnostic.help(help));
            None
        }
    };
    let (bytes, span) = bytes?;
    let length = bytes.len();
    let Some(secret) = Secret::new(bytes) else {
        let message = match length {
            0..=SECRET_MAX => format!("the secret has {length} bytes"),
            _ => format!("the secret has more than {SECRET_MAX} bytes"),
        };
        let diagnostic = Diagnostic::new(Code::OutOfRange, message).at(span, "the secret is here");
        let help =
            "use 12 to 255 bytes (RFC 7143, 9.2.1), such as `openssl rand -base64 24` prints";
        context.report(diagnostic.help(help));
        return None;
    };
    Some(Account { name: name?.value, secret })
}

/// The secret of the configuration file itself.
fn written(context: &mut Context, table: &Table<'_>) -> Option<(Vec<u8>, Span)> {
    let raw = table.raw(context, "secret")?;
    let Some(text) = raw.get_ref().as_str() else {
        let message = format!("{} where a secret belongs", type_name(raw.get_ref()));
        let diagnostic =
            Diagnostic::new(Code::WrongType, message).at(raw.span(), "the value of `secret`");
        context.report(diagnostic.help("write a text of 12 to 255 bytes, in quotes"));
        return None;
    };
    table.note(context, "secret", Value::Text("…".to_owned()), Some(raw.span()));
    Some((text.as_bytes().to_vec(), raw.span()))
}

/// The secret of a secret file.
fn kept(context: &mut Context, table: &Table<'_>, source: &Source) -> Option<(Vec<u8>, Span)> {
    let file = table.text(context, "secret_file")?;
    let (path, span) = (source.resolve(&file.value), table.value_span("secret_file")?);
    match first_line(&path) {
        Ok(line) => {
            guard::refuse_exposed(context, &path, span.clone(), "a secret is in this file");
            Some((line, span))
        }
        Err(error) => {
            let message = format!("cannot read `{}`: {}", path.display(), reason(&error));
            let diagnostic = Diagnostic::new(Code::Unreadable, message).at(span, "this file");
            context.report(diagnostic.help("name a readable file whose first line is the secret"));
            None
        }
    }
}

/// The first line of a file, without its end; of a longer one just enough to see that it is too
/// long.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    // The end of the line may be two bytes.
    File::open(path)?.take(SECRET_MAX as u64 + 2).read_to_end(&mut bytes)?;
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let whole = line.len() < bytes.len();
    Ok(line.strip_suffix(b"\r").filter(|_| whole).unwrap_or(line).to_vec())
}

impl Accounts {
    /// What a login to the target or the discovery that a table describes must prove.
    pub(super) fn authentication(
        &mut self,
        context: &mut Context,
        table: &Table<'_>,
    ) -> Option<Authentication> {
        let diagnostics = context.diagnostics.len();
        let names = table.texts(context, "accounts");
        let mutual = table.text(context, "mutual");
        let mut accounts: Vec<(usize, &Read<String>)> = Vec::new();
        for name in names.iter().flatten() {
            let Some(index) = self.find(context, name) else { continue };
            if let Some((_, first)) = accounts.iter().find(|(known, _)| *known == index) {
                let message = format!("account `{}` is named twice", shorten(&name.value));
                let diagnostic = Diagnostic::new(Code::Duplicate, message)
                    .at_some(name.span.as_ref(), "the second")
                    .see(first.span.as_ref(), "the first");
                context.report(diagnostic.help("remove one of them"));
            }
            accounts.push((index, name));
        }
        if names.as_ref().is_some_and(Vec::is_empty) {
            let message = "an empty list of accounts would let anyone in";
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let diagnostic = diagnostic.at_some(table.value_span("accounts").as_ref(), "this list");
            context
                .report(diagnostic.help("name an account, or remove `accounts` to let anyone in"));
        }
        let mutual = match mutual {
            None if table.has("mutual") => None,
            None => Some(None),
            Some(name) => {
                if !table.has("accounts") {
                    let message = "`mutual` without `accounts`: initiators are not asked for \
                                   anything, so they cannot ask back";
                    let diagnostic = Diagnostic::new(Code::Conflict, message);
                    let diagnostic = diagnostic.at_some(name.span.as_ref(), "this account");
                    context.report(diagnostic.help("add `accounts = [\"…\"]`, or remove `mutual`"));
                }
                self.find(context, &name).map(|index| {
                    for (other, entry) in &accounts {
                        self.directions(context, (index, &name), (*other, entry));
                    }
                    Some(index)
                })
            }
        };
        if context.diagnostics.len() > diagnostics || (names.is_none() && table.has("accounts")) {
            return None;
        }
        let accounts = accounts.into_iter().map(|(index, _)| index).collect();
        Some(Authentication { accounts, mutual: mutual? })
    }

    /// The account of this name, which one side of a login to an upstream proves.
    pub(super) fn proof(&mut self, context: &mut Context, name: &Read<String>) -> Option<Account> {
        let index = self.find(context, name)?;
        self.list.get(index)?.clone()
    }

    fn find(&mut self, context: &mut Context, name: &Read<String>) -> Option<usize> {
        let index = self.names.find(context, name)?;
        self.used.insert(index);
        Some(index)
    }

    /// The secrets of the two directions of one login must differ: otherwise a peer can have
    /// its own challenge answered (RFC 7143, 9.2.1).
    fn directions(
        &self,
        context: &mut Context,
        (mutual, name): (usize, &Read<String>),
        (other, entry): (usize, &Read<String>),
    ) {
        let secret = |index: usize| Some(&self.list.get(index)?.as_ref()?.secret);
        let message = if mutual == other {
            format!("account `{}` proves both sides of one login", shorten(&name.value))
        } else if secret(mutual).is_some() && secret(mutual) == secret(other) {
            let (name, entry) = (shorten(&name.value), shorten(&entry.value));
            format!(
                "accounts `{entry}` and `{name}` prove the two sides of one login by one secret"
            )
        } else {
            return;
        };
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at_some(name.span.as_ref(), "proves the gateway")
            .see(entry.span.as_ref(), "proves the initiator");
        let help = "use an account with another secret for `mutual` (RFC 7143, 9.2.1)";
        context.report(diagnostic.help(help));
    }

    /// Warns of accounts that nothing refers to.
    pub(super) fn unused(&self, context: &mut Context, document: &Document<'_>) {
        for index in 0..self.list.len() {
            if let Some(name) = self.names.name(index)
                && !self.used.contains(&index)
            {
                let message = format!("no login uses account `{}`", shorten(name));
                let span = document.locate("account", index, &["name"]);
                let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "this account");
                let help = "name it in `accounts` or `mutual` of a target or of `[discovery]`, in an \
                            upstream, or remove it";
                context.report(diagnostic.help(help));
            }
        }
    }

    /// The accounts, by index.
    pub(super) fn into_accounts(self) -> Option<Vec<Account>> {
        self.list.into_iter().collect()
    }
}

/// Longest name, in bytes: what a text value of a login holds (RFC 7143, 6.1).
const MAX_NAME: usize = 255;

/// Longest secret, in bytes.
const SECRET_MAX: usize = 255;
