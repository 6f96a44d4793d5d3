//! Cuts Rust and Markdown into the parts that the tests read.

use std::fs;
use std::path::Path;

/// The texts of a Rust file.
pub(crate) struct Source {
    /// String literals, without their quotes, escapes as they are written.
    pub(crate) strings: Vec<String>,
    /// Comments, line by line, without their slashes.
    pub(crate) comments: Vec<String>,
    /// The rest: a literal is empty there, and a comment is missing.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&fs::read_to_string(path).expect("a source file"))
    }

    /// Cuts a file. Block comments are not used here, and raw strings end at their first `"#` or `"`.
    pub(crate) fn parse(text: &str) -> Self {
        let (mut strings, mut comments, mut code) = (Vec::new(), Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['"', '/', '\'']) {
            let (before, from) = rest.split_at(at);
            code.push_str(before);
            if let Some(comment) = from.strip_prefix("//") {
                let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
                comments.push(line.trim_start_matches(['/', '!']).to_owned());
                rest = after;
            } else if let Some(quoted) = from.strip_prefix('"') {
                let raw = before.ends_with("r#");
                let (string, after) = literal(quoted, raw);
                strings.push(string.to_owned());
                code.push_str("\"\"");
                rest = after;
            } else if let Some(after) = character(from) {
                rest = after;
            } else {
                code.push_str(&from[..1]);
                rest = &from[1..];
            }
        }
        code.push_str(rest);
        Self { strings, comments, code }
    }
}

/// A string up to its end, and what follows.
fn literal(text: &str, raw: bool) -> (&str, &str) {
    if raw {
        return text.split_once("\"#").unwrap_or((text, ""));
    }
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

/// What follows a character literal; nothing if this is a lifetime.
fn character(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('\'')?;
    let mut chars = inner.char_indices();
    let (_, first) = chars.next()?;
    let end = if first == '\\' { inner[2..].find('\'')? + 2 } else { chars.next()?.0 };
    inner[end..].strip_prefix('\'')
}

/// A string literal as it is printed: lines that are continued are one.
pub(crate) fn joined(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let mut text = parts.next().unwrap_or_default().to_owned();
    text.extend(parts.map(str::trim_start));
    text.replace("\\\"", "\"")
}

/// A text in which a comment that goes over several lines is one line.
pub(crate) fn unwrapped(text: &str) -> String {
    let mut one = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.trim_start();
        one.push_str(
            line.trim_start_matches("//!").trim_start_matches("///").trim_start_matches("//"),
        );
    }
    one
}

/// What stands between backticks, outside of fenced blocks.
pub(crate) fn inline_code(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(|text| text.split('`').skip(1).step_by(2))
}

/// The words of fenced blocks that name a file of the repository's folders.
pub(crate) fn commands(text: &str) -> impl Iterator<Item = &str> {
    const FOLDERS: [&str; 5] = ["bench/", "conformance/", "crates/", "docs/", "plans/"];
    let fenced = text.split("```").skip(1).step_by(2).flat_map(str::split_whitespace);
    fenced.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
}

/// `a/{b,c}.rs` stands for `a/b.rs` and `a/c.rs`.
pub(crate) fn alternatives(token: &str) -> Vec<String> {
    let Some((start, rest)) = token.split_once('{') else { return vec![token.to_owned()] };
    let Some((inner, end)) = rest.split_once('}') else { return vec![token.to_owned()] };
    inner.split(',').map(|part| format!("{start}{}{end}", part.trim())).collect()
}

/// Literals, comments, characters and lifetimes are told apart.
#[test]
fn a_source_is_cut() {
    let text = "fn f<'a>(x: &'a str) { // one \"two\"\n  g(\"three // \\\" four\", '\"', r#\"fi\"ve\"#); }\n//! six\n";
    let source = Source::parse(text);
    assert_eq!(source.strings, ["three // \\\" four", "fi\"ve"]);
    assert_eq!(source.comments, [" one \"two\"", " six"]);
    assert_eq!(source.code, "fn f<'a>(x: &'a str) {   g(\"\", , r#\"\"); }\n");
    assert_eq!(joined("a \\\n    b"), "a b");
}
