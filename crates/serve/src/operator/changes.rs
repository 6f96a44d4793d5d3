//! What a new configuration changes, for whom, and how hosts learn of it.

use crate::config::{Change, Config, KeyChange};
use crate::volume::reload::Growth;
use std::collections::{BTreeMap, BTreeSet};
use weir_flow::units::ByteCount;

/// A host that is connected.
#[derive(Debug)]
pub(crate) struct Host {
    /// Its name and its address.
    pub(crate) words: String,
    /// It is an NBD client, which learns of nothing while it is connected.
    pub(crate) is_nbd: bool,
    /// The target, the subsystem or the export that it is connected to.
    pub(crate) place: String,
    /// The volumes that it finds.
    pub(crate) volumes: Vec<usize>,
    /// The tenants that its commands are of.
    pub(crate) tenants: Vec<usize>,
}

/// What changes, in words.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) shown: Vec<Change>,
    /// How many there are that `shown` does not have.
    pub(crate) left_out: u64,
}

/// Says of each change how hosts learn of it, and which these are. `old` and `new` have volumes and tenants at the same
/// places.
pub(crate) fn complete(
    mut changes: Vec<Change>,
    (old, new): (&Config, &Config),
    growth: &[Growth],
    all: &[Host],
) -> Changes {
    secrets(&mut changes, (old, new));
    let grow = add_growth(&mut changes, new, growth);
    let left_out = changes.len().saturating_sub(CHANGES) as u64;
    changes.truncate(CHANGES);
    for (place, change) in changes.iter_mut().enumerate() {
        told(change, grow.contains(&place)).clone_into(&mut change.told);
    }
    let places = Found::of(&changes, new);
    for host in all {
        for place in places.by(host) {
            let change = &mut changes[place];
            // NBD has no such notices.
            if host.is_nbd && NOTICES.contains(&change.told.as_str()) {
                continue;
            }
            if change.hosts.len() < HOSTS {
                change.hosts.push(host.words.clone());
            } else {
                change.hosts_left_out += 1;
            }
        }
    }
    Changes { shown: changes, left_out }
}

/// Notes the volumes that grow, whatever it is that has made them grow. Returns the places of these changes.
fn add_growth(changes: &mut Vec<Change>, new: &Config, growth: &[Growth]) -> BTreeSet<usize> {
    let here = changes.iter().enumerate().filter(|(_, one)| one.kind == "volume");
    let known: BTreeMap<String, usize> =
        here.map(|(place, one)| (one.name.clone(), place)).collect();
    let mut places = BTreeSet::new();
    for &Growth { volume, from, to } in growth {
        let name = &new.volumes[volume].name;
        let place = known.get(name).copied().unwrap_or_else(|| {
            let (change, kind, name) = ("changed".to_owned(), "volume".to_owned(), name.clone());
            changes.push(Change { change, kind, name, ..Change::default() });
            changes.len() - 1
        });
        places.insert(place);
        let keys = &mut changes[place].keys;
        // A store, or the file itself, may have grown.
        if !keys.iter().any(|one| SIZES.contains(&one.key.as_str()) && one.to.is_some()) {
            let [from, to] = [from, to].map(|size| Some(ByteCount(size).to_string()));
            keys.push(KeyChange { key: "capacity".to_owned(), from, to });
        }
    }
    places
}

/// Which of some changes concern a host.
struct Found {
    /// By what they concern: the index of a volume or a tenant, or the name of what a host is connected to.
    volumes: BTreeMap<usize, usize>,
    tenants: BTreeMap<usize, usize>,
    targets: BTreeMap<String, usize>,
    exports: BTreeMap<String, usize>,
}

