//! Words that do not come back: paraphrases, and names that only Weir used.

use crate::text::Source;
use crate::{files, root};
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

/// The texts of a file that are read: all of a document; the strings and comments of a source.
fn texts(path: &str) -> Vec<String> {
    let file = root().join(path);
    if crate::has_extension(path, "md") {
        // The changelog has the table of old words, the glossary and decisions explain them.
        let exempt = path == "CHANGELOG.md";
        return if exempt { Vec::new() } else { vec![fs::read_to_string(file).unwrap()] };
    }
    let Source { strings, comments, .. } = Source::read(&file);
    [strings, comments].concat()
}

/// The banned words in a text, each as often as it stands there alone.
fn banned(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    let words = PARAPHRASES.into_iter().chain(PRIVATE).chain(KEYS);
    words.flat_map(|word| std::iter::repeat_n(word, occurrences(&text, word))).collect()
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
    let mut found: Vec<String> = Vec::new();
    for path in files() {
        let own = path.starts_with("crates/weir/tests/tidy/");
        let read = crate::has_extension(&path, "md")
            || (path.starts_with("crates/") && crate::has_extension(&path, "rs"));
        if read && !own {
            found.extend(
                texts(&path)
                    .iter()
                    .flat_map(|text| banned(text))
                    .map(|word| format!("{path}: {word}")),
            );
        }
    }
    assert!(
        found.is_empty(),
        "banned words came back; write the field's term (docs/glossary.md): {found:#?}"
    );
}

/// A word is found where it stands alone, whatever its case, and not inside another.
#[test]
fn words_are_whole() {
    assert_eq!(banned("Nobody; nobodys, a savings_file, the savings"), ["nobody", "savings"]);
    assert_eq!(banned("overdue_most and overdue_mostly"), ["overdue_most"]);
}
