//! `[http]`: where operators ask the gateway over HTTP, and who may do what there.

use super::files::plain;
use super::listen::Listeners;
use super::nbd::socket_path;
use super::{guard, users};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::shorten;
use crate::config::value::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use weir_serve::config::{Http, HttpListen, Nbd, Tls};

/// The table.
pub(super) static HTTP: Section = Section {
    name: "http",
    many: Many::Once,
    effect: "metrics, health, the state of the gateway and orders to it over HTTP",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Text(
                "an address with a port, or `unix:` and a path; relative to this file",
            ),
            default: Default::Else("127.0.0.1:9713 with this table, no HTTP without it"),
            effect: "where it is; port 0 takes a free one; only the gateway's own user may connect to a Unix socket; an address that other machines reach needs TLS, and tokens or certificates of clients",
        },
        Key {
            name: "tokens_file",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none: no client gives orders over TCP"),
            effect: "who may do what: tokens by their hashes, and names of certificates; `weir api token` adds a line",
        },
        Key {
            name: "certificate",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none: without TLS"),
            effect: "the certificate chain that clients are shown (PEM)",
        },
        Key {
            name: "key",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; required with `certificate`"),
            effect: "its private key (PEM)",
        },
        Key {
            name: "client_ca",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none: certificates of clients are not asked for"),
            effect: "clients show a certificate that one of these has signed (PEM); where `tokens_file` has a token, they may send a token instead",
        },
        Key {
            name: "hosts",
            kind: Kind::Texts("host names"),
            default: Default::Else("none"),
            effect: "further names of the gateway in URLs; its address, `localhost` and loopback addresses are known",
        },
    ],
    settings: &[],
};

/// The address if the table does not say.
const ADDRESS: &str = "127.0.0.1:9713";

/// The usual port, for messages.
const PORT: u16 = 9_713;

/// Reads the table. Without it there is no HTTP. `listeners` are the addresses of hosts.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
    others: (&Listeners, &Nbd, Option<&Path>),
) -> Result<Option<Http>, Noted> {
    let table = document.once(context, "http");
    let listen = listen(context, &table, source, others);
    if !table.is_present() {
        return Ok(None);
    }
    let tls = tls(context, &table, source);
    let users = users::read(context, &table, source);
    let hosts = hosts(context, &table);
    let (listen, tls, users, hosts) = (listen?, tls?, users?, hosts?);
    let Some(listen) = listen else { return Ok(None) };
    let proves = table.has("tokens_file") || table.has("client_ca");
    if listen.is_remote() && !(tls.is_some() && proves) {
        return Err(open(context, &table, &listen, tls.is_some(), proves));
    }
    if let HttpListen::Unix(_) = listen {
        for name in ["certificate", "client_ca", "tokens_file"] {
            if let Some(span) = table.value_span(name) {
                let message = format!("`{name}` means nothing on a Unix socket");
                let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "this value");
                let help = "remove it: only the gateway's own user can connect, and may do all";
                context.report(diagnostic.help(help));
                return Err(Noted);
            }
        }
    }
    Ok(Some(Http { listen, tls, users, hosts }))
}

