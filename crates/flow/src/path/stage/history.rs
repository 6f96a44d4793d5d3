//! Response-time history of a path, independent of the sizes and the number of its I/Os.
//!
//! A sample is an I/O that ended. It counts twice: with its *service* (the time from its start or the end
//! before it on this path, whichever is later: its cost if the path does one I/O at a time) and with its
//! *response* (the whole time: its cost if the path does everything at once). Both are compared with the cost
//! of an I/O of its size on the backend's better paths, [`CostBySize`].
//!
//! Three records are kept. [`History`] has decayed means, which predict how long an I/O takes. [`RecentSpeed`] has
//! the sums of the last stretch of time, with which other paths are compared. [`Evidence`] has the *events* of
//! a stretch: samples whose times do not overlap. A pause delays everything in flight, and is one event.

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

    /// Whether enough I/Os of about this size have ended for a judgement by their cost: the line says little about
    /// sizes far beyond those that it was drawn through.
    pub(super) const fn is_known(&self, bytes: u64) -> bool {
        let mean = if bytes <= SMALL_MAX { &self.small } else { &self.large };
        mean.samples >= SAMPLES_MIN && (bytes <= SMALL_MAX || bytes <= mean.bytes / 32 * BEYOND)
    }

    /// Whether any I/O has ended.
    pub(super) const fn has_any(&self) -> bool {
        self.small.samples > 0 || self.large.samples > 0
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
        let known = mean.samples >= SAMPLES_MIN;
        let max = if known { (mean.nanos / 32).saturating_mul(8).max(1_000) } else { NANOS_MAX };
        mean.learn(bytes, nanos.min(max));
    }
}

/// Decayed means of a path's times, as factors of the cost on better paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    service: Factor,
    response: Factor,
    /// The last end of an I/O.
    ended: Instant,
}

impl History {
    pub(super) const fn new() -> Self {
        Self { service: 0, response: 0, ended: Instant::ZERO }
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
        let decayed = |mean: u64, new: u64| {
            if mean == 0 { new } else { mean - mean / 8 + new / 8 }
        };
        self.service = decayed(self.service, factor(service).min(FACTOR_MAX));
        self.response = decayed(self.response, factor(response));
    }

    /// The last end of an I/O.
    pub(super) const fn ended(&self) -> Instant {
        self.ended
    }

    /// The usual response; 0 without a sample.
    pub(super) const fn usual_response(&self) -> Factor {
        self.response
    }

    /// The usual service; 0 without a sample.
    pub(super) const fn usual_service(&self) -> Factor {
        self.service
    }
}

/// Sums over I/Os, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ios: u32,
    cost: u64,
    service: u64,
    response: u64,
}

impl Sums {
    fn add(&mut self, cost: u64, service: Duration, response: Duration) {
        self.ios = self.ios.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
        self.service = self.service.saturating_add(service.as_nanos());
        self.response = self.response.saturating_add(response.as_nanos());
    }

    const fn with(self, other: Self) -> Self {
        Self {
            ios: self.ios.saturating_add(other.ios),
            cost: self.cost.saturating_add(other.cost),
            service: self.service.saturating_add(other.service),
            response: self.response.saturating_add(other.response),
        }
    }

    /// Whether the service of these is `factor` times that of `other`, for the same cost.
    fn is_slower(&self, other: &Self, factor: u32) -> bool {
        u128::from(self.service) * u128::from(other.cost)
            >= u128::from(factor) * u128::from(other.service.max(1)) * u128::from(self.cost)
    }
}

/// How fast a path was in the last stretches of time, pauses included: the measure for other paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentSpeed {
    begun: Instant,
    current: Sums,
    previous: Sums,
}

impl RecentSpeed {
    /// Adds an I/O, and begins a new stretch if this one has lasted for `stretch` and has enough I/Os.
    pub(super) fn add(
        &mut self,
        now: Instant,
        stretch: Duration,
        (cost, service, response): (u64, Duration, Duration),
    ) {
        if self.begun + stretch <= now && self.current.ios >= SAMPLES_MIN {
            (self.previous, self.current, self.begun) = (self.current, Sums::default(), now);
        }
        self.current.add(cost, service, response);
    }

