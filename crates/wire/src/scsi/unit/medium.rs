//! A medium that can be ejected (SBC-3 section 5.25, SPC-4's PREVENT ALLOW MEDIUM REMOVAL).

use std::collections::BTreeSet;

use super::{Action, Unit};
use crate::scsi::cdb::{Media, MediaOp, StartStop};
use crate::scsi::nexus::{Effects, Nexus};
use crate::scsi::sense::Sense;

/// Whether the medium is there and may be taken away.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    ejected: bool,
    /// The nexuses that prevent the removal: at most all nexuses, whose number the shell bounds.
    preventers: BTreeSet<Nexus>,
}

impl Medium {
    pub(super) const fn is_present(&self) -> bool {
        !self.ejected
    }

    pub(super) fn prevent_removal(&mut self, nexus: &Nexus) {
        self.preventers.insert(nexus.clone());
    }

    pub(super) fn allow_removal(&mut self, nexus: &Nexus) {
        self.preventers.remove(nexus);
    }
}

impl Unit {
    /// START STOP UNIT.
    pub(super) fn start_stop(&mut self, command: StartStop) -> Result<Action, Sense> {
        let StartStop { power, no_flush, load_eject, start } = command;
        if !self.disk.removable {
            // Other initiators use the unit too, so it neither stops nor ejects.
            if power || load_eject || !start {
                return Err(Sense::invalid_cdb_field(4, None));
            }
            return Ok(Action::done());
        }
        // SBC-3 section 5.25: beside a power condition START and LOEJ mean nothing; and nothing here
        // turns, so no condition makes a difference.
        if power {
            return Ok(Action::done());
        }
        if !load_eject {
            if start && self.medium.ejected {
                return Err(Sense::MEDIUM_NOT_PRESENT);
            }
            return Ok(Action::done());
        }
        if !self.medium.preventers.is_empty() {
            return Err(Sense::MEDIUM_REMOVAL_PREVENTED);
        }
        let was_present = !std::mem::replace(&mut self.medium.ejected, !start);
        if was_present == start {
            return Ok(Action::done());
        }
        if start {
            let others = Some(Sense::MEDIUM_MAY_HAVE_CHANGED);
            return Ok(Action::Done(Effects { others, ..Effects::default() }));
        }
        if no_flush || !self.mode.write_cache {
            return Ok(Action::done());
        }
        // SBC-3 section 5.25: what is cached reaches the medium before it becomes inaccessible.
        let op = MediaOp::Synchronize { immediate: false };
        let blocks = self.disk.blocks;
        Ok(Action::Media(Media { op, lba: 0, blocks, fua: false, dpo: false }))
    }
}