/// An address that other machines reach, without what must protect it.
fn open(
    context: &mut Context,
    table: &Table<'_>,
    listen: &HttpListen,
    encrypts: bool,
    proves: bool,
) -> Noted {
    let lacks = match (encrypts, proves) {
        (false, false) => "TLS and authentication",
        (false, true) => "TLS",
        _ => "authentication",
    };
    let message = format!("`{listen}` can be reached from other machines without {lacks}");
    let mut adds = Vec::new();
    if !encrypts {
        adds.push("`certificate` and `key`");
    }
    if !proves {
        adds.push("`tokens_file` (`weir api token` makes it) or `client_ca`");
    }
    let mut help = format!("add {}", adds.join(", and "));
    if let HttpListen::Tcp(address) = listen {
        let loopback = match address.ip() {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let local = SocketAddr::new(loopback, address.port());
        help = format!("{help}; or write `listen = \"{local}\"`");
    }
    let span = table.value_span("listen");
    let diagnostic = Diagnostic::new(Code::OutOfRange, message);
    context.report(diagnostic.at_some(span.as_ref(), "the value of `listen`").help(help));
    Noted
}

/// TLS, if there is a certificate.
fn tls(context: &mut Context, table: &Table<'_>, source: &Source) -> Result<Option<Tls>, Noted> {
    let certificate = table.text(context, "certificate");
    let key = table.text(context, "key");
    let client_ca = table.text(context, "client_ca");
    let certificate = table.optional("certificate", certificate)?;
    let key = table.optional("key", key)?;
    let client_ca = table.optional("client_ca", client_ca)?;
    let (Some(certificate), Some(key)) = (&certificate, &key) else {
        for (name, missing) in
            [("certificate", "key"), ("key", "certificate"), ("client_ca", "certificate")]
        {
            if let Some(span) = table.value_span(name).filter(|_| !table.has(missing)) {
                let message = format!("`{name}` needs a `{missing}`");
                let diagnostic = Diagnostic::new(Code::MissingKey, message).at(span, "this value");
                context.report(diagnostic.help(format!("add `{missing} = \"…\"`: a PEM file")));
                return Err(Noted);
            }
        }
        return Ok(None);
    };
    let key = source.resolve(key);
    if let Some(span) = table.value_span("key") {
        guard::refuse_exposed(context, &key, span, "a private key");
    }
    Ok(Some(Tls {
        certificate: source.resolve(certificate),
        key,
        client_ca: client_ca.map(|path| source.resolve(&path)),
        required: true,
    }))
}

/// Further names of the gateway.
fn hosts(context: &mut Context, table: &Table<'_>) -> Result<Vec<String>, Noted> {
    let Some(texts) = table.texts(context, "hosts") else {
        return if table.has("hosts") { Err(Noted) } else { Ok(Vec::new()) };
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let bad = |text: &&Read<String>| text.value.is_empty() || !text.value.chars().all(allowed);
    if let Some(text) = texts.iter().find(bad) {
        let message = format!("`{}` is no name of a host", shorten(&text.value));
        let diagnostic = Diagnostic::new(Code::BadValue, message);
        let diagnostic = diagnostic.at_some(text.span.as_ref(), "an item of `hosts`");
        context.report(diagnostic.help("write a name without a scheme and a port"));
        return Err(Noted);
    }
    Ok(texts.into_iter().map(|text| text.value).collect())
}

/// Where it listens; `None` without the table.
fn listen(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    (listeners, nbd, control): (&Listeners, &Nbd, Option<&Path>),
) -> Result<Option<HttpListen>, Noted> {
    let Some(text) = table.text(context, "listen") else {
        if table.has("listen") {
            return Err(Noted);
        }
        if !table.is_present() {
            return Ok(None);
        }
        table.note(context, "listen", Value::Text(ADDRESS.to_owned()), None);
        let address = Ipv4Addr::LOCALHOST;
        return tcp(context, (IpAddr::from(address), PORT).into(), None, listeners).map(Some);
    };
    if let Some(path) = text.value.strip_prefix("unix:") {
        let path = source.resolve(path);
        return unix(context, path, &text, (nbd, control)).map(Some);
    }
    if let Ok(address) = text.value.parse::<SocketAddr>() {
        return tcp(context, address, Some(&text), listeners).map(Some);
    }
    let message = format!("`{}` is no place to listen", shorten(&text.value));
    let help = format!("write an address and a port, such as `{ADDRESS}`, or `unix:` and a path");
    Err(report(context, Code::BadValue, message, &text, help))
}

/// An address, which no other listener may have.
fn tcp(
    context: &mut Context,
    address: SocketAddr,
    text: Option<&Read<String>>,
    listeners: &Listeners,
) -> Result<HttpListen, Noted> {
    let span = text.and_then(|text| text.span.as_ref());
    let same = |known: &&Read<SocketAddr>| known.value == address && address.port() != 0;
    if let Some(first) = listeners.iter().find(same) {
        let diagnostic =
            Diagnostic::new(Code::Duplicate, format!("`{address}` is listened on twice"))
                .at_some(span, "here for HTTP")
                .see(first.span.as_ref(), "here for hosts");
        context.report(diagnostic.help("give one of them another port"));
        return Err(Noted);
    }
    Ok(HttpListen::Tcp(address))
}

/// A Unix socket, which no other listener may have.
fn unix(
    context: &mut Context,
    path: PathBuf,
    text: &Read<String>,
    (nbd, control): (&Nbd, Option<&Path>),
) -> Result<HttpListen, Noted> {
    if text.value.len() == "unix:".len() {
        let message = "a socket needs a place".to_owned();
        let help = "write a path behind `unix:`".to_owned();
        return Err(report(context, Code::BadValue, message, text, help));
    }
    let mut others = nbd.unix.iter().map(PathBuf::as_path).chain(control);
    if others.any(|other| plain(other) == plain(&path)) {
        let message = format!("`{}` is listened on twice", path.display());
        let help = "give HTTP its own path".to_owned();
        return Err(report(context, Code::Duplicate, message, text, help));
    }
    if !socket_path(context, &path, text.span.as_ref(), "the value of `listen`") {
        return Err(Noted);
    }
    Ok(HttpListen::Unix(path))
}

fn report(
    context: &mut Context,
    code: Code,
    message: String,
    text: &Read<String>,
    help: String,
) -> Noted {
    let diagnostic = Diagnostic::new(code, message);
    context.report(diagnostic.at_some(text.span.as_ref(), "the value of `listen`").help(help));
    Noted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Kind as FileKind;
    use crate::config::gateway;
    use crate::config::show;

    const VOLUME: &str = "[[volume]]\nname = \"d\"\nfile = \"d\"\n\
                          [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";

    fn source(text: &str) -> Source {
        Source::new("folder/weir.toml", format!("{text}{VOLUME}"))
    }

    fn listen(text: &str) -> Option<String> {
        let read = gateway(&source(text));
        let read = read.unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
        read.checked.http.map(|http| http.listen.to_string())
    }

    /// Without the table there is no HTTP and none is shown; the table alone has the usual address; a path is relative
    /// to the file.
    #[test]
    fn the_table_makes_the_listener() {
        assert_eq!(listen(""), None);
        for (text, wanted) in [
            ("[http]\n", "127.0.0.1:9713"),
            ("[http]\nlisten = \"127.0.0.1:0\"\n", "127.0.0.1:0"),
            ("[http]\nlisten = \"[::1]:80\"\n", "[::1]:80"),
            ("[http]\nlisten = \"unix:h.sock\"\n", "unix:folder/h.sock"),
            ("[http]\nlisten = \"unix:/h.sock\"\n", "unix:/h.sock"),
        ] {
            assert_eq!(listen(text).as_deref(), Some(wanted), "{text}");
        }
        let shown = |text: &str| {
            let source = source(text);
            show::text(FileKind::Gateway, &gateway(&source).unwrap().values, &source)
        };
        assert!(!shown("").contains("[http]"));
        assert!(shown("[http]\n").contains("listen = \"127.0.0.1:9713\" "));
    }

    /// A place that other machines reach, that is taken, or that is none, is a diagnostic at the value, with what to do.
    #[test]
    fn places_that_cannot_be() {
        let long = format!("[http]\nlisten = \"unix:{}\"\n", "s".repeat(108));
        let control = "[control]\nsocket = \"c\"\n[http]\nlisten = \"unix:x/../c\"\n";
        let open_ca = "[http]\nlisten = \"192.0.2.1:1\"\ncertificate = \"c\"\nkey = \"k\"\n";
        let open_token = "[http]\nlisten = \"192.0.2.1:1\"\ntokens_file = \"none\"\n";
        let unix_tls = "[http]\nlisten = \"unix:s\"\ncertificate = \"c\"\nkey = \"k\"\n";
        let twice = "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n[http]\nlisten = \"127.0.0.1:3260\"\n";
        for (text, code, help) in [
            (
                "[http]\nlisten = \"0.0.0.0:9713\"\n",
                Code::OutOfRange,
                "listen = \"127.0.0.1:9713\"",
            ),
            ("[http]\nlisten = \"[::]:1\"\n", Code::OutOfRange, "listen = \"[::1]:1\""),
            (
                "[http]\nlisten = \"192.0.2.1:1\"\n",
                Code::OutOfRange,
                "`certificate` and `key`, and `tokens_file`",
            ),
            (open_ca, Code::OutOfRange, "add `tokens_file`"),
            (open_token, Code::Unreadable, "weir api token"),
            ("[http]\ncertificate = \"c\"\n", Code::MissingKey, "add `key"),
            ("[http]\nkey = \"k\"\n", Code::MissingKey, "add `certificate"),
            ("[http]\nclient_ca = \"k\"\n", Code::MissingKey, "add `certificate"),
            ("[http]\nhosts = \"http://gw\"\n", Code::BadValue, "without a scheme"),
            (unix_tls, Code::Conflict, "only the gateway's own user"),
            ("[http]\nlisten = \"localhost:1\"\n", Code::BadValue, "127.0.0.1:9713"),
            ("[http]\nlisten = \"127.0.0.1\"\n", Code::BadValue, "a port"),
            ("[http]\nlisten = \"unix:\"\n", Code::BadValue, "a path"),
            ("[http]\nlisten = 1\n", Code::WrongType, ""),
            ("[http]\nport = 1\n", Code::UnknownKey, "listen"),
            (&long, Code::OutOfRange, "107"),
            (control, Code::Duplicate, "its own path"),
            (twice, Code::Duplicate, "another port"),
        ] {
            let diagnostics = gateway(&source(text)).map(|_| ()).unwrap_err();
            assert_eq!((diagnostics.len(), diagnostics[0].code), (1, code), "{text}");
            assert!(diagnostics[0].at.is_some(), "{text}");
            let said = diagnostics[0].help.as_deref().unwrap_or_default();
            assert!(said.contains(help), "{text}: {said}");
        }
    }
}
