//! What hosts find by the configuration in force: targets, exports, volumes and tenants.
//!
//! Invariant: targets keep their places over a reload, since sessions know them by these, and so do
//! volumes; a target that is gone stays as an entry that is marked as removed.

use super::tenants::{Claims, TenantNames};
use super::{PersistedState, Target, Volume};
use crate::buffer::LARGEST;
use crate::config::{self, Config, Nvme, Target as TargetConfig};
use crate::identity::{bytes_of, identity, identity_of};
use crate::limits::PORTAL_GROUP;
use crate::storage::file::backing::Backing;
use crate::storage::layout;
use crate::storage::store::Store;
use crate::volume::VolumeNames;
use crate::volume::placement::BackendPlaces;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tracing::info;
use weir_flow::request::{TenantId, VolumeId};
use weir_flow::units::ByteCount;
use weir_wire::iscsi::target_role::{Advertised, Node, Redirect, TargetEntry};
use weir_wire::nbd::{BlockSize, Export, Exports};

/// What hosts find by the configuration in force.
pub(crate) struct Catalog {
    /// What iSCSI hosts find at login and discovery.
    pub(crate) node: Arc<Node>,
    pub(crate) targets: Vec<Target>,
    /// What NBD clients find.
    pub(crate) exports: Arc<Exports>,
    /// Index of the volume behind each export; `None` for one that was removed.
    pub(crate) export_volumes: Vec<Option<usize>>,
    /// What NVMe hosts find.
    pub(crate) nvme: Rc<Nvme>,
    /// The identity of this machine.
    pub(super) node_name: String,
    /// By volume id, those that have gone as well.
    pub(crate) volumes: Vec<Volume>,
    pub(crate) volume_names: VolumeNames,
    /// The stores of all volumes, in one row.
    pub(crate) stores: Vec<Store>,
    pub(crate) backends: BackendPlaces,
    /// The tenants that hosts are by their names.
    pub(crate) claims: Claims,
    pub(crate) tenant_names: TenantNames,
}

impl Catalog {
    pub(crate) fn new(config: &Config, stores: Vec<Store>, persisted: Vec<PersistedState>) -> Self {
        let node_name = identity();
        let volumes: Vec<Volume> = layout::ranges(&config.volumes)
            .zip(persisted)
            .map(|(volume, state)| Volume::new(volume, &stores, state, &config.limits, &node_name))
            .collect();
        let names: Vec<_> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        let mut catalog = Self {
            node: Arc::new(node(config)),
            targets: config.targets.iter().map(Target::new).collect(),
            exports: Arc::default(),
            export_volumes: Vec::new(),
            nvme: Rc::new(config.nvme.clone()),
            node_name,
            volume_names: VolumeNames::new(
                volumes.iter().map(|one| one.name.clone()).collect::<Vec<_>>().into(),
            ),
            volumes,
            stores,
            backends: BackendPlaces::new(config),
            claims: Claims::new(&config.tenants, &config.promises),
            tenant_names: TenantNames::new(names.into()),
        };
        catalog.export(&config.nbd);
        catalog
    }

    /// The tenant whose requests for a volume are: the one that claims the host, or the volume's own.
    pub(crate) fn tenant(&self, claim: Option<TenantId>, volume: usize) -> TenantId {
        claim.unwrap_or(self.volumes[volume].tenant)
    }

    /// The volumes that the initiator of this name sees at these targets, ascending.
    pub(crate) fn visible(&self, name: &str, targets: impl Iterator<Item = usize>) -> Vec<usize> {
        let luns = targets.flat_map(|target| &self.targets[target].luns);
        let volumes = luns.map(|&(_, volume)| volume);
        let seen: BTreeSet<usize> =
            volumes.filter(|&volume| self.volumes[volume].initiators.admit(name)).collect();
        seen.into_iter().collect()
    }

