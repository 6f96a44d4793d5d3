//! Volumes that come and go at a reload: a configuration is put into force, and volumes that leave are flushed and closed.

use crate::config::{Config, Places, Rejected};
use crate::storage::emulated::Regions;
use crate::storage::io::Submit;
use crate::storage::store::Store;
use crate::tasks::CommandEngine;
use crate::tasks::io::{flush_last, lose};
use crate::volume::live::OpenedVolume;
use crate::volume::reload::{Planned, Uses};
use crate::volume::{Life, Volume, VolumesGone};
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::{error, info};
use weir_flow::cache::Done;
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::Input;
use weir_flow::request::{Outcome, VolumeId};
use weir_flow::units::ByteCount;

/// The volumes that leave: hosts do not find them any more, and requests of theirs end.
///
/// When the commands of one have ended its log closes: what was acknowledged is durable there, and what is not on the volume's
/// own storage stays there. Then the pipeline is asked to let go of it, again and again: a reply to a host that is
/// not there any more may still be in the pipeline when its command is not. When the pipeline has said that the volume
/// has gone, it is flushed and closed.
#[derive(Debug, Default)]
pub(crate) struct LeavingVolumes {
    all: Vec<Leaving>,
    /// When to look again whether their requests have ended.
    look: Instant,
    /// Those that have gone for the pipeline.
    gone: VolumesGone,
}

#[derive(Debug)]
struct Leaving {
    volume: usize,
    /// Its log was asked to close.
    closes: bool,
    /// The stores that are being flushed, once the pipeline has let go of it.
    flushes: Option<Vec<usize>>,
}

impl CommandEngine {
    /// Checks whether a new configuration can be put into force; changes nothing.
    pub(crate) fn plan_reload(
        &self,
        old: &Config,
        new: Config,
        uses: &Uses<'_>,
        places: &Places,
    ) -> Result<Planned, Rejected> {
        let emulated = &self.storage.emulated;
        let job = |volume| {
            if uses.force { self.jobs.holding(volume) } else { self.jobs.of(volume) }
        };
        let room = |row| emulated.room(row);
        let planned = self.catalog.plan_reload(old, new, (uses, &job), (&room, places))?;
        let sizes = planned.added().map(|(index, sizes)| (index, sizes.to_vec()));
        self.regions(&planned, sizes)?;
        Ok(planned)
    }

    /// Where volumes with stores of these sizes are on modelled devices, besides those that there are.
    fn regions(
        &self,
        planned: &Planned,
        volumes: impl Iterator<Item = (usize, Vec<u64>)>,
    ) -> Result<Regions, Rejected> {
        let catalog = &self.catalog;
        let used = |store: usize| {
            let mut volumes = catalog.volumes.iter();
            let alone = |one: &Volume| one.life != Life::Gone && one.stores == (store..store + 1);
            let alone = volumes.position(alone);
            let stored = catalog.stores.get(store).map_or(u64::MAX, Store::capacity);
            alone.map_or(stored, |volume| {
                // It may grow with this reload.
                let planned = planned.size(volume).unwrap_or(0);
                stored.max(catalog.capacity(volume)).max(planned)
            })
        };
        let (mut regions, config) = (self.storage.emulated.regions().clone(), planned.config());
        let mut wanted = BTreeMap::new();
        let mut rows = catalog.rows();
        let mut faults = Vec::new();
        for (index, sizes) in volumes {
            let volume = &config.volumes[index];
            let range = rows.take(sizes.len());
            regions.reach(range.end);
            for ((place, size), row) in volume.stores.iter().zip(sizes).zip(range) {
                let Some(device) = place.file().and_then(|file| file.backend) else { continue };
                let backend = &config.backends[device];
                wanted.insert(row, size);
                let used = |row: usize| wanted.get(&row).copied().unwrap_or_else(|| used(row));
                if !regions.put(row, (device, backend), size, used) {
                    faults.push(format!(
                        "volume `{}`: its modelled device `{}` has no room for {} in one piece",
                        volume.name,
                        backend.name,
                        ByteCount(size)
                    ));
                }
            }
        }
        if faults.is_empty() { Ok(regions) } else { Err(Rejected::Unavailable(faults)) }
    }

    /// Extends the files of volumes that grow. Those that were extended before an error keep their length.
    pub(crate) fn grow(
        &self,
        planned: &Planned,
        opened: &[OpenedVolume],
    ) -> Result<Regions, Rejected> {
        let sizes =
            |one: &OpenedVolume| (one.index, one.stores.iter().map(Store::capacity).collect());
        let regions = self.regions(planned, opened.iter().map(sizes))?;
        self.catalog.grow(planned)?;
        Ok(regions)
    }

