//! Log pages.

use std::collections::VecDeque;

use super::events::Event;
use super::{Action, Controller, View, features, identify, opcode};
use crate::nvme::discovery::padded;
use crate::nvme::io;
use crate::nvme::namespace::{NSID_ALL, Usage};
use crate::nvme::pdu::{Sqe, Transfer};
use crate::nvme::reservation;
use crate::nvme::status::Status;

/// A failed command in the log of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Its queue.
    pub queue: u16,
    /// Its command identifier.
    pub cid: u16,
    /// How it has ended.
    pub status: Status,
    /// The first block that it concerns.
    pub lba: u64,
    /// Its namespace.
    pub nsid: u32,
}

/// The log of errors: the newest entries, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Errors {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl Errors {
    fn page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ERRORS_MAX * ERROR_LENGTH);
        for (age, entry) in self.entries.iter().rev().enumerate() {
            let mut bytes = [0; ERROR_LENGTH];
            bytes[..8].copy_from_slice(&(self.count - age as u64).to_le_bytes());
            bytes[8..10].copy_from_slice(&entry.queue.to_le_bytes());
            bytes[10..12].copy_from_slice(&entry.cid.to_le_bytes());
            bytes[12..14].copy_from_slice(&entry.status.field().to_le_bytes());
            bytes[16..24].copy_from_slice(&entry.lba.to_le_bytes());
            bytes[24..28].copy_from_slice(&entry.nsid.to_le_bytes());
            page.extend_from_slice(&bytes);
        }
        page.resize(ERRORS_MAX * ERROR_LENGTH, 0);
        page
    }
}

impl Controller {
    /// Adds a failed command to the log of errors. The oldest entry leaves if there are more than [`ERRORS_MAX`].
    pub fn log_error(&mut self, entry: ErrorEntry) {
        if self.errors.entries.len() == ERRORS_MAX {
            self.errors.entries.pop_front();
        }
        self.errors.entries.push_back(entry);
        self.errors.count += 1;
    }

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
            (false, lid::ERRORS) => self.errors.page().into(),
            (false, lid::SMART) => self.smart(sqe.nsid(), view)?.into(),
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
            (false, lid::RESERVATIONS) => self.notices.page().into(),
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
            if id == lid::RESERVATIONS && self.notices.read() {
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

    /// Counters of one namespace, or of all.
    fn smart(&self, nsid: u32, view: &View<'_>) -> Result<[u8; 512], Status> {
        let mut usage = Usage::default();
        match nsid {
            0 | NSID_ALL => view.namespaces.iter().for_each(|it| usage += it.usage),
            _ => usage = identify::find(nsid, view).ok_or(Status::INVALID_NAMESPACE)?.usage,
        }
        let mut page = [0; 512];
        let units = |bytes: u64| bytes.div_ceil(DATA_UNIT);
        for (offset, value) in [
            (32, units(usage.read_bytes)),
            (48, units(usage.written_bytes)),
            (64, usage.reads),
            (80, usage.writes),
            (96, usage.busy_minutes),
            (176, self.errors.count),
        ] {
            page[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        Ok(page)
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

/// Entries of the log of errors (ELPE + 1).
pub const ERRORS_MAX: usize = 64;
/// Length of an entry, in bytes.
const ERROR_LENGTH: usize = 64;
/// Dword 10: retain the asynchronous event (RAE).
const RETAIN_EVENT: u32 = 1 << 15;
/// Dword 14: the offset is an index (OT).
const OFFSET_TYPE: u32 = 1 << 23;
/// Return groups only: an ANA page without namespaces (RGO).
const RETURN_GROUPS_ONLY: u32 = 1;
/// Unit of the counters of SMART, in bytes: a thousand blocks of 512.
const DATA_UNIT: u64 = 512_000;
