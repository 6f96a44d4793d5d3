//! What backends and their paths are called.

use crate::config::Config;
use weir_flow::pipeline;

/// The backends of a gateway, by backend id. They do not change while it runs.
#[derive(Debug)]
pub(crate) struct Backends {
    all: Vec<Named>,
    /// By volume.
    of_volumes: Vec<usize>,
}

/// A backend.
#[derive(Debug)]
pub(crate) struct Named {
    /// Its name in the configuration.
    pub(crate) name: String,
}

impl Backends {
    /// Those of a configuration and the pipeline that was made of it.
    pub(crate) fn new(config: &Config, plan: &pipeline::Config) -> Self {
        let of_volumes: Vec<_> = plan.volumes.iter().map(|volume| volume.backend.index()).collect();
        let mut all: Vec<_> = plan.backends.iter().map(|_| Named { name: String::new() }).collect();
        for (&backend, volume) in of_volumes.iter().zip(&config.volumes) {
            all[backend].name.clone_from(&volume.name);
        }
        for (named, model) in all.iter_mut().zip(&config.backends) {
            named.name.clone_from(&model.name);
        }
        for index in 1..all.len() {
            // Devices and volumes may have the same names.
            let (before, rest) = all.split_at_mut(index);
            if before.iter().any(|named| named.name == rest[0].name) {
                rest[0].name.insert_str(0, "volume:");
            }
        }
        Self { all, of_volumes }
    }

    /// The one that a volume is on.
    pub(crate) fn of_volume(&self, volume: usize) -> &Named {
        &self.all[self.of_volumes[volume]]
    }
}
