//! What a volume's readers may have fetched ahead: room, credit, and how often they were right.

use super::stream::{Grant, Way};
use super::{Accuracy, Ended, Reader, Room};
use crate::clock::Duration;
use crate::units::Extent;
use alloc::collections::VecDeque;

/// Largest wish: small enough for its first bytes to come early, large enough to be worth a request.
const LARGEST_WISH: u64 = 256 << 10;

/// Windows and steps that wait to be wished; when there are more, the oldest go.
const MOST_QUEUED: usize = 256;

/// Bytes that may be fetched ahead before anything has proved right.
const FIRST_CREDIT: u64 = 256 << 10;

/// Most bytes that may lie unread or be in flight.
const MOST_CREDIT: u64 = 64 << 20;

/// The bytes that hosts ask for, for each byte that may be prefetched for nothing.
const ASKED_PER_CREDIT: u64 = 16;

/// What a byte that was right earns.
const REWARD: u64 = 2;

/// Lines over which accuracy is counted,
const JUDGED: usize = 1_024;
/// and the fewest that say anything.
const FEWEST_JUDGED: u32 = 64;

/// Where too little is right, one window in this number is tried.
const PROBE: u32 = 64;

/// Fetches over which the shortest is taken to be the round trip, and as many before.
const FETCHES: u32 = 64;

/// Who wants to have something fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The stream of this number.
    Stream(u64),
    /// The run of steps of this number.
    Steps(u64),
}

/// What a stream wants to have fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) reader: Reader,
    pub(super) owner: Owner,
    pub(super) way: Way,
    pub(super) begin: u64,
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) struct Volume {
    queue: VecDeque<Queued>,
    /// It is in the list of those that may have a wish to give.
    pub(super) listed: bool,
    line: u64,
    in_flight: u64,
    most_in_flight: u64,
    pub(super) credit: u64,
    most_credit: u64,
    /// Sixteenths that make no byte yet.
    crumbs: u64,
    judged: Judged,
    /// Windows that were due while too little was right.
    probes: u32,
    shortest: Shortest,
}

impl Volume {
    pub(super) fn new(room: Room, most_in_flight: u64) -> Self {
        let line = u64::from(room.line);
        let most_credit = MOST_CREDIT.min(line * u64::from(room.lines) / 4);
        Self {
            queue: VecDeque::new(),
            listed: false,
            line,
            in_flight: 0,
            most_in_flight,
            credit: FIRST_CREDIT.min(most_credit),
            most_credit,
            crumbs: 0,
            judged: Judged::default(),
            probes: 0,
            shortest: Shortest::default(),
        }
    }

    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A host has asked for `bytes`.
    pub(super) fn asked(&mut self, bytes: u64) {
        let crumbs = self.crumbs.saturating_add(bytes);
        self.crumbs = crumbs % ASKED_PER_CREDIT;
        self.earn(crumbs / ASKED_PER_CREDIT);
    }

    fn earn(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes).min(self.most_credit);
    }

    /// Asked when something is due to be fetched.
    pub(super) fn grant(&mut self) -> Grant {
        let Judged { count, used, .. } = self.judged;
        if count < FEWEST_JUDGED || used * 2 >= count {
            return Grant::Full;
        }
        if used * 5 >= count {
            return Grant::Half;
        }
        self.probes = (self.probes + 1) % PROBE;
        if self.probes == 0 { Grant::Full } else { Grant::Nothing }
    }

    pub(super) fn enqueue(&mut self, queued: Queued) {
        let precedes = |other: &&mut Queued| {
            let same = other.reader == queued.reader && other.owner == queued.owner;
            same && other.end == queued.begin
        };
        if let Some(before) = self.queue.iter_mut().find(precedes) {
            before.end = queued.end;
            return;
        }
        if self.queue.len() == MOST_QUEUED {
            self.queue.pop_front();
        }
        self.queue.push_back(queued);
    }

    /// The next extent to fetch, if there is room for one. `frontier` tells behind which position its reader
    /// wants it, or that it does not want it any more.
    pub(super) fn next(&mut self, frontier: impl Fn(&Queued) -> Option<u64>) -> Option<Extent> {
        loop {
            let queued = self.queue.front()?;
            let Some(frontier) = frontier(queued) else {
                self.queue.pop_front();
                continue;
            };
            let begin = queued.begin.max(queued.way.line(frontier, self.line));
            if begin >= queued.end {
                self.queue.pop_front();
                continue;
            }
            let room = self.credit.min(self.most_in_flight.saturating_sub(self.in_flight));
            let mut end = queued.end;
            if end - begin > room.min(LARGEST_WISH) {
                end = queued.way.line(begin + room.min(LARGEST_WISH), self.line);
            }
            if end <= begin {
                return None;
            }
            let mut queued = self.queue.pop_front()?;
            queued.begin = end;
            if end < queued.end {
                self.queue.push_back(queued);
            }
            let bytes = end - begin;
            self.credit -= bytes;
            self.in_flight += bytes;
            return Some(queued.way.extent(begin, end));
        }
    }

    /// A wish has ended.
    pub(super) fn ended(&mut self, bytes: u64, how: Ended) {
        self.in_flight -= bytes;
        match how {
            Ended::Fetched(took) => self.shortest.add(took),
            Ended::Failed | Ended::NotNeeded => self.earn(bytes),
        }
    }

    /// `used` prefetched lines were read, and `wasted` were not.
    pub(super) fn judge(&mut self, used: u32, wasted: u32) {
        self.earn(u64::from(used) * self.line * REWARD);
        (0..used.min(JUDGED as u32)).for_each(|_| self.judged.add(true));
        (0..wasted.min(JUDGED as u32)).for_each(|_| self.judged.add(false));
    }

    pub(super) const fn accuracy(&self) -> Accuracy {
        let Judged { count, used, .. } = self.judged;
        Accuracy { judged: count, used, held_back: count >= FEWEST_JUDGED && used * 2 < count }
    }

    /// How long a fetch takes that waits for nothing.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.shortest.get()
    }
}

/// The last lines that were judged.
#[derive(Debug, Default)]
struct Judged {
    /// A ring of bits: read or not.
    ring: [u64; JUDGED / 64],
    next: usize,
    /// Lines in the ring.
    count: u32,
    /// Those that were read.
    used: u32,
}

impl Judged {
    fn add(&mut self, used: bool) {
        let (word, bit) = (self.next / 64, self.next % 64);
        let old = self.ring[word] >> bit & 1;
        self.used = self.used - old as u32 + u32::from(used);
        self.ring[word] = self.ring[word] & !(1 << bit) | u64::from(used) << bit;
        self.next = (self.next + 1) % JUDGED;
        self.count = (self.count + 1).min(JUDGED as u32);
    }
}

/// The shortest of the last times.
#[derive(Debug, Default)]
struct Shortest {
    now: Option<Duration>,
    before: Option<Duration>,
    count: u32,
}

impl Shortest {
    fn add(&mut self, time: Duration) {
        if self.count == FETCHES {
            (self.before, self.now, self.count) = (self.now, None, 0);
        }
        self.now = Some(self.now.map_or(time, |now| now.min(time)));
        self.count += 1;
    }

    fn get(&self) -> Option<Duration> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }
}
