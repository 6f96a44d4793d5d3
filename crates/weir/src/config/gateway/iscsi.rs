//! `[iscsi]`: where hosts connect, and the limits towards them.

use crate::config::fault::{Code, Fault};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Read};
use crate::config::units::shorten;
use std::net::{IpAddr, SocketAddr};
use weir_serve::config::Iscsi;

/// The table.
pub(super) static ISCSI: Section = Section {
    name: "iscsi",
    many: Many::Once,
    effect: "where iSCSI hosts connect, and the limits towards them",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Is("127.0.0.1:3260"),
            effect: "where connections are accepted; port 0 takes a free one",
        },
        Key {
            name: "advertise",
            kind: Kind::Texts("`host:port`"),
            default: Default::Else("the address that the host connected to"),
            effect: "what discovery names, for hosts behind address translation",
        },
        Key {
            name: "max_connections",
            kind: Kind::Count(1, 65_536),
            default: Default::Is("1024"),
            effect: "connections at once; one more is closed at once",
        },
        Key {
            name: "commands",
            kind: Kind::Count(1, 1_024),
            default: Default::Is("128"),
            effect: "commands that one session may have outstanding: the command window",
        },
        Key {
            name: "buffer",
            kind: Kind::Size(16 << 20, 1 << 50),
            default: Default::Is("256MiB"),
            effect: "memory for the payload of requests, shared among the sessions; when it is used \
                     up, hosts see TASK SET FULL",
        },
    ],
};

/// Most addresses of one list.
const MAX_ADDRESSES: usize = 64;

/// The checked table.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) listen: Vec<SocketAddr>,
    pub(super) advertise: Vec<String>,
    pub(super) limits: Iscsi,
}

/// Reads the table.
pub(super) fn read(context: &mut Context, document: &Document<'_>) -> Option<Checked> {
    let table = document.once(context, "iscsi");
    let listen = table.texts(context, "listen").and_then(|texts| addresses(context, &texts));
    let advertise = match table.texts(context, "advertise") {
        Some(texts) => portals(context, &texts),
        None if table.has("advertise") => None,
        None => Some(Vec::new()),
    };
    let max_connections = table.number(context, "max_connections");
    let commands = table.number(context, "commands");
    let buffer = table.number(context, "buffer");
    let limits = Iscsi {
        max_connections: max_connections?.value as u32,
        commands: commands?.value as u32,
        buffer_bytes: buffer?.value,
        ..Iscsi::default()
    };
    Some(Checked { listen: listen?, advertise: advertise?, limits })
}

fn addresses(context: &mut Context, texts: &[Read<String>]) -> Option<Vec<SocketAddr>> {
    let faults = context.faults.len();
    let mut addresses: Vec<(SocketAddr, &Read<String>)> = Vec::new();
    for text in texts {
        match address(&text.value) {
            Ok(address) => {
                let same = |(known, _): &&(SocketAddr, _)| *known == address && address.port() != 0;
                if let Some((_, first)) = addresses.iter().find(same) {
                    let message = format!("`{address}` is listened on twice");
                    let fault = Fault::new(Code::Duplicate, message)
                        .at_some(text.span.as_ref(), "the second")
                        .see(first.span.as_ref(), "the first");
                    context.faults.push(fault.help("remove one of them"));
                }
                addresses.push((address, text));
            }
            Err(help) => {
                let message = format!("`{}` is not an address and a port", shorten(&text.value));
                let fault = Fault::new(Code::BadValue, message);
                let fault = fault.at_some(text.span.as_ref(), "an item of `listen`");
                context.faults.push(fault.help(help));
            }
        }
    }
    bounded(context, "listen", texts, 1);
    let addresses = addresses.into_iter().map(|(address, _)| address).collect();
    (context.faults.len() == faults).then_some(addresses)
}

/// An address to listen on; the error says what to write.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => format!("add the port: `{}`", SocketAddr::new(ip, 3260)),
            Err(_) => "write an IP address and a port, such as `127.0.0.1:3260`".to_owned(),
        }
    })
}

fn portals(context: &mut Context, texts: &[Read<String>]) -> Option<Vec<String>> {
    let faults = context.faults.len();
    for text in texts {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
        let good = text.value.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0)
            || text.value.split_once(':').is_some_and(|(host, port)| {
                !host.is_empty()
                    && host.len() <= 255
                    && host.chars().all(allowed)
                    && port.parse::<u16>().is_ok_and(|port| port != 0)
            });
        if !good {
            let message = format!("`{}` is not a host and a port", shorten(&text.value));
            let fault = Fault::new(Code::BadValue, message)
                .at_some(text.span.as_ref(), "an item of `advertise`");
            context.faults.push(fault.help("write `host:port`, such as `10.0.2.2:3260`"));
        }
    }
    bounded(context, "advertise", texts, 0);
    let texts = texts.iter().map(|text| text.value.clone()).collect();
    (context.faults.len() == faults).then_some(texts)
}

fn bounded(context: &mut Context, name: &str, texts: &[Read<String>], min: usize) {
    if texts.len() < min || texts.len() > MAX_ADDRESSES {
        let message = format!("`{name}` has {} addresses", texts.len());
        let span = texts.first().and_then(|text| text.span.clone());
        let fault = Fault::new(Code::OutOfRange, message).at_some(span.as_ref(), "the first");
        context.faults.push(fault.help(format!("write {min} to {MAX_ADDRESSES}")));
    }
}
