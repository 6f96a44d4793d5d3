//! Log pages.

use super::events::Event;
use super::{Action, Controller, View, features, identify, opcode};
use crate::nvme::discovery::padded;
use crate::nvme::io;
use crate::nvme::namespace::NSID_ALL;
use crate::nvme::pdu::{Sqe, Transfer};
use crate::nvme::reservation;
use crate::nvme::status::Status;

impl Controller {
    pub(super) fn log_page(
        &mut self,
        sqe: &Sqe,
        transfer: Transfer,
        view: &View<'_>,
    ) -> Result<Action, Status> {
        let (id, specific) = (sqe.cdw(10) as u8, sqe.cdw(10) >> 8 & 0x7f);
        let retains = sqe.cdw(10) & RETAIN_EVENT != 0;
        let dwords = u64::from(sqe.cdw(10) >> 16 | sqe.cdw(11) << 16) + 1;
        let offset = sqe.cdw_pair(12);
        // Offsets count bytes; indexes of entries (OT) are not supported.
        let is_aligned = offset.is_multiple_of(4) && sqe.cdw(14) & OFFSET_TYPE == 0;
        if !is_aligned || dwords * 4 > self.limits.max_transfer.into() {
            return Err(Status::INVALID_FIELD);
        }
        let data = match (self.is_discovery(), id) {
            (true, lid::DISCOVERY) => self.discovery_page(offset, view)?,
            (false, lid::SUPPORTED) => supported().into(),
            // Commands that fail are not kept: the one entry that there must be is empty.
            (false, lid::ERRORS) => [0; ERROR_LENGTH].into(),
            (false, lid::SMART) => Self::smart(sqe.nsid(), view)?.into(),
            (false, lid::FIRMWARE) => {
                let mut page = [0; 512];
                page[0] = 1;
                page[8..16].copy_from_slice(&padded::<8>(&self.subsystem.revision));
                page.into()
            }
            (false, lid::CHANGED_NAMESPACES) => {
                let ids = self.changed.iter().flat_map(|nsid| nsid.to_le_bytes());
                ids.collect()
            }
            (false, lid::EFFECTS) => effects().into(),
            (false, lid::ANA) => self.ana(specific & RETURN_GROUPS_ONLY != 0, view).into(),
            (false, lid::FEATURES) => feature_effects().into(),
            (false, lid::RESERVATIONS) => self.notices.page(offset).into(),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        if transfer.to_host().map(u64::from) != Some(dwords * 4) {
            return Err(Status::SGL_LENGTH_INVALID);
        }
        if !retains {
            self.events.clear(id);
            if id == lid::CHANGED_NAMESPACES {
                self.changed.clear();
            }
            if id == lid::RESERVATIONS && self.notices.read(offset.saturating_add(dwords * 4)) {
                self.events.raise(Event::ReservationNotice);
            }
        }
        // Behind the end there are zeroes.
        let from = usize::try_from(offset).map_or(data.len(), |from| from.min(data.len()));
        Ok(Action::Data { data, from })
    }

    /// The page is the one of the last read from its start, so that one that is read in pieces does not change meanwhile.
    fn discovery_page(
        &mut self,
        offset: u64,
        view: &View<'_>,
    ) -> Result<std::sync::Arc<[u8]>, Status> {
        if offset == 0 || self.page.is_none() {
            self.page = view.discovery.cloned();
        }
        self.page.clone().ok_or(Status::INTERNAL_ERROR)
    }

    /// Counters of one namespace, or of all. Nothing is counted for hosts: `weir status` and the metrics tell more.
    fn smart(nsid: u32, view: &View<'_>) -> Result<[u8; 512], Status> {
        let is_there = matches!(nsid, 0 | NSID_ALL) || identify::find(nsid, view).is_some();
        is_there.then_some([0; 512]).ok_or(Status::INVALID_NAMESPACE)
    }

    /// ANA states: each namespace is a group.
    fn ana(&self, groups_only: bool, view: &View<'_>) -> Vec<u8> {
        let changes = self.ana_changes.to_le_bytes();
        let mut page = Vec::with_capacity(16 + view.namespaces.len() * 36);
        page.extend_from_slice(&changes);
        page.extend_from_slice(&(view.namespaces.len() as u16).to_le_bytes());
        page.resize(16, 0);
        for namespace in view.namespaces {
            let nsid = namespace.nsid.to_le_bytes();
            page.extend_from_slice(&nsid);
            page.extend_from_slice(&u32::from(!groups_only).to_le_bytes());
            page.extend_from_slice(&changes);
            page.push(namespace.ana.code());
            page.resize(page.len() + 15, 0);
            if !groups_only {
                page.extend_from_slice(&nsid);
            }
        }
        page
    }
}

/// The pages that there are.
fn supported() -> [u8; 1024] {
    let mut page = [0; 1024];
    for id in lid::ALL {
        page[usize::from(id) * 4] = 1;
    }
    page
}

/// The commands that there are, and whether they change blocks. No command changes what a controller or a namespace is:
/// Linux stops all queues for those.
fn effects() -> [u8; 4096] {
    const SUPPORTED: u8 = 1;
    const CHANGES_BLOCKS: u8 = 1 << 1;
    let mut page = [0; 4096];
    for opcode in opcode::OF_DISCOVERY.into_iter().chain([opcode::ABORT]) {
        page[usize::from(opcode) * 4] = SUPPORTED;
    }
    let writes = [io::opcode::WRITE, io::opcode::WRITE_ZEROES, io::opcode::DATASET_MANAGEMENT];
    let others = [
        io::opcode::FLUSH,
        io::opcode::READ,
        io::opcode::COMPARE,
        io::opcode::VERIFY,
        reservation::opcode::REGISTER,
        reservation::opcode::REPORT,
        reservation::opcode::ACQUIRE,
        reservation::opcode::RELEASE,
    ];
    for opcode in others {
        page[1024 + usize::from(opcode) * 4] = SUPPORTED;
    }
    for opcode in writes {
        page[1024 + usize::from(opcode) * 4] = SUPPORTED | CHANGES_BLOCKS;
    }
    page
}

/// The features that there are, and what they concern.
fn feature_effects() -> [u8; 1024] {
    /// FSUPP, and the scopes.
    const OF_CONTROLLER: u32 = 1 | 1 << 21;
    const OF_NAMESPACE: u32 = 1 | 1 << 20;
    let mut page = [0; 1024];
    for id in features::id::ALL {
        let place = usize::from(id) * 4;
        let of_one = features::id::OF_NAMESPACES.contains(&id);
        let effects = if of_one { OF_NAMESPACE } else { OF_CONTROLLER };
        page[place..place + 4].copy_from_slice(&effects.to_le_bytes());
    }
    page
}

/// Log page identifiers.
mod lid {
    pub(super) const SUPPORTED: u8 = 0x00;
    pub(super) const ERRORS: u8 = 0x01;
    pub(super) const SMART: u8 = 0x02;
    pub(super) const FIRMWARE: u8 = 0x03;
    pub(super) const CHANGED_NAMESPACES: u8 = 0x04;
    pub(super) const EFFECTS: u8 = 0x05;
    pub(super) const ANA: u8 = 0x0c;
    pub(super) const FEATURES: u8 = 0x12;
    pub(super) const DISCOVERY: u8 = 0x70;
    pub(super) const RESERVATIONS: u8 = 0x80;

    /// Those of a controller with namespaces.
    pub(super) const ALL: [u8; 9] = [
        SUPPORTED,
        ERRORS,
        SMART,
        FIRMWARE,
        CHANGED_NAMESPACES,
        EFFECTS,
        ANA,
        FEATURES,
        RESERVATIONS,
    ];
}

/// Length of an entry of the log of errors, in bytes.
const ERROR_LENGTH: usize = 64;
/// Dword 10: retain the asynchronous event (RAE).
const RETAIN_EVENT: u32 = 1 << 15;
/// Dword 14: the offset is an index (OT).
const OFFSET_TYPE: u32 = 1 << 23;
/// Return groups only: an ANA page without namespaces (RGO).
const RETURN_GROUPS_ONLY: u32 = 1;
