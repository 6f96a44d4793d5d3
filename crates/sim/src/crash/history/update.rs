//! Updates: changes that go upstream past a log that is in use, and are durable there when they are acknowledged.
//!
//! So each is there or not apart from the order of the log, until it is acknowledged; from then on it must be there. What
//! recovery finds of one that was not acknowledged may be in a cache of the upstream only, until a flush is answered.

use super::{Broken, Change, History};
use std::ops::Range;

impl History {
    /// An update arrives that leaves these numbers; with `atomic` all of them or none. Gives its place.
    pub(in super::super) fn arrive_update(
        &mut self,
        sectors: Range<u32>,
        tokens: &[u64],
        atomic: bool,
    ) -> usize {
        let place = self.arrive_copy(sectors, tokens);
        self.changes[place].update = true;
        if atomic {
            self.atomic.insert(place + 1);
        }
        place
    }

    /// Whether an update may read this: what was left before it, or, if it is made `again`, what it has left itself.
    pub(in super::super) fn may_read(
        &self,
        place: usize,
        (sector, has): (u32, Option<u64>),
        again: bool,
    ) -> bool {
        let mut versions = self.versions[sector as usize].iter().rev();
        let itself = versions.clone().find(|version| again && version.0 == place + 1);
        let before = versions.find(|version| version.0 <= place);
        itself.into_iter().chain(before).any(|version| has == Some(version.1))
    }

    /// An update that depends on what is there has read that, and leaves these numbers.
    pub(in super::super) fn leaves(&mut self, place: usize, tokens: &[u64]) {
        for (sector, &token) in self.changes[place].sectors.clone().zip(tokens) {
            let mut versions = self.versions[sector as usize].iter_mut();
            if let Some(own) = versions.find(|version| version.0 == place + 1) {
                self.revision += u64::from(own.1 != token);
                own.1 = token;
            }
        }
    }

    /// The number that a sector gets from the next change that arrives.
    pub(in super::super) fn next_token(&self, sector: u32) -> u64 {
        self.token(self.numbers + 1, sector)
    }

    /// Whether a version, by the place of its change and one more, is that of an update.
    pub(super) fn is_update(&self, version: usize) -> bool {
        version.checked_sub(1).is_some_and(|place| self.changes[place].update)
    }

    /// Whether it is that of an update that was acknowledged, or is durable like one.
    pub(super) fn is_solid(&self, version: usize) -> bool {
        self.is_update(version) && self.changes[version - 1].acked
    }

    /// Whether a sector has this version, or a newer one, if it has the first `changes`.
    pub(super) fn is_at_least(&self, version: usize, changes: usize) -> bool {
        if self.is_update(version) { self.is_solid(version) } else { version <= changes }
    }

    /// What recovery has found of updates is durable.
    pub(super) fn make_sure(&mut self) {
        for version in std::mem::take(&mut self.unsure) {
            self.changes[version - 1].acked = true;
            self.revision += 1;
        }
    }

    /// The upstream has lost its cache, and has this left: what was found of updates may be gone.
    pub(super) fn lose_unsure(&mut self, upstream: &[Option<u64>]) {
        if self.unsure.is_empty() {
            return;
        }
        self.revision += 1;
        self.faded.get_or_insert_with(|| self.versions.clone());
        for (versions, has) in self.versions.iter_mut().zip(upstream) {
            versions.retain(|version| !self.unsure.contains(&version.0) || *has == Some(version.1));
        }
    }

    /// A crash has left this: what it has of updates that were not acknowledged stays, and the rest never was.
    pub(super) fn find_updates(&mut self, volume: &[Option<u64>]) {
        self.atomic.clear();
        for place in 0..self.changes.len() {
            let Change { acked, update, ref sectors, .. } = self.changes[place];
            if acked || !update {
                continue;
            }
            let mut found = false;
            for sector in sectors.clone() {
                let has = volume[sector as usize];
                let versions = &mut self.versions[sector as usize];
                let Some(at) = versions.iter().position(|version| version.0 == place + 1) else {
                    continue;
                };
                let token = versions[at].1;
                // One that leaves what is there shows nothing of itself.
                let same = at > 0 && versions[at - 1].1 == token;
                if has == Some(token) && !same {
                    found = true;
                } else {
                    versions.remove(at);
                }
            }
            if found {
                self.unsure.insert(place + 1);
            } else {
                self.unsure.remove(&(place + 1));
                self.changes[place].sectors.end = self.changes[place].sectors.start;
            }
        }
    }

    /// One more than the place of the last update of which something is there.
    pub(super) fn last_update(&self) -> usize {
        let is = |change: &Change| change.update && !change.sectors.is_empty();
        self.changes.iter().rposition(is).map_or(0, |place| place + 1)
    }

    /// Whether a volume has all or nothing of each atomic write that was not acknowledged.
    pub(in super::super) fn is_untorn(&self, volume: &[Option<u64>]) -> Result<(), Broken> {
        for &version in &self.atomic {
            let sectors = self.changes[version - 1].sectors.clone();
            let is = |&sector: &u32| {
                let has = volume[sector as usize];
                let mut versions = self.versions[sector as usize].iter();
                versions.any(|&(at, token)| at == version && has == Some(token))
            };
            let count = sectors.clone().filter(is).count();
            if count != 0 && count != sectors.len() {
                return Err(Broken::Torn(format!(
                    "after recovery {count} sectors of {} have an atomic write",
                    self.change(version)
                )));
            }
        }
        Ok(())
    }
}
