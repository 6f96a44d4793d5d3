//! `[isns]`: the name servers that tell hosts where the targets of this gateway are.

use super::iscsi::Checked;
use super::listen::{bounded, remote};
use super::upstream::iscsi_name;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Part, Section};
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::shorten;
use std::net::{IpAddr, SocketAddr};
use weir_flow::settings::Settings as _;
use weir_serve::config::{ENTITY_MAX, ISNS_PORT, Isns, SERVERS_MAX};

/// The table.
pub(super) static ISNS: Section = Section {
    name: "isns",
    many: Many::Once,
    effect: "name servers (iSNS) at which the targets are registered, for hosts that look there",
    keys: &[
        Key {
            name: "servers",
            kind: Kind::Texts("IP addresses; the port is 3205 unless one is written"),
            default: Default::Required,
            effect: "the servers, up to 4; each has a registration to itself, and none keeps the gateway from serving",
        },
        Key {
            name: "entity",
            kind: Kind::Text("a name of at most 255 bytes"),
            default: Default::Required,
            effect: "the entity: one name for all gateways that serve the same volumes, and for no others",
        },
        Key {
            name: "portals",
            kind: Kind::Texts("IP addresses with a port"),
            default: Default::Else(
                "where the gateway listens for iSCSI; for a wildcard, the address that the server is reached from",
            ),
            effect: "where hosts find the targets; required with `advertise` in `[iscsi]`",
        },
        Key {
            name: "initiator_name",
            kind: Kind::Text("an iSCSI name: `iqn.`, `eui.` or `naa.`"),
            default: Default::Else("a name made of this machine's identity"),
            effect: "who the gateway is at the servers; no two gateways may have the same name",
        },
    ],
    settings: &[Part::always(Isns::TABLE)],
};

/// Reads the table. Without it the gateway is registered nowhere.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    iscsi: Option<&Checked>,
) -> Result<Option<Isns>, Noted> {
    let table = document.once(context, "isns");
    if !table.is_present() {
        return Ok(None);
    }
    let servers = servers(context, &table);
    let entity = entity(context, &table);
    let portals = portals(context, &table, iscsi);
    let name = iscsi_name(context, &table, "initiator_name");
    let name = table.optional("initiator_name", name);
    let settings: Option<Isns> = table.settings(context);
    let settings = settings.filter(|settings| fits(context, &table, settings));
    let (Some(servers), Some(entity), Some(settings)) = (servers, entity, settings) else {
        return Err(Noted);
    };
    Ok(Some(Isns { servers, entity, portals: portals?, initiator_name: name?, ..settings }))
}

/// Whether the settings fulfil what their ranges do not say.
fn fits(context: &mut Context, table: &Table<'_>, settings: &Isns) -> bool {
    let Err(invalid) = settings.validate() else { return true };
    let diagnostic = Diagnostic::new(Code::OutOfRange, invalid.to_string());
    let diagnostic = diagnostic.at_some(table.value_span(invalid.name()).as_ref(), "this value");
    context.report(diagnostic.help("such as `esi = \"1min\"`"));
    false
}

fn servers(context: &mut Context, table: &Table<'_>) -> Option<Vec<SocketAddr>> {
    let texts = table.texts(context, "servers")?;
    let diagnostics = context.diagnostics.len();
    let mut servers: Vec<SocketAddr> = Vec::new();
    for text in &texts {
        let bare = text.value.trim_start_matches('[').trim_end_matches(']');
        let server = match bare.parse::<IpAddr>() {
            Ok(ip) => Ok(SocketAddr::new(ip, ISNS_PORT)),
            Err(_) => text.value.parse().map_err(drop),
        };
        let reachable = |server: &SocketAddr| server.port() != 0 && !server.ip().is_unspecified();
        let Some(server) = server.ok().filter(reachable) else {
            let message = format!("`{}` is not the address of a server", shorten(&text.value));
            report(
                context,
                Code::BadValue,
                message,
                text,
                "write an IP address, such as `192.0.2.5`",
            );
            continue;
        };
        if servers.contains(&server) {
            let message = format!("`{server}` is a server twice");
            report(context, Code::Duplicate, message, text, "remove one of them");
        }
        servers.push(server);
    }
    if let Some(extra) = texts.get(SERVERS_MAX) {
        let message = format!("`servers` has {} entries", texts.len());
        report(context, Code::OutOfRange, message, extra, "write at most 4");
    }
    if texts.is_empty() {
        let diagnostic = Diagnostic::new(Code::BadValue, "there is no server to register at");
        let span = table.value_span("servers");
        let diagnostic = diagnostic.at_some(span.as_ref(), "the value of `servers`");
        context.report(diagnostic.help("write an address, or remove the table"));
    }
    (context.diagnostics.len() == diagnostics).then_some(servers)
}

fn entity(context: &mut Context, table: &Table<'_>) -> Option<String> {
    let entity = table.text(context, "entity")?;
    let value = &entity.value;
    if value.is_empty() || value.len() > ENTITY_MAX || value.chars().any(char::is_control) {
        let message = format!("`{}` cannot be the name of an entity", shorten(value));
        let help = "write 1 to 255 bytes without control characters, such as `disks.example.org`";
        report(context, Code::BadValue, message, &entity, help);
        return None;
    }
    Some(entity.value)
}

