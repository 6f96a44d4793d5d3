//! What a new configuration changes, for whom, and how hosts learn of it.

use crate::config::{Change, Config, KeyChange};

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
    secrets(changes, (old, new));
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

/// Says of each account that stays whether its secret changes, on the line of what else changes of it. The reader shows no
/// secret, so that it cannot tell one from another.
fn secrets(changes: &mut Vec<Change>, (old, new): (&Config, &Config)) {
    for account in &new.accounts {
        let Some(before) = old.accounts.iter().find(|one| one.name == account.name) else {
            continue;
        };
        let is_its = |one: &Change| one.kind == "account" && one.name == account.name;
        let line = changes.iter().position(is_its);
        if let Some(line) = line {
            // Where it is written is not what it is.
            changes[line].keys.retain(|key| key.key != SECRET);
        }
        if before.secret != account.secret {
            let line = line.unwrap_or_else(|| {
                let (change, kind) = ("changed".to_owned(), "account".to_owned());
                let name = account.name.clone();
                changes.push(Change { change, kind, name, ..Change::default() });
                changes.len() - 1
            });
            changes[line].keys.push(KeyChange { key: SECRET.to_owned(), from: None, to: None });
        }
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

/// The key of an account whose values are never shown.
const SECRET: &str = "secret";

/// Hosts in a line about a change.
const HOSTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Account, Secret};
    use crate::testing::config;

    fn account(name: &str, secret: &str) -> Account {
        let secret = Secret::new(secret.as_bytes().to_vec()).unwrap();
        Account { name: name.to_owned(), secret }
    }

    /// Each account has one line that lists all that changes of it, a secret without its value, whatever changes of others.
    #[test]
    fn a_changed_secret_is_on_the_line_of_its_account() {
        let with = |accounts| Config { accounts, ..config(Vec::new()) };
        let a = "the secret of a";
        let old = with(vec![account("a", a), account("b", "the secret of b"), account("c", a)]);
        let new = with(vec![account("b", a), account("c", "another secret"), account("d", a)]);
        let key = |key: &str, from: Option<&str>, to: Option<&str>| {
            let [from, to] = [from, to].map(|value| value.map(ToOwned::to_owned));
            KeyChange { key: key.to_owned(), from, to }
        };
        let change = |change: &str, name: &str, keys| {
            let [change, kind, name] = [change, "account", name].map(ToOwned::to_owned);
            Change { change, kind, name, keys, ..Change::default() }
        };
        let moved = vec![key("secret", Some("…"), None), key("secret_file", None, Some("b.key"))];
        let mut changes = vec![
            change("removed", "a", vec![key("secret", Some("…"), None)]),
            change("changed", "b", moved),
            change("added", "d", vec![key("secret", None, Some("…"))]),
        ];
        complete(&mut changes, (&old, &new), &[]);
        let lines: Vec<_> = changes.iter().map(ToString::to_string).collect();
        let expected = [
            "- account a: secret …; at the next login",
            "~ account b: secret_file none → b.key, secret changes; at the next login",
            "+ account d: secret …; at the next login",
            "~ account c: secret changes; at the next login",
        ];
        assert_eq!(lines, expected);
        let mut none = Vec::new();
        complete(&mut none, (&new, &new), &[]);
        assert_eq!(none, []);
    }
}
