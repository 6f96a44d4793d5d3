//! The only clock of Weir.

use std::time;
use weir_flow::clock::Instant;

/// Nanoseconds since 1970, for what outlives a gateway.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub(crate) fn unix_nanos() -> u64 {
    let since = time::SystemTime::now().duration_since(time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

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
