//! The ready message of `weir serve`, as text and as JSON.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use weir_flow::units::ByteCount;
use weir_serve::config::{Config, Export, HttpListen, Layout, Subsystem, Target};
use weir_serve::{NbdListener, Ready, ReadyStore};

/// The ready event as one object.
pub(super) fn event(config: &Config, ready: &Ready) -> Value {
    let portal = portal(config, ready);
    let volume = |index: usize| -> Option<Value> {
        let volume = ready.volumes.get(index)?;
        let mut entry = json!({
            "volume": volume.name,
            "bytes": volume.capacity,
            "read_only": config.volumes[index].read_only,
        });
        match &volume.stores[..] {
            [only] => tell_store(&mut entry, only),
            several => {
                let tell = |store| {
                    let mut entry = json!({});
                    tell_store(&mut entry, store);
                    entry
                };
                entry["stores"] = several.iter().map(tell).collect();
                match config.volumes[index].layout {
                    Layout::Concat => entry["layout"] = json!("concat"),
                    Layout::Stripe { chunk } => {
                        entry["layout"] = json!("stripe");
                        entry["chunk"] = json!(chunk);
                    }
                }
            }
        }
        Some(entry)
    };
    let target = |target: &Target| {
        let lun = |&(lun, index): &(u16, usize)| {
            let mut entry = volume(index)?;
            entry["lun"] = json!(lun);
            entry["url"] = json!(format!("iscsi://{portal}/{}/{lun}", target.name));
            Some(entry)
        };
        let luns: Vec<_> = target.luns.iter().filter_map(lun).collect();
        let mut entry = json!({ "name": target.name, "luns": luns });
        if let Some(redirect) = &target.redirect {
            entry["redirect"] = json!(redirect.portal);
        }
        entry
    };
    let export = |export: &Export| {
        let mut entry = volume(export.volume)?;
        entry["name"] = json!(export.name);
        if let Some(listener) = ready.nbd.first() {
            entry["url"] = json!(nbd_url(config, listener, Some(&export.name)));
        }
        Some(entry)
    };
    let subsystem = |subsystem: &Subsystem| {
        let namespace = |&(nsid, index): &(u32, usize)| {
            let mut entry = volume(index)?;
            entry["nsid"] = json!(nsid);
            Some(entry)
        };
        let namespaces: Vec<_> = subsystem.namespaces.iter().filter_map(namespace).collect();
        json!({ "name": subsystem.name, "namespaces": namespaces })
    };
    let nvme: Vec<_> = ready.nvme.iter().map(SocketAddr::to_string).collect();
    let portals: Vec<_> = ready.portals.iter().map(SocketAddr::to_string).collect();
    let nbd: Vec<_> = ready.nbd.iter().map(|listener| nbd_url(config, listener, None)).collect();
    json!({
        "version": 1,
        "event": "ready",
        "portals": portals,
        "nbd": nbd,
        "nvme": nvme,
        "control": control(ready).map(|socket| socket.display().to_string()),
        "http": http(config, ready),
        "driver": ready.driver,
        "targets": config.targets.iter().map(target).collect::<Vec<_>>(),
        "exports": config.nbd.exports.iter().filter_map(export).collect::<Vec<_>>(),
        "subsystems": config.nvme.subsystems.iter().map(subsystem).collect::<Vec<_>>(),
    })
}

/// Adds the location of a volume, or of a part of it.
fn tell_store(entry: &mut Value, store: &ReadyStore) {
    match store {
        ReadyStore::File { path, direct, created } => {
            entry["path"] = json!(path.display().to_string());
            entry["io"] = json!(if *direct { "direct" } else { "buffered" });
            entry["created"] = json!(created);
        }
        ReadyStore::Memory { keeps } => {
            entry["volatile"] = json!(if *keeps { "memory" } else { "null" });
        }
        ReadyStore::Upstream { name, paths, ready, .. } => {
            entry["upstream"] = json!(name);
            entry["paths"] = json!(paths);
            entry["paths_ready"] = json!(ready);
        }
    }
}

