//! How wide epochs become where each acknowledgement ends one: the batch that begins an epoch waits for the other writes
//! that hosts have outstanding.
//!
//! | | |
//! |---|---|
//! | Model    | an epoch takes a round trip upstream, however small, and hosts without a log have all that they have outstanding written in one; a log that answers sooner than hosts send splits that into many epochs |
//! | Begins   | while hosts would fill a part of the log, without one, in the time that write-back needs for its epochs |
//! | Holds    | until as many writes wait as hosts had outstanding lately, or fill a batch |
//! | Ends     | when nothing has come or gone for an eighth of a round trip, or after half of one in all; then hosts have no more outstanding |
//! | Learns   | each 32nd batch waits for as long as it may, however many there are: a log that is faster than its hosts sees one write at a time |
//! | Ties     | none: it decides when a batch begins, and not what is in it |
//! | Cost     | O(1) for each write |
//! | Not for  | hosts that all flush, unless the order is `strict`: their epochs end by flushes alone |
//!
//! Never held: hosts with one write at a time, a log that write-back keeps up with, an epoch that has begun. Source:
//! `docs/decisions/0029-full-log.md`.

use crate::clock::{Duration, Instant};

/// What hosts have outstanding, and until when a batch waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Width {
    /// The most writes that waited or were being committed at once, as far as hosts still have that number.
    expected: usize,
    /// The last time that a write came, or that anything was acknowledged.
    moved: Instant,
    /// Since when the batch waits, and until when if nothing more happens.
    began: Option<Instant>,
    until: Option<Instant>,
    /// Batches that went because all were there, since one waited for as long as it may.
    met: u32,
}

/// The batch that could begin now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Writes that wait, and the most that a batch takes.
    pub(super) waiting: usize,
    pub(super) most: usize,
    /// What a small write upstream takes.
    pub(super) trip: Duration,
}

impl Width {
    /// A write has come; with it hosts have this number outstanding.
    pub(super) fn arrived(&mut self, now: Instant, outstanding: usize) {
        self.moved = now;
        self.expected = self.expected.max(outstanding);
    }

    /// A write or a flush was acknowledged: its host may continue.
    pub(super) const fn acked(&mut self, now: Instant) {
        self.moved = now;
    }

    /// How many writes hosts have outstanding.
    pub(super) const fn expected(&self) -> usize {
        self.expected
    }

    /// Whether this batch waits for more writes; `None` is one that never does.
    pub(super) fn holds(&mut self, now: Instant, batch: Option<Candidate>) -> bool {
        self.until = batch.and_then(|batch| {
            let met = batch.waiting >= self.expected.min(batch.most);
            if batch.waiting >= batch.most || (met && self.met < PROBE) {
                self.met += 1;
                return None;
            }
            // The limit counts from the first wait: acknowledgements of other hosts, as of flushes, do not move it.
            let (trip, began) = (batch.trip.as_nanos(), self.began.unwrap_or(now));
            let quiet = self.moved + Duration::from_nanos(trip / QUIET);
            let until = quiet.min(began + Duration::from_nanos(trip / LONGEST));
            if now >= until {
                (self.expected, self.met) = (batch.waiting, 0);
                return None;
            }
            Some(until)
        });
        self.began = self.until.and(self.began.or(Some(now)));
        self.until.is_some()
    }

    /// When the batch that waits goes as it is.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

/// Parts of a round trip: see the head of this file.
const QUIET: u64 = 8;
const LONGEST: u64 = 2;

/// After this number of batches one waits although all seem to be there.
const PROBE: u32 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(16);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn batch(waiting: usize) -> Candidate {
        Candidate { waiting, most: 256, trip: TRIP }
    }

    /// Hosts that had eight writes outstanding, which were answered after 10 ms.
    fn eight() -> Width {
        let mut width = Width::default();
        (1..=8).for_each(|count| width.arrived(at(0), count));
        width.acked(at(10));
        width
    }

    /// A batch goes as soon as all are there, or as many as it takes.
    #[test]
    fn a_batch_waits_for_all() {
        let mut width = eight();
        assert!(width.holds(at(11), Some(batch(7))) && width.until().is_some());
        assert!(!width.holds(at(11), Some(batch(8))) && width.until().is_none());
        let short = Candidate { most: 4, ..batch(4) };
        assert!(!width.holds(at(11), Some(short)), "a batch takes no more");
    }

    /// Hosts that have fewer outstanding than before wait once, and no longer than promised.
    #[test]
    fn a_host_that_stops_costs_one_wait() {
        let mut width = eight();
        width.arrived(at(11), 1);
        assert!(width.holds(at(11), Some(batch(1))));
        assert_eq!(width.until(), Some(at(13)), "an eighth of a round trip after the last one");
        assert!(!width.holds(at(13), Some(batch(1))));
        assert!(!width.holds(at(14), Some(batch(1))), "it is known now");
    }

    /// Writes that come one after the other are waited for half a round trip.
    #[test]
    fn a_trickle_is_not_waited_for_all_day() {
        let mut width = eight();
        for count in 1..=7 {
            width.arrived(at(10 + count), count as usize);
            assert!(width.holds(at(10 + count), Some(batch(count as usize))));
        }
        assert!(!width.holds(at(19), Some(batch(7))));
    }

    /// What other hosts have acknowledged meanwhile, as their flushes, does not make a batch wait for longer.
    #[test]
    fn flushes_of_others_extend_no_wait() {
        let mut width = eight();
        width.arrived(at(11), 1);
        for millis in 11..19 {
            assert!(width.holds(at(millis), Some(batch(1))), "after {millis} ms");
            width.acked(at(millis));
        }
        assert!(
            !width.holds(at(19), Some(batch(1))),
            "half of a round trip after it began to wait"
        );
    }

    /// A host with one write at a time waits with each 32nd at most.
    #[test]
    fn one_at_a_time_goes_at_once() {
        let mut width = Width::default();
        let mut held = 0;
        for i in 0..3200 {
            width.arrived(at(100 * i), 1);
            if width.holds(at(100 * i), Some(batch(1))) {
                held += 1;
                assert!(!width.holds(at(100 * i + 2), Some(batch(1))));
            }
            width.acked(at(100 * i + 3));
        }
        assert_eq!(held, 100);
    }

    /// A host that is slower than the log has one write in it at a time: that it has more outstanding is found out.
    #[test]
    fn a_slow_host_is_known() {
        let (mut width, mut now, mut widest) = (Width::default(), 0, 0);
        let mut waiting = 0;
        for _ in 0..200 {
            now += 1;
            waiting += 1;
            width.arrived(at(now), waiting);
            if !width.holds(at(now), Some(batch(waiting))) {
                widest = widest.max(waiting);
                waiting = 0;
                width.acked(at(now));
            }
        }
        assert!(widest >= 8, "half of a round trip, a write each millisecond: {widest}");
        assert_eq!(width.expected(), widest);
    }
}
