//! The names of backends and their paths.

use super::protocol::Refusal;
use crate::config::{Config, FileStore, MemoryStore, Volume, Where};
use weir_flow::accept;
use weir_flow::pipeline;
use weir_flow::request::{BackendId, PathId};

/// The backends of a gateway, by backend id. Those of volumes that have gone keep their places.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    all: Vec<Named>,
    /// By volume.
    of_volumes: Vec<Vec<usize>>,
}

/// What stands for the portal of a store that is no upstream.
const fn portal(store: &Where) -> &'static str {
    match store {
        Where::Memory(MemoryStore { keeps: true, .. }) => "memory",
        Where::Memory(MemoryStore { keeps: false, .. }) => "null",
        _ => "file",
    }
}

/// A backend.
#[derive(Debug)]
pub(crate) struct Named {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// The portal of each path, or `file`, `memory`, `null` or `model`.
    pub(crate) portals: Vec<String>,
    /// A volume is on it, or could be.
    pub(crate) is_there: bool,
}

impl Backends {
    /// The backends of a configuration and of the pipeline that was made of it.
    pub(crate) fn new(config: &Config, plan: &pipeline::Config) -> Self {
        let of_volume = |volume: &accept::Volume| {
            let parts = 0..volume.layout.parts();
            parts.map(|part| volume.layout.backend(part).index()).collect()
        };
        let of_volumes: Vec<Vec<usize>> = plan.volumes.iter().map(of_volume).collect();
        let mut all: Vec<_> = plan
            .backends
            .iter()
            .map(|backend| Named {
                name: String::new(),
                portals: vec!["file".to_owned(); backend.groups.len()],
                is_there: true,
            })
            .collect();
        let mut prefixes = vec!["upstream:"; all.len()];
        for (backends, volume) in of_volumes.iter().zip(&config.volumes) {
            for (&backend, store) in backends.iter().zip(&volume.stores) {
                if !matches!(store, Where::Upstream { .. }) {
                    store.name().clone_into(&mut all[backend].name);
                    all[backend].portals.fill(portal(store).to_owned());
                    prefixes[backend] = if backends.len() > 1 { "store:" } else { "volume:" };
                }
            }
        }
        for (named, model) in all.iter_mut().zip(&config.backends) {
            named.name.clone_from(&model.name);
            named.portals.fill("model".to_owned());
        }
        for (named, upstream) in all.iter_mut().skip(config.backends.len()).zip(&config.upstreams) {
            named.name.clone_from(&upstream.name);
            let portals = upstream.portals.iter().map(|portal| portal.address.to_string());
            named.portals = portals.collect();
        }
        for (index, prefix) in prefixes.into_iter().enumerate().skip(1) {
            // Devices, upstreams, volumes and stores may have the same names.
            let (before, rest) = all.split_at_mut(index);
            if before.iter().any(|named| named.name == rest[0].name) {
                rest[0].name.insert_str(0, prefix);
            }
        }
        Self { all, of_volumes }
    }

    /// A volume has come to this place, on these backends.
    pub(crate) fn put(&mut self, index: usize, volume: &Volume, on: &[BackendId]) {
        if index == self.of_volumes.len() {
            self.of_volumes.push(Vec::new());
        }
        self.of_volumes[index] = on.iter().map(|backend| backend.index()).collect();
        let prefix = if on.len() > 1 { "store:" } else { "volume:" };
        for (&backend, store) in on.iter().zip(&volume.stores) {
            if matches!(
                store,
                Where::File(FileStore { backend: Some(_), .. }) | Where::Upstream { .. }
            ) {
                continue;
            }
            let name = store.name();
            let taken = |one: &Named| one.is_there && one.name == name;
            let name = if self.all.iter().any(taken) {
                format!("{prefix}{name}")
            } else {
                name.to_owned()
            };
            let named = Named { name, portals: vec![portal(store).to_owned()], is_there: true };
            match self.all.get_mut(backend.index()) {
                Some(place) => *place = named,
                None => self.all.push(named),
            }
        }
    }

    /// The volume that these backends were of has gone.
    pub(crate) fn remove(&mut self, backends: &[BackendId]) {
        for backend in backends {
            self.all[backend.index()].is_there = false;
        }
    }

    /// The names of the backends of a volume, in order.
    pub(crate) fn of_volume(&self, volume: usize) -> String {
        let names: Vec<_> =
            self.of_volumes[volume].iter().map(|&index| self.all[index].name.as_str()).collect();
        names.join(", ")
    }

    /// The backends of a volume.
    pub(crate) fn under(&self, volume: usize) -> impl Iterator<Item = BackendId> {
        self.of_volumes[volume].iter().map(|&index| BackendId::new(index as u32))
    }

    /// A backend by its number.
    pub(crate) fn get(&self, backend: BackendId) -> &Named {
        &self.all[backend.index()]
    }

    /// A backend by its name.
    pub(crate) fn find(&self, name: &str) -> Result<BackendId, Refusal> {
        let there = || self.all.iter().filter(|backend| backend.is_there);
        let wanted = |backend: &Named| backend.is_there && backend.name == name;
        let found = self.all.iter().position(wanted);
        found.map(|index| BackendId::new(index as u32)).ok_or_else(|| Refusal::UnknownBackend {
            name: name.to_owned(),
            known: there().map(|backend| backend.name.clone()).collect(),
        })
    }

    /// A path to a backend by its number.
    pub(crate) fn path(&self, backend: BackendId, path: u32) -> Result<PathId, Refusal> {
        let Named { name, portals, .. } = self.get(backend);
        let count = portals.len() as u32;
        if path < count {
            return Ok(PathId::new(path));
        }
        Err(Refusal::UnknownPath { backend: name.clone(), path, count })
    }
}
