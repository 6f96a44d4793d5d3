//! Words that do not come back: paraphrases, and names that only Weir used.

use crate::text::Source;
use crate::{files, root};
use std::collections::BTreeMap;
use std::fs;

/// Paraphrases, and what to write instead is the term, the number or the name.
const PARAPHRASES: [&str; 14] = [
    "nobody",
    "somebody",
    "whoever",
    "so many",
    "what waits",
    "who waits",
    "is told",
    "are told",
    "goes on",
    "go on",
    "under way",
    "of its own",
    "a look",
    "makes no sense",
];

/// Words of Weir for which the field has one: the glossary has that.
const PRIVATE: [&str; 16] = [
    "the desk",
    "nearby",
    "is near",
    "was near",
    "which way",
    "way there and back",
    "early acknowledgement",
    "bring home",
    "brought home",
    "at home",
    "savings",
    "reseat",
    "heritage",
    "cache/near",
    "path/none_left",
    "dispatch/turn",
];

/// Keys that were renamed.
const KEYS: [&str; 10] = [
    "overdue_least",
    "overdue_most",
    "probe_every",
    "probe_most",
    "check_every",
    "dead_last",
    "good_probes",
    "connect_within",
    "login_within",
    "retry_at_most",
];

/// The kind of text that a file's words are counted as: what operators read is apart from comments.
fn counted(path: &str) -> Vec<(String, usize)> {
    let file = root().join(path);
    if crate::has_extension(path, "md") {
        // The changelog has the table of old words, the glossary and decisions explain them.
        let exempt = path == "CHANGELOG.md";
        let text = fs::read_to_string(file).unwrap();
        return if exempt { Vec::new() } else { vec![(folder(path, "text"), count(&text))] };
    }
    let source = Source::read(&file);
    let sum = |texts: &[String]| texts.iter().map(|text| count(text)).sum();
    vec![
        (folder(path, "strings"), sum(&source.strings)),
        (folder(path, "comments"), sum(&source.comments)),
    ]
}

/// A crate, or the first two folders of a document.
fn folder(path: &str, kind: &str) -> String {
    let depth = if path.starts_with("crates/") { 3 } else { 2 };
    let folders: Vec<&str> = path.split('/').collect();
    let folders = &folders[..depth.min(folders.len() - 1)];
    format!("{} {kind}", if folders.is_empty() { ".".to_owned() } else { folders.join("/") })
}

/// How often banned words stand in a text, as whole words.
fn count(text: &str) -> usize {
    let text = text.to_lowercase();
    let words = PARAPHRASES.iter().chain(&PRIVATE).chain(&KEYS);
    words.map(|word| occurrences(&text, word)).sum()
}

fn occurrences(text: &str, word: &str) -> usize {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |&(at, found): &(usize, &str)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    };
    text.match_indices(word).filter(whole).count()
}

/// No document, comment or string has a banned word.
#[test]
fn words_do_not_come_back() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in files() {
        let own = path.starts_with("crates/weir/tests/tidy/");
        let read = crate::has_extension(&path, "md")
            || (path.starts_with("crates/") && crate::has_extension(&path, "rs"));
        if read && !own {
            for (folder, count) in counted(&path) {
                *found.entry(folder).or_default() += count;
            }
        }
    }
    found.retain(|_, count| *count > 0);
    assert!(
        found.is_empty(),
        "banned words came back; write the field's term (docs/glossary.md): {found:#?}"
    );
}

/// A word is found where it stands alone, whatever its case, and not inside another.
#[test]
fn words_are_whole() {
    assert_eq!(count("Nobody; nobodys, a savings_file, the savings"), 2);
    assert_eq!(count("overdue_most and overdue_mostly"), 1);
}