/// The same for people, and how to connect.
pub(super) fn welcome(config: &Config, ready: &Ready) -> String {
    let mut text = String::new();
    if !ready.portals.is_empty() {
        let portals: Vec<_> = ready.portals.iter().map(SocketAddr::to_string).collect();
        let _ = writeln!(text, "weir serves iSCSI on {}", portals.join(", "));
    }
    if !ready.nbd.is_empty() {
        let listeners: Vec<_> = ready.nbd.iter().map(place).collect();
        let _ = writeln!(text, "weir serves NBD on {}", listeners.join(", "));
    }
    if !ready.nvme.is_empty() {
        let listeners: Vec<_> = ready.nvme.iter().map(SocketAddr::to_string).collect();
        let _ = writeln!(text, "weir serves NVMe/TCP on {}", listeners.join(", "));
    }
    for target in &config.targets {
        let _ = writeln!(text, "\n  {}", target.name);
        if let Some(redirect) = &target.redirect {
            let _ = writeln!(text, "    hosts are redirected to {}", redirect.portal);
        }
        if !target.authentication.accounts.is_empty() {
            let _ = writeln!(text, "    hosts must authenticate (CHAP)");
        }
        for &(lun, index) in &target.luns {
            volume(&mut text, &format!("LUN {lun}"), config, ready, index);
        }
    }
    if !ready.nbd.is_empty() {
        text.push_str("\n  NBD exports\n");
        for export in &config.nbd.exports {
            let name = if export.name.is_empty() { "(default)" } else { &export.name };
            volume(&mut text, name, config, ready, export.volume);
        }
    }
    for subsystem in &config.nvme.subsystems {
        let _ = writeln!(text, "\n  {}", subsystem.name);
        let _ = writeln!(text, "    hosts are not authenticated: a name is no proof");
        for &(nsid, index) in &subsystem.namespaces {
            volume(&mut text, &format!("namespace {nsid}"), config, ready, index);
        }
    }
    let mut ways = String::new();
    iscsi_ways(&mut ways, config, ready);
    nbd_ways(&mut ways, config, ready);
    nvme_ways(&mut ways, config, ready);
    if !ways.is_empty() {
        let _ = write!(text, "\nto connect\n{ways}");
    }
    let socket = control(ready);
    let status = socket.map(|socket| format!("  weir status --socket {}\n", socket.display()));
    let http = http(config, ready).map(|place| format!("  {place}\n"));
    if status.is_some() || http.is_some() {
        let (status, http) = (status.unwrap_or_default(), http.unwrap_or_default());
        let _ = write!(text, "\nto see its state\n{status}{http}");
    }
    text.push_str("\nCtrl-C flushes every volume and stops the gateway\n");
    text
}

/// The control socket as an absolute path.
fn control(ready: &Ready) -> Option<PathBuf> {
    let socket = ready.control.as_ref()?;
    Some(std::path::absolute(socket).unwrap_or_else(|_| socket.clone()))
}

/// Where it is asked over HTTP: a URL, or `unix:` and an absolute path.
fn http(config: &Config, ready: &Ready) -> Option<String> {
    Some(match ready.http.as_ref()? {
        HttpListen::Unix(socket) => {
            let whole = std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
            HttpListen::Unix(whole).to_string()
        }
        HttpListen::Tcp(address) => {
            let tls = config.http.as_ref().is_some_and(|http| http.tls.is_some());
            format!("{}://{address}/", if tls { "https" } else { "http" })
        }
    })
}

fn volume(text: &mut String, what: &str, config: &Config, ready: &Ready, index: usize) {
    let Some(volume) = ready.volumes.get(index) else { return };
    let (name, size) = (&volume.name, ByteCount(volume.capacity));
    let read_only = if config.volumes[index].read_only { ", read only" } else { "" };
    let _ = match &volume.stores[..] {
        [only] => writeln!(text, "    {what}: {name}, {size}{read_only}, {}", store(only)),
        several => {
            let layout = match config.volumes[index].layout {
                Layout::Concat => String::from("concatenated"),
                Layout::Stripe { chunk } => format!("in turns of {}", ByteCount(chunk)),
            };
            let _ = writeln!(
                text,
                "    {what}: {name}, {size}{read_only}, on {} stores, {layout}",
                several.len()
            );
            several.iter().try_for_each(|one| writeln!(text, "      {}", store(one)))
        }
    };
}

