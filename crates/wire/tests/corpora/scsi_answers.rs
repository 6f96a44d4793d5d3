//! How large answers and transfers may be.

use weir_wire::scsi::cdb::{Compare, Media, MediaOp};
use weir_wire::scsi::disk::DiskInfo;
use weir_wire::scsi::unmap;

/// Largest answer that does not come from the medium, in bytes, but for the two below.
const ANSWER_MAX: usize = 4096;
/// Largest answer to GET LBA STATUS: 4096 descriptors, in bytes.
pub(crate) const LBA_STATUS_MAX: usize = 8 + 4096 * 16;
/// Largest full status: 128 registrations with the longest names, in bytes.
const FULL_STATUS_MAX: usize = 8 + 128 * (24 + 248);

/// An answer has the room that the CDB gives it.
pub(crate) fn check_answer(cdb: &[u8; 16], data: &[u8]) {
    let word = |at: usize| u32::from_be_bytes(cdb[at..at + 4].try_into().unwrap()) as usize;
    let room = match cdb[0] {
        0x03 | 0x1a => cdb[4].into(),
        0x12 => word(1) & 0xffff,
        0x37 | 0x4d | 0x5a | 0x5e => word(5) & 0xffff,
        0x84 | 0x9e => word(10),
        0xa0 | 0xa3 | 0xb7 => word(6),
        0x25 => 8,
        opcode => panic!("data in answer to opcode {opcode:#x}"),
    };
    let most = match cdb[0] {
        0x5e => FULL_STATUS_MAX,
        0x9e => LBA_STATUS_MAX,
        _ => ANSWER_MAX,
    };
    assert!(data.len() <= room.min(most), "{} bytes in answer to {cdb:x?}", data.len());
}

/// What reaches the medium is within the limits of the disk, and so is the data that goes with it.
pub(crate) fn check_limits(disk: &DiskInfo, media: &Media, list: &[u8]) {
    let atomic_unit = 1 << disk.physical_block_exponent;
    let most = match media.op {
        MediaOp::Read
        | MediaOp::Write
        | MediaOp::WriteVerify(_)
        | MediaOp::OrWrite
        | MediaOp::Verify(_) => disk.max_transfer_blocks.into(),
        MediaOp::CompareAndWrite => disk.max_compare_and_write_blocks.into(),
        MediaOp::WriteAtomic => {
            assert!(media.lba.is_multiple_of(atomic_unit));
            assert!(media.blocks.is_multiple_of(atomic_unit));
            disk.max_atomic_blocks.into()
        }
        MediaOp::WriteSame { unmap, .. } => {
            assert!(disk.thin || !unmap);
            assert!(disk.max_write_same_blocks == 0 || media.blocks > 0);
            disk.max_write_same_blocks
        }
        MediaOp::Synchronize { .. } | MediaOp::Unmap { .. } => 0,
    };
    assert!(most == 0 || media.blocks <= most, "{media:?}");
    assert_ne!(media.op, MediaOp::WriteVerify(Compare::OneBlock));
    let (out, back) =
        (media.data_out_length(disk.block_size), media.data_in_length(disk.block_size));
    assert!(out == 0 || back == 0, "no command here moves data both ways");
    for expected in [0, list.len() as u32, disk.block_size, u32::MAX] {
        if let Ok(gathered) = media.check_data_out(expected, disk.block_size) {
            assert!(gathered <= expected && u64::from(gathered) <= out);
        }
    }
    if let MediaOp::Unmap { list_length } = media.op {
        let list = &list[..list.len().min(usize::from(list_length))];
        let Ok(extents) = unmap::extents(list, disk) else { return };
        let (mut count, mut blocks) = (0, 0);
        for extent in extents {
            count += 1;
            blocks += u64::from(extent.blocks);
            let end = extent.lba.checked_add(extent.blocks.into());
            assert!(end.is_some_and(|end| end <= disk.blocks));
        }
        assert!(count <= disk.max_unmap_descriptors && blocks <= disk.max_unmap_blocks.into());
    }
}
