//! What a new configuration changes, for whom, and how hosts learn of it.

use crate::config::{Change, Config};

/// A host that is connected.
#[derive(Debug)]
pub(crate) struct Host {
    /// Its name and its address.
    pub(crate) words: String,
    /// The target, the subsystem or the export that it is connected to.
    pub(crate) place: String,
    /// The volumes that it finds.
    pub(crate) volumes: Vec<usize>,
    /// The tenants that its commands are of.
    pub(crate) tenants: Vec<usize>,
}

/// Says of each change how hosts learn of it, and which these are. `old` and `new` have volumes and tenants at the same
/// places.
pub(crate) fn complete(changes: &mut Vec<Change>, (old, new): (&Config, &Config), all: &[Host]) {
    // Secrets are no values that are shown, so that there is no change of one.
    if old.accounts != new.accounts && !changes.iter().any(|one| one.kind == "account") {
        let (change, kind) = ("changed".to_owned(), "account".to_owned());
        changes.push(Change { change, kind, name: "(a secret)".to_owned(), ..Change::default() });
    }
    let volume = |name: &str| new.volumes.iter().position(|one| one.name == name);
    let tenant = |name: &str| new.tenants.iter().position(|one| one.name == name);
    for change in changes {
        let name = change.name.as_str();
        let hosts: Vec<&Host> = match change.kind.as_str() {
            "volume" => {
                let index = volume(name);
                all.iter().filter(|one| index.is_some_and(|is| one.volumes.contains(&is))).collect()
            }
            "tenant" => {
                let index = tenant(name);
                all.iter().filter(|one| index.is_some_and(|is| one.tenants.contains(&is))).collect()
            }
            "target" | "subsystem" | "export" => {
                all.iter().filter(|one| one.place == name).collect()
            }
            _ => Vec::new(),
        };
        told(change).clone_into(&mut change.told);
        let shown = hosts.iter().take(HOSTS);
        change.hosts = shown.map(|one| one.words.clone()).collect();
        change.hosts_left_out = hosts.len().saturating_sub(HOSTS) as u64;
    }
}

/// How hosts learn of a change.
fn told(change: &Change) -> &'static str {
    let has = |keys: &[&str]| {
        change.keys.iter().any(|one| keys.contains(&one.key.split('.').next().unwrap_or_default()))
    };
    match (change.kind.as_str(), change.change.as_str()) {
        ("volume", "removed") => "the unit is not there any more, NBD clients are disconnected",
        ("volume", "changed") if has(&["size"]) => "CAPACITY DATA HAS CHANGED",
        ("target" | "subsystem", "removed") => "its hosts are asked to leave",
        ("target", "changed") if has(&["luns"]) => "REPORTED LUNS DATA HAS CHANGED",
        ("subsystem", "changed") => "an event of its controllers",
        ("volume", "changed") if has(&["initiators"]) => "REPORTED LUNS DATA HAS CHANGED",
        ("target", "changed") | ("account" | "discovery", _) => "at the next login",
        ("isns", _) => "by the server, if they ask it",
        ("export", "added") => "at the next connection",
        ("export", _) => "its clients are disconnected",
        ("volume", "changed") | ("tenant" | "group" | "background" | "policy", _) => {
            "not visible to hosts"
        }
        _ => "",
    }
}

/// Hosts in a line about a change.
const HOSTS: usize = 20;
