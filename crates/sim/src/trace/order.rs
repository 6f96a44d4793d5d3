//! Puts records that are a little out of order in order, and gives them their recorded response times.
//!
//! A record waits here until one is read that is more than a second younger, so that whatever is at most that
//! far out of order comes out sorted; what is further back is refused. Records of a format that has
//! completions wait longer: a completion that follows within that time is found.

use super::Record;
use std::collections::{BTreeMap, BTreeSet};
use weir_flow::clock::Duration;

/// How far out of order a record may be: how long before the newest.
pub(super) const SLACK: Duration = Duration::from_nanos(1_000_000_000);

/// How long a record waits for its completion.
const COMPLETION: Duration = Duration::from_nanos(60_000_000_000);

/// Most records that wait to be sorted and to be completed. The oldest leaves when there are more: a record before it is refused then, and
/// its completion comes too late for it, which is counted.
pub const MOST: usize = 65_536;

/// Most records that have left and whose completion may still come. Of more, the oldest are forgotten: the
/// completion of one of those is taken for that of the next request at its place.
const MOST_GONE: usize = 262_144;

/// A record and where it is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) record: Record,
    /// Its line, or its first byte in a binary file.
    pub(super) at: u64,
}

/// What identifies the request that was completed: device and first byte. Its size does not: a request
/// that was merged with others behind it is completed with them.
type Place = (u32, u64);

/// When a record came, and the number of those that were read before it.
type Key = (Duration, u64);

/// A record is too late to be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// The newest record.
    pub(super) newest: After,
    /// The record that left last, if this one is not too late by time: more than [`MOST`] waited.
    pub(super) left: Option<After>,
}

/// A record that is after the late one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct After {
    /// By how much.
    pub(super) by: Duration,
    /// Its line, or its first byte.
    pub(super) at: u64,
}

#[derive(Debug)]
pub(super) struct Order {
    waiting: BTreeMap<Key, Placed>,
    /// Those that expect a completion, of each place the oldest first.
    open: BTreeSet<(Place, Key)>,
    /// Those of `open` that have left: each takes its completion, so that the next at its place does not.
    gone: BTreeMap<Key, Place>,
    completions: bool,
    /// A completion was read.
    completed: bool,
    count: u64,
    /// Time and place of the newest record.
    newest: (Duration, u64),
    /// Time and place of the one that left last.
    left: (Duration, u64),
    /// Those that left without a completion before they had waited long enough for one.
    missed: u64,
}

impl Order {
    /// `completions`: the format says when requests ended, in lines that follow.
    pub(super) const fn new(completions: bool) -> Self {
        Self {
            waiting: BTreeMap::new(),
            open: BTreeSet::new(),
            gone: BTreeMap::new(),
            completions,
            completed: false,
            count: 0,
            newest: (Duration::ZERO, 0),
            left: (Duration::ZERO, 0),
            missed: 0,
        }
    }

    /// Takes a record, unless it is too long before the newest, or before one that has left.
    pub(super) fn push(&mut self, placed: Placed) -> Result<(), Late> {
        let time = placed.record.time;
        let after = |(than, at)| (than > time).then(|| After { by: than - time, at });
        if let Some(newest) = after(self.newest) {
            let left = after(self.left);
            if newest.by > SLACK {
                return Err(Late { newest, left: None });
            }
            if left.is_some() {
                return Err(Late { newest, left });
            }
        } else {
            self.newest = (time, placed.at);
        }
        let key = (time, self.count);
        self.count += 1;
        if self.completions {
            self.open.insert((place(&placed.record), key));
        }
        self.waiting.insert(key, placed);
        self.forget();
        Ok(())
    }

    /// Forgets those that have left and have waited long enough, or are too many.
    fn forget(&mut self) {
        while let Some((&key, &place)) = self.gone.first_key_value() {
            if self.newest.0 - key.0 <= COMPLETION && self.gone.len() <= MOST_GONE {
                return;
            }
            self.gone.remove(&key);
            self.open.remove(&(place, key));
        }
    }

    /// The oldest open request of this place, of those that had begun, ended at `time`.
    pub(super) fn complete(&mut self, place: Place, time: Duration) {
        self.completed = true;
        let begun = (place, (Duration::ZERO, 0))..=(place, (time, u64::MAX));
        let Some(&open) = self.open.range(begun).next() else { return };
        self.open.remove(&open);
        let (_, key) = open;
        self.gone.remove(&key);
        if let Some(placed) = self.waiting.get_mut(&key) {
            placed.record.response = Some(time - key.0);
        }
    }

    /// The next record that may leave; at the `end` of the file all may.
    pub(super) fn pop(&mut self, end: bool) -> Option<Placed> {
        let (&key, _) = self.waiting.first_key_value()?;
        let wait = if self.completions { COMPLETION } else { SLACK };
        let early = !end && self.newest.0 - key.0 <= wait;
        if early && self.waiting.len() <= MOST {
            return None;
        }
        let placed = self.waiting.remove(&key)?;
        self.left = (key.0, placed.at);
        let place = place(&placed.record);
        if !early {
            self.open.remove(&(place, key));
        } else if self.open.contains(&(place, key)) {
            self.missed += 1;
            self.gone.insert(key, place);
        }
        Some(placed)
    }