    /// Whether there are enough samples for a comparison.
    pub(super) const fn is_known(&self) -> bool {
        self.previous.ios > 0 || self.current.ios >= SAMPLES_MIN
    }

    /// Forgets what was measured before `now`.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { begun: now, ..Self::default() };
    }

    const fn sums(&self) -> Sums {
        self.current.with(self.previous)
    }

    /// Whether this path is `factor` times slower than `other`.
    pub(super) fn is_slower(&self, other: &Self, factor: u32) -> bool {
        self.sums().is_slower(&other.sums(), factor)
    }

    /// The mean response to an I/O that costs `cost` nanoseconds.
    pub(super) fn response(&self, cost: u64) -> Duration {
        let Sums { cost: all, response, .. } = self.sums();
        let nanos = u128::from(response) * u128::from(cost) / u128::from(all.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The events of a path in a stretch of time, compared with the best path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    begun: Instant,
    /// The end of the last event: only an I/O that starts later is another one.
    event_ended: Instant,
    sums: Sums,
    events: u32,
    /// Events whose response was slow, and their times together.
    slow: u32,
    slow_time: Duration,
    /// Events whose response was a multiple of that of the best path.
    long: u32,
}

/// What the evidence of a stretch shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Most responses are not slow, or the path does as much as others.
    Fast,
    /// Most responses are long, which may be a slow path or a long queue.
    Long,
    /// Most responses are slow, and so is the path.
    Slow,
}

impl Evidence {
    /// Begins a stretch, in which only I/Os count that start from now on.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { begun: now, event_ended: now, ..Self::default() };
    }

    /// Begins the next stretch.
    pub(super) fn next(&mut self, now: Instant) {
        *self = Self { begun: now, event_ended: self.event_ended, ..Self::default() };
    }

    /// Adds an I/O.
    pub(super) fn add(&mut self, cost: u64, service: Duration, response: Duration) {
        self.sums.add(cost, service, response);
    }

    /// Whether an I/O that began at `started` overlaps no other event; then it is the last event.
    pub(super) fn is_separate(&mut self, now: Instant, started: Instant) -> bool {
        let separate = started >= self.event_ended;
        if separate {
            self.event_ended = now;
        }
        separate
    }

    /// Adds an event.
    pub(super) fn count(&mut self, response: Duration, slow: bool, long: bool) {
        self.events += 1;
        self.long += u32::from(long);
        if slow {
            self.slow += 1;
            self.slow_time += response;
        }
    }

    /// Whether several events have shown that the path is not slow.
    pub(super) const fn is_acquitted(&self) -> bool {
        self.events >= SAMPLES_MIN && !most(self.slow, self.events)
    }

    /// What is shown, if there are enough separate events, or slow ones took long enough, and the stretch is
    /// over.
    pub(super) fn shown(
        &self,
        now: Instant,
        stretch: Duration,
        best: &RecentSpeed,
        factor: u32,
    ) -> Option<Shown> {
        let enough = self.events >= EVENTS_MIN || self.events >= 2 && self.slow_time >= stretch;
        if !enough || self.begun + stretch > now {
            return None;
        }
        let slower = self.sums.is_slower(&best.sums(), factor);
        Some(if most(self.slow, self.events) && slower {
            Shown::Slow
        } else if most(self.long, self.events) {
            Shown::Long
        } else {
            Shown::Fast
        })
    }
}

/// Whether three quarters or more are.
const fn most(part: u32, all: u32) -> bool {
    part as u64 * 4 >= all as u64 * 3
}

/// The fewest samples from which something is known.
const SAMPLES_MIN: u32 = 8;

/// The fewest separate events of a stretch, unless they took as long as it.
const EVENTS_MIN: u32 = 4;

/// The largest factor of one service: a single stall is no rate.
const FACTOR_MAX: Factor = 32 * ONE;

/// The longest time of a sample: 18 minutes.
const NANOS_MAX: u64 = 1 << 40;

/// The largest size of a sample.
const BYTES_MAX: u64 = 1 << 26;

/// A size is known up to this many times the mean of the large ones.
const BEYOND: u64 = 4;

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
