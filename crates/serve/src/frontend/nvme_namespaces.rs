//! What a host sees of a subsystem: its namespaces, and the volumes behind them.

use crate::config::{Nvme, Subsystem};
use crate::identity::bytes_of;
use crate::volume::Volume;
use crate::volume::catalog::Catalog;
use std::net::SocketAddr;
use weir_wire::nvme::{AnaState, Namespace, fused_blocks_max};

/// The namespaces that a host may see, in ascending order of their identifiers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Namespaces {
    pub(super) facts: Vec<Namespace>,
    /// Index of the volume behind each.
    pub(super) volumes: Vec<usize>,
}

impl Namespaces {
    /// Those of a subsystem that the host with this NQN may see, which has come to this address.
    pub(super) fn of(
        catalog: &Catalog,
        subsystem: &Subsystem,
        host: &str,
        local: Option<SocketAddr>,
    ) -> Self {
        let (host, access) = (host.to_ascii_lowercase(), subsystem.access(local));
        let mut seen = Self::default();
        for &(nsid, volume) in &subsystem.namespaces {
            let behind = &catalog.volumes[volume];
            if behind.initiators.admit(&host) {
                seen.facts.push(namespace(nsid, behind, access));
                seen.volumes.push(volume);
            }
        }
        seen
    }

    /// Index of the volume behind the namespace of this identifier.
    pub(super) fn volume_of(&self, nsid: u32) -> Option<usize> {
        self.place_of(nsid).map(|place| self.volumes[place])
    }

    /// The identifier of the first namespace of this volume.
    pub(super) fn nsid_of(&self, volume: usize) -> Option<u32> {
        let place = self.volumes.iter().position(|&of| of == volume)?;
        Some(self.facts[place].nsid)
    }

    /// The namespace of this identifier.
    pub(super) fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.place_of(nsid).map(|place| &self.facts[place])
    }

    fn place_of(&self, nsid: u32) -> Option<usize> {
        self.facts.binary_search_by_key(&nsid, |one| one.nsid).ok()
    }
}

/// The subsystem with this NQN, if the host may see it.
pub(super) fn admitted<'a>(nvme: &'a Nvme, nqn: &str, host: &str) -> Option<&'a Subsystem> {
    let found = nvme.subsystems.iter().find(|one| one.name == nqn);
    found.filter(|one| one.hosts.admit(&host.to_ascii_lowercase()))
}

fn namespace(nsid: u32, volume: &Volume, access: AnaState) -> Namespace {
    let disk = volume.unit.disk();
    let nguid = bytes_of(disk.id);
    let mut uuid = nguid;
    // RFC 9562, 5.8: version 8, whose other bits are free, and the variant.
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let block_shift = disk.block_size.trailing_zeros() as u8;
    let fused_blocks = u32::from(disk.max_compare_and_write_blocks);
    Namespace {
        nsid,
        blocks: disk.blocks,
        block_shift,
        thin: disk.thin,
        read_only: disk.read_only,
        persists_reservations: volume.state.is_some(),
        physical_block_exponent: disk.physical_block_exponent,
        unmap_granularity_blocks: disk.unmap_granularity_blocks,
        fused_blocks: fused_blocks.clamp(1, fused_blocks_max(block_shift)),
        optimal_transfer_blocks: disk.optimal_transfer_blocks,
        nguid,
        uuid,
        ana: if volume.unit.is_withdrawn() { AnaState::Inaccessible } else { access },
    }
}
