//! Commands of the NVM command set: which there are, what they ask for, and whether a namespace can do it.

use super::limits::GATHER_MAX;
use super::namespace::{AnaState, NSID_ALL, NSID_MAX, Namespace};
use super::pdu::{Sqe, Transfer};
use super::reservation;
use super::status::Status;
use crate::scsi::reservation::HostOut;

/// An I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Bring everything that was written before to stable storage.
    Flush,
    /// Read blocks to the host.
    Read(Blocks),
    /// Write blocks from the host.
    Write(Blocks),
    /// Read blocks and compare them with data from the host: [`Status::COMPARE_FAILURE`] if they differ.
    Compare(Blocks),
    /// Read blocks without moving them.
    Verify(Blocks),
    /// Write zeroes.
    WriteZeroes {
        /// The blocks: up to 65536, without regard to the limit of a transfer.
        blocks: Blocks,
        /// The blocks may be deallocated.
        deallocate: bool,
    },
    /// Hints about ranges. The shell gathers the list of [`list_length`](Self::list_length) bytes and gives it to
    /// [`ranges`].
    DatasetManagement {
        /// Ranges in the list, 1 to 256.
        ranges: u16,
        /// The ranges may be deallocated. Otherwise nothing is asked for.
        deallocate: bool,
    },
    /// Register, Acquire or Release. The shell gathers the list of [`list_length`](Self::list_length) bytes and gives
    /// it to [`reservation::keys`].
    Reserve(HostOut),
    /// Reservation Report: who is registered, and who holds the reservation.
    ReservationReport {
        /// Dwords that the host wants; the rest of its data is zeroes.
        dwords: u64,
    },
}

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks, 1 to 65536; in a list of ranges up to 2³² − 1, and perhaps none.
    pub count: u32,
    /// Force unit access: not done before it is on stable storage.
    pub fua: bool,
}

/// The namespaces that a command concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one at this index of the namespaces.
    One(usize),
    /// All namespaces of the controller, for a Flush.
    All,
}

/// Reads an I/O command. `namespaces` are those that the host may see, in ascending order.
///
/// Checked in this order: opcode, FUSE, the SGL descriptor, fields, the namespace, its ANA state. The shell then asks the
/// reservations, and [`Io::check`] does the rest, before any data is asked for.
pub fn decode(
    sqe: &Sqe,
    transfer: Transfer,
    namespaces: &[Namespace],
) -> Result<(Io, Target), Status> {
    let io = match sqe.opcode() {
        reservation::opcode::REGISTER
        | reservation::opcode::ACQUIRE
        | reservation::opcode::RELEASE => reservation::decode(sqe).map(Io::Reserve),
        // EDS: over fabrics a host identifier has 16 bytes.
        reservation::opcode::REPORT if sqe.cdw(11) & EXTENDED == 0 => {
            Err(Status::HOST_ID_INCONSISTENT)
        }
        reservation::opcode::REPORT => {
            Ok(Io::ReservationReport { dwords: u64::from(sqe.cdw(10)) + 1 })
        }
        _ => Ok(plain(sqe)?),
    };
    // The only pair of fused commands is Compare and Write.
    match (sqe.fuse(), sqe.opcode()) {
        (0, _) | (1, opcode::COMPARE) | (2, opcode::WRITE) => {}
        _ => return Err(Status::INVALID_FIELD),
    }
    if let Transfer::Invalid(status) = transfer {
        return Err(status);
    }
    let io = io?;
    let has_blocks = matches!(
        io,
        Io::Read(_) | Io::Write(_) | Io::Compare(_) | Io::Verify(_) | Io::WriteZeroes { .. }
    );
    // There is no protection information; a directive of a Write would need support of directives.
    let protection = has_blocks && sqe.cdw(12) & PROTECTION != 0;
    let directive = matches!(io, Io::Write(_)) && sqe.cdw(12) & DIRECTIVE_TYPE != 0;
    if protection || directive {
        return Err(Status::INVALID_FIELD);
    }
    let target = match (io, sqe.nsid()) {
        (Io::Flush, NSID_ALL) => return Ok((io, Target::All)),
        (_, nsid) => find(nsid, namespaces)?,
    };
    match namespaces[target].ana {
        AnaState::Optimized | AnaState::NonOptimized => Ok((io, Target::One(target))),
        AnaState::Inaccessible => Err(Status::ANA_INACCESSIBLE),
        AnaState::PersistentLoss => Err(Status::ANA_PERSISTENT_LOSS),
        AnaState::Change => Err(Status::ANA_TRANSITION),
    }
}

/// A command that is no reservation command.
fn plain(sqe: &Sqe) -> Result<Io, Status> {
    Ok(match sqe.opcode() {
        opcode::FLUSH => Io::Flush,
        opcode::WRITE => Io::Write(blocks(sqe)),
        opcode::READ => Io::Read(blocks(sqe)),
        opcode::COMPARE => Io::Compare(blocks(sqe)),
        opcode::WRITE_ZEROES => {
            Io::WriteZeroes { blocks: blocks(sqe), deallocate: sqe.cdw(12) & DEALLOCATE != 0 }
        }
        opcode::DATASET_MANAGEMENT => Io::DatasetManagement {
            ranges: (sqe.cdw(10) & 0xff) as u16 + 1,
            deallocate: sqe.cdw(11) & ATTRIBUTE_DEALLOCATE != 0,
        },
        opcode::VERIFY => Io::Verify(blocks(sqe)),
        _ => return Err(Status::INVALID_OPCODE),
    })
}