/// The location of a volume, or of a part of it.
fn store(store: &ReadyStore) -> String {
    match store {
        ReadyStore::File { path, direct, created } => format!(
            "{} I/O, in {}{}",
            if *direct { "direct" } else { "buffered" },
            path.display(),
            if *created { " (created)" } else { "" },
        ),
        ReadyStore::Memory { keeps: true } => {
            String::from("in memory: IT IS GONE when the gateway stops")
        }
        ReadyStore::Memory { keeps: false } => {
            String::from("null: WRITES ARE DROPPED, reads give zeroes")
        }
        ReadyStore::Upstream { name, target, lun, paths, ready } => format!(
            "on upstream {name}: LUN {lun} of {target}, {ready} of {paths} {}",
            if *paths == 1 { "path" } else { "paths" },
        ),
    }
}

/// The commands to connect to the first LUN that is served here.
fn iscsi_ways(text: &mut String, config: &Config, ready: &Ready) {
    let portal = portal(config, ready);
    let mut served = config.targets.iter().filter(|target| target.redirect.is_none());
    let Some(target) = served.next().filter(|_| !portal.is_empty()) else { return };
    let Some(&(lun, index)) = target.luns.first() else { return };
    let name = &target.name;
    let read_only = read_only(config, index);
    let _ = write!(
        text,
        "\x20 libiscsi  iscsi-ls -s iscsi://{portal}\n\
         \x20 QEMU      qemu-io {read_only}-f raw -c 'read 0 4k' iscsi://{portal}/{name}/{lun}\n\
         \x20 Linux     iscsiadm -m discovery -t sendtargets -p {portal}\n\
         \x20           iscsiadm -m node -T {name} -p {portal} --login\n"
    );
}

/// The commands to connect to the first export.
fn nbd_ways(text: &mut String, config: &Config, ready: &Ready) {
    let (Some(listener), Some(export)) = (ready.nbd.first(), config.nbd.exports.first()) else {
        return;
    };
    let url = nbd_url(config, listener, Some(&export.name));
    if must_encrypt(config, listener) {
        let _ = writeln!(text, "  libnbd    nbdinfo '{url}?tls-certificates=FOLDER'");
        let _ = writeln!(text, "            FOLDER has the authority that signed: ca-cert.pem");
        return;
    }
    let read_only = read_only(config, export.volume);
    let _ = writeln!(text, "  libnbd    nbdinfo '{url}'");
    let _ = writeln!(text, "  QEMU      qemu-io {read_only}-f raw -c 'read 0 4k' '{url}'");
}

/// The commands to connect to the first subsystem.
fn nvme_ways(text: &mut String, config: &Config, ready: &Ready) {
    let (Some(&listener), Some(subsystem)) = (ready.nvme.first(), config.nvme.subsystems.first())
    else {
        return;
    };
    let address = config.nvme.advertise.first().copied().unwrap_or_else(|| reachable(listener));
    let way = format!("-t tcp -a {} -s {}", address.ip(), address.port());
    let _ = write!(
        text,
        "\x20 Linux     nvme discover {way}\n\
         \x20           nvme connect {way} -n {}\n",
        subsystem.name
    );
}

fn read_only(config: &Config, volume: usize) -> &'static str {
    if config.volumes[volume].read_only { "-r " } else { "" }
}

/// The address in the printed commands: the first advertised portal, or the first listener. Empty if there is none.
fn portal(config: &Config, ready: &Ready) -> String {
    let Some(&address) = ready.portals.first() else { return String::new() };
    config.advertise.first().cloned().unwrap_or_else(|| reachable(address).to_string())
}

/// An address to connect to: this machine's own for a listener on all of its addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn place(listener: &NbdListener) -> String {
    match listener {
        NbdListener::Tcp(address) => address.to_string(),
        NbdListener::Unix(path) => path.display().to_string(),
    }
}

/// Whether a listener accepts only TLS; a Unix socket never uses it.
fn must_encrypt(config: &Config, listener: &NbdListener) -> bool {
    let required = config.nbd.tls.as_ref().is_some_and(|tls| tls.required);
    required && matches!(listener, NbdListener::Tcp(_))
}

/// The URL of a listener, or of an export there, in the form of the NBD URI specification.
fn nbd_url(config: &Config, listener: &NbdListener, export: Option<&str>) -> String {
    let path = export.map(|name| format!("/{}", encode(name.as_bytes(), b"")));
    match listener {
        NbdListener::Tcp(address) => {
            let scheme = if must_encrypt(config, listener) { "nbds" } else { "nbd" };
            format!("{scheme}://{}{}", reachable(*address), path.unwrap_or_default())
        }
        NbdListener::Unix(socket) => {
            let path = path.as_deref().unwrap_or("/");
            format!("nbd+unix://{path}?socket={}", socket_path(socket))
        }
    }
}

