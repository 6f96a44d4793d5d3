//! Start-time fair queueing: the tags by which tenants share what they compete for.
//!
//! A request starts at the virtual time or where its tenant's last one finished, whichever is later,
//! and finishes `cost / iops` later. The smallest start goes first; the virtual time is the start of the
//! one that went last. A tag is a whole number of `2^-40` virtual seconds: each request's share is cut
//! below that, which after a million requests is less than a microsecond.

use super::simple::SimpleContract;
use crate::control::contract::TOKEN;
use alloc::vec::Vec;

/// A time of the virtual clock, in `2^-40` s.
pub(super) type Tag = u128;

/// The tags of all tenants.
#[derive(Clone, Debug)]
pub(super) struct Fair {
    now: Tag,
    finish: Vec<Tag>,
    iops: Vec<u32>,
}

impl Fair {
    pub(super) fn new(promises: &[SimpleContract]) -> Self {
        let iops: Vec<u32> = promises.iter().map(|promise| promise.iops).collect();
        Self { now: 0, finish: iops.iter().map(|_| 0).collect(), iops }
    }

    /// Where a line's next request would start.
    pub(super) fn start(&self, line: usize) -> Tag {
        self.now.max(self.finish[line])
    }

    /// Gives a line's next request its tag.
    pub(super) fn tag(&mut self, line: usize, cost: u64) -> Tag {
        let start = self.start(line);
        let share = (u128::from(cost) << 40) / (u128::from(self.iops[line]) * u128::from(TOKEN));
        self.finish[line] = start + share;
        start
    }

    /// A request with this start has gone.
    pub(super) fn gone(&mut self, start: Tag) {
        assert!(start >= self.now, "virtual time ran backwards");
        self.now = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Virtual time does not run backwards.
    #[test]
    #[should_panic(expected = "ran backwards")]
    fn virtual_time_is_monotone() {
        let mut fair = Fair::new(&[]);
        fair.gone(1);
        fair.gone(0);
    }
}