/// Index of the namespace with this identifier.
fn find(nsid: u32, namespaces: &[Namespace]) -> Result<usize, Status> {
    if !(1..=NSID_MAX).contains(&nsid) {
        return Err(Status::INVALID_NAMESPACE);
    }
    let found = namespaces.binary_search_by_key(&nsid, |namespace| namespace.nsid);
    found.map_err(|_| Status::INVALID_FIELD)
}

fn blocks(sqe: &Sqe) -> Blocks {
    Blocks {
        lba: sqe.cdw_pair(10),
        count: (sqe.cdw(12) & 0xffff) + 1,
        fua: sqe.cdw(12) & FORCE_UNIT_ACCESS != 0,
    }
}

impl Io {
    /// Whether it changes the namespace.
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Write(_)
                | Self::WriteZeroes { .. }
                | Self::DatasetManagement { deallocate: true, .. }
        )
    }

    /// Checks a command against its namespace, in this order: write protection, the range of blocks, lengths.
    /// `max_transfer` is the [limit](super::Limits::max_transfer), in bytes, which bounds Verify as well (VSL).
    pub fn check(
        self,
        transfer: Transfer,
        namespace: &Namespace,
        max_transfer: u32,
    ) -> Result<(), Status> {
        if self.is_write() && namespace.read_only {
            return Err(Status::WRITE_PROTECTED);
        }
        let (blocks, moved) = match self {
            Self::Flush => return Ok(()),
            Self::ReservationReport { dwords } => {
                let length = dwords * 4;
                if length > max_transfer.into() {
                    return Err(Status::INVALID_FIELD);
                }
                let has_room = transfer.to_host().map(u64::from) == Some(length);
                return if has_room { Ok(()) } else { Err(Status::SGL_LENGTH_INVALID) };
            }
            Self::DatasetManagement { .. } | Self::Reserve(_) => {
                // Linux always sends a whole page, or more keys; what lies behind the list is dropped.
                let is_there =
                    transfer.from_host().is_some_and(|length| length >= self.list_length());
                return if is_there { Ok(()) } else { Err(Status::SGL_LENGTH_INVALID) };
            }
            Self::Read(blocks) => (blocks, Some(transfer.to_host())),
            Self::Write(blocks) | Self::Compare(blocks) => (blocks, Some(transfer.from_host())),
            Self::Verify(blocks) | Self::WriteZeroes { blocks, .. } => (blocks, None),
        };
        if !namespace.has(blocks.lba, blocks.count.into()) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let length = u64::from(blocks.count) << namespace.block_shift;
        let is_limited = !matches!(self, Self::WriteZeroes { .. });
        if is_limited && length > max_transfer.into() {
            return Err(Status::INVALID_FIELD);
        }
        match moved {
            Some(moved) if moved.map(u64::from) != Some(length) => Err(Status::SGL_LENGTH_INVALID),
            _ => Ok(()),
        }
    }

    /// Length of the list of a command that has one, in bytes, at most [`GATHER_MAX`]; zero for other commands.
    pub const fn list_length(self) -> u32 {
        match self {
            Self::DatasetManagement { ranges, .. } => ranges as u32 * RANGE_LENGTH as u32,
            Self::Reserve(out) => reservation::list_length(out.action),
            _ => 0,
        }
    }
}

/// The ranges of a Dataset Management list: all lie within the namespace, or none is done.
pub fn ranges(list: &[u8], namespace: &Namespace) -> Result<Vec<Blocks>, Status> {
    let (entries, _) = list.as_chunks::<RANGE_LENGTH>();
    let range = |entry: &[u8; RANGE_LENGTH]| {
        let [_, _, _, _, count @ .., _, _, _, _, _, _, _, _] = *entry;
        let [_, _, _, _, _, _, _, _, lba @ ..] = *entry;
        let (lba, count) = (u64::from_le_bytes(lba), u32::from_le_bytes(count));
        let is_there = namespace.has(lba, count.into());
        is_there.then_some(Blocks { lba, count, fua: false }).ok_or(Status::LBA_OUT_OF_RANGE)
    };
    entries.iter().map(range).collect()
}

/// Opcodes.
pub(super) mod opcode {
    pub(in crate::nvme) const FLUSH: u8 = 0x00;
    pub(in crate::nvme) const WRITE: u8 = 0x01;
    pub(in crate::nvme) const READ: u8 = 0x02;
    pub(in crate::nvme) const COMPARE: u8 = 0x05;
    pub(in crate::nvme) const WRITE_ZEROES: u8 = 0x08;
    pub(in crate::nvme) const DATASET_MANAGEMENT: u8 = 0x09;
    pub(in crate::nvme) const VERIFY: u8 = 0x0c;
}

/// Dword 11 of Reservation Report: the extended format (EDS).
const EXTENDED: u32 = 1;
/// Dword 12: the blocks may be deallocated (DEAC).
const DEALLOCATE: u32 = 1 << 25;
/// Dword 12: protection information (PRINFO).
const PROTECTION: u32 = 0xf << 26;
/// Dword 12: force unit access.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Dword 12: type of the directive (DTYPE).
const DIRECTIVE_TYPE: u32 = 0xf << 20;
/// Dword 11 of Dataset Management: deallocate (AD).
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// Length of a range of Dataset Management, in bytes.
const RANGE_LENGTH: usize = 16;

const _: () = assert!(256 * RANGE_LENGTH as u32 == GATHER_MAX);
