//! The progress of a run, for callers that show it.

use crate::plan::End;
use weir_flow::clock::Instant;

/// How far a run is. Told every 65 536 events, so that a caller who prints it needs no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The virtual clock.
    pub now: Instant,
    /// Requests that have come so far.
    pub arrived: u64,
    /// When the run ends.
    pub end: End,
}

impl Progress {
    /// The part of the run that is over, 0 to 1; `None` where only the sources know.
    pub fn fraction(&self) -> Option<f64> {
        let time = self
            .end
            .duration
            .map(|duration| self.now.as_nanos() as f64 / duration.as_nanos() as f64);
        let count = self.end.requests.map(|requests| self.arrived as f64 / requests as f64);
        let further = time.into_iter().chain(count).reduce(f64::max);
        further.map(|fraction| fraction.min(1.0))
    }
}
