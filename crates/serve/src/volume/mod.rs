//! Volumes and targets as SCSI sees them, and what of them outlives a configuration or a start.

pub(crate) mod catalog;
pub(crate) mod credits;
pub(crate) mod live;
pub(crate) mod placement;
pub(crate) mod reload;
pub(crate) mod tenants;

use crate::buffer::LARGEST;
use crate::config;
use crate::config::Initiators;
use crate::identity::id_of;
use crate::ids::TaskKey;
use crate::limits::{PIECE, ZEROES_AT_ONCE};
use crate::storage::file::atomic_journal;
use crate::storage::layout;
use crate::storage::state_file::{Sanitize, State};
use crate::storage::store::Store;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use weir_flow::pipeline::{Limits, StoreIo};
use weir_flow::request::{BackendId, RequestKey, TenantId, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::disk::DiskInfo;
use weir_wire::scsi::reservation::{Change, Reservations};
use weir_wire::scsi::unit::Unit;
use weir_wire::scsi::{Sense, unmap};

/// A name that hosts log in to, and its logical units.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// The number of each unit and its volume, by ascending number.
    pub(crate) luns: Vec<(u64, usize)>,
}

impl Target {
    pub(crate) fn new(target: &config::Target) -> Self {
        let luns = target.luns.iter().map(|&(lun, volume)| (u64::from(lun), volume)).collect();
        Self { name: target.name.clone(), luns }
    }
}

/// The names of volumes, by volume id, for the event log. Those of volumes that have gone stay.
pub(crate) type VolumeNames = Rc<RefCell<Vec<String>>>;

/// The volumes of which the pipeline has said that they have gone, until the event loop closes them.
pub(crate) type VolumesGone = Rc<RefCell<Vec<VolumeId>>>;

/// Whether a volume is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Hosts find it.
    Served,
    /// Hosts do not find it any more; its requests end.
    Leaves,
    /// Nothing is left of it.
    Gone,
}

/// A volume as a SCSI disk.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) unit: Unit,
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Whether it is there.
    pub(crate) life: Life,
    /// The tenant that its requests belong to, unless one claims the host by its name.
    pub(crate) tenant: TenantId,
    /// Who sees it over iSCSI.
    pub(crate) initiators: Initiators,
    /// The file that remembers what must survive a restart.
    pub(crate) state: Option<PathBuf>,
    /// The files that no other volume may have: data, log, state and journal.
    pub(crate) paths: Vec<PathBuf>,
    /// What that file says of sanitizing.
    pub(crate) sanitize: Sanitize,
    /// A change of its reservations that is being saved, and the command that asked for it.
    pub(crate) change: Option<(TaskKey, Change)>,
    /// Commands that wait for that.
    pub(crate) changes: VecDeque<TaskKey>,
    /// The journal of its atomic writes.
    pub(crate) journal: Option<File>,
    /// An atomic write uses the journal.
    pub(crate) journaling: bool,
    /// Atomic writes that wait for it.
    pub(crate) journal_waits: VecDeque<StoreIo>,
    /// A flush, or a write that was to be durable, has failed: what was acknowledged may be lost,
    /// and nothing may promise otherwise again.
    pub(crate) lost: bool,
    /// It has a write-back log.
    pub(crate) has_log: bool,
    /// Its stores, in the row of all.
    pub(crate) stores: Range<usize>,
}

/// The flushes of a store.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// Index of the volume that the store is of.
    pub(crate) volume: usize,
    /// The backend that the store is, once it was asked for something.
    pub(crate) backend: BackendId,
    /// A flush is at the driver.
    pub(crate) under_way: bool,
    /// Flushes that came while one was at the driver.
    pub(crate) waits: Vec<RequestKey>,
    /// Flushes that the one at the driver is for, besides its own.
    pub(crate) shared: Vec<RequestKey>,
}

