//! The oracle: what hosts may rely on, and what a disk may show.

use super::disk::{Disk, Version};
use super::rig::{Rig, fill, version};
use crate::cache::writeback::{Found, Kind, Mode, Sync};
use crate::units::Extent;
use alloc::vec::Vec;

impl Rig {
    /// The version of each sector as a host would read it; `None` where the read has to wait.
    pub(super) fn view(&self) -> Vec<Option<Version>> {
        self.try_view().expect("the log is intact")
    }

    /// The same, or nothing if a checksum is wrong.
    pub(super) fn try_view(&self) -> Option<Vec<Option<Version>>> {
        let sectors = self.far.durable.len();
        let mut view: Vec<Option<Version>> = (0..sectors).map(|i| Some(self.far.read(i))).collect();
        let mut dirty = Vec::new();
        self.log.look_up(Extent::new(0, sectors as u64 * 512), &mut dirty);
        for one in dirty {
            let from = (one.extent.offset / 512) as usize;
            let count = (one.extent.length / 512) as usize;
            match one.found {
                Found::Zeroes => view[from..from + count].fill(Some(0)),
                Found::NotYet(_) => view[from..from + count].fill(None),
                Found::Log(span) => {
                    let bytes = self.read_span(&span).ok()?;
                    for (i, sector) in bytes.chunks(512).enumerate() {
                        let version = version(sector);
                        let mut wanted = [0; 512];
                        fill(version, from + i, &mut wanted);
                        assert_eq!(sector, wanted, "data of the sector that it is of");
                        view[from + i] = Some(version);
                    }
                }
            }
        }
        Some(view)
    }

    /// The same history and upstream with another log device, not opened.
    pub(super) fn with_disk(&self, durable: Vec<u8>) -> Self {
        let mut rig = Self::new(0, self.settings, self.far.durable.len() as u64);
        rig.running.clear();
        rig.rotten = true;
        rig.disk = Disk::new(0);
        rig.disk.durable = durable;
        rig.far = self.far.clone();
        rig.asked = self.asked.clone();
        rig
    }

    /// Whether `found` on a sector is `wanted` or something newer. Zeroes are those of the newest
    /// operation that zeroed it.
    pub(super) fn at_least(&self, sector: usize, found: Version, wanted: Version) -> bool {
        let zeroed = || {
            self.asked.iter().enumerate().any(|(i, one)| {
                i as u64 + 1 >= wanted
                    && one.touches(sector)
                    && one.kind.is_some_and(|kind| kind != Kind::Write)
            })
        };
        found >= wanted || (found == 0 && (wanted == 0 || zeroed()))
    }

    /// Upstream is what a disk may show after a power cut: nothing is there without everything that was
    /// durable before it was asked for. What hosts were told is upstream is there.
    pub(super) fn judge(&self) {
        let present = self.far.durable.iter().chain(self.far.cache.values());
        let latest = present
            .filter(|&&version| version > 0)
            .map(|&version| self.asked[version as usize - 1].issued)
            .max()
            .unwrap_or(0);
        let flushed = self
            .asked
            .iter()
            .filter(|one| one.kind.is_none() && one.acked.is_some_and(|at| at < latest))
            .map(|one| one.issued)
            .max()
            .unwrap_or(0);
        let told = self.flushed();
        for (i, one) in self.asked.iter().enumerate() {
            let Some(at) = one.acked.filter(|_| one.kind.is_some()) else { continue };
            let told = self.settings.sync == Sync::Upstream && (at < told || one.fua);
            let ordered = at < latest && (one.fua || (self.strict && !one.past));
            let needed = at < flushed || ordered || told;
            if !needed {
                continue;
            }
            for sector in one.from..one.from + one.count {
                let found = self.far.durable[sector];
                assert!(
                    self.at_least(sector, found, i as u64 + 1),
                    "upstream has something that was asked for at {latest} and not operation {} on sector {sector}, acknowledged at {at}; it has {found}; flushed {flushed}",
                    i + 1
                );
            }
        }
    }

    /// When the last flush that was acknowledged was asked for.
    pub(super) fn flushed(&self) -> u64 {
        let flushes = self.asked.iter().filter(|one| one.kind.is_none() && one.acked.is_some());
        flushes.map(|one| one.issued).max().unwrap_or(0)
    }

    /// Everything that hosts may rely on can be read.
    pub(super) fn check_reads(&self) {
        let view = self.view();
        let flushed = self.flushed();
        for (sector, found) in view.iter().enumerate() {
            let wanted = self.asked.iter().enumerate().rev().find(|(_, one)| {
                one.touches(sector)
                    && one.acked.is_some_and(|at| {
                        self.settings.mode == Mode::Log || at < flushed || one.fua
                    })
            });
            let Some((i, _)) = wanted else { continue };
            if let Some(found) = found {
                assert!(
                    self.at_least(sector, *found, i as u64 + 1),
                    "sector {sector} must have operation {} and has {found}",
                    i + 1
                );
            } else {
                // What recovery has found is not known to be durable at first.
                let status = self.log.status(self.now);
                assert!(status.durable < status.last, "nothing is waited for");
            }
        }
    }
}
