//! What is wrong with a volume, in words.

use super::{Change, History, at};

impl History {
    /// The newest thing that is upstream, and the oldest that should be there with it and is not.
    pub(super) fn ahead(&self, upstream: &[Option<u64>]) -> String {
        let newest = (0..).zip(upstream).filter_map(|(sector, &has)| {
            let place = self.place(sector, has?)?;
            Some((place, sector))
        });
        let Some((newest, at_sector)) = newest.max() else { return String::new() };
        let before = self.barriers.iter().rev().find(|barrier| barrier.arrived < newest);
        let before = before.map_or(0, |barrier| barrier.before).max(self.upstream);
        let lacks = (0..).zip(upstream).find_map(|(sector, &has)| {
            let due = at(&self.versions[sector as usize], before);
            let is = has.and_then(|token| self.place(sector, token));
            is.is_none_or(|place| place < due.0).then_some((sector, due.0))
        });
        let lacks = lacks.map_or_else(String::new, |(sector, due)| {
            format!(", while sector {sector} lacks {}", self.change(due))
        });
        format!("; sector {at_sector} has {}{lacks}", self.change(newest))
    }

    /// A change in words, by its place and one more.
    pub(super) fn change(&self, place: usize) -> String {
        let Some(change) = place.checked_sub(1).map(|place| &self.changes[place]) else {
            return "what the volume began with".to_owned();
        };
        let what = if change.zero { "zeroes" } else { "write" };
        format!("{what} {place} of sectors {}..{}", change.sectors.start, change.sectors.end)
    }

    pub(super) fn name(&self, has: Option<u64>) -> String {
        match has {
            None => "bytes that no host wrote".to_owned(),
            Some(0) => "zeroes".to_owned(),
            Some(token) if token >= 1 << 59 => "data of another volume or gateway".to_owned(),
            Some(token) => {
                let number = (token - 1) / u64::from(self.sectors);
                let sector = (token - 1) % u64::from(self.sectors);
                let is = |change: &Change| change.number == number;
                match self.changes.iter().position(is) {
                    Some(place) => format!("{}, its sector {sector}", self.change(place + 1)),
                    None => format!("data of a write that a crash took back, its sector {sector}"),
                }
            }
        }
    }

    /// What is missing in a first part that is too short.
    pub(super) fn lack(&self, has: usize, promised: usize) -> String {
        let first = self.change(has + 1);
        format!(
            "of what was promised or read {promised} changes had a part, and {has} are there: {first} is lost"
        )
    }

    /// How a volume differs from the first part that it is most like.
    pub(super) fn nearest(&self, volume: &[Option<u64>]) -> String {
        let differs = |changes: usize| {
            let sectors = (0..).zip(volume.iter().zip(&self.versions));
            sectors
                .filter(|(_, (has, versions))| **has != Some(at(versions, changes).1))
                .map(|(sector, _)| sector)
                .collect::<Vec<u32>>()
        };
        let all = (self.promised.0..=self.changes.len()).map(|changes| (differs(changes), changes));
        let (sectors, changes) =
            all.min_by_key(|(sectors, _)| sectors.len()).expect("there is one at least");
        let sector = sectors.first().copied().unwrap_or(0);
        format!(
            "the volume is most like the first {changes} changes, but for {} sectors: sector {sector} has {} and \
             should have {}",
            sectors.len(),
            self.name(volume[sector as usize]),
            self.name(Some(at(&self.versions[sector as usize], changes).1))
        )
    }
}
