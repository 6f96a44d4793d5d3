//! A log device that loses and tears what was not flushed, and an upstream with a volatile cache.

use crate::rng::Rng;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A device with a cache that a crash empties in part, by sectors of 512 bytes.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) durable: Vec<u8>,
    /// Sectors that were written and not flushed, in order.
    cache: Vec<(usize, [u8; 512])>,
}

impl Disk {
    pub(super) fn new(size: u64) -> Self {
        Self { durable: vec![0; size as usize], cache: Vec::new() }
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        for (i, sector) in bytes.chunks_exact(512).enumerate() {
            self.cache.push((at as usize + i * 512, sector.try_into().unwrap()));
        }
    }

    /// The same, and only a part of it happens.
    pub(super) fn write_some(&mut self, at: u64, bytes: &[u8], rng: &mut Rng) {
        for (i, sector) in bytes.chunks_exact(512).enumerate() {
            if rng.below(2) == 0 {
                self.cache.push((at as usize + i * 512, sector.try_into().unwrap()));
            }
        }
    }

    pub(super) fn sync(&mut self) {
        for (at, sector) in self.cache.drain(..) {
            self.durable[at..at + 512].copy_from_slice(&sector);
        }
    }

    /// The power is cut, or a sync fails: any subset of what was not flushed survives.
    pub(super) fn lose(&mut self, rng: &mut Rng) {
        let share = rng.below(5);
        for (at, sector) in core::mem::take(&mut self.cache) {
            if rng.below(4) < share {
                self.durable[at..at + 512].copy_from_slice(&sector);
            }
        }
    }

    /// What a reader sees now.
    pub(super) fn read(&self, at: u64, out: &mut [u8]) {
        let (at, end) = (at as usize, at as usize + out.len());
        out.copy_from_slice(&self.durable[at..end]);
        for &(place, sector) in &self.cache {
            let (from, to) = (place.max(at), (place + 512).min(end));
            if from < to {
                out[from - at..to - at].copy_from_slice(&sector[from - place..to - place]);
            }
        }
    }
}

/// Which operation wrote a sector last; 0 if none has, or it is zeroes.
pub(super) type Version = u64;

/// The device behind, by the version of each sector.
#[derive(Clone, Debug, Default)]
pub(super) struct Far {
    pub(super) durable: Vec<Version>,
    pub(super) cache: BTreeMap<usize, Version>,
    /// Writes go to a cache until they are flushed.
    pub(super) volatile: bool,
}

impl Far {
    pub(super) fn new(sectors: u64, volatile: bool) -> Self {
        Self { durable: vec![0; sectors as usize], cache: BTreeMap::new(), volatile }
    }

    pub(super) fn write(&mut self, sector: usize, version: Version) {
        if self.volatile {
            self.cache.insert(sector, version);
        } else {
            self.durable[sector] = version;
        }
    }

    /// Writes with FUA.
    pub(super) fn harden(&mut self, sector: usize, version: Version) {
        self.cache.remove(&sector);
        self.durable[sector] = version;
    }

    pub(super) fn flush(&mut self) {
        for (sector, version) in core::mem::take(&mut self.cache) {
            self.durable[sector] = version;
        }
    }

    /// The cache is lost, in part.
    pub(super) fn lose(&mut self, rng: &mut Rng) {
        for (sector, version) in core::mem::take(&mut self.cache) {
            if rng.below(2) == 0 {
                self.durable[sector] = version;
            }
        }
    }

    pub(super) fn read(&self, sector: usize) -> Version {
        self.cache.get(&sector).copied().unwrap_or(self.durable[sector])
    }
}

/// What operation `number` writes to a sector.
pub(super) fn fill(number: u64, sector: usize, out: &mut [u8]) {
    for (i, word) in out.chunks_mut(8).enumerate() {
        let value = match i {
            0 => number,
            1 => sector as u64,
            _ => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Which operation has written a sector.
pub(super) fn version(sector: &[u8]) -> Version {
    u64::from_le_bytes(*sector.first_chunk().unwrap())
}
