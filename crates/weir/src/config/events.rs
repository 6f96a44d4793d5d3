//! Diagnostics as events of the log.

use super::diagnostic::Diagnostic;
use super::source::Source;
use tracing::{Level, error, event_enabled, warn};

/// Whether the log takes the errors among diagnostics.
pub(crate) fn takes_errors() -> bool {
    event_enabled!(Level::ERROR)
}

/// Logs a diagnostic as one event with its location, and returns both as a line.
pub(crate) fn log(diagnostic: &Diagnostic, source: &Source) -> String {
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
