//! The file `tokens_file` of `[http]`: who may do what over HTTP.
//!
//! ```text
//! # NAME ROLE PROOF
//! prometheus read    sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! alice      admin   certificate:alice.ops.example
//! ```

use super::guard;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::source::{Source, reason};
use crate::config::tree::{Context, Noted, Table};
use crate::config::units::shorten;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use weir_serve::config::http::{Proof, Role, TokenHash, User};

/// Reads the file that the table names; without one there are no users.
pub(super) fn read(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
) -> Result<Vec<User>, Noted> {
    let file = table.text(context, "tokens_file");
    let Some(file) = table.optional("tokens_file", file)? else { return Ok(Vec::new()) };
    let (path, span) = (source.resolve(&file), table.value_span("tokens_file").ok_or(Noted)?);
    let mut fail = |code, message: String, help: String| {
        context.report(Diagnostic::new(code, message).at(span.clone(), "this file").help(help));
        Noted
    };
    let text = text(&path).map_err(|error| {
        let message = format!("cannot read `{}`: {}", path.display(), reason(&error));
        let help = "`weir api token NAME --role ROLE --file FILE` makes it".to_owned();
        fail(Code::Unreadable, message, help)
    })?;
    let users = parse(&text).map_err(|(line, problem)| {
        let message = format!("line {line} of `{}`: {problem}", path.display());
        fail(Code::BadValue, message, FORM.to_owned())
    })?;
    guard::refuse_exposed(context, &path, span, "hashes of tokens are in this file");
    Ok(users)
}

/// The text of a file, which must be small.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    Ok(text)
}

/// The users of a file; an error with the number of its line.
pub(crate) fn parse(text: &str) -> Result<Vec<User>, (usize, String)> {
    let mut users: Vec<User> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<_> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let user = user(&words).map_err(|problem| (number, problem))?;
        if users.iter().any(|known| known.name == user.name) {
            return Err((number, format!("`{}` is named twice", user.name)));
        }
        users.push(user);
    }
    Ok(users)
}

fn user(words: &[&str]) -> Result<User, String> {
    let &[name, role, proof] = words else {
        return Err(format!("it has {} words", words.len()));
    };
    if !is_name(name) {
        return Err(format!("`{}` cannot be a name", shorten(name).escape_debug()));
    }
    let role = Role::named(role).ok_or_else(|| format!("`{}` is no role", shorten(role)))?;
    let token = proof.strip_prefix("sha256:").and_then(TokenHash::parse).map(Proof::Token);
    let certificate = proof.strip_prefix("certificate:").filter(|name| is_name(name));
    let proof = token.or_else(|| certificate.map(|name| Proof::Certificate(name.to_owned())));
    // The text may be a token that was written here by mistake.
    let proof = proof.ok_or("the third word is neither a hash nor the name of a certificate")?;
    Ok(User { name: name.to_owned(), role, proof })
}

/// Whether this can name a user or a certificate.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(allowed)
}

/// What a line looks like.
const FORM: &str = "write `NAME ROLE sha256:HASH`, which `weir api token` does, or `NAME ROLE certificate:DNS-NAME`; \
                    roles are read, operate and admin";

/// The longest name in bytes.
const NAME_MAX: usize = 253;

/// The largest file in bytes.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines are users; comments and empty lines are none; what is wrong is said with its line, and without its proof.
    #[test]
    fn lines_are_users() {
        let hash = TokenHash::of("x");
        let text =
            format!("# who\n\nscrape read sha256:{hash}\n  alice\tadmin certificate:a.example\n");
        let users = parse(&text).unwrap();
        let [scrape, alice] = &users[..] else { panic!("{users:?}") };
        assert_eq!(
            (&*scrape.name, scrape.role, &scrape.proof),
            ("scrape", Role::Read, &Proof::Token(hash))
        );
        assert_eq!(
            (alice.role, &alice.proof),
            (Role::Admin, &Proof::Certificate("a.example".to_owned()))
        );
        let twice = format!("a read sha256:{hash}\na admin sha256:{hash}");
        for (bad, line, problem) in [
            ("a read", 1, "2 words"),
            ("\na root sha256:00", 2, "no role"),
            ("a read sha256:00", 1, "third word"),
            ("a read weir_planted", 1, "third word"),
            ("a read certificate:", 1, "third word"),
            ("a/b read certificate:c", 1, "cannot be a name"),
            (&twice, 2, "twice"),
        ] {
            let (at, said) = parse(bad).unwrap_err();
            assert!(
                at == line && said.contains(problem) && !said.contains("planted"),
                "{bad}: {said}"
            );
        }
    }
}
