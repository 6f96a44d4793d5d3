//! The only clock of Weir.

use std::time;
use weir_flow::clock::Instant;

/// Monotonic time since the gateway started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(time::Instant);

impl Clock {
    /// Starts counting now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub(crate) fn start() -> Self {
        Self(time::Instant::now())
    }

    /// Time since the start.
    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
