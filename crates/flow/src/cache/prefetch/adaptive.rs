//! # Prefetch policy: adaptive
//!
//! Reads in order, forwards, backwards or in steps, are foreseen as far as the link is long, and no further
//! than being right pays for.
//!
//! | | |
//! |---|---|
//! | Model    | streams of a session on a volume ([`Streams`](stream::Streams)): the second read in order opens one, with a window of 4 or 2 times the read; whenever the reader enters the newest window, the next one follows it, 4 times as large while it is below a sixteenth of its cap, else twice. The cap is max(128 KiB, 2 x round trip x rate of the reader), at most `window`. Steps of equal length: see [`Steps`](steps::Steps) |
//! | Units    | bytes; wishes of whole lines, at most 256 KiB each, but steps as they were asked for |
//! | Ties     | of two streams that a read continues, the one that was used last |
//! | Cost     | O(streams) per read, at most 64; O(log wishes) per wish. 8 KiB for a session on a volume with all its streams, for at most 1024 of them |
//! | Source   | docs/reference/writeback.md, section 8.2, P1 to P3. Windows and marker: Wu, Xi, Li and Zou, *Linux readahead: less tricks for more*, Linux Symposium 2007. Steps: Al Maruf and Chowdhury, *Effectively prefetching remote memory with Leap*, USENIX ATC 2020 |
//! | Differs  | nothing is foreseen at offset 0, and nothing while all that is read is here already; a window is no smaller than the read that asks for it; the majority of the last steps must be the step that was just made |
//! | Not when | the buffer is a few windows small: what was foreseen pushes out what was foreseen |
//!
//! **Discipline.** Of the last 1024 lines that were fetched ahead, below half read makes windows half as
//! large, below a fifth leaves one window in 64. And there is a credit, for each volume: a fetch ahead
//! costs its bytes, a line of it that is read gives twice its bytes back, and each read a sixteenth of its
//! own. So whatever hosts do, bytes that are fetched for nothing are at most a sixteenth of those asked for
//! and the 256 KiB one starts with, apart from what being right has earned. It never exceeds 64 MiB or a
//! quarter of the buffer: that much may lie there unread.

mod steps;
mod stream;
mod volume;

use super::{Accuracy, Build, Ended, Found, Prefetch, Reader, Room, Wish, WishId};
use crate::clock::Instant;
use crate::policy::{Parameter, Policy, Unit};
use crate::request::VolumeId;
use crate::units::Extent;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use steps::Steps;
use stream::{Reading, Streams};
use volume::{Owner, Queued, Volume};

pub(super) const POLICY: Policy<Build> = Policy {
    name: "adaptive",
    summary: "reads in order, forwards, backwards or in steps, are foreseen as far as the link is long",
    properties: &[],
    parameters: &[
        Parameter {
            name: "window",
            unit: Unit::Bytes,
            min: 128 << 10,
            max: 64 << 20,
            default: 8 << 20,
            effect: "most bytes that one stream has fetched ahead at once; more fills longer links",
        },
        Parameter {
            name: "flight",
            unit: Unit::Bytes,
            min: 256 << 10,
            max: 1 << 30,
            default: 16 << 20,
            effect: "most bytes in flight ahead of all readers of a volume; more fills longer links, less \
                     leaves more of them to what was asked for",
        },
    ],
    build: |values, room| Box::new(Adaptive::new(values.get("window"), values.get("flight"), room)),
};

/// Sessions on volumes that are followed; the one that has read nothing for longest makes room.
const MOST_READERS: usize = 1_024;

#[derive(Debug)]
struct Adaptive {
    /// Most bytes of a window.
    window: u64,
    /// Most bytes in flight for a volume.
    flight: u64,
    room: Room,
    readers: BTreeMap<Reader, Follower>,
    volumes: BTreeMap<VolumeId, Volume>,
    /// Volumes that may have a wish to give, in turns.
    ready: VecDeque<VolumeId>,
    under_way: BTreeMap<WishId, (VolumeId, u64)>,
    /// Counts reads, wishes and streams, for their order and their names.
    count: u64,
}

