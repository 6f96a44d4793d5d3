//! Layouts of NVMe/TCP PDUs, of commands and of completions; little-endian.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;

/// PDU types.
pub(super) mod kind {
    pub(in crate::nvme) const IC_REQ: u8 = 0x00;
    pub(in crate::nvme) const IC_RESP: u8 = 0x01;
    pub(in crate::nvme) const H2C_TERM_REQ: u8 = 0x02;
    pub(in crate::nvme) const C2H_TERM_REQ: u8 = 0x03;
    pub(in crate::nvme) const CAPSULE_CMD: u8 = 0x04;
    pub(in crate::nvme) const CAPSULE_RESP: u8 = 0x05;
    pub(in crate::nvme) const H2C_DATA: u8 = 0x06;
    pub(in crate::nvme) const C2H_DATA: u8 = 0x07;
    pub(in crate::nvme) const R2T: u8 = 0x09;
}

/// Flags of the common header.
pub(super) mod flag {
    pub(in crate::nvme) const HEADER_DIGEST: u8 = 1 << 0;
    pub(in crate::nvme) const DATA_DIGEST: u8 = 1 << 1;
    pub(in crate::nvme) const LAST_PDU: u8 = 1 << 2;
    pub(in crate::nvme) const SUCCESS: u8 = 1 << 3;
}

/// Byte offsets in headers, as a termination request names a wrong field.
pub(super) mod field {
    pub(in crate::nvme) const TYPE: u32 = 0;
    pub(in crate::nvme) const FLAGS: u32 = 1;
    pub(in crate::nvme) const HLEN: u32 = 2;
    pub(in crate::nvme) const PDO: u32 = 3;
    pub(in crate::nvme) const PLEN: u32 = 4;
    pub(in crate::nvme) const PFV: u32 = 8;
    pub(in crate::nvme) const HPDA: u32 = 10;
    pub(in crate::nvme) const DGST: u32 = 11;
    pub(in crate::nvme) const DATAL: u32 = 16;
}

/// Digest bits of `ICReq` and `ICResp`.
pub(super) mod digest_bit {
    pub(in crate::nvme) const HEADER: u8 = 1 << 0;
    pub(in crate::nvme) const DATA: u8 = 1 << 1;
}

/// The first 8 bytes of every PDU.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CommonHeader {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// Length of the header, in bytes.
    pub(super) hlen: u8,
    /// Offset of the data from the start of the PDU, in bytes.
    pub(super) pdo: u8,
    /// Length of the PDU, in bytes: header, digests, padding and data.
    pub(super) plen: U32,
}

/// Initialize Connection Request and Response.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct InitializeConnection {
    pub(super) common: CommonHeader,
    /// PDU format version.
    pub(super) pfv: U16,
    /// HPDA or CPDA: alignment of data, in dwords, zero-based.
    pub(super) pda: u8,
    pub(super) digests: u8,
    /// MAXR2T, zero-based, or MAXH2CDATA, in bytes.
    pub(super) maximum: U32,
    pub(super) reserved: [u8; 112],
}

/// A termination request, without the offending header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TermReq {
    pub(super) common: CommonHeader,
    pub(super) fes: U16,
    pub(super) fei: U32,
    pub(super) reserved: [u8; 10],
}

/// `H2CData`, `C2HData` and R2T.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DataHeader {
    pub(super) common: CommonHeader,
    pub(super) cccid: U16,
    /// Transfer tag; reserved in `C2HData`.
    pub(super) ttag: U16,
    /// Offset in the data of the command, in bytes.
    pub(super) offset: U32,
    /// Length, in bytes.
    pub(super) length: U32,
    pub(super) reserved: U32,
}

/// A command capsule, without data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CapsuleCmd {
    pub(super) common: CommonHeader,
    pub(super) sqe: Sqe,
}

/// A response capsule.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CapsuleResp {
    pub(super) common: CommonHeader,
    pub(super) cqe: Cqe,
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Cqe {
    pub(super) dw0: U32,
    pub(super) dw1: U32,
    pub(super) sqhd: U16,
    pub(super) sqid: U16,
    pub(super) cid: U16,
    /// The status, shifted by the phase bit, which is zero over fabrics.
    pub(super) status: U16,
}

/// The SGL descriptor of a command.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Sgl {
    pub(super) address: U64,
    pub(super) length: U32,
    pub(super) reserved: [u8; 3],
    /// Type and subtype.
    pub(super) kind: u8,
}

/// Data Block, Offset: the data is in the capsule.
pub(super) const SGL_IN_CAPSULE: u8 = 0x01;
/// Transport SGL Data Block, transport specific: the data is moved by data PDUs.
pub(super) const SGL_TRANSPORT: u8 = 0x5a;

