//! Which blocks to fetch before anybody asks for them.
//!
//! A policy sees the reads of hosts and what became of what it wished. It wishes; its caller fetches, when
//! no other request needs the path, and tells how each wish [ended](Prefetch::ended).

mod adaptive;
mod next_block;
mod off;

use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Values};
use crate::request::{LinkId, VolumeId};
use crate::units::Extent;
use alloc::boxed::Box;

/// Who reads: a stream is of one session and one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reader {
    /// What is read.
    pub volume: VolumeId,
    /// By whom.
    pub link: LinkId,
}

/// What a host's read found in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All that it wanted.
    Ready,
    /// All that it wanted, or something of it, still on its way.
    InFlight,
    /// Something was neither here nor on its way.
    Missing,
}

/// Names a wish until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WishId(pub u64);

/// A fetch that would be good to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its name.
    pub id: WishId,
    /// Where.
    pub volume: VolumeId,
    /// What.
    pub extent: Extent,
}

/// How a wish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was fetched, which took so long.
    Fetched(Duration),
    /// It could not be fetched.
    Failed,
    /// It was here or on its way already, or there was no room for it: nothing was fetched.
    NotNeeded,
}

/// What a policy knows of how well it foresees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// Lines that were judged lately, at most 1024.
    pub judged: u32,
    /// Those of them that were read.
    pub used: u32,
    /// Whether it wishes for less than it would, because too few were.
    pub held_back: bool,
}

/// Decides what to fetch ahead. Deterministic; time comes as an argument. Wishes that are not polled go,
/// the oldest first.
pub trait Prefetch {
    /// A host has read an extent, which is not empty, of a volume of `capacity` bytes.
    fn read(&mut self, now: Instant, from: Reader, extent: Extent, capacity: u64, found: Found);

    /// The next fetch to begin, if there is one that may.
    fn poll(&mut self) -> Option<Wish>;

    /// A wish that was polled has ended. Each does once.
    fn ended(&mut self, now: Instant, id: WishId, how: Ended);

    /// `used` prefetched lines of a volume were read, and `wasted` were evicted unread.
    fn judge(&mut self, volume: VolumeId, used: u32, wasted: u32);

    /// How well it foresees the reads of a volume; `None` if it does not keep account.
    fn accuracy(&self, _: VolumeId) -> Option<Accuracy> {
        None
    }
}

/// The buffer that a policy fetches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a line.
    pub line: u32,
    /// Lines in all.
    pub lines: u32,
}

/// Builds a policy from checked parameter values for a buffer.
pub type Build = fn(Values<'_>, Room) -> Box<dyn Prefetch>;

/// Every policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[adaptive::POLICY, next_block::POLICY, off::POLICY];
