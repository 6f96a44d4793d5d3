//! Facts about a namespace, as hosts see them.

use super::limits::GATHER_MAX;

/// State of asymmetric access to a namespace through one portal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnaState {
    /// A host prefers this path.
    #[default]
    Optimized,
    /// A host uses this path if no optimized one is left.
    NonOptimized,
    /// A host uses another path, and waits if there is none.
    Inaccessible,
    /// The namespace does not come back on this path.
    PersistentLoss,
    /// The state changes; this must last less than the 10 s that Identify Controller announces.
    Change,
}

impl AnaState {
    /// The value in the log page.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Optimized => 0x1,
            Self::NonOptimized => 0x2,
            Self::Inaccessible => 0x3,
            Self::PersistentLoss => 0x4,
            Self::Change => 0xf,
        }
    }
}

/// Facts about one namespace: a field for each that a host is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace identifier, 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Size of a logical block as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Blocks can be deallocated and read as zeroes then.
    pub thin: bool,
    /// Writing is forbidden.
    pub read_only: bool,
    /// Reservations can outlive a loss of power.
    pub persists_reservations: bool,
    /// Logical blocks per physical block, as a power of two.
    pub physical_block_exponent: u8,
    /// Ranges that are a multiple of this many blocks deallocate best; 0 says nothing.
    pub unmap_granularity_blocks: u32,
    /// Most blocks of a fused Compare and Write (NACWU), at least 1, at most [`fused_blocks_max`] for its block size.
    pub fused_blocks: u32,
    /// Blocks per command that perform best; 0 says nothing.
    pub optimal_transfer_blocks: u32,
    /// Globally unique identifier, permanent and the same on every path.
    pub nguid: [u8; 16],
    /// UUID, permanent and the same on every path.
    pub uuid: [u8; 16],
    /// Access through the portal of this controller.
    pub ana: AnaState,
}

impl Namespace {
    /// Whether all these blocks exist. No blocks right behind the last are fine.
    pub(super) fn has(&self, lba: u64, blocks: u64) -> bool {
        lba.checked_add(blocks).is_some_and(|end| end <= self.blocks)
    }
}

/// Most blocks of a fused Compare and Write: their data is collected, as lists are.
pub const fn fused_blocks_max(block_shift: u8) -> u32 {
    GATHER_MAX >> block_shift
}

/// Greatest namespace identifier, and most namespaces of a subsystem (NN, MNAN).
pub const NSID_MAX: u32 = 256;
/// The namespace identifier that means all namespaces.
pub(super) const NSID_ALL: u32 = 0xffff_ffff;
