//! Measures how much of its time the event loop works.

use weir_flow::clock::{Duration, Instant};

/// The time that the event loop sleeps, by windows between ticks.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Begin of the window.
    since: Instant,
    /// Sleep in the window.
    asleep: Duration,
    /// Work in the last complete window, in 1000ths of it.
    busy: u32,
    /// Sleep since the start.
    slept: Duration,
}

impl Load {
    /// The loop has slept.
    pub(super) fn slept(&mut self, time: Duration) {
        self.asleep += time;
        self.slept += time;
    }

    /// Ends a window, unless it is short: a sleep must not be larger than it.
    pub(super) fn tick(&mut self, now: Instant) {
        let window = now.saturating_since(self.since);
        if window < WINDOW_MIN {
            return;
        }
        let worked = window.as_nanos().saturating_sub(self.asleep.as_nanos());
        self.busy = (worked.saturating_mul(1_000) / window.as_nanos()) as u32;
        (self.since, self.asleep) = (now, Duration::ZERO);
    }

    /// Sleep since the start.
    pub(super) const fn all_sleep(&self) -> Duration {
        self.slept
    }

    /// Work in the last complete window, in 1000ths of it.
    pub(super) const fn busy(&self) -> u32 {
        self.busy
    }
}

/// The shortest window.
const WINDOW_MIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not sleep is work, in each window by itself.
    #[test]
    fn work_is_what_is_not_sleep() {
        let mut load = Load::default();
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        load.slept(Duration::from_millis(300));
        load.tick(at(400));
        assert_eq!(load.busy(), 0, "the window is not over");
        load.tick(at(1_000));
        assert_eq!(load.busy(), 700);
        load.tick(at(2_000));
        assert_eq!(load.busy(), 1_000);
        load.slept(Duration::from_secs(1));
        load.tick(at(3_000));
        assert_eq!(load.busy(), 0);
        assert_eq!(load.all_sleep(), Duration::from_millis(1_300));
    }
}
