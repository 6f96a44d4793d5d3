//! A disk, and the commands that somebody sends to it.
//!
//! The first byte of an input chooses the disk. Records follow, each of a CDB, a length and as many
//! bytes of parameter data.

use weir_wire::scsi::attention::UnitAttention;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::disk::{Action, DiskInfo, Port, execute_absent};
use weir_wire::scsi::sense::SenseKey;
use weir_wire::scsi::{Sense, unmap};

/// Largest answer that does not come from the medium, in bytes.
const ANSWER_MAX: usize = 4096;
/// The units that the initiator may see.
const UNITS: [u64; 3] = [0, 1, 300];

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, mut records)) = input.split_first() else { return };
    let block_size = if options & 1 == 0 { 512 } else { 4096 };
    let disk = DiskInfo {
        blocks: [1, 2048, 1 << 33, u64::MAX >> 13][usize::from(options >> 1 & 3)],
        block_size,
        read_only: options & 0x08 != 0,
        thin: options & 0x10 != 0,
        write_cache: options & 0x20 != 0,
        max_transfer_blocks: if options & 0x40 == 0 { 0 } else { 256 },
        max_write_same_blocks: if options & 0x80 == 0 { 0 } else { 1 << 16 },
        ..DiskInfo::default()
    };
    let port =
        Port { iqn: "iqn.2026-01.test.weir:disk", portal_group: 1, relative: 1, units: &UNITS };
    let mut attention = UnitAttention::new();
    // A new nexus has one condition; no command may tell more than that.
    let mut conditions = 1;
    while let Some((cdb, rest)) = records.split_first_chunk::<16>() {
        let (&length, rest) = rest.split_first().unwrap_or((&0, &[]));
        let (list, rest) = rest.split_at(rest.len().min(usize::from(length)));
        records = rest;
        match disk.execute(cdb, &port, &mut attention) {
            Ok(Action::Data(data)) => check_answer(cdb[0], &data),
            Ok(Action::Done) => {}
            Ok(Action::Media(media)) => check_media(&disk, &media, list),
            Err(sense) if sense.key == SenseKey::UnitAttention => {
                assert!(
                    !matches!(cdb[0], 0x03 | 0x12 | 0xa0),
                    "SAM-5 5.14: these run all the same"
                );
                assert!(conditions > 0, "a condition is told once");
                conditions -= 1;
            }
            Err(sense) => check_refusal(&disk, &sense),
        }
        match execute_absent(cdb, &UNITS) {
            Ok(Action::Data(data)) => check_answer(cdb[0], &data),
            Ok(other) => panic!("a unit that is not there did {other:?}"),
            Err(sense) => assert_eq!(sense.key, SenseKey::IllegalRequest),
        }
    }
}

fn check_answer(opcode: u8, data: &[u8]) {
    assert!(data.len() <= ANSWER_MAX, "{} bytes in answer to opcode {opcode:#x}", data.len());
}

fn check_refusal(disk: &DiskInfo, sense: &Sense) {
    match sense.key {
        SenseKey::IllegalRequest => {}
        SenseKey::DataProtect => assert!(disk.read_only),
        other => panic!("a command was refused with {other:?}"),
    }
    assert!(sense.field.is_none_or(|field| !field.in_cdb || field.byte < 16));
}

/// Whatever reaches the medium lies on the disk and within its limits.
fn check_media(disk: &DiskInfo, media: &Media, list: &[u8]) {
    assert!(media.lba.checked_add(media.blocks).is_some_and(|end| end <= disk.blocks));
    assert!(!(disk.read_only && media.is_write()));
    let most = u64::from(disk.max_transfer_blocks);
    let limited = matches!(media.op, MediaOp::Read | MediaOp::Write | MediaOp::Verify(_));
    assert!(!limited || most == 0 || media.blocks <= most);
    let (out, back) =
        (media.data_out_length(disk.block_size), media.data_in_length(disk.block_size));
    assert!(out == 0 || back == 0, "no command here moves data both ways");
    for expected in [0, list.len() as u32, disk.block_size, u32::MAX] {
        if let Ok(gathered) = media.check_data_out(expected, disk.block_size) {
            assert!(gathered <= expected && u64::from(gathered) <= out);
        }
    }
    if let MediaOp::Unmap { list_length } = media.op {
        assert!(disk.thin);
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