/// A submission queue entry: one command of a host, 64 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sqe {
    opcode: u8,
    flags: u8,
    cid: U16,
    nsid: U32,
    reserved: [u8; 16],
    pub(super) sgl: Sgl,
    cdw: [U32; 6],
}

impl Sqe {
    /// A command from its bytes.
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        zerocopy::transmute!(*bytes)
    }

    /// The opcode.
    pub const fn opcode(&self) -> u8 {
        self.opcode
    }

    /// FUSE: 0 for a command that is not fused.
    pub const fn fuse(&self) -> u8 {
        self.flags & 3
    }

    /// The command identifier, which the completion repeats.
    pub const fn cid(&self) -> u16 {
        self.cid.get()
    }

    /// The namespace identifier.
    pub const fn nsid(&self) -> u32 {
        self.nsid.get()
    }

    /// Command dword 10 to 15.
    ///
    /// Panics for another number.
    pub const fn cdw(&self, number: usize) -> u32 {
        self.cdw[number - 10].get()
    }

    /// Two dwords, of which `low` is the number of the lower one, 10 to 14.
    pub(super) const fn cdw_pair(&self, low: usize) -> u64 {
        self.cdw(low) as u64 | (self.cdw(low + 1) as u64) << 32
    }

    /// FCTYPE of a Fabrics command.
    pub(super) const fn fctype(&self) -> u8 {
        self.nsid.get().to_le_bytes()[0]
    }

    /// Whether this is a Fabrics command.
    pub(super) const fn is_fabrics(&self) -> bool {
        self.opcode == FABRICS
    }

    /// The data transfer that the opcode, or FCTYPE, encodes.
    const fn direction(&self) -> u8 {
        if self.is_fabrics() { self.fctype() & 3 } else { self.opcode & 3 }
    }

    /// How the data of this command moves. `in_capsule` is the length of the data in its PDU, in bytes.
    pub(super) fn transfer(&self, in_capsule: u32) -> Transfer {
        let (kind, length) = (self.sgl.kind, self.sgl.length.get());
        // NVMe over Fabrics: PSDT is 01b, for there are SGLs only.
        if self.flags >> 6 != 1 {
            return Transfer::Invalid(Status::INVALID_FIELD);
        }
        match (self.direction(), kind) {
            (0b00, _) => Transfer::None,
            (0b11, _) => Transfer::Invalid(Status::INVALID_FIELD),
            (0b01, SGL_IN_CAPSULE) if self.sgl.address.get() != 0 => {
                Transfer::Invalid(Status::INVALID_FIELD)
            }
            (0b01, SGL_IN_CAPSULE) if length != in_capsule => {
                Transfer::Invalid(Status::SGL_LENGTH_INVALID)
            }
            (0b01, SGL_IN_CAPSULE) => Transfer::InCapsule(length),
            (0b01, SGL_TRANSPORT) => Transfer::ByRequest(length),
            (0b10, SGL_TRANSPORT) => Transfer::ToHost(length),
            _ => Transfer::Invalid(Status::SGL_TYPE_INVALID),
        }
    }
}

impl std::fmt::Debug for Sqe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Sqe {{ opcode {:#04x}, flags {:#04x}, cid {}, nsid {}, cdw10 {:x?} }}",
            self.opcode,
            self.flags,
            self.cid(),
            self.nsid(),
            self.cdw.map(U32::get)
        )
    }
}

/// How the data of a command moves; lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// There is none.
    None,
    /// From the host, in the capsule: it comes as [`Event::Data`](super::Event::Data).
    InCapsule(u32),
    /// From the host, when [`Connection::solicit`](super::Connection::solicit) or
    /// [`Connection::gather`](super::Connection::gather) has asked for it.
    ByRequest(u32),
    /// To the host, exactly this much.
    ToHost(u32),
    /// The descriptor is wrong. The command ends with this status, unless something that is checked earlier is wrong,
    /// too.
    Invalid(Status),
}

impl Transfer {
    /// Length of the data from the host, in bytes; `None` if there is none.
    pub const fn from_host(self) -> Option<u32> {
        match self {
            Self::InCapsule(length) | Self::ByRequest(length) => Some(length),
            _ => None,
        }
    }

    /// Length of the data to the host, in bytes; `None` if there is none.
    pub const fn to_host(self) -> Option<u32> {
        match self {
            Self::ToHost(length) => Some(length),
            _ => None,
        }
    }
}

/// The opcode of Fabrics commands.
pub(super) const FABRICS: u8 = 0x7f;

const _: () = assert!(size_of::<CommonHeader>() == 8);
const _: () = assert!(size_of::<InitializeConnection>() == 128);
const _: () = assert!(size_of::<TermReq>() == 24);
const _: () = assert!(size_of::<DataHeader>() == 24);
const _: () = assert!(size_of::<CapsuleCmd>() == 72);
const _: () = assert!(size_of::<CapsuleResp>() == 24);
const _: () = assert!(size_of::<Sqe>() == 64);
