//! Volumes of several stores: one after the other, or striped.
//!
//! A store is a backend with one path and one cache. Claims, late writes and updates are of volumes of one store.

use super::{Plan, What};
use weir_flow::accept::{Layout, Part};
use weir_flow::request::BackendId;
use weir_flow::rng::Rng;

/// The stores of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Stores {
    One,
    /// Sectors of each.
    Concat(Vec<u32>),
    /// How many, in turns of [`CHUNK`] sectors.
    Stripe(u32),
}

impl Stores {
    /// How many there are.
    pub(in super::super) const fn count(&self) -> u32 {
        match self {
            Self::One => 1,
            Self::Concat(lengths) => lengths.len() as u32,
            Self::Stripe(count) => *count,
        }
    }

    /// Where a sector of a store is in the volume.
    pub(in super::super) fn in_volume(&self, part: u32, sector: u32) -> u32 {
        match self {
            Self::One => sector,
            Self::Concat(lengths) => lengths[..part as usize].iter().sum::<u32>() + sector,
            Self::Stripe(count) => (sector / CHUNK * count + part) * CHUNK + sector % CHUNK,
        }
    }

    /// The same for the pipeline.
    pub(in super::super) fn layout(&self) -> Layout {
        let part = |(index, &length): (usize, &u32)| Part {
            backend: BackendId::new(index as u32),
            length: u64::from(length) * 512,
        };
        match self {
            Self::One => Layout::One(BackendId::new(0)),
            Self::Concat(lengths) => Layout::Concat(lengths.iter().enumerate().map(part).collect()),
            Self::Stripe(count) => Layout::Stripe {
                backends: (0..*count).map(BackendId::new).collect(),
                chunk: u64::from(CHUNK) * 512,
            },
        }
    }
}

/// Sectors of a turn of a stripe.
const CHUNK: u32 = 8;

impl Plan {
    /// The volume is on several stores.
    pub(in super::super) fn spread(&mut self) {
        let mut rng = Rng::stream(self.seed, "crash/stores");
        let block = self.settings.block / 512;
        let blocks = self.sectors / block;
        let turns = self.sectors / CHUNK;
        let even = [2, 3].into_iter().find(|count| turns.is_multiple_of(*count));
        self.stores = match even {
            Some(count) if rng.below(2) == 0 => Stores::Stripe(count),
            _ => {
                let first = block * (1 + rng.below(u64::from(blocks - 1)) as u32);
                Stores::Concat(vec![first, self.sectors - first])
            }
        };
        (self.paths, self.late, self.outage) = (1, false, 4);
        (self.fence, self.moves, self.rivals, self.forgets) = (false, false, 0, false);
        self.updates = false;
        for ask in self.lives.iter_mut().flatten() {
            if let What::Update(sectors, _) = &ask.what {
                ask.what = What::Write { sectors: sectors.clone(), fua: false };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each sector of the volume is on one store, and there once.
    #[test]
    fn each_sector_is_on_one_store() {
        for stores in [Stores::Concat(vec![5, 19]), Stores::Stripe(3), Stores::One] {
            let mut seen = Vec::new();
            for part in 0..stores.count() {
                let length = match &stores {
                    Stores::One => 24,
                    Stores::Concat(lengths) => lengths[part as usize],
                    Stores::Stripe(count) => 24 / count,
                };
                seen.extend((0..length).map(|sector| stores.in_volume(part, sector)));
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..24).collect::<Vec<_>>(), "{stores:?}");
            assert_eq!(stores.layout().parts() as u32, stores.count());
        }
    }
}
