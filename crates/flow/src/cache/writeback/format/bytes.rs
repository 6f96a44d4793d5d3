//! Little-endian fields at fixed places, and CRC-32C.

use crc::{CRC_32_ISCSI, Crc, Digest, Table};

/// CRC-32C as iSCSI has it (RFC 7143, 13.1).
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// CRC-32C of `bytes`. A caller with a faster one may use that instead: the polynomial is the same.
pub fn crc32c(bytes: &[u8]) -> u32 {
    CRC.checksum(bytes)
}

/// A checksum that is to cover several pieces.
pub(super) fn digest() -> Digest<'static, u32, Table<16>> {
    CRC.digest()
}

/// The bytes at a fixed place. A place past the end is a bug of this module.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a field is inside what holds it")
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Writes a field at a fixed place.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}
