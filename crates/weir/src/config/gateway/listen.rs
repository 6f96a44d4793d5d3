//! Addresses: where the gateway listens, and what discovery lists.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::tree::{Context, Read};
use crate::config::units::shorten;
use std::net::{IpAddr, SocketAddr};

/// Most addresses of one list.
const MAX_ADDRESSES: usize = 64;

/// The addresses that are listened on, whatever is spoken there.
pub(super) type Listeners = Vec<Read<SocketAddr>>;

/// A list of addresses to listen on; `port` is the usual one. None may be among `known`, which they
/// are added to.
pub(super) fn addresses(
    context: &mut Context,
    texts: &[Read<String>],
    port: u16,
    known: &mut Listeners,
) -> Option<Vec<SocketAddr>> {
    let diagnostics = context.diagnostics.len();
    let mut addresses = Vec::new();
    for text in texts {
        match parse(&text.value, port) {
            Ok(address) => {
                let same = |known: &&Read<SocketAddr>| known.value == address;
                if let Some(first) = known.iter().find(same).filter(|_| address.port() != 0) {
                    let message = format!("`{address}` is listened on twice");
                    let see = match &first.span {
                        Some(_) => "remove one of them",
                        None => "the other is the default of `listen` in `[iscsi]`: change one",
                    };
                    let diagnostic = Diagnostic::new(Code::Duplicate, message)
                        .at_some(text.span.as_ref(), "the second")
                        .see(first.span.as_ref(), "the first");
                    context.report(diagnostic.help(see));
                }
                known.push(Read { value: address, span: text.span.clone() });
                addresses.push(address);
            }
            Err(help) => context.report(no_address(text, help)),
        }
    }
    bounded(context, "listen", texts);
    (context.diagnostics.len() == diagnostics).then_some(addresses)
}

/// An address of this machine, wherever it is used.
pub(super) fn local(context: &mut Context, text: &Read<String>) -> Option<SocketAddr> {
    let address = parse(&text.value, super::iscsi::PORT);
    address.map_err(|help| context.report(no_address(text, help))).ok()
}

fn no_address(text: &Read<String>, help: String) -> Diagnostic {
    let message = format!("`{}` is not an address and a port", shorten(&text.value));
    let diagnostic = Diagnostic::new(Code::BadValue, message);
    diagnostic.at_some(text.span.as_ref(), "an item of `listen`").help(help)
}

/// An address of the command line to listen on for iSCSI; the error says what to write.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    parse(text, super::iscsi::PORT)
}

/// The address of a peer to connect to; the error says what to write.
pub(super) fn remote(text: &str) -> Result<SocketAddr, String> {
    let address = parse(text, super::iscsi::PORT)?;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err("write an address and a port that can be connected to".to_owned());
    }
    Ok(address)
}

fn parse(text: &str, port: u16) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => format!("add the port: `{}`", SocketAddr::new(ip, port)),
            Err(_) => format!("write an IP address and a port, such as `127.0.0.1:{port}`"),
        }
    })
}

/// Whether a text is a portal as discovery lists it, `host:port`.
pub(super) fn is_portal(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    text.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0)
        || text.split_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && host.len() <= 255
                && host.chars().all(allowed)
                && port.parse::<u16>().is_ok_and(|port| port != 0)
        })
}

/// Notes that a list is too long.
pub(super) fn bounded(context: &mut Context, name: &str, texts: &[Read<String>]) {
    if let Some(extra) = texts.get(MAX_ADDRESSES) {
        let message = format!("`{name}` has {} entries", texts.len());
        let diagnostic = Diagnostic::new(Code::OutOfRange, message);
        let diagnostic = diagnostic.at_some(extra.span.as_ref(), "the first one too many");
        context.report(diagnostic.help(format!("write at most {MAX_ADDRESSES}")));
    }
}
