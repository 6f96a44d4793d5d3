//! Diagnostics as events of the log.

use super::diagnostic::Diagnostic;
use super::source::Source;
use tracing::{error, warn};

/// Logs a diagnostic as one event with its location, and returns both as a line. Without a source there is no
/// location: the message names the file.
pub(crate) fn log(diagnostic: &Diagnostic, source: Option<&Source>) -> String {
    let place = match (&diagnostic.at, source) {
        (Some((span, _)), Some(source)) => source.place(span.start),
        (_, Some(source)) => source.path.display().to_string(),
        (_, None) => String::new(),
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
