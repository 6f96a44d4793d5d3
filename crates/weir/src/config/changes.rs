//! How the keys of a configuration differ from those of the one before.

use super::tree::Effective;
use super::value::Value;
use super::{Source, values};
use std::collections::BTreeMap;
use weir_serve::config::{Change, KeyChange, Places};

/// The values of a table that has a name, or is there once.
type Tables<'a> = BTreeMap<(&'static str, String), Vec<&'a Effective>>;

/// How `new`, the values of a configuration, differ from those in force.
pub(crate) fn changes(in_force: &Source, new: &[Effective]) -> Vec<Change> {
    let old = values(in_force);
    let (old, new) = (tables(&old), tables(new));
    let mut order: Vec<_> = old.keys().chain(new.keys()).collect();
    order.sort_unstable();
    order.dedup();
    let mut changes = Vec::new();
    for place in order {
        let (before, after) = (old.get(place), new.get(place));
        let (kind, name) = (place.0, &place.1);
        let mut keys = Vec::new();
        let values = before.into_iter().chain(after).flatten();
        let mut all: Vec<_> = values.map(|value| value.key).collect();
        all.sort_unstable();
        all.dedup();
        for key in all.into_iter().filter(|key| *key != "name") {
            let of = |table: Option<&Vec<&Effective>>, written: bool| {
                let value = table?.iter().find(|value| value.key == key)?;
                (!written || value.origin.is_some()).then(|| value.value.clone())
            };
            // Of a table that comes or goes, what is written says it all.
            let whole = before.is_none() || after.is_none();
            differ(key, of(before, whole), of(after, whole), &mut keys);
        }
        if kind == "nbd" {
            exports(&mut keys, &mut changes);
        }
        let change = match (before.is_some(), after.is_some()) {
            (false, _) => "added",
            (_, false) => "removed",
            _ if keys.is_empty() => continue,
            _ => "changed",
        };
        // A table that is there once is never added: its keys have defaults.
        let (change, kind, name) = (change.to_owned(), kind.to_owned(), name.clone());
        changes.push(Change { change, kind, name, keys, ..Change::default() });
    }
    changes
}

/// Notes how a key differs; of an inline table, how each entry does.
fn differ(key: &str, from: Option<Value>, to: Option<Value>, all: &mut Vec<KeyChange>) {
    if from == to {
        return;
    }
    let is_table = |value: &Option<Value>| matches!(value, Some(Value::Pairs(_)));
    if is_table(&from) || is_table(&to) {
        let [from, to] = [from, to].map(|value| match value {
            Some(Value::Pairs(pairs)) => pairs.into_iter().collect(),
            _ => BTreeMap::new(),
        });
        for entry in from.keys().chain(to.keys().filter(|entry| !from.contains_key(*entry))) {
            let (from, to) = (from.get(entry).cloned(), to.get(entry).cloned());
            differ(&format!("{key}.{entry}"), from, to, all);
        }
        return;
    }
    let [from, to] = [from, to].map(|value| value.as_ref().map(shown));
    all.push(KeyChange { key: key.to_owned(), from, to });
}

/// A value as people read it, and not too long.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Text(text) => text.clone(),
        Value::Number(number, Some(scale)) => scale.show(*number),
        _ => value.to_toml(),
    };
    match text.char_indices().nth(LONG) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Makes changes of their own of exports.
fn exports(keys: &mut Vec<KeyChange>, changes: &mut Vec<Change>) {
    keys.retain(|key| {
        let Some(name) = key.key.strip_prefix("exports.") else { return true };
        let change = match (&key.from, &key.to) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        let (change, kind) = (change.to_owned(), "export".to_owned());
        let keys = vec![KeyChange { key: "volume".to_owned(), ..key.clone() }];
        changes.push(Change { change, kind, name: name.to_owned(), keys, ..Change::default() });
        false
    });
}

/// The values by table.
fn tables(values: &[Effective]) -> Tables<'_> {
    let mut named: BTreeMap<(&str, usize), String> = BTreeMap::new();
    for value in values.iter().filter(|value| value.key == "name") {
        if let Value::Text(name) = &value.value {
            named.insert((value.section.name, value.index), name.clone());
        }
    }
    let mut tables = Tables::new();
    for value in values {
        let place = (value.section.name, value.index);
        let name = named.get(&place).cloned().unwrap_or_default();
        tables.entry((place.0, name)).or_default().push(value);
    }
    tables
}

/// Where a configuration names the files of volumes and stores.
pub(crate) fn places(source: &Source, values: &[Effective]) -> Places {
    let mut places = Places::default();
    for ((table, name), values) in tables(values) {
        if !matches!(table, "volume" | "store") {
            continue;
        }
        for value in values {
            if let Some(span) = &value.origin {
                places.note(table, &name, value.key, source.place(span.start));
            }
        }
    }
    places
}

/// The longest value in a line, in characters.
const LONG: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gateway;

    /// The lines about two configurations, the second of which is valid.
    fn lines(old: &str, new: &str) -> Vec<String> {
        let source = |text: &str| Source::new("w.toml", text.to_owned());
        let new = gateway(&source(new)).unwrap();
        changes(&source(old), &new.values).iter().map(ToString::to_string).collect()
    }

    const BASE: &str = "[[volume]]\nname = \"d\"\nfile = \"d\"\nsize = \"1MiB\"\n\
                        [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";

    /// The order of tables and of keys, comments and written defaults are no changes.
    #[test]
    fn what_means_the_same_is_no_change() {
        let (volume, target) = BASE.split_at(BASE.find("[[target]]").unwrap());
        let other = format!("# other\n[stop]\n{target}{volume}block_size = 512\n");
        assert_eq!(lines(BASE, &other), [""; 0]);
    }

    /// A key that is left out goes back to its default; an inline table is compared entry by entry; long values are cut;
    /// what a table that comes has by default is not said.
    #[test]
    fn keys_are_told_from_what_to_what() {
        let limits = "[limits]\nmax_bytes = \"32MiB\"\n";
        assert_eq!(lines(&format!("{limits}{BASE}"), BASE).len(), 1);
        assert!(lines(BASE, &format!("{limits}{BASE}"))[0].ends_with(" → 32MiB"));
        let more = format!("{}alias = \"{}\"\n", BASE.replace("{ 0", "{ 2"), "é".repeat(127));
        let [line] = &lines(BASE, &more)[..] else { panic!() };
        let cut = "é".repeat(LONG);
        let told = format!(": alias none → {cut}…, luns.0 d → none, luns.2 none → d");
        assert!(line.ends_with(&told), "{line}");
        let other = format!("{BASE}[[volume]]\nname = \"e\"\nfile = \"e\"\n");
        assert_eq!(lines(BASE, &other), ["+ volume e: file e"]);
        assert_eq!(lines(&other, BASE), ["- volume e: file e"]);
    }

    /// A secret is in no line.
    #[test]
    fn secrets_are_not_told() {
        let account = |secret: &str| {
            format!("{BASE}accounts = [\"a\"]\n[[account]]\nname = \"a\"\nsecret = \"{secret}\"\n")
        };
        let told = lines(&account("0123456789ab"), &account("ba9876543210"));
        assert_eq!(told, [""; 0]);
        let told = lines(BASE, &account("ba9876543210")).concat();
        assert!(told.contains("+ account a") && !told.contains("ba9876"), "{told}");
    }
}
