//! Targets and volumes as SCSI sees them.

use crate::buffer::LARGEST;
use crate::config;
use crate::desk::PIECE;
use crate::disk::backing::Backing;
use weir_flow::pipeline::Limits;
use weir_flow::request::RequestKey;
use weir_flow::rng::mix;
use weir_flow::units::Extent;
use weir_wire::scsi::disk::{DiskInfo, Port};
use weir_wire::scsi::{Sense, unmap};

/// A name that hosts log in to, and its logical units.
#[derive(Debug)]
pub(crate) struct Target {
    name: String,
    /// The number of each unit, ascending.
    luns: Vec<u64>,
    /// The volume of each unit.
    volumes: Vec<usize>,
}

impl Target {
    pub(crate) fn new(target: &config::Target) -> Self {
        Self {
            name: target.name.clone(),
            luns: target.luns.iter().map(|&(lun, _)| u64::from(lun)).collect(),
            volumes: target.luns.iter().map(|&(_, volume)| volume).collect(),
        }
    }

    /// The index of the unit with this number.
    pub(crate) fn unit(&self, lun: u64) -> Option<usize> {
        self.luns.binary_search(&lun).ok()
    }

    /// How many units there are.
    pub(crate) const fn unit_count(&self) -> usize {
        self.luns.len()
    }

    /// The volume behind a unit.
    pub(crate) fn volume(&self, unit: usize) -> usize {
        self.volumes[unit]
    }

    /// The volumes behind all units.
    pub(crate) fn volumes(&self) -> &[usize] {
        &self.volumes
    }

    /// The target as a SCSI port.
    pub(crate) fn port(&self) -> Port<'_> {
        Port {
            iqn: &self.name,
            portal_group: crate::desk::PORTAL_GROUP,
            relative: 1,
            units: &self.luns,
        }
    }
}

/// A volume as a SCSI disk.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) disk: DiskInfo,
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Index of the tenant that its requests belong to.
    pub(crate) tenant: usize,
    /// A flush, or a write that was to be durable, has failed: what was acknowledged may be lost,
    /// and nothing may promise otherwise again.
    pub(crate) lost: bool,
    /// A flush is at the driver.
    pub(crate) flushing: bool,
    /// Flushes that came while one was at the driver.
    pub(crate) flush_waits: Vec<RequestKey>,
    /// Flushes that the one at the driver is for, besides its own.
    pub(crate) flush_shared: Vec<RequestKey>,
}

impl Volume {
    /// `node` tells this machine from others.
    pub(crate) fn new(
        volume: &config::Volume,
        backing: &Backing,
        limits: &Limits,
        node: &str,
    ) -> Self {
        let block = u64::from(volume.block_size);
        let id = match &volume.identity {
            Some(identity) => identity_of(&[identity]),
            None => identity_of(&[node, &volume.name]),
        };
        let disk = DiskInfo {
            blocks: backing.capacity / block,
            block_size: volume.block_size,
            physical_block_exponent: (PHYSICAL_BLOCK / volume.block_size).trailing_zeros() as u8,
            serial: format!("{id:016x}"),
            id,
            product: String::from("VOLUME"),
            // Neither driver makes a write durable before it is asked to.
            write_cache: true,
            read_only: volume.read_only,
            thin: volume.thin && backing.holes,
            max_transfer_blocks: LARGEST as u32 / volume.block_size,
            optimal_transfer_blocks: PIECE as u32 / volume.block_size,
            max_unmap_blocks: UNMAP_MAX,
            max_unmap_descriptors: UNMAP_DESCRIPTORS.min(limits.max_requests),
            unmap_granularity_blocks: PHYSICAL_BLOCK / volume.block_size,
            max_write_same_blocks: WRITE_SAME_MAX.min(limits.max_bytes) / block,
            ..DiskInfo::default()
        };
        Self {
            disk,
            name: volume.name.clone(),
            tenant: volume.tenant,
            lost: false,
            flushing: false,
            flush_waits: Vec::new(),
            flush_shared: Vec::new(),
        }
    }

    /// Bytes per logical block.
    pub(crate) const fn block_size(&self) -> u32 {
        self.disk.block_size
    }

    /// The ranges of an UNMAP parameter list that are not empty.
    pub(crate) fn unmap_list(&self, list: &[u8]) -> Result<Vec<Extent>, Sense> {
        let block = u64::from(self.block_size());
        let extents = unmap::extents(list, &self.disk)?;
        let bytes = |e: unmap::Extent| Extent::new(e.lba * block, u64::from(e.blocks) * block);
        Ok(extents.map(bytes).filter(|extent| extent.length > 0).collect())
    }
}

/// What tells this machine from others, for the names of its disks: the machine id, or else the host
/// name.
pub(crate) fn node() -> String {
    let read = |path| std::fs::read_to_string(path).ok().filter(|text| !text.trim().is_empty());
    let text = read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname"));
    text.unwrap_or_default().trim().to_owned()
}

/// A worldwide number made of texts.
fn identity_of(parts: &[&str]) -> u64 {
    let fold = |id, byte: u8| mix(id ^ mix(u64::from(byte) + 1));
    parts.iter().fold(0, |id, part| part.bytes().chain([0]).fold(id, fold))
}

/// What files and devices work with beneath: aligned requests of this size cost no extra read.
const PHYSICAL_BLOCK: u32 = 4096;

/// Most blocks that one UNMAP may name, in all its descriptors.
const UNMAP_MAX: u32 = 1 << 20;

/// Most descriptors of one UNMAP: each becomes a request.
const UNMAP_DESCRIPTORS: u32 = 64;

/// Most bytes that one WRITE SAME may fill: few pieces, so that it cannot hold a volume for long.
const WRITE_SAME_MAX: u64 = 16 * PIECE;