/// A socket's path from the root, as clients may run elsewhere.
fn socket_path(socket: &Path) -> String {
    let whole = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    encode(whole.as_os_str().as_encoded_bytes(), b"/")
}

/// Percent-encoding (RFC 3986, 2.1) of all but the unreserved characters and `also`.
fn encode(bytes: &[u8], also: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also.contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::config::source::Source;
    use weir_serve::ReadyVolume;

    const NBD: &str = "[iscsi]\nlisten = []\n[nbd]\nlisten = [\"[::]:0\"]\nunix = [\"nbd sock\"]\n\
                       exports = { \"\" = \"d\", \"a b/c\" = \"d\" }\n\
                       [[volume]]\nname = \"d\"\nfile = \"d\"\nread_only = true\n";

    fn started(text: &str, portals: &[&str], nbd: Vec<NbdListener>) -> (Config, Ready) {
        let source = Source::new("weir.toml", text.to_owned());
        let config = config::gateway(&source).unwrap().checked;
        let volume = |volume: &weir_serve::config::Volume| ReadyVolume {
            name: volume.name.clone(),
            capacity: 1 << 20,
            stores: vec![ReadyStore::File {
                path: volume.file().unwrap().path.clone(),
                direct: true,
                created: false,
            }],
        };
        let volumes = config.volumes.iter().map(volume).collect();
        let portals = portals.iter().map(|portal| portal.parse().unwrap()).collect();
        let nvme = config.nvme.listen.clone();
        let (control, http, driver) = (None, None, "threads");
        (config, Ready { portals, nbd, nvme, control, http, driver, volumes })
    }

    /// Every listener and every export has a URL with percent-encoding; the output of a gateway with NBD alone does
    /// not mention iSCSI.
    #[test]
    fn nbd_is_shown() {
        let tcp = NbdListener::Tcp("[::]:10809".parse().unwrap());
        let unix = NbdListener::Unix("/run/nbd sock".into());
        let (config, ready) = started(NBD, &[], vec![tcp, unix.clone()]);
        let told = event(&config, &ready);
        let urls = json!(["nbd://[::1]:10809", "nbd+unix:///?socket=/run/nbd%20sock"]);
        assert_eq!(told["nbd"], urls);
        assert_eq!(told["exports"][0]["name"], "");
        assert_eq!(told["exports"][0]["url"], "nbd://[::1]:10809/");
        assert_eq!(told["exports"][1]["url"], "nbd://[::1]:10809/a%20b%2Fc");
        assert_eq!(told["exports"][1]["volume"], "d");
        assert_eq!(told["targets"], json!([]));
        let text = welcome(&config, &ready);
        assert!(text.starts_with("weir serves NBD on [::]:10809, /run/nbd sock\n"), "{text}");
        assert!(!text.contains("iSCSI"), "{text}");
        assert!(text.contains("    (default): d, 1 MiB, read only, direct I/O, in d\n"), "{text}");
        assert!(text.contains("    a b/c: d, "), "{text}");
        assert!(text.contains("nbdinfo 'nbd://[::1]:10809/'"), "{text}");
        assert!(text.contains("qemu-io -r -f raw -c 'read 0 4k' 'nbd://[::1]:10809/'"), "{text}");
        assert!(text.ends_with("stops the gateway\n"), "{text}");

        let (config, ready) = started(NBD, &[], vec![unix]);
        let url = "nbd+unix:///a%20b%2Fc?socket=/run/nbd%20sock";
        assert_eq!(event(&config, &ready)["exports"][1]["url"], url);
    }

    /// A subsystem has its namespaces, and commands that connect to it.
    #[test]
    fn subsystems_are_shown() {
        let text = "[iscsi]\nlisten = []\n[nvme]\nlisten = [\"0.0.0.0:4420\"]\n\
                    [[volume]]\nname = \"d\"\nfile = \"d\"\n\
                    [[subsystem]]\nname = \"nqn.2026-11.org.example:d\"\nnamespaces.3 = \"d\"\n";
        let (config, ready) = started(text, &[], Vec::new());
        let told = event(&config, &ready);
        assert_eq!(told["nvme"], json!(["0.0.0.0:4420"]));
        let subsystem = &told["subsystems"][0];
        assert_eq!(subsystem["name"], "nqn.2026-11.org.example:d");
        assert_eq!(subsystem["namespaces"][0]["nsid"], 3);
        assert_eq!(subsystem["namespaces"][0]["volume"], "d");
        let text = welcome(&config, &ready);
        assert!(text.starts_with("weir serves NVMe/TCP on 0.0.0.0:4420\n"), "{text}");
        assert!(text.contains("    namespace 3: d, 1 MiB"), "{text}");
        let way = "-t tcp -a 127.0.0.1 -s 4420";
        assert!(text.contains(&format!("  Linux     nvme discover {way}\n")), "{text}");
        let connect = format!("nvme connect {way} -n nqn.2026-11.org.example:d\n");
        assert!(text.contains(&connect), "{text}");
    }

    /// The URL of a listener that requires TLS says so; a Unix socket uses no TLS.
    #[test]
    fn tls_is_shown() {
        let tls = "tls = \"required\"\ncertificate = \"c\"\nkey = \"k\"\nexports";
        let tcp = NbdListener::Tcp("127.0.0.1:1".parse().unwrap());
        let unix = NbdListener::Unix("/s".into());
        let text = NBD.replace("exports", tls);
        let (config, ready) = started(&text, &[], vec![tcp, unix.clone()]);
        assert_eq!(
            event(&config, &ready)["nbd"],
            json!(["nbds://127.0.0.1:1", "nbd+unix:///?socket=/s"])
        );
        let text = welcome(&config, &ready);
        assert!(text.contains("nbdinfo 'nbds://127.0.0.1:1/?tls-certificates=FOLDER'"), "{text}");
        assert!(!text.contains("qemu-io"), "{text}");
        let text = welcome(&config, &Ready { nbd: vec![unix], ..ready });
        assert!(text.contains("nbdinfo 'nbd+unix:///?socket=/s'"), "{text}");
    }

    /// Both ways to ask the gateway are shown, each where there is one.
    #[test]
    fn ways_to_ask_are_shown() {
        let (config, ready) = started(NBD, &[], Vec::new());
        assert!(!welcome(&config, &ready).contains("its state"));
        assert_eq!(event(&config, &ready)["http"], Value::Null);
        let http = Some(HttpListen::Tcp("127.0.0.1:9713".parse().unwrap()));
        let ready = Ready { http, ..ready };
        assert_eq!(event(&config, &ready)["http"], "http://127.0.0.1:9713/");
        let text = welcome(&config, &ready);
        assert!(text.contains("\nto see its state\n  http://127.0.0.1:9713/\n\n"), "{text}");
        let ready = Ready {
            control: Some("/c".into()),
            http: Some(HttpListen::Unix("/h".into())),
            ..ready
        };
        let text = welcome(&config, &ready);
        assert!(text.contains("  weir status --socket /c\n  unix:/h\n"), "{text}");
    }

    /// A target with `redirect` prints the new address, and is not the example to connect to.
    #[test]
    fn targets_are_shown() {
        let text = "[[account]]\nname = \"alice\"\nsecret = \"twelve bytes\"\n\
                    [[volume]]\nname = \"d\"\nfile = \"d\"\n\
                    [[target]]\nname = \"iqn.2026-11.org.example:a\"\nredirect = \"b:3260\"\n\
                    [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns.3 = \"d\"\n\
                    accounts = [\"alice\"]\n";
        let (config, ready) = started(text, &["0.0.0.0:3260"], Vec::new());
        let told = event(&config, &ready);
        assert_eq!(told["targets"][0]["redirect"], "b:3260");
        let url = "iscsi://127.0.0.1:3260/iqn.2026-11.org.example:d/3";
        assert_eq!(told["targets"][1]["luns"][0]["url"], url);
        assert_eq!(told["nbd"], json!([]));
        let text = welcome(&config, &ready);
        assert!(text.contains(":a\n    hosts are redirected to b:3260\n"), "{text}");
        assert!(text.contains(":d\n    hosts must authenticate (CHAP)\n    LUN 3: d"), "{text}");
        assert!(text.contains(&format!("'read 0 4k' {url}\n")), "{text}");
        assert!(!text.contains("NBD"), "{text}");
    }
}