impl Volume {
    /// `stores` are those of all volumes; `node` identifies this machine.
    pub(crate) fn new(
        (volume, range): (&config::Volume, Range<usize>),
        stores: &[Store],
        kept: PersistedState,
        limits: &Limits,
        node: &str,
    ) -> Self {
        let block = u64::from(volume.block_size);
        let stores = &stores[range.clone()];
        let id = id_of(volume, node);
        let physical = volume.physical_block_size / volume.block_size;
        let disk = DiskInfo {
            blocks: layout::capacity(volume, stores) / block,
            block_size: volume.block_size,
            physical_block_exponent: physical.trailing_zeros() as u8,
            serial: format!("{id:016x}"),
            id,
            product: String::from("VOLUME"),
            // A host sends no flushes to a disk without a cache, and flushes order write-back.
            write_cache: volume.log.as_ref().is_some_and(|log| log.ack != config::Ack::Through)
                || stores.iter().any(Store::has_cache),
            read_only: volume.read_only,
            thin: volume.thin && stores.iter().all(Store::gives_back),
            removable: volume.removable,
            sanitize: volume.sanitize,
            max_transfer_blocks: LARGEST as u32 / volume.block_size,
            optimal_transfer_blocks: PIECE as u32 / volume.block_size,
            max_unmap_blocks: UNMAP_MAX,
            max_unmap_descriptors: UNMAP_DESCRIPTORS.min(limits.max_requests),
            unmap_granularity_blocks: physical,
            max_write_same_blocks: ZEROES_AT_ONCE.min(limits.max_bytes) / block,
            // One block is on one store, whatever the layout; more might not be.
            max_compare_and_write_blocks: if stores.len() == 1 { u8::MAX } else { 1 },
            max_atomic_blocks: match kept.journal {
                Some(_) => atomic_journal::ATOMIC_MAX as u32 / volume.block_size,
                None => 0,
            },
            ..DiskInfo::default()
        };
        let mut unit = Unit::new(disk);
        unit.install(kept.reservations);
        Self {
            unit,
            name: volume.name.clone(),
            life: Life::Served,
            tenant: TenantId::new(volume.tenant as u32),
            initiators: volume.initiators.clone(),
            state: volume.state.clone(),
            paths: paths_of(volume),
            sanitize: kept.sanitize,
            change: None,
            changes: VecDeque::new(),
            journal: kept.journal,
            journaling: false,
            journal_waits: VecDeque::new(),
            lost: false,
            has_log: volume.log.is_some(),
            stores: range,
        }
    }

    /// Whether the failure mode of a sanitize has just been left, which a restart must not bring back.
    pub(crate) fn has_left_failure(&self) -> bool {
        let failed = matches!(self.sanitize, Sanitize::Failed(_));
        failed && !self.unit.sanitize_failed() && self.unit.ready().is_ok()
    }

    /// Bytes per logical block.
    pub(crate) const fn block_size(&self) -> u32 {
        self.unit.disk().block_size
    }

    /// The ranges of an UNMAP parameter list that are not empty.
    pub(crate) fn unmap_list(&self, list: &[u8]) -> Result<Vec<Extent>, Sense> {
        let block = u64::from(self.block_size());
        let extents = unmap::extents(list, self.unit.disk())?;
        let bytes = |e: unmap::Extent| Extent::new(e.lba * block, u64::from(e.blocks) * block);
        Ok(extents.map(bytes).filter(|extent| extent.length > 0).collect())
    }

    /// The contents of its state file, with these reservations.
    pub(crate) fn state_with(&self, reservations: &Reservations) -> Option<Vec<u8>> {
        let reservations = if reservations.survives() { reservations.encode() } else { Vec::new() };
        State { reservations, sanitize: self.sanitize.clone() }.encode()
    }
}

/// What a volume has kept from the time before a restart.
#[derive(Debug, Default)]
pub(crate) struct PersistedState {
    pub(crate) reservations: Reservations,
    pub(crate) sanitize: Sanitize,
    pub(crate) journal: Option<File>,
    /// The journal was made just now.
    pub(crate) journal_made: bool,
}

/// The files that a volume has for itself: data, log, state and journal.
pub(crate) fn paths_of(volume: &config::Volume) -> Vec<PathBuf> {
    let state = volume.state.iter().flat_map(|path| [path.clone(), atomic_journal::path(path)]);
    let log = volume.log.iter().map(|log| log.path.clone());
    volume.files().map(|file| file.path.clone()).chain(log).chain(state).collect()
}

/// Most blocks that one UNMAP may name, in all its descriptors.
const UNMAP_MAX: u32 = 1 << 20;

/// Most descriptors of one UNMAP: each becomes a request.
const UNMAP_DESCRIPTORS: u32 = 64;
