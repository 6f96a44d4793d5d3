//! The keys `initiators` of targets and volumes, and `hosts` of subsystems: who sees them.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::check_initiator;
use crate::config::schema::{Default, Key, Kind};
use crate::config::tree::{Context, Read, Table};
use weir_serve::config::Initiators;

/// The key.
pub(super) const fn key(effect: &'static str) -> Key {
    Key {
        name: "initiators",
        kind: Kind::Texts("iSCSI names, NQNs, or beginnings of names and `*`"),
        default: Default::Else("everyone"),
        effect,
    }
}

/// A key whose value is a list of names of hosts.
pub(super) struct List {
    /// The key.
    pub(super) key: &'static str,
    /// What a name is of, and what several are of.
    pub(super) one: &'static str,
    pub(super) several: &'static str,
    /// Refuses an entry, with what is wrong and what to do.
    pub(super) check: fn(&str) -> Result<(), (String, String)>,
}

const INITIATORS: List =
    List { key: "initiators", one: "initiator", several: "initiators", check: check_initiator };

/// Reads the key.
pub(super) fn read(context: &mut Context, table: &Table<'_>) -> Option<Initiators> {
    read_list(context, table, &INITIATORS)
}

/// Reads a list, which must not be empty if it is there.
pub(super) fn read_list(
    context: &mut Context,
    table: &Table<'_>,
    list: &List,
) -> Option<Initiators> {
    let diagnostics = context.diagnostics.len();
    let &List { key, several, .. } = list;
    let Some(names) = entries(context, table, list) else {
        return (!table.has(key)).then(Initiators::default);
    };
    if names.is_empty() {
        let message = format!("an empty list of {several} would let everyone in");
        let span = table.value_span(key);
        let diagnostic =
            Diagnostic::new(Code::BadValue, message).at_some(span.as_ref(), "this list");
        let help = format!("name at least one, or remove `{key}` to let everyone in");
        context.report(diagnostic.help(help));
    }
    let names = names.into_iter().map(|name| name.value);
    (context.diagnostics.len() == diagnostics).then(|| Initiators::new(names))
}

/// Reads a list of initiators, which may be empty.
pub(super) fn names(context: &mut Context, table: &Table<'_>) -> Option<Vec<Read<String>>> {
    entries(context, table, &INITIATORS)
}

fn entries(context: &mut Context, table: &Table<'_>, list: &List) -> Option<Vec<Read<String>>> {
    let &List { key, one, several, check } = list;
    let names = table.texts(context, key)?;
    for name in &names {
        if let Err((message, help)) = check(&name.value) {
            let diagnostic = Diagnostic::new(Code::BadValue, message);
            let label = format!("no {one} is called so");
            context.report(diagnostic.at_some(name.span.as_ref(), label).help(help));
        }
    }
    if names.len() > MAX_ENTRIES {
        let message = format!("there are more than {MAX_ENTRIES} {several}");
        let span = table.value_span(key);
        let diagnostic =
            Diagnostic::new(Code::OutOfRange, message).at_some(span.as_ref(), "this list");
        context.report(diagnostic.help("let an entry that ends in `*` stand for several"));
    }
    Some(names)
}

/// Whether some initiator could be on both lists.
pub(super) fn meet(a: &Initiators, b: &Initiators) -> bool {
    let pair = |a: &str, b: &str| match (a.strip_suffix('*'), b.strip_suffix('*')) {
        (None, None) => a == b,
        (Some(front), None) => b.starts_with(front),
        (None, Some(front)) => a.starts_with(front),
        (Some(a), Some(b)) => a.starts_with(b) || b.starts_with(a),
    };
    let (a, b) = (a.names(), b.names());
    a.is_empty() || b.is_empty() || a.iter().any(|a| b.iter().any(|b| pair(a, b)))
}

/// Most entries of one list.
const MAX_ENTRIES: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lists meet if a name fits both; the empty list fits every name.
    #[test]
    fn lists_meet_in_a_name() {
        let list = |names: &[&str]| Initiators::new(names.iter().map(|&name| name.to_owned()));
        let cases: &[(&[&str], &[&str], bool)] = &[
            (&[], &[], true),
            (&[], &["iqn.a"], true),
            (&["iqn.a"], &["iqn.b", "iqn.a"], true),
            (&["iqn.a"], &["iqn.b", "iqn.ab"], false),
            (&["iqn.a*"], &["iqn.ab"], true),
            (&["iqn.ab*"], &["iqn.a"], false),
            (&["iqn.ab*"], &["iqn.a*"], true),
            (&["iqn.ab*"], &["iqn.ac*"], false),
            (&["*"], &["iqn.ac*"], true),
        ];
        for (a, b, met) in cases {
            assert_eq!(meet(&list(a), &list(b)), *met, "{a:?} {b:?}");
            assert_eq!(meet(&list(b), &list(a)), *met, "{b:?} {a:?}");
        }
    }
}
