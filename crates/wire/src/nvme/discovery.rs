//! The discovery log page: which subsystems a host can reach, and where.

use std::net::IpAddr;
use std::sync::Arc;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, Unaligned};

/// NQN of the discovery subsystem of every NVMe over Fabrics host and target.
pub const NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// What an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another discovery subsystem.
    Referral,
    /// A subsystem with namespaces.
    Subsystem,
    /// The discovery subsystem that gives this page.
    Current,
}

/// One way to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it leads to.
    pub kind: Kind,
    /// NQN of the subsystem; cut after 223 bytes.
    pub subsystem: String,
    /// Address of the portal.
    pub address: IpAddr,
    /// TCP port of the portal.
    pub port: u16,
    /// The portal's number, the same in all entries of one portal.
    pub portal: u16,
}

/// The header of the page.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    generation: U64,
    records: U64,
    format: U16,
    reserved: [u8; 1006],
}

/// An entry of the page.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    transport: u8,
    family: u8,
    subtype: u8,
    requirements: u8,
    portal: U16,
    controller: U16,
    admin_depth: U16,
    flags: U16,
    reserved: [u8; 20],
    service: [u8; 32],
    reserved_too: [u8; 192],
    subsystem: [u8; 256],
    address: [u8; 256],
    security: [u8; 256],
}

/// The lists of all hosts change together: the generation counter of the page grows whenever any host could see another
/// list, and pages are made anew then.
#[derive(Debug, Default)]
pub struct Generation(u64);

impl Generation {
    /// Another list can be seen from now on.
    pub const fn advance(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// The counter.
    pub const fn get(&self) -> u64 {
        self.0
    }
}

/// The page for one host. It is made once for a generation, and every read of it refers to the same bytes.
pub fn page(generation: &Generation, entries: &[Entry]) -> Arc<[u8]> {
    let header = Header {
        generation: U64::new(generation.get()),
        records: U64::new(entries.len() as u64),
        format: U16::new(0),
        reserved: [0; 1006],
    };
    let mut page = Vec::with_capacity((entries.len() + 1) * RECORD_LENGTH);
    page.extend_from_slice(header.as_bytes());
    for entry in entries {
        page.extend_from_slice(record(entry).as_bytes());
    }
    page.into()
}

fn record(entry: &Entry) -> Record {
    let (subtype, flags) = match entry.kind {
        Kind::Referral => (1, 0),
        Kind::Subsystem => (2, 0),
        // EFLAGS bit 1: explicit persistent connections are supported.
        Kind::Current => (3, 1 << 1),
    };
    let mut subsystem = [0; 256];
    let name = entry.subsystem.as_bytes();
    let length = name.len().min(223);
    subsystem[..length].copy_from_slice(&name[..length]);
    Record {
        transport: TRANSPORT_TCP,
        family: if entry.address.is_ipv4() { 1 } else { 2 },
        subtype,
        requirements: REQUIREMENTS,
        portal: U16::new(entry.portal),
        controller: U16::new(0xffff),
        admin_depth: U16::new(super::ADMIN_DEPTH),
        flags: U16::new(flags),
        reserved: [0; 20],
        service: padded(&entry.port.to_string()),
        reserved_too: [0; 192],
        subsystem,
        address: padded(&entry.address.to_string()),
        security: [0; 256],
    }
}

/// A text with spaces behind it.
pub(super) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    let length = text.len().min(N);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// TRTYPE of TCP.
const TRANSPORT_TCP: u8 = 3;
/// TREQ: whether TLS is needed is "not specified", and SQ flow control can be off. libnvme 1.3 takes "not required" for
/// a reason to ask the kernel for TLS, which kernels without it refuse.
const REQUIREMENTS: u8 = 1 << 2;
/// Length of the header and of each entry, in bytes.
const RECORD_LENGTH: usize = 1024;

const _: () = assert!(size_of::<Header>() == RECORD_LENGTH);
const _: () = assert!(size_of::<Record>() == RECORD_LENGTH);
