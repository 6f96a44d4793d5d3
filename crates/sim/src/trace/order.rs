//! Puts records that are a little out of order in order, and gives them their recorded response times.
//!
//! A record waits here until one is read that is a second younger, so that whatever is at most that far
//! out of order comes out sorted. Records of a format that has completions wait longer: a completion
//! that follows within that time is found.

use super::Record;
use std::collections::{BTreeMap, BTreeSet};
use weir_flow::clock::Duration;

/// How far out of order a record may be.
pub(super) const SLACK: Duration = Duration::from_nanos(1_000_000_000);

/// How long a record waits for its completion.
const COMPLETION: Duration = Duration::from_nanos(60_000_000_000);

/// Most records that wait. The oldest leaves when there are more: a record before it is refused then, and a
/// completion of it is not found, which is counted.
pub(super) const MOST: usize = 65_536;

/// A record and the number of its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) record: Record,
    pub(super) line: u64,
}

/// What identifies the request that was completed: device and first byte. Its size does not: a request
/// that was merged with others behind it is completed with them.
type Place = (u32, u64);

/// A record that came before one that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// By how much.
    pub(super) back: Duration,
    /// It is not too late by time: the other left because more than [`MOST`] waited.
    pub(super) crowded: bool,
}

#[derive(Debug)]
pub(super) struct Order {
    waiting: BTreeMap<(Duration, u64), Placed>,
    /// Those that wait for a completion, of each place the oldest first.
    open: BTreeSet<(Place, (Duration, u64))>,
    completions: bool,
    count: u64,
    newest: Duration,
    /// The time of the one that left last.
    left: Duration,
    /// Those that left without a completion before they had waited long enough for one.
    missed: u64,
}

impl Order {
    /// `completions`: the format says when requests ended, in lines that follow.
    pub(super) const fn new(completions: bool) -> Self {
        Self {
            waiting: BTreeMap::new(),
            open: BTreeSet::new(),
            completions,
            count: 0,
            newest: Duration::ZERO,
            left: Duration::ZERO,
            missed: 0,
        }
    }

    /// Takes a record, unless it is before one that has left.
    pub(super) fn push(&mut self, placed: Placed) -> Result<(), Late> {
        let time = placed.record.time;
        if time < self.left {
            let crowded = self.newest - time <= SLACK;
            return Err(Late { back: self.left - time, crowded });
        }
        let key = (time, self.count);
        self.count += 1;
        self.newest = self.newest.max(time);
        if self.completions {
            self.open.insert((place(&placed.record), key));
        }
        self.waiting.insert(key, placed);
        Ok(())
    }

    /// The oldest open request of this place ended at `time`.
    pub(super) fn complete(&mut self, place: Place, time: Duration) {
        let all = (place, (Duration::ZERO, 0))..=(place, (Duration::MAX, u64::MAX));
        let Some(&open) = self.open.range(all).next() else { return };
        self.open.remove(&open);
        let (_, key) = open;
        if let Some(placed) = self.waiting.get_mut(&key) {
            placed.record.response = (time >= key.0).then(|| time - key.0);
        }
    }

    /// The next record that may leave; at the `end` of the file all may.
    pub(super) fn pop(&mut self, end: bool) -> Option<Placed> {
        let (&key, _) = self.waiting.first_key_value()?;
        let wait = if self.completions { COMPLETION } else { SLACK };
        let early = !end && self.newest - key.0 <= wait;
        if early && self.waiting.len() < MOST {
            return None;
        }
        let placed = self.waiting.remove(&key)?;
        self.left = key.0;
        let open = self.open.remove(&(place(&placed.record), key));
        self.missed += u64::from(open && early);
        Some(placed)
    }

    /// How many left without a completion because too many waited.
    pub(super) const fn missed(&self) -> u64 {
        self.missed
    }
}

const fn place(record: &Record) -> Place {
    (record.device, record.extent.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::request::Op;
    use weir_flow::units::Extent;

    fn placed(time: u64, offset: u64) -> Placed {
        let time = Duration::from_nanos(time);
        let extent = Extent::new(offset, 512);
        let record = Record { time, op: Op::Read, device: 0, extent, response: None };
        Placed { record, line: 0 }
    }

    /// What is at most a second late is sorted, ties in their order; what is later is refused.
    #[test]
    fn records_leave_in_order() {
        let mut order = Order::new(false);
        for (time, offset) in [(5, 0), (3, 512), (3, 1_024), (4, 0)] {
            order.push(placed(time, offset)).unwrap();
            assert!(order.pop(false).is_none());
        }
        order.push(placed(2_000_000_000, 0)).unwrap();
        let out: Vec<_> = std::iter::from_fn(|| order.pop(false))
            .map(|p| (p.record.time.as_nanos(), p.record.extent.offset))
            .collect();
        assert_eq!(out, [(3, 512), (3, 1_024), (4, 0), (5, 0)]);
        let back = Duration::from_nanos(4);
        assert_eq!(order.push(placed(1, 0)), Err(Late { back, crowded: false }));
        assert!(order.pop(true).is_some());
        assert!(order.pop(true).is_none());
    }

    /// The oldest open request of a place gets the response; one of another place does not.
    #[test]
    fn completions_find_their_requests() {
        let mut order = Order::new(true);
        for time in [1, 2] {
            order.push(placed(time, 0)).unwrap();
        }
        order.complete((0, 512), Duration::from_nanos(5));
        order.complete((0, 0), Duration::from_nanos(9));
        let responses = std::iter::from_fn(|| order.pop(true)).map(|p| p.record.response);
        assert_eq!(responses.collect::<Vec<_>>(), [Some(Duration::from_nanos(8)), None]);
        assert!(order.open.is_empty());
    }

    /// When too many wait, the oldest leaves: one before it is refused and not called too late by time, and
    /// the completion that it does not get is counted.
    #[test]
    fn a_crowd_is_not_silent() {
        let mut order = Order::new(true);
        for time in 0..MOST as u64 {
            assert!(order.pop(false).is_none());
            order.push(placed(10 + time, 0)).unwrap();
        }
        order.complete((0, 0), Duration::from_nanos(11));
        let first = order.pop(false).unwrap();
        assert_eq!((first.record.response, order.missed()), (Some(Duration::from_nanos(1)), 0));
        order.push(placed(1_000_000, 512)).unwrap();
        assert!(order.pop(false).unwrap().record.response.is_none());
        assert_eq!(order.missed(), 1);
        let back = Duration::from_nanos(3);
        assert_eq!(order.push(placed(8, 0)), Err(Late { back, crowded: true }));
        while order.pop(true).is_some() {}
        assert_eq!((order.missed(), order.open.len()), (1, 0));
    }
}
