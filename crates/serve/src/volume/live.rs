//! Volumes that come and go while others are served.
//!
//! | state | hosts | its requests | its files |
//! |---|---|---|---|
//! | served | find it | come | are open |
//! | leaves | do not find it | end | are flushed when the last has ended |
//! | gone | do not find it | none | are closed |
//!
//! A volume keeps its place, by its name, for as long as the gateway runs: a volume with the name of one that has gone
//! has its place again, one with a new name has the next. Records of what was never mean another volume by a place.

use super::catalog::Catalog;
use super::placement;
use super::{Life, PersistedState, Volume};
use crate::config::{self, Config};
use crate::storage::layout;
use crate::storage::log_device::{self, OpenedLog};
use crate::storage::store::Store;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_flow::pipeline::{Backend, VolumeAdded};
use weir_flow::request::{TenantId, VolumeId};

/// A volume that was opened, to be served from now on.
#[derive(Debug)]
pub(crate) struct OpenedVolume {
    /// Its place.
    pub(crate) index: usize,
    pub(crate) stores: Vec<Store>,
    pub(crate) kept: PersistedState,
    pub(crate) log: OpenedLog,
}

impl Catalog {
    /// Takes in a volume. Returns the places of its stores, its log, and the input for the pipeline.
    pub(crate) fn take_in(
        &mut self,
        config: &Config,
        opened: OpenedVolume,
    ) -> (Range<usize>, OpenedLog, VolumeAdded) {
        let OpenedVolume { index, stores, kept, log } = opened;
        let volume = &config.volumes[index];
        let range = self.rows().take(stores.len());
        for (place, store) in range.clone().zip(stores) {
            match self.stores.get_mut(place) {
                Some(closed) => *closed = store,
                None => self.stores.push(store),
            }
        }
        let brought = self.backends.put(index, volume);
        let stores = &self.stores[range.clone()];
        layout::warn_of_loss(volume, stores);
        let added = VolumeAdded {
            id: VolumeId::new(index as u32),
            volume: placement::spec(volume, self.backends.of(index), stores),
            backends: vec![Backend::alike(1); brought],
            owner: TenantId::new(volume.tenant as u32),
            log: log_device::settings(volume, stores.iter().any(Store::has_cache), &self.node_name),
        };
        let (place, node) = ((volume, range.clone()), &self.node_name);
        let volume = Volume::new(place, &self.stores, kept, &config.limits, node);
        if index == self.volumes.len() {
            self.volume_names.borrow_mut().push(volume.name.clone());
            self.volumes.push(volume);
        } else {
            self.volumes[index] = volume;
        }
        (range, log, added)
    }

    /// The places of stores that are free.
    pub(crate) fn rows(&self) -> Rows {
        Rows(self.stores.iter().map(|store| matches!(store, Store::Closed)).collect())
    }

    /// Closes the files of a volume of which nothing is outstanding.
    pub(crate) fn close(&mut self, index: usize) {
        let volume = &mut self.volumes[index];
        assert!(volume.life == Life::Leaves, "a volume leaves before it has gone");
        volume.life = Life::Gone;
        volume.journal = None;
        self.stores[volume.stores.clone()].fill_with(|| Store::Closed);
    }
}

/// Which places of stores are free, in the row of all.
pub(crate) struct Rows(Vec<bool>);

impl Rows {
    /// Takes places for this number of stores, one behind the other: those that are free, or at the end.
    pub(crate) fn take(&mut self, count: usize) -> Range<usize> {
        let mut free = 0;
        for place in 0..self.0.len() {
            free = if self.0[place] { free + 1 } else { 0 };
            if free == count {
                self.0[place + 1 - count..=place].fill(false);
                return place + 1 - count..place + 1;
            }
        }
        let first = self.0.len() - free;
        self.0.truncate(first);
        self.0.resize(first + count, false);
        first..first + count
    }
}

/// Gives the volumes of a new configuration the places that they have had, whatever their order is now. Those that are
/// new come last; the places of those that are gone stay, empty.
pub(super) fn keep_places(old: &[config::Volume], new: &mut Config) {
    let empty = |volume: &config::Volume| config::Volume { stores: Vec::new(), ..volume.clone() };
    let mut volumes: Vec<_> = old.iter().map(empty).collect();
    let known: BTreeMap<&str, usize> =
        old.iter().zip(0..).map(|(volume, place)| (volume.name.as_str(), place)).collect();
    let mut places = Vec::new();
    for volume in std::mem::take(&mut new.volumes) {
        if let Some(&place) = known.get(volume.name.as_str()) {
            places.push(place);
            volumes[place] = volume;
        } else {
            places.push(volumes.len());
            volumes.push(volume);
        }
    }
    new.volumes = volumes;
    let luns = new.targets.iter_mut().flat_map(|target| &mut target.luns).map(|(_, of)| of);
    let exports = new.nbd.exports.iter_mut().map(|export| &mut export.volume);
    let namespaces = new.nvme.subsystems.iter_mut().flat_map(|one| &mut one.namespaces);
    for of in luns.chain(exports).chain(namespaces.map(|(_, of)| of)) {
        *of = places[*of];
    }
    for (of, _) in &mut new.take_over {
        *of = places[*of];
    }
}
