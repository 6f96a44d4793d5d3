//! `[http]`: where operators ask the gateway over HTTP.

use super::files::plain;
use super::listen::Listeners;
use super::nbd::socket_path;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read};
use crate::config::units::shorten;
use crate::config::value::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use weir_serve::config::{HttpListen, Nbd};

/// The table.
pub(super) static HTTP: Section = Section {
    name: "http",
    many: Many::Once,
    effect: "metrics, health and the state of the gateway over HTTP, for this machine only; it changes nothing",
    keys: &[Key {
        name: "listen",
        kind: Kind::Text(
            "a loopback address with a port, or `unix:` and a path; relative to this file",
        ),
        default: Default::Else("127.0.0.1:9713 with this table, no HTTP without it"),
        effect: "where it is; port 0 takes a free one; only the gateway's own user may connect to a Unix socket",
    }],
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
    (listeners, nbd, control): (&Listeners, &Nbd, Option<&Path>),
) -> Result<Option<HttpListen>, Noted> {
    let table = document.once(context, "http");
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
    let help =
        format!("write a loopback address and a port, such as `{ADDRESS}`, or `unix:` and a path");
    Err(report(context, Code::BadValue, message, &text, help))
}

/// An address, which must be one of this machine for itself.
fn tcp(
    context: &mut Context,
    address: SocketAddr,
    text: Option<&Read<String>>,
    listeners: &Listeners,
) -> Result<HttpListen, Noted> {
    let span = text.and_then(|text| text.span.as_ref());
    if !address.ip().to_canonical().is_loopback() {
        let message = format!("`{address}` can be reached from other machines");
        let loopback = match address.ip() {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let local = SocketAddr::new(loopback, address.port());
        let help = format!(
            "HTTP has no authentication and no encryption here: write `{local}`, or `unix:` and a path"
        );
        let diagnostic = Diagnostic::new(Code::OutOfRange, message);
        context.report(diagnostic.at_some(span, "the value of `listen`").help(help));
        return Err(Noted);
    }
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
        read.checked.http.map(|listen| listen.to_string())
    }

    /// Without the table there is no HTTP and none is shown; the table alone has the usual address; a path is relative
    /// to the file.
    #[test]
    fn the_table_makes_the_listener() {
        assert_eq!(listen(""), None);
        for (text, wanted) in [
            ("[http]\n", "http://127.0.0.1:9713/"),
            ("[http]\nlisten = \"127.0.0.1:0\"\n", "http://127.0.0.1:0/"),
            ("[http]\nlisten = \"[::1]:80\"\n", "http://[::1]:80/"),
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
        let twice = "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n[http]\nlisten = \"127.0.0.1:3260\"\n";
        for (text, code, help) in [
            ("[http]\nlisten = \"0.0.0.0:9713\"\n", Code::OutOfRange, "write `127.0.0.1:9713`"),
            ("[http]\nlisten = \"[::]:1\"\n", Code::OutOfRange, "write `[::1]:1`"),
            ("[http]\nlisten = \"192.0.2.1:1\"\n", Code::OutOfRange, "no authentication"),
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
