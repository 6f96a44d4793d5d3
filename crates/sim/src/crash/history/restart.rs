//! What a crash, or a loss of the upstream's cache, leaves of a history.

use super::{Broken, GONE, History};

impl History {
    /// The upstream has lost its cache, and has this left: what went past the log, and had ended, may be gone. Whether
    /// something of that was acknowledged.
    pub(in super::super) fn lost(&mut self, upstream: &[Option<u64>]) -> bool {
        self.lose_unsure(upstream);
        if self.direct.is_none() {
            return false;
        }
        let mut gone = false;
        self.revision += 1;
        self.faded.get_or_insert_with(|| self.versions.clone());
        let mut left = core::mem::take(&mut self.versions);
        for (versions, &has) in left.iter_mut().zip(upstream) {
            // What the log has is not upstream yet.
            let logged = |version: usize| {
                !self.is_update(version) && !self.owed(version) && version > self.upstream
            };
            let ended =
                |version: usize| self.changes[version - 1].acked || self.changes[version - 1].done;
            let comes = |version: usize| version > self.recovered && !ended(version);
            let found =
                versions.iter().rfind(|version| has == Some(version.1) && !logged(version.0));
            let kept = found.map_or(0, |version| version.0);
            versions.retain(|&(version, _)| {
                let stays = version <= kept || comes(version) || logged(version);
                gone |= !stays && ended(version);
                stays
            });
        }
        self.versions = left;
        gone
    }

    /// The gateway knows that the upstream may have lost its cache.
    pub(in super::super) fn found_out(&mut self) {
        self.faded = None;
    }

    /// Whether memory may still show what the upstream has lost.
    pub(in super::super) const fn has_faded(&self) -> bool {
        self.faded.is_some()
    }

    /// A crash has left this. In words, what it is.
    pub(in super::super) fn restart(&mut self, volume: &[Option<u64>]) -> Result<String, Broken> {
        let before = self.versions.clone();
        let found = self.continue_from(volume)?;
        for ((taken, before), now) in self.taken_back.iter_mut().zip(before).zip(&self.versions) {
            let gone = before.into_iter().filter(|version| !now.contains(version));
            *taken = gone.map(|version| version.1).collect();
        }
        Ok(found)
    }

    fn continue_from(&mut self, volume: &[Option<u64>]) -> Result<String, Broken> {
        self.survives(volume)?;
        self.faded = None;
        if self.survives_settled(volume).is_err()
            && let Some(before) = self.unsettled.take()
        {
            // Numbers of changes and of revisions are never used twice.
            let (numbers, revision) = (self.numbers, self.revision);
            let given = std::mem::take(&mut self.given);
            *self = Self { numbers, revision, given, ..*before };
            return self.continue_from(volume);
        }
        self.revision += 1;
        self.durable = false;
        if self.direct.is_none() && !self.loose {
            self.unsettled = Some(Box::new(self.clone()));
            let (whole, sectors) = self.prefix(volume)?;
            self.find_updates(volume);
            self.truncate(whole, sectors);
            return Ok(format!("the first {whole} changes"));
        }
        let logs = self.direct.as_ref().is_some_and(|direct| self.changes.len() > direct.end);
        if logs && !self.loose {
            self.unsettled = Some(Box::new(self.clone()));
        }
        self.find_updates(volume);
        // Of each sector what it had until now; some of that may still not be durable.
        for (versions, &has) in self.versions.iter_mut().zip(volume) {
            if has == GONE {
                continue;
            }
            let found = versions.iter().rposition(|version| has == Some(version.1));
            versions.truncate(found.expect("it has survived as something") + 1);
        }
        self.loose = false;
        self.recovered = self.changes.len();
        Ok("what a disk may have".to_owned())
    }

    /// What came after a first part never was.
    fn truncate(&mut self, whole: usize, sectors: u32) {
        let kept = whole + usize::from(sectors > 0);
        // Updates are there whatever of the log is.
        let end = kept.max(self.last_update());
        for place in kept..end {
            if !self.changes[place].update {
                self.cut(place, 0);
            }
        }
        for versions in &mut self.versions {
            versions.retain(|version| version.0 <= end);
        }
        self.changes.truncate(end);
        self.unsure.retain(|&version| version <= end);
        if sectors > 0 && !self.changes[whole].update {
            self.cut(whole, sectors);
        }
        self.recovered = end;
        for barrier in &mut self.barriers {
            barrier.before = barrier.before.min(kept);
            barrier.arrived = barrier.arrived.min(end);
        }
        self.upstream = self.upstream.min(kept);
        self.promised = self.promised.min((kept, 0));
    }

    /// Whether a volume differs from `intact` only by what the last crash took back.
    pub(in super::super) fn took_back(
        &self,
        volume: &[Option<u64>],
        intact: &[Option<u64>],
    ) -> bool {
        let mut sectors = volume.iter().zip(intact).zip(&self.taken_back);
        sectors.all(|((has, intact), taken_back)| {
            has == intact || taken_back.iter().any(|&token| *has == Some(token))
        })
    }
}
