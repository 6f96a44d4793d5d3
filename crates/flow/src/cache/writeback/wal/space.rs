//! The segments of a log: live, free or bad, and how full the log is.
//!
//! A segment is live until all its records are upstream, or superseded, or durable in copies, a super block that gives it up
//! is durable, and no read uses it: before, its place must not be written over. Segments leave in the order
//! in which they came. Places are taken in ring order, one stays in reserve for when writing fails.

use super::super::format::{PAGE, SUPERS, SegmentHead};
use super::super::settings::Settings;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A promise that log space is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin(u64);

/// A segment that has records, as recovery finds it and the log continues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Its place on the device.
    pub(crate) slot: u64,
    /// Its first record, if it has any.
    pub(crate) first: u64,
    /// Its last record; one less than `first` if it has none.
    pub(crate) last: u64,
    /// Bytes in use, its header with them.
    pub(crate) length: u64,
    /// Bytes of these that are durable: nothing while its header is not.
    pub(crate) sealed: u64,
    /// Bytes of log before it: what is full of holes still counts whole.
    pub(crate) position: u64,
    /// Nothing is to be added.
    pub(crate) frozen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Live,
    /// Its segment is not needed any more; free when a super block says so and older pins are gone.
    Retired {
        number: u64,
        pins: u64,
    },
    /// Writing to it has failed: it is used when there is no other.
    Bad,
}

/// All segments.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    segment: u64,
    slots: Vec<Slot>,
    live: VecDeque<Segment>,
    next_number: u64,
    /// What the durable super block names.
    oldest_marked: u64,
    pins: BTreeSet<Pin>,
    next_pin: u64,
    position: u64,
    /// Segments up to this number have nothing that is needed.
    cleaned: u64,
}

impl Space {
    /// What recovery has found, `oldest_marked` in the super block; records up to `durable` are durable, others may only seem
    /// to be there until [`opened`](Self::opened).
    pub(crate) fn new(
        settings: &Settings,
        live: &[Segment],
        (oldest_marked, next_number): (u64, u64),
        durable: u64,
    ) -> Self {
        let mut slots = alloc::vec![Slot::Free; settings.segments() as usize];
        for segment in live {
            slots[segment.slot as usize] = Slot::Live;
        }
        let mut live: VecDeque<Segment> = live.iter().copied().collect();
        let mut position = 0;
        for segment in &mut live {
            (segment.frozen, segment.position) = (true, position);
            if segment.first > durable {
                segment.sealed = 0;
            }
            position += settings.segment;
        }
        Self {
            segment: settings.segment,
            slots,
            live,
            next_number,
            oldest_marked,
            pins: BTreeSet::new(),
            next_pin: 0,
            position,
            cleaned: 0,
        }
    }

    /// What recovery has found is durable.
    pub(crate) fn opened(&mut self) {
        for segment in &mut self.live {
            segment.sealed = segment.length;
        }
    }

    /// Where a place is on the device.
    pub(crate) const fn at(slot: u64, segment: u64) -> u64 {
        SUPERS + slot * segment
    }

    /// All places, in the order in which they are tried for the segment after the one in `last`.
    pub(crate) fn ring(last: Option<u64>, count: u64) -> impl Iterator<Item = u64> {
        let first = last.map_or(0, |last| last + 1);
        (0..count).map(move |i| (first + i) % count)
    }

    /// The segment that is written to.
    pub(crate) fn head(&self) -> Option<&Segment> {
        self.live.back().filter(|head| !head.frozen)
    }

    pub(crate) fn head_mut(&mut self) -> Option<&mut Segment> {
        self.live.back_mut().filter(|head| !head.frozen)
    }

    /// Bytes left in the segment that is written to.
    pub(crate) fn room(&self) -> u64 {
        self.head().map_or(0, |head| self.segment - head.length)
    }

    /// Whether a new segment may be begun; in need the reserve is there to be used. A place where writing
    /// has failed is good enough for that: the next write may fail there, but a log without any
    /// place would never continue.
    pub(crate) fn can_open(&self, need: bool) -> bool {
        let usable = |&&slot: &&Slot| slot == Slot::Free || slot == Slot::Bad;
        self.slots.iter().filter(usable).take(2).count() > usize::from(!need)
    }

    /// The oldest segment, if it may be cleaned: two newer ones are live.
    pub(crate) fn cleanable(&self) -> Option<&Segment> {
        self.live.front().filter(|front| front.frozen && self.live.len() > 2)
    }

