//! The view that a session has of its target: its nexus and the logical units that it may see.

use crate::limits::PORTAL_GROUP;
use crate::volume::tenants::Claims;
use crate::volume::{Target, Volume};
use std::rc::Rc;
use weir_flow::request::TenantId;
use weir_wire::scsi::Sense;
use weir_wire::scsi::attention::UnitAttention;
use weir_wire::scsi::disk::Port;
use weir_wire::scsi::nexus::{InitiatorPort, Nexus};

/// The nexus of a session and the logical units that it may access.
#[derive(Debug)]
pub(crate) struct SessionView {
    /// Its `I_T` nexus.
    pub(crate) nexus: Rc<Nexus>,
    /// Index of the target.
    pub(crate) target: usize,
    /// The tenant that claims the host by its name.
    pub(crate) claim: Option<TenantId>,
    /// The logical units that it may access, by ascending number.
    pub(crate) units: Vec<VisibleUnit>,
    /// The numbers of these, for REPORT LUNS.
    numbers: Vec<u64>,
}

/// A logical unit that a session may see.
#[derive(Debug)]
pub(crate) struct VisibleUnit {
    /// Its number.
    lun: u64,
    /// Index of the volume behind it.
    pub(crate) volume: usize,
    /// Unit attention conditions that the session has not received.
    pub(crate) attention: UnitAttention,
}

impl SessionView {
    /// The view of a new session.
    pub(crate) fn new(
        initiator: InitiatorPort,
        index: usize,
        target: &Target,
        volumes: &[Volume],
        claims: &Claims,
    ) -> Self {
        let nexus = Nexus { initiator, target: target.name.clone() };
        let mut view = Self {
            nexus: Rc::new(nexus),
            target: index,
            claim: None,
            units: Vec::new(),
            numbers: Vec::new(),
        };
        view.refresh(target, volumes, claims);
        view
    }

    /// Reads the target's units again; true if they have changed. Commands from now on belong to the tenant
    /// that claims the host now.
    pub(crate) fn refresh(&mut self, target: &Target, volumes: &[Volume], claims: &Claims) -> bool {
        let name = &self.nexus.initiator.name;
        self.claim = claims.of(name);
        let visible = |&&(_, volume): &&(u64, usize)| volumes[volume].initiators.admit(name);
        let now: Vec<(u64, usize)> = target.luns.iter().filter(visible).copied().collect();
        let before = self.units.iter().map(|seen| (seen.lun, seen.volume));
        if before.eq(now.iter().copied()) {
            return false;
        }
        let mut old = std::mem::take(&mut self.units);
        for &(lun, volume) in &now {
            let kept = old.iter().position(|seen| (seen.lun, seen.volume) == (lun, volume));
            self.units.push(match kept {
                Some(index) => old.swap_remove(index),
                None => VisibleUnit { lun, volume, attention: UnitAttention::new() },
            });
        }
        self.numbers = now.into_iter().map(|(lun, _)| lun).collect();
        true
    }

    /// The index of the unit with this number.
    pub(crate) fn unit(&self, lun: u64) -> Option<usize> {
        self.numbers.binary_search(&lun).ok()
    }

    /// The number of the first unit of this volume.
    pub(crate) fn lun_of(&self, volume: usize) -> Option<u64> {
        self.units.iter().find(|seen| seen.volume == volume).map(|seen| seen.lun)
    }

    /// The numbers of all units, ascending.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// A unit, and the target as its SCSI port.
    pub(crate) fn look_at(&mut self, unit: usize) -> (Port<'_>, &mut VisibleUnit) {
        let port = Port {
            iqn: &self.nexus.target,
            portal_group: PORTAL_GROUP,
            relative: 1,
            units: &self.numbers,
        };
        (port, &mut self.units[unit])
    }

    /// Raises a unit attention condition on every unit of this volume.
    pub(crate) fn attend(&mut self, volume: usize, sense: Sense) {
        for seen in self.units.iter_mut().filter(|seen| seen.volume == volume) {
            seen.attention.raise(sense);
        }
    }
}