/// What is known of a session on a volume.
#[derive(Debug, Default)]
struct Follower {
    streams: Streams,
    steps: Steps,
    /// When it last read, in counts.
    last: u64,
}

impl Adaptive {
    fn new(window: u64, flight: u64, room: Room) -> Self {
        Self {
            window,
            flight,
            room,
            readers: BTreeMap::new(),
            volumes: BTreeMap::new(),
            ready: VecDeque::new(),
            under_way: BTreeMap::new(),
            count: 0,
        }
    }

    /// The volume will be asked for a wish, if it has any.
    fn list(ready: &mut VecDeque<VolumeId>, id: VolumeId, volume: &mut Volume) {
        if !volume.listed && volume.has_queue() {
            volume.listed = true;
            ready.push_back(id);
        }
    }

    fn make_room_for_reader(&mut self) {
        if self.readers.len() >= MOST_READERS {
            let oldest = self.readers.iter().min_by_key(|(_, follower)| follower.last);
            if let Some(oldest) = oldest.map(|(&reader, _)| reader) {
                self.readers.remove(&oldest);
            }
        }
    }
}

impl Prefetch for Adaptive {
    fn read(&mut self, now: Instant, from: Reader, extent: Extent, capacity: u64, found: Found) {
        if extent.length == 0 || extent.end().is_none() {
            return;
        }
        self.count += 1;
        if !self.readers.contains_key(&from) {
            self.make_room_for_reader();
        }
        let follower = self.readers.entry(from).or_default();
        follower.last = self.count;
        let new = || Volume::new(self.room, self.flight);
        let volume = self.volumes.entry(from.volume).or_insert_with(new);
        volume.asked(extent.length);
        let reading = Reading {
            now,
            extent,
            capacity,
            ready: found == Found::Ready,
            line: u64::from(self.room.line),
            round_trip: volume.round_trip(),
            largest: self.window,
            count: self.count,
        };
        match follower.streams.read(&reading, || volume.grant()) {
            stream::Step::Window(serial, way, begin, end) => {
                let owner = Owner::Stream(serial);
                volume.enqueue(Queued { reader: from, owner, way, begin, end });
            }
            stream::Step::InStream => {}
            stream::Step::Alone => {
                for extent in follower.steps.read(extent, capacity, self.count, || volume.grant()) {
                    let (way, owner) = (stream::Way::Up, Owner::Steps(follower.steps.serial()));
                    let (begin, end) = way.turn(extent);
                    volume.enqueue(Queued { reader: from, owner, way, begin, end });
                }
            }
        }
        Self::list(&mut self.ready, from.volume, volume);
    }

    fn poll(&mut self) -> Option<Wish> {
        loop {
            let id = self.ready.pop_front()?;
            let volume = self.volumes.get_mut(&id).expect("a volume that is listed is known");
            volume.listed = false;
            let readers = &self.readers;
            // Where a reader is by now; `None` if it does not want it any more.
            let frontier = |queued: &Queued| {
                let follower = readers.get(&queued.reader)?;
                match queued.owner {
                    Owner::Stream(serial) => follower.streams.frontier(serial),
                    Owner::Steps(serial) => (follower.steps.serial() == serial).then_some(0),
                }
            };
            if let Some(extent) = volume.next(frontier) {
                self.count += 1;
                let wish = WishId(self.count);
                self.under_way.insert(wish, (id, extent.length));
                Self::list(&mut self.ready, id, volume);
                return Some(Wish { id: wish, volume: id, extent });
            }
        }
    }

    fn ended(&mut self, _: Instant, id: WishId, how: Ended) {
        let (id, bytes) = self.under_way.remove(&id).expect("a wish that was polled ends once");
        let volume = self.volumes.get_mut(&id).expect("it has wished");
        volume.ended(bytes, how);
        Self::list(&mut self.ready, id, volume);
    }

    fn judge(&mut self, id: VolumeId, used: u32, wasted: u32) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.judge(used, wasted);
            Self::list(&mut self.ready, id, volume);
        }
    }

    fn accuracy(&self, volume: VolumeId) -> Option<Accuracy> {
        self.volumes.get(&volume).map(Volume::accuracy)
    }
}

#[cfg(test)]
mod tests;