    /// Whether there is room for copies of a whole segment, with one place more and the reserve.
    pub(crate) fn has_room_for_copies(&self) -> bool {
        self.slots.iter().filter(|&&slot| slot == Slot::Free).take(3).count() == 3
    }

    /// The oldest segment that is needed.
    pub(crate) fn front(&self) -> Option<&Segment> {
        self.live.front()
    }

    /// The oldest segment has nothing that is needed.
    pub(crate) fn clean(&mut self) {
        self.cleaned = self.oldest();
    }

    /// Begins a segment whose first record is `first`, in this epoch; what its header is to say but for progress.
    pub(crate) fn open(
        &mut self,
        log: [u8; 16],
        owner: u64,
        (first, epoch): (u64, u64),
    ) -> (u64, SegmentHead) {
        let ring = || Self::ring(self.live.back().map(|last| last.slot), self.slots.len() as u64);
        let find = |wanted| ring().find(|&slot| self.slots[slot as usize] == wanted);
        let slot = find(Slot::Free).or_else(|| find(Slot::Bad));
        let slot = slot.expect("the caller has asked whether one is free");
        let (previous, sealed) = match self.live.back_mut() {
            Some(last) => {
                last.frozen = true;
                (last.number, last.sealed)
            }
            None => (0, 0),
        };
        let number = self.next_number;
        self.next_number += 1;
        self.slots[slot as usize] = Slot::Live;
        self.live.push_back(Segment {
            number,
            slot,
            first,
            last: first - 1,
            length: PAGE,
            sealed: 0,
            position: self.position,
            frozen: false,
        });
        self.position += self.segment;
        self.check();
        let head = SegmentHead {
            log,
            number,
            first,
            owner,
            previous,
            sealed,
            oldest: self.oldest(),
            durable: 0,
            applied: 0,
            epoch,
        };
        (Self::at(slot, self.segment), head)
    }

    /// What has been written is durable.
    pub(crate) fn seal(&mut self) {
        if let Some(head) = self.head_mut() {
            head.sealed = head.length;
        }
    }

    /// Writing has failed: nothing is added to this segment any more, and its end is what was durable,
    /// up to record `durable`. If nothing was, the segment never was.
    pub(crate) fn freeze(&mut self, durable: u64) {
        let Some(head) = self.head_mut() else { return };
        (head.length, head.last, head.frozen) = (head.sealed, durable, true);
        let (slot, sealed) = (head.slot as usize, head.sealed);
        if sealed == 0 {
            self.live.pop_back();
            self.slots[slot] = Slot::Bad;
            self.position -= self.segment;
        }
        self.check();
    }

    /// Every place is free, bad, or of one segment that is live or retired; segments are in order.
    fn check(&self) {
        let live = || self.slots.iter().filter(|&&slot| slot == Slot::Live).count();
        debug_assert!(live() == self.live.len(), "a live segment has one place: {:?}", self.live);
        let last = self.live.back().map_or(0, |last| last.number);
        assert!(last < self.next_number, "segments are numbered in order: {last}");
        assert!(
            self.oldest() >= self.oldest_marked,
            "a segment is live until a super block has given it up: {} {}",
            self.oldest(),
            self.oldest_marked
        );
    }

    /// Number of the oldest segment that is needed.
    pub(crate) fn oldest(&self) -> u64 {
        self.live.front().map_or(self.next_number, |segment| segment.number)
    }

    /// What a super block may name as the oldest segment that is needed: one whose header is durable.
    /// The first one of all, or the first after a failure, need not be.
    pub(crate) fn nameable(&self) -> u64 {
        let durable = self.live.front().filter(|segment| segment.sealed > 0);
        durable.map_or(self.oldest_marked, |segment| segment.number)
    }

    /// Lets go of segments with nothing that is needed; the one that is written to stays.
    /// Whether there were any.
    pub(crate) fn retire(&mut self, applied: u64) -> bool {
        let before = self.live.len();
        while let Some(segment) = self.live.front() {
            let needed = segment.last > applied && segment.number > self.cleaned;
            if needed || !segment.frozen {
                break;
            }
            // It stays until the one after it, which says where it ends, is durable.
            if self.live.get(1).is_none_or(|next| next.sealed == 0) {
                break;
            }
            self.slots[segment.slot as usize] =
                Slot::Retired { number: segment.number, pins: self.next_pin };
            self.live.pop_front();
        }
        self.check();
        before > self.live.len()
    }

