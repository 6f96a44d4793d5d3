//! Traces that the operator gives with `--traces`.

use super::work::Io;
use std::path::Path;
use std::sync::Arc;
use weir_flow::clock::Duration;
use weir_sim::trace::{Error, Reader};

/// What a host asked for, and when.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(super) name: String,
    pub(super) ios: Arc<[Io]>,
}

impl Trace {
    /// Reads a trace of 2 million requests at most. `None` if it has no two requests at different times: it has no
    /// rate then.
    pub fn read(name: &str, path: &Path) -> Result<Option<Self>, Error> {
        let mut reader = Reader::open(path, None)?;
        let mut ios = Vec::new();
        while let Some(record) = reader.read()? {
            if ios.len() == REQUESTS_MAX {
                let message =
                    format!("a trace may have {REQUESTS_MAX} requests here; give less of it");
                return Err(reader.error(message));
            }
            if record.time > LENGTH_MAX || record.extent.length > BYTES_MAX {
                let message = "a request may come 30 years after the first and have 1 TiB at most";
                return Err(reader.error(message));
            }
            ios.push(Io { at: record.time.as_nanos(), bytes: record.extent.length });
        }
        let usable = ios.first().map(|io| io.at) != ios.last().map(|io| io.at);
        Ok(usable.then(|| Self { name: name.to_owned(), ios: ios.into() }))
    }

    /// Bytes per second of the tenth of its requests that came fastest, looked for in steps of a quarter
    /// of that.
    pub(super) fn busiest(&self) -> f64 {
        let tenth = (self.ios.len() / 10).max(1);
        let rate = |ios: &[Io]| {
            let bytes: u64 = ios[..tenth].iter().map(|io| io.bytes).sum();
            let nanos = ios[tenth].at - ios[0].at;
            (nanos > 0).then(|| bytes as f64 / nanos as f64 * 1e9)
        };
        let rates = self.ios.windows(tenth + 1).step_by((tenth / 4).max(1)).filter_map(rate);
        rates.fold(0.0, f64::max)
    }
}

/// Most requests of a trace.
const REQUESTS_MAX: usize = 2_000_000;

/// The longest trace, and its largest request, such that all times fit the clock.
const LENGTH_MAX: Duration = Duration::from_secs(30 * 366 * 86_400);
const BYTES_MAX: u64 = 1 << 40;
