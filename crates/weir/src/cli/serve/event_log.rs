//! The event log on standard error: lines for people, or one JSON object a line.

use crate::exit::{Exit, Failure};
use crate::output::Color;
use serde_json::Value;
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use weir_serve::config::LogFormat;

/// Starts the log.
pub(super) fn start(color: Color, format: LogFormat) -> Result<(), Failure> {
    let wanted = std::env::var("WEIR_LOG").unwrap_or_default();
    let wanted = if wanted.is_empty() { "info" } else { &wanted };
    let filter = EnvFilter::builder().parse(wanted).map_err(|error| {
        let message = format!("WEIR_LOG is not a filter: {error}");
        Failure::new(Exit::Usage, message, "set it to error, warn, info, debug or trace")
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(color.on_stderr() && format == LogFormat::Text)
        .with_target(false)
        .log_internal_errors(false);
    let started = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.event_format(Json).try_init(),
    };
    started.map_err(|error| Failure::unexpected(format!("cannot start the log: {error}")))
}

/// Writes an event as an object on one line: `timestamp`, `level`, `message`, then its fields.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields { message: String::new(), others: Vec::new() };
        event.record(&mut fields);
        let level = event.metadata().level().as_str();
        let first = [("timestamp", &*time), ("level", level), ("message", &*fields.message)];
        let mut separator = '{';
        for (name, value) in first {
            write!(writer, "{separator}{}:{}", Value::from(name), Value::from(value))?;
            separator = ',';
        }
        for (name, value) in &fields.others {
            // Two keys of one name would be one to most readers.
            let prefix = if first.iter().any(|(taken, _)| taken == name) { "field_" } else { "" };
            write!(writer, ",{}:{value}", Value::from(format!("{prefix}{name}")))?;
        }
        writeln!(writer, "}}")
    }
}

/// The fields of an event.
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        match (field.name(), value.into()) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    /// Of everything else: of what is recorded by `%` the text as it is.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Log;
    use super::*;
    use tracing::subscriber::with_default;
    use tracing::{error, info};

    /// Each event is one line that a JSON reader takes, whatever hosts put into its strings, and gives them back.
    #[test]
    fn hostile_strings_are_data() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(Json)
            .finish();
        let hostile = [
            "a\"b\\c",
            "\r\n{\"level\":\"ERROR\"}\n",
            "\0\u{1}\u{1b}[31m\u{7f}\u{85}\u{2028}\u{2029}",
            "é\u{feff}\u{202e}\u{10ffff}",
            "",
        ];
        with_default(subscriber, || {
            for text in hostile {
                info!(host = text, shown = %text, number = u64::MAX, less = -1, "{text}");
            }
            error!(level = "x", timestamp = true, share = 0.5, no = f64::NAN, of = ?Some("a\nb"), "m");
            info!(alone = 1);
        });
        let text = log.text();
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        assert_eq!(lines.len(), hostile.len() + 2, "{text}");
        assert!(text.chars().all(|one| one == '\n' || one >= ' '), "{text:?}");
        let events: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (event, text) in events.iter().zip(hostile) {
            assert_eq!(event["level"], "INFO");
            assert_eq!([&event["message"], &event["host"], &event["shown"]], [text; 3]);
            assert_eq!((&event["number"], &event["less"]), (&u64::MAX.into(), &(-1).into()));
        }
        let last = &events[hostile.len()];
        let names: Vec<&String> = last.as_object().unwrap().keys().collect();
        let wanted = [
            "field_level",
            "field_timestamp",
            "level",
            "message",
            "no",
            "of",
            "share",
            "timestamp",
        ];
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(sorted, wanted.each_ref());
        assert_eq!((&last["level"], &last["field_level"]), (&"ERROR".into(), &"x".into()));
        assert_eq!((&last["no"], &last["of"]), (&Value::Null, &"Some(\"a\\nb\")".into()));
        assert_eq!(events[hostile.len() + 1]["message"], "");
        let time = last["timestamp"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && time[10..].starts_with('T'), "{time}");
        assert!(lines[0].starts_with(&format!("{{\"timestamp\":\"{}", &time[..10])), "{text}");
    }
}