impl Found {
    fn of(changes: &[Change], new: &Config) -> Self {
        let of = |kinds: &[&str]| -> BTreeMap<String, usize> {
            let here = changes.iter().enumerate();
            let here = here.filter(|(_, one)| kinds.contains(&one.kind.as_str()));
            here.map(|(place, one)| (one.name.clone(), place)).collect()
        };
        let (volumes, tenants) = (of(&["volume"]), of(&["tenant"]));
        let names = new.volumes.iter().map(|one| one.name.as_str()).enumerate();
        let volumes = names.filter_map(|(index, name)| Some((index, *volumes.get(name)?)));
        let names = new.tenants.iter().map(|one| one.name.as_str()).enumerate();
        let tenants = names.filter_map(|(index, name)| Some((index, *tenants.get(name)?)));
        Self {
            volumes: volumes.collect(),
            tenants: tenants.collect(),
            targets: of(&["target", "subsystem"]),
            exports: of(&["export"]),
        }
    }

    /// The places of those that concern a host.
    fn by(&self, host: &Host) -> BTreeSet<usize> {
        let volumes = host.volumes.iter().filter_map(|volume| self.volumes.get(volume));
        let tenants = host.tenants.iter().filter_map(|tenant| self.tenants.get(tenant));
        let named = if host.is_nbd { &self.exports } else { &self.targets };
        volumes.chain(tenants).chain(named.get(&host.place)).copied().collect()
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

/// How hosts learn of a change; `grows`: of a volume that grows.
fn told(change: &Change, grows: bool) -> &'static str {
    let has = |keys: &[&str]| {
        change.keys.iter().any(|one| keys.contains(&one.key.split('.').next().unwrap_or_default()))
    };
    match (change.kind.as_str(), change.change.as_str()) {
        ("volume", "removed") => "the unit is not there any more, NBD clients are disconnected",
        ("volume", "changed") if grows => CAPACITY,
        ("target" | "subsystem", "removed") => "its hosts are asked to leave",
        ("target", "changed") if has(&["luns"]) => LUNS,
        ("subsystem", "changed") => "an event of its controllers",
        ("volume", "changed") if has(&["initiators"]) => LUNS,
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
/// Additional sense codes, and the corresponding events of NVMe controllers.
const CAPACITY: &str = "CAPACITY DATA HAS CHANGED";
const LUNS: &str = "REPORTED LUNS DATA HAS CHANGED";
const NOTICES: [&str; 2] = [CAPACITY, LUNS];

/// Keys that say how large a volume is.
const SIZES: [&str; 3] = ["size", "memory", "null"];

/// Changes in an answer, and in the log.
const CHANGES: usize = 1_000;

/// Hosts in a line about a change.
const HOSTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Account, MemoryStore, Secret, Volume, Where};

    fn account(name: &str, secret: &str) -> Account {
        let secret = Secret::new(secret.as_bytes().to_vec()).unwrap();
        Account { name: name.to_owned(), secret }
    }

    /// Each account has one line that lists all that changes of it, a secret without its value, whatever changes of others.
    #[test]
    fn a_changed_secret_is_on_the_line_of_its_account() {
        let with = |accounts| Config { accounts, ..crate::testing::config(Vec::new()) };
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
        let changes = vec![
            change("removed", "a", vec![key("secret", Some("…"), None)]),
            change("changed", "b", moved),
            change("added", "d", vec![key("secret", None, Some("…"))]),
        ];
        let told = complete(changes, (&old, &new), &[], &[]).shown;
        let lines: Vec<_> = told.iter().map(ToString::to_string).collect();
        let expected = [
            "- account a: secret …; at the next login",
            "~ account b: secret_file none → b.key, secret changes; at the next login",
            "+ account d: secret …; at the next login",
            "~ account c: secret changes; at the next login",
        ];
        assert_eq!(lines, expected);
        assert_eq!(complete(Vec::new(), (&new, &new), &[], &[]).shown, []);
    }

    fn change(kind: &str, name: &str, key: &str) -> Change {
        let key = KeyChange { key: key.to_owned(), from: None, to: Some("x".to_owned()) };
        let (change, kind, name) = ("changed".to_owned(), kind.to_owned(), name.to_owned());
        Change { change, kind, name, keys: vec![key], ..Change::default() }
    }

    /// A configuration with this number of volumes, `v0` and on.
    fn config(volumes: usize) -> Config {
        let store = MemoryStore { name: String::new(), size: 512, keeps: true };
        let mut config = crate::testing::config(vec![Where::Memory(store)]);
        let volume = config.volumes.remove(0);
        let named = |index| Volume { name: format!("v{index}"), ..volume.clone() };
        config.volumes = (0..volumes).map(named).collect();
        config
    }

    fn host(words: &str, place: &str, volumes: &[usize]) -> Host {
        let is_nbd = words.starts_with("nbd");
        let (words, place) = (words.to_owned(), place.to_owned());
        Host { words, is_nbd, place, volumes: volumes.to_vec(), tenants: vec![0, 0] }
    }

    fn lines(
        changes: Vec<Change>,
        config: &Config,
        growth: &[Growth],
        all: &[Host],
    ) -> Vec<String> {
        complete(changes, (config, config), growth, all)
            .shown
            .iter()
            .map(Change::to_string)
            .collect()
    }

    /// Whether hosts learn of a new capacity is said by the capacity, not by keys: it follows from the key of the volume, of
    /// its store, or from no key at all. NBD clients do not learn of it.
    #[test]
    fn growth_is_told_by_the_capacity() {
        let config = config(5);
        let all = [host("one", "t", &[0, 1, 2, 3, 3, 4]), host("nbd", "e", &[3])];
        let changes = vec![
            change("volume", "v0", "size"),
            change("volume", "v1", "memory"),
            change("volume", "v2", "cap_iops"),
            change("volume", "v4", "size"),
        ];
        let grow = |volume| Growth { volume, from: 1 << 20, to: 2 << 20 };
        let growth = [1, 2, 3, 4].map(grow);
        assert_eq!(
            lines(changes, &config, &growth, &all),
            [
                "~ volume v0: size none → x; not visible to hosts; for one",
                "~ volume v1: memory none → x; CAPACITY DATA HAS CHANGED; for one",
                "~ volume v2: cap_iops none → x, capacity 1 MiB → 2 MiB; CAPACITY DATA HAS CHANGED; for one",
                "~ volume v4: size none → x; CAPACITY DATA HAS CHANGED; for one",
                "~ volume v3: capacity 1 MiB → 2 MiB; CAPACITY DATA HAS CHANGED; for one",
            ]
        );
    }

    /// A host is in the lines about what it finds, once; an export is not a target of the same name.
    #[test]
    fn a_host_is_in_its_lines() {
        let all = [host("one", "t", &[0, 0]), host("nbd", "t", &[1])];
        let changes = vec![
            change("volume", "v0", "cap_iops"),
            change("volume", "v1", "cap_iops"),
            change("tenant", "t", "share"),
            change("target", "t", "luns"),
            change("export", "t", "volume"),
        ];
        assert_eq!(
            lines(changes, &config(2), &[], &all),
            [
                "~ volume v0: cap_iops none → x; not visible to hosts; for one",
                "~ volume v1: cap_iops none → x; not visible to hosts; for nbd",
                "~ tenant t: share none → x; not visible to hosts; for one, nbd",
                "~ target t: luns none → x; REPORTED LUNS DATA HAS CHANGED; for one",
                "~ export t: volume none → x; its clients are disconnected; for nbd",
            ]
        );
    }

    /// The lines are cut, and so are the hosts in one; both say how many are left out.
    #[test]
    fn lines_and_hosts_are_bounded() {
        let config = config(CHANGES + 7);
        let volumes: Vec<usize> = (0..config.volumes.len()).collect();
        let all: Vec<Host> =
            (0..HOSTS + 3).map(|at| host(&format!("h{at}"), "t", &volumes)).collect();
        let changes =
            (0..config.volumes.len()).map(|at| change("volume", &format!("v{at}"), "cap_iops"));
        let Changes { shown, left_out } =
            complete(changes.collect(), (&config, &config), &[], &all);
        assert_eq!((shown.len(), left_out), (CHANGES, 7));
        let last = &shown[CHANGES - 1];
        assert_eq!((last.hosts.len(), last.hosts_left_out), (HOSTS, 3));
        assert_eq!(last.hosts[HOSTS - 1], format!("h{}", HOSTS - 1));
    }
}
