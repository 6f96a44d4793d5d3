//! A page of metrics that is being written: samples, names of labels, numbers.

use super::Metrics;
use super::histogram::{Bounds, Counts};
use super::process::Process;
use super::snapshot::Snapshot;
use std::fmt::Write as _;

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `text/plain; version=0.0.4`.
    Text,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

/// All that a page is made of.
pub(super) struct Source<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) snapshot: &'a Snapshot,
    pub(super) process: Process,
    /// Nanoseconds since 1970.
    pub(super) now: u64,
}

/// A page that is being written.
pub(super) struct Page {
    text: String,
    /// Series so far.
    series: u64,
    /// The family that is being written: its name, and the suffix of its samples.
    name: &'static str,
    suffix: &'static str,
    format: Format,
}

/// Names and values of labels.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// An empty page.
    pub(super) const fn new(format: Format) -> Self {
        Self { text: String::new(), series: 0, name: "", suffix: "", format }
    }

    /// A sample of a counter or a gauge.
    pub(super) fn value(&mut self, labels: Labels<'_>, value: u64) {
        self.name(self.suffix, labels, None);
        let _ = writeln!(self.text, "{value}");
    }

    /// A sample in seconds.
    pub(super) fn seconds(&mut self, labels: Labels<'_>, nanos: u64) {
        self.name(self.suffix, labels, None);
        self.nanos(nanos);
    }

    /// A sample that is a fraction.
    pub(super) fn fraction(&mut self, labels: Labels<'_>, value: f64) {
        self.name(self.suffix, labels, None);
        let _ = writeln!(self.text, "{value}");
    }

    /// One sample for each state: 1 for the one that holds.
    pub(super) fn state(&mut self, labels: &[(&str, &str)], states: &[&str], holds: &str) {
        for &state in states {
            let mut all = labels.to_vec();
            all.push(("state", state));
            self.value(&all, (state == holds).into());
        }
    }

    /// A histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, counts: &Counts, bounds: Bounds) {
        for (bound, below) in counts.up_to(bounds) {
            // Exact: times are whole nanoseconds, and these have at most 10 digits.
            let le = (bound as f64 / 1e9).to_string();
            self.name("_bucket", labels, Some(&le));
            let _ = writeln!(self.text, "{below}");
        }
        let count = counts.count();
        self.name("_bucket", labels, Some("+Inf"));
        let _ = writeln!(self.text, "{count}");
        self.name("_sum", labels, None);
        self.nanos(counts.sum_ns);
        self.name("_count", labels, None);
        let _ = writeln!(self.text, "{count}");
    }

    /// Series so far.
    pub(super) const fn series(&self) -> u64 {
        self.series
    }

    /// Writes a family: the lines in front of it, and its samples. Without samples it writes nothing.
    pub(super) fn family(
        &mut self,
        (name, suffix, kind, help): (&'static str, &'static str, &str, &str),
        samples: impl FnOnce(&mut Self),
    ) {
        (self.name, self.suffix) = (name, suffix);
        let begin = self.text.len();
        // `OpenMetrics` names the family of a counter without the suffix of its samples.
        let suffix = if self.format == Format::Text { suffix } else { "" };
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        if self.format == Format::OpenMetrics
            && let Some(unit) = UNITS.iter().find(|unit| name.ends_with(&format!("_{unit}")))
        {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let header = self.text.len();
        samples(self);
        if self.text.len() == header {
            self.text.truncate(begin);
        }
    }

    /// Ends the page.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text.into_bytes()
    }

    /// The name of a sample with its labels.
    fn name(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>) {
        self.series += 1;
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let labels = labels.iter().copied().chain(le.map(|le| ("le", le)));
        for (index, (name, value)) in labels.clone().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        self.text.push_str(if labels.count() > 0 { "} " } else { " " });
    }

    /// A time as the value of a sample, exact.
    fn nanos(&mut self, nanos: u64) {
        let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let _ = writeln!(self.text, "{whole}.{rest:09}");
    }
}

/// Appends the value of a label. One that is too long is cut, and ends in a hash of the whole.
fn escape(text: &mut String, value: &str) {
    let cut = if value.len() > VALUE_MAX {
        let hash = crc32c::crc32c(value.as_bytes());
        Some((value.floor_char_boundary(VALUE_MAX - 9), hash))
    } else {
        None
    };
    for c in value[..cut.map_or(value.len(), |(end, _)| end)].chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    if let Some((_, hash)) = cut {
        let _ = write!(text, "-{hash:08x}");
    }
}

/// Units that `OpenMetrics` names.
const UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

/// Bytes of the value of a label.
const VALUE_MAX: usize = 128;
