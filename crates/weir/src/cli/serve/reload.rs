//! Reads the configuration again for a reload and logs its errors.

use crate::config;
use crate::config::diagnostic::Diagnostic;
use crate::config::source::Source;
use tracing::{error, warn};
use weir_serve::config::{Config, Rejected};

/// Reads the file of `source` again. The diagnostics of an invalid one are logged as well.
pub(super) fn again(source: &Source) -> Result<Config, Rejected> {
    let source = match Source::read(&source.path) {
        Ok(source) => source,
        Err(diagnostic) => {
            return Err(Rejected::Invalid(vec![log(&diagnostic, source)]));
        }
    };
    match config::gateway(&source) {
        Ok(loaded) => {
            for diagnostic in &loaded.warnings {
                log(diagnostic, &source);
            }
            Ok(loaded.checked)
        }
        Err(diagnostics) => {
            let lines = diagnostics.iter().map(|diagnostic| log(diagnostic, &source));
            Err(Rejected::Invalid(lines.collect()))
        }
    }
}

/// Logs a diagnostic as one event with its location, and returns both as a line.
fn log(diagnostic: &Diagnostic, source: &Source) -> String {
    let place = match &diagnostic.at {
        Some((span, _)) => source.place(span.start),
        None => source.path.display().to_string(),
    };
    let help = diagnostic.help.as_deref().unwrap_or_default();
    let (code, message) = (diagnostic.code, &diagnostic.message);
    if diagnostic.code.is_warning() {
        warn!(at = place, %code, help, "configuration: {message}");
    } else {
        error!(at = place, %code, help, "configuration: {message}");
    }
    format!("{place}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};
    use tracing::subscriber::with_default;

    /// A log that can be read.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

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
        let source = Source::new(&path, String::new());
        let config = with_default(subscriber, || again(&source).ok());
        let _ = std::fs::remove_file(&path);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        (path, config, text)
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
