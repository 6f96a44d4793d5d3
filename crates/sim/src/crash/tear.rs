//! Torn sectors of the log device: it promises less than 512 bytes at once, so a power cut may leave any mix of bytes.
//!
//! Of a sector that was being written, or was written and not flushed, the first bytes are new and the others old, or the
//! reverse, or each byte is either. Every structure of the log has a checksum over all of its bytes, so a torn one is no
//! structure, and what it replaces is not needed any more. Between 512-byte sectors everything else holds as before.

use super::content::{Content, SECTOR, Store};
use super::device::Device;
use weir_flow::rng::{Rng, mix};

/// A torn sector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tear {
    sector: u32,
    old: Content,
    new: Content,
    /// Which bytes are new.
    bytes: Mixed,
}

#[derive(Clone, Copy, Debug)]
enum Mixed {
    /// Those before this one.
    First(usize),
    /// Those from this one on.
    Last(usize),
    /// Those of which a number that is drawn from this one is odd.
    Any(u64),
}

impl Mixed {
    fn is_new(self, at: usize) -> bool {
        match self {
            Self::First(end) => at < end,
            Self::Last(start) => at >= start,
            Self::Any(seed) => mix(seed ^ at as u64) & 1 == 1,
        }
    }
}

impl Tear {
    /// Tears some of the sectors that a crash may lose: one, or half of them.
    pub(super) fn some(device: &Device, rng: &mut Rng) -> Vec<Self> {
        let at_risk = device.at_risk().sectors;
        if at_risk.is_empty() {
            return Vec::new();
        }
        let one = rng.below(at_risk.len() as u64) as usize;
        let alone = rng.below(2) == 0;
        let mut tears: Vec<Self> = Vec::new();
        for (index, (sector, new)) in at_risk.into_iter().enumerate() {
            let torn = if alone { index == one } else { index == one || rng.below(2) == 0 };
            if !torn {
                continue;
            }
            let cut = 1 + rng.below(SECTOR as u64 - 1) as usize;
            let bytes = match rng.below(3) {
                0 => Mixed::First(cut),
                1 => Mixed::Last(cut),
                _ => Mixed::Any(rng.bits()),
            };
            // Of several writes to a sector the last torn one is what is there.
            tears.retain(|tear| tear.sector != sector);
            tears.push(Self { sector, old: device.durable(sector), new, bytes });
        }
        tears
    }

    /// What its sector has.
    pub(super) fn content(&self, store: &Store) -> [u8; SECTOR] {
        let (mut torn, new) = (*store.bytes(self.old), store.bytes(self.new));
        for (at, byte) in torn.iter_mut().enumerate().filter(|&(at, _)| self.bytes.is_new(at)) {
            *byte = new[at];
        }
        torn
    }

    /// The sector.
    pub(super) const fn sector(&self) -> u32 {
        self.sector
    }

    /// Tells torn devices apart.
    pub(super) fn digest(&self) -> u64 {
        let how = match self.bytes {
            Mixed::First(end) => end as u64,
            Mixed::Last(start) => 1 << 32 | start as u64,
            Mixed::Any(seed) => seed,
        };
        mix(how ^ mix(u64::from(self.sector) + 1))
    }
}

/// Tears sectors of the bytes of a device.
pub(super) fn apply(tears: &[Tear], store: &Store, bytes: &mut [u8]) {
    for tear in tears {
        let at = tear.sector as usize * SECTOR;
        bytes[at..at + SECTOR].copy_from_slice(&tear.content(store));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A torn sector has bytes of both writes, each where it belongs; sectors that are durable are not torn.
    #[test]
    fn a_torn_sector_has_bytes_of_both() {
        let mut store = Store::new();
        let [old, new] = [1, 2].map(|byte| store.name(&[byte; SECTOR]));
        let mut device = Device::new(vec![old; 4], true);
        assert!(Tear::some(&device, &mut Rng::stream(1, "tear")).is_empty());
        device.begin(1, [new, new]);
        let (mut mixed, mut both) = (0, 0);
        for seed in 0..40 {
            let tears = Tear::some(&device, &mut Rng::stream(seed, "tear"));
            let mut bytes = vec![1; 4 * SECTOR];
            apply(&tears, &store, &mut bytes);
            both += u32::from(tears.len() == 2);
            let sectors = bytes.as_chunks::<SECTOR>().0;
            assert_eq!((sectors[0], sectors[3]), ([1; SECTOR], [1; SECTOR]));
            let torn = |sector: &[u8; SECTOR]| sector.contains(&1) && sector.contains(&2);
            assert!(tears.iter().all(|tear| torn(&sectors[tear.sector as usize])), "{tears:?}");
            let changes =
                |sector: &[u8; SECTOR]| sector.windows(2).filter(|two| two[0] != two[1]).count();
            mixed += u32::from(sectors.iter().any(|sector| changes(sector) > 1));
        }
        assert!(both > 5 && mixed > 5, "{both}, {mixed}");
    }
}
