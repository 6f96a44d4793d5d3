//! Makes the pipeline's configuration of a gateway's.

use crate::config::{Ack, Config, Layout, Volume, Where};
use crate::identity::{identity, volume_id};
use crate::storage::layout;
use crate::storage::log_device::log;
use crate::storage::store::Store;
use std::ops::Range;
use weir_flow::accept;
use weir_flow::cache::Settings;
use weir_flow::cache::writeback::{self, Mode};
use weir_flow::pipeline::{self, Backend};
use weir_flow::request::{BackendId, TenantId};

/// The data path of a gateway: the modelled devices are its first backends, with one path each; then come
/// the upstreams, with a path for each portal; every other store is a backend with one path.
pub(crate) fn plan(config: &Config, stores: &[Store]) -> pipeline::Config {
    let mut backends = vec![Backend::alike(1); config.backends.len()];
    backends.extend(config.upstreams.iter().map(|upstream| Backend {
        groups: upstream.portals.iter().map(|portal| portal.group).collect(),
    }));
    let mut backend = |place: &Where| {
        let index = match place {
            Where::Upstream { index, .. } => config.backends.len() + index,
            Where::File(file) => file.backend.unwrap_or_else(|| {
                backends.push(Backend::alike(1));
                backends.len() - 1
            }),
        };
        BackendId::new(index as u32)
    };
    let volume = |(volume, range): (&Volume, Range<usize>)| {
        let stores = &stores[range];
        let backends: Vec<_> = volume.stores.iter().map(&mut backend).collect();
        let layout = match volume.layout {
            _ if backends.len() == 1 => accept::Layout::One(backends[0]),
            Layout::Stripe { chunk } => accept::Layout::Stripe { backends, chunk },
            Layout::Concat => {
                let parts = backends.into_iter().zip(layout::used(volume, stores));
                let part = |(backend, length)| accept::Part { backend, length };
                accept::Layout::Concat(parts.map(part).collect())
            }
        };
        accept::Volume {
            capacity: layout::capacity(volume, stores),
            layout,
            max_transfer: stores.iter().map(Store::max_transfer).min().expect("it has a store"),
            cap: volume.cap,
        }
    };
    pipeline::Config {
        volumes: layout::ranges(&config.volumes).map(volume).collect(),
        backends,
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
        let log = volume.log.as_ref()?;
        let capacity = log::capacity(log);
        Some(writeback::Settings {
            volume: volume_id(volume, &node),
            block: volume.block_size,
            mode: if log.ack == Ack::Ram { Mode::Ram } else { Mode::Log },
            sync: log.sync,
            order: log.order,
            capacity,
            segment: log::segment(capacity),
            // A remote upstream is fast only with as many small writes in flight as its link holds in a round
            // trip; demand reads still go first.
            depth: 128,
            upstream_flush: stores[range].iter().any(Store::has_cache),
            ..writeback::Settings::default()
        })
    };
    Settings {
        owners: config.volumes.iter().map(|volume| TenantId::new(volume.tenant as u32)).collect(),
        logs: layout::ranges(&config.volumes).map(log).collect(),
        ..config.cache.clone()
    }
}
