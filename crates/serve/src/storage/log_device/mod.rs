//! The devices of write-back logs: opening, reading pages, and inspecting a closed one.

pub(crate) mod inspect;
pub(crate) mod log;
pub(crate) mod lost;
mod pages;

use crate::config::{Ack, Config};
use crate::storage::random::Random;
use log::{LogError, LogFile};
use std::path::PathBuf;
use std::sync::Arc;
use tracing::warn;
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

/// Opens the logs. `random` names the new ones.
pub(crate) fn open(
    config: &Config,
    settings: &Settings,
    random: &mut dyn Random,
) -> Result<Opened, LogError> {
    let (mut logs, mut found) = (Vec::<Option<LogFile>>::new(), Vec::new());
    let mut logged = Vec::new();
    for (index, (volume, log)) in config.volumes.iter().zip(&settings.logs).enumerate() {
        let id = VolumeId::new(index as u32);
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
        let (Some(place), Some(settings)) = (&volume.log, log) else {
            log::none(volume)?;
            logs.push(None);
            logged.push(None);
            continue;
        };
        let (file, recovered) = log::open(volume, place, settings, random)?;
        logged.push(Some(Logged { id: file.id, dirty: recovered.dirty() != (0, 0) }));
        found.push(Done::Recovered(id, Arc::new(recovered)));
        if place.ack == Ack::Through {
            found.push(Done::Drain(id, true));
        }
        logs.push(Some(file));
    }
    let lost = config.volumes.iter().map(lost::place).collect();
    Ok(Opened { logs, found, logged, lost })
}
