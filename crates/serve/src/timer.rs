//! A timer that is late by the scheduler alone: poll(2) and its like count in milliseconds.

#![expect(unsafe_code, reason = "the standard library has no timer to wait for beside sockets")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use weir_flow::clock::Instant;

/// A timerfd: readable from its time on.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    /// The time for which it is set.
    armed: Option<Instant>,
}

impl Timer {
    /// A timer that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: the call takes no memory of ours.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made the descriptor, and nobody else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, armed: None })
    }

    /// Has it expire at `at`, or earlier if it is set so: waking up once too often costs less than setting
    /// it back.
    pub(crate) fn wake_by(&mut self, now: Instant, at: Instant) -> io::Result<()> {
        if self.armed.is_some_and(|armed| armed > now && armed <= at) {
            return Ok(());
        }
        // Zero would switch it off.
        let nanos = at.saturating_since(now).as_nanos().clamp(1, LONGEST);
        let it_value = libc::timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::itimerspec { it_interval: none, it_value };
        // SAFETY: the call reads a live structure of the type that it expects, and writes nothing.
        let result = unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), 0, &raw const value, std::ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.armed = Some(at);
        Ok(())
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// It is set for a day at most, and again then.
const LONGEST: u64 = 86_400 * 1_000_000_000;
