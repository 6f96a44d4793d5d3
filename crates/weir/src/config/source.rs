//! A configuration file's text, and the places in it.

use super::diagnostic::{Code, Diagnostic};
use std::io::Read;
use std::path::{Path, PathBuf};
use weir_flow::recording::MAGIC;

/// Largest file that is read, in bytes. A larger one is refused: it is no configuration.
const MAX_BYTES: u64 = 1 << 20;

/// Shown in place of a file's name for what is in no file.
const BUILT_IN: &str = "(built in)";

/// A file that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The file's name as it was given.
    pub(crate) path: PathBuf,
    /// Its text.
    pub(crate) text: String,
    /// The folder that paths in it are relative to.
    folder: PathBuf,
    /// A client has sent the text: `path` is a name on its side, and no file that this process has read.
    is_sent: bool,
    /// Where each line begins, the first one too.
    starts: Vec<usize>,
}

impl Source {
    /// A file with this text.
    pub(crate) fn new(path: impl Into<PathBuf>, text: String) -> Self {
        let after = text.match_indices('\n').map(|(newline, _)| newline + 1);
        let starts = std::iter::once(0).chain(after).collect();
        let path = path.into();
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Self { path, text, folder, is_sent: false, starts }
    }

    /// A text that a client has sent in the place of this file: paths in it are relative to the folder of this.
    pub(crate) fn in_place_of(&self, name: &str, text: String) -> Self {
        Self { folder: self.folder.clone(), is_sent: true, ..Self::new(name, text) }
    }

    /// Reads a file. The diagnostic says why it could not be.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<Diagnostic>> {
        if path.is_dir() {
            let why = format!("cannot read `{}`: it is a directory", path.display());
            return Err(diagnostic(why, "name the file in it".to_owned()));
        }
        let file = std::fs::File::open(path).map_err(|error| cannot(path, &error))?;
        Self::read_from(path, file)
    }

    /// Reads what is open already, under this name.
    pub(crate) fn read_from(path: &Path, input: impl Read) -> Result<Self, Box<Diagnostic>> {
        let name = path.display();
        let mut bytes = Vec::new();
        let read = input.take(MAX_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| cannot(path, &error))?;
        if let Some((what, help)) = known_format(&bytes) {
            let why = format!("`{name}` is {what}, not a configuration or a plan");
            return Err(diagnostic(why, help.replace("FILE", &name.to_string())));
        }
        if bytes.len() as u64 > MAX_BYTES {
            let why = format!("`{name}` is larger than {} MiB", MAX_BYTES >> 20);
            return Err(diagnostic(why, "name a configuration; this is something else".to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
            let (line, column) = Self::new(path, before).position(good);
            let place = format!("{name}:{line}:{column}");
            let why = format!("`{name}` is not UTF-8 text");
            diagnostic(why, format!("the first bad byte is at {place}; save it as UTF-8"))
        })?;
        Ok(Self::new(path, text))
    }

    /// A configuration that is in no file. What stands in its place has paths relative to `folder`.
    pub(crate) fn built_in(text: String, folder: PathBuf) -> Self {
        Self { folder, ..Self::new(BUILT_IN, text) }
    }

    /// Whether it is in no file.
    pub(crate) fn is_built_in(&self) -> bool {
        self.path == Path::new(BUILT_IN)
    }

    /// The file that this process has read the text from.
    pub(crate) fn file(&self) -> Option<&Path> {
        (!self.is_sent && !self.is_built_in()).then_some(&self.path)
    }

    /// The file's name, line and column of a byte, as `file:line:column`.
    pub(crate) fn place(&self, at: usize) -> String {
        let (line, column) = self.position(at);
        format!("{}:{line}:{column}", self.path.display())
    }

    /// Line and column of a byte, both from one; columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let mut end = at.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.starts.partition_point(|&start| start <= end);
        (line, self.text[self.starts[line - 1]..end].chars().count() + 1)
    }

    /// A path in the file: relative ones are relative to the file's folder.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }
}

fn diagnostic(why: String, help: String) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(Code::Unreadable, why).help(help))
}

fn cannot(path: &Path, error: &std::io::Error) -> Box<Diagnostic> {
    let why = format!("cannot read `{}`: {}", path.display(), reason(error));
    diagnostic(why, "name a readable TOML file".to_owned())
}

/// A file of another command by its first bytes: what it is, and which commands read it.
fn known_format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let trace = "read a trace with `weir trace info FILE` or `weir replay FILE`";
    if bytes.starts_with(&ZSTD_MAGIC) {
        Some(("compressed with zstd", trace))
    } else if bytes.starts_with(&MAGIC[..MAGIC.len() - 1]) {
        Some(("a recording of `weir serve`", "replay it with `weir replay FILE`"))
    } else if bytes.starts_with(b"time_ns,") {
        Some(("a trace", trace))
    } else {
        None
    }
}

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// An error of the system as a lower-case fragment without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and columns count from one, and columns count characters, not bytes.
    #[test]
    fn places_are_counted_in_characters() {
        let position = |text: &str, at| Source::new("f", text.to_owned()).position(at);
        assert_eq!(position("", 0), (1, 1));
        assert_eq!(position("a\nbc", 3), (2, 2));
        assert_eq!(position("µ = 1", 3), (1, 3));
        assert_eq!(position("a\n", 99), (2, 1));
    }
}