    /// Puts a planned configuration into force, with the volumes that were opened for it. Nothing of this can fail. Returns
    /// the configuration, and inputs that the pipeline must have before anybody asks it about the volumes.
    pub(crate) fn reload(
        &mut self,
        old: &Config,
        planned: Planned,
        (opened, regions): (Vec<OpenedVolume>, Regions),
    ) -> (Config, Vec<Input>) {
        let mut first = Vec::new();
        self.storage.emulated.set_regions(regions);
        for one in opened {
            let index = one.index;
            let (range, log, added) = self.catalog.take_in(planned.config(), one);
            self.cache.put_log(index, log.file, log.lost);
            self.storage.opened(index, range.clone());
            info!(volume = self.catalog.volumes[index].name, "volume added");
            first.push(Input::VolumeAdded(Arc::new(added)));
            first.extend(log.found.into_iter().map(Input::Cache));
            let (jobs, mut cx) = self.jobs();
            jobs.resume(&mut cx, index);
        }
        for volume in planned.removed() {
            info!(volume = self.catalog.volumes[volume].name, "volume leaves");
            self.catalog.volumes[volume].life = Life::Leaves;
            self.leaving.all.push(Leaving { volume, closes: false, flushes: None });
            self.leaving.look = self.set.now;
        }
        let reloaded = self.catalog.reload(old, planned);
        self.set.inputs.extend(reloaded.inputs);
        for volume in reloaded.resized {
            self.capacity_changed(volume);
        }
        let names = self.catalog.targets.iter().map(|target| target.name.clone());
        self.set.sessions.name_targets(names);
        (reloaded.config, first)
    }

    /// Where the pipeline's observer notes which volumes have gone.
    pub(crate) fn volumes_gone(&self) -> VolumesGone {
        self.leaving.gone.clone()
    }

    /// Whether a volume leaves that is not closed.
    pub(crate) const fn has_leaving(&self) -> bool {
        !self.leaving.all.is_empty()
    }

    /// Whether the last flush of a volume that leaves is at the driver: how it ends will not be known.
    pub(crate) fn is_flushed_last(&self, volume: usize) -> bool {
        let flushed = |one: &Leaving| one.flushes.as_ref().is_some_and(|stores| !stores.is_empty());
        self.leaving.all.iter().any(|one| one.volume == volume && flushed(one))
    }

    /// When to see whether volumes can be flushed and closed that leave, if some are waited for.
    pub(crate) fn next_leaving(&self) -> Option<Instant> {
        let waits = self.leaving.all.iter().any(|one| one.flushes.is_none());
        waits.then_some(self.leaving.look)
    }

    /// Asks the pipeline to let go of volumes whose commands have ended, flushes those of which it has, and closes those
    /// that are flushed. Returns the volumes that are closed.
    pub(crate) fn let_go(&mut self, now: Instant, drivers: &mut dyn Submit) -> Vec<usize> {
        if self.leaving.all.is_empty() {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.leaving.all);
        let looks = self.leaving.look <= now;
        let let_go = self.leaving.gone.take();
        let mut gone = Vec::new();
        for one in &mut all {
            let id = VolumeId::new(one.volume as u32);
            if let_go.contains(&id) {
                self.flush_leaving(one, drivers);
            } else if one.flushes.is_none() && looks && !self.is_busy(one.volume) {
                if self.cache.has_closed(one.volume) {
                    self.set.inputs.push_back(Input::VolumeRemoved(id));
                } else if !std::mem::replace(&mut one.closes, true) {
                    self.set.inputs.push_back(Input::Cache(Done::Close(id)));
                }
            }
            if one.flushes.as_ref().is_some_and(Vec::is_empty) {
                assert!(!self.is_busy(one.volume), "hosts do not find a volume that leaves");
                gone.push(one.volume);
                self.close_volume(one.volume);
            }
        }
        all.retain(|one| !gone.contains(&one.volume));
        self.leaving.all = all;
        if looks {
            self.leaving.look = now + LOOK_EACH;
        }
        gone
    }

    /// Whether a command or a job of a volume has not ended, or the cache waits for memory for it. O(tasks).
    fn is_busy(&self, index: usize) -> bool {
        let volume = &self.catalog.volumes[index];
        self.set.tasks.values().any(|task| task.volume == index && !task.is_own)
            || self.cache.waits_for(index)
            || self.jobs.of(index).is_some()
            || volume.change.is_some()
            || !volume.changes.is_empty()
    }

    /// Begins to make durable what a volume that leaves has.
    fn flush_leaving(&mut self, one: &mut Leaving, drivers: &mut dyn Submit) {
        let volume = &self.catalog.volumes[one.volume];
        let stores = volume.stores.clone();
        // The kernel reports a failure once, and an earlier flush got this one.
        let writes = !volume.unit.disk().read_only && !volume.lost;
        let (_, mut cx) = self.storage(drivers);
        let flushed = stores.filter(|&store| writes && flush_last(&mut cx, store));
        one.flushes = Some(flushed.collect());
    }

    /// A store of a volume that leaves is flushed, or could not be.
    pub(super) fn flushed_last(&mut self, store: usize, outcome: Outcome) {
        for one in &mut self.leaving.all {
            let Some(flushes) = &mut one.flushes else { continue };
            if let Some(place) = flushes.iter().position(|&of| of == store) {
                flushes.swap_remove(place);
                if outcome.is_err() {
                    lose(&mut self.catalog.volumes[one.volume]);
                }
            }
        }
    }

    /// Closes a volume that has left.
    fn close_volume(&mut self, index: usize) {
        let volume = &self.catalog.volumes[index];
        let name = &volume.name;
        if volume.lost {
            error!(
                volume = name,
                "the volume could not be flushed when it was removed: its last writes may be lost"
            );
        } else {
            info!(volume = name, "volume removed: it is flushed and closed");
        }
        for store in volume.stores.clone() {
            self.storage.emulated.remove(store);
        }
        self.cache.close_log(index);
        self.catalog.close(index);
    }
}

/// How often it is looked whether the requests of a volume that leaves have ended.
const LOOK_EACH: Duration = Duration::from_millis(10);