/// The portals; none: those that the gateway listens on, which there must be.
fn portals(
    context: &mut Context,
    table: &Table<'_>,
    iscsi: Option<&Checked>,
) -> Result<Vec<SocketAddr>, Noted> {
    let Some(texts) = table.texts(context, "portals") else {
        if table.has("portals") {
            return Err(Noted);
        }
        let Some(iscsi) = iscsi else { return Err(Noted) };
        let (message, help) = if iscsi.listen.is_empty() {
            (
                "there is no iSCSI listener to register",
                "add `listen` to `[iscsi]`, or remove `[isns]`",
            )
        } else if !iscsi.advertise.is_empty() {
            (
                "hosts reach the gateway at `advertise`, which may be names, and iSNS has addresses",
                "add `portals = [\"…\"]`: the addresses and ports by which hosts reach the gateway",
            )
        } else {
            return Ok(Vec::new());
        };
        let diagnostic = Diagnostic::new(Code::Conflict, message).at(table.span(), "this table");
        context.report(diagnostic.help(help));
        return Err(Noted);
    };
    let diagnostics = context.diagnostics.len();
    let mut portals = Vec::new();
    for text in &texts {
        match remote(&text.value) {
            Ok(portal) => portals.push(portal),
            Err(help) => {
                let message = format!("`{}` is not an address and a port", shorten(&text.value));
                report(context, Code::BadValue, message, text, &help);
            }
        }
    }
    bounded(context, "portals", &texts);
    if context.diagnostics.len() > diagnostics { Err(Noted) } else { Ok(portals) }
}

fn report(context: &mut Context, code: Code, message: String, text: &Read<String>, help: &str) {
    let diagnostic = Diagnostic::new(code, message);
    context.report(diagnostic.at_some(text.span.as_ref(), "this value").help(help));
}

#[cfg(test)]
mod tests {
    use crate::config::diagnostic::Code;
    use crate::config::gateway;
    use crate::config::source::Source;
    use weir_serve::config::{Config, Isns};

    /// A gateway with this `[iscsi]` and `[isns]`.
    fn read(iscsi: &str, isns: &str) -> Result<Config, Vec<(Code, String)>> {
        let text = format!(
            "[iscsi]\n{iscsi}\n[isns]\n{isns}\n[[volume]]\nname = \"d\"\nfile = \"d\"\n\
             [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = {{ 0 = \"d\" }}\n"
        );
        let source = Source::new("nowhere/weir.toml", text);
        let read = gateway(&source).map(|loaded| loaded.checked);
        read.map_err(|diagnostics| {
            let errors = diagnostics.into_iter().filter(|one| !one.code.is_warning());
            errors
                .map(|one| {
                    assert!(one.help.is_some(), "{one:?}");
                    let (span, _) = one.at.expect("a place");
                    (one.code, source.text[span].to_owned())
                })
                .collect()
        })
    }

    const GOOD: &str = "servers = [\"192.0.2.5\", \"[2001:db8::5]:4205\"]\nentity = \"disks\"\n";

    /// Servers have the port of iSNS unless they say another, and the rest has defaults.
    #[test]
    fn a_server_and_an_entity_are_enough() {
        let isns = read("", GOOD).unwrap().isns.unwrap();
        let servers = ["192.0.2.5:3205", "[2001:db8::5]:4205"].map(|one| one.parse().unwrap());
        let (servers, entity) = (servers.to_vec(), "disks".to_owned());
        assert_eq!(isns, Isns { servers, entity, ..Isns::default() });
        let all = "portals = [\"198.51.100.1:3260\"]\ninitiator_name = \"iqn.2026-11.org.example:g\"\n\
                   period = \"1min\"\nesi = \"0s\"\nport = 4000\n";
        let isns = read("", &format!("{GOOD}{all}")).unwrap().isns.unwrap();
        assert_eq!((isns.portals.len(), isns.port, isns.esi.as_nanos()), (1, 4_000, 0));
        assert_eq!(isns.initiator_name.as_deref(), Some("iqn.2026-11.org.example:g"));
    }

    /// What cannot be a registration is refused at its place, with what to do.
    #[test]
    fn what_cannot_be_registered_is_refused() {
        let bad = |iscsi: &str, isns: &str| {
            let faults = read(iscsi, isns).map(drop).unwrap_err();
            assert_eq!(faults.len(), 1, "{isns}: {faults:?}");
            faults.into_iter().next().unwrap()
        };
        let fault = |code, at: &str| (code, at.to_owned());
        let servers = |list: &str| format!("servers = [{list}]\nentity = \"e\"\n");
        for server in ["name", "0.0.0.0", "192.0.2.5:0"] {
            let at = format!("\"{server}\"");
            assert_eq!(bad("", &servers(&at)), fault(Code::BadValue, &at));
        }
        let twice = servers("\"192.0.2.5\", \"192.0.2.5:3205\"");
        assert_eq!(bad("", &twice), fault(Code::Duplicate, "\"192.0.2.5:3205\""));
        let five =
            servers("\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\", \"192.0.2.4\", \"192.0.2.5\"");
        assert_eq!(bad("", &five), fault(Code::OutOfRange, "\"192.0.2.5\""));
        assert_eq!(bad("", &servers("")), fault(Code::BadValue, "[]"));
        let empty = "servers = [\"192.0.2.5\"]\nentity = \"\"\n";
        assert_eq!(bad("", empty), fault(Code::BadValue, "\"\""));
        assert_eq!(bad("", &format!("{GOOD}portals = [\"a:1\"]")).0, Code::BadValue);
        assert_eq!(bad("", &format!("{GOOD}initiator_name = \"g\"")).0, Code::BadValue);
        assert_eq!(bad("", "entity = \"e\"").0, Code::MissingKey);
        assert_eq!(bad("", &format!("{GOOD}esi = \"2s\"")).0, Code::OutOfRange);
        assert_eq!(bad("advertise = [\"gateway:3260\"]", GOOD).0, Code::Conflict);
    }
}
