//! Standard INQUIRY data (SPC-4 section 6.6.2).

use super::disk::DiskInfo;

/// Length of the data, version descriptors included, in bytes.
const LENGTH: usize = 96;
/// SAM-5, SPC-4, SBC-3 and iSCSI, none with a revision claimed (SPC-4 table 151).
const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];

/// The standard INQUIRY data of a disk.
pub(crate) fn standard(disk: &DiskInfo) -> Vec<u8> {
    let mut data = blank(0x00);
    // RMB.
    data[1] = u8::from(disk.removable) << 7;
    // TPGS: states of target port groups are changed by the target alone. 3PC: third-party copies.
    data[5] = 0x18;
    // CMDQUE: commands may be queued.
    data[7] = 0x02;
    pad(&mut data[8..16], &disk.vendor);
    pad(&mut data[16..32], &disk.product);
    pad(&mut data[32..36], &disk.revision);
    for (slot, version) in data[58..].chunks_exact_mut(2).zip(VERSION_DESCRIPTORS) {
        slot.copy_from_slice(&version.to_be_bytes());
    }
    data
}

/// The INQUIRY data of a logical unit that does not exist: qualifier 3, type unknown.
pub(crate) fn absent() -> Vec<u8> {
    let mut data = blank(0x7f);
    data[8..36].fill(b' ');
    data
}

fn blank(peripheral: u8) -> Vec<u8> {
    let mut data = vec![0; LENGTH];
    data[0] = peripheral;
    // Version: SPC-4. HISUP: LUNs are assigned by SAM's rules; response data format 2.
    data[2] = 0x06;
    data[3] = 0x12;
    data[4] = (LENGTH - 5) as u8;
    data
}

/// Writes text into a field: printable ASCII, left-aligned, filled with spaces (SPC-4 section
/// 4.4.1).
pub(crate) fn pad(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(printable(text)) {
        *to = from;
    }
}

/// The bytes of `text`, with a question mark for characters that SCSI does not allow.
pub(crate) fn printable(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'?' })
}
