//! The devices of write-back logs: opening, reading pages, and inspecting a closed one.

pub(crate) mod inspect;
pub(crate) mod log;
pub(crate) mod lost;
pub(crate) mod opener;
mod pages;

use crate::config::{Ack, Config, Volume};
use crate::identity::volume_id;
use crate::storage::random::Random;
use log::{LogError, LogFile};
use std::path::PathBuf;
use std::sync::Arc;
use tracing::warn;
use weir_flow::cache::writeback::{self, Mode};
use weir_flow::cache::{Done, Settings};
use weir_flow::request::VolumeId;
use weir_flow::units::ByteCount;

/// The logs, ready to be used.
pub(crate) struct Opened {
    /// The log of each volume that has one.
    pub(crate) logs: Vec<Option<LogFile>>,
    /// What was found in the logs, for the pipeline.
    pub(crate) found: Vec<Done>,
    /// What that is, in short, of each volume.
    pub(crate) logged: Vec<Option<Logged>>,
    /// Where the lost ranges of each volume are kept.
    pub(crate) lost: Vec<Option<PathBuf>>,
}

/// What is in a volume's log when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// Its name.
    pub(crate) id: [u8; 16],
    /// It has data that is not known to be upstream.
    pub(crate) dirty: bool,
}

/// A log that is open, and what the pipeline learns of it.
#[derive(Debug)]
pub(crate) struct OpenedLog {
    /// It; `None` if the volume has none.
    pub(crate) file: Option<LogFile>,
    /// What was found there.
    pub(crate) found: Vec<Done>,
    /// What that is, in short.
    pub(crate) logged: Option<Logged>,
    /// Where the lost ranges of the volume are kept.
    pub(crate) lost: Option<PathBuf>,
}

impl OpenedLog {
    /// Closes it if it was opened in vain.
    pub(crate) fn unmake(self, volume: &str) {
        if let Some(file) = self.file {
            file.unmake(volume);
        }
    }
}

/// The settings of a volume's log, if it has one; `has_cache` if its stores have a volatile cache.
pub(crate) fn settings(
    volume: &Volume,
    has_cache: bool,
    node: &str,
) -> Option<writeback::Settings> {
    let log = volume.log.as_ref()?;
    let capacity = log::capacity(log);
    Some(writeback::Settings {
        volume: volume_id(volume, node),
        block: volume.block_size,
        mode: if log.ack == Ack::Ram { Mode::Ram } else { Mode::Log },
        sync: log.sync,
        order: log.order,
        capacity,
        segment: log::segment(capacity),
        // A remote upstream is fast only with as many small writes in flight as its link holds in a round
        // trip; demand reads still go first.
        depth: 128,
        upstream_flush: has_cache,
        ..writeback::Settings::default()
    })
}

/// Opens the logs. `random` names the new ones.
pub(crate) fn open(
    config: &Config,
    settings: &Settings,
    random: &mut dyn Random,
) -> Result<Opened, LogError> {
    let mut all =
        Opened { logs: Vec::new(), found: Vec::new(), logged: Vec::new(), lost: Vec::new() };
    for (index, (volume, log)) in config.volumes.iter().zip(&settings.logs).enumerate() {
        let opened = open_one(VolumeId::new(index as u32), volume, log.as_ref(), random)?;
        all.logs.push(opened.file);
        all.found.extend(opened.found);
        all.logged.push(opened.logged);
        all.lost.push(opened.lost);
    }
    Ok(all)
}

/// Whether the log of a volume could be opened, or made, or a volume without a log be served. Changes nothing.
pub(crate) fn check(volume: &Volume) -> Result<(), LogError> {
    match &volume.log {
        Some(log) => log::check(volume, log),
        None => log::none(volume),
    }
}

/// Opens the log of a volume, or sees to it that one without a log needs none. `random` names a new one. Blocks.
pub(crate) fn open_one(
    id: VolumeId,
    volume: &Volume,
    settings: Option<&writeback::Settings>,
    random: &mut dyn Random,
) -> Result<OpenedLog, LogError> {
    let mut found = Vec::new();
    let ranges = lost::load(volume)?;
    if !ranges.is_empty() {
        let bytes = ByteCount(ranges.iter().map(|range| range.extent.length).sum());
        warn!(
            volume = volume.name,
            ranges = ranges.len(),
            %bytes,
            "data is lost, as an operator has ordered: reads of it fail until it is overwritten"
        );
        found.push(Done::Lost(id, ranges));
    }
    let lost = lost::place(volume);
    let (Some(place), Some(settings)) = (&volume.log, settings) else {
        log::none(volume)?;
        return Ok(OpenedLog { file: None, found, logged: None, lost });
    };
    let (file, recovered) = log::open(volume, place, settings, random)?;
    let logged = Some(Logged { id: file.id, dirty: recovered.dirty() != (0, 0) });
    found.push(Done::Recovered(id, Arc::new(recovered)));
    if place.ack == Ack::Through {
        found.push(Done::Drain(id, true));
    }
    Ok(OpenedLog { file: Some(file), found, logged, lost })
}
