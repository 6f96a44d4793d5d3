//! Time as an argument: an instant and a duration in whole nanoseconds.
//!
//! There is no `now` here. The shell reads a clock, the simulator turns one by hand; a policy is
//! told. Subtracting a later instant from an earlier one is a bug of the caller and panics.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// A point in time: nanoseconds since the run began. Range: 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The beginning of the run.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the run began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`. Panics if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration(self.0.checked_sub(earlier.0).expect("time runs forward"))
    }

    /// Time passed since `earlier`, or zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.checked_add(rhs.0).expect("an instant fits 584 years"))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

/// A length of time in nanoseconds. Range: 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest duration, used as "never".
    pub const MAX: Self = Self(u64::MAX);

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The whole length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds as a float, for reports only.
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Duration {
    type Output = Self;

    fn add(self, rhs: Self) -> Self {
        Self(self.0.checked_add(rhs.0).expect("a duration fits 584 years"))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Duration {
    type Output = Self;

    fn sub(self, rhs: Self) -> Self {
        Self(self.0.checked_sub(rhs.0).expect("a duration is never negative"))
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, rhs: Self) {
        *self = *self - rhs;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;

    fn mul(self, rhs: u64) -> Self {
        Self(self.0.checked_mul(rhs).expect("a duration fits 584 years"))
    }
}

/// Shown in the largest unit that keeps a whole part: `17 ns`, `4.200 us`, `2.180 ms`, `1.500 s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let thousandths = (self.0 % unit) * 1_000 / unit;
        write!(f, "{}.{thousandths:03} {name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Each magnitude is shown in its own unit, cut rather than rounded.
    #[test]
    fn durations_read_well() {
        assert_eq!(Duration::from_nanos(17).to_string(), "17 ns");
        assert_eq!(Duration::from_nanos(4_200).to_string(), "4.200 us");
        assert_eq!(Duration::from_nanos(2_180_999).to_string(), "2.180 ms");
        assert_eq!(Duration::from_millis(1_500).to_string(), "1.500 s");
    }

    /// Going backwards is a bug, not a large number.
    #[test]
    #[should_panic(expected = "time runs forward")]
    fn backwards_is_a_bug() {
        let _ = Instant::ZERO.since(Instant::from_nanos(1));
    }
}
