//! An upstream that does not answer, or is busy: when it is tried again.

use super::super::effect::JobId;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::rng::mix;

/// An outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) since: Instant,
    /// How many times it was tried again.
    pub(crate) attempts: u32,
    /// When it is tried next.
    pub(crate) until: Instant,
    pub(crate) error: IoError,
}

impl Outage {
    /// Job `id` has failed with `error` during the outage `before`, or begins one. `salt` tells volumes apart.
    pub(crate) fn after(
        before: Option<Self>,
        now: Instant,
        id: JobId,
        salt: u8,
        error: IoError,
    ) -> Self {
        let attempts = match before {
            // Others that were sent at the same time fail as well.
            Some(outage) if now < outage.until => outage.attempts,
            Some(outage) => outage.attempts + 1,
            None => 0,
        };
        let base = (BACKOFF_MIN * (1 << attempts.min(10))).min(BACKOFF_MAX).as_nanos();
        // A quarter more or less, so that volumes of one upstream do not come together.
        let jitter = mix(id.0 ^ u64::from(attempts) << 32 ^ u64::from(salt) << 48) % (base / 2);
        let until = now + Duration::from_nanos(base - base / 4 + jitter).min(BACKOFF_MAX);
        assert!(
            now < until && until <= now + BACKOFF_MAX,
            "the next attempt is within ten seconds: {until:?} at {now:?}"
        );
        let since = before.map_or(now, |outage| outage.since);
        Self { since, attempts, until, error }
    }
}

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// However long an outage lasts, the upstream is tried again within ten seconds, and later with each attempt at
    /// first.
    #[test]
    fn attempts_are_ten_seconds_apart_at_most() {
        let (mut now, mut outage) = (Instant::ZERO, None);
        let mut waits = alloc::vec::Vec::new();
        for attempt in 0..40 {
            let next = Outage::after(outage, now, JobId(attempt), 7, IoError::Busy);
            waits.push(next.until.since(now));
            now = next.until;
            outage = Some(next);
        }
        assert!(waits[0] < waits[3] && waits[3] < waits[6], "{waits:?}");
        assert!(waits.iter().all(|&wait| wait <= BACKOFF_MAX), "{waits:?}");
        assert_eq!(outage.unwrap().since, Instant::ZERO);
    }
}
