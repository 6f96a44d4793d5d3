//! `[nbd]`: where NBD clients connect, and the volumes that they find there.

use super::files::plain;
use super::guard;
use super::listen::{Listeners, addresses, bounded};
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::Names;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::shorten;
use crate::config::value::{Value, type_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::DeValue;
use weir_serve::config::{Export, Nbd, Tls};

/// The table.
pub(super) static NBD: Section = Section {
    name: "nbd",
    many: Many::Once,
    effect: "where NBD clients connect, and what they find there",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Else("none"),
            effect: "where connections are accepted over TCP; port 0 takes a free one",
        },
        Key {
            name: "unix",
            kind: Kind::Texts("paths; relative to this file"),
            default: Default::Else("none"),
            effect: "Unix sockets on which connections are accepted",
        },
        Key {
            name: "exports",
            kind: Kind::Other("`{ name = \"volume\", … }`"),
            default: Default::Else("none; required with `listen` or `unix`"),
            effect: "which volume clients find under which name; `\"\"` is the default export",
        },
        Key {
            name: "tls",
            kind: Kind::Word(&["off", "allowed", "required"]),
            default: Default::Is("off"),
            effect: "whether clients may, or must, encrypt connections over TCP",
        },
        Key {
            name: "certificate",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; required with `tls`"),
            effect: "the certificate chain that clients are shown (PEM)",
        },
        Key {
            name: "key",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; required with `tls`"),
            effect: "its private key (PEM)",
        },
        Key {
            name: "client_ca",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none: clients need no certificate"),
            effect: "clients must show a certificate that one of these has signed (PEM)",
        },
        Key {
            name: "max_connections",
            kind: Kind::Count(1, 65_536),
            default: Default::Is("256"),
            effect: "connections at once; one more is closed at once",
        },
    ],
    settings: &[],
};

/// What the value of `exports` looks like.
const FORM: &str = "write `exports = { disk0 = \"disk0\" }`: names and volumes";

/// The port of NBD, for messages.
const PORT: u16 = 10_809;

/// Most exports.
const MAX_EXPORTS: usize = 1_024;

/// Longest name of an export in bytes: the longest string of the protocol.
const MAX_NAME: usize = 4_096;

/// Longest path of a Unix socket in bytes: what the system's address of one holds, less its end.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// Reads the table.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
    volumes: &Names,
    listeners: &mut Listeners,
) -> Option<Nbd> {
    let table = document.once(context, "nbd");
    let listen = match table.texts(context, "listen") {
        Some(texts) => addresses(context, &texts, PORT, listeners),
        None => (!table.has("listen")).then(Vec::new),
    };
    let unix = match table.texts(context, "unix") {
        Some(texts) => sockets(context, source, &texts),
        None => (!table.has("unix")).then(Vec::new),
    };
    let exports = exports(context, &table, volumes);
    let tls = tls(context, &table, source, listen.as_ref().map(Vec::is_empty));
    let max_connections = table.number(context, "max_connections");
    let nbd = Nbd {
        listen: listen?,
        unix: unix?,
        exports: exports?,
        tls: tls.ok()?,
        max_connections: max_connections?.value as u32,
    };
    let silent = nbd.listen.is_empty() && nbd.unix.is_empty();
    if silent && !nbd.exports.is_empty() {
        let diagnostic = Diagnostic::new(Code::MissingKey, "NBD exports without a listener");
        let diagnostic = diagnostic.at_some(table.value_span("exports").as_ref(), "these exports");
        let help = format!("add `listen = [\"127.0.0.1:{PORT}\"]` or `unix = [\"…\"]`");
        context.report(diagnostic.help(help));
    }
    if !silent && nbd.exports.is_empty() {
        let diagnostic = Diagnostic::new(Code::MissingKey, "NBD clients would find no exports");
        let span = document.locate("nbd", 0, &["exports", "listen", "unix"]);
        context.report(diagnostic.at(span, "they can connect, but").help(FORM));
    }
    Some(nbd)
}

/// Unix sockets, each once.
fn sockets(context: &mut Context, source: &Source, texts: &[Read<String>]) -> Option<Vec<PathBuf>> {
    let diagnostics = context.diagnostics.len();
    let mut known: BTreeMap<PathBuf, &Read<String>> = BTreeMap::new();
    let mut paths = Vec::new();
    for text in texts {
        let path = source.resolve(&text.value);
        socket_path(context, &path, text.span.as_ref(), "an item of `unix`");
        if let Some(first) = known.get(&plain(&path)) {
            let message = format!("`{}` is listened on twice", path.display());
            let diagnostic = Diagnostic::new(Code::Duplicate, message)
                .at_some(text.span.as_ref(), "the second")
                .see(first.span.as_ref(), "the first");
            context.report(diagnostic.help("remove one of them"));
        }
        known.insert(plain(&path), text);
        paths.push(path);
    }
    bounded(context, "unix", texts);
    (context.diagnostics.len() == diagnostics).then_some(paths)
}

