//! Wakes the event loop with nanosecond resolution by a timerfd: `epoll_wait` counts in milliseconds.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use weir_flow::clock::{Duration, Instant};

/// A timerfd. It is readable when its time has come.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    /// The time for which it is set.
    armed: Option<Instant>,
    /// How late it wakes us, smoothed.
    late: Duration,
}

impl Timer {
    /// A timer that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd, armed: None, late: Duration::ZERO })
    }

    /// The timer has woken the loop: learns how late that was.
    pub(crate) fn woke(&mut self, now: Instant) {
        let Some(armed) = self.armed.filter(|&armed| armed <= now) else { return };
        let late = now.since(armed).min(LEAD).as_nanos();
        self.late = Duration::from_nanos((7 * self.late.as_nanos() + late) / 8);
    }

    /// How long before a time to wake for work that must not be late; the rest is spent awake.
    pub(crate) const fn lead(&self) -> Duration {
        self.late
    }

    /// Has it expire at `at`, or earlier if it is set so: waking up once too often costs less than setting
    /// it back.
    pub(crate) fn wake_by(&mut self, now: Instant, at: Instant) -> io::Result<()> {
        if self.armed.is_some_and(|armed| armed > now && armed <= at) {
            return Ok(());
        }
        // Zero would switch it off.
        let nanos = at.saturating_since(now).as_nanos().clamp(1, LONGEST);
        let it_value = Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval: once, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value)?;
        self.armed = Some(at);
        Ok(())
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The longest time spent awake.
const LEAD: Duration = Duration::from_micros(100);

/// It is set for a day at most, and again then.
const LONGEST: u64 = 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The lead is how late the timer is most times: one late wake-up changes little, and the lead stays
    /// short.
    #[test]
    fn the_lead_is_what_the_timer_was_late() {
        let mut timer = Timer::new().unwrap();
        let mut now = Instant::ZERO;
        let mut woke = |timer: &mut Timer, late| {
            let at = now + Duration::from_millis(1);
            timer.wake_by(now, at).unwrap();
            now = at + late;
            timer.woke(now);
        };
        assert_eq!(timer.lead(), Duration::ZERO);
        for _ in 0..100 {
            woke(&mut timer, Duration::from_micros(40));
        }
        let lead = timer.lead();
        assert!(lead > Duration::from_micros(39) && lead <= Duration::from_micros(40), "{lead}");
        woke(&mut timer, Duration::from_millis(9));
        assert!(timer.lead() < Duration::from_micros(48), "{}", timer.lead());
        for _ in 0..100 {
            woke(&mut timer, Duration::from_millis(9));
        }
        assert!(timer.lead() <= LEAD, "{}", timer.lead());
    }
}
