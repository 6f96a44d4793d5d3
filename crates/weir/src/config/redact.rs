//! Secrets stay out of what is printed: a diagnostic is shown with its line, and the line may hold one.

use super::suggest::nearest;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text with every secret covered, byte for byte, so that places in it stay the same.
///
/// What the parser finds is covered by its place; what it cannot read, such as a secret whose
/// closing quote is missing, by what stands before it.
pub(crate) fn cover(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in parsed(text).into_iter().chain(written(text)) {
        for byte in bytes[span].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b'*';
        }
    }
    String::from_utf8(bytes).expect("whole characters are covered")
}

/// Whether an account has its secret in the text.
pub(crate) fn has_secret(text: &str) -> bool {
    !in_accounts(text, |key| key == "secret").is_empty()
}

/// All values of accounts but those known to be harmless: a mistyped key still has a secret.
fn parsed(text: &str) -> Vec<Range<usize>> {
    in_accounts(text, |key| !matches!(key, "name" | "secret_file"))
}

/// The values of these keys of accounts.
fn in_accounts(text: &str, wanted: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(text);
    let accounts = match root.get_ref().get("account").map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().map(Spanned::get_ref).collect(),
        Some(other) => vec![other],
        None => Vec::new(),
    };
    let entries = accounts.into_iter().filter_map(DeValue::as_table).flatten();
    let found = entries.filter(|(key, _)| wanted(key.get_ref()));
    found.map(|(_, value)| value.span()).collect()
}

/// Whatever follows the key `secret`, or one like it, up to the end of the line or of a text of
/// several lines.
fn written(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    for (at, _) in text.match_indices('=') {
        let before = text[..at].trim_end_matches([' ', '\t', '"', '\'']);
        let part_of_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let key = before.rsplit(|c| !part_of_key(c)).next().unwrap_or("");
        if nearest(key, ["secret"]).is_none() {
            continue;
        }
        let value = text[at + 1..].trim_start_matches([' ', '\t']);
        let length = match value.get(..3) {
            Some(quote @ ("\"\"\"" | "'''")) => value[3..].find(quote).map(|end| end + 6),
            _ => value.find('\n'),
        };
        let start = text.len() - value.len();
        spans.push(start..start + length.unwrap_or(value.len()));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way to write a secret, right and wrong, is covered; the rest is not.
    #[test]
    fn secrets_are_covered() {
        for text in [
            "[[account]]\nname = \"alice\"\nsecret = \"hunter2 hunter2\"\n",
            "[[account]]\nname = \"alice\"\nsecret = \"hunter2\n",
            "[[account]]\nname = \"alice\"\nsecret = hunter2",
            "[[account]]\nname = \"alice\"\nsecret = \"\"\"\nhunter2\nhunter2\"\"\"\n",
            "[[account]]\nname = \"alice\"\nsecret = '''\nhunter2\nhunter2",
            "[[account]]\nname = \"alice\"\npassword = [\"hunter2\"]\n",
            "[[account]]\nname = \"alice\"\nsecrte=\"hunter2\n",
            "account = [{ name = \"alice\", secret = \"hunter2\" }]\n",
            "account = [{ name = \"alice\", \"secret\" = \"hunter2 }]\n",
            "[account]\nname = \"alice\"\nkey = \"hunter2\"\n",
            "name = \"alice\"\n# secret = \"hunter2\"\n",
        ] {
            let covered = cover(text);
            assert!(!covered.contains("hunter2"), "{covered}");
            assert!(covered.contains("alice"), "{covered}");
            assert_eq!(covered.len(), text.len());
            assert_eq!(covered.lines().count(), text.lines().count());
        }
        let harmless = "[[account]]\nname = \"a\"\nsecret_file = \"a.secret\"\n[x]\ny = \"z\"\n";
        assert_eq!(cover(harmless), harmless);
    }
}
