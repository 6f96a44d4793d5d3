//! Reads the configuration again for a reload, or another one, and logs its errors.

use super::Serve;
use crate::config::changes::{changes, places};
use crate::config::source::Source;
use crate::config::{self, Loaded, events};
use std::path::{Path, PathBuf};
use weir_serve::config::{Candidate, Config, Given, Reader, Rejected};

/// What a gateway was started with, and what is in force.
pub(super) struct Rereader<'a> {
    serve: &'a Serve,
    started_with: Source,
    /// Its whole path; `None` for the built-in configuration.
    file: Option<PathBuf>,
    in_force: Source,
    read: Option<Source>,
}

impl<'a> Rereader<'a> {
    /// For a gateway that starts with this text.
    pub(super) fn new(serve: &'a Serve, source: &Source) -> Self {
        let whole = || std::path::absolute(&source.path).unwrap_or_else(|_| source.path.clone());
        Self {
            serve,
            started_with: source.clone(),
            file: (!source.is_built_in()).then(whole),
            in_force: source.clone(),
            read: None,
        }
    }

    /// The text to read.
    fn source(&self, given: Option<&Given>) -> Result<Source, Rejected> {
        match given {
            Some(Given { name, text }) => Ok(self.started_with.in_place_of(name, text.clone())),
            None if self.started_with.is_built_in() => Ok(self.started_with.clone()),
            None => Source::read(&self.started_with.path).map_err(|diagnostic| {
                Rejected::Invalid(vec![events::log(&diagnostic, &self.started_with)])
            }),
        }
    }
}

impl Reader for Rereader<'_> {
    fn read(&mut self, given: Option<&Given>) -> Result<Candidate, Rejected> {
        let source = self.source(given)?;
        let Loaded { checked, values, .. } = load(&source)?;
        let config = self.serve.adjust(checked);
        let changes = changes(&self.in_force, &values);
        let places = places(&source, &values);
        self.read = Some(source);
        Ok(Candidate { config, changes, places })
    }

    fn put_into_force(&mut self) {
        if let Some(source) = self.read.take() {
            self.in_force = source;
        }
    }

    fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Checks a text. The diagnostics of an invalid one are logged as well.
fn load(source: &Source) -> Result<Loaded<Config>, Rejected> {
    let loaded = config::gateway(source).map_err(|diagnostics| {
        let lines = diagnostics.iter().map(|diagnostic| events::log(diagnostic, source));
        Rejected::Invalid(lines.collect())
    })?;
    for diagnostic in &loaded.warnings {
        events::log(diagnostic, source);
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Log;
    use super::*;
    use std::path::PathBuf;
    use tracing::subscriber::with_default;

    /// Reads a file with this text again: the configuration and the log.
    fn read(name: &str, text: Option<&str>) -> (PathBuf, Option<Config>, String) {
        let path = std::env::temp_dir().join(format!("weir-{}-{name}.toml", std::process::id()));
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        let serve = Serve::default();
        let mut reader = Rereader::new(&serve, &Source::new(&path, String::new()));
        let config = with_default(subscriber, || reader.read(None).ok());
        let _ = std::fs::remove_file(&path);
        let text = log.text();
        (path, config.map(|candidate| candidate.config), text)
    }

    const GOOD: &str = "[[volume]]\nname = \"d\"\nfile = \"d\"\n\
                        [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";

    /// The current contents of the file are returned, and its warnings are logged.
    #[test]
    fn the_file_is_read_again() {
        let (_, config, log) = read("good", Some(GOOD));
        assert_eq!(config.unwrap().volumes[0].name, "d");
        assert_eq!(log, "");
        let more =
            format!("[stop]\ntimeout = \"7s\"\n{GOOD}[[volume]]\nname = \"e\"\nfile = \"e\"\n");
        let (path, config, log) = read("odd", Some(&more));
        assert_eq!(config.unwrap().stop.timeout.as_nanos(), 7_000_000_000);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("WARN configuration: no target, export or subsystem"), "{log}");
        assert!(log.contains(&format!("at=\"{}:10:8\"", path.display())), "{log}");
    }

    /// An invalid file returns nothing; each diagnostic is one event with its location and a remedy.
    #[test]
    fn diagnostics_are_logged() {
        let text = format!("[iscsi]\nmax_commands = 0\nbufer = 1\n{GOOD}");
        let (path, config, log) = read("bad", Some(&text));
        assert!(config.is_none());
        let events: Vec<_> = log.lines().collect();
        assert_eq!(events.len(), 2, "{log}");
        assert!(events.iter().all(|event| event.contains("ERROR configuration: ")), "{log}");
        let line = |part: &str| *events.iter().find(|event| event.contains(part)).unwrap();
        let bad = line("`0` is outside the limits");
        assert!(bad.contains(&format!("at=\"{}:2:16\"", path.display())), "{bad}");
        assert!(bad.contains("code=out-of-range"), "{bad}");
        assert!(line("no key `bufer`").contains("help=\"did you mean `buffer`?\""), "{log}");
        let (_, config, log) = read("missing", None);
        assert!(config.is_none());
        assert!(log.contains("cannot read") && log.contains("no such file"), "{log}");
    }
}
