//! What is near: memory for what was read, and the logs.

pub(crate) mod frames;
pub(crate) mod log;
pub(crate) mod look;
mod pages;

use crate::config::{Ack, Config, Volume};
use crate::desk::Near;
use crate::layout;
use crate::remote::Logged;
use crate::store::Store;
use crate::unit::{identity, volume_id};
use log::{LogError, LogFile};
use std::ops::Range;
use std::sync::Arc;
use weir_flow::cache::writeback::{self, Mode};
use weir_flow::cache::{Done, Settings};
use weir_flow::request::{TenantId, VolumeId};

/// What is near, ready to be used.
pub(crate) struct Opened {
    /// The memory and the logs.
    pub(crate) near: Near,
    /// What was found in the logs, for the pipeline.
    pub(crate) found: Vec<Done>,
    /// What that is, in short, of each volume.
    pub(crate) logged: Vec<Option<Logged>>,
}

/// How the pipeline keeps things near.
pub(crate) fn settings(config: &Config, stores: &[Store]) -> Settings {
    let node = identity();
    let log = |(volume, range): (&Volume, Range<usize>)| {
        let log = volume.log.as_ref()?;
        let capacity = log::capacity(log);
        Some(writeback::Settings {
            volume: volume_id(volume, &node),
            block: volume.block_size,
            mode: if log.ack == Ack::Ram { Mode::Ram } else { Mode::Log },
            sync: log.sync,
            capacity,
            segment: log::segment(capacity),
            // What is far away is fast only if much is on its way; demand reads go first all the same.
            depth: 32,
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

/// Opens the logs, and sets the memory aside.
pub(crate) fn open(config: &Config, settings: &Settings) -> Result<Opened, LogError> {
    let (mut logs, mut found) = (Vec::<Option<LogFile>>::new(), Vec::new());
    let mut logged = Vec::new();
    for (index, (volume, log)) in config.volumes.iter().zip(&settings.logs).enumerate() {
        let (Some(place), Some(settings)) = (&volume.log, log) else {
            log::none(volume)?;
            logs.push(None);
            logged.push(None);
            continue;
        };
        let (file, recovered) = log::open(volume, place, settings)?;
        logged.push(Some(Logged { id: file.id, dirty: recovered.dirty() != (0, 0) }));
        let id = VolumeId::new(index as u32);
        found.push(Done::Recovered(id, Arc::new(recovered)));
        if place.ack == Ack::Through {
            found.push(Done::Drain(id, true));
        }
        logs.push(Some(file));
    }
    Ok(Opened { near: Near::new(settings, logs), found, logged })
}
