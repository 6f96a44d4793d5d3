//! `[control]`: where operators ask the gateway while it serves, and order it.

use super::files::plain;
use super::nbd::socket_path;
use crate::config::fault::{Code, Fault};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document};
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
) -> Option<Option<PathBuf>> {
    let table = document.once(context, "control");
    let Some(text) = table.text(context, "socket") else {
        if table.has("socket") {
            return None;
        }
        if !table.is_present() {
            return Some(None);
        }
        table.note(context, "socket", Value::Text(SOCKET.to_owned()), None);
        return Some(Some(PathBuf::from(SOCKET)));
    };
    let path = source.resolve(&text.value);
    let same = |other: &Path| plain(other) == plain(&path);
    if nbd.unix.iter().any(|unix| same(unix)) {
        let message = format!("`{}` is listened on for NBD as well", path.display());
        let fault = Fault::new(Code::Duplicate, message).at_some(text.span.as_ref(), "this socket");
        context.faults.push(fault.help("give the control socket a place of its own"));
        return None;
    }
    socket_path(context, &path, text.span.as_ref(), "the value of `socket`").then_some(Some(path))
}
