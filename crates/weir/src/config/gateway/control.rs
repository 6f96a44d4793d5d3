//! `[control]`: where operators ask the gateway while it serves, and order it.

use super::files::plain;
use super::nbd::socket_path;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted};
use crate::config::value::Value;
use std::path::{Path, PathBuf};
use weir_serve::config::Nbd;

/// The table.
pub(super) static CONTROL: Section = Section {
    name: "control",
    many: Many::Once,
    effect: "the Unix socket for `weir status` and its like; only the gateway's own user may connect",
    keys: &[Key {
        name: "socket",
        kind: Kind::Text("a path; relative to this file"),
        default: Default::Else("/run/weir/control.sock with this table, no socket without it"),
        effect: "where it is; a missing folder is made",
    }],
    settings: &[],
};

/// Where the socket is if the table does not say.
pub(crate) const SOCKET: &str = "/run/weir/control.sock";

/// Reads the table. Without it there is no socket: two gateways of one machine must not quarrel over a place
/// that neither of them has named.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
    nbd: &Nbd,
) -> Result<Option<PathBuf>, Noted> {
    let table = document.once(context, "control");
    let Some(text) = table.text(context, "socket") else {
        if table.has("socket") {
            return Err(Noted);
        }
        if !table.is_present() {
            return Ok(None);
        }
        table.note(context, "socket", Value::Text(SOCKET.to_owned()), None);
        return Ok(Some(PathBuf::from(SOCKET)));
    };
    if text.value.is_empty() {
        let diagnostic = Diagnostic::new(Code::BadValue, "a socket needs a place");
        let diagnostic = diagnostic.at_some(text.span.as_ref(), "the value of `socket`");
        context.report(diagnostic.help("write a path, or remove the key"));
        return Err(Noted);
    }
    let path = source.resolve(&text.value);
    let same = |other: &Path| plain(other) == plain(&path);
    if nbd.unix.iter().any(|unix| same(unix)) {
        let message = format!("`{}` is listened on for NBD as well", path.display());
        let diagnostic =
            Diagnostic::new(Code::Duplicate, message).at_some(text.span.as_ref(), "this socket");
        context.report(diagnostic.help("give the control socket its own path"));
        return Err(Noted);
    }
    if !socket_path(context, &path, text.span.as_ref(), "the value of `socket`") {
        return Err(Noted);
    }
    Ok(Some(path))
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

    fn socket(text: &str) -> Option<PathBuf> {
        gateway(&source(text))
            .unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
            .checked
            .control
    }

    /// Without the table there is no socket and none is shown; the table alone has it at its usual place, and
    /// a path is relative to the file.
    #[test]
    fn the_table_makes_the_socket() {
        assert_eq!(socket(""), None);
        assert_eq!(socket("[control]\n"), Some(PathBuf::from(SOCKET)));
        assert_eq!(socket("[control]\nsocket = \"s\"\n"), Some(PathBuf::from("folder/s")));
        assert_eq!(socket("[control]\nsocket = \"/s\"\n"), Some(PathBuf::from("/s")));
        let shown = |text: &str| {
            let source = source(text);
            show::text(FileKind::Gateway, &gateway(&source).unwrap().values, &source)
        };
        assert!(!shown("").contains("[control]"));
        assert!(shown("[control]\n").contains("socket = \"/run/weir/control.sock\" "));
    }

    /// A place that cannot be had is a diagnostic at the value, with what to do.
    #[test]
    fn places_that_cannot_be() {
        let nbd = "[nbd]\nunix = [\"n\", \"s\"]\nexports.d = \"d\"\n";
        let long = format!("[control]\nsocket = \"{}\"\n", "s".repeat(108));
        for (text, code, pointed) in [
            (long.as_str(), Code::OutOfRange, "s".repeat(108)),
            ("[control]\nsocket = \"\"\n", Code::BadValue, String::new()),
            ("[control]\nsocket = 1\n", Code::WrongType, "1".to_owned()),
            ("[control]\npath = \"s\"\n", Code::UnknownKey, "path".to_owned()),
            (
                &format!("[control]\nsocket = \"x/../s\"\n{nbd}"),
                Code::Duplicate,
                "x/../s".to_owned(),
            ),
        ] {
            let source = source(text);
            let diagnostics = gateway(&source).map(|_| ()).unwrap_err();
            assert_eq!(
                (diagnostics.len(), diagnostics[0].code),
                (1, code),
                "{text}: {diagnostics:?}"
            );
            let (span, _) = diagnostics[0].at.as_ref().unwrap();
            assert_eq!(source.text[span.clone()].trim_matches('"'), pointed, "{text}");
            assert!(diagnostics[0].help.is_some());
        }
    }
}
