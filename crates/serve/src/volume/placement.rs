//! The backends that volumes are on.
//!
//! Modelled devices are the first backends, with one path each; then come the upstreams, with a path for each portal;
//! every other store is a backend with one path. A volume that comes later brings its backends along. They stay its
//! place's when it has gone: a volume that comes to that place has them again.

use crate::config::{Config, FileStore, Layout, Volume, Where};
use crate::storage::layout;
use crate::storage::store::Store;
use weir_flow::accept;
use weir_flow::pipeline::Backend;
use weir_flow::request::BackendId;

/// Which backends there are, and which of them volumes are on.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendPlaces {
    /// How many are modelled devices.
    devices: usize,
    count: usize,
    /// By volume, in the order of its stores.
    of_volumes: Vec<Vec<BackendId>>,
    /// By volume, those that no other volume is on, whether it is there or has gone.
    own: Vec<Vec<BackendId>>,
}

impl BackendPlaces {
    /// Those of a configuration with which a gateway starts.
    pub(crate) fn new(config: &Config) -> Self {
        let devices = config.backends.len();
        let count = devices + config.upstreams.len();
        let mut places = Self { devices, count, ..Self::default() };
        for (index, volume) in config.volumes.iter().enumerate() {
            places.put(index, volume);
        }
        places
    }

    /// A volume comes to this place, or to the next one. Returns how many backends it brings along.
    pub(crate) fn put(&mut self, index: usize, volume: &Volume) -> usize {
        if index == self.of_volumes.len() {
            self.of_volumes.push(Vec::new());
            self.own.push(Vec::new());
        }
        let Self { devices, count, of_volumes, own } = self;
        let (before, own) = (*count, &mut own[index]);
        let mut used = 0;
        let mut alone = || {
            if used == own.len() {
                own.push(BackendId::new(*count as u32));
                *count += 1;
            }
            used += 1;
            own[used - 1]
        };
        let backend = |place: &Where| match place {
            Where::Upstream { index, .. } => BackendId::new((*devices + index) as u32),
            Where::File(FileStore { backend: Some(device), .. }) => BackendId::new(*device as u32),
            Where::File(_) | Where::Memory(_) => alone(),
        };
        of_volumes[index] = volume.stores.iter().map(backend).collect();
        *count - before
    }

    /// The backends of a volume, in the order of its stores.
    pub(crate) fn of(&self, volume: usize) -> &[BackendId] {
        &self.of_volumes[volume]
    }

    /// The backends that no other volume can be on.
    pub(crate) fn own(&self, volume: usize) -> &[BackendId] {
        &self.own[volume]
    }

    /// All backends, as the pipeline knows them.
    pub(crate) fn all(&self, config: &Config) -> Vec<Backend> {
        let mut all = vec![Backend::alike(1); self.count];
        for (backend, upstream) in all.iter_mut().skip(self.devices).zip(&config.upstreams) {
            backend.groups = upstream.portals.iter().map(|portal| portal.group).collect();
        }
        all
    }
}

/// What the pipeline knows of a volume on these backends.
pub(crate) fn spec(volume: &Volume, backends: &[BackendId], stores: &[Store]) -> accept::Volume {
    let layout = match volume.layout {
        _ if backends.len() == 1 => accept::Layout::One(backends[0]),
        Layout::Stripe { chunk } => accept::Layout::Stripe { backends: backends.to_vec(), chunk },
        Layout::Concat => {
            let parts = backends.iter().zip(layout::used(volume, stores));
            let part = |(&backend, length)| accept::Part { backend, length };
            accept::Layout::Concat(parts.map(part).collect())
        }
    };
    accept::Volume {
        capacity: layout::capacity(volume, stores),
        layout,
        max_transfer: stores.iter().map(Store::max_transfer).min().expect("it has a store"),
        cap: volume.cap,
    }
}
