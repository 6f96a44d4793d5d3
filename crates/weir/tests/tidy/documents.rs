//! What documents say of the repository is so: paths, sections, messages, output.

use crate::text::{self, Source};
use crate::{files, root};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A Markdown file.
struct Document {
    /// From the root of the repository.
    path: String,
    text: String,
}

fn documents() -> Vec<Document> {
    let markdown = files().into_iter().filter(|path| crate::has_extension(path, "md"));
    let document = |path: String| {
        let text = fs::read_to_string(root().join(&path)).expect("a text");
        Document { path, text }
    };
    markdown.map(document).collect()
}

/// Every file that a Markdown link names exists.
#[test]
fn links_lead_to_files() {
    let mut links = 0;
    for Document { path, text } in documents() {
        let folder = root().join(&path).parent().expect("in a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().expect("a part in front");
            if target.is_empty() || target.starts_with("http") {
                continue;
            }
            links += 1;
            assert!(folder.join(target).exists(), "{path} links to {target}");
        }
    }
    assert!(links > 100, "the documents have links, found {links}");
}

/// Every path that a document names in backticks, or in a command, exists: from the root, from `crates/`, or
/// from the folder that the sentence is about.
#[test]
fn named_paths_exist() {
    let all = Tree::new(files());
    let (mut named, mut missing) = (0, Vec::new());
    for Document { path, text } in documents() {
        for token in text::inline_code(&text).chain(text::commands(&text)) {
            for name in text::alternatives(token) {
                if is_path(&name) {
                    named += 1;
                    if !all.has(&name) {
                        missing.push(format!("{path} names `{name}`"));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "not in the repository:\n{}", missing.join("\n"));
    assert!(named > 100, "the documents name paths, found {named}");
}

/// The reference of metrics is made from the table of families. `WEIR_RENEW=1` renews it.
#[test]
fn the_reference_of_metrics_is_current() {
    let path = root().join("docs/reference/metrics.md");
    let wanted = weir_serve::operator::families_page();
    if std::env::var_os("WEIR_RENEW").is_some() {
        fs::write(&path, &wanted).expect("the page can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/reference/metrics.md differs from the table in families.rs");
}

/// The `OpenAPI` document is made from the routes and the types of their answers. `WEIR_RENEW=1` renews it.
#[test]
fn the_openapi_document_is_current() {
    let path = root().join("docs/reference/openapi.json");
    let wanted = weir_serve::operator::openapi_document();
    if std::env::var_os("WEIR_RENEW").is_some() {
        fs::write(&path, &wanted).expect("the document can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/reference/openapi.json differs from the routes in routes.rs");
}

/// Whether a word is meant as a path of this repository. A rule such as `path/no_path` is none, nor is a file of
/// an operator.
fn is_path(word: &str) -> bool {
    const ROOTS: [&str; 8] =
        [".ci/", "bench/", "conformance/", "crates/", "docs/", "fuzz/", "plans/", "tools/"];
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
    if !word.chars().all(plain) || word.starts_with('/') || word.starts_with("..") {
        return false;
    }
    let extension = Path::new(word).extension().and_then(|extension| extension.to_str());
    let source = matches!(extension, Some("rs" | "md" | "py" | "sh"));
    source || ROOTS.iter().any(|root| word.starts_with(root)) || word.ends_with('/')
}

/// The files of the repository, and their folders.
struct Tree {
    /// Each with a `/` in front; folders with one behind, too.
    names: BTreeSet<String>,
}

impl Tree {
    fn new(files: Vec<String>) -> Self {
        let mut names = BTreeSet::new();
        for file in files {
            let mut folder = file.as_str();
            while let Some((above, _)) = folder.rsplit_once('/') {
                names.insert(format!("/{above}/"));
                folder = above;
            }
            names.insert(format!("/{file}"));
        }
        Self { names }
    }

    /// Whether a name ends so, from the root or any folder on.
    fn has(&self, name: &str) -> bool {
        let (start, end) = name.split_once('*').unwrap_or((name, ""));
        let start = format!("/{start}");
        if name.contains('*') {
            return self.names.iter().any(|it| it.contains(&start) && it.ends_with(end));
        }
        let folder = format!("{start}/");
        self.names.iter().any(|it| it.ends_with(&start) || it.ends_with(&folder))
    }
}

/// Every citation of a page of `docs/` in code and scripts leads to a page, and to a section of it.
#[test]
fn citations_lead_to_sections() {
    let (mut cited, mut dead) = (0, Vec::new());
    for path in files() {
        let code = matches!(
            Path::new(&path).extension().and_then(|extension| extension.to_str()),
            Some("rs" | "sh" | "py" | "toml")
        );
        if !code || path.starts_with("crates/weir/tests/tidy/") {
            continue;
        }
        let text = fs::read_to_string(root().join(&path)).unwrap();
        if text.contains("spec/") && !path.ends_with("laws/records.rs") {
            dead.push(format!("{path} cites a specification that is not in the repository"));
        }
        let text = text::unwrapped(&text);
        for (at, _) in text.match_indices("docs/") {
            let rest = &text[at..];
            let Some(end) = rest.find(".md").map(|end| end + ".md".len()) else { continue };
            let page = &rest[..end];
            if page.contains(|c: char| c.is_whitespace() || c == '*' || c == '`') {
                continue;
            }
            cited += 1;
            let file = root().join(page);
            if !file.exists() {
                dead.push(format!("{path} cites {page}"));
                continue;
            }
            let after = rest[end..].trim_start_matches('`');
            let Some(section) = after.strip_prefix(", section") else { continue };
            let number: String = section
                .trim_start_matches('s')
                .trim_start()
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            let number = number.trim_end_matches('.');
            let found = fs::read_to_string(&file).unwrap().lines().any(|line| {
                let title = line.trim_start_matches('#');
                title != line
                    && title.trim_start().split(' ').next().unwrap().trim_end_matches('.') == number
            });
            if !found {
                dead.push(format!("{path} cites section {number} of {page}"));
            }
        }
    }
    assert!(dead.is_empty(), "dead ends:\n{}", dead.join("\n"));
    assert!(cited > 40, "the code cites documents, found {cited}");
}

/// Every message that the operator guide explains is one that the program can print.
#[test]
fn explained_messages_are_printed() {
    let mut said = String::new();
    for path in files() {
        let printed =
            ["crates/serve/src/", "crates/weir/src/", "crates/flow/src/", "crates/wire/src/"];
        if crate::has_extension(&path, "rs")
            && printed.iter().any(|folder| path.starts_with(folder))
        {
            let source = Source::read(&root().join(&path));
            said.extend(
                source.strings.iter().flat_map(|text| [text::joined(text), "\n".to_owned()]),
            );
        }
    }
    let (mut explained, mut unheard) = (0, Vec::new());
    for Document { path, text } in documents() {
        if !path.starts_with("docs/operate/messages/") {
            continue;
        }
        for heading in text.lines().filter(|line| line.starts_with("## ")) {
            for quoted in heading.split('"').skip(1).step_by(2) {
                for part in quoted.split("...").map(str::trim).filter(|part| !part.is_empty()) {
                    explained += 1;
                    if !said.contains(part) {
                        unheard.push(format!("{path} explains `{part}`"));
                    }
                }
            }
        }
    }
    assert!(unheard.is_empty(), "nothing prints it:\n{}", unheard.join("\n"));
    assert!(explained > 30, "the guide explains messages, found {explained}");
}

/// The explanation in the README is what the command prints today.
#[test]
fn the_readme_shows_real_output() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let command = "$ cargo run --release -- explain ";
    let block = readme.split(command).nth(1).expect("the README explains a plan");
    let (arguments, shown) = block.split_once('\n').unwrap();
    let shown = shown.split("```").next().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("explain")
        .args(arguments.split(' '))
        .current_dir(root())
        .output()
        .expect("the program runs");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in shown.lines() {
        assert!(printed.lines().any(|other| other == line), "`{line}` is not in:\n{printed}");
    }
}

/// A first `weir serve` prints what the README shows, but for the port and the home.
#[test]
fn the_readme_shows_a_real_start() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let block = readme.split("$ cargo run --release -- serve\n").nth(1);
    let shown = block.and_then(|block| block.split("```").next()).expect("the README serves");
    let home = env!("CARGO_TARGET_TMPDIR").to_owned() + "/readme";
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).unwrap();
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env_clear()
        .env("HOME", &home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let output = BufReader::new(gateway.stdout.take().unwrap());
    let printed: Vec<String> =
        output.lines().take(shown.lines().count()).map(Result::unwrap).collect();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let port = printed[0].rsplit(':').next().unwrap();
    let printed = printed.join("\n").replace(&format!(":{port}"), ":3260");
    assert_eq!(printed.replace(&home, "/home/you"), shown.trim_end());
}

/// The page of all keys is what the program prints today.
#[test]
fn the_reference_of_keys_is_of_today() {
    let page = "docs/reference/configuration.md";
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["config", "reference"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let committed = fs::read_to_string(root().join(page)).unwrap_or_default();
    let renew = format!("{page} is stale; renew it: cargo run -- config reference > {page}");
    assert!(printed == committed, "{renew}");
}

/// The README can be read in five minutes, on any screen.
#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 110);
    for line in readme.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
}

/// Every page is in the book's table of contents.
#[test]
fn the_book_has_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for Document { path, .. } in documents() {
        let Some(page) = path.strip_prefix("docs/") else { continue };
        assert!(
            page == "SUMMARY.md" || summary.contains(&format!("]({page})")),
            "{page} is not in the book"
        );
    }
}
