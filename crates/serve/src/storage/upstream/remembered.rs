//! What a volume remembers of the units of its upstreams, so that a gateway can start while they are away.
//!
//! The file `STATE.units` beside the state file of a volume has one line, `weir-units 1` and the CRC32C of the rest,
//! and then a list of [`RememberedUnit`] as JSON. It is not a part of the state file, which hosts change by their
//! reservations: each file has one writer.

use super::probe::{Facts, Identity};
use crate::config::{Config, Fence, Upstream, Volume};
use crate::folder::beside;
use crate::storage::checked_json;
use crate::storage::state_file;
use crate::storage::state_file::StateError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tracing::warn;

/// What is remembered of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedUnit {
    /// The name of the upstream in the configuration.
    upstream: String,
    /// The iSCSI name of its target, and the number of the unit there.
    target: String,
    lun: u16,
    /// The unit was the gateway's, or is not reserved, and the gateway has not given it up since.
    pub(crate) owned: bool,
    /// Its worldwide name.
    identity: Option<Identity>,
    block_size: u32,
    blocks: u64,
    write_cache: bool,
    /// Blocks can be given back to it.
    thin: bool,
    /// The most blocks of one READ or WRITE; 0: any.
    max_blocks: u32,
}

impl RememberedUnit {
    /// What is to be remembered of the unit of this upstream.
    pub(super) fn new(upstream: &Upstream, facts: &Facts, owned: bool) -> Self {
        Self {
            upstream: upstream.name.clone(),
            target: upstream.target.clone(),
            lun: upstream.lun,
            owned,
            identity: facts.identity.clone(),
            block_size: facts.block_size,
            blocks: facts.blocks,
            write_cache: facts.write_cache,
            thin: facts.is_thin(),
            max_blocks: facts.max_blocks,
        }
    }

    /// The facts that a volume is served by until the unit is there. They are used for no command.
    pub(super) fn facts(&self) -> Facts {
        Facts {
            identity: self.identity.clone(),
            write_cache: self.write_cache,
            zeroes: self.thin,
            unmaps_by_write_same: self.thin,
            max_blocks: self.max_blocks,
            ..Facts::simple(self.block_size, self.blocks)
        }
    }

    /// Whether the gateway may start without the unit.
    fn may_be_away(&self, config: &Config, upstream: usize) -> bool {
        let Some(volume) = super::volume_on(config, upstream) else { return false };
        let configured = &config.upstreams[upstream];
        let same = (&self.target, self.lun) == (&configured.target, configured.lun);
        let reserved = match configured.fence {
            Fence::Auto => config.volumes[volume].log.is_some(),
            Fence::On => true,
            Fence::Off => false,
        };
        let takes_over = config.take_over.iter().any(|&(of, _)| of == volume);
        // Another gateway may own one that moves since then.
        let moves = config.volumes[volume].movable;
        same && (self.owned && !moves || !reserved) && !takes_over
    }

    /// Why a unit with these facts is another one. A unit may have moved to another target.
    pub(super) fn differs(&self, facts: &Facts) -> Option<String> {
        let (Some(now), Some(before)) = (&facts.identity, &self.identity) else { return None };
        (now != before).then(|| format!("its name is {now}, at the last start it was {before}"))
    }
}

/// What is remembered of the unit of each upstream, if anything is.
pub(crate) fn load(config: &Config) -> Vec<Option<RememberedUnit>> {
    let mut remembered = vec![None; config.upstreams.len()];
    for volume in &config.volumes {
        let known = load_volume(volume);
        for (upstream, slot) in config.upstreams.iter().zip(&mut remembered) {
            if let Some(unit) = known.iter().find(|unit| unit.upstream == upstream.name) {
                *slot = Some(unit.clone());
            }
        }
    }
    remembered
}

/// The units without which the gateway may start: those that it owned when it ended. An operator who lets it take a
/// unit over has to know at once whether it could.
pub(crate) fn may_be_away(
    config: &Config,
    remembered: &[Option<RememberedUnit>],
) -> Vec<Option<RememberedUnit>> {
    let may = |(index, unit): (usize, &Option<RememberedUnit>)| {
        unit.clone().filter(|unit| unit.may_be_away(config, index))
    };
    remembered.iter().enumerate().map(may).collect()
}

/// Where the units of a volume are remembered; nowhere without a state file.
fn place(volume: &Volume) -> Option<PathBuf> {
    volume.state.as_deref().map(|state| beside(state, ".units"))
}

/// The units that a volume remembers. A damaged file is as good as none: it is needed only while they are away.
fn load_volume(volume: &Volume) -> Vec<RememberedUnit> {
    let Some(place) = place(volume) else { return Vec::new() };
    let problem = match state_file::read(&place, LENGTH_MAX) {
        Ok(None) => return Vec::new(),
        Ok(Some(bytes)) => match decode(&bytes) {
            Some(units) => return units,
            None => String::from("it is damaged, or of a newer release"),
        },
        Err(error) => error.to_string(),
    };
    warn!(
        volume = volume.name,
        file = %place.display(),
        problem,
        "what is remembered of the volume's upstreams is of no use: the gateway starts only if they answer"
    );
    Vec::new()
}

/// The file in which a volume remembers its units, and its contents; `None` for a volume without a state file.
pub(crate) fn saved(volume: &Volume, units: &[RememberedUnit]) -> Option<(PathBuf, Vec<u8>)> {
    Some((place(volume)?, encode(units)))
}

/// Has a volume remember its units, unless it does. Blocks.
pub(crate) fn save(volume: &Volume, units: &[RememberedUnit]) -> Result<(), StateError> {
    if units.is_empty() || load_volume(volume) == units {
        return Ok(());
    }
    saved(volume, units).map_or(Ok(()), |(place, bytes)| state_file::save(&place, &bytes))
}

fn encode(units: &[RememberedUnit]) -> Vec<u8> {
    checked_json::encode(MAGIC, units)
}

fn decode(bytes: &[u8]) -> Option<Vec<RememberedUnit>> {
    checked_json::decode(MAGIC, bytes)
}

/// The format and its version.
const MAGIC: &str = "weir-units 1";

/// More bytes than any list has.
const LENGTH_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
