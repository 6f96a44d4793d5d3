//! Delays errors to hosts that repeat commands to a volume that is withdrawn.
//!
//! A gateway that is fenced refuses every command at once, and a host that repeats them without a pause would keep the
//! event loop and the log busy with thousands of errors a second.

use weir_flow::clock::{Duration, Instant};

/// The errors that one connection got lately: a burst leaves at once, so that a multipath host changes paths without
/// a delay; the others leave at a bounded rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brake {
    /// When all errors so far would have left at [`INTERVAL`].
    paid: Instant,
}

impl Brake {
    /// When to send the error of a command that was refused at `now`; `None`: at once.
    pub(crate) fn delay(&mut self, now: Instant) -> Option<Instant> {
        // An error waits for at most `DELAY_MAX`, so the debt does not grow beyond that.
        self.paid = (self.paid.max(now) + INTERVAL).min(now + BURST + DELAY_MAX);
        let early = self.paid.saturating_since(now + BURST);
        (early > Duration::ZERO).then(|| now + early)
    }
}

/// The time between two errors, if a host does not wait between its commands.
const INTERVAL: Duration = Duration::from_millis(50);

/// The errors that leave at once, as a multiple of [`INTERVAL`]: 32.
const BURST: Duration = Duration::from_millis(32 * 50);

/// The longest delay of an error: well below the time-outs of hosts.
const DELAY_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that repeats a refused command at once gets 32 errors at once and 20 a second from then on; with 128
    /// commands outstanding, none waits for more than a second; and after a pause a burst leaves at once again.
    #[test]
    fn errors_are_delayed_and_none_for_long() {
        let second = Duration::from_secs(1);
        let (mut brake, mut now, mut errors) = (Brake::default(), Instant::ZERO + second, 0);
        let end = now + Duration::from_secs(10);
        while now < end {
            now = brake.delay(now).unwrap_or(now);
            errors += 1;
        }
        assert!((230..=233).contains(&errors), "{errors} errors in 10 s");
        let late = (0..128).filter_map(|_| brake.delay(now)).max();
        assert_eq!(late, Some(now + DELAY_MAX));
        now = now + DELAY_MAX + BURST;
        assert_eq!((0..32).find_map(|_| brake.delay(now)), None);
        assert!(brake.delay(now).is_some());
    }
}
