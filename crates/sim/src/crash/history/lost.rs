//! Sectors whose newest data is lost: a read of them fails until a host has overwritten them, durably.

use super::History;
use std::ops::Range;

/// What a volume has where its newest data is lost, or cannot be read.
pub(in super::super) const GONE: Option<u64> = Some(u64::MAX);

/// The sectors of a volume that were given up.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    now: Vec<u32>,
    /// Of these the upstream has something older for good, as after a medium error of a disk.
    ever: Vec<u32>,
}

impl Given {
    /// Whether the upstream alone need not be legal here.
    pub(super) fn excuses(&self, sector: u32) -> bool {
        self.ever.contains(&sector)
    }

    pub(super) fn is_gone(&self, sector: u32) -> bool {
        self.now.contains(&sector)
    }
}

impl History {
    /// The gateway gives these sectors up.
    pub(in super::super) fn give_up(&mut self, sectors: impl Iterator<Item = u32>) {
        self.revision += 1;
        self.given.now = sectors.collect();
        let Self { given, .. } = self;
        let new = given.now.iter().filter(|sector| !given.ever.contains(sector));
        let new: Vec<u32> = new.copied().collect();
        given.ever.extend(new);
    }

    /// It gives up more.
    pub(in super::super) fn give_up_more(&mut self, sectors: &[u32]) {
        self.revision += 1;
        self.given.now.extend(sectors);
        self.given.ever.extend(sectors);
    }

    /// Write-back goes past what it should have had here.
    pub(in super::super) fn excuse(&mut self, sectors: Range<u32>) {
        self.given.ever.extend(sectors);
        self.revision += 1;
    }

    /// Whether a sector is given up.
    pub(in super::super) fn is_given(&self, sector: u32) -> bool {
        self.given.is_gone(sector)
    }

    /// A change is acknowledged, and these sectors are given up then. Whether it has healed some: then it is durable.
    pub(in super::super) fn heals(&mut self, place: usize, lost: &[u32]) -> bool {
        let sectors = self.changes[place].sectors.clone();
        let before = self.given.now.len();
        self.given.now.retain(|sector| !sectors.contains(sector) || lost.contains(sector));
        let heals = self.given.now.len() < before;
        self.revision += u64::from(heals);
        heals
    }

    /// A change that went past the log is durable apart from others.
    pub(in super::super) fn is_durable(&mut self, place: usize) {
        self.changes[place].update = true;
    }
}
