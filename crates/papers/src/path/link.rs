//! A path as a link: one I/O after the other, in the order in which they were given to it.

/// What an I/O takes on a path that it has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Nanoseconds for every I/O.
    pub(super) fixed: u64,
    /// Bytes per second, at least one.
    pub(super) rate: u64,
}

impl Link {
    /// Nanoseconds for an I/O of this many bytes, rounded down.
    pub(super) fn service(self, bytes: u64) -> u64 {
        let transfer = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        self.fixed + u64::try_from(transfer).expect("no I/O takes 584 years")
    }
}

/// A time in which a link does not do what it should, and says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// From when to when, in nanoseconds.
    pub(super) from: u64,
    pub(super) until: u64,
    /// How many times slower everything is; `None` when nothing moves.
    pub(super) slower: Option<u64>,
}

impl Trouble {
    /// When an I/O ends that begins at `start` and takes `service` nanoseconds on a link without a fault.
    pub(super) fn end(self, start: u64, service: u64) -> u64 {
        let well = self.from.saturating_sub(start);
        if service <= well || start >= self.until {
            return start + service;
        }
        let (left, begin) = (service - well, start.max(self.from));
        let Some(slower) = self.slower else { return self.until + left };
        let room = self.until - begin;
        let end = begin.saturating_add(left.saturating_mul(slower));
        if end <= self.until { end } else { self.until + left - room / slower }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An I/O takes its fixed time and its bytes at the rate; 64 KiB at 400 MB/s take 163.84 us.
    #[test]
    fn service_is_fixed_plus_bytes() {
        assert_eq!(Link { fixed: 10_000, rate: 400_000_000 }.service(65_536), 173_840);
        assert_eq!(Link { fixed: 0, rate: 1_000_000_000 }.service(50_000_000), 50_000_000);
    }

    /// What lies in the slow time counts a tenth, what lies before or after it counts in full.
    #[test]
    fn trouble_slows_what_it_meets() {
        let slow = Trouble { from: 100, until: 200, slower: Some(10) };
        assert_eq!(slow.end(0, 100), 100);
        assert_eq!(slow.end(0, 105), 150);
        assert_eq!(slow.end(0, 110), 200);
        assert_eq!(slow.end(0, 130), 220);
        assert_eq!(slow.end(150, 5), 200);
        assert_eq!(slow.end(150, 15), 210);
        assert_eq!(slow.end(200, 15), 215);
    }

    /// Nothing moves in a stall; I/Os continue after it.
    #[test]
    fn a_stall_adds_itself() {
        let stall = Trouble { from: 100, until: 200, slower: None };
        assert_eq!(stall.end(90, 10), 100);
        assert_eq!(stall.end(90, 15), 205);
        assert_eq!(stall.end(150, 15), 215);
        assert_eq!(stall.end(250, 15), 265);
    }
}