    /// Whether a super block would free a place.
    pub(crate) fn wants_mark(&self) -> bool {
        self.oldest_marked < self.nameable()
    }

    /// A super block that says so is durable.
    pub(crate) fn marked(&mut self, oldest: u64) {
        assert!(
            oldest < self.next_number || oldest == self.oldest_marked,
            "a super block names a segment that was begun, or the one it named before: {oldest}"
        );
        self.oldest_marked = self.oldest_marked.max(oldest);
        self.release();
    }

    pub(crate) fn pin(&mut self) -> Pin {
        let pin = Pin(self.next_pin);
        self.next_pin += 1;
        self.pins.insert(pin);
        pin
    }

    pub(crate) fn unpin(&mut self, pin: Pin) {
        let pinned = self.pins.remove(&pin);
        assert!(pinned, "a pin is released once: {pin:?}");
        self.release();
    }

    fn release(&mut self) {
        let pinned = self.pins.first().map_or(u64::MAX, |pin| pin.0);
        for slot in &mut self.slots {
            if let Slot::Retired { number, pins } = *slot
                && number < self.oldest_marked
                && pins <= pinned
            {
                *slot = Slot::Free;
            }
        }
    }

    /// Whether a place becomes free without further write-back.
    pub(crate) fn frees(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Retired { .. }))
    }

    /// How full the log is, in thousandths, if the oldest dirty byte is at `tail` on the device: 1000
    /// when what is left is only the reserve, and the holes of the oldest segment.
    pub(crate) fn fill(&self, tail: Option<u64>) -> u32 {
        let (Some(tail), Some(head)) = (tail, self.live.back()) else { return 0 };
        let slot = tail.saturating_sub(SUPERS) / self.segment;
        let Some(oldest) = self.live.iter().find(|segment| segment.slot == slot) else { return 0 };
        let from = oldest.position + (tail - Self::at(slot, self.segment));
        let used = (head.position + head.length).saturating_sub(from);
        let bad = self.count().2;
        let most = (self.slots.len() as u64).saturating_sub(2 + bad).max(1) * self.segment;
        u32::try_from(u128::from(used) * 1000 / u128::from(most)).unwrap_or(u32::MAX).min(1000)
    }

    /// How many bytes of log were written before this place: what a rate is measured by.
    pub(crate) fn position_of(&self, at: u64) -> u64 {
        let slot = at.saturating_sub(SUPERS) / self.segment;
        let found = self.live.iter().find(|segment| segment.slot == slot);
        found.map_or(0, |segment| segment.position + (at - Self::at(slot, self.segment)))
    }

    /// Bytes of log that have been written in all, with holes.
    pub(crate) fn end(&self) -> u64 {
        self.live.back().map_or(self.position, |head| head.position + head.length)
    }

    /// How many segments are live, free and bad.
    pub(crate) fn count(&self) -> (u64, u64, u64) {
        let of = |wanted| self.slots.iter().filter(|&&slot| slot == wanted).count() as u64;
        (of(Slot::Live), of(Slot::Free), of(Slot::Bad))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        let settings =
            Settings { capacity: SUPERS + 3 * 65536, segment: 65536, ..Settings::default() };
        Space::new(&settings, &[], (1, 1), 0)
    }

    /// A super block never names a segment whose header may be lost, so that a crash between the two leaves
    /// a log that can be opened: not the first one, nor the one that takes its place when writing it failed.
    #[test]
    fn a_super_block_names_what_is_durable() {
        let mut space = space();
        space.open([1; 16], 1, (1, 0));
        assert_eq!((space.oldest(), space.nameable()), (1, 1));
        space.freeze(0);
        space.open([1; 16], 1, (1, 0));
        assert_eq!((space.oldest(), space.nameable(), space.wants_mark()), (2, 1, false));
        space.seal();
        assert_eq!((space.nameable(), space.wants_mark()), (2, true));
    }

    /// Nor one that recovery has found and that only seems to be there, nor the one after a segment of which recovery has found
    /// only a number: what the super block named before is named again.
    #[test]
    fn a_super_block_names_no_segment_that_a_crash_may_lose() {
        let settings =
            Settings { capacity: SUPERS + 3 * 65536, segment: 65536, ..Settings::default() };
        let nothing = Space::new(&settings, &[], (1, 2), 0);
        assert_eq!((nothing.oldest(), nothing.nameable(), nothing.wants_mark()), (2, 1, false));
        let found = Segment {
            number: 2,
            slot: 1,
            first: 1,
            last: 4,
            length: 8192,
            sealed: 8192,
            position: 0,
            frozen: true,
        };
        let mut space = Space::new(&settings, &[found], (1, 3), 0);
        assert_eq!((space.oldest(), space.nameable(), space.wants_mark()), (2, 1, false));
        space.opened();
        assert_eq!((space.nameable(), space.wants_mark()), (2, true));
    }

    /// A log with as few segments as it may have continues when writing to one of them has failed: that place
    /// is the reserve, and is written to again only when there is no other.
    #[test]
    fn a_bad_place_is_the_last_resort() {
        let mut space = space();
        space.open([1; 16], 1, (1, 0));
        space.freeze(0);
        assert_eq!(space.count(), (0, 2, 1));
        let places: Vec<u64> = (0..2)
            .map(|_| {
                assert!(space.can_open(false));
                let (at, _) = space.open([1; 16], 1, (1, 0));
                space.seal();
                at
            })
            .collect();
        assert_eq!(places, [SUPERS, SUPERS + 65536].map(|at| at + 65536));
        assert!(!space.can_open(false), "the last place is for need");
        assert!(space.can_open(true));
        assert_eq!(space.open([1; 16], 1, (1, 0)).0, SUPERS);
        assert!(!space.can_open(true));
    }

    /// Fills a segment and makes it durable, with its records up to `last`.
    fn fill(space: &mut Space, last: u64) -> u64 {
        let (at, head) = space.open([0; 16], 1, (last, 0));
        let open = space.head_mut().expect("it was just begun");
        (open.length, open.last) = (8192, last);
        space.seal();
        assert_eq!(head.first, last);
        at
    }

    fn four() -> Space {
        let settings =
            Settings { segment: 2 << 20, capacity: 8192 + (8 << 20), ..Settings::default() };
        Space::new(&settings, &[], (1, 1), 0)
    }

    /// A place is not written over before its records are upstream, a super block that names a later
    /// segment is durable, and everybody who may be reading it has ended; one place is kept in reserve.
    #[test]
    fn a_place_is_free_when_nobody_needs_it() {
        let mut space = four();
        for last in 1..=3 {
            assert!(space.can_open(false));
            fill(&mut space, last);
        }
        assert!(!space.can_open(false) && space.can_open(true), "the last one is for need");
        let reader = space.pin();
        assert!(!space.retire(0) && !space.wants_mark());
        assert!(space.retire(1) && space.wants_mark());
        assert_eq!(space.count(), (2, 1, 0));
        let oldest = space.oldest();
        let late = space.pin();
        space.marked(oldest);
        assert!(!space.wants_mark() && !space.can_open(false), "a read may be using it");
        space.unpin(reader);
        assert!(space.can_open(false), "who came later cannot be");
        assert_eq!(fill(&mut space, 4), 8192 + 3 * (2 << 20), "in ring order");
        assert_eq!(fill(&mut space, 5), 8192);
        space.unpin(late);
    }

    /// A super block that was written before a segment was given up does not free it.
    #[test]
    fn an_older_mark_frees_nothing() {
        let mut space = four();
        fill(&mut space, 1);
        fill(&mut space, 2);
        let before = space.oldest();
        assert!(space.retire(1));
        space.marked(before);
        assert_eq!(space.count(), (1, 2, 0));
        space.marked(space.oldest());
        assert_eq!(space.count(), (1, 3, 0));
    }

    /// The segment before the newest stays until the newest is durable: it says where the log ends.
    #[test]
    fn the_end_of_the_log_is_always_durable() {
        let mut space = four();
        fill(&mut space, 1);
        space.open([0; 16], 1, (2, 0));
        assert!(!space.retire(5));
        space.seal();
        assert!(space.retire(1));
    }

    /// A segment in which nothing became durable never was; one in which something did ends there.
    #[test]
    fn a_failed_segment_ends_where_it_was_durable() {
        let mut space = four();
        fill(&mut space, 1);
        space.head_mut().expect("it is open").length += 4096;
        space.freeze(1);
        let (_, head) = space.open([0; 16], 1, (2, 0));
        assert_eq!((head.previous, head.sealed), (1, 8192));
        space.freeze(1);
        assert_eq!(space.count(), (1, 2, 1), "its place is not used again");
        let (_, head) = space.open([0; 16], 1, (2, 0));
        assert_eq!((head.number, head.previous, head.sealed), (3, 1, 8192));
    }
}
