//! Quantities that carry their unit in the type.

use crate::clock::Duration;
use core::fmt;
use core::num::NonZeroU64;

/// A contiguous range of bytes on a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes; zero for a request without a range, such as a flush.
    pub length: u64,
}

impl Extent {
    /// The range of `length` bytes from `offset`.
    pub const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length }
    }

    /// The first byte after the range, or `None` past the end of the address space.
    pub const fn end(self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }

    /// Whether the two ranges share a byte. An empty range shares none.
    pub const fn overlaps(self, other: Self) -> bool {
        self.length > 0
            && other.length > 0
            && self.offset < other.offset.saturating_add(other.length)
            && other.offset < self.offset.saturating_add(self.length)
    }
}

/// Bytes per second, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(NonZeroU64);

impl Bandwidth {
    /// `bytes` per second; `None` for zero, which would never end.
    pub const fn per_second(bytes: u64) -> Option<Self> {
        match NonZeroU64::new(bytes) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    /// Bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0.get()
    }

    /// The time that `bytes` take, rounded up to a whole nanosecond.
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A number of bytes, shown with a binary unit when that loses nothing: `4 KiB`, `1537 B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (size, name) in units {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{} {name}", self.0 / size);
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Touching is not overlapping; an empty range overlaps nothing, not even itself.
    #[test]
    fn overlap_needs_a_common_byte() {
        let a = Extent::new(0, 10);
        assert!(a.overlaps(Extent::new(9, 1)));
        assert!(!a.overlaps(Extent::new(10, 1)));
        assert!(!a.overlaps(Extent::new(5, 0)));
        assert!(Extent::new(u64::MAX - 1, 10).overlaps(Extent::new(u64::MAX - 1, 1)));
    }

    /// A transfer is never shorter than its bytes allow.
    #[test]
    fn transfer_time_rounds_up() {
        let link = Bandwidth::per_second(3).unwrap();
        assert_eq!(link.time_for(1), Duration::from_nanos(333_333_334));
        assert_eq!(link.time_for(0), Duration::ZERO);
    }

    #[test]
    fn byte_counts_read_well() {
        assert_eq!(ByteCount(4096).to_string(), "4 KiB");
        assert_eq!(ByteCount(1537).to_string(), "1537 B");
        assert_eq!(ByteCount(0).to_string(), "0 B");
    }
}
