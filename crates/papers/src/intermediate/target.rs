//! The buffer of the intermediate target: assumed hits, or the gateway's cache lines and prefetcher.

use super::Buffer;
use super::exchange::BLOCK;
use super::work::CAPACITY;
use std::collections::BTreeMap;
use weir_flow::cache::evict;
use weir_flow::cache::lines::{Cover, FillId, Lines};
use weir_flow::cache::prefetch::{self, Ended, Found, Prefetch, Reader, Room, WishId};
use weir_flow::clock::Instant;
use weir_flow::policy::Choice;
use weir_flow::request::{LinkId, VolumeId};
use weir_flow::units::Extent;

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// It is answered.
    Ready,
    /// It is answered when a fetch that has begun has brought its block.
    Waits,
    /// It is sent to the storage. As in the paper's algorithm its block does not stay here.
    Missing,
}

/// A buffer, and what decides what is fetched into it.
pub(super) enum Target {
    /// Hits of a hundred reads, and how many hundredths of one have come up since the last.
    Assumed(u64, u64),
    /// Boxed, for it is much larger.
    Machines(Box<Machines>),
}

pub(super) struct Machines {
    lines: Lines,
    prefetch: Box<dyn Prefetch>,
    /// Fetches that have begun, by block.
    fetches: BTreeMap<u64, Fetch>,
    /// Bytes are not moved here, so where they would go does not matter.
    copies: Vec<weir_flow::cache::lines::Copy>,
}

struct Fetch {
    wish: WishId,
    fill: FillId,
    begun: Instant,
    /// Commands that are answered when it ends.
    waiting: Vec<usize>,
}

/// Blocks that the buffer has room for.
const BLOCKS: u32 = 64;

const VOLUME: VolumeId = VolumeId::new(0);

const READER: Reader = Reader { volume: VOLUME, link: LinkId::new(0) };

const fn extent(block: u64) -> Extent {
    Extent::new(block * BLOCK, BLOCK)
}

impl Target {
    pub(super) fn new(buffer: Buffer) -> Self {
        match buffer {
            Buffer::Assumed(share) => Self::Assumed(share, 0),
            Buffer::Machines => Self::Machines(Box::new(Machines::new())),
        }
    }

    /// A read has come; `command` is given back when it need not wait any longer.
    pub(super) fn read(&mut self, now: Instant, block: u64, command: usize) -> Read {
        match self {
            Self::Assumed(share, sum) => {
                *sum += *share;
                let hit = *sum >= 100;
                *sum -= if hit { 100 } else { 0 };
                if hit { Read::Ready } else { Read::Missing }
            }
            Self::Machines(machines) => machines.read(now, block, command),
        }
    }

    /// The next block to fetch before it is asked for.
    pub(super) fn prefetch(&mut self, now: Instant) -> Option<u64> {
        match self {
            Self::Assumed(..) => None,
            Self::Machines(machines) => machines.prefetch(now),
        }
    }

    /// A block that was fetched before it was asked for is here. Returns the commands that wait for it.
    pub(super) fn fetched(&mut self, now: Instant, block: u64) -> Vec<usize> {
        match self {
            Self::Assumed(..) => unreachable!("nothing is fetched for hits that are assumed"),
            Self::Machines(machines) => machines.fetched(now, block),
        }
    }

    /// The data of a write is here.
    pub(super) fn wrote(&mut self, block: u64) {
        if let Self::Machines(machines) = self {
            machines.copies.clear();
            machines.lines.put(VOLUME, extent(block), &mut machines.copies);
        }
    }
}

impl Machines {
    fn new() -> Self {
        let fifo = Choice::named(evict::POLICIES, "fifo").expect("it is among the policies");
        let next = Choice::named(prefetch::POLICIES, "next-block").expect("so is this");
        let line = BLOCK as u32;
        Self {
            lines: Lines::new(BLOCKS, line, &fifo),
            prefetch: (next.policy().build)(next.values(), Room { line, lines: BLOCKS }),
            fetches: BTreeMap::new(),
            copies: Vec::new(),
        }
    }

    fn read(&mut self, now: Instant, block: u64, command: usize) -> Read {
        let extent = extent(block);
        self.copies.clear();
        let here = self.lines.read(VOLUME, extent, &mut self.copies) == Cover::All;
        let flying = !here && self.lines.filling(VOLUME, extent).is_some();
        let (found, read) = match (here, flying) {
            (true, _) => (Found::Ready, Read::Ready),
            (_, true) => (Found::InFlight, Read::Waits),
            _ => (Found::Missing, Read::Missing),
        };
        if flying {
            self.fetches.get_mut(&block).expect("every fill is one").waiting.push(command);
        }
        self.prefetch.read(now, READER, extent, CAPACITY * BLOCK, found);
        read
    }

    fn prefetch(&mut self, now: Instant) -> Option<u64> {
        while let Some(wish) = self.prefetch.poll() {
            if self.lines.lacking(VOLUME, wish.extent).is_some() {
                let fill = self.lines.begin(VOLUME, wish.extent, true);
                let block = wish.extent.offset / BLOCK;
                let fetch = Fetch { wish: wish.id, fill, begun: now, waiting: Vec::new() };
                self.fetches.insert(block, fetch);
                return Some(block);
            }
            self.prefetch.ended(now, wish.id, Ended::NotNeeded);
        }
        None
    }

    fn fetched(&mut self, now: Instant, block: u64) -> Vec<usize> {
        let fetch = self.fetches.remove(&block).expect("what comes was asked for");
        self.copies.clear();
        self.lines.end(fetch.fill, true, &mut self.copies);
        self.prefetch.ended(now, fetch.wish, Ended::Fetched(now.since(fetch.begun)));
        while let Some(judged) = self.lines.take_judged() {
            self.prefetch.judge(judged.volume, judged.used, judged.wasted);
        }
        fetch.waiting
    }
}