/// Whether the system can have a socket at this path; a diagnostic if not.
pub(super) fn socket_path(
    context: &mut Context,
    path: &Path,
    span: Option<&Span>,
    label: &str,
) -> bool {
    let length = path.as_os_str().len();
    if length > MAX_SOCKET_PATH {
        let message = format!("the path of this socket has {length} bytes");
        let diagnostic = Diagnostic::new(Code::OutOfRange, message).at_some(span, label);
        context.report(diagnostic.help(format!("the system takes at most {MAX_SOCKET_PATH}")));
    }
    length <= MAX_SOCKET_PATH
}

fn exports(context: &mut Context, table: &Table<'_>, volumes: &Names) -> Option<Vec<Export>> {
    let Some(raw) = table.raw(context, "exports") else { return Some(Vec::new()) };
    let DeValue::Table(entries) = raw.get_ref() else {
        let message = format!("{} where a table of exports belongs", type_name(raw.get_ref()));
        let diagnostic =
            Diagnostic::new(Code::WrongType, message).at(raw.span(), "the value of `exports`");
        context.report(diagnostic.help(FORM));
        return None;
    };
    let diagnostics = context.diagnostics.len();
    if entries.len() > MAX_EXPORTS {
        let diagnostic =
            Diagnostic::new(Code::OutOfRange, format!("there are {} exports", entries.len()));
        let diagnostic = diagnostic.at(raw.span(), "the value of `exports`");
        context.report(diagnostic.help(format!("write at most {MAX_EXPORTS}")));
    }
    let (mut exports, mut noted) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        let name: &str = key.get_ref();
        if name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let message = format!("`{}` cannot be an export's name", shorten(name).escape_debug());
            let diagnostic =
                Diagnostic::new(Code::BadValue, message).at(key.span(), "a key of `exports`");
            let help = format!("use at most {MAX_NAME} bytes, and no control characters");
            context.report(diagnostic.help(help));
        }
        let Some(volume) = value.get_ref().as_str() else {
            let message = format!("{} where a volume's name belongs", type_name(value.get_ref()));
            let diagnostic = Diagnostic::new(Code::WrongType, message).at(value.span(), "this");
            context.report(diagnostic.help(FORM));
            continue;
        };
        noted.push((name.to_owned(), Value::Text(volume.to_owned())));
        let volume = Read { value: volume.to_owned(), span: Some(value.span()) };
        if let Some(volume) = volumes.find(context, &volume) {
            exports.push(Export { name: name.to_owned(), volume });
        }
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    table.note(context, "exports", Value::Pairs(noted), Some(raw.span()));
    Some(exports)
}

/// TLS, if it is on. `deaf` is whether no address is listened on over TCP, if that is known.
fn tls(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    deaf: Option<bool>,
) -> Result<Option<Tls>, Noted> {
    let diagnostics = context.diagnostics.len();
    let tls = table.text(context, "tls");
    let certificate = table.text(context, "certificate");
    let key = table.text(context, "key");
    let client_ca = table.text(context, "client_ca");
    let tls = tls.ok_or(Noted)?;
    if tls.value == "off" {
        for name in ["certificate", "key", "client_ca"] {
            if let Some(span) = table.value_span(name) {
                let message = format!("`{name}` means nothing while `tls` is off");
                let diagnostic = Diagnostic::new(Code::Conflict, message)
                    .at(span, "this value")
                    .see(tls.span.as_ref(), "this `tls`");
                context.report(diagnostic.help("set `tls = \"required\"`, or remove it"));
            }
        }
        return if context.diagnostics.len() > diagnostics { Err(Noted) } else { Ok(None) };
    }
    for name in ["certificate", "key"] {
        if !table.has(name) {
            let diagnostic = Diagnostic::new(Code::MissingKey, format!("`tls` needs a `{name}`"));
            let diagnostic = diagnostic.at_some(tls.span.as_ref(), "this `tls`");
            context.report(diagnostic.help(format!("add `{name} = \"…\"`: a PEM file")));
        }
    }
    if deaf == Some(true) {
        let message = "`tls` is for connections over TCP, and there are none";
        let diagnostic =
            Diagnostic::new(Code::Conflict, message).at_some(tls.span.as_ref(), "this `tls`");
        let help = format!("add `listen = [\"127.0.0.1:{PORT}\"]`, or remove `tls`");
        context.report(diagnostic.help(help));
    }
    let (certificate, key) = (certificate.ok_or(Noted)?, key.ok_or(Noted)?);
    let client_ca = table.optional("client_ca", client_ca)?;
    if context.diagnostics.len() > diagnostics {
        return Err(Noted);
    }
    let required = tls.value == "required";
    if !required && let Some(span) = table.value_span("client_ca") {
        let message = "clients without a certificate can connect all the same, without TLS";
        let diagnostic = Diagnostic::new(Code::Exposed, message)
            .at(span, "asks for certificates")
            .see(tls.span.as_ref(), "lets clients do without TLS");
        context.report(diagnostic.help("set `tls = \"required\"`, or remove `client_ca`"));
    }
    let path = source.resolve(&key.value);
    if let Some(span) = key.span {
        guard::refuse_exposed(context, &path, span, "a private key");
    }
    Ok(Some(Tls {
        certificate: source.resolve(&certificate.value),
        key: path,
        client_ca: client_ca.map(|path| source.resolve(&path)),
        required,
    }))
}