    /// The store of a volume that is on one alone.
    pub(super) fn only_store(&self, index: usize) -> Option<&Store> {
        match &self.stores[self.volumes[index].stores.clone()] {
            [store] => Some(store),
            _ => None,
        }
    }

    /// Bytes of a volume for which its files have no space yet. 0 for upstreams, which report no such number.
    pub(crate) fn unallocated(&self, index: usize) -> io::Result<u64> {
        let stores = &self.stores[self.volumes[index].stores.clone()];
        stores.iter().try_fold(0_u64, |sum, store| match store {
            Store::File(backing) => Ok(sum.saturating_add(backing.unallocated()?)),
            Store::Upstream(_) | Store::Memory(_) | Store::Closed => Ok(sum),
        })
    }

    /// What keeps nothing of a volume: `null` if a store of it drops writes, else `memory` if one is lost when the
    /// gateway stops, else nothing.
    pub(crate) fn volatile(&self, index: usize) -> &'static str {
        let stores = &self.stores[self.volumes[index].stores.clone()];
        let keeps = |store: &Store| match store {
            Store::Memory(memory) => Some(memory.keeps()),
            _ => None,
        };
        match stores.iter().filter_map(keeps).min() {
            Some(false) => "null",
            Some(true) => "memory",
            None => "",
        }
    }

    /// The file of a volume that is on one file alone, if that can have holes.
    pub(crate) fn sparse_file(&self, index: usize) -> Option<&Backing> {
        match self.only_store(index) {
            Some(Store::File(backing)) if backing.holes => Some(backing),
            _ => None,
        }
    }

    /// Bytes of a volume.
    pub(crate) fn capacity(&self, index: usize) -> u64 {
        let disk = self.volumes[index].unit.disk();
        disk.blocks * u64::from(disk.block_size)
    }

    /// An upstream of a volume has grown: the new size in bytes, if the volume is on nothing else.
    pub(crate) fn grown(&self, index: usize, capacity: u64) -> Option<u64> {
        let Some(Store::Upstream(unit)) = self.only_store(index) else {
            let (volume, size) = (&self.volumes[index].name, ByteCount(capacity));
            info!(volume, %size, "one of its upstreams has grown; a restart looks at that");
            return None;
        };
        unit.capacity.set(capacity);
        let block = u64::from(self.volumes[index].block_size());
        Some(capacity - capacity % block)
    }

    /// Gives a volume this size in bytes; true if it had another one.
    pub(crate) fn resize(&mut self, index: usize, size: u64) -> bool {
        if size == self.capacity(index) {
            return false;
        }
        let volume = &mut self.volumes[index];
        info!(volume = volume.name, size = %ByteCount(size), "volume resized");
        volume.unit.resize(size / u64::from(volume.unit.disk().block_size));
        true
    }

    /// The subsystem and the namespace identifier of a volume, if it is one.
    pub(crate) fn namespace_of(&self, volume: VolumeId) -> Option<(&str, u32)> {
        self.nvme.subsystems.iter().find_map(|one| {
            let found = one.namespaces.iter().find(|&&(_, of)| of == volume.index());
            found.map(|&(nsid, _)| (one.name.as_str(), nsid))
        })
    }

    /// The serial number of an NVMe subsystem: 20 hexadecimal digits, the same after a restart.
    pub(crate) fn serial_of(&self, subsystem: &str) -> String {
        let id = u128::from_be_bytes(bytes_of(identity_of(&[&self.node_name, subsystem])));
        format!("{:020x}", id >> 48)
    }

    /// Takes over what NVMe hosts find by a configuration.
    pub(super) fn set_nvme(&mut self, nvme: &Nvme) {
        self.nvme = Rc::new(nvme.clone());
    }

    /// Takes over the exports of a configuration. Exports keep their places, which clients know them by; one under
    /// which there is another volume now is another export, and one that comes back has its place again.
    pub(super) fn export(&mut self, nbd: &config::Nbd) {
        let mut exports = self.exports.as_slice().to_vec();
        for (export, volume) in exports.iter_mut().zip(&mut self.export_volumes) {
            let same =
                |one: &&config::Export| one.name == export.name && Some(one.volume) == *volume;
            if let Some(one) = nbd.exports.iter().find(same) {
                *export = offered(one, &self.volumes);
            } else {
                (export.removed, *volume) = (true, None);
            }
        }
        for one in &nbd.exports {
            if exports.iter().any(|export| !export.removed && export.name == one.name) {
                continue;
            }
            let offered = offered(one, &self.volumes);
            // The description names the volume: it is the same export again, also for a client that has yet to choose.
            let same = |export: &Export| {
                (&export.name, &export.description) == (&offered.name, &offered.description)
            };
            if let Some(place) = exports.iter().position(same) {
                exports[place] = offered;
                self.export_volumes[place] = Some(one.volume);
            } else {
                exports.push(offered);
                self.export_volumes.push(Some(one.volume));
            }
        }
        self.exports =
            Arc::new(Exports::new(exports).expect("names are checked by the configuration"));
    }

    /// Sends hosts that log in to a target elsewhere, or has them try again, or serves them.
    pub(crate) fn place_target(&mut self, target: usize, redirect: Option<Redirect>, serves: bool) {
        let entry = &mut Arc::make_mut(&mut self.node).targets[target];
        (entry.redirect, entry.unavailable) = (redirect, !serves);
    }

    /// Puts the new targets into force. Targets keep their places, which sessions know them by.
    pub(super) fn retarget(&mut self, new: &mut Config) {
        let fresh = node(new);
        let mut entries: Vec<TargetEntry> = Vec::new();
        let mut targets: Vec<Target> = Vec::new();
        for (entry, target) in self.node.targets.iter().zip(&self.targets) {
            let place = fresh.targets.iter().position(|one| one.iqn == entry.iqn);
            if let Some(place) = place {
                entries.push(fresh.targets[place].clone());
                targets.push(Target::new(&new.targets[place]));
            } else {
                entries.push(TargetEntry { removed: true, ..entry.clone() });
                targets.push(Target { luns: Vec::new(), ..target.clone() });
            }
        }
        for (entry, target) in fresh.targets.iter().zip(&new.targets) {
            if !entries.iter().any(|one| one.iqn == entry.iqn) {
                entries.push(entry.clone());
                targets.push(Target::new(target));
            }
        }
        self.targets = targets;
        self.node = Arc::new(Node { targets: entries, ..fresh });
    }
}

