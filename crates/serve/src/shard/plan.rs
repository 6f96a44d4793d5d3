//! Makes the pipeline's configuration of a gateway's.

use crate::config::{Config, Volume};
use crate::identity::identity;
use crate::storage::layout;
use crate::storage::log_device;
use crate::storage::store::Store;
use crate::volume::placement::{self, BackendPlaces};
use std::ops::Range;
use weir_flow::cache::Settings;
use weir_flow::pipeline;
use weir_flow::request::TenantId;

/// The data path of a gateway that starts.
pub(crate) fn plan(config: &Config, stores: &[Store]) -> pipeline::Config {
    let places = BackendPlaces::new(config);
    let volume = |(index, (volume, range)): (usize, (&Volume, Range<usize>))| {
        placement::spec(volume, places.of(index), &stores[range])
    };
    pipeline::Config {
        volumes: layout::ranges(&config.volumes).enumerate().map(volume).collect(),
        backends: places.all(config),
        promises: config.promises.clone(),
        shares: config.shares.clone(),
        limits: config.limits,
        paths: config.paths,
        cache: cache(config, stores),
        policies: config.policies.clone(),
    }
}

/// The settings of the cache stage.
fn cache(config: &Config, stores: &[Store]) -> Settings {
    let node = identity();
    let log = |(volume, range): (&Volume, Range<usize>)| {
        log_device::settings(volume, stores[range].iter().any(Store::has_cache), &node)
    };
    Settings {
        owners: config.volumes.iter().map(|volume| TenantId::new(volume.tenant as u32)).collect(),
        logs: layout::ranges(&config.volumes).map(log).collect(),
        ..config.cache.clone()
    }
}
