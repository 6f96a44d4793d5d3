//! Rules of STYLE.md and ARCHITECTURE.md that a program can check.

mod documents;
mod floors;
mod text;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// Lines that a file may have.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("we are in it")
}

/// Every file of the repository, as a path from its root; what a build makes is none.
fn files() -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository").map(Result::unwrap)
        {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                let made = ["target", ".git", "__pycache__"].iter().any(|made| name == *made);
                if !made {
                    folders.push(path);
                }
            } else {
                let path = path.strip_prefix(root()).expect("below the root");
                files.push(path.to_str().expect("names are UTF-8").to_owned());
            }
        }
    }
    files.sort();
    files
}

/// Whether a path or a file's name ends in `.` and this extension.
pub(crate) fn has_extension(path: impl AsRef<Path>, extension: &str) -> bool {
    path.as_ref().extension().is_some_and(|found| found == extension)
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository").map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// No file is longer than a reader's patience.
#[test]
fn files_are_short() {
    let mut files = rust_files(&root().join("crates"));
    files.extend(rust_files(&root().join("tools")));
    assert!(files.len() > 100, "the walk must find the sources");
    for file in files {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines and wants to be two", file.display());
    }
}

/// The data path cannot reach a clock, a thread or a socket: it is built without the standard
/// library, and its manifest names nothing that would bring one.
#[test]
fn the_core_stands_alone() {
    let text = fs::read_to_string(root().join("crates/flow/src/lib.rs")).unwrap();
    assert!(text.contains("#![no_std]"));
    let manifest = fs::read_to_string(root().join("crates/flow/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
    let dependencies = dependencies.split("[dev-dependencies]").next().unwrap().trim();
    let known = "crc.workspace = true\nslotmap.workspace = true";
    assert_eq!(dependencies, known, "another dependency is a decision");
}

/// Unsafe code is in the files that STYLE.md lists, and in no other.
#[test]
fn unsafe_code_is_where_the_style_says() {
    let style = fs::read_to_string(root().join("STYLE.md")).unwrap();
    let list = style.split("**Unsafe code**").nth(1).unwrap().split("\n\n").next().unwrap();
    let quoted = list.split('`').skip(1).step_by(2);
    let mut listed: Vec<_> =
        quoted.filter(|name| crate::has_extension(name, "rs")).map(str::to_owned).collect();
    let keyword = ["unsafe", " "].concat();
    let uses = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(&keyword))
    };
    let sources = ["crates", "tools"].map(|folder| rust_files(&root().join(folder)));
    let found = sources.into_iter().flatten().filter(uses);
    let relative = |file: PathBuf| file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let mut found: Vec<_> = found.map(relative).collect();
    listed.sort();
    found.sort();
    assert_eq!(found, listed, "left: the files that use it, right: the list in STYLE.md");
}