/// What the targets are to hosts that log in.
fn node(config: &Config) -> Node {
    let entry = |target: &TargetConfig| TargetEntry {
        iqn: target.name.clone(),
        alias: target.alias.clone(),
        initiators: target.initiators.clone(),
        units: target
            .luns
            .iter()
            .map(|&(_, volume)| config.volumes[volume].initiators.clone())
            .collect(),
        authentication: target.authentication.clone(),
        redirect: target.redirect.clone(),
        unavailable: false,
        removed: false,
    };
    Node {
        targets: config.targets.iter().map(entry).collect(),
        portals: config.advertise.iter().cloned().map(Advertised).collect(),
        portal_group: PORTAL_GROUP,
        accounts: config.accounts.clone(),
        discovery: config.discovery.clone(),
    }
}

/// An export as clients find it.
fn offered(export: &config::Export, volumes: &[Volume]) -> Export {
    let volume = &volumes[export.volume];
    let disk = volume.unit.disk();
    Export {
        name: export.name.clone(),
        description: format!("volume {}", volume.name),
        size: disk.blocks * u64::from(disk.block_size),
        read_only: disk.read_only,
        trim: disk.thin,
        // A file system that makes holes does it at once.
        fast_zero: disk.thin,
        block_size: BlockSize {
            minimum: disk.block_size,
            preferred: 4096,
            maximum: LARGEST as u32,
        },
        removed: false,
    }
}
