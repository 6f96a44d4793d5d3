//! EXTENDED COPY: which blocks are copied where.

use super::{Plan, What};
use std::fmt;
use std::ops::Range;
use weir_flow::rng::Rng;

/// What is to be copied: sectors of the volume, or of the other one that the gateway has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Copy {
    pub(in super::super) from: Range<u32>,
    pub(in super::super) to: Range<u32>,
    pub(in super::super) between: Between,
}

/// Between which volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Between {
    /// Within the volume.
    Within,
    /// From the other volume into this one.
    Into,
    /// From this volume to the other one.
    OutOf,
}

/// Sectors of the volume, or with `true` of the other one.
pub(in super::super) type Place = (bool, Range<u32>);

impl Copy {
    /// What it reads and what it writes.
    pub(in super::super) fn touches(&self) -> [Place; 2] {
        let (from, to) = (self.from.clone(), self.to.clone());
        [(self.between == Between::Into, from), (self.between == Between::OutOf, to)]
    }

    /// Whether it must begin at the end, as it would overwrite what it has still to read.
    pub(in super::super) fn begins_at_its_end(&self) -> bool {
        self.between == Between::Within
            && self.to.start > self.from.start
            && self.to.start < self.from.end
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |other| if other { " of the other volume" } else { "" };
        let [(other, from), (to_other, to)] = self.touches();
        let (other, to_other) = (of(other), of(to_other));
        write!(f, "copy {}..{}{other} to {}..{}{to_other}", from.start, from.end, to.start, to.end)
    }
}

impl Plan {
    /// Some of what hosts write they have copied, in pieces of one block or a few.
    pub(super) fn copy(&mut self) {
        let mut rng = Rng::stream(self.seed, "crash/copies");
        let block = self.settings.block / 512;
        self.copies = block * (1 + rng.below(3) as u32);
        let sectors = self.sectors;
        for ask in self.lives.iter_mut().flatten() {
            let What::Write { sectors: to, .. } = &ask.what else { continue };
            if rng.below(4) > 0 {
                continue;
            }
            let places = u64::from((sectors - to.len() as u32) / block + 1);
            let first = rng.below(places) as u32 * block;
            let from = first..first + to.len() as u32;
            let between = match rng.below(4) {
                0 => Between::Into,
                1 => Between::OutOf,
                _ => Between::Within,
            };
            let back = block * (1 + rng.below(2) as u32);
            let overlaps = back < to.len() as u32 && back <= to.start && rng.below(2) == 0;
            let from = if overlaps { to.start - back..to.end - back } else { from };
            if between == Between::Within && from == *to {
                continue;
            }
            ask.what = What::Copy(Copy { from, to: to.clone(), between });
        }
    }

    /// Copies are among what hosts ask for.
    pub(in super::super) fn copying(&mut self) {
        if self.copies == 0 {
            self.copy();
        }
    }
}
