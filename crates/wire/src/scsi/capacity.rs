//! READ CAPACITY (SBC-3 sections 5.15 and 5.16).

use super::disk::DiskInfo;

/// READ CAPACITY(10): the last block, or all ones if it does not fit.
pub(crate) fn short(disk: &DiskInfo) -> Vec<u8> {
    let last = u32::try_from(disk.last_lba()).unwrap_or(u32::MAX);
    [last.to_be_bytes(), disk.block_size.to_be_bytes()].concat()
}

/// READ CAPACITY(16).
pub(crate) fn long(disk: &DiskInfo) -> Vec<u8> {
    let mut data = vec![0; 32];
    data[..8].copy_from_slice(&disk.last_lba().to_be_bytes());
    data[8..12].copy_from_slice(&disk.block_size.to_be_bytes());
    data[13] = disk.physical_block_exponent & 0x0f;
    // LBPME, and LBPRZ: deallocated blocks read as zeros.
    data[14] = if disk.thin { 0xc0 } else { 0 };
    data
}
