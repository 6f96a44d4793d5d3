//! Response-time history of a path, independent of the sizes and the number of its I/Os.
//!
//! A sample is an I/O that ended. It counts twice: with its *service* (the time from its start or the end
//! before it on this path, whichever is later: its cost if the path does one I/O at a time) and with its
//! *response* (the whole time: its cost if the path does everything at once). Both are divided by the cost of
//! an I/O of its size on the backend's better paths, [`CostBySize`], so that they are plain factors.
//!
//! A path is called slow when both factors say so: under one alone a path would look slow because its queue
//! is longer, or because other paths do more at once.

use crate::clock::{Duration, Instant};

/// A factor in fixed point: [`ONE`] is the cost of an I/O on the better paths.
pub(super) type Factor = u64;

/// The factor 1.
pub(super) const ONE: Factor = 256;

/// The cost of an I/O by its size: the means of small and of large ones, and a straight line between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CostBySize {
    small: Mean,
    large: Mean,
}

/// Decayed means of sizes and services, both times 32.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    samples: u32,
    bytes: u64,
    nanos: u64,
}

impl Mean {
    fn learn(&mut self, bytes: u64, nanos: u64) {
        if self.samples == 0 {
            (self.bytes, self.nanos) = (bytes * 32, nanos * 32);
        }
        self.samples = self.samples.saturating_add(1);
        self.bytes = self.bytes - self.bytes / 32 + bytes;
        self.nanos = self.nanos - self.nanos / 32 + nanos;
    }
}

impl CostBySize {
    /// Time for an I/O of no bytes, and time for a MiB more, in nanoseconds.
    pub(super) fn line(&self) -> (u64, u64) {
        let (small, large) = (&self.small, &self.large);
        let per_mib = match (small.samples, large.samples) {
            (_, 0) => 0,
            // Large ones alone: taken as proportional to their size.
            (0, _) => large.nanos.saturating_mul(MIB) / large.bytes.max(1),
            _ => {
                let bytes = large.bytes.saturating_sub(small.bytes).max(1);
                large.nanos.saturating_sub(small.nanos).saturating_mul(MIB) / bytes
            }
        };
        let at = if small.samples > 0 { small } else { large };
        let moved = u128::from(per_mib) * u128::from(at.bytes / 32) / u128::from(MIB);
        let moved = u64::try_from(moved).unwrap_or(u64::MAX);
        ((at.nanos / 32).saturating_sub(moved).max(1), per_mib)
    }

    /// The cost of an I/O of `bytes`, in nanoseconds; at least 1.
    pub(super) fn cost(&self, bytes: u64) -> u64 {
        let (fixed, per_mib) = self.line();
        let moved = u128::from(per_mib) * u128::from(bytes) / u128::from(MIB);
        fixed.saturating_add(u64::try_from(moved).unwrap_or(u64::MAX))
    }

    /// Adds the service of an I/O on one of the better paths. An outlier counts as eight times the mean.
    pub(super) fn learn(&mut self, bytes: u64, service: Duration) {
        let nanos = service.as_nanos().min(NANOS_MAX);
        let bytes = bytes.min(BYTES_MAX);
        let mean = if bytes <= SMALL_MAX { &mut self.small } else { &mut self.large };
        let known = mean.samples >= SAMPLES as u32;
        let max = if known { (mean.nanos / 32).saturating_mul(8).max(1_000) } else { NANOS_MAX };
        mean.learn(bytes, nanos.min(max));
    }
}

/// The times of a path's last I/Os, as factors of the usual cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    last: [(Factor, Factor); SAMPLES],
    samples: usize,
    /// Decayed means of services and responses.
    service: Factor,
    response: Factor,
    /// The last end of an I/O.
    ended: Instant,
}

impl History {
    pub(super) const fn new() -> Self {
        let ended = Instant::ZERO;
        Self { last: [(0, 0); SAMPLES], samples: 0, service: 0, response: 0, ended }
    }

    /// Forgets the last samples, not the means.
    pub(super) const fn forget(&mut self) {
        self.samples = 0;
    }

    /// The service time of an I/O that began at `started` and ends now.
    pub(super) fn service(&mut self, now: Instant, started: Instant) -> Duration {
        assert!(now >= self.ended && now >= started, "an I/O ended before it started");
        let begun = started.max(self.ended);
        self.ended = now;
        now.since(begun)
    }

    /// Adds an I/O that costs `cost` nanoseconds on better paths.
    pub(super) fn learn(&mut self, cost: u64, service: Duration, response: Duration) {
        let factor = |time: Duration| time.as_nanos().min(NANOS_MAX) * ONE / cost;
        let (service, response) = (factor(service).min(FACTOR_MAX), factor(response));
        self.last[self.samples % SAMPLES] = (service, response);
        self.samples += 1;
        if self.samples == 2 * SAMPLES {
            self.samples = SAMPLES;
        }
        let decayed = |mean: u64, new: u64| {
            if mean == 0 { new } else { mean - mean / 8 + new / 8 }
        };
        self.service = decayed(self.service, service);
        self.response = decayed(self.response, response);
    }

    /// Whether there are enough samples for a judgement.
    pub(super) const fn is_known(&self) -> bool {
        self.samples >= SAMPLES
    }

    /// The last end of an I/O.
    pub(super) const fn ended(&self) -> Instant {
        self.ended
    }

    /// The mean service of the last samples.
    pub(super) fn recent_service(&self) -> Factor {
        self.last.iter().map(|&(service, _)| service).sum::<Factor>() / SAMPLES as u64
    }

    /// The service that other paths are compared with: the worse of the recent and the usual one.
    pub(super) fn fair_service(&self) -> Factor {
        self.recent_service().max(self.service).max(1)
    }

    /// The usual response; 0 without a sample.
    pub(super) const fn usual_response(&self) -> Factor {
        self.response
    }

    /// The usual service; 0 without a sample.
    pub(super) const fn usual_service(&self) -> Factor {
        self.service
    }

    /// The best response of the last samples.
    pub(super) fn best_response(&self) -> Factor {
        self.last.iter().map(|&(_, response)| response).min().unwrap_or(0)
    }

    /// Whether even the fastest of its last responses took `factor` times as long as is usual on `best`.
    pub(super) fn is_suspect(&self, best: &Self, factor: u32) -> bool {
        let usual = best.usual_response().max(1);
        self.is_known() && self.best_response() >= usual.saturating_mul(u64::from(factor))
    }

    /// Whether it is `factor` times slower than `best`: its service on average, and even the fastest of its
    /// last responses took more than twice as long as is usual on `best`.
    pub(super) fn is_slower(&self, best: &Self, factor: u32) -> bool {
        self.is_known()
            && self.recent_service() >= best.fair_service().saturating_mul(u64::from(factor))
            && self.best_response() > best.usual_response().saturating_mul(2)
    }
}

/// The last samples that count.
pub(super) const SAMPLES: usize = 8;

/// The largest factor of one service: a single stall among the last samples is not a slow path, at the
/// default [`slow_factor`](super::Settings::slow_factor).
const FACTOR_MAX: Factor = 32 * ONE;

/// The longest time of a sample: 18 minutes.
const NANOS_MAX: u64 = 1 << 40;

/// The largest size of a sample.
const BYTES_MAX: u64 = 1 << 26;

/// The largest size of a small I/O.
const SMALL_MAX: u64 = 16 << 10;

const MIB: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Time does not run backwards on a path.
    #[test]
    #[should_panic(expected = "ended before it started")]
    fn ends_follow_starts() {
        History::new().service(Instant::ZERO, Instant::from_nanos(1));
    }
}