    /// How many left without a completion because too many waited. None did in a file without completions.
    pub(super) const fn missed(&self) -> u64 {
        if self.completed { self.missed } else { 0 }
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

    fn placed(at: u64, offset: u64) -> Placed {
        let time = Duration::from_nanos(at);
        let extent = Extent::new(offset, 512);
        let record = Record { time, op: Op::Read, device: 0, extent, response: None };
        Placed { record, at }
    }

    fn after(by: u64, at: u64) -> After {
        After { by: Duration::from_nanos(by), at }
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
        let late = Late { newest: after(1_999_999_999, 2_000_000_000), left: None };
        assert_eq!(order.push(placed(1, 0)), Err(late));
        assert!(order.pop(true).is_some());
        assert!(order.pop(true).is_none());
    }

    /// The newest record decides what is too late, not what has left: a second is accepted, a nanosecond
    /// more is not, also where records wait longer for completions.
    #[test]
    fn lateness_counts_from_the_newest() {
        for completions in [false, true] {
            let mut order = Order::new(completions);
            order.push(placed(0, 0)).unwrap();
            order.push(placed(10_000_000_000, 0)).unwrap();
            while order.pop(false).is_some() {}
            order.push(placed(9_000_000_000, 0)).unwrap();
            let late = Late { newest: after(1_000_000_001, 10_000_000_000), left: None };
            assert_eq!(order.push(placed(8_999_999_999, 0)), Err(late));
        }
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

    /// A completion is not of a request that began after it: that one stays open for its own.
    #[test]
    fn a_completion_is_of_a_request_that_had_begun() {
        let mut order = Order::new(true);
        order.push(placed(10, 0)).unwrap();
        order.complete((0, 0), Duration::from_nanos(5));
        order.complete((0, 0), Duration::from_nanos(20));
        assert_eq!(order.pop(true).unwrap().record.response, Some(Duration::from_nanos(10)));
    }

    /// Fills the order with requests at one place: as many as may wait, from 10 ns on.
    fn full() -> Order {
        let mut order = Order::new(true);
        for time in 0..MOST as u64 {
            order.push(placed(10 + time, 0)).unwrap();
            assert!(order.pop(false).is_none());
        }
        order
    }

    /// When more wait than may, the oldest leaves: one before it is refused and not called too late by time,
    /// and the completion that it does not get is counted.
    #[test]
    fn a_crowd_is_not_silent() {
        let mut order = full();
        order.push(placed(8, 0)).unwrap();
        assert_eq!(order.pop(false).unwrap().at, 8);
        order.complete((0, 0), Duration::from_nanos(9));
        order.complete((0, 0), Duration::from_nanos(11));
        order.push(placed(1_000_000, 512)).unwrap();
        let first = order.pop(false).unwrap();
        assert_eq!((first.record.response, order.missed()), (Some(Duration::from_nanos(1)), 1));
        order.push(placed(1_000_001, 512)).unwrap();
        assert!(order.pop(false).unwrap().record.response.is_none());
        assert_eq!(order.missed(), 2);
        let late = Late { newest: after(999_993, 1_000_001), left: Some(after(3, 11)) };
        assert_eq!(order.push(placed(8, 0)), Err(late));
        while order.pop(true).is_some() {}
        assert_eq!(order.missed(), 2);
    }

    /// A request that has left takes its completion, which is not that of the next one at its place. It does
    /// for a minute, or until too many have left.
    #[test]
    fn a_request_that_left_takes_its_completion() {
        let mut order = full();
        order.push(placed(1_000_000, 512)).unwrap();
        assert_eq!(order.pop(false).unwrap().at, 10);
        order.complete((0, 0), Duration::from_nanos(1_000));
        order.complete((0, 0), Duration::from_nanos(1_011));
        let second = order.pop(true).unwrap();
        assert_eq!((second.at, second.record.response), (11, Some(Duration::from_nanos(1_000))));
        assert!(order.gone.is_empty());

        let mut order = full();
        order.push(placed(1_000_000, 512)).unwrap();
        assert!(order.pop(false).is_some());
        assert_eq!(order.gone.len(), 1);
        order.push(placed(61_000_000_000, 512)).unwrap();
        assert!(order.gone.is_empty());

        let mut order = full();
        for time in 0..MOST_GONE as u64 + 9 {
            order.push(placed(1_000_000 + time, 0)).unwrap();
            assert!(order.pop(false).is_some());
        }
        order.push(placed(2_000_000, 0)).unwrap();
        assert_eq!((order.gone.len(), order.open.len()), (MOST_GONE, MOST_GONE + MOST + 1));
    }

    /// In a file without completions none was missed.
    #[test]
    fn without_completions_none_is_missed() {
        let mut order = full();
        order.push(placed(1_000_000, 512)).unwrap();
        assert!(order.pop(false).is_some());
        assert_eq!(order.missed(), 0);
        order.complete((9, 9), Duration::from_nanos(1));
        assert_eq!(order.missed(), 1);
    }
}
